# SPDX-License-Identifier: BSD-2-Clause
"""make check of the labs 05 to 07: the parts of the rubric (assignment.py), and each TODO by itself (blocks.py). The
program was built outside of the VM, by check.py. Only in the VM."""
import os
import random
import shutil

import sandbox
from assignment import MINE, PARTS, WORK, Examiner
from pair import undisturbed
from parts import LAST
from blocks import Pieced
from rows import row_of, why_unseen
from sandbox import OPEN
from trace import FIRST_OF_A_MESSAGE


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
        lines = self.part(part).splitlines()
        options = lines.pop() if lines and lines[-1].startswith("--") else ""
        return row_of(part, LAST, "\n".join(lines), options=options)

    def rows(self):
        """Of the whole program up to the first part without which the others can't be right. If there is one, or it is not
        yet whole: of each TODO by itself."""
        unwritten, whole, wrong = self.job["unwritten"], [], ""
        self.nic.only("packet", FIRST_OF_A_MESSAGE)
        for part in PARTS:
            why = why_unseen(unwritten, LAST, wrong)
            whole.append(row_of(part, LAST, why) if why else self.row(part))
            wrong = wrong or (part if part not in PARTS[-2:] and not whole[-1]["right"] else "")
        self.nic.only("packet")
        pieced = Pieced(self.nic, self.job)
        rows = pieced.rows(alone=bool(unwritten or wrong)) + whole
        first = next((each for each in rows if not each["right"]), None)
        if first and first["options"] and not unwritten:
            first["shows"] = undisturbed(pieced.shows, first["options"])
        return rows


def set_up(nic, course):
    """course: the library with the suite's digest and pattern."""
    nic.whole()
    sandbox.take_charge()
    os.makedirs(f"{OPEN}/home")
    shutil.copy(course, f"{OPEN}/course.so")
    os.chmod("/dev/infiniband/uverbs0", 0o666)
