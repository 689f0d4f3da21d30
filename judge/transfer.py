# SPDX-License-Identifier: BSD-2-Clause
"""Labs 05 to 07: one transfer that has to be right, and what is looked at: both sides' memory, what the NIC read and wrote
there, how many messages it took, and the RESULT lines. Only in the VM."""
import re
import signal
from contextlib import suppress

from ends import ends_well
from memory import Memory, Wrong, difference, last, merged, rings, span, with_message
from pair import OTHER
from trace import counter

NAMES = {"05": "05_gather_write", "06": "06_scatter_read", "07": "07_gssr"}
RIGHTS = {"05server": 2, "06server": 4}  # that a peer needs there: REMOTE_WRITE, REMOTE_READ
MAX_SGE, READS = 32, 128  # rxe's


def passed(examiner, run, role, student):
    """It ends as it should, and its RESULT line says what has come."""
    if wrong := ends_well(run, role):
        words = {r: f"the {r} says: {run.words(r)}" for r in (role, student) if run.words(r)}
        raise Wrong("\n".join([wrong, *words.values()]))
    expected = {
        "sample": NAMES[examiner.lab],
        "role": role,
        "bytes": str(len(examiner.message)),
        "digest": examiner.digest(examiner.message),
    }
    for name, value in expected.items():
        if (found := run.result(role).get(name)) != value:
            raise Wrong(f"the {role}'s RESULT line has {name}={found}, not {value}")


def fails(run, role):
    """It notices what is wrong. Returns what its RESULT line says."""
    result, ended = run.result(role), run.status(role)
    if result.get("status") == "PASS" or ended <= 0:
        raise Wrong(f"the {role} says status={result.get('status')}, and ends with {ended}")
    return result


class Transfer:
    """limits: what each is told that the other has. slow: its peer does nothing for a while. room: the queues may never
    hold more than they can."""

    def __init__(
        self,
        examiner,
        students,
        method,
        layout,
        messages=1,
        limits=None,
        device="",
        slow=False,
        room=False,
    ):
        self.examiner, self.lab, self.receiver = examiner, examiner.lab, examiner.receiver
        self.students, self.method, self.layout, self.messages = students, method, layout, messages
        self.limits, self.device, self.slow, self.room = limits or {}, device, slow, room
        self.before, self.after = ({role: [] for role in students} for _ in range(2))
        self.early, self.turns = None, 0

    # ---- while it runs ----

    def on(self, step, run):
        pair = run.pair
        if step == "meanwhile" and self.turns:
            self.hinder(run)
        if step.endswith("line"):
            self.limit(pair, step[:6])
        acks = step == "client waits" and self.lab == "07" and "server" in self.students
        if acks and pair.lines["client"][0] in (b"sync moved", b"sync done"):  # all is acknowledged
            self.early = Memory(pair.sides["server"].members())
        for role in self.students if step in ("prepared", "moved", "done", "verdict") else ():
            self.look(step, run, role)
            if step == "done" and any("RESULT " in line for line in pair.sides[role].said(0)):
                raise Wrong(f"the {role} says RESULT before its peer is done")

    def limit(self, pair, role):
        for name, most in self.limits.items():
            pair.said[role] = re.sub(
                rb" %s=(\d+)" % name,
                lambda said, name=name, most=most: b" %s=%d"
                % (name, min(most, int(said[1])) if role in self.students else most),
                pair.said[role],
            )

    def look(self, step, run, role):
        side = run.sides[role]
        if step == "prepared":
            self.before[role] = [None for _ in self.before[role]]  # the last one is enough
            self.after[role] = []
        (self.before if step == "prepared" else self.after)[role].append(Memory(side.members()))
        if role == "client" and step != "verdict":
            with suppress(OSError):
                run.queues[role].append((step, rings(side.process.pid)))
        if step == "prepared" and self.slow:
            run.pair.nap = 0.02
            self.hinder(run)

    def hinder(self, run):
        """The peer stops for a while, and then goes on little by little."""
        self.turns += 1
        goes = self.turns > 20 or self.turns > 8 and self.turns % 2
        peer = run.sides[OTHER[self.students[0]]].process
        peer.send_signal(signal.SIGCONT if goes else signal.SIGSTOP)

    # ---- afterwards ----

    def run(self):
        naks = counter("send_rnr_err")
        room = dict.fromkeys(self.students if self.room else (), "prepared")
        how = self.students, self.method, self.layout, self.on, self.messages, self.device, room
        self.right(self.examiner.pair(*how), naks)

    def right(self, run, naks):
        for role, found in run.over.items():
            if found:
                raise Wrong(
                    f"{self.method}: the {role} has posted {found[1]} {found[0]} requests whose completions it has "
                    f"not polled; its queue holds {found[2]}"
                )
        if run.any("cq_error"):
            raise Wrong("there is no room for a completion in its queue (IBV_EVENT_CQ_ERR)")
        for role in sorted(OTHER, key=self.students.count):  # the reference first
            passed(self.examiner, run, role, self.students[0])
        if naks := counter("send_rnr_err") - naks:
            raise Wrong(f"{naks} times a SEND found no receive")
        for role in self.students:
            if not self.before[role] or not self.after[role]:
                raise Wrong(f"the {role} left out a barrier")
            self.moved(run, role)
            self.examiner.tidy(role, run, self.limits, 4 if self.device else READS)
        if "client" in self.students:
            self.examiner.awaits(run)
            self.counted(run)
            self.examiner.passed = True  # that side moves the data
        elif self.lab == "07":
            self.acknowledged(run)

    def counted(self, run):
        """The messages on the wire."""
        sent = len(run.sent("client"))
        method, number = self.method, self.layout.block_num * self.messages
        longest = min(int(self.device[11:12] or MAX_SGE), MAX_SGE)
        if self.lab == "07":
            longest = min(longest, self.limits.get(b"max_sge", MAX_SGE))
        if method == "each" and sent != number:
            raise Wrong(f"each: {sent} messages on the wire, not one for each block")
        if method == "copy" and sent > self.messages:
            raise Wrong(
                f"copy: {sent} messages on the wire for {self.messages}; each is one work request"
            )
        apart = self.layout.stride > self.layout.block_size
        if method == "sgl" and apart and sent * MAX_SGE < number:
            raise Wrong(
                f"sgl: {sent} messages for {self.layout.block_num} blocks, which lie apart; a list has at most {MAX_SGE}"
            )
        if method == "sgl" and sent > -(-self.layout.block_num // (longest // 2)) * self.messages:
            raise Wrong(
                f"sgl: {sent} messages for {self.layout.block_num} blocks, though a list may have {longest} elements"
            )

    def acknowledged(self, run):
        acks, used = (len(run.sent(role)) for role in ("server", "client"))
        if not used // 300 <= acks <= used // 64 + self.messages:
            raise Wrong(
                f"{self.method}: the server acknowledges {used} receives by {acks} messages; one for 64 to 256 is right"
            )

    # ---- memory, and what the NIC did there ----

    def moved(self, run, role):
        """A side's memory, and what the NIC read and wrote there."""
        message, sends = self.examiner.message, self.receiver != role  # its NIC only reads, then
        verb = "read" if sends else "wrote"
        copies = run.copies(role)
        pieces = [(c.addr, c.length) for c in copies if c.writes != sends]
        short = self.method == "each" or self.method == "copy" and len(message) <= 256
        # The requests have the data itself (ibv_post_send(3)).
        inline = sends and not pieces and short
        total, right = sum(n for _, n in pieces), len(message) * len(self.before[role])
        if not inline and not right <= total < 1.2 * right:  # a packet may have been repeated
            raise Wrong(
                f"the NIC {verb} {total} bytes of the {role}'s memory, the messages have {right}"
            )
        after = self.after[role]
        if self.lab + role in RIGHTS:  # contiguous
            _, addr = place_of(run, role)
            if message not in after[0].at(addr, len(message)).values():
                raise Wrong(f"the {role}'s memory does not hold the message")
            return
        when = "when it is prepared" if sends else "in the end"
        why = Wrong(f"the {role}'s memory holds no blocks of this layout with the message {when}")
        for memory in self.before[role][-1:] if sends else after:
            for pid, base in memory.find(self.layout, message):
                odd = "" if inline else self.odd(pieces, base, verb, role)
                why = Wrong(odd) if odd else self.blocks(run, role, pid, base)
                if not why:
                    return
        raise why

    def odd(self, pieces, base, verb, role):
        """What the NIC did that is not as the method demands."""
        method, layout = self.method, self.layout
        length, messages = len(self.examiner.message), len(self.before[role])
        there = merged(
            (base + i * layout.stride, layout.block_size) for i in range(layout.block_num)
        )
        if method != "copy":
            moved = merged(last(pieces, length))
            if moved == there:
                return ""
            addr, size = next((m for m in moved if m not in there), moved[0])
            away = abs(addr - base) <= span(layout)
            where = f"at {addr - base:+d} from block 0" if away else "elsewhere"
            return f"{method}: the NIC {verb} {size} bytes {where}, and that is no block"
        moved = merged(pieces)
        if sum(n for _, n in merged(moved + there)) < sum(n for _, n in moved + there):
            return f"copy: the NIC {verb} the blocks themselves"
        if len(moved) > 1 and len(merged(last(pieces, length))) > messages:
            return f"copy: the NIC {verb} {len(moved)} pieces, not one"
        return ""

    def blocks(self, run, role, pid, base):
        """What is wrong in a side's blocks and gaps, or nothing."""
        examiner, layout, message = self.examiner, self.layout, self.examiner.message
        old = self.before[role][-1].at(base, span(layout)).get(pid)
        sends = self.receiver != role
        if old and not sends and old == with_message(layout, old, message):
            examiner.already = True
        held = [h for m in self.after[role] if (h := m.at(base, span(layout)).get(pid))]
        old = old or held[0]  # it was taken later: then nothing is known
        found = [difference(layout, with_message(layout, old, message), h) for h in held]
        if found and None not in found:
            return Wrong(f"the {role}'s own memory: {found[0]}")
        examiner.base = base
        early = self.early and self.early.at(base, span(layout)).get(pid)
        if early and with_message(layout, early, message) != early:
            raise Wrong(
                f"{self.method}: the {role} acknowledges a message that is not in its blocks yet"
            )
        return None


def place_of(run, role):
    """Where the memory lies that a side's line names, as thread and address: the NIC may know it by another address
    (ibv_reg_mr_iova(3))."""
    addr = run.number(role, "addr")
    there = (
        (r.thread, r.addr + addr - r.iova)
        for r in run.regions(role)
        if r.iova <= addr < r.iova + r.length
    )
    return next(there, (0, 0))
