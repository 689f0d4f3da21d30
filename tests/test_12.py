# SPDX-License-Identifier: BSD-2-Clause
"""12_ordering: its options, and peers that lie in its own steps."""
import os
import socket

from pairs import MASK, PairTest, pattern, ports
from samples import end, run, start, wait_for_listener

SAMPLE = "12_ordering"
FAIL_VERBS = os.environ["HV_FAIL_VERBS"]  # tests/fail_verbs.c, built
LINE = (
    b"hello-verbs/2 sample=12_ordering lid=0x0000 qpn=0x000011 psn=0x3a5f10 gid=::ffff:10.0.0.1 "
    b"mtu=1024 addr=0x0 rkey=0x0 len=0 max_sge=1 rd_atomic=0 work=size=4096,iters=1,seed=1,"
    b"timeout=3"
)


class Options(PairTest):
    def test_sizes_rounds_and_seeds(self):
        for size, note, rounds, seed in (
            (1, 1, 1, 0),
            (1024, 64, 2, 1),
            (1025, 256, 3, 12345),
            (9999, 512, 2, MASK),
        ):
            with self.subTest(size=size):
                data = b"".join(
                    pattern(size, seed + i & MASK) + pattern(note, ~(seed + i) & MASK)
                    for i in range(rounds)
                )
                _, client = self.passes(
                    SAMPLE,
                    "-s",
                    str(size),
                    "--inline",
                    str(note),
                    "-n",
                    str(rounds),
                    "-S",
                    str(seed),
                    data=data,
                )
                self.assertRegex(
                    client.out, f"inline data: asked for {note} bytes, may send " r"\d+\n"
                )
                self.assertIn(f"\n{3 * rounds} work requests, {rounds} completion", client.out)

    def test_every_request_signalled(self):
        _, client = self.passes(SAMPLE, "--sig-all", "-n", "50", "-s", "100")
        self.assertIn("\n150 work requests, 150 completions\n", client.out)

    def test_more_inline_data_than_the_device_has(self):
        server, client = self.start_pair(SAMPLE, "--inline", "4096", server_args=["--timeout", "3"])
        self.check_failed(
            end(client),
            SAMPLE,
            "client",
            "ibv_create_qp with 4096 bytes of inline data: Invalid argument",
        )
        end(server)

    def test_wrong_values(self):
        for value in ("0", "4097", "x"):
            self.check_failed(
                run(SAMPLE, "--inline", value, "h"),
                SAMPLE,
                "client",
                "not a number from 1 to 4096",
                status=2,
            )

    def test_server_refuses_what_cannot_be(self):
        port = next(ports)
        server = start(SAMPLE, "-p", str(port), "--timeout", "60")
        wait_for_listener(port, server)
        for more in (
            b"",
            b",inline=",
            b",inline=0",
            b",inline=4097",
            b",inline=1K",
            b",inline=064",
            b",inline=64,more=1",
            b",line=64",
        ):
            with self.subTest(more=more), socket.create_connection(
                ("127.0.0.1", port), timeout=60
            ) as stranger:
                stranger.sendall(LINE + more + b"\n")
                self.assertIn(b"inline is malformed, or above 4096", stranger.makefile("rb").read())
        client = run(SAMPLE, "-p", str(port), "127.0.0.1")
        server = end(server)
        server.err = ""
        self.both_pass(SAMPLE, server, client)


class Liars(PairTest):
    def test_requests_that_are_others(self):
        for how, reason in (
            ("1:l:4095", "message 0 has 4095 bytes"),
            # A SEND for the READ: it takes the first receive, and the second is too small for data.
            ("1:o:2", r"message 1 has 4096 bytes|completion of the receive: .*\(status \d+\)"),
        ):
            with self.subTest(how=how):
                server, client = self.start_pair(
                    SAMPLE,
                    "--timeout",
                    "4",
                    env={**os.environ, "LD_PRELOAD": FAIL_VERBS, "HV_SEND": how},
                )
                client, server = end(client), end(server)
                self.assertEqual(client.status, 1, client)
                self.assertEqual(server.status, 1, server)
                self.assertRegex(server.err, reason)
