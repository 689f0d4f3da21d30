# SPDX-License-Identifier: BSD-2-Clause
"""Builds a student's program outside of the VM, and all that the judge takes of it: check.py runs it then."""
import compileall
import functools
import glob
import os
import random
import re
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "learn"))
# pylint: disable=wrong-import-position
import starter  # noqa: E402
import pieces  # noqa: E402
from check_words import say  # noqa: E402
from probes import Kernel, for_the_vm, kernel_of_the_vm  # noqa: E402
from trace import BLOCKS, wanted  # noqa: E402

ROOT = starter.ROOT
BUILT = f"{ROOT}/build/learn"
COMPILED = f"{BUILT}/pyc"
WATCHED = f"{BUILT}/watched"  # the probes that most labs take: the stopped VM has them already


def command(*words, **more):
    return subprocess.run(
        words,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        **more,
    )


def sources(directory):
    return sorted(
        path
        for path in glob.glob(f"{glob.escape(directory)}/**/*", recursive=True)
        if path.endswith((".c", ".h", "Makefile"))
    )


def sample(lab):
    return os.path.dirname(starter.sample_of(lab))


def place(lab, wanted=""):
    """The directory that a lab's program stands in."""
    mine = f"{ROOT}/{wanted or 'my' + lab}"
    directory = mine if wanted or os.path.isdir(mine) else sample(lab)
    if not os.path.exists(f"{directory}/Makefile"):
        sys.exit(say("no directory", directory=os.path.relpath(directory, ROOT), lab=lab))
    return directory


def text(directory):
    return "".join(starter.read(path) for path in sources(directory) if path.endswith((".c", ".h")))


def unwritten(source):
    """By the number of a TODO that is not written: what is to write."""
    found = {}
    for _, number, what in starter.stubs(source):
        found.setdefault(number, what)
    return found


def build(directory, lab):
    """By its own Makefile. Returns the program's path ("" if there is none), and the compiler's complaints."""
    file = os.path.basename(starter.sample_of(lab))
    made = command(
        "make",
        "-s",
        "-C",
        directory,
        "-W",
        file,
        env={**os.environ, "LC_ALL": "C", "MAKEFLAGS": ""},
    )
    odd = [
        line
        for line in made.stdout.splitlines()
        if re.search(r"\b(error|warning|undefined|multiple def)", line)
    ]
    name = re.search(r"(?m)^SAMPLE *= *(\S+)", starter.read(f"{directory}/Makefile"))
    program = f"{directory}/{name[1]}" if name else ""
    if made.returncode or not os.access(program, os.X_OK):
        return "", odd or made.stdout.splitlines()[:1] or [f"make: {made.returncode}"]
    return program, odd


def reference(lab):
    """The program of the sample; where that is a starter (make student-release), one that was packed with it."""
    packed = f"{ROOT}/learn/reference/{os.uname().machine}/{lab}"
    if os.access(packed, os.X_OK):
        return packed
    return "" if starter.unwritten(starter.read(starter.sample_of(lab))) else build_sample(lab)


def build_sample(lab):
    made = command("make", "-s", "-C", sample(lab))
    return "" if made.returncode else starter.sample_of(lab)[:-2]


@functools.cache
def probes():
    os.makedirs(BUILT, exist_ok=True)
    return for_the_vm(ROOT, BUILT)


@functools.cache
def lacks_flush(kernel=True):
    """What has no FLUSH here (15), or "". kernel: the VM's is looked at, too, and fetched if it is not there yet."""
    asks = '#include "newer.h"\n_Static_assert(HAVE_FLUSH, "");'
    if command("gcc", f"-I{ROOT}/common", "-fsyntax-only", "-xc", "-", input=asks).returncode:
        return "this machine's libibverbs"
    if kernel and (program := reference("15")):
        with open(program, "rb") as file:
            if (
                b"headers older than rdma-core 45" in file.read()
            ):  # a release's may be of another machine
                return "the sample in learn/reference"
    old = kernel and Kernel(kernel_of_the_vm(ROOT)).release() < (6, 2)
    return "the VM's kernel" if old else ""


def helpers():
    """What is loaded into programs to make calls fail, and the suite's own digest and pattern."""
    os.makedirs(BUILT, exist_ok=True)
    for name, files in (
        ("fail_verbs", ["tests/fail_verbs.c"]),
        ("other_device", ["tests/other_device.c"]),
        ("course", ["common/pattern.c", "common/report.c", "common/hints.c"]),
    ):
        out = f"{BUILT}/{name}.so"
        if not os.path.exists(out) or any(
            os.path.getmtime(f"{ROOT}/{f}") > os.path.getmtime(out) for f in files
        ):
            subprocess.run(
                ["gcc", "-O2", "-fPIC", "-shared", "-o", out, *files, "-libverbs"],
                check=True,
                cwd=ROOT,
            )
    watched = "".join(f"{line}\n" for line in wanted(BLOCKS, starter.read(probes())))
    if not os.path.exists(WATCHED) or starter.read(WATCHED) != watched:
        with open(WATCHED, "w", encoding="ascii") as file:
            file.write(watched)
    sys.pycache_prefix = COMPILED
    for part in ("learn", "judge"):
        compileall.compile_dir(f"{ROOT}/{part}", quiet=1)


def sanitized(lab, directory):
    """05 to 07: see pieces.build."""
    os.makedirs(BUILT, exist_ok=True)
    files = [f for f in sources(directory) if f.endswith(".c")]
    return pieces.build(lab, files, f"{BUILT}/{os.path.basename(directory)}.sanitized")


def draw():
    """Numbers for the options of a run, other ones each time."""
    letters = "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=2500))
    return {
        "odd": random.randint(500, 1000),
        "few": random.randint(3, 6),
        "many": random.randint(150, 300),
        "big": random.randint(2000, 20000),
        "seed": random.randint(2, 2**40),
        "short": letters[: random.randint(20, 60)],
        "long": letters,
    }


def job(lab, source, program, odd, checked="", alone=False):
    """What judge.py takes of a program: where it is, what it lacks. checked: the same with sanitizers; alone: and with the
    sample's functions (pieces.py)."""
    random.seed(os.environ.get("SEED"))
    return {
        "lab": lab,
        "program": program,
        "reference": reference(lab),
        "odd": odd,
        "unwritten": unwritten(source),
        "draws": [draw() for _ in range(3)],
        "seed": random.random(),
        "HV_FAIL": f"{BUILT}/fail_verbs.so",
        "HV_DEVICE": f"{BUILT}/other_device.so",
        "course": f"{BUILT}/course.so",
        "probes": probes(),
        "sanitized": checked,
        "alone": alone,
    }
