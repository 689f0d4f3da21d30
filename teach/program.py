#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Grades programs that students wrote, each a folder of C files that is built like one of 05 to 07
and takes the same command line. Everything of theirs, compiler runs too, happens in the VM.
    program.py LAB FOLDER  FOLDER (or an archive): one program, or what a class handed in (collect.py)
    ONLY="sgl NAME:copy"   these parts of the rubric alone; the second of that student's program (or ID:copy)
    SEED=17                the layouts of an earlier run, which named it
    ONE=yes                all in FOLDER is one student's
    JOBS=4                 VMs at a time, of 1 GiB; else as many as there are processors and memory for them
    AGAIN="NAME"           these once more, with the layouts that they had; all: everything
    RESULTS=FILE           a line for each as it is done, which is not graded again (results/programs.jsonl)"""
import glob
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "judge"))
# pylint: disable=wrong-import-position
import collect  # noqa: E402
import expected  # noqa: E402
from probes import for_the_vm  # noqa: E402
from reader import printable

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PARTS = "builds|sgl|copy|each|itself|verifies|careful"
RESULTS = os.environ.get("RESULTS", f"{ROOT}/results/programs.jsonl")


def left_out(folder, names):
    """Links, devices, what is no source by its size; and programs: they are built anew."""

    def source(path):
        if os.path.islink(path) or not os.path.isfile(path):
            return os.path.isdir(path) and not os.path.islink(path)
        with open(path, "rb") as file:
            return os.path.getsize(path) < 1 << 20 and file.read(4) != b"\x7fELF"

    return [name for name in names if not source(os.path.join(folder, name))]


def put_together(lab, entries, built):
    """What the VM takes: the reference, the suite without samples, the hand-ins."""
    often = f"BATCH = {random.Random(entries[0]['seed']).randint(64, 192)}"  # receives; 07's sample acknowledges after 256
    with open(glob.glob(f"{ROOT}/{lab}_*/*.c")[0], encoding="utf-8") as file:
        text = file.read().replace("BATCH = QUEUE_SIZE / 4", often)
    with open(f"{built}/reference.c", "w", encoding="utf-8") as copy:
        copy.write(text)
    for part in ("common", "blocks"):
        shutil.copytree(f"{ROOT}/{part}", f"{built}/suite/{part}")
    os.makedirs(f"{built}/suite/build/objects")
    for path in glob.glob(f"{ROOT}/common/*.c") + glob.glob(f"{ROOT}/blocks/*.c"):
        name = os.path.basename(path)[:-2]  # no object of a file that is no longer there
        shutil.copy(f"{ROOT}/build/objects/{name}.o", f"{built}/suite/build/objects")
    objects = f"'{built}'/suite/build/objects/*.o"
    for name, how in (
        ("reference", f"-Icommon -Iblocks '{built}/reference.c' {objects} -libverbs"),
        ("course.so", "-fPIC -shared common/pattern.c common/report.c common/hints.c -libverbs"),
        ("other_device.so", "-fPIC -shared tests/other_device.c -libverbs"),
    ):
        subprocess.run(f"gcc -O2 -o '{built}/{name}' {how}", shell=True, check=True, cwd=ROOT)
    for n, entry in enumerate(entries):  # as new: make warns of files of the future
        at = f"{built}/hand-ins/{n}"
        shutil.copytree(entry.pop("from"), at, ignore=left_out, copy_function=shutil.copy)
    scratch = f"{ROOT}/build/learn"
    os.makedirs(scratch, exist_ok=True)
    shutil.copy(for_the_vm(ROOT, scratch), f"{built}/probes")
    with open(f"{built}/class.json", "w", encoding="ascii") as file:
        json.dump(entries, file)


def known(path=RESULTS):
    """The rows of earlier runs, in their order; what was written half is left out."""
    rows = []
    for line in collect.begins(path, 1 << 28).decode("utf-8", "replace").splitlines():
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows


class Class:
    """Hand-ins that are graded, in some VMs at a time: each is emulated, and takes one processor."""

    def __init__(self, lab, entries, points, sizes, keep):
        self.lab, self.points, self.sizes, self.keep = lab, points, sizes, keep
        self.only = os.environ.get("ONLY", "").split()
        self.entries, self.done, self.began, self.stopped = entries, 0, time.monotonic(), False

    def run(self):
        with open("/proc/meminfo", encoding="ascii") as file:
            room = int(re.search(r"MemAvailable: +(\d+)", file.read())[1]) >> 20
        jobs = max(1, int(os.environ.get("JOBS") or min(os.cpu_count(), room, len(self.entries))))
        with ThreadPoolExecutor(jobs) as pool:
            shares = [pool.submit(self.share, self.entries[n::jobs]) for n in range(jobs)]
            try:
                for share in shares:
                    share.result()
            finally:
                self.stopped = True  # if it was Ctrl-C, which ends the VMs

    def share(self, entries):
        """Some of them, one after another."""
        tries = 0
        while entries and not self.stopped:
            done = self.in_a_vm(entries)
            entries, tries = entries[done:], tries + 1 if not done else 1
            if entries and tries == 2:  # it was the first of a VM twice
                row = {
                    **entries.pop(0),
                    "score": 0,
                    "of": dict(self.points),
                    "points": {},
                    "figures": {},
                    "why": {"builds": "the VM ended twice while it was graded: look at it by hand"},
                }
                print(f"\n#### {row['name']}\n     {row['why']['builds']}\nScore: 0")
                self.keep(row)
                tries = 0

    def in_a_vm(self, entries):
        """Grades them in one VM. Returns how many it got done, or ends if it could not even begin."""
        done, report = 0, []
        with tempfile.TemporaryDirectory() as built:
            put_together(self.lab, [dict(entry) for entry in entries], built)
            with self.started(built, len(entries)) as vm:
                for line in vm.stdout:
                    if not line.startswith("ROW "):
                        begins = line.startswith("#### ") and done < len(entries)
                        report.append(f"#### {entries[done]['name']}\n" if begins else line)
                        continue
                    print("".join(report), end="", flush=True)
                    self.keep({**entries[done], **json.loads(line[4:])})
                    done, report = done + 1, []
                    self.progress()
        print("".join(report), end="", flush=True)
        if not (done or any(line.startswith("#### ") for line in report)) or (
            self.only and done < len(entries)
        ):
            sys.exit(vm.returncode or 1)
        return done

    def started(self, built, number):
        points = ",".join("=".join(part) for part in self.points)
        testenv, examine = f"{ROOT}/testenv/testenv.sh", f"{ROOT}/judge/grade.py"
        env = {"TESTENV_LIMIT": str(120 + 120 * number), **os.environ, "TESTENV": "vm"}
        return subprocess.Popen(
            [testenv, "run", "python3", "-B", examine, ROOT, built]
            + [self.lab, self.sizes, points, *self.only],
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**env, "TESTENV_CLOCK": "virtual", "TESTENV_SEALED": "yes"},
        )

    def progress(self):
        self.done += 1
        left = (time.monotonic() - self.began) / self.done * (len(self.entries) - self.done)
        if len(self.entries) > 1:
            print(
                f"# {self.done} of {len(self.entries)}; {left / 60:.0f} min to go", file=sys.stderr
            )


def entry_of(s, seed):
    """A hand-in, as the VM and its row have it."""
    entry = {"name": printable(s.name, 200), "student": s.student, "lab": s.lab, "seed": seed}
    if s.student:
        entry["block_size"] = expected.of_student(s.student).layout.block_size
    return {**entry, "digest": s.digest(), "from": s.program}


def to_grade(entries, points):
    """Those that have not been graded like this, and what AGAIN names, with the layouts that they had."""
    rows, again = known(), os.environ.get("AGAIN", "").split()
    for entry in entries:
        old = [
            row
            for row in rows
            if all(row[name] == entry[name] for name in ("digest", "lab", "student"))
            and (entry["student"] or row["name"] == entry["name"])
            and row["of"] == dict(points)
            and row["seed"] == (os.environ.get("SEED") or row["seed"])
        ]
        if old and not os.environ.get("ONLY") and "all" not in again:
            entry["seed"], name = old[-1]["seed"], entry["name"]
            if name not in again and entry["student"] not in again:
                before = f"graded before; SEED={entry['seed']}; once more: AGAIN=\"{name}\""
                print(f"\n#### {name}\nScore: {old[-1]['score']} ({before})")
                continue
        yield entry


def keep(row):
    if not os.environ.get("ONLY"):
        os.makedirs(os.path.dirname(RESULTS), exist_ok=True)
        row = {key: row[key] for key in row if key not in ("from", "block_size")}
        with open(RESULTS, "a", encoding="ascii") as file:
            file.write(f"\n{json.dumps(row)}\n")  # the last one may have been written half


def main(lab="", folder=""):
    sys.stdout.reconfigure(errors="replace")  # where Chinese can't be printed
    seed = os.environ.get("SEED") or str(random.SystemRandom().randrange(10**6))
    with open(f"{ROOT}/teach/rubric.txt", encoding="utf-8") as file:
        rubric = file.read()
    points = re.findall(rf"(?m)^({PARTS}) +(\d+)", rubric)
    sizes = re.findall(r"(?m)^sizes (\S+)", rubric)[-1]
    with tempfile.TemporaryDirectory() as scratch:
        hand_ins = []
        if lab in ("05", "06", "07") and os.path.exists(folder):
            found = collect.collect(folder, lab, scratch, os.environ.get("ONE"))
            hand_ins = [s for s in found if s.program and s.lab == lab]
        if not hand_ins:
            print("which programs? make grade-program LAB=05 DIR=FOLDER", file=sys.stderr)
            sys.exit(2)
        print(f"SEED={seed}", flush=True)
        entries = list(to_grade([entry_of(s, seed) for s in hand_ins], points))
        if entries:
            Class(lab, entries, points, sizes, keep).run()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from here")
