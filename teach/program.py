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

import collect
import expected
from handin import printable

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
    often = f"PART = {random.Random(entries[0]['seed']).randint(64, 192)}"  # receives; 07's sample acknowledges after 256
    with open(glob.glob(f"{ROOT}/{lab}_*/*.c")[0], encoding="utf-8") as file, open(
        f"{built}/reference.c", "w", encoding="utf-8"
    ) as copy:
        copy.write(file.read().replace("PART = QUEUE_SIZE / 4", often))
    for part in ("common", "blocks", "build/objects"):
        shutil.copytree(f"{ROOT}/{part}", f"{built}/suite/{part}")
    shutil.copytree(f"{ROOT}/build/objects", f"{built}/suite/build/short")
    for name, how in (
        (
            "reference",
            f"-Icommon -Iblocks '{built}/reference.c' '{built}'/suite/build/objects/*.o -libverbs",
        ),
        ("course.so", "-fPIC -shared common/data.c common/report.c common/hints.c -libverbs"),
        ("other_device.so", "-fPIC -shared tests/other_device.c -libverbs"),
        *(
            (
                f"suite/build/short/{part}.o",
                f"-DSWEEP_BYTES=0 -DROUND_BYTES=16384 -Icommon -c blocks/{part}.c",
            )
            for part in ("blocks", "measure")
        ),
    ):  # with less to measure
        subprocess.run(f"gcc -O2 -o '{built}/{name}' {how}", shell=True, check=True, cwd=ROOT)
    for n, entry in enumerate(entries):
        shutil.copytree(
            entry.pop("from"),
            f"{built}/hand-ins/{n}",
            ignore=left_out,
            copy_function=lambda source, to: shutil.copy(
                source,
                (  # as new: make warns of files of the future
                    to
                    if os.path.exists(source[:-4])
                    or not collect.SOURCE.search(os.path.basename(to))
                    else to.removesuffix(".txt")
                ),
            ),
        )
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
            with subprocess.Popen(
                [
                    f"{ROOT}/testenv/testenv.sh",
                    "run",
                    "python3",
                    "-B",
                    f"{ROOT}/witness/examine.py",
                    ROOT,
                    built,
                    self.lab,
                    self.sizes,
                    ",".join("=".join(part) for part in self.points),
                    *self.only,
                ],
                stdout=subprocess.PIPE,
                text=True,
                errors="replace",
                env={
                    "TESTENV_LIMIT": str(120 + 120 * len(entries)),
                    **os.environ,
                    "TESTENV": "vm",
                    "TESTENV_CLOCK": "virtual",
                    "TESTENV_SEALED": "yes",
                },
            ) as vm:
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

    def progress(self):
        self.done += 1
        left = (time.monotonic() - self.began) / self.done * (len(self.entries) - self.done)
        if len(self.entries) > 1:
            print(
                f"# {self.done} of {len(self.entries)}; {left / 60:.0f} min to go", file=sys.stderr
            )


def main(lab="", folder=""):
    sys.stdout.reconfigure(errors="replace")  # where Chinese can't be printed
    again = os.environ.get("AGAIN", "").split()
    seed = os.environ.get("SEED") or str(random.SystemRandom().randrange(10**6))
    with open(f"{ROOT}/grading/rubric.txt", encoding="utf-8") as file:
        rubric = file.read()
    points = re.findall(rf"(?m)^({PARTS}) +(\d+)", rubric)
    sizes = re.findall(r"(?m)^sizes (\S+)", rubric)[-1]
    rows = known()
    with tempfile.TemporaryDirectory() as scratch:
        hand_ins = []
        with suppress(OSError, ValueError):
            hand_ins = [
                s
                for s in collect.collect(folder, lab, scratch, os.environ.get("ONE"))
                if s.program and s.lab == lab
            ]
        if lab not in ("05", "06", "07") or not hand_ins:
            print("which programs? make grade-program LAB=05 DIR=FOLDER", file=sys.stderr)
            sys.exit(2)
        print(f"SEED={seed}", flush=True)
        entries = []
        for s in hand_ins:
            entry = {
                "name": printable(s.name, 200),
                "student": s.student,
                "lab": lab,
                "seed": seed,
                "digest": s.digest(),
                "from": s.program,
            }
            if expected.VALID_ID.fullmatch(s.student):
                entry["block_size"] = expected.of_student(s.student).layout.block_size
            old = [
                row
                for row in rows
                if row["digest"] == entry["digest"]
                and row["lab"] == lab
                and row["student"] == s.student
                and (s.student or row["name"] == entry["name"])
                and row["of"] == dict(points)
                and row["seed"] == (os.environ.get("SEED") or row["seed"])
            ]
            if old and not os.environ.get("ONLY") and "all" not in again:
                if s.name not in again and s.student not in again:
                    print(
                        f"\n#### {entry['name']}\nScore: {old[-1]['score']} (graded before; SEED="
                        f"{old[-1]['seed']}; once more: AGAIN=\"{entry['name']}\")"
                    )
                    continue
                entry["seed"] = old[-1]["seed"]
            entries.append(entry)

        def keep(row):
            if not os.environ.get("ONLY"):
                os.makedirs(os.path.dirname(RESULTS), exist_ok=True)
                with open(RESULTS, "a", encoding="ascii") as file:
                    file.write(
                        "\n"
                        + json.dumps(
                            {key: row[key] for key in row if key not in ("from", "block_size")}
                        )
                        + "\n"
                    )  # the last one may have been written half

        if entries:
            Class(lab, entries, points, sizes, keep).run()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from here")
