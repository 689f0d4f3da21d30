#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Grades programs that students wrote, each a folder of C files that is built like one of 05 to 07
and takes the same command line. Everything of theirs, compiler runs too, happens in the VM.
    program.py LAB FOLDER      FOLDER: one program's, or a folder of such folders
    ONLY="sgl NAME:copy"   these parts of the rubric alone; the second of that folder's program
    SEED=17                the layouts of an earlier run, which named it"""
import glob
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PARTS = "builds|sgl|copy|each|itself|verifies|careful"


def left_out(folder, names):
    """Links, devices, what is no source by its size; and programs: they are built anew."""
    def source(path):
        if os.path.islink(path) or not (os.path.isfile(path) or os.path.isdir(path)):
            return False
        if os.path.isdir(path):
            return True
        with open(path, "rb") as file:
            return os.path.getsize(path) < 1 << 20 and file.read(4) != b"\x7fELF"
    return [name for name in names if not source(os.path.join(folder, name))]


def put_together(lab, programs, built):
    """What the VM takes: the reference, the suite without samples, the hand-ins."""
    shutil.copy(next(path for path in glob.glob(f"{ROOT}/{lab}_*/*") if os.access(path, os.X_OK)),
                f"{built}/reference")
    for part in ("common", "blocks", "build/objects"):
        shutil.copytree(f"{ROOT}/{part}", f"{built}/suite/{part}")
    for path in programs:
        shutil.copytree(path, f"{built}/hand-ins/{os.path.basename(path)}", ignore=left_out)
    subprocess.run(["gcc", "-O2", "-fPIC", "-shared", "-o", f"{built}/course.so",
                    *(f"{ROOT}/common/{name}.c" for name in ("data", "report", "hints")),
                    "-libverbs"], check=True)


def main(lab="", folder=""):
    folder = os.path.abspath(folder or "no folder")
    programs = [folder] if glob.glob(f"{folder}/*.c") else \
        [path for path in sorted(glob.glob(f"{folder}/*")) if os.path.isdir(path) and not os.path.islink(path)]
    if lab not in ("05", "06", "07") or not programs:
        print("which programs? make grade-program LAB=05 DIR=FOLDER", file=sys.stderr)
        sys.exit(2)
    with open(f"{ROOT}/grading/rubric.txt", encoding="utf-8") as file:
        points = re.findall(rf"(?m)^({PARTS}) +(\d+)", file.read())
    seed = os.environ.get("SEED") or str(random.SystemRandom().randrange(10**6))
    print(f"SEED={seed}", flush=True)
    with tempfile.TemporaryDirectory() as built:
        put_together(lab, programs, built)
        sys.exit(subprocess.run(
            [f"{ROOT}/testenv/testenv.sh", "run", "python3", "-B", f"{ROOT}/grading/examine.py", ROOT,
             built, lab, seed, ",".join("=".join(part) for part in points),
             *os.environ.get("ONLY", "").split()], check=False,
            env={"TESTENV_LIMIT": str(120 + 120 * len(programs)), **os.environ, "TESTENV": "vm",
                 "TESTENV_CLOCK": "virtual", "TESTENV_SEALED": "yes"}).returncode)


if __name__ == "__main__":
    main(*sys.argv[1:])
