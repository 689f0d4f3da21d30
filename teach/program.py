#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Grades the programs of hand-ins, each in a VM of its own, where everything of theirs happens, compiler runs too.
    program.py LAB FOLDER  FOLDER (or a zip): what a class handed in (collect.py), a program, or a folder of programs
    ONLY="sgl ID:copy"     these parts of the rubric alone; the second of that student's (or folder's) program
    SEED=17                the layouts of an earlier run, which named it
    JOBS=4                 VMs at a time, of 1 GiB; else as many as there are processors and memory for them
    RESULTS=FILE           a line for each as it is done, which is not graded again (results/programs.jsonl)"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import collect
import expected
from expected import ROOT
from rubric import RESULTS, known, read_rubric

sys.path.insert(1, f"{ROOT}/judge")  # before Python's own trace
import build  # pylint: disable=wrong-import-position

ONLY = os.environ.get("ONLY", "").split()


def put_together(h, seed, built):
    """What the VM takes: the reference, the suite without samples, the hand-in."""
    often = f"BATCH = {random.Random(seed).randint(64, 128)}"  # receives; 07's sample acknowledges after 256
    text = build.starter.read(build.starter.sample_of(h.lab))
    text = text.replace("BATCH = QUEUE_SIZE / 4", often)
    objects = build.pieces.suite_objects()
    words = ("-O2", "-xnone", *objects, "-libverbs")
    assert build.pieces.compiled(text, f"{built}/reference", *words)
    for part in ("common", "blocks"):
        shutil.copytree(f"{ROOT}/{part}", f"{built}/suite/{part}")
    os.makedirs(f"{built}/suite/build/objects")
    for path in objects:
        shutil.copy(path, f"{built}/suite/build/objects")
    for path in h.program:  # as new: make warns of files of the future
        at = f"{built}/hand-in/{os.path.relpath(path, h.base)}"
        os.makedirs(os.path.dirname(at), exist_ok=True)
        shutil.copyfile(path, at)
    for name in ("course.so", "other_device.so"):
        shutil.copy(f"{build.BUILT}/{name}", built)
    shutil.copy(build.probes(), f"{built}/probes")
    entry = {"name": h.student or h.name, "student": h.student, "seed": seed}
    if h.student:
        entry["block_size"] = expected.of_student(h.student).layout.block_size
    Path(built, "entry.json").write_text(json.dumps(entry), "ascii")


def in_a_vm(h, seed, rubric):
    """The lines that judge/grade.py prints of it."""
    points = ",".join(f"{part}={most}" for part, most in rubric.program.items())
    env = {"TESTENV_LIMIT": "300", **os.environ}
    env |= {"TESTENV": "vm", "TESTENV_CLOCK": "virtual", "TESTENV_SEALED": "yes"}
    with tempfile.TemporaryDirectory() as built:
        put_together(h, seed, built)
        return subprocess.run(
            [f"{ROOT}/testenv/testenv.sh", "run", "python3", "-B", f"{ROOT}/judge/grade.py"]
            + [ROOT, built, h.lab, rubric.sizes, points, *ONLY],
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            env=env,
            check=False,
        ).stdout.splitlines()


def grade(h, seed, rubric):
    """Prints what is found, and keeps it. Returns whether it came to an end."""
    lines = in_a_vm(h, seed, rubric)
    if not any(line.startswith("#### ") for line in lines):
        raise OSError("the VM could not begin")  # nor would it with another program
    rows = [line[4:] for line in lines if line.startswith("ROW ")]
    if not rows:
        lines.append("     the VM ended while it was graded: start it again, or look at it by hand")
    own = (f"#### {h.name}" if line.startswith("#### ") else line for line in lines)
    print("\n".join(line for line in own if not line.startswith("ROW ")), flush=True)
    if rows and not ONLY:
        os.makedirs(os.path.dirname(RESULTS), exist_ok=True)
        row = {"name": h.name, "student": h.student, "lab": h.lab, "seed": seed}
        row |= {"digest": h.digest(), **json.loads(rows[0])}
        with open(RESULTS, "a", encoding="ascii") as file:
            file.write(f"\n{json.dumps(row)}\n")  # the last one may have been written half
    return bool(rows)


def to_grade(hs, rubric):
    """Those that have not been graded like this."""
    rows = [] if ONLY else known()
    of = {part: str(most) for part, most in rubric.program.items()}
    for h in hs:
        like_this = {"digest": h.digest(), "student": h.student, "lab": h.lab, "of": of}
        if not h.student:
            like_this["name"] = h.name
        if "SEED" in os.environ:
            like_this["seed"] = os.environ["SEED"]
        old = [row for row in rows if like_this.items() <= row.items()]
        if old:
            before = f"graded before, with SEED={old[-1]['seed']}; another SEED grades it again"
            print(f"\n#### {h.name}\nScore: {old[-1]['score']} ({before})")
        else:
            yield h


def grade_all(hs, seed, rubric):
    """In some VMs at a time: each is emulated, and takes one processor. Returns whether all came to an end."""
    build.helpers()
    with open("/proc/meminfo", encoding="ascii") as file:
        room = int(re.search(r"MemAvailable: +(\d+)", file.read())[1]) >> 20
    jobs = max(1, int(os.environ.get("JOBS") or min(os.cpu_count(), room, len(hs))))
    ended = []
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for one in pool.map(lambda h: grade(h, seed, rubric), hs):
                ended.append(one)
                print(f"# {len(ended)} of {len(hs)}", file=sys.stderr)
        finally:
            pool.shutdown(cancel_futures=True)  # if it was Ctrl-C, which ends the VMs
    return all(ended)


def main(lab="", folder=""):
    sys.stdout.reconfigure(errors="replace")  # where Chinese can't be printed
    seed = os.environ.get("SEED") or str(random.SystemRandom().randrange(10**6))
    with tempfile.TemporaryDirectory() as scratch:
        hs = os.path.exists(folder) and collect.programs(folder, scratch, lab)
        if not hs:
            print("which programs? make grade-program LAB=05 DIR=FOLDER", file=sys.stderr)
            return 2
        print(f"SEED={seed}", flush=True)
        rubric = read_rubric()
        hs = list(to_grade(hs, rubric))
        return 0 if not hs or grade_all(hs, seed, rubric) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except OSError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from here")
