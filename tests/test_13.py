# SPDX-License-Identifier: BSD-2-Clause
"""13_memory_window: every way to end a loan, on good peers and on ones that lie. (What it shares with
the other samples is in test_pairs.py and the like.)"""
import itertools
import re

from pairs import PairTest, Relay, messages
from protocol import hello
from samples import end, line_from

NAME = "13_memory_window"


class Loans(PairTest):
    def test_every_way_by_size_and_number(self):
        for way, size, iters in itertools.product("123", (1, 9999), (1, 5)):
            args = ["--withdraw", way, "-s", size, "-n", iters, "--seed", 7]
            sides = self.passes(NAME, *args, data=messages(iters, size, 7))
            refused = "one more WRITE with the last rkey: remote access error\n"
            self.assertIn(refused, sides[1].out)
            for side in sides:
                self.assertIn(f"moved {iters} x {size} bytes, each in a loan", side.out)

    def test_more_loans_than_an_rkey_has_tags(self):
        """Only 8 bits of the rkey change; type 1 changes them at the end of a loan, too."""
        for way, again in (("1", 129), ("2", 257), ("3", 257)):
            for loans, told in ((600, [str(again)]), (again - 1, [])):
                server, _ = self.passes(NAME, "-w", way, "-n", loans, "-s", 8)
                found = re.findall(r"(?m)^loan (\d+) has the first one's rkey", server.out)
                self.assertEqual(found, told)


class BadPeers(PairTest):
    def test_client_that_never_takes_its_loan(self):
        server, port = self.serve(NAME, "--timeout", 3)
        with self.meet(port) as client:
            client.sendall(hello(NAME, ",withdraw=3", size=64, qpn=0x7FFFFF))
            line_from(client)
            client.sendall(b"sync ready\n")
            reason = "transport retry counter exceeded|no completion of the SEND in 3 s"
            self.check_failed(end(server), NAME, "server", reason)

    def test_client_that_says_it_has_given_back_and_has_not(self):
        """The server is told way 3, the client goes way 2."""
        ways = {"client": (b"withdraw=2", b"withdraw=3"), "server": (b"withdraw=3", b"withdraw=2")}
        server, port = self.serve(NAME, "--timeout", 5)
        args = ["--timeout", 5, "-n", 1, "-w", 2]
        with Relay(NAME, port, lambda role, line: line.replace(*ways[role]), *args) as relay:
            reason = "the peer has not invalidated rkey 0x[0-9a-f]+"
            self.check_failed(end(server), NAME, "server", reason)
        end(relay.client)
