# SPDX-License-Identifier: BSD-2-Clause
"""The reader of the rendezvous' lines against the words of its header: tests/fuzz/judge.c and
tests/protocol.py must agree on every line."""
import os
import random
import subprocess
import unittest

from protocol import GOOD_LINE, is_good, mutated
from samples import ROOT

COUNT = int(os.environ.get("HV_LINES", 100_000))


class Lines(unittest.TestCase):
    def test_the_code_and_the_header_agree(self):
        dice, lines = random.Random(COUNT), [GOOD_LINE]
        while len(lines) < COUNT:
            line = mutated(GOOD_LINE, dice)
            # what read_line sees to, is tried at a live server
            if (
                line.isascii()
                and line[:-1].decode().isprintable()
                and line[-1:] == b"\n"
                and len(line) <= 1024
            ):
                lines.append(line)
        said = subprocess.run(
            [os.path.join(ROOT, "build", "judge")],
            input=b"".join(lines),
            capture_output=True,
            check=True,
        )
        self.assertEqual(said.stderr, b"")
        verdicts = said.stdout.decode().splitlines()
        self.assertEqual(len(verdicts), len(lines))
        good = 0
        for line, verdict in zip(lines, verdicts):
            self.assertEqual(verdict == "good", is_good(line), (line, verdict))
            good += verdict == "good"
        self.assertGreater(good, COUNT / 1000)
        self.assertLess(good, COUNT / 2)
