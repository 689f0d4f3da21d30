# SPDX-License-Identifier: BSD-2-Clause
"""How long a program takes, by this clock and not by its own: between the barriers that it keeps while it
measures (blocks/measure.h), and with the NIC's count of packets, whatever it prints."""
import os
import re
import time

from memory import Layout, Memory, Wrong, poke, span
from pair import OTHER
from trace import NONE, counter

MEASURING = [
    "--bench",
    "--iters=1",
    "--sizes=64K",
    "--block-num=1",
    "--seed=7",
]  # eight messages, 32 with more under way
METHODS = ("sgl", "copy", "each", "auto", "contig")
VERIFY, MOVE = ["go", "verify"] * len(METHODS), ["go"] * (2 * len(METHODS))
POINT = [
    *VERIFY,
    *MOVE,
    *MOVE,
    "measured",
]  # round 0 and 1; behind it the next one's, or once more VERIFY
MTU = 1024  # of rxe0
# Seconds that a barrier takes, with what the client does there: before a message at a time is measured, and
# before many at a time. And what else is not measured, as a factor. Found with the reference.
BARRIER, BESIDE = (1.3e-3, 2.3e-3), 1.01


class Stopwatch:
    """For Pair: its step method is called at each barrier."""

    def __init__(self, points):
        """points: block size and bytes of each, as they will be measured; then it ends the pair."""
        self.points, self.marks, self.figures = list(points), [], {}
        self.printed, self.prints = (
            0,
            False,
        )  # bytes; does the program print while it moves messages?

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
            if (
                now - sent >= (count + each) * length // least and min(alone, many) > 0
            ):  # or else it has not moved them
                self.figures.setdefault(f"{method} {block_size} {length}", []).append(
                    [alone * 1e6 / each, length * count / many * 1e-6]
                )
        for method, good in (
            ("sgl", 0),
            ("contig", 1),
        ):  # behind it, in the other round, copies are timed
            if len(both := self.figures.get(f"{method} {block_size} {length}", [])) == 2:
                both[1 - good][1] = both[good][1]


class Midway:
    """For Run: by all methods a message is moved and verified; then the first ones are measured, one message at a time and
    many. Meanwhile a bit of the source changes, which has to arrive with the next messages; the packets are counted.
    Then it ends the pair."""

    def __init__(self, methods, source, layout, contiguous, message, random):
        """methods: so many are measured; source: the side that the message comes from; contiguous: those that have it in
        one piece."""
        self.methods, self.source, self.receiver = methods, source, OTHER[source]
        self.layout, self.contiguous = layout, contiguous
        self.message, self.random = bytearray(message), random
        self.sent, self.marks = [], []  # packets, and events, when each move begins
        self.single, self.early, self.blocks = [], set(), {}
        self.flipped, self.ended, self.spoilt = False, False, []

    def shape(self, role, method="sgl"):
        if role in self.contiguous or method == "contig":
            return Layout(len(self.message), 1, len(self.message))
        return self.layout

    def holds(self, pair, role, method="sgl"):
        """Where a side has the message."""
        return list(Memory(pair.sides[role].members()).find(self.shape(role, method), self.message))

    def move(self):
        """The number of the one that is measured: by each method one at a time, and many."""
        return len(self.sent) - 1 - len(METHODS)

    def on(self, step, run):
        if step == "meanwhile" and not self.flipped and run.pair.nap < 0.5:
            gone = (counter("sent_pkts") - self.sent[-1]) * MTU // len(self.message)
            # With seven under way, a buffer that was packed before is packed again later. What is READ changes late: the
            # last ones must be unpacked.
            many = range(30, 31) if self.source in self.contiguous else range(5, 24)
            if gone in (range(3, 6), many)[self.move() % 2]:
                self.flipped = self.flip(run.pair)
        if step == "verify":
            self.verified(run.pair)
        return self.go(run) if step == "go" else None

    def flip(self, pair):
        """A bit of the message, where its source is."""
        places, shape = self.holds(pair, self.source), self.shape(self.source)
        at = self.random.randrange(len(self.message))
        self.message[at] ^= 1
        offset = at // shape.block_size * shape.stride + at % shape.block_size
        poke([(pid, base + offset) for pid, base in places], 1)
        return bool(places)

    def spoil_blocks(self, pair):
        """A wrong bit in the blocks, or right again: contig takes nothing from them."""
        self.spoilt = self.spoilt or self.holds(pair, self.source)
        poke(self.spoilt, 1)

    def verified(self, pair):
        method, took = METHODS[len(self.sent) - 1], counter("sent_pkts") - self.sent[-1]
        packets, held = -(-len(self.message) // MTU), self.holds(pair, self.receiver, method)
        self.single.append(took)
        if took < packets or not held:
            raise Wrong(f"{method}: the message is not there where it is verified")
        if method in ("copy", "contig") and took > 1.25 * packets + 8:
            raise Wrong(
                f"{method}: {took} packets for a message of 64 KiB in one piece; {packets} are enough"
            )
        if self.spoilt:
            self.spoil_blocks(pair)
        if method == "sgl":
            if set(held) & self.early:
                raise Wrong(
                    f"{method}: the message is where it is verified before it comes: one that never comes looks right"
                )
            self.blocks = {
                role: self.holds(pair, role) for role in OTHER if role not in self.contiguous
            }

    def go(self, run):
        self.sent.append(counter("sent_pkts"))
        self.marks.append(len(run.nic.events()))
        move, pair = self.move(), run.pair
        if len(self.sent) == 1:
            self.early = set(self.holds(pair, self.receiver))
            for role in self.contiguous:
                if (told := int(re.search(rb" len=(\d+)", pair.first[role])[1])) < len(
                    self.message
                ):
                    raise Wrong(
                        f"the {role}'s line has len={told}; a message has {len(self.message)} bytes"
                    )
        if len(self.sent) == len(METHODS) and self.source not in self.contiguous:
            self.spoil_blocks(pair)
        if self.flipped and not self.holds(pair, self.receiver):
            raise Wrong(
                f"{METHODS[(move - 1) // 2]}: what changes in the memory while messages are measured does not arrive"
            )
        if move in (2, 4, 6):
            self.all_sent(METHODS[move // 2 - 1])
        if move in (0, 2):  # zero_copy() looks at what happens between
            run.nic.only("copy", *([NONE] if move else []))
        self.flipped, pair.nap = False, 0.5
        self.ended = move == 2 * self.methods
        if 0 <= move < 4:  # by each, too many packets are on their way
            pair.nap = 0.0003
        return "cut" if self.ended else None

    def all_sent(self, method):
        """8 messages, one at a time, and 32: each takes as many packets as when it was alone (of 07, answers may be put
        together)."""
        packets = -(-len(self.message) // MTU)
        if method == "each":  # three quarters of the packets of blocks and answers
            packets = 0.75 * self.layout.block_num * (-(-self.layout.block_size // MTU) + 1)
        alone = min(self.single[METHODS.index(method)], (self.sent[-2] - self.sent[-3]) / 8)
        packets = max(packets, alone * (0.99 if self.contiguous else 0.95))
        if (sent := self.sent[-1] - self.sent[-3]) < 40 * packets:
            raise Wrong(
                f"{method}: {sent} packets were sent for 40 messages of 64 KiB; they take {int(40 * packets)}"
            )

    def zero_copy(self, run):
        """By sgl the NIC took each message from the blocks themselves, and put it there."""
        first = len(METHODS)
        before, after = (run.nic.seen(run.events[: self.marks[first + n]]).copies for n in (0, 2))
        for role, held in self.blocks.items():
            spans = [range(base, base + span(self.layout)) for _, base in held]
            bytes_there = sum(
                c.length
                for c in after[len(before) :]
                if c.writes == (role != self.source) and any(c.addr in there for there in spans)
            )
            if held and bytes_there < 36 * len(self.message):
                raise Wrong(
                    f"sgl: while messages are measured, the NIC does not use the {role}'s blocks themselves"
                )
