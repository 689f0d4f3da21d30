# SPDX-License-Identifier: BSD-2-Clause
"""12_ordering: its options, and peers that lie in its own steps. (Its order on the wire: test_labs.Wires.)"""
from pairs import MASK, PairTest, pattern, preloaded
from protocol import hello
from samples import end, run

SAMPLE = "12_ordering"


class Options(PairTest):
    def test_sizes_rounds_and_seeds(self):
        for size, note, rounds, seed in ((1, 1, 1, 0), (1025, 256, 3, 12345), (9999, 512, 2, MASK)):
            with self.subTest(size=size):
                data = b"".join(
                    pattern(size, seed + i) + pattern(note, ~(seed + i)) for i in range(rounds)
                )
                args = ["-s", size, "--inline", note, "-n", rounds, "-S", seed]
                _, client = self.passes(SAMPLE, *args, data=data)
                said = rf"inline data: asked for {note} bytes, may send \d+\n"
                self.assertRegex(client.out, said)
                self.assertIn(f"\n{3 * rounds} work requests, {rounds} completion", client.out)

    def test_every_request_signalled(self):
        _, client = self.passes(SAMPLE, "--sig-all", "-n", 50, "-s", 100)
        self.assertIn("\n150 work requests, 150 completions\n", client.out)

    def test_inline_data_that_cannot_be(self):
        side = run(SAMPLE, "--inline", "4097", "h")
        self.check_failed(side, SAMPLE, "client", "not a number from 1 to 4096", status=2)
        works = ("", ",inline=0", ",inline=4097", ",inline=1K", ",inline=64,more=1")
        reason = b"inline is malformed, or above 4096"
        self.refuses(SAMPLE, [(hello(SAMPLE, more), reason) for more in works])


class Liars(PairTest):
    def test_requests_that_are_others(self):
        for how, reason in (
            ("1:l:4095", "message 0 has 4095 bytes"),
            # A SEND for the READ: it takes the first receive, and the second is too small for data.
            ("1:o:2", r"message 1 has 4096 bytes|completion of the receive: .*\(status \d+\)"),
        ):
            with self.subTest(how=how):
                env = preloaded(HV_SEND=how)
                server, client = self.start_pair(SAMPLE, "--timeout", 4, env=env)
                client, server = end(client), end(server)
                self.assertEqual((client.status, server.status), (1, 1), f"{client}{server}")
                self.assertRegex(server.err, reason)
