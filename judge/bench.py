# SPDX-License-Identifier: BSD-2-Clause
"""How long a program takes, by this clock and not by its own: between the barriers that it keeps while it
measures (blocks/measure.h), and with the NIC's count of packets, whatever it prints."""
import os
import time

from memory import Layout, Memory, Wrong, poke, span
from pair import OTHER
from trace import NONE, counter

# Eight messages, 32 with more under way.
MEASURING = "--bench --iters=1 --sizes=64K --block-num=1 --seed=7".split()
METHODS = ("sgl", "copy", "each", "auto", "contig")
VERIFY, MOVE = ["go", "verify"] * len(METHODS), ["go"] * (2 * len(METHODS))
# Round 0 and 1; behind it the next one's, or once more VERIFY.
POINT = [*VERIFY, *MOVE, *MOVE, "measured"]
MTU = 1024  # of rxe0
# Of one round: by all methods a message is moved and verified; by two then eight, one at a time, and 32 with more under way.
MOVES = [(m, 1) for m in METHODS] + [(m, count) for m in METHODS[:2] for count in (8, 32)]
IN_PLACE = ("sgl", "contig")  # of which one sees how the NIC used the blocks
# Seconds that a barrier takes, with what the client does there: before a message at a time is measured, and
# before many at a time. And what else is not measured, as a factor. Found with the reference.
BARRIER, BESIDE = (1.3e-3, 2.3e-3), 1.01


class Stopwatch:
    """For Pair: its step method is called at each barrier."""

    def __init__(self, points):
        """points: block size and bytes of each, as they will be measured; then it ends the pair."""
        self.points, self.marks, self.figures = list(points), [], {}
        # Bytes; does the program print while it moves messages?
        self.printed, self.prints = 0, False

    def step(self, step, pair):
        if step not in POINT:
            return None
        printed = sum(map(os.path.getsize, pair.sides["client"].output))
        self.prints |= printed > self.printed and [
            step,
            *(mark[0] for mark in self.marks[-1:]),
        ] == ["go", "go"]
        self.printed = printed
        self.marks.append((step, time.monotonic(), counter("sent_pkts")))
        if step == "measured":
            block_size, length = self.points.pop(0)
            if [mark[0] for mark in self.marks[-len(POINT) :]] == POINT:
                self.evaluate(self.marks[-1 - 2 * len(MOVE) :], block_size, length)
        return None if self.points else "cut"

    def evaluate(self, marks, block_size, length):
        """Of a point, both rounds: microseconds a message, one at a time, and MB/s with more in flight."""
        count = min(max((2 << 20) // length, 2), 512)  # as measure.c
        each = count if count == 512 else max(count // 4, 2)
        for at in range(0, 2 * len(MOVE), 2):
            (_, start, sent), (_, middle, _), (_, end, now) = marks[at : at + 3]
            method = METHODS[(at // len(MOVE) + at // 2) % len(METHODS)]
            least = min(MTU, block_size) if method == "each" else MTU  # bytes in a packet
            alone, many = (
                (seconds - barrier) / BESIDE
                for seconds, barrier in zip((middle - start, end - middle), BARRIER)
            )
            # Or else it has not moved them.
            if now - sent >= (count + each) * length // least and min(alone, many) > 0:
                self.figures.setdefault(f"{method} {block_size} {length}", []).append(
                    [alone * 1e6 / each, length * count / many * 1e-6]
                )
        # Behind it, in the other round, copies are timed.
        for method, good in ("sgl", 0), ("contig", 1):
            if len(both := self.figures.get(f"{method} {block_size} {length}", [])) == 2:
                both[1 - good][1] = both[good][1]


class Midway:
    """For Run: looks at each of MOVES, and then ends the pair. At the end of a move the message must be there, after so many
    packets. A bit of it changes in the source meanwhile, which has to arrive with the next messages.
    """

    def __init__(self, source, layout, contiguous, message, random):
        """source: the side that the message comes from; contiguous: those that have it in one piece."""
        self.source, self.receiver, self.contiguous = source, OTHER[source], contiguous
        self.layout, self.message, self.random = layout, bytearray(message), random
        self.moves, self.move, self.changed = list(MOVES), None, False
        self.sent, self.first = 0, 0  # packets, and events, when the move began
        self.single, self.blocks, self.traced = {}, {}, []

    def on(self, step, run):
        if step == "meanwhile" and self.move and not self.changed:
            self.change(run.pair)
        if step in ("go", "verify") and self.move:
            self.moved(run)
            self.move = None
        return self.begin(run) if step == "go" else None

    def begin(self, run):
        if not self.moves:
            return "cut"
        self.move = method, count = self.moves.pop(0)
        self.changed = count == 1
        run.pair.nap = 0.5 if self.changed else 0.0003
        run.nic.only("copy", "0" if method in IN_PLACE else NONE)
        self.sent, self.first = counter("sent_pkts"), len(run.nic.events())
        return None

    def holds(self, pair, role, method="sgl"):
        """Where a side has the message."""
        whole = role in self.contiguous or method == "contig"
        shape = Layout(len(self.message), 1, len(self.message)) if whole else self.layout
        return list(Memory(pair.sides[role].members()).find(shape, self.message))

    def change(self, pair):
        """A bit, when some messages have gone. With seven under way, a buffer that was packed before is packed again later.
        What is READ changes late: the last ones must be unpacked."""
        gone = (counter("sent_pkts") - self.sent) * MTU // len(self.message)
        many = range(30, 31) if self.source in self.contiguous else range(5, 24)
        if gone in (range(3, 6) if self.move[1] == 8 else many):
            places, at = self.holds(pair, self.source), self.random.randrange(len(self.message))
            self.message[at] ^= 1
            if self.source not in self.contiguous:
                block, byte = divmod(at, self.layout.block_size)
                at = block * self.layout.stride + byte
            poke([(pid, base + at) for pid, base in places], 1)
            self.changed = True

    def moved(self, run):
        (method, count), took = self.move, counter("sent_pkts") - self.sent
        if not self.holds(run.pair, self.receiver, method):
            what = (
                "the message is not there where it is verified"
                if count == 1
                else "what changes in the memory while messages are measured does not arrive"
            )
            raise Wrong(f"{method}: {what}")
        self.packets(method, count, took)
        if not self.blocks:
            self.blocks = {r: self.holds(run.pair, r) for r in OTHER if r not in self.contiguous}
        self.traced.append((method, count, self.first, len(run.nic.events())))

    def packets(self, method, count, took):
        """As many for each message as when it was alone (of 07, answers may be put together)."""
        whole = least = -(-len(self.message) // MTU)
        if method == "each":  # three quarters of the packets of blocks and answers
            least = 0.75 * self.layout.block_num * (-(-self.layout.block_size // MTU) + 1)
        least = int(count * max(least, 0.92 * self.single.setdefault(method, took)))
        messages = f"{count} message{'s' if count > 1 else ''} of 64 KiB"
        if took < least:
            raise Wrong(f"{method}: {took} packets were sent for {messages}; they take {least}")
        if method in ("copy", "contig") and took > count * 1.25 * whole + 8:
            raise Wrong(
                f"{method}: {took} packets for {messages} in one piece; {count * whole} are enough"
            )

    def in_place(self, run):
        """By sgl the NIC takes each message from the blocks themselves, and puts it there; by contig none."""
        for method, count, first, last in self.traced:
            copies = [c for c in run.seen.copies if first <= c.event < last]
            for role, held in self.blocks.items() if method in IN_PLACE else ():
                spans = [range(base, base + span(self.layout)) for _, base in held]
                there = sum(
                    c.length
                    for c in copies
                    if c.writes == (role != self.source) and any(c.addr in each for each in spans)
                )
                if method == "sgl" and held and there < 0.9 * count * len(self.message):
                    raise Wrong(
                        f"sgl: while messages are measured, the NIC does not use the {role}'s blocks themselves"
                    )
                if method == "contig" and there:
                    raise Wrong(f"contig: the NIC uses the {role}'s blocks")
