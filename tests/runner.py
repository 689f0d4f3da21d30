# SPDX-License-Identifier: BSD-2-Clause
"""runner.py TEST… - runs unittest's tests, here or in the VM, and prints a line of JSON for each, which
conftest.py reads. pytest itself would take seconds to start in an emulated VM."""
import faulthandler
import io
import json
import os
import signal
import subprocess
import sys
import time
import unittest

from samples import patient

MARK = "@@ "  # begins such a line
TEST_LIMIT = 1500  # seconds for a test, on an idle machine
GUEST_LIMIT = 600  # in the VM, whose clock mostly counts its own time


def tell(**fields):
    print("\n" + MARK + json.dumps(fields), flush=True)


class Result(unittest.TestResult):
    """Tells the outcome of each test when it has ended, with what its subtests said."""

    broken = False

    def startTest(self, test):
        super().startTest(test)
        self.began, self.outcome, self.text = time.monotonic(), "passed", ""
        signal.signal(signal.SIGALRM, lambda *_: self.hung(test))
        limit = GUEST_LIMIT if os.path.exists("/run/testenv") else int(patient(TEST_LIMIT))
        signal.alarm(limit)

    def stopTest(self, test):
        signal.alarm(0)
        self.say(test.id())
        super().stopTest(test)

    def say(self, name):
        seconds = round(time.monotonic() - self.began, 1)
        tell(test=name, outcome=self.outcome, text=self.text, seconds=seconds)

    def failed(self, text):
        self.outcome, self.broken = "failed", True
        self.text += "\n".join(line[:4000] for line in text.splitlines()) + "\n"

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.failed(self.failures.pop()[1])

    def addError(self, test, err):
        super().addError(test, err)
        text = self.errors[-1][1]
        if isinstance(test, unittest.TestCase):
            self.failed(text)
        else:  # of a class or a module: setting up or clearing away
            self.broken = True
            tell(test="", outcome="failed", text=f"{test.id()}\n{text}", seconds=0)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome, self.text = "skipped", reason

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.failed(f"{subtest.id()}\n{self._exc_info_to_string(err, subtest)}")

    def hung(self, test):
        """Says where, and ends what was started: whoever reads the output waits for that, too."""
        where = io.TextIOWrapper(open("/tmp/hung", "w+b"))
        faulthandler.dump_traceback(where)
        where.seek(0)
        self.failed("HUNG, and ended by the runner\n" + where.read())
        self.say(test.id())
        for name in ("TERM", "KILL"):  # testenv.sh stores a log when it is told to end
            subprocess.run(["pkill", "-" + name, "-P", str(os.getpid())], check=False)
            time.sleep(5)
        os._exit(1)


def main():
    # Ignored in what a script runs in its background, and then in all that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    result = Result()
    result.tb_locals = True  # so that a failure tells its case
    unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:]).run(result)
    tell(test="", outcome="ended", text="", seconds=0)
    sys.exit(not result.testsRun or result.broken)


if __name__ == "__main__":
    main()
