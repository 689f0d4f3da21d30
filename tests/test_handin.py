# SPDX-License-Identifier: BSD-2-Clause
"""make handin as a student runs it. test_grading.py makes its class's hand-ins without measuring."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
import zipfile

from grading_class import TEMPLATE, answered, command, measured_by
from samples import ROOT, write


def contents(student):
    """Of its zip, which is moved away with what lies beside it: the text of each file."""
    with zipfile.ZipFile(f"{ROOT}/handin-{student}.zip") as archive:
        found = {
            name: archive.read(name).decode() for name in archive.namelist() if name[-1] != "/"
        }
    shutil.rmtree(f"{ROOT}/results/handin-{student}")
    os.remove(f"{ROOT}/handin-{student}.zip")
    return found


class Handin(unittest.TestCase):
    def test_handin(self):
        """It passes and says how it went; its zip has all that the manifest names, and full marks. That an answer is
        missing is said at the end of both."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        text = re.sub(r"(?s)(## explain 3\n.*?answer:)[^\n]*", r"\1", answered())
        name = f"{folder}/\u7b54\u6848.txt"
        words = ("make", "handin", f"STUDENT={TEMPLATE}", f"ANSWERS={name}")
        write(name, (text + "\u7b54\u6848").encode("gb18030"))
        refused = command(*words)
        self.assertIn("save it as UTF-8", refused.stderr)  # before anything is run
        self.assertNotIn("passed", refused.stderr)
        write(name, text.encode("utf-8-sig"))
        made = command(*words)
        self.assertEqual(made.returncode, 0, made)
        graded = command("make", "-s", "grade", f"HANDINS=handin-{TEMPLATE}.zip").stdout
        files = contents(TEMPLATE)
        self.assertIn("07_gssr: passed", made.stderr)
        self.assertNotIn("what make grade will say", made.stderr)
        self.assertEqual(files["answers.txt"], "\ufeff" + text)
        end = "end runs complete (26 of 27 answers given)\n"
        self.assertTrue(files["manifest"].endswith(end), files["manifest"])
        self.assertRegex(made.stderr, r"\n\S+: answers: 26 of 27 given; missing: explain 3\n$")
        self.assertIn("Score: 100/100", graded)
        self.assertNotIn("isn't as make handin packed it", graded)
        self.assertIn("program/Makefile", files)
        made_up = measured_by(TEMPLATE, files["runs/05_gather_write.txt"], "05")
        real, expected = (
            re.sub(r"(_us|_MBps|REGISTER bytes| us)=[0-9.]+", r"\1=", part).splitlines()
            for part in (files["runs/measured.txt"], made_up)
        )
        self.assertEqual(real, expected, "what the other tests take for a measurement")

    def test_interrupted(self):
        """Ctrl-C after the second pair: the first is there, and the manifest says what happened. (Of
        the second its end may be missing: what make says and the file leave the VM by two ways.)"""
        made = subprocess.Popen(
            ["make", "-C", ROOT, "handin", "STUDENT=x-2", "ANSWERS=/dev/null"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for line in made.stderr:
            if line == "02_send_recv: passed\n":
                os.killpg(made.pid, signal.SIGINT)  # as a terminal does
        self.assertNotEqual(made.wait(120), 0)
        self.assertRegex(
            command("make", "-s", "progress").stdout,
            r"(?m)^05 .*  make handin: interrupted \(0 of 27 answers given\)$",
        )
        files = contents("x-2")
        self.assertTrue(files["runs/01_hello_write.txt"].endswith("=== exit 0\n"), files)
        end = "end interrupted (0 of 27 answers given)\n"
        self.assertTrue(files["manifest"].endswith(end), files["manifest"])
