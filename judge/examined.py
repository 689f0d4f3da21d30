# SPDX-License-Identifier: BSD-2-Clause
"""Labs 05 to 07: the examination of make grade-program (judge/examine.py), part by part as there, but with the
program that was built outside of the VM, and without its figures. Only in the VM."""
import os
import random
import shutil

import examine
import pairing
import witness
from check_words import say
from pairing import OPEN
from parts import LAST
from pieced import WHOLE, Pieced
from seen import PROBES
from witness import Layout

SEEN = ("keys", "cq", "qp", "completion")  # what pieced.py takes besides


class Examined(examine.Examiner):
    probes = witness.PROBES + "".join(
        f"{line}\n" for line in PROBES.splitlines() if line[2:].split()[0] in SEEN
    )
    awkward, many = [
        Layout(*n)
        for n in (
            (1, 33, 3),
            (6, 1056, 10),
            (65537, 3, 65557),
            (100, 40, 100),
            (5, 1, 5),
            (301, 420, 417),
        )
    ], 1025

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
        self.passed, self.pooled, self.whole, self.built_again, self.job = (
            False,
            False,
            False,
            None,
            job,
        )

    def part_builds(self):
        """It was built before; check.py says how."""
        self.program = "program"

    def build(self, command):  # with sanitizers; that was done before, too
        return examine.subprocess.CompletedProcess(command, not self.job["sanitized"])

    def draw(self, most_blocks=132, least=1):
        """Shorter blocks than the grader's."""
        size = self.random.randint(least, 600)
        return Layout(
            size,
            self.random.randint(most_blocks // 4, most_blocks),
            size + self.random.randint(1, 200),
        )

    def row(self, part):
        """Of a part of the grader's."""
        self.random = random.Random(f"{self.job['seed']} {part}")
        *why, tried = ["", *self.part(part).splitlines()]
        options = tried if tried.startswith("--") else ""
        return {
            "part": part,
            "todo": LAST,
            "right": not any([*why, tried]),
            "says": "",
            "options": options,
            "why": "\n".join([line for line in why if line] + ([] if options else [tried])),
        }

    def rows(self):
        """Of the whole program up to the first part without which the others can't be right. If there is one, or it is not
        yet whole: of each TODO by itself."""
        self.part_builds()
        missing, whole, wrong = sorted(self.job["unwritten"], key=int), [], ""
        for part in WHOLE:
            why = (
                say("not reached", number=missing[0])
                if missing
                else say("not after", part=wrong)
                if wrong
                else ""
            )
            whole.append(
                {"part": part, "todo": LAST, "right": False, "says": "", "options": "", "why": why}
                if why
                else self.row(part)
            )
            wrong = wrong or (part if part not in WHOLE[-2:] and not whole[-1]["right"] else "")
        rows = Pieced(self.nic, self.job).rows(alone=bool(missing or wrong)) + whole
        first = next((row for row in rows if not row["right"]), None)
        if first and first["options"] and not missing:
            first["shows"] = self.shows(first["options"].split())
        return rows

    def shows(self, options):
        """Whether the whole program fails by itself with these options, as make run has it do."""
        self.program, self.timeout = "program", 2
        pair = self.itself(lambda *_: None, options, "program")
        return any(side.process.returncode for side in pair.sides.values())


def set_up(course):
    """course: the library with the suite's digest and pattern."""
    pairing.Side.away = ("server", "client")  # but for students' programs
    pairing.take_charge()
    os.makedirs(f"{OPEN}/home")
    os.makedirs(f"{OPEN}/built")
    shutil.copy(course, f"{OPEN}/built/course.so")
    os.chmod("/dev/infiniband/uverbs0", 0o666)
