# SPDX-License-Identifier: BSD-2-Clause
"""12_ordering: its options. (Its order on the wire: test_labs.Wires.)"""
from pairs import MASK, PairTest, pattern

SAMPLE = "12_ordering"


class Options(PairTest):
    def test_sizes_rounds_and_seeds(self):
        for size, note, rounds, seed in ((1, 1, 1, 0), (1025, 256, 3, 12345), (9999, 512, 2, MASK)):
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
