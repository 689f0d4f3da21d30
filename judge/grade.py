#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs a student's program of 05 to 07 in the VM against the reference, and judges what it did.
    grade.py ROOT BUILT LAB SIZES PARTS [ONLY...]
BUILT: what teach/program.py put together. SIZES, PARTS: of the rubric, with points: 4K,64K builds=10,sgl=25.
It prints a report, and "ROW " with the same as JSON."""
import gc
import json
import os
import random
import re
import shutil
import subprocess
import sys

import check_words
import sandbox
from assignment import MINE, WORK, Examiner
from bench import Stopwatch
from memory import Wrong, read, write
from pair import OTHER, fields, undisturbed
from run import Run
from sandbox import OPEN
from trace import FIRST_OF_A_MESSAGE, Nic, wanted

SOURCES = (
    "$(find . -type d -printf '-I%p\\n') -I../common -I../blocks $(find . -name '*.c') ../build/objects/*.o "
    "-libverbs -lm"
)
FLAGS = "-std=c11 -Wall -Wextra -Wshadow -Wconversion -O2 -g"  # sample.mk's
SANITIZE = "-w -fsanitize=address,undefined -fno-sanitize-recover=all"
MAKEFILES = {"GNUmakefile", "makefile", "Makefile"}


class Graded(Examiner):
    """A hand-in: it is built here, as the student."""

    built_again = None

    def part_builds(self):
        """By its own Makefile, or the usual command, beside common/ and blocks/."""
        quiet = r"s/^[ \t]*#[ \t]*pragma[ \t]+GCC[ \t]+(diagnostic|system_header).*//"
        subprocess.run(
            f"find {MINE} -type f -name '*.[ch]' -exec sed -i -E '{quiet}' {{}} +",
            shell=True,
            check=True,
        )
        before = os.listdir(MINE)
        made = self.build(
            "make" if MAKEFILES & set(before) else f"gcc {FLAGS} -o program {SOURCES}"
        )
        said = made.stdout.decode("utf-8", "replace").splitlines()
        odd = [
            line for line in said if re.search("(error|warning): |undefined ref|multiple def", line)
        ]
        programs = [
            entry
            for entry in os.scandir(MINE)
            if entry.name not in before
            and entry.is_file(follow_symlinks=False)
            and os.access(entry.path, os.X_OK)
        ]
        if not programs or made.returncode:
            raise Wrong("\n".join(["it doesn't build", *(odd or said)[:1]]))
        self.program = max(programs, key=lambda entry: entry.stat().st_size).name
        if odd:
            raise Wrong("it builds with warnings\n" + odd[0])

    def build(self, command):
        """Runs it in the student's folder, as the student."""
        subprocess.run(["chown", "-R", str(self.user), MINE], check=True)
        # pylint: disable-next=subprocess-popen-preexec-fn # there is one thread
        # IFS: a file's name may have blanks.
        made = subprocess.run(
            ["timeout", "-s", "KILL", "60", "sh", "-c", "IFS='\n'\n" + command],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            preexec_fn=lambda: sandbox.locked_up("build", self.user, MINE),
        )
        sandbox.end("build")
        subprocess.run(["chown", "-R", "root:root", MINE], check=True)
        return made

    def checked(self):
        """The same program with gcc's sanitizers; or nothing, if it needs its own Makefile."""
        if self.built_again is None:
            command = f"rm -rf .sanitized; gcc {SANITIZE} -o .sanitized {SOURCES}"
            self.built_again = not self.build(command).returncode
        return ".sanitized" if self.built_again else ""

    def own_layout(self, student):
        """What is wrong when it runs against itself with a student's layout, as make handin has it do."""
        run = self.itself(None, [f"--student={student}"])
        for side in run.sides.values():
            last = (side.said(0) or [""])[-1]
            if fields(last).get("status") != "PASS" or side.process.returncode:
                says = (side.said(1, 0) or ["nothing"])[0][:150]
                return f"the {side.role} does not pass with this layout: {says}"
        return ""

    def measure(self, student, block_size, sizes):
        """Of some of the points that make handin has it measure: what it takes."""
        sizes = self.random.sample(sizes, min(2, len(sizes)))
        lengths = [int(size.strip("KM")) << {"K": 10, "M": 20}.get(size[-1], 0) for size in sizes]
        points = [(block_size, max(length // block_size, 1) * block_size) for length in lengths]
        more = [(64, 65536)] * self.random.randint(0, 1)  # these take 9 s of CPU
        watch = Stopwatch(points + more)
        options = [f"--student={student}", "--bench", "--iters=1", f"--sizes={','.join(sizes)}"]
        # Against itself, as make handin: two that poll take turns in another way than one.
        with self.nic.unwatched(""):
            Run(
                self.nic,
                self.sides(OTHER, options, 200, {}),
                options,
                on=lambda step, run: watch.step(step, run.pair),
                limit=200,
            )
        return watch.figures, watch.prints


def examined(nic, lab, entry, parts, only, sizes):
    """Prints a report of a hand-in, and its row."""
    name, student = entry["name"], entry["student"]
    program = Graded(nic, lab, f"{OPEN}/course.so", 60001)
    points, why = {}, {}
    print("\n#### " + re.sub("[^ -~]", "?", name), flush=True)
    for part, most in parts.items():
        if only and part != "builds" and not {part, f"{name}:{part}", f"{student}:{part}"} & only:
            continue
        program.random = random.Random(f"{entry['seed']} {name} {part}")  # whatever else is graded
        why[part] = re.sub("[^ -~\n]", "?", program.part(part))
        points[part] = most if not why[part] and program.program else 0
        print(
            f"== {part} == {'OK' if points[part] or not most else 'FAIL'} ({points[part]}/{most})"
        )
        for line in why[part].splitlines():
            print("     " + line[:200])
    own, figures, prints = "", {}, False
    if program.program and "block_size" in entry and not only:
        own = undisturbed(program.own_layout, student)
        if program.passed:
            figures, prints = undisturbed(program.measure, student, entry["block_size"], sizes)
    score = sum(points.values())
    print(f"Score: {score}/{sum(parts[part] for part in points)}")
    row = {
        "score": score,
        "points": points,
        "of": {part: str(most) for part, most in parts.items()},
        "why": why,
        "figures": figures,
        "prints": prints,
        "own": re.sub("[^ -~]", "?", own),
        "kernel": os.uname().release,
    }
    print("ROW " + json.dumps(row), flush=True)


def main(root, built, lab, sizes, parts, *only):
    write("/proc/self/oom_score_adj", "-1000")  # a program that fills memory goes first
    gc.set_threshold(1 << 20)  # or it looks again and again at all that was seen, and frees nothing
    sandbox.room_for_output()
    sandbox.take_charge()
    os.makedirs(f"{OPEN}/home")
    os.makedirs(WORK, mode=0o700)
    shutil.copy(f"{built}/reference", WORK)
    shutil.copytree(f"{built}/suite", f"{OPEN}/suite")
    for library in ("other_device.so", "course.so"):
        shutil.copy(f"{built}/{library}", OPEN)
    shutil.copytree(f"{built}/hand-in", MINE)
    with open(f"{built}/entry.json", encoding="ascii") as file:
        entry = json.load(file)
    nic = Nic(wanted((lab,), read(f"{built}/probes"))).whole()
    nic.only("packet", FIRST_OF_A_MESSAGE)
    os.chmod("/dev/infiniband/uverbs0", 0o666)
    os.remove("/run/cmd")  # what started this
    check_words.tables()  # they are read as long as they are seen
    # Neither the reference's source nor anything else of this machine's owner is seen.
    for place in (root, built, "/home", "/root"):
        sandbox.mount("tmpfs", place, "size=64M,mode=1777")
    points = {part: int(most) for part, most in re.findall(r"(\w+)=(\d+)", parts)}
    examined(nic, lab, entry, points, set(only), sizes.split(","))


if __name__ == "__main__":
    main(*sys.argv[1:])
