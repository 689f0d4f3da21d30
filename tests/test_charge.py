# SPDX-License-Identifier: BSD-2-Clause
"""In the VM: while the judge works, students' programs stand still, also when it works for seconds.
Without more, Linux gives ordinary processes 50 ms of each second."""
import os
import subprocess
import sys
import time
import unittest

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "judge")]
# pylint: disable=wrong-import-position
import sandbox  # noqa: E402
from samples import read  # noqa: E402


class Charge(unittest.TestCase):
    def test_nothing_moves_meanwhile(self):
        sandbox.take_charge()
        with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as other:
            time.sleep(0.3)

            def ran():
                """Hundredths of a second of CPU that the other has had (proc_pid_stat(5))."""
                return sum(map(int, read(f"/proc/{other.pid}/stat").split()[13:15]))

            before, until = ran(), time.monotonic() + 3
            while time.monotonic() < until:
                pass
            after = ran()
            other.kill()
        self.assertGreater(before, 0)
        self.assertEqual(after, before)
