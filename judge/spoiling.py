# SPDX-License-Identifier: BSD-2-Clause
"""Transfers that cannot be right: what a program must notice. A part of examine.py's Examiner."""
import os
from contextlib import suppress

import witness
from pairing import OTHER
from witness import Layout, Memory, Wrong


class Spoiler:
    def refuses(self, role, on, layout=None, messages=1, method="sgl"):
        """The side must not pass."""
        pair = self.pair([role], method, layout or self.draw(), on, messages)
        return pair, self.outcome(pair.sides[role], right=False)

    def spoilt(self, where, kind, messages=1, which=0, method="sgl"):
        """The last message, or which one, has wrong bits, which only its receiver can find: the peer's verdict is made to
        be PASS. where: at its source, before it is moved; late, where the peer may write; in a gap of the receiver's.
        """
        role, layout, steps, verdict, bases, at = (
            self.receiver,
            self.draw(400 // messages, 40),
            [],
            [],
            set(),
            which or messages,
        )
        if (where, kind, messages) == (
            "source",
            "a bit",
            1,
        ):  # in a message that one might look at the ends of
            layout = layout._replace(block_size=30000, block_num=60, stride=30000 + layout.stride)
        if kind == "two blocks":
            layout = layout._replace(block_size=self.random.randint(20, 60))
        if kind == "the last":  # which no word of 2, 4 or 8 bytes holds
            layout = layout._replace(
                block_size=layout.block_size | 1,
                block_num=layout.block_num | 1,
                stride=layout.stride + 1,
            )
        if where == "gap":
            if kind == "a bit":  # much wider than a block
                wide = self.random.randint(6000, 12000) if self.whole else 200
                layout = layout._replace(
                    block_size=self.random.randint(1, 60), stride=layout.stride + wide
                )
            elif kind == "narrow":
                layout = layout._replace(stride=layout.block_size + self.random.randint(1, 7))
            elif self.whole:  # some MiB with the gaps
                layout = layout._replace(
                    block_num=200, stride=layout.block_size + self.random.randint(6000, 12000)
                )
            self.move([role], method, layout)  # tells where the blocks will lie again

        def on(step, pair):
            steps.append(step)
            if kind == "stale" and steps.count("prepared") == at:
                self.put_back(pair.sides[role], pair.first[role], step)
            elif (
                step == ("done" if where == "late" else "prepared")
                and steps.count("prepared") == at
            ):
                self.spoil(pair.sides, pair.first, layout, where, kind)
            if step == "done" and where == "gap":
                bases.update(
                    base
                    for _, base in Memory(pair.sides[role].members()).find(layout, self.message)
                )
            if step == "verdict":
                verdict.append(pair.said[role])
                pair.said[OTHER[role]] = b"verdict PASS"

        try:
            _, result = self.refuses(role, on, layout, messages, method)
        except Wrong:
            if where == "gap" and bases and self.base not in bases:
                return  # they lay elsewhere: it had nothing to find
            raise
        if verdict != [b"verdict FAIL"] or result.get("status") != "FAIL":
            raise Wrong(f"the {role} does not tell its peer and say RESULT status=FAIL")
        if where != "gap" and at == messages and result.get("digest") == self.digest(self.message):
            raise Wrong(f"the {role}'s digest is not that of the message that it has got")

    def spoil(self, sides, first, layout, where, kind):
        rand, last, block = self.random.randrange, len(self.message) - 1, layout.block_size
        role = OTHER[self.receiver] if where == "source" else self.receiver
        regions = [r for r in self.nic.seen().regions if r.thread in sides[role].members("threads")]
        places = {"a bit": [rand(last)], "the first": [0], "the last": [last]}.get(kind, [])
        changes = [(place, 1 << rand(8)) for place in places]
        while kind.startswith("two") and not any(change for _, change in changes):
            one, other = (block * n for n in self.random.sample(range(layout.block_num), 2))
            if kind == "two bytes":  # sums of a block's bytes and words stay the same
                one += rand(block)
                other = one // block * block + rand(one % block % 16, block, 16)
            changes = [
                (at + i, self.message[one + i] ^ self.message[other + i])
                for i in range(1 if kind == "two bytes" else block)
                for at in (one, other)
            ]
        stride, members = layout.stride, sides[role].members()
        if where == "gap":
            least = {"a bit": min(2 * block, stride - 1), "narrow": block}.get(
                kind, stride - 1
            )  # one may look at as much as a block
            at = rand(least, stride)
            if self.region and self.region[0] < len(
                regions
            ):  # where it registers them now, if not at the same place
                self.base = regions[self.region[0]].addr + self.region[1]
            base, block, changes = (
                self.base,
                stride,
                [(rand(layout.block_num - 1) * stride + at, 1 << rand(8))],
            )
        elif where == "late" or self.lab == "06":
            thread, base = self.place_of(first[role], regions)
            block, members = stride, [thread]
        else:
            pid, base = next(Memory(members).find(layout, self.message))
            members = [pid]
        for place, change in changes:
            at = base + place // block * stride + place % block
            witness.poke([(member, at) for member in members], change)  # one of them has the blocks

    def forgets(self):
        """Against itself, with a wrong bit where the first message is verified: in the end both say so."""
        layout = Layout(size := self.random.randint(150, 400), 3, 2 * size)
        self.tried = [
            "--bench",
            "--iters=1",
            f"--sizes={3 * size},{6 * size}",
            f"--block-size={size}",
            "--seed=7",
        ]
        message, spoilt = self.pattern(3 * size, 7), []

        def on(step, pair):
            if step == "verify" and not spoilt:
                one_piece = Layout(3 * size, 1, 3 * size)
                spoilt.extend(
                    Memory(pair.sides[self.receiver].members()).find(
                        one_piece if self.lab == "05" else layout, message
                    )
                )
                at = self.random.randrange(size)
                witness.poke(
                    [(pid, base + at) for pid, base in spoilt], 1 << self.random.randrange(8)
                )

        pair = self.itself(on, self.tried, self.checked())
        for side in pair.sides.values() if spoilt else ():
            self.outcome(side, right=False)

    def put_back(self, side, line, step):
        """What was in its memory before a message, as if that had never come."""
        regions = [r for r in self.nic.seen().regions if r.thread in side.members("threads")]
        thread, addr = self.place_of(line, regions)
        with suppress(OSError), open(f"/proc/{thread}/mem", "r+b", buffering=0) as memory:
            if step == "prepared":
                self.old = os.pread(memory.fileno(), len(self.message), addr)
            elif step == "done":
                os.pwrite(memory.fileno(), self.old, addr)
