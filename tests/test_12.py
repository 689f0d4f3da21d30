# SPDX-License-Identifier: BSD-2-Clause
"""12_ordering: its options. (Its order on the wire: test_labs.Wires.)"""
from pairs import MASK, PairTest, pattern
from protocol import hello
from samples import run

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
