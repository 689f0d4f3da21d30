# SPDX-License-Identifier: BSD-2-Clause
"""Labs 05 to 07: the examination of make grade-program (witness/examine.py), part by part as there, but with the
program that was built outside of the VM, and without its figures. Only in the VM."""
import os
import random
import shutil

import examine
import pairing
from pairing import OPEN
from witness import Layout, Wrong

PARTS = ("builds", "sgl", "copy", "each", "itself", "verifies", "careful")


class Examined(examine.Examiner):
    awkward, many = [Layout(*n) for n in ((1, 33, 3), (6, 1056, 10), (65537, 3, 65557), (100, 40, 100), (5, 1, 5), (301, 420, 417))], 1025
    def __init__(self, job):
        super().__init__(f"{OPEN}/built", job["lab"], "")
        shutil.copy(job["HV_DEVICE"], OPEN)
        shutil.copy(job["reference"], f"{examine.WORK}/reference")
        shutil.rmtree(examine.MINE, ignore_errors=True)
        os.makedirs(examine.MINE)
        for name, path in (("program", job["program"]), (".sanitized", job["sanitized"])):
            if path:
                shutil.copy(path, f"{examine.MINE}/{name}")
        self.careless, self.tried, self.program, self.base, self.region = [], [], None, 0, None
        self.passed, self.pooled, self.whole, self.built_again, self.job = False, False, False, None, job

    def part_builds(self):
        """It was built before; check.py says how."""
        if self.job["program"]:
            self.program = "program"
        if self.job["odd"]:
            raise Wrong(self.job["odd"][0])

    def build(self, command):  # with sanitizers; that was done before, too
        return examine.subprocess.CompletedProcess(command, not self.job["sanitized"])

    def draw(self, most_blocks=132, least=1):
        """Shorter blocks than the grader's."""
        size = self.random.randint(least, 600)
        return Layout(size, self.random.randint(most_blocks // 4, most_blocks), size + self.random.randint(1, 200))

    def rows(self):
        rows = []
        for part in PARTS:
            self.random = random.Random(f"{self.job['seed']} {part}")
            *why, tried = ["", *self.part(part).splitlines()]
            options = tried if tried.startswith("--") else ""
            if not self.program and part != "builds":
                why = ["-"]
            rows.append({"part": part, "todo": 0, "right": not any([*why, tried]), "says": "", "options": options,
                         "why": "\n".join([line for line in why if line] + ([] if options else [tried]))})
            if self.job.get("first") and not rows[-1]["right"]:
                break
        return rows[1:]  # builds: check.py's


def set_up(course):
    """course: the library with the suite's digest and pattern."""
    pairing.Side.away = ("server", "client")  # but for students' programs
    pairing.take_charge()
    os.makedirs(f"{OPEN}/home")
    os.makedirs(f"{OPEN}/built")
    shutil.copy(course, f"{OPEN}/built/course.so")
    os.chmod("/dev/infiniband/uverbs0", 0o666)
