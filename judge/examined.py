# SPDX-License-Identifier: BSD-2-Clause
"""make check of the labs 05 to 07: the parts of the rubric (assignment.py), and each TODO by itself (blocks.py). The
program was built outside of the VM, by check.py. Only in the VM."""
import os
import random
import shutil

import sandbox
from assignment import MINE, PARTS, WORK, Examiner
from check_words import say
from pair import Side
from parts import LAST
from blocks import Pieced
from sandbox import OPEN
from trace import BLOCKS, FIRST_OF_A_MESSAGE, Nic, wanted


class Checked(Examiner):
    def __init__(self, nic, job):
        super().__init__(nic, job["lab"], f"{OPEN}/course.so", 60000)
        self.job = job
        shutil.copy(job["HV_DEVICE"], f"{OPEN}/other_device.so")
        shutil.copy(job["reference"], f"{WORK}/reference")
        shutil.rmtree(MINE, ignore_errors=True)
        os.makedirs(MINE)
        for name, path in (("program", job["program"]), (".sanitized", job["sanitized"])):
            if path:
                shutil.copy(path, f"{MINE}/{name}")
        self.program = "program"

    def checked(self):
        return ".sanitized" if self.job["sanitized"] else ""

    def row(self, part):
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
        missing, whole, wrong = sorted(self.job["unwritten"], key=int), [], ""
        self.nic.only("packet", FIRST_OF_A_MESSAGE)
        for part in PARTS:
            if missing or wrong:
                why = (
                    say("not reached", number=missing[0])
                    if missing
                    else say("not after", part=wrong)
                )
                row = {"part": part, "todo": LAST, "right": False}
                whole.append({**row, "says": "", "options": "", "why": why})
            else:
                whole.append(self.row(part))
            wrong = wrong or (part if part not in PARTS[-2:] and not whole[-1]["right"] else "")
        self.nic.only("packet")
        rows = Pieced(self.nic, self.job).rows(alone=bool(missing or wrong)) + whole
        first = next((row for row in rows if not row["right"]), None)
        if first and first["options"] and not missing:
            first["shows"] = self.shows(first["options"].split())
        return rows

    def shows(self, options):
        """Whether the whole program fails by itself with these options, as make run has it do."""
        self.program, self.timeout = "program", 2
        run = self.itself(None, options)
        return any(side.process.returncode for side in run.sides.values())


def set_up(course, probes):
    """course: the library with the suite's digest and pattern."""
    Side.away = ("server", "client")  # but for students' programs
    sandbox.take_charge()
    os.makedirs(f"{OPEN}/home")
    shutil.copy(course, f"{OPEN}/course.so")
    os.chmod("/dev/infiniband/uverbs0", 0o666)
    return Nic(wanted(BLOCKS, probes)).whole()
