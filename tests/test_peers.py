# SPDX-License-Identifier: BSD-2-Clause
"""Peers that are none, lie, or go away, on either side of the rendezvous, whose code is common/'s: with 03.
(Dead and stuck ones, at each step: test_dead.py. Layouts in work=: unit/test_rendezvous.c.)"""
import os
import re
import socket
import subprocess
import tempfile
import time

from pairs import PairTest, ports
from protocol import CONTRACT, GOOD_LINE, SERVER_LINE, hello
from samples import PROGRAM, Ended, end, path, read, run, start

SAMPLE = "03_read"


def footprint(process):
    """Its resident memory in KiB, and its open files."""
    rss = re.search(r"VmRSS:\s+(\d+)", read(f"/proc/{process.pid}/status"))
    files = []
    for _ in range(10):  # the last stranger may still be leaving
        files.append(len(os.listdir(f"/proc/{process.pid}/fd")))
        time.sleep(0.1)
    return int(rss[1]), min(files)


class Client(PairTest):
    """It meets a stranger on the server's port."""

    def fails(self, reason, data):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            client = start(SAMPLE, "--timeout", 3, "-p", port, "127.0.0.1")
            with listener.accept()[0] as connection:
                self.assertRegex(connection.recv(4096), CONTRACT)
                connection.sendall(data)
                began = time.monotonic()
                self.check_failed(end(client), SAMPLE, "client", reason)
                self.assertLess(time.monotonic() - began, 28)

    def test_server_that_is_none(self):
        for data, reason in (
            (b"HTTP/1.1 400 Bad Request\n\r\n", "does not begin with hello-verbs/2"),
            (b"A" * 5000, "line of more than 1024 bytes"),
            (b"", "the peer is silent: no 'line' from it"),
            (GOOD_LINE.replace(b"03_read", b"04_atomic"), "this side runs 03_read"),
            (GOOD_LINE.replace(b"size=4096", b"size=4097"), "work= is not this side's"),
            (GOOD_LINE.replace(b"qpn=0x000011", b"qpn=17 qpn=17"), "field is missing, malformed"),
            (hello(gid="::"), "only one side has a GID"),
            (b"hello-verbs/2 error=no red\n", "the server refused: no red\n"),
            (b"hello-verbs/2 error=no \x1b[31mred\n", "not printable ASCII"),
            (SERVER_LINE, "the peer is silent: no 'sync ready'"),
            (SERVER_LINE + b"sync go\n", "the peer sent 'sync go' instead of 'sync ready'"),
        ):
            self.fails(reason, data)


# What a server refuses of a client's work: SIZExITERS, the reason, and the sample's own fields (- for none).
WORKS = """
08 | 4096x1 | transport is neither rc nor uc | - transport=ud transport=rc,burst=4
08 | 16777217x1 | above 16 MiB | transport=rc
09 | 256x1 | malformed | - clients=0 clients=17 clients=-1 clients=1,x=1
09 | 4097x1 | malformed | clients=1
10 | 1024x1 | work= is malformed | - clients=0 clients=65 clients=1,x=1
10 | 1023x1 | work= is malformed | clients=2
12 | 4096x1 | inline is malformed, or above 4096 | - inline=0 inline=4097 inline=1K inline=64,more=1
13 | 4096x1 | withdraw= is malformed | - withdraw=0 withdraw=4 withdraw=33 withdraw=3,x=1
14 | 8388609x1 | size= is more than 8M | break=0
14 | 4096x1 | break= is malformed | break=x break=0,
16 | 9x9 | api, batch or list is malformed | api=old,batch=1,list=0 api=wr,batch=01,list=0 api=wr,batch=1,list=0, api=wr,batch=1 batch=1,list=0
16 | 9x9 | batch must be 1 to 64, list 0 or 1 | api=wr,batch=0,list=0 api=post,batch=65,list=0 api=post,batch=4,list=2
16 | 2x9 | a list takes messages of 3 bytes at least | api=post,batch=4,list=1
16 | 2097152x9 | a batch is larger than 64M | api=wr,batch=33,list=0
17 | 9x9 | memory or then is unknown | memory=odd,then=none,region=65536,limit=9
17 | 9x9 | limit is malformed | memory=odp,then=none,region=065536,limit=9
17 | 9x9 | the blocks do not fit | memory=odp,then=none,region=4096,limit=9
18 | 9x9 | threads or share is malformed | threads=4,share=cq threads=04,share=qp share=qp
18 | 9x9 | threads must be 1 to 16 | threads=0,share=qp threads=17,share=none
18 | 1048576x9 | the messages exceed 64M | threads=8,share=qp
"""


class Server(PairTest):
    WRONG = (
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"not printable ASCII"),
        (b"A" * 100000, b"more than 1024 bytes"),
        (hello(size=99999999999), b"more than the limits"),
        (GOOD_LINE.replace(b" mtu=1024 addr=0x0", b" addr=0x0 mtu=1024"), b"out of order"),
        (hello(gid="::"), b"only one side has a GID"),
    )

    def test_strangers_are_refused_and_then_the_right_client_is_served(self):
        self.refuses(SAMPLE, self.WRONG)

    def test_work_that_cannot_be(self):
        lines = {}
        for row in WORKS.strip().splitlines():
            number, size, reason, works = row.split(" | ")
            sample = next(name for name in PROGRAM if name.startswith(number))
            size, iters = size.split("x")
            for work in works.split():
                line = hello(sample, f",{work}".replace(",-", ""), size, iters)
                lines.setdefault(sample, []).append((line, reason.encode()))
        for sample, refused in lines.items():
            more = "--memory pinned --limit 8M".split() if sample == "17_odp" else ()
            self.refuses(sample, refused, more)

    def test_a_mute_stranger_delays_the_next_one_by_two_seconds(self):
        server, port = self.serve(SAMPLE, "--timeout", 60)
        for data in (b"", GOOD_LINE[:40]):
            with self.meet(port) as mute:
                mute.sendall(data)
                began = time.monotonic()
                answer = mute.makefile("rb").read()
                self.assertEqual(answer, b"hello-verbs/2 error=the peer is silent\n")
                self.assertTrue(1.9 < time.monotonic() - began < 3.5)
        with self.meet(port), self.meet(port) as slow:
            slow.sendall(GOOD_LINE[:1])
            began = time.monotonic()
            self.serves_the_next(SAMPLE, server, port, 4)
            self.assertTrue(3.5 < time.monotonic() - began < 28)

    def test_hundreds_of_strangers(self):
        """They cost it neither memory nor a file."""
        port, lines = str(next(ports)), [line[:2000] for line, _ in self.WRONG] * 60
        with tempfile.TemporaryFile() as log:  # a pipe that nobody reads would stop it
            command = [path(SAMPLE), "-p", port, "--timeout", "600"]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
            server.stdout.readline()
            for number, line in enumerate(lines):
                with self.meet(port) as stranger:
                    stranger.sendall(line)
                    stranger.shutdown(socket.SHUT_WR)
                    answer = stranger.makefile("rb").read()
                self.assertRegex(answer, rb"^hello-verbs/2 error=[ -~]+\n$", line)
                if number == 200:
                    memory, files = footprint(server)
            now, now_files = footprint(server)
            self.assertEqual(now_files, files)
            with open(path(SAMPLE), "rb") as program:
                if b"__asan_init" not in program.read():  # the sanitizer keeps what has been freed
                    self.assertLessEqual(now, memory + 64)
            client = run(SAMPLE, "-p", port, "127.0.0.1")
            out, _ = server.communicate(timeout=20)
            self.both_pass(SAMPLE, Ended(server.returncode, out.decode(), ""), client)

    def test_a_client_that_goes_away_or_says_fail(self):
        failed = b"sync ready\nsync done\nverdict FAIL\n"
        for said, reason in (
            (b"", "the peer closed the connection"),
            (b"nonsense\n", "the peer sent 'nonsense'"),
            (failed, "the peer sent 'verdict FAIL': see its output"),
        ):
            server, port = self.serve(SAMPLE, "--timeout", 30)
            with self.meet(port) as connection:
                for piece in (GOOD_LINE[:1], GOOD_LINE[1:99], GOOD_LINE[99:]):
                    connection.sendall(piece)
                    time.sleep(0.1)
                answer = connection.recv(4096)
                lent = rb"^hello-verbs/2 sample=03_read .* rkey=0x[0-9a-f]+ len=4096 "
                self.assertRegex(answer, lent)
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                self.check_failed(end(server), SAMPLE, "server", reason, hint=said == b"")
