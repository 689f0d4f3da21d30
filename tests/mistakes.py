# SPDX-License-Identifier: BSD-2-Clause
"""Wrong programs, as mistakes/ describes them: what is changed in a sample, and what must be said of it."""
import glob
from typing import NamedTuple

import samples


class Mistake(NamedTuple):
    lab: str
    name: str
    part: str  # that must be named ("right" if the program is)
    reason: str  # a pattern
    edits: list  # of pairs: old and new lines

    def program(self):
        """The sample, with the mistake."""
        source = samples.read(glob.glob(f"{samples.ROOT}/{self.lab}_*/*.c")[0])
        for old, new in self.edits:
            assert source.count(old) == 1, f"{self.lab} {self.name}: '{old}'"
            source = source.replace(old, new)
        return source


def read(command):
    """Those that this command of make must find: check or grade."""
    found = []
    pieces = samples.read(f"tests/mistakes/{command}.txt").split("\n== ")[1:]
    for piece in pieces:
        head, says, *lines = piece.rstrip("\n").split("\n")
        edits, before = [], "+"
        for line in lines:
            if line[0] == "-" and before == "+":
                edits.append(([], []))
            before = line[0]
            edits[-1]["-+".index(before)].append(line[1:])
        edits = [("\n".join(old), "\n".join(new)) for old, new in edits]
        labs, name = head.split(" ")
        part, _, reason = says.partition(" | ")
        found += [Mistake(lab, name, part, reason, edits) for lab in labs.split(",")]
    return found
