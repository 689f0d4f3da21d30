# SPDX-License-Identifier: BSD-2-Clause
"""Runs the samples and reads what they print; shared by the tests."""
import contextlib
import functools
import glob
import os
import re
import subprocess
import time
import unittest
from random import Random

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = {
    "01_hello_write": "hello_write",
    "02_send_recv": "send_recv",
    "03_read": "read",
    "04_atomic": "atomic",
    "05_gather_write": "gather_write",
    "06_scatter_read": "scatter_read",
    "07_gssr": "gssr",
    "08_write_imm": "write_imm",
    "09_ud": "ud",
    "10_srq": "srq",
    "11_rdma_cm": "rdma_cm",
    "12_ordering": "ordering",
    "13_memory_window": "memory_window",
    "14_recover": "recover",
    "15_flush": "flush",
    "16_extended": "extended",
    "17_odp": "odp",
    "18_threads": "threads",
}


SOME = os.environ.get("HV_SOME") or os.urandom(2).hex()


def some(things, share=2):
    """Of many that are alike, one in so many, drawn anew: the others come in other runs. HV_SOME=all takes all of
    them, HV_SOME=SEED those of another run."""
    random, names = Random(SOME + str(len(things))), sorted(things, key=str)
    chosen = (
        names if SOME == "all" else sorted(random.sample(names, -(-len(names) // share)), key=str)
    )
    return {name: things[name] for name in chosen} if isinstance(things, dict) else chosen


@functools.cache
def unwritten(sample):
    """What a student has yet to write in it, where make student-release has put a starter; or None."""
    for source in glob.glob(os.path.join(ROOT, sample, "*.c")):
        with open(source, encoding="utf-8", errors="replace") as file:
            if found := re.findall(r"(?:not written yet|尚未编写) \(TODO \d+\)", file.read()):
                return min(found)
    return None


# What every kernel and library runs: 15 and 17 take newer ones (test_15.py, test_17.py).
EVERYWHERE = sorted(set(PROGRAM) - {"15_flush", "17_odp"})
# 11 has no TCP rendezvous: test_11.py.
SAMPLES = [name for name in EVERYWHERE if name != "11_rdma_cm" and not unwritten(name)]
WITH_BLOCKS = [
    sample for sample in SAMPLES if sample[:2] in ("05", "06", "07")
]  # non-contiguous data
# Where the programs are: a directory made by builds.py with one flavour of the build.
BUILD = os.environ.get("HV_BUILD", "")
LIMIT = 300  # seconds after which a program counts as hung, on however busy a machine
# Where programs lie at the same addresses each time, QEMU translates them once. A container may forbid it.
FIXED = () if os.environ.get("TESTENV") == "native" else ("setarch", "-R")


def path(sample):
    if todo := unwritten(sample):
        raise unittest.SkipTest(f"{sample}: {todo}")
    return os.path.join(BUILD or os.path.join(ROOT, sample), PROGRAM[sample])


class Ended:
    """What is left of a program that has ended: status, stdout, stderr, RESULT's fields."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err
        lines = out.splitlines()
        self.results = [line for line in lines if line.startswith("RESULT ")]
        self.result = {}
        if lines and lines[-1].startswith("RESULT "):
            self.result = dict(field.split("=", 1) for field in lines[-1].split()[1:])

    def __str__(self):
        return f"exit status {self.status}\nstdout:\n{self.out}\nstderr:\n{self.err}"


def ran(command, check=False, timeout=900, **more):
    """A command that has ended: returncode, stdout and stderr as text."""
    if "input" not in more:
        more["stdin"] = subprocess.DEVNULL
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=check, **more
    )


def sh(script):
    """What it prints; one that fails raises."""
    return ran(["sh", "-ec", script], check=True).stdout


@contextlib.contextmanager
def changed(script, undo):
    """The machine as a script makes it; then as it was."""
    sh(script)
    try:
        yield
    finally:
        sh(undo)


def start(sample, *args, there=(), **more):
    """there: a command before the program, testenv/there.sh say."""
    return subprocess.Popen(
        [*there, path(sample), *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **more,
    )


def end(process):
    """Waits for a program; one that hangs is killed and fails the test."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += b"\nHUNG: killed by the test"
    return Ended(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def run(sample, *args, **more):
    return end(start(sample, *args, **more))


def wait_for_listener(port, server):
    """Until the server listens: a busy machine may take longer than a client has patience."""
    deadline = time.monotonic() + LIMIT
    while server.poll() is None and time.monotonic() < deadline:
        for table in ("/proc/net/tcp6", "/proc/net/tcp"):  # the samples' first
            with contextlib.suppress(FileNotFoundError), open(table, encoding="ascii") as file:
                if re.search(rf":{int(port):04X} 0+:0000 0A ", file.read()):
                    return
        time.sleep(0.02)


def line_from(tcp):
    """The next line of a peer; what comes behind it stays in the socket."""
    line = b""
    while not line.endswith(b"\n") and (byte := tcp.recv(1)):
        line += byte
    return line


class SampleTest(unittest.TestCase):
    longMessage = True

    def check_result(self, side, sample, role, status):
        """RESULT is the last line of stdout, there once, and says this."""
        self.assertEqual(len(side.results), 1, side)
        self.assertEqual(
            (side.result.get("sample"), side.result.get("status")), (sample, status), side
        )
        self.assertRegex(side.result.get("role"), f"^{role}$", side)
        self.assertRegex(side.result["digest"], "^[0-9a-f]{16}$", side)

    def check_failed(self, side, sample, role, reason, status=1, hint=True):
        """It failed as it should: status, RESULT, a reason, and a hint where one helps."""
        self.assertEqual(side.status, status, side)
        self.check_result(side, sample, role, "FAIL")
        self.assertRegex(side.err, reason, side)
        if hint:
            self.assertRegex(side.err, r"(?m)^  hint: \S", side)


def patient(seconds):
    """More of them on a busy machine."""
    return seconds * (1 + os.getloadavg()[0] / os.cpu_count())


def main():
    """Runs the calling file's tests; pytest runs them where groups.py says."""
    unittest.main()
