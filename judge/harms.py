# SPDX-License-Identifier: BSD-2-Clause
"""Labs 05 to 07: transfers that cannot be right. What a program must notice, and how it must end then. Only in the VM."""
import os
import re
import signal
from contextlib import suppress

from memory import Memory, Wrong, poke
from pair import OTHER
import transfer
from transfer import Transfer, place_of

# Words, where the harm is done, what it is; messages, and which of them (0: the last), method.
EVERYWHERE = (
    ("a wrong bit", "source", "a bit"),
    ("a wrong bit in the last byte, by copy", "source", "the last", 1, 0, "copy"),
    ("a wrong bit in the first byte, in the second of five messages", "source", "the first", 5, 2),
)
CONTIGUOUS = (  # what arrives in one piece: of 05
    ("a bit that changes late", "late", "a bit"),
    ("a second message that never came", "late", "stale", 2),
)
APART = (("a wrong bit in a gap", "gap", "a bit"),)


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
        if where == "gap":  # much wider than a block
            size, wide = self.random.randint(1, 60), self.random.randint(1000, 3000)
            self.layout = self.layout._replace(block_size=size, stride=size + wide)

    def run(self):
        examiner, role = self.examiner, self.role
        if self.where == "gap":  # tells where the blocks will lie again
            Transfer(examiner, [role], self.method, self.layout).run()
        try:
            run = examiner.pair([role], self.method, self.layout, self.on, self.messages)
            result = transfer.fails(run, role)
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

    def spoil(self, run):
        """A bit changes."""
        layout, role = self.layout, OTHER[self.role] if self.where == "source" else self.role
        members, length = run.sides[role].members(), len(self.examiner.message)
        at = {"the first": 0, "the last": length - 1}.get(self.kind, self.random.randrange(length))
        if self.where == "gap":
            base, block = self.examiner.base, self.random.randrange(layout.block_num - 1)
            at = block * layout.stride + self.random.randrange(layout.block_size, layout.stride)
        elif self.where == "late" or self.examiner.lab == "06":
            thread, base = place_of(run, role)
            members = [thread]
        else:
            pid, base = next(Memory(members).find(layout, self.examiner.message))
            members, (block, byte) = [pid], divmod(at, layout.block_size)
            at = block * layout.stride + byte
        poke([(pid, base + at) for pid in members], 1 << self.random.randrange(8))

    def put_back(self, run, step):
        """What was in its memory before a message, as if that had never come."""
        thread, addr = place_of(run, self.role)
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
            for r in run.regions("client"):
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
