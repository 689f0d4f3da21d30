# SPDX-License-Identifier: BSD-2-Clause
"""Peers that are none, lie, or go away, on either side of the rendezvous."""
import os
import random
import re
import socket
import subprocess
import tempfile
import time

from pairs import PairTest, ports
from protocol import GOOD_LINE, SERVER_LINE, is_good, mutated
from samples import Ended, end, path, run, start


def footprint(process):
    """Its resident memory in KiB, and its open files."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        rss = re.search(r"VmRSS:\s+(\d+)", file.read())
    files = []
    for _ in range(10):  # the last stranger may still be leaving
        files.append(len(os.listdir(f"/proc/{process.pid}/fd")))
        time.sleep(0.1)
    return {"VmRSS": int(rss[1]), "files": min(files)}


OTHER_DEVICE = os.environ.get("HV_OTHER_DEVICE", "")  # tests/other_device.c, built


class DeadPeer(PairTest):
    """The peer's process is killed once its queue pair is up: nobody acknowledges."""

    def test_retry_counter_exceeded_is_explained(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = start(
                "03_read", "--timeout", "20", "-p", str(listener.getsockname()[1]), "127.0.0.1"
            )
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(
                    SERVER_LINE.replace(b"qpn=0x000011", b"qpn=0x7fffff").replace(
                        b"timeout=3", b"timeout=20"
                    )
                )
                connection.sendall(b"sync ready\n")
                self.check_failed(
                    end(client),
                    "03_read",
                    "client",
                    r"completion of the RDMA READ: transport retry counter exceeded "
                    r"\(status 12\)\n  hint: no ACK: is the peer alive",
                )


class BadPeers(PairTest):
    """A stranger on the TCP port, on either side."""

    def talk(self, *pieces, close=False):
        """A client's run against a server that answers its line with these pieces."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = start(
                "03_read", "--timeout", "3", "-p", str(listener.getsockname()[1]), "127.0.0.1"
            )
            connection, _ = listener.accept()
            with connection:
                self.assertRegex(connection.recv(4096), b"^hello-verbs/2 sample=03_read .*\n$")
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(0.3 if len(pieces) > 1 else 0)
                if close:
                    connection.close()
                began = time.monotonic()
                ended = end(client)
                self.assertLess(time.monotonic() - began, 12)
                return ended

    def test_client_meets_a_server_that_is_none(self):
        for data, reason in (
            (b"HTTP/1.1 400 Bad Request\n\r\n", "does not begin with hello-verbs/2"),
            (b"\x00\xff\x1b[31m\n", "the peer sent bytes that are not printable ASCII"),
            (b"A" * 5000, "line of more than 1024 bytes"),
            (GOOD_LINE[:100], "the peer is silent: no 'line' from it"),
            (b"", "the peer is silent: no 'line' from it"),
            (GOOD_LINE.replace(b"03_read", b"04_atomic"), "this side runs 03_read"),
            (GOOD_LINE.replace(b"size=4096", b"size=4097"), "work= is not this side's"),
            (GOOD_LINE.replace(b"qpn=0x000011", b"qpn=17 qpn=17"), "field is missing, malformed"),
            (GOOD_LINE.replace(b"::ffff:10.0.0.1", b"::"), "only one side has a GID"),
            (b"hello-verbs/2 error=no red\n", "the server refused: no red\n"),
            (b"hello-verbs/2 error=no \x1b[31mred\n", "not printable ASCII"),
            (SERVER_LINE, "the peer is silent: no 'sync ready'"),
            (SERVER_LINE + b"sync go\n", "the peer sent 'sync go' instead of 'sync ready'"),
        ):
            with self.subTest(data=data[:60]):
                self.check_failed(self.talk(data), "03_read", "client", reason)

    def test_client_meets_a_server_that_goes_away(self):
        for data in (b"", SERVER_LINE[:50], SERVER_LINE, SERVER_LINE + b"sync re"):
            with self.subTest(data=data[:60]):
                self.check_failed(
                    self.talk(data, close=True),
                    "03_read",
                    "client",
                    "the peer closed the connection",
                )

    def test_client_reads_a_line_that_comes_in_pieces(self):
        side = self.talk(SERVER_LINE[:10], b"", SERVER_LINE[10:200], SERVER_LINE[200:])
        self.check_failed(side, "03_read", "client", "the peer is silent: no 'sync ready'")

    def test_server_reads_a_line_that_comes_in_pieces(self):
        port = next(ports)
        server = start("03_read", "-p", str(port))
        with self.connect(port) as connection:
            for piece in (GOOD_LINE[:1], GOOD_LINE[1:99], GOOD_LINE[99:]):
                connection.sendall(piece)
                time.sleep(0.3)
            self.assertRegex(connection.recv(4096), b"^hello-verbs/2 sample=03_read .* len=4096 ")
        self.check_failed(end(server), "03_read", "server", "the peer closed the connection")

    def test_no_rkey_for_a_client_without_a_gid(self):
        """It is refused, and the next one is served."""
        port = next(ports)
        server = start("03_read", "-p", str(port))
        with self.connect(port) as connection:
            connection.sendall(GOOD_LINE.replace(b"::ffff:10.0.0.1", b"::"))
            answer = self.answer(connection)
            self.assertRegex(answer, b"^hello-verbs/2 error=only one side has a GID: .*\n$")
            self.assertNotIn(b"rkey", answer)
        client = run("03_read", "-p", str(port), "127.0.0.1")
        server = end(server)
        self.assertIn("refused a client: only one side has a GID", server.err)
        server.err = ""
        self.both_pass("03_read", server, client)

    def connect(self, port):
        deadline = time.monotonic() + 10
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port), timeout=20)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def answer(self, connection):
        data = b""
        while chunk := connection.recv(4096):
            data += chunk
        return data

    def test_server_refuses_strangers_and_then_serves_the_right_client(self):
        port = next(ports)
        server = start("03_read", "-p", str(port), "--timeout", "60")
        for data, reason in (
            (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"not printable ASCII"),
            (b"GET / HTTP/1.1\n", b"does not begin with hello-verbs/2"),
            (b"\n", b"does not begin with hello-verbs/2"),
            (b"\x00" * 200 + b"\n", b"not printable ASCII"),
            (b"A" * 100000, b"more than 1024 bytes"),
            (GOOD_LINE.replace(b"size=4096", b"size=99999999999"), b"more than the limits"),
            (GOOD_LINE.replace(b"verbs/2", b"verbs/1"), b"does not begin with hello-verbs/2"),
            (GOOD_LINE.replace(b"timeout=3", b"timeout=3,more=1"), b"work= has a field too many"),
            (GOOD_LINE.replace(b" mtu=1024 addr=0x0", b" addr=0x0 mtu=1024"), b"out of order"),
        ):
            with self.subTest(data=data[:40]), self.connect(port) as connection:
                connection.sendall(data)
                answer = self.answer(connection)
                self.assertRegex(answer, b"^hello-verbs/2 error=[ -~]+\n$")
                self.assertIn(reason, answer)
                self.assertNotIn(b"rkey", answer)
        self.connect(port).close()
        client = run("03_read", "-p", str(port), "127.0.0.1")
        server = end(server)
        self.assertIn("refused a client: the peer closed the connection\n", server.err)
        server.err = ""
        self.both_pass("03_read", server, client)

    def test_a_mute_stranger_delays_the_next_one_by_two_seconds(self):
        port = next(ports)
        server = start("03_read", "-p", str(port), "--timeout", "60")
        for data in (b"", GOOD_LINE[:40]):
            with self.connect(port) as mute:
                mute.sendall(data)
                began = time.monotonic()
                self.assertEqual(self.answer(mute), b"hello-verbs/2 error=the peer is silent\n")
                self.assertTrue(1.9 < time.monotonic() - began < 3.5)
        mute = self.connect(port)
        slow = self.connect(port)
        slow.sendall(GOOD_LINE[:1])
        began = time.monotonic()
        client = run("03_read", "-p", str(port), "127.0.0.1")
        self.assertTrue(3.5 < time.monotonic() - began < 8)
        server = end(server)
        mute.close()
        slow.close()
        server.err = ""
        self.both_pass("03_read", server, client)

    def test_a_client_that_takes_long_to_set_up_connects_after_it(self):
        port = next(ports)
        server = start("03_read", "-p", str(port))
        client = start(
            "03_read",
            "-p",
            str(port),
            "127.0.0.1",
            env={
                **os.environ,
                "LD_PRELOAD": OTHER_DEVICE,
                "HV_DEVICE": "slow",
                "ASAN_OPTIONS": "verify_asan_link_order=0",
            },
        )
        client, server = end(client), end(server)
        self.both_pass("03_read", server, client)

    def test_hundreds_of_mutated_lines_at_one_server(self):
        dice, port, tried = random.Random(1), next(ports), 0
        log = tempfile.TemporaryFile()  # a pipe that nobody reads would stop it
        server = subprocess.Popen(
            [path("03_read"), "-p", str(port), "--timeout", "600"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        before = None
        while tried < 600:
            line = mutated(GOOD_LINE, dice)
            if is_good(line) or b"\n" in line and is_good(line[: line.index(b"\n") + 1]):
                continue  # would be its client: see the next test
            with self.connect(port) as connection:
                connection.sendall(line)
                connection.shutdown(socket.SHUT_WR)
                answer = self.answer(connection)
            self.assertRegex(answer, rb"^hello-verbs/2 error=[ -~]+\n$", line)
            tried += 1
            if tried == 300:
                before = footprint(server)
        after = footprint(server)
        self.assertEqual(after["files"], before["files"])
        with open(path("03_read"), "rb") as program:
            if b"__asan_init" not in program.read():  # the sanitizer keeps what has been freed
                self.assertLessEqual(after["VmRSS"], before["VmRSS"] + 64)  # KiB
        client = run("03_read", "-p", str(port), "127.0.0.1")
        out, _ = server.communicate(timeout=20)
        self.both_pass("03_read", Ended(server.returncode, out.decode(), ""), client)
        log.close()
        print(f"ok - server: {tried} hostile inputs tried", flush=True)

    def test_other_ways_to_write_the_same_make_a_client(self):
        for old, new in (
            (b"lid=0x0000", b"lid=0x0"),
            (b"0x3a5f10", b"0x3A5F10"),
            (b"addr=0x0", b"addr=0x0000000000000000"),
            (b"rkey=0x0", b"rkey=0x00000000"),
            (b"::ffff:10.0.0.1", b"0000:0000:0000:0000:0000:ffff:0a00:0001"),
            (b"max_sge=1 ", b"max_sge=30 "),
            (b"rd_atomic=0", b"rd_atomic=16"),
        ):
            port = next(ports)
            server = start("03_read", "-p", str(port), "--timeout", "20")
            line = GOOD_LINE.replace(old, new)
            self.assertTrue(is_good(line), line)
            with self.subTest(new=new), self.connect(port) as connection:
                connection.sendall(line)
                self.assertRegex(connection.recv(4096), b"^hello-verbs/2 sample=03_read ", line)
            self.check_failed(end(server), "03_read", "server", "the peer closed")

    def test_mutated_lines_of_a_server(self):
        dice, tried = random.Random(3), 0
        while tried < 40:
            line = mutated(SERVER_LINE, dice)
            if is_good(line.partition(b"\n")[0] + b"\n"):
                continue  # what it has from a good one is told by other tests
            with self.subTest(line=line[:200]):
                self.check_failed(
                    self.talk(line, close=True),
                    "03_read",
                    "client",
                    "the peer sent|closed the connection|the server refused|silent",
                )
            tried += 1
        print(f"ok - client: {tried} hostile inputs tried", flush=True)

    def test_server_refuses_layouts_that_cannot_be(self):
        good = GOOD_LINE[:-1].replace(b"03_read", b"05_gather_write") + (
            b",block_size=64,block_num=64,stride=128,method=sgl,depth=0,sizes=none\n"
        )
        port = next(ports)
        server = start("05_gather_write", "-p", str(port), "--timeout", "60")
        for old, new, reason in (
            (b"stride=128", b"stride=63", b"stride is below block_size"),
            (b"block_num=64", b"block_num=0", b"must not be 0"),
            (b"block_size=64", b"block_size=0", b"must not be 0"),
            (b"stride=128", b"stride=18446744073709551615", b"above 64 MiB"),
            (b"block_num=64", b"block_num=4503599627370498", b"more than 262144 blocks"),
            (b"size=4096", b"size=4095", b"size is not block_size * block_num"),
            (b"method=sgl", b"method=magic", b"method: sgl, copy"),
            (b"method=sgl", b"method=", b"malformed"),
            (b"depth=0", b"depth=65", b"malformed"),
            (b"depth=0", b"depth=1", b"give numbers from 1 to 64M"),
            (b"depth=0,sizes=none", b"depth=1,sizes=4K,64M", b"more than 262144 blocks"),
            (b"iters=1", b"iters=1001", b"at most 1000 rounds"),
            (b",stride=128", b"", b"malformed"),
            (b"sizes=none", b"sizes=4K", b"malformed"),
            (b"sizes=none", b"sizes=none,x=1", b"malformed"),
        ):
            with self.subTest(new=new), self.connect(port) as connection:
                line = good.replace(old, new, 1)
                if new.startswith(b"iters"):
                    line = line.replace(b"depth=0,sizes=none", b"depth=1,sizes=4K")
                connection.sendall(line)
                answer = self.answer(connection)
                self.assertRegex(answer, b"^hello-verbs/2 error=[ -~]+\n$")
                self.assertIn(reason, answer)
        client = run("05_gather_write", "-p", str(port), "127.0.0.1")
        server = end(server)
        server.err = ""
        self.both_pass("05_gather_write", server, client)

    def test_server_ends_in_time_without_a_client(self):
        port = next(ports)
        server = start("03_read", "-p", str(port), "--timeout", "3")
        with self.connect(port) as connection:
            connection.sendall(GOOD_LINE[:40])
            self.check_failed(end(server), "03_read", "server", "no client came in 3 s", hint=False)

    def test_server_loses_its_client_after_the_swap(self):
        for last in (b"", b"sync ready\n", b"sync ready\nsync done\n", b"nonsense\n"):
            with self.subTest(last=last):
                port = next(ports)
                server = start("03_read", "-p", str(port), "--timeout", "30")
                with self.connect(port) as connection:
                    connection.sendall(GOOD_LINE)
                    self.assertRegex(
                        connection.recv(4096),
                        b"^hello-verbs/2 sample=03_read .* " b"rkey=0x[0-9a-f]+ len=4096 ",
                    )
                    connection.sendall(last)
                    connection.shutdown(socket.SHUT_WR)
                    self.check_failed(
                        end(server),
                        "03_read",
                        "server",
                        "the peer closed the connection|the peer sent 'nonsense'",
                    )

    def test_a_failed_verdict_of_the_peer_fails_this_side(self):
        port = next(ports)
        server = start("03_read", "-p", str(port))
        with self.connect(port) as connection:
            connection.sendall(GOOD_LINE)
            connection.recv(4096)
            connection.sendall(b"sync ready\nsync done\nverdict FAIL\n")
            side = end(server)
        self.assertEqual(side.status, 1, side)
        self.check_result(side, "03_read", "server", "FAIL")
        self.assertIn("the peer sent 'verdict FAIL': see its output", side.err)
