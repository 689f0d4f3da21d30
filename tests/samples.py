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
# 03_read holds read.c, which becomes read.
PROGRAM = {name: name[3:] for name in sorted(glob.glob("[0-9][0-9]_*", root_dir=ROOT))}
SOME = os.environ.get("HV_SOME") or os.urandom(2).hex()


def some(things, share=2):
    """Of many that are alike, one in so many, drawn anew: the others come in other runs. HV_SOME=all takes all of
    them, HV_SOME=SEED those of another run."""
    random, names = Random(SOME + str(len(things))), sorted(things, key=str)
    chosen = (
        names if SOME == "all" else sorted(random.sample(names, -(-len(names) // share)), key=str)
    )
    return {name: things[name] for name in chosen} if isinstance(things, dict) else chosen


def read(path, errors="strict"):
    """A text; path: from the project's root on."""
    with open(os.path.join(ROOT, path), encoding="utf-8", errors=errors) as file:
        return file.read()


def write(path, content):
    """Text or bytes; also makes the directories. Returns the path."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


@functools.cache
def unwritten(sample):
    """What a student has yet to write in it, where make student-release has put a starter; or None."""
    source = read(f"{sample}/{PROGRAM[sample]}.c", errors="replace")
    return min(re.findall(r"(?:not written yet|尚未编写) \(TODO \d+\)", source), default=None)


# What every kernel and library runs: 15 and 17 take newer ones (test_15.py, test_17.py).
EVERYWHERE = sorted(set(PROGRAM) - {"15_flush", "17_odp"})
# 11 has no TCP rendezvous: test_11.py.
SAMPLES = [name for name in EVERYWHERE if name != "11_rdma_cm" and not unwritten(name)]
WITH_BLOCKS = [name for name in SAMPLES if name[:2] in ("05", "06", "07")]  # non-contiguous data
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


def ran(command, check=False, timeout=900, cwd=ROOT, env=(), stderr=subprocess.PIPE, **more):
    """A command that has ended: returncode, stdout and stderr as text. env: what is added to this one."""
    if "input" not in more:
        more["stdin"] = subprocess.DEVNULL
    return subprocess.run(
        command,
        check=check,
        timeout=timeout,
        cwd=cwd,
        env={**os.environ, **dict(env)},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        **more,
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


def wait_until(holds, seconds=LIMIT):
    """Whether it holds in time."""
    deadline = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return held


def wait_for_listener(port, server):
    """Until the server listens: a busy machine may take longer than a client has patience."""

    def listens():
        tables = "".join(map(read, glob.glob("/proc/net/tcp*")))
        return re.search(rf":{int(port):04X} 0+:0000 0A ", tables)

    wait_until(lambda: server.poll() is not None or listens())


def line_from(tcp):
    """The next line of a peer; what comes behind it stays in the socket."""
    line = b""
    while not line.endswith(b"\n") and (byte := tcp.recv(1)):
        line += byte
    return line


class SampleTest(unittest.TestCase):
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
