# SPDX-License-Identifier: BSD-2-Clause
"""How long a program takes, by this clock and not by its own: between the barriers that it keeps while it
measures (blocks/measure.h), and with the NIC's count of packets, whatever it prints."""
import os
import re
import time

from lent import ALL, BUFFERS, STORES, Idle, Lent
from pairing import OTHER
from witness import Memory, Wrong, counter, poke

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
    """For Pair: by all methods a message is moved and verified. By sgl and copy, while messages are measured, one at a
    time and many, a bit of the source changes. That has to arrive with the next ones. By each they are counted. By sgl and
    each no processor may touch the blocks. Then it ends the pair."""

    def __init__(self, methods, lab, source, layout, contiguous, message, random):
        """methods: so many are measured; lab: whose buffers are watched; source: the side that the message comes from;
        contiguous: those that have it in one piece."""
        self.lends, self.lent = {role: lab + role for role in OTHER if lab + role in BUFFERS}, []
        self.source, self.layout, self.contiguous, self.message, self.random = (
            source,
            layout,
            contiguous,
            bytearray(message),
            random,
        )
        self.methods, self.ended, self.sent, self.places = (
            methods,
            False,
            [],
            [],
        )  # sent: packets, when each move begins
        self.single, self.at = [], 0  # packets that a message takes; a byte that is changed
        self.threads, self.blocks = {
            role: [] for role in OTHER
        }, []  # of each role; where the source has its blocks
        self.arrived, self.when = None, range(
            6, 99
        )  # what was found at the receiver, after so many messages
        self.bases, self.idle = {}, []  # by role: process and address of its blocks
        self.last, self.early = (
            False,
            set(),
        )  # does a bit change before the last message? what the receiver has before all

    def shape(self, role, method="sgl"):
        if role in self.contiguous or method == "contig":
            return self.layout._replace(
                block_size=len(self.message), block_num=1, stride=len(self.message)
            )
        return self.layout

    def holds(self, pair, role, method="sgl"):
        """Where a side has the message."""
        return list(Memory(pair.sides[role].members()).find(self.shape(role, method), self.message))

    def flip(self, at, role=None, places=None):
        """A bit of the message, where its source is, or another side has it."""
        shape = self.shape(role or self.source)
        poke(
            [
                (pid, base + at // shape.block_size * shape.stride + at % shape.block_size)
                for pid, base in places or self.places
            ],
            1,
        )

    def change(self):
        """What the source has."""
        at = self.random.randrange(len(self.message))
        self.message[at] ^= 1
        self.flip(at)

    def gone(self, pair):
        """So many messages have gone since the last barrier, or more."""
        return (
            (counter("sent_pkts") - self.sent[-1]) * MTU // len(self.message)
            if pair.nap < 0.5
            else 0
        )

    def moving(self, pair, most):
        """By which method, if two messages have gone, and fewer than most (of many: than 24 more)."""
        move = len(self.sent) - 1 - len(METHODS)
        return METHODS[move // 2] if 2 <= self.gone(pair) < most + move % 2 * 24 else ""

    def on(self, step, pair):
        packets = -(-len(self.message) // MTU)
        gone = self.gone(pair) if step == "meanwhile" else 0
        for idle in self.idle if step == "meanwhile" else ():
            idle.switch(bool(method := self.moving(pair, 6)))
            if method:
                idle.look(method)
        if gone >= 3 and self.arrived is None:
            self.arrived = []
            self.change()
            if gone >= (7, 31)[len(self.sent) % 2]:  # none may begin after it
                self.places = []
        elif (
            self.last and gone in (29, 30) and any(self.arrived) and self.places
        ):  # the last message counts, too
            self.last = False
            self.change()
        elif gone in self.when and not any(self.arrived):
            self.arrived.append(self.holds(pair, OTHER[self.source]))
        for role, side in (
            self.lends.items()
            if step == "meanwhile" and len(self.sent) - len(METHODS) in (3, 4)
            else ()
        ):  # copy
            mine = [lent for lent in self.lent if lent.role == role]
            for lent in mine:
                lent.switch(True)  # again
            for _ in () if mine else (1, 2):  # of two that follow each other, if there are two
                lent = Lent(
                    pair, side, role, self.message, self.random, [other.buffer for other in mine]
                )
                mine += [lent] if lent.events else []
            self.lent = mine + [lent for lent in self.lent if lent.role != role]
        if step == "verify":
            method, took = METHODS[len(self.sent) - 1], counter("sent_pkts") - self.sent[-1]
            self.single.append(took)
            held = self.holds(pair, OTHER[self.source], method)
            if took < packets or not held:
                raise Wrong(f"{method}: the message is not there where it is verified")
            if method in ("copy", "contig") and took > 1.25 * packets + 8:
                raise Wrong(
                    f"{method}: {took} packets for a message of 64 KiB in one piece; {packets} are enough"
                )
            if method == "sgl":
                self.bases = {
                    role: self.holds(pair, role) for role in OTHER if role not in self.contiguous
                }
            self.flip(self.at)  # back
            if self.places and len(self.sent) == 1:  # it must look right to the program
                if set(held) & self.early:
                    raise Wrong(
                        f"{method}: the message is where it is verified before it comes: one that never comes looks right"
                    )
                self.message[self.at] ^= 1
                self.flip(self.at, OTHER[self.source], held)
                if not self.holds(pair, OTHER[self.source]):  # two processes share it
                    self.flip(self.at, OTHER[self.source], held[:1])
            self.places = []
        if step != "go":
            return None
        for watched in self.lent + self.idle:
            watched.end()
        self.lent, self.idle = [], []
        for role in self.contiguous if not self.sent else ():
            if int(told := re.search(rb" len=(\d+)", pair.first[role])[1]) < len(self.message):
                raise Wrong(
                    f"the {role}'s line has len={int(told)}; a message has {len(self.message)} bytes"
                )
        for role, side in pair.sides.items() if len(self.sent) in (0, len(METHODS)) else ():
            self.threads[role] += side.members("threads")
        self.sent.append(counter("sent_pkts"))
        if len(self.sent) == 1:  # what arrives is what was sent
            self.places, self.at = self.holds(pair, self.source), self.random.randrange(
                len(self.message)
            )
            self.early = set(self.holds(pair, OTHER[self.source]))
            self.flip(self.at)
            self.message[self.at] ^= 1
            if not self.holds(pair, self.source):
                self.message[self.at] ^= 1
                self.places = []
        if (
            len(self.sent) == len(METHODS) and self.source not in self.contiguous
        ):  # contig takes nothing from the blocks
            self.places = self.holds(pair, self.source)
            self.blocks += [base for _, base in self.places]
            self.flip(self.at)
        move = (
            len(self.sent) - 1 - len(METHODS)
        )  # one at a time and many, by sgl; the same by copy, and by each
        if (
            move in (1, 2, 3, 4)
            and (
                not self.holds(pair, OTHER[self.source])
                or len(self.arrived or []) > 2
                and not any(self.arrived)
            )
            and self.places
            and self.holds(pair, self.source)
        ):
            raise Wrong(
                f"{METHODS[(move - 1) // 2]}: what changes in the memory while messages are measured does not arrive"
            )
        if move == 6:  # by each: three quarters of the packets of blocks and answers
            packets = 0.75 * self.layout.block_num * (-(-self.layout.block_size // MTU) + 1)
        if move in (
            2,
            4,
            6,
        ):  # as many for each as for one alone; of 07, answers may be put together
            packets = max(
                packets,
                min(self.single[move // 2 - 1], (self.sent[-2] - self.sent[-3]) / 8)
                * (0.99 if self.contiguous else 0.95),
            )
        if move in (2, 4, 6) and (sent := self.sent[-1] - self.sent[-3]) < 40 * packets:
            raise Wrong(
                f"{METHODS[move // 2 - 1]}: {sent} packets were sent for 40 messages of 64 KiB; they take {int(40 * packets)}"
            )
        pair.nap = 0.5
        if 0 <= move < 6:
            self.places, self.arrived, pair.nap = (
                self.holds(pair, self.source),
                None if move < 4 else [True],
                0.0003,
            )
            self.last = (
                move in (1, 3) and self.source in self.contiguous
            )  # of 06: what is READ was not packed before
            # 19 may be under way with what was there before; of 07, as many more may wait to be unpacked.
            self.when = range(24, 31 if self.contiguous else 99) if move % 2 else range(6, 99)
            self.idle = [
                Idle(
                    pair,
                    role,
                    held,
                    self.layout,
                    ALL if role == self.source else STORES,
                    self.random,
                    lambda: self.moving(pair, 7),
                )
                for role, held in self.bases.items()
                if held and move not in (2, 3)
            ]
        self.ended = move == 2 * self.methods
        return "cut" if self.ended else None
