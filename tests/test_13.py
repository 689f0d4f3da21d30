# SPDX-License-Identifier: BSD-2-Clause
"""13_memory_window: every way to end a loan, on good peers and on ones that lie. Runs where the
RDMA device is. (What it shares with the other samples is in test_pairs.py and the like.)"""
import itertools
import re
import socket
import time

from pairs import PairTest, pattern, ports
from samples import end, line_from, start, wait_for_listener

NAME = "13_memory_window"
GOOD = (
    b"hello-verbs/2 sample=13_memory_window lid=0x0000 qpn=0x7fffff psn=0x3a5f10 gid=::ffff:10.0.0.1"
    b" mtu=1024 addr=0x0 rkey=0x0 len=0 max_sge=1 rd_atomic=0 work=size=64,iters=1,seed=1,timeout=3"
)


class Loans(PairTest):
    def test_every_way_by_size_and_number(self):
        for way, size, iters in itertools.product("123", (1, 1024, 9999), (1, 5)):
            with self.subTest(way=way, size=size, iters=iters):
                data = b"".join(pattern(size, 7 + i) for i in range(iters))
                server, client = self.passes(
                    NAME,
                    "--withdraw",
                    way,
                    "-s",
                    str(size),
                    "-n",
                    str(iters),
                    "--seed",
                    "7",
                    data=data,
                )
                self.assertIn(
                    "one more WRITE with the last rkey: remote access error\n", client.out
                )
                for side in (server, client):
                    self.assertIn(f"moved {iters} x {size} bytes, each in a loan", side.out)

    def test_more_loans_than_an_rkey_has_tags(self):
        """Only 8 bits of the rkey change; type 1 changes them at the end of a loan, too."""
        for way, again in (("1", 129), ("2", 257), ("3", 257)):
            server, _ = self.passes(NAME, "-w", way, "-n", "600", "-s", "8")
            self.assertEqual(
                re.findall(r"(?m)^loan (\d+) has the first one's rkey", server.out), [str(again)]
            )
            server, _ = self.passes(NAME, "-w", way, "-n", str(again - 1), "-s", "8")
            self.assertNotIn("first one's rkey", server.out)

    def test_no_line_has_an_rkey(self):
        _, client = self.passes(NAME, "-v")
        self.assertEqual(re.findall(r"rkey=(\w+)", client.out), ["0x0", "0x0"])


class BadPeers(PairTest):
    def server(self, line, sync=b""):
        """A server's end that meets a client which says this and goes silent, or goes away."""
        port = next(ports)
        server = start(NAME, "-p", str(port), "--timeout", "3")
        wait_for_listener(port, server)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(line + b"\n")
            answer = line_from(connection)
            connection.sendall(sync)
            return answer, end(server)

    def test_work_that_cannot_be(self):
        for work in (
            b"",
            b",withdraw=0",
            b",withdraw=4",
            b",withdraw=33",
            b",withdraw= 3",
            b",withdraw=x",
            b",withdraw=3,x=1",
        ):
            with self.subTest(work=work):
                answer, server = self.server(GOOD + work)
                self.assertEqual(
                    answer,
                    b"hello-verbs/2 error="
                    + (
                        b"a field is missing, malformed, out of range or out of order\n"
                        if b" " in work
                        else b"withdraw= is malformed\n"
                    ),
                )
                self.check_failed(server, NAME, "server", "no client came in 3 s", hint=False)

    def test_client_that_never_takes_its_loan(self):
        began = time.monotonic()
        _, server = self.server(GOOD + b",withdraw=3", b"sync ready\n")
        self.check_failed(
            server,
            NAME,
            "server",
            "transport retry counter exceeded|" r"no completion of the SEND in 3 s",
        )
        self.assertLess(time.monotonic() - began, 30)

    def liar(self, way, claim):
        """A server that is told one way and a client that goes another: in between a proxy."""
        port = next(ports)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = start(NAME, "-p", str(port), "--timeout", "5")
            wait_for_listener(port, server)
            client = start(
                NAME,
                "-p",
                str(listener.getsockname()[1]),
                "--timeout",
                "5",
                "-n",
                "1",
                "-w",
                claim,
                "127.0.0.1",
            )
            ours, theirs = listener.accept()[0], socket.create_connection(("127.0.0.1", port))
            old, new = b"withdraw=" + claim.encode(), b"withdraw=" + way.encode()
            theirs.sendall(line_from(ours).replace(old, new))
            ours.sendall(line_from(theirs).replace(new, old))
            theirs.sendall(line_from(ours))
            ours.sendall(line_from(theirs))
            ended = end(server)
            ours.close()
            theirs.close()
            end(client)
            return ended

    def test_client_that_says_it_has_given_back_and_has_not(self):
        self.check_failed(
            self.liar("3", "2"), NAME, "server", "the peer has not invalidated rkey 0x[0-9a-f]+"
        )
