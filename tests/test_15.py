# SPDX-License-Identifier: BSD-2-Clause
"""15_flush: the log, where kernel and library have FLUSH and ATOMIC WRITE; the reason, with status 77, where
one of them lacks. Runs where the RDMA device is."""
import os
import re
import shutil
import struct
import sys
import tempfile
import unittest

from pairs import PairTest, messages
from protocol import hello
from samples import ROOT, end, line_from, run

sys.path.insert(0, os.path.join(ROOT, "judge"))
from ladder import packets  # noqa: E402

NAME = "15_flush"
OLD_HEADERS = "compiled with headers older than rdma-core 45, which have no ibv_wr_flush"


def linux():
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))


class Flush(PairTest):
    lacks = None  # what this machine lacks, or ''

    def setUp(self):
        if Flush.lacks is None:
            old = run(NAME, "127.0.0.1", "-p", "1")
            Flush.lacks = "headers" if OLD_HEADERS in old.err else "kernel" * (linux() < (6, 2))

    def has_both(self):
        if self.lacks:
            self.skipTest(f"the {self.lacks} here: see test_what_is_missing_is_named")

    def test_what_is_missing_is_named(self):
        if self.lacks == "headers":
            for host in ((), ("127.0.0.1",)):  # at once: nobody waits for a peer
                role = "client" if host else "server"
                self.check_failed(run(NAME, *host), NAME, role, OLD_HEADERS, 77, hint=False)
        elif self.lacks == "kernel":
            server, client = self.start_pair(NAME)
            reason = "no FLUSH or no ATOMIC WRITE on .*: Soft-RoCE has them since Linux 6.2"
            self.check_failed(end(client), NAME, "client", reason, 77, hint=False)
            self.check_failed(end(server), NAME, "server", reason, 77, hint=False)
        else:
            self.passes(NAME)

    def test_records_by_size_and_number(self):
        self.has_both()
        for size, iters in ((1, 1), (1, 500), (7, 100), (1024, 20), (1025, 20), (65536, 9)):
            server, client = self.passes(
                NAME,
                *("-s", str(size), "-n", str(iters), "--seed", "7"),
                data=messages(iters, size, 7),
            )
            said = f"appended {iters} records of {size} bytes, with 3 requests each\n"
            self.assertIn(said, client.out)
            moved = re.search(
                rf"read {iters} records .* moved (\d+) times, 0 records were torn\n", server.out
            )
            self.assertTrue(1 <= int(moved[1]) <= iters, server)

    def test_options(self):
        self.has_both()
        _, client = self.passes(NAME, "--no-flush", data=messages(100, 4096, 1))
        self.assertIn("with 2 requests each", client.out)
        self.passes(NAME, "--plain-tail", "--no-flush", data=messages(100, 4096, 1))

    def begin(self, size=4096, iters=2):
        """A server, and the connection of a client to it, which has said its line; the server's line."""
        server, port = self.serve(NAME, "--timeout", 3)
        tcp = self.enterContext(self.meet(port))
        tcp.sendall(hello(NAME, size=size, iters=iters, qpn=0x7FFFFF))
        return server, tcp, line_from(tcp)

    def test_tail_in_front_of_its_records(self):
        """Written by this test: the server must notice that the records are not there."""
        self.has_both()
        server, tcp, line = self.begin()
        addr = int(re.search(rb" addr=(0x[0-9a-f]+)", line)[1], 16)
        tcp.sendall(b"sync ready\n")
        self.assertEqual(line_from(tcp), b"sync ready\n")
        with open(f"/proc/{server.pid}/mem", "r+b", buffering=0) as memory:
            os.pwrite(memory.fileno(), struct.pack(">Q", 2 * 4096), addr)
        self.assertEqual(line_from(tcp), b"sync done\n")
        tcp.close()
        server = end(server)
        reason = "record 0 is torn: the tail is behind it, but not its byte 0"
        self.check_failed(server, NAME, "server", reason, hint=False)
        self.assertIn("2 records were torn", server.out)

    def test_log_that_is_too_large(self):
        self.has_both()
        server, _, line = self.begin(1 << 20, 65)
        self.assertEqual(line, b"hello-verbs/2 error=the log is larger than 64M\n")
        end(server)

    def test_client_that_appends_nothing(self):
        self.has_both()
        server, tcp, _ = self.begin()
        tcp.sendall(b"sync ready\n")
        reason = "the tail is at byte 0 of 8192 for 3 s"
        self.check_failed(end(server), NAME, "server", reason, hint=False)


# Of a run on two hosts, Linux 6.12: FLUSH and ATOMIC WRITE of the first record, 1500 bytes.
ETHERNET = "5254000004015254000004020800"
FRAMES = (
    ETHERNET + "450000408977400040119b330a0001020a000101c12112b7002c0000"
    "1c00ffff00000011804d75f3000000010000556cca952cd8000002e0000005dc482f4002",
    ETHERNET + "450000448978400040119b2e0a0001020a000101c12112b700300000"
    "1d00ffff00000011804d75f40000556cca952cd0000002e00000000800000000000005dc7871880d",
)


@unittest.skipUnless(shutil.which("tshark"), "no tshark here")
class Ladder(unittest.TestCase):
    def test_both_are_decoded(self):
        with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
            for frame in map(bytes.fromhex, FRAMES):
                file.write(struct.pack("<IIII", 1, 0, len(frame), len(frame)) + frame)
            file.flush()
            flush, write = packets(file.name)
        self.assertEqual(
            (flush.name, flush.psn, flush.payload, flush.answer), ("FLUSH", 0, 0, False)
        )
        self.assertEqual(
            flush.carries,
            "FETH visible, range, RETH va 0x556cca952cd8 rkey 0x2e0 length 1500",
        )
        self.assertEqual((write.name, write.psn, write.payload), ("ATOMIC WRITE", 1, 8))
        self.assertEqual(
            write.carries,
            "RETH va 0x556cca952cd0 rkey 0x2e0 length 8, value 0x00000000000005dc",
        )
