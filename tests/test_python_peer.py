# SPDX-License-Identifier: BSD-2-Clause
"""peer/ is a peer of 02, 04 and 07 in Python, by somebody who had README.md, labs.md, the
headers and the head comments, but no C code. So what those say is enough, and stays true:
both roles, against the programs. Runs where the device is."""
import os
import sys
import tempfile
import time

from pairs import PairTest, pattern, ports, word_after
from samples import LIMIT, ROOT, Ended, end, start, wait_for_listener

sys.path.insert(0, os.path.join(ROOT, "tests", "peer"))
import peer  # noqa: E402

LAYOUTS = (
    (1, 33, 3),
    (100, 32, 101),
    (1024, 65, 1500),
    (7, 700, 7),
    (3, 5000, 5),
    (65536, 1, 70000),
)


class Fork:
    """The peer's main() in a fork: Python and pyverbs take seconds to start in an emulated VM.
    Has what wait_for_listener() wants of a process."""

    def __init__(self, sample, *args):
        self.files, self.returncode = [tempfile.TemporaryFile() for _ in "oe"], None
        self.pid = os.fork()
        if self.pid:
            return
        for fd, file in enumerate(self.files, 1):
            os.dup2(file.fileno(), fd)
        sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
        sys.argv = ["peer.py", sample, *args]
        try:
            peer.main()
        finally:  # an exception, since main() ends the process
            sys.excepthook(*sys.exc_info())
            os._exit(99)

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def end(self):
        deadline = time.monotonic() + LIMIT
        while self.poll() is None:
            if time.monotonic() > deadline:
                os.kill(self.pid, 9)
            time.sleep(0.02)
        for file in self.files:
            file.seek(0)
        return Ended(self.returncode, *(file.read().decode() for file in self.files))


class PythonPeer(PairTest):
    def both_roles(self, sample, *args, data=None, peers=()):
        """peers: arguments of the Python peer only."""
        args = [*args, "--timeout", "60"]
        with self.subTest(sample=sample, args=args, python="client"):
            port = str(next(ports))
            server = start(sample, "--port", port)
            wait_for_listener(port, server)
            client = Fork(sample, "--port", port, *args, *peers, "127.0.0.1").end()
            self.agree(sample, end(server), client, data)
        with self.subTest(sample=sample, args=args, python="server"):
            port = str(next(ports))
            server = Fork(sample, "--port", port, *peers)
            wait_for_listener(port, server)
            client = end(start(sample, "--port", port, *args, "127.0.0.1"))
            self.agree(sample, server.end(), client, data)

    def agree(self, sample, server, client, data):
        self.both_pass(sample, server, client, data)
        layouts = [
            [line for line in side.out.splitlines() if line.startswith("LAYOUT")]
            for side in (server, client)
        ]
        self.assertEqual(*layouts)
        self.assertEqual(len(layouts[0]), sample == "07_gssr")

    def test_02(self):
        for size, iters, seed in (
            (1, 1, 1),
            (7, 3, 0),
            (1025, 5, 9),
            (33, 40, 2**64 - 16),
            (65536, 2, 12345678901234567890),
        ):
            data = b"".join(pattern(size, (seed + i) % 2**64) for i in range(iters))
            self.both_roles(
                "02_send_recv",
                "--size",
                str(size),
                "--iters",
                str(iters),
                "--seed",
                str(seed),
                data=data,
            )
        self.both_roles("02_send_recv", "--size", "5000", peers=["--mtu", "512"])

    def test_04(self):
        for iters, seed in ((100, 1), (1, 2**64 - 1), (50, 2**63 - 8), (2, 0)):
            self.both_roles(
                "04_atomic",
                "--iters",
                str(iters),
                "--seed",
                str(seed),
                data=word_after(iters, seed),
            )

    def test_07(self):
        for method in ("sgl", "copy", "each"):
            for size, num, stride in LAYOUTS:
                self.both_roles(
                    "07_gssr",
                    "--method",
                    method,
                    "--block-size",
                    str(size),
                    "--block-num",
                    str(num),
                    "--stride",
                    str(stride),
                    "--iters",
                    "2",
                    data=pattern(size * num, 1),
                )
        self.both_roles("07_gssr", "--student", "20260001")
        for peers in (["--max-sge", "7"], ["--ack-after", "64"], ["--mtu", "256"]):
            self.both_roles("07_gssr", "--block-size", "300", "--block-num", "300", peers=peers)
