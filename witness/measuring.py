# SPDX-License-Identifier: BSD-2-Clause
"""How long a program takes, by this clock and not by its own: between the barriers that it keeps while it
measures (blocks/measure.h), and with the NIC's count of packets, whatever it prints."""
import time

from witness import read

METHODS = ("sgl", "copy", "each", "auto", "contig")
VERIFY, MOVE = ["go", "verify"] * len(METHODS), ["go"] * (2 * len(METHODS))
POINT = [*VERIFY, *MOVE, *MOVE, "measured"]  # round 0 and 1; behind it the next one's, or once more VERIFY
MTU = 1024  # of rxe0
# Seconds that a barrier takes, with what the client does there: before a message at a time is measured, and
# before many at a time. And what else is not measured, as a factor. Found with the reference.
BARRIER, BESIDE = (1.3e-3, 2.3e-3), 1.01


class Stopwatch:
    """For Pair: its step method is called at each barrier."""
    def __init__(self, points):
        """points: block size and bytes of each, as they will be measured; then it ends the pair."""
        self.points, self.marks, self.figures = list(points), [], {}

    def step(self, step, _):
        if step not in POINT:
            return None
        self.marks.append((step, time.monotonic(), int(read("/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"))))
        if step == "measured":
            block_size, length = self.points.pop(0)
            if [mark[0] for mark in self.marks[-len(POINT):]] == POINT:
                self.evaluate(self.marks[-1 - 2 * len(MOVE):], block_size, length)
        return None if self.points else "cut"

    def evaluate(self, marks, block_size, length):
        """Of a point: microseconds a message, one at a time, and MB/s with more in flight. The better of
        both rounds: something else can only make it slower."""
        count = min(max((2 << 20) // length, 2), 512)  # as measure.c
        each = count if count == 512 else max(count // 4, 2)
        for at in range(0, 2 * len(MOVE), 2):
            (_, start, sent), (_, middle, _), (_, end, now) = marks[at:at + 3]
            if now - sent >= (count + each) * length // MTU:  # or else it has not moved them
                alone, many = ((seconds - barrier) / BESIDE for seconds, barrier in zip(
                    (middle - start, end - middle), BARRIER))
                name = f"{METHODS[(at // len(MOVE) + at // 2) % len(METHODS)]} {block_size} {length}"
                old = self.figures.get(name, [1e9, 0])
                self.figures[name] = [min(old[0], alone * 1e6 / each), max(old[1], length * count / many * 1e-6)]
