#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""make handin as a student runs it. test_grading.py makes its class's texts without measuring."""
import os
import re
import signal
import subprocess
import tempfile
import unittest

from grading_class import TEMPLATE, command, make_handin, measured_by, section, write
from samples import ROOT, main


class Handin(unittest.TestCase):
    longMessage = True

    def test_handin(self):
        """It passes and says how it went; its file has the answers, and full marks. That an answer is missing
        is said at the end of both."""
        made, text = make_handin()
        self.assertEqual(made.returncode, 0, made)
        self.assertIn("07_gssr: passed", made.stderr)
        self.assertNotIn("what make grade will say", made.stderr)
        self.assertIn("交叉点", text)
        self.assertTrue(
            text.endswith("\n=== end runs complete (26 of 27 answers given)\n"), text[-200:]
        )
        self.assertRegex(made.stderr, r"\n\S+: answers: 26 of 27 given; missing: explain 3\n$")
        with tempfile.TemporaryDirectory() as folder:
            write(f"{folder}/handin-{TEMPLATE}.txt", text)
            graded = command("make", "-s", "grade", f"HANDINS={folder}").stdout
        self.assertIn("Score: 100/100", graded)
        made_up = measured_by(TEMPLATE, section(text, "05_gather_write"), "05")
        real, expected = (
            re.sub(r"(_us|_MBps|REGISTER bytes| us)=[0-9.]+", r"\1=", part).splitlines()
            for part in (section(text, "measured"), made_up)
        )
        self.assertEqual(real, expected, "what the other tests take for a measurement")

    def test_interrupted(self):
        """Ctrl-C after the second pair: the first is in the file, and it says what happened. (Of
        the second its end may be missing: what make says and the file leave the VM by two ways.)"""
        name = f"{ROOT}/handin-x-2.txt"
        made = subprocess.Popen(
            ["make", "handin", "STUDENT=x-2", "ANSWERS=/dev/null"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for line in made.stderr:
            if line == "02_send_recv: passed\n":
                os.killpg(made.pid, signal.SIGINT)  # as a terminal does
        self.assertNotEqual(made.wait(120), 0)
        with open(name, encoding="utf-8") as file:
            text = file.read()
        self.assertRegex(
            command("make", "-s", "progress").stdout,
            r"(?m)^05 .*  make handin: interrupted \(0 of 27 answers given\)$",
        )
        os.remove(name)
        os.remove(name.replace(".txt", ".zip"))
        self.assertIn("=== 01_hello_write exit 0\n", text)
        self.assertTrue(
            text.endswith("\n=== end interrupted (0 of 27 answers given)\n"), text[-200:]
        )


if __name__ == "__main__":
    main()
