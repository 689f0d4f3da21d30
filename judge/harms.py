# SPDX-License-Identifier: BSD-2-Clause
"""Labs 05 to 07: transfers that cannot be right. What a program must notice, and how it must end then. Only in the VM."""
import os
import re
import signal
from contextlib import suppress

from memory import Memory, Wrong, poke
from pair import OTHER
from transfer import Transfer, outcome, place_of

# Words, where the harm is done, what it is; messages, and which of them (0: the last), method.
EVERYWHERE = (
    ("a wrong bit", "source", "a bit"),
    ("a wrong bit in the last byte, by copy", "source", "the last", 1, 0, "copy"),
    ("two blocks that changed places, by each", "source", "two blocks", 1, 0, "each"),
    ("a wrong bit in the first byte, in the second of five messages", "source", "the first", 5, 2),
)
CONTIGUOUS = (  # what arrives in one piece: of 05
    ("a bit that changes late", "late", "a bit"),
    ("a second message that never came", "late", "stale", 2),
)
APART = (
    ("a wrong bit in a gap", "gap", "a bit"),
    ("a wrong bit in a gap's last byte, by copy", "gap", "its last", 1, 1, "copy"),
)


class Harm:
    """The last message, or which one, has wrong bits, which only its receiver can find: the peer's verdict is made to be
    PASS. where: at its source, before it is moved; late, where the peer may write; in a gap of the receiver's.
    """

    def __init__(self, examiner, where, kind, messages=1, which=0, method="sgl"):
        self.examiner, self.where, self.kind, self.method = examiner, where, kind, method
        self.random, self.role = examiner.random, examiner.receiver
        self.messages, self.at = messages, which or messages
        self.prepared, self.verdict, self.bases, self.old = 0, b"", set(), b""
        self.layout = examiner.draw(400 // messages, 40)
        if (where, kind, messages) == ("source", "a bit", 1):  # longer than a MiB
            self.layout = self.layout._replace(
                block_size=30000, block_num=36, stride=30000 + self.layout.stride
            )
        if (where, kind) == ("gap", "a bit"):  # much wider than a block
            size = self.random.randint(1, 60)
            wide = self.random.randint(1000, 3000)
            self.layout = self.layout._replace(block_size=size, stride=size + wide)
        if kind == "two blocks":
            self.layout = self.layout._replace(block_size=self.random.randint(20, 60))
        if kind == "the last":  # which no word of 2, 4 or 8 bytes holds
            size, number, stride = self.layout
            self.layout = self.layout._replace(
                block_size=size | 1, block_num=number | 1, stride=stride + 1
            )

    def run(self):
        examiner, role = self.examiner, self.role
        if self.where == "gap":  # tells where the blocks will lie again
            Transfer(examiner, [role], self.method, self.layout).run()
        try:
            run = examiner.pair([role], self.method, self.layout, self.on, self.messages)
            result = outcome(examiner, run.sides[role], right=False)
        except Wrong:
            if self.where == "gap" and self.bases and examiner.base not in self.bases:
                return  # they lay elsewhere: it had nothing to find
            raise
        if self.verdict != b"verdict FAIL" or result.get("status") != "FAIL":
            raise Wrong(f"the {role} does not tell its peer and say RESULT status=FAIL")
        if self.where != "gap" and self.at == self.messages:
            if result.get("digest") == examiner.digest(examiner.message):
                raise Wrong(f"the {role}'s digest is not that of the message that it has got")

    def on(self, step, run):
        pair, role = run.pair, self.role
        self.prepared += step == "prepared"
        if self.kind == "stale" and self.prepared == self.at:
            self.put_back(run, step)
        elif step == ("done" if self.where == "late" else "prepared") and self.prepared == self.at:
            self.spoil(run)
        if step == "done" and self.where == "gap":
            found = Memory(pair.sides[role].members()).find(self.layout, self.examiner.message)
            self.bases.update(base for _, base in found)
        if step == "verdict":
            self.verdict = pair.said[role]
            pair.said[OTHER[role]] = b"verdict PASS"

    def changes(self):
        """Bytes of the message, and which of their bits change."""
        rand, message, block = self.random.randrange, self.examiner.message, self.layout.block_size
        if self.kind != "two blocks":
            place = {"the first": 0, "the last": len(message) - 1}.get(self.kind)
            return [(rand(len(message) - 1) if place is None else place, 1 << rand(8))]
        one, other = (block * n for n in self.random.sample(range(self.layout.block_num), 2))
        pairs = [(one + i, other + i) for i in range(block)]
        return [(at, message[a] ^ message[b]) for a, b in pairs for at in (a, b)]

    def spoil(self, run):
        layout, role = self.layout, OTHER[self.role] if self.where == "source" else self.role
        members, stride = run.sides[role].members(), layout.stride
        if self.where == "gap":
            size = layout.block_size
            least = min(2 * size, stride - 1) if self.kind == "a bit" else stride - 1
            at = self.random.randrange(least, stride)
            gap = self.random.randrange(layout.block_num - 1) * stride + at
            poke(
                [(pid, self.examiner.base + gap) for pid in members], 1 << self.random.randrange(8)
            )
            return
        if self.where == "late" or self.examiner.lab == "06":
            regions = run.nic.seen().regions
            thread, base = place_of(
                run.pair.first[role], [r for r in regions if r.thread in run.threads[role]]
            )
            members, block = [thread], stride
        else:
            pid, base = next(Memory(members).find(layout, self.examiner.message))
            members, block = [pid], layout.block_size
        for place, change in self.changes():
            poke([(pid, base + place // block * stride + place % block) for pid in members], change)

    def put_back(self, run, step):
        """What was in its memory before a message, as if that had never come."""
        regions = [r for r in run.nic.seen().regions if r.thread in run.threads[self.role]]
        thread, addr = place_of(run.pair.first[self.role], regions)
        with suppress(OSError), open(f"/proc/{thread}/mem", "r+b", buffering=0) as memory:
            if step == "prepared":
                self.old = os.pread(memory.fileno(), len(self.examiner.message), addr)
            elif step == "done":
                os.pwrite(memory.fileno(), self.old, addr)


# ---- a request that fails, a peer that fails; run: see Run's on ----


def moves_on(run):
    if run.pair.said["client"] in (b"sync moved", b"sync done"):
        raise Wrong(f'the client says "{run.pair.said["client"].decode()}"')


def nowhere(name):
    """The server's line names another place."""

    def on(step, run):
        if step == "server's line":
            said = run.pair.said["server"]
            run.pair.said["server"] = re.sub(rb" %s=0x[0-9a-f]+" % name, b" %s=0x1" % name, said)
        if step in ("moved", "done"):
            moves_on(run)

    return on


def scribble(random):
    """Its requests go nowhere, and meanwhile other bytes come into all that it has registered."""

    def on(step, run):
        if step == "server's line":
            said = run.pair.said["server"]
            run.pair.said["server"] = re.sub(rb" qpn=0x[0-9a-f]+", b" qpn=0xfffff0", said)
        if step in ("moved", "done"):
            moves_on(run)
        if step == "meanwhile" and "prepared" in str(run.pair.said["client"]):
            for r in run.nic.seen().regions:
                if r.thread in run.threads["client"]:
                    with open(f"/proc/{r.thread}/mem", "r+b", buffering=0) as memory:
                        os.pwrite(memory.fileno(), random.randbytes(r.length), r.addr)

    return on


def stops(lab):
    """The reference, for ever: the other one must end by itself, in time; of 07, nothing is acknowledged."""

    def on(step, run):
        if step == "client waits" and run.sides["client"].student and lab == "07":
            if (line := run.pair.lines["client"][0]) in (b"sync moved", b"sync done"):
                raise Wrong(f'the client says "{line.decode()}", and nothing was acknowledged')
        for side in run.sides.values() if step == "prepared" else ():
            if not side.student:
                side.stopped = True
                side.process.send_signal(signal.SIGSTOP)

    return on


def dies(step, _):
    return "cut" if step == "prepared" else None


def fails(peer):
    """It says that it has failed."""

    def on(step, run):
        if step == "verdict":
            run.pair.said[peer] = b"verdict FAIL"

    return on
