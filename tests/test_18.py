# SPDX-License-Identifier: BSD-2-Clause
"""18_threads: both ways with many numbers of threads, and what goes wrong in one thread, or in all at a time; by
ThreadSanitizer, that nothing is shared without the lock. Runs where the RDMA device is."""
import itertools
import os
import re
from unittest import mock

import samples
from pairs import PairTest, messages, preloaded
from protocol import hello
from samples import ROOT, end, line_from, ran, run

NAME = "18_threads"
WAYS = ("none", "qp")
TSAN = os.path.join(ROOT, "build", "tsan")  # threads, and unlocked: it without its lock (builds.py)


class Threads(PairTest):
    def test_each_way_by_threads(self):
        for way, threads in itertools.product(WAYS, (1, 2, 7, 16)):
            args = ("--share", way, "--threads", threads, "-n", 50, "-s", 100, "-S", 5)
            server, client = self.passes(NAME, *args, data=messages(threads * 50, 100, 5))
            pairs = threads if way == "none" else 1
            said = (
                f"{threads} threads? wrote 50 messages of 100 bytes each, by {pairs} queue pairs?\n"
            )
            self.assertRegex(server.out, said)
            self.assertRegex(client.out, said)
            found = re.search(
                rf"\nBENCH share={way} threads={threads} size=100 iters=50"
                r" others=(\d+) waits=(\d+) message_us=\d+\.\d{3}\n",
                client.out,
            )
            shared = way == "qp" and threads > 1
            self.assertEqual(int(found[1]) > 0, shared, client)  # whoever polls takes it
            self.assertTrue(shared or found[2] == "0", client)

    def test_each_way_by_size(self):
        for way, size in itertools.product(WAYS, (1, 1025, 65536)):
            self.passes(NAME, "--share", way, "-s", size, data=messages(256, size, 1))


class Wrong(PairTest):
    """Not within Debian 13's files, where this machine's fail_verbs.so is not to be had."""

    def failing(self, way, said, hint=True, **harm):
        """Harm to the client, of which one thread says so. Both sides."""
        server, port = self.serve(NAME, "--timeout", 10)
        args = ("-p", port, "--timeout", 3, "--share", way, "--threads", 16, "-s", 100)
        client = run(NAME, *args, "127.0.0.1", env=preloaded(**harm))
        self.check_failed(client, NAME, "client", said, hint=hint)
        return end(server), client

    def test_in_all_threads(self):
        """In one at a time: test_faults.py, and lab 18 of make check."""
        for way, (call, error, said) in itertools.product(
            WAYS,
            (
                ("ibv_post_send", 12, "ibv_post_send of a WRITE: Cannot allocate memory"),
                ("ibv_poll_cq", 5, "ibv_poll_cq"),
                ("completion", 10, r"completion of a WRITE: remote access error \(status 10\)"),
            ),
        ):
            _, client = self.failing(way, said, HV_FAIL=f"{call}:1:{error}:on")
            self.assertEqual(client.err.count(f"{NAME} client: "), 1, client)

    def test_wrong_data_is_told(self):
        for way in WAYS:
            said = r"message \d+ of thread \d+: byte 5 of 100 is 0x"
            server, _ = self.failing(way, said, hint=False, HV_SEND="7:b:5")
            self.check_failed(server, NAME, "server", said, hint=False)


class Strangers(PairTest):
    def test_qpn_that_is_none(self):
        for qpn in (b"0x1000000", b"-0x1", b"zz"):
            server, port = self.serve(NAME)
            with self.meet(port) as stranger:
                stranger.sendall(hello(NAME, ",threads=2,share=none") + b"sync qpn=" + qpn + b"\n")
                line_from(stranger)
                said = "the peer sent 'sync qpn="
                self.check_failed(end(server), NAME, "server", said, hint=False)


class Races(PairTest):
    def test_the_lock_is_enough(self):
        with mock.patch.object(samples, "BUILD", TSAN):
            for way in WAYS:
                self.passes(NAME, "--share", way, data=messages(256, 4096, 1))

    def test_without_the_lock(self):
        said = ran(["testenv/pair.sh", f"{TSAN}/unlocked", "--timeout", "3"]).stdout
        for function in ("post_write", "on_completion"):
            self.assertRegex(said, f"SUMMARY: ThreadSanitizer: data race .* in {function}\n")
