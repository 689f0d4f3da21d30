#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs students' programs in the VM against the reference, and judges what they did.
    examine.py ROOT BUILT LAB SIZES PARTS [ONLY...]
BUILT: what program.py put together. SIZES, PARTS: of the rubric, with points: 4K,64K builds=10,sgl=25.
Of each program it prints a report, and "ROW " with the same as JSON."""
import ctypes
import gc
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import traceback
from contextlib import nullcontext, suppress

import pairing
import witness
from careful import RIGHTS, SOURCES, Careful
from measuring import MEASURING, Midway, Stopwatch
from pairing import OPEN, OTHER, Pair, Side, fields
from room import Room
from spoiling import Spoiler
from witness import Layout, Memory, Wrong, difference, merged, span, with_message

WORK = "/run/grade"  # the reference, and all hand-ins: students' programs may not look at it
MINE = f"{OPEN}/suite/mine"
NAMES = {"05": "05_gather_write", "06": "06_scatter_read", "07": "07_gssr"}
MAX_SGE, READS, EAGER = (
    32,
    128,
    {"07": ["chrt", "-f", "1"]},
)  # rxe's two; what the reference is started by to look at once
# No gaps; more blocks than 16 bits can say; blocks of more bytes than 20 bits can say.
DENSE, COUNTLESS, LONG = (
    Layout(100, 40, 100),
    Layout(1, 66000, 2),
    Layout((1 << 20) + 1, 2, (1 << 20) + 9),
)
# One block more than a list holds, of a byte; full lists; long blocks; and a long message.
AWKWARD = [
    Layout(*n)
    for n in (
        (1, 33, 3),
        (6, 4096, 10),
        (65537, 32, 65557),
        (100, 40, 100),
        (5, 1, 5),
        (301, 1300, 417),
    )
]
ASAN = {
    "ASAN_OPTIONS": "use_sigaltstack=0"
}  # or gcc 12 finds fault with a thread that was cancelled
RESULT = re.compile(r"RESULT \w+=")  # it may stand behind words that a program has not ended
FLAGS = "-std=c11 -Wall -Wextra -Wshadow -Wconversion -O2 -g"  # sample.mk's
INLINE = 512  # bytes, at most, in a request of rxe


class Examiner(Careful, Spoiler):
    """One lab's: the reference, the NIC, and of one program after the other what was found."""

    # many: of full posts one request is left over. make check, which has less time, takes shorter ones.
    awkward, many, probes = AWKWARD, 2049, witness.PROBES

    def __init__(self, built, lab, sizes):
        self.lab, self.sizes, self.user = (
            lab,
            sizes.split(","),
            60000,
        )  # each program has a user of its own
        self.receiver, self.whole = (
            "client" if lab == "06" else "server",
            True,
        )  # False: make check, which has less time
        self.movers = ["server", "client"] if lab == "07" else ["client"]  # those with blocks
        self.course, self.nic = ctypes.CDLL(f"{built}/course.so"), witness.Nic(self.probes)
        self.course.fnv1a.restype = ctypes.c_uint64

    def digest(self, message):
        """The suite's own, as its pattern."""
        basis, length = ctypes.c_uint64(0xCBF29CE484222325), ctypes.c_size_t(len(message))
        return f"{self.course.fnv1a(basis, message, length):016x}"

    def pattern(self, length, seed):
        """A message, as the suite makes it."""
        buffer = ctypes.create_string_buffer(length)
        self.course.pattern_fill(buffer, ctypes.c_size_t(length), ctypes.c_uint64(seed))
        return buffer.raw

    def draw(self, most_blocks=132, least=1):
        size = self.random.randint(least, 2500)
        return Layout(
            size,
            self.random.randint(most_blocks // 4, most_blocks),
            size + self.random.randint(1, 500),
        )

    # ---- one pair ----

    def pair(self, students, method, layout, on, messages=1, device=""):
        """Runs it; students: the roles that are the student's; device: what their device is made to look
        like (other_device.c). A new message each time."""
        seed = self.random.getrandbits(32)
        self.message = self.pattern(layout.block_size * layout.block_num, seed)
        self.tried = [
            f"--method={method}",
            *(f"--{name.replace('_', '-')}={value}" for name, value in layout._asdict().items()),
            f"--seed={seed}",
            f"--iters={messages}",
        ]
        patience = self.timeout * (1 + layout.block_num // 10000)

        def side(role, workload):
            program = (
                [f"{MINE}/{self.program}"]
                if role in students
                else [*self.at_once, f"{WORK}/reference"]
            )
            env = {"LD_PRELOAD": f"{OPEN}/other_device.so", "HV_DEVICE": device} if device else ASAN
            return lambda more: Side(
                role,
                [*program, *workload, f"--timeout={patience}", *more],
                *((self.user, env) if role in students else ()),
            )

        pair, self.early, Pair.pieces = Pair(on, 20 + patience), None, self.pieces
        self.nic.forget()
        pair.run(side("server", []), side("client", self.tried))
        return pair

    def itself(self, on, options, program, students=("server", "client"), watched=False):
        """Runs the student's program as both sides, or with the reference."""
        pair = Pair(on, 60)
        with nullcontext() if watched else self.nic.unwatched():
            pair.run(
                *(
                    lambda more, role=role: Side(
                        role,
                        [
                            f"{MINE}/{program}" if role in students else f"{WORK}/reference",
                            f"--timeout={self.timeout}",
                            *(options if role == "client" else []),
                            *more,
                        ],
                        *((self.user, ASAN) if role in students else ()),
                    )
                    for role in ("server", "client")
                )
            )
        return pair

    def outcome(self, side, right=True):
        """Its RESULT line and its exit status fit together, and what had to happen."""
        out, role, ended = side.said(0), side.role, side.process.returncode
        words = [line for line in side.said(1, 0) if not RESULT.search(line)]
        results = [fields(line) for line in out if RESULT.search(line)] or [{}]
        passed = results[-1].get("status") == "PASS", ended == 0
        if not right and (True in passed or ended < 0):
            raise Wrong(
                f"the {role} says status={results[-1].get('status')}, and ends with {ended}"
            )
        says = words[0][:150] if words else "nothing"
        if right and ended < 0:
            by = signal.Signals(-ended).name
            raise Wrong(f"the {role} is ended by signal {by}; it says: {says}")
        if right and passed != (True, True):
            status = results[-1].get("status")
            raise Wrong(
                f"the {role} ends with status={status}, exit status {ended}; it says: {says}"
            )
        if right and (len(results) > 1 or not RESULT.search(out[-1])):
            raise Wrong(f"the {role} says RESULT {len(results)} times, or something after it")
        expected = {
            "sample": NAMES[self.lab],
            "role": role,
            "bytes": str(len(self.message)),
            "digest": self.digest(self.message),
        }
        for name, value in expected.items() if right else ():
            if results[0].get(name) != value:
                raise Wrong(f"the {role}'s RESULT has {name}={results[0].get(name)}, not {value}")
        return results[-1]

    # ---- transfers that have to be right ----

    def move(
        self,
        students,
        method,
        layout,
        messages=1,
        limits=None,
        device="",
        slow=False,
        watched=True,
        room=False,
    ):
        """limits: what each is told that the other has. slow: its peer does nothing for a while. watched: what the NIC
        copies is looked at. room: the queues may never hold more than they can."""
        before, after, threads = ({role: [] for role in students} for _ in range(3))
        limits, rooms, rings, spoilt, packets, naks = (
            limits or {},
            {},
            [],
            [],
            witness.counter("sent_pkts"),
            witness.counter("send_rnr_err"),
        )

        def on(step, pair):
            for name, most in limits.items() if step.endswith("line") else ():
                pair.said[step[:6]] = re.sub(
                    rb" %s=(\d+)" % name,
                    lambda said, name=name, most=most: b" %s=%d"
                    % (name, min(most, int(said[1])) if step[:6] in students else most),
                    pair.said[step[:6]],
                )
            if (
                step == "client waits"
                and self.lab == "07"
                and "server" in students
                and pair.lines["client"][0] in (b"sync moved", b"sync done")
            ):  # all is acknowledged
                self.early = Memory(pair.sides["server"].members())
            for role in students if step in ("prepared", "moved", "done", "verdict") else ():
                if step == "prepared" and room and role not in rooms:
                    rooms[role] = Room(self.nic, pair.sides[role].members()[0])
                if step == "prepared":
                    before[role] = [*(None for _ in before[role])]  # the last one is enough
                    after[role] = []
                (before if step == "prepared" else after)[role].append(
                    Memory(pair.sides[role].members())
                )
                threads[role] += pair.sides[role].members("threads")
                if role == "client" and step != "verdict":
                    with suppress(OSError):
                        rings.append(
                            [
                                ring
                                for pid in pair.sides[role].members()
                                for ring in witness.rings(pid)
                            ]
                        )
                if step == "prepared" and slow:
                    peer = pair.sides[OTHER[role]].process
                    peer.send_signal(signal.SIGSTOP)
                    subprocess.run(["sh", "-c", f"(sleep .2; kill -CONT {peer.pid}) &"], check=True)
                if (
                    step == "prepared"
                    and len(students) == 2
                    and pairing.listens(self.user) - {pair.port + 1}
                ):
                    raise Wrong("the server waits for connections on another TCP port, too")
                if len(students) == 2:
                    witness.apart(pair.sides)
                if step == "moved" and method == "copy" and role == "client":  # another one follows
                    spoilt[:] = self.spoil_staging(pair.sides[role], before[role][-1], layout)
                if step == "done" and any("RESULT " in line for line in pair.sides[role].said(0)):
                    raise Wrong(f"the {role} says RESULT before its peer is done")

        try:
            with nullcontext() if watched else self.nic.unwatched(
                "copy/", *["packet/"] * (method == "each")
            ):
                try:
                    pair = self.pair(students, method, layout, on, messages, device)
                finally:
                    over = {role: each.end() for role, each in rooms.items()}
            for role, (which, held, most) in (
                (role, found) for role, found in over.items() if found
            ):
                raise Wrong(
                    f"{method}: the {role} has posted {held} {which} requests whose completions it has not polled; "
                    f"its queue holds {most}"
                )
            for role in sorted(OTHER, key=students.count):  # the reference first
                self.outcome(pair.sides[role])
            packets, naks = (
                witness.counter("sent_pkts") - packets,
                witness.counter("send_rnr_err") - naks,
            )
            if naks:
                raise Wrong(f"{naks} times a SEND found no receive")
            seen = self.nic.seen()
            for role in students:
                if not before[role] or not after[role]:
                    raise Wrong(f"the {role} left out a barrier")
                self.judge(
                    role,
                    method,
                    layout,
                    before[role],
                    after[role],
                    pair.first[role],
                    [c for c in seen.copies if c.thread in threads[role]] if watched else None,
                    [r for r in seen.regions if r.thread in threads[role]],
                )
                self.tidy(role, seen, threads[role], pair, limits, 4 if device else READS)
            if "client" in students:
                self.awaits(seen, threads["client"], rings)
                sent = sum(seen.sent[thread] for thread in set(threads["client"]))
                longest = min(
                    int(device[11:12] or MAX_SGE),
                    limits.get(b"max_sge", MAX_SGE) if self.lab == "07" else MAX_SGE,
                )
                if method == "each" and not watched:  # with an answer for each
                    sent = (
                        layout.block_num * messages
                        if packets > 1.5 * layout.block_num
                        else packets // 2
                    )
                if method == "each" and sent != layout.block_num * messages:
                    raise Wrong(f"each: {sent} messages on the wire, not one for each block")
                if method == "copy" and sent > messages:
                    raise Wrong(
                        f"copy: {sent} messages on the wire for {messages}; each is one work request"
                    )
                if (
                    method == "sgl"
                    and layout.stride > layout.block_size
                    and sent * MAX_SGE < layout.block_num * messages
                ):
                    raise Wrong(
                        f"sgl: {sent} messages for {layout.block_num} blocks, which lie apart; a list has at most {MAX_SGE}"
                    )
                if method == "sgl" and sent > -(-layout.block_num // (longest // 2)) * messages:
                    raise Wrong(
                        f"sgl: {sent} messages for {layout.block_num} blocks, though a list may have {longest} elements"
                    )
            elif self.lab == "07":
                acks = sum(seen.sent[thread] for thread in set(threads["server"]))
                used = sum(seen.sent.values()) - acks
                if not used // 300 <= acks <= used // 64 + messages:
                    raise Wrong(
                        f"{method}: the server acknowledges {used} receives by {acks} messages; one for 64 to 256 is right"
                    )
            self.passed = self.passed or "client" in students  # that side moves the data
        except Wrong as why:
            said = (
                pair.sides[students[0]].said(1, 0)[:2]
                if re.search(" ends with | is ended by ", str(why))
                else []
            )
            said = "; ".join(
                said[:1] + [line.strip() for line in said[1:] if line.startswith("  hint: ")]
            )
            raise Wrong(
                "\n".join(
                    [
                        str(why),
                        *([f"the {students[0]} (student) says: {said}"] if said else []),
                        *spoilt,
                    ]
                )
            ) from None

    def spoil_staging(self, side, memory, layout):
        """After a message, a byte that the NIC has read; the next message has to be packed again. Returns words, if so."""
        blocks = [base for _, base in memory.find(layout, self.message)]
        read = [
            c
            for c in self.nic.seen().copies
            if not c.writes
            and c.thread in side.members("threads")
            and not any(
                c.addr < base + span(layout) and base < c.addr + c.length for base in blocks
            )
        ]
        with suppress(IndexError):
            copy = self.random.choice(read)
            witness.poke([(copy.thread, copy.addr + self.random.randrange(copy.length))], 1)
            return [
                "after the first message, a byte in the staging buffer was changed, which packing sets right"
            ]
        return []

    def place_of(self, line, regions):
        """Where the memory lies that a side's line names, as thread and address: the NIC may know
        it by another address (ibv_reg_mr_iova(3))."""
        addr = int(fields(line.decode("ascii", "replace")).get("addr", "0"), 16)
        return next(
            (
                (r.thread, r.addr + addr - r.iova)
                for r in regions
                if r.iova <= addr < r.iova + r.length
            ),
            (0, 0),
        )

    def judge(self, role, method, layout, before, after, line, copies, regions):
        """A side's memory, and what the NIC read and wrote there."""
        sends = self.receiver != role  # and its NIC only reads; of a receiver it only writes
        pieces = [(c.addr, c.length) for c in copies or () if c.writes != sends]
        moved, verb = (
            merged(pieces if method == "copy" else witness.last(pieces, len(self.message))),
            "read" if sends else "wrote",
        )
        total, right = sum(length for _, length in pieces), len(self.message) * len(before)
        if (
            sends
            and not pieces
            and (method == "each" or method == "copy" and len(self.message) <= 256)
        ):
            copies = None  # inline: the requests have the data itself (ibv_post_send(3))
        if (
            copies is not None and not right <= total < 1.2 * right
        ):  # a packet may have been repeated
            raise Wrong(
                f"the NIC {verb} {total} bytes of the {role}'s memory, the messages have {right}"
            )
        if self.lab + role in RIGHTS:  # contiguous
            _, addr = self.place_of(line, regions)
            if self.message not in after[0].at(addr, len(self.message)).values():
                raise Wrong(f"the {role}'s memory does not hold the message")
            return
        bases = (
            base
            for memory in (before[-1:] if sends else after)
            for base in memory.find(layout, self.message)
        )
        when = "when it is prepared" if sends else "in the end"
        why = Wrong(f"the {role}'s memory holds no blocks of this layout with the message {when}")
        for pid, base in bases:
            there = (
                merged(
                    (base + i * layout.stride, layout.block_size) for i in range(layout.block_num)
                )
                if copies
                else []
            )
            if method != "copy" and copies is not None and moved != there:
                odd = next((m for m in moved if m not in there), moved[0])
                at = (
                    f"at {odd[0] - base:+d} from block 0"
                    if abs(odd[0] - base) <= span(layout)
                    else "elsewhere"
                )
                why = Wrong(f"{method}: the NIC {verb} {odd[1]} bytes {at}, and that is no block")
            elif method == "copy" and sum(n for _, n in merged(moved + there)) < sum(
                n for _, n in moved + there
            ):
                why = Wrong(f"copy: the NIC {verb} the blocks themselves")
            elif (
                method == "copy"
                and len(moved) > 1
                and len(merged(witness.last(pieces, len(self.message)))) > len(before)
            ):
                why = Wrong(f"copy: the NIC {verb} {len(moved)} pieces, not one")
            else:
                old = before[-1].at(base, span(layout)).get(pid)
                self.already |= (
                    bool(old) and not sends and old == with_message(layout, old, self.message)
                )
                held = [m.at(base, span(layout)).get(pid) for m in after]
                old = old or next(h for h in held if h)  # it was taken later: then nothing is known
                found = [
                    difference(layout, with_message(layout, old, self.message), h)
                    for h in held
                    if h
                ]
                if not found or None in found:
                    self.base = base
                    self.region = next(
                        (
                            (n, base - r.addr)
                            for n, r in enumerate(regions)
                            if r.addr <= base < r.addr + r.length
                        ),
                        None,
                    )
                    early = self.early and self.early.at(base, span(layout)).get(pid)
                    if early and with_message(layout, early, self.message) != early:
                        raise Wrong(
                            f"{method}: the {role} acknowledges a message that is not in its blocks yet"
                        )
                    return
                why = Wrong(f"the {role}'s own memory: {found[0]}")
        raise why

    # ---- the parts of the rubric ----

    def part_sgl(self):
        for layout in self.awkward:
            self.move(self.movers, "sgl", layout)
        self.move(
            ["client"], "sgl", COUNTLESS, watched=False
        )  # so many copies that the trace could not hold them
        self.move(["client"], "sgl", self.draw(), messages=3)
        self.move(["server"], "sgl", Layout(self.random.randint(2, 60), 40, 64))
        self.move(
            ["client"], "sgl", self.draw(least=50), 1, {b"max_sge": 5, b"rd_atomic": 1, b"mtu": 512}
        )
        self.when(
            "path MTU 512",
            self.move,
            ["client"],
            "auto",
            Layout(self.random.randint(512, 999), 40, 999),
            1,
            {b"mtu": 512},
        )
        # A device that can hold fewer elements than it names, and a peer's that can hold more.
        self.move(["client"], "sgl", self.draw(), 1, {b"max_sge": 64}, "sges:32:32:8:r")

    def part_copy(self):
        self.move(["client"], "copy", self.draw(), messages=2)
        self.move(
            self.movers, "copy", Layout(self.random.randint(1, 12), 20, 15)
        )  # so short that it may be inline
        self.move(self.movers, "copy", DENSE)
        if self.whole:
            self.move(["client"], "copy", LONG)
        self.at_once = EAGER.get(self.lab, [])  # at what it gets
        self.move(["server"], "copy", Layout(8, self.random.randint(20000, 30000), 11))

    def part_each(self):
        self.move(["client"], "each", Layout(8, self.many, 9), slow=True, room=True)
        if self.whole:
            self.move(["client"], "each", COUNTLESS, watched=False)
        for size in (DENSE.block_size, self.random.randint(2, 64)):
            self.move(self.movers, "each", DENSE._replace(block_size=size, stride=size))
        self.at_once = EAGER.get(self.lab, [])  # at what it may send
        self.move(
            ["server"], "each", Layout(8, 2500 if self.whole else 1050, 11), room=self.lab == "07"
        )

    def part_itself(self):
        for method in ("sgl", "copy", "each"):
            self.move(
                ["server", "client"],
                method,
                self.draw()._replace(block_num=self.random.randint(1, 4) * 32 + 1),
            )
        self.pieces = True
        self.when(
            "lines that come in pieces",
            self.move,
            ["server", "client"],
            "sgl",
            Layout(self.random.randint(2, 200), 100, 300),
        )
        self.when(
            "measuring",
            self.measures,
            self.random.randint(INLINE + 1, 1500),
            3 if self.whole else 2,
        )
        if self.whole:
            self.when("measuring", self.measures, self.random.randint(48, 256), 1)

    def measures(self, size, methods):
        """By so many of sgl, copy and each: eight messages one after another, 32 with more under way (blocks/measure.h)."""
        layout = Layout(size, (64 << 10) // size, 2 * size)
        self.tried = [
            *MEASURING,
            f"--block-size={size}",
            "--depth=19",
        ]  # more than usual, and 32 is no multiple
        contiguous = [role for role in OTHER if self.lab + role in RIGHTS]
        late = (
            subprocess.run(["grep", "-rqI", "_start_poll", MINE], check=False).returncode == 0
        )  # ibv_end_poll says what is polled
        midway = Midway(
            methods,
            "" if late else self.lab,
            OTHER[self.receiver],
            layout,
            contiguous,
            self.pattern(size * layout.block_num, 7),
            self.random,
        )

        def on(step, pair):
            if step == "verify":
                witness.apart(pair.sides)
            if step in ("go", "verify"):  # between them more is copied than the trace can hold
                witness.write(f"{witness.TRACE}/tracing_on", str(int(step == "verify")))
            return midway.on(step, pair)

        self.nic.forget()
        pair = self.itself(on, self.tried, self.program, watched=True)
        seen = self.nic.seen()
        for role in pair.sides:
            regions = [r for r in seen.regions if r.thread in midway.threads[role]]
            self.careless += [f"measuring: {what}" for what in self.rights(role, regions)]
            if (
                role != self.receiver
                and not self.pooled
                and any(
                    r.access & 1 and r.addr <= at < r.addr + r.length
                    for r in regions
                    for at in midway.blocks
                )
            ):
                self.careless.append(f"measuring: the {role} registers its blocks with LOCAL_WRITE")
        if not midway.ended:
            words = [
                f"the {role} says: {line}"
                for role, side in pair.sides.items()
                for line in side.said(1)[:1]
            ]
            raise Wrong("\n".join(["it does not go on to the end", *words]))

    def part_verifies(self):
        self.must_move()
        many = self.random.randint(12, 20) if self.whole else 3
        late = self.random.randint(
            9, max(many - 2, 9)
        )  # and the next one: who verifies every second one misses one
        self.move([self.receiver], "sgl", self.draw(20), many)  # or nothing would do, too
        if self.already:
            raise Wrong(
                "when it says that it is prepared, the message before is still in the blocks: one that never "
                "comes looks right"
            )
        for words, *how in (
            ("a wrong bit", "source", "a bit"),
            ("a wrong bit in the last byte, by copy", "source", "the last", 1, 0, "copy"),
            ("two bytes that changed places", "source", "two bytes"),
            ("two blocks that changed places, by each", "source", "two blocks", 1, 0, "each"),
            ("a wrong bit in the third message, by copy", "source", "a bit", 3, 0, "copy"),
            (
                "a wrong bit in the first byte, in the second of five messages",
                "source",
                "the first",
                5,
                2,
            ),
            *(
                (f"a wrong bit in a late one of {many} messages", "source", "a bit", many, late + n)
                for n in (0, 1)
                if self.whole
            ),
            *(
                (
                    ("a bit that changes late", "late", "a bit"),
                    ("a second message that never came", "late", "stale", 2),
                )
                if self.lab == "05"
                else [
                    ("a wrong bit in a gap", "gap", "a bit"),
                    *(
                        [
                            (
                                "a wrong bit in a gap of some bytes, in the first of three messages",
                                "gap",
                                "narrow",
                                3,
                                1,
                            )
                        ]
                        if self.whole
                        else []
                    ),
                    ("a wrong bit in a gap's last byte, by copy", "gap", "its last", 1, 1, "copy"),
                ]
            ),
        ):
            self.when(words, self.spoilt, *how)
        if self.whole and self.checked():
            self.when("a wrong bit at the first size that --bench measures", self.forgets)

    def must_move(self):
        """Who moves nothing, does nothing wrong, either: that must not count."""
        if not self.passed:
            self.move(["server", "client"], "sgl", self.draw(), 1, {b"rd_atomic": 1, b"mtu": 512})

    def when(self, words, function, *arguments):
        try:
            function(*arguments)
        except Wrong as why:
            raise Wrong(f"{words}: {why}") from None

    def part_builds(self):
        """By its own Makefile, or the usual command, beside common/ and blocks/."""
        quiet = r"s/^[ \t]*#[ \t]*pragma[ \t]+GCC[ \t]+(diagnostic|system_header).*//"
        subprocess.run(
            [
                "find",
                MINE,
                "-type",
                "f",
                "-name",
                "*.[ch]",
                "-exec",
                "sed",
                "-i",
                "-E",
                quiet,
                "{}",
                "+",
            ],
            check=True,
        )
        before = os.listdir(MINE)
        made = self.build(
            "make"
            if {"GNUmakefile", "makefile", "Makefile"} & set(before)
            else f"gcc {FLAGS} -o program {SOURCES}"
        )
        said = made.stdout.decode("utf-8", "replace").splitlines()
        odd = [
            line for line in said if re.search("(error|warning): |undefined ref|multiple def", line)
        ]
        programs = [
            entry
            for entry in os.scandir(MINE)
            if entry.name not in before
            and entry.is_file(follow_symlinks=False)
            and os.access(entry.path, os.X_OK)
        ]
        if not programs or made.returncode:
            raise Wrong("\n".join(["it doesn't build", *(odd or said)[:1]]))
        self.program = max(programs, key=lambda entry: entry.stat().st_size).name
        if odd:
            raise Wrong("it builds with warnings\n" + odd[0])

    def build(self, command):
        """Runs it in the student's folder, as the student."""
        subprocess.run(["chown", "-R", str(self.user), MINE], check=True)
        # pylint: disable-next=subprocess-popen-preexec-fn # there is one thread
        # IFS: a file's name may have blanks.
        made = subprocess.run(
            ["timeout", "-s", "KILL", "60", "sh", "-c", "IFS='\n'\n" + command],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            preexec_fn=lambda: pairing.locked_up("build", self.user, MINE),
        )
        pairing.end("build")
        subprocess.run(["chown", "-R", "root:root", MINE], check=True)
        return made

    def own_layout(self, student):
        """What is wrong when it runs against itself with a student's layout, as make handin has it do."""
        pair = self.itself(lambda step, pair: None, [f"--student={student}"], self.program)
        for side in pair.sides.values():
            last = (side.said(0) or [""])[-1]
            if fields(last).get("status") != "PASS" or side.process.returncode:
                return f"the {side.role} does not pass with this layout: {(side.said(1, 0) or ['nothing'])[0][:150]}"
        return ""

    def measure(self, student, block_size):
        """Of some of the points that make handin has it measure: what it takes."""
        sizes = self.random.sample(self.sizes, min(2, len(self.sizes)))
        lengths = [int(size.strip("KM")) << {"K": 10, "M": 20}.get(size[-1], 0) for size in sizes]
        points = [(block_size, max(length // block_size, 1) * block_size) for length in lengths]
        watch = Stopwatch(
            points + [(64, 65536)] * self.random.randint(0, 1)
        )  # these take 9 s of CPU
        options = [f"--student={student}", "--bench", "--iters=1", f"--sizes={','.join(sizes)}"]
        with self.nic.unwatched(
            ""
        ):  # against itself, as make handin: two that poll take turns in another way than one
            Pair(watch.step, 200).run(
                *(
                    lambda more, role=role: Side(
                        role,
                        [
                            f"{MINE}/{self.program}",
                            "--timeout=200",
                            *(options if role == "client" else []),
                            *more,
                        ],
                        self.user,
                    )
                    for role in ("server", "client")
                )
            )
        return watch.figures, watch.prints

    def part(self, part, again=2):
        """What was wrong, or nothing. Once more, if a packet was sent again where that is not meant to be."""
        lost = witness.counter("completer_retry_err")
        self.at_once, self.timeout, self.pieces, self.already = (
            [],
            5,
            False,
            False,
        )  # see EAGER; seconds; Pair; judge
        try:
            if part == "builds" or self.program:
                getattr(self, f"part_{part}")()
        except Wrong as why:
            if (
                part not in ("builds", "verifies", "careful")
                and again
                and witness.counter("completer_retry_err") > lost
            ):
                return self.part(part, again - 1)
            tried = [" ".join(self.tried)] if self.tried and str(why) not in self.careless else []
            return "\n".join(str(why).splitlines()[:3] + tried)
        except Exception as reason:  # pylint: disable=broad-exception-caught # the others' turn
            traceback.print_exc()
            return f"it could not be graded: {reason}"
        return ""

    def examine(self, number, entry, parts, only):
        """Prints a report."""
        name = entry["name"]
        self.user += 1
        self.careless, self.tried, self.program, self.base, self.region, self.built_again = (
            [],
            [],
            None,
            0,
            None,
            None,
        )
        self.passed, self.pooled, points, why, figures, prints = False, False, {}, {}, {}, False
        shutil.rmtree(MINE, ignore_errors=True)
        shutil.copytree(f"{WORK}/hand-ins/{number}", MINE, symlinks=True)
        print("\n#### " + re.sub("[^ -~]", "?", name), flush=True)
        for part, most in parts.items():
            asked = {part, f"{name}:{part}", f"{entry['student']}:{part}"}
            if only and part != "builds" and not asked & set(only):
                continue
            self.random = random.Random(f"{entry['seed']} {name} {part}")  # whatever else is graded
            why[part] = re.sub("[^ -~\n]", "?", self.part(part))
            points[part] = most if not why[part] and self.program else 0
            print(
                f"== {part} == {'OK' if points[part] or not most else 'FAIL'} ({points[part]}/{most})"
            )
            for line in why[part].splitlines():
                print("     " + line[:200])
        own = (
            self.own_layout(entry["student"])
            if self.program and "block_size" in entry and not only
            else ""
        )
        if self.passed and "block_size" in entry and not only:
            figures, prints = self.measure(entry["student"], entry["block_size"])
        score = sum(points.values())
        print(f"Score: {score}/{sum(parts[part] for part in points)}")
        print(
            "ROW "
            + json.dumps(
                {
                    "score": score,
                    "points": points,
                    "of": {part: str(most) for part, most in parts.items()},
                    "why": why,
                    "figures": figures,
                    "prints": prints,
                    "own": re.sub("[^ -~]", "?", own),
                    "kernel": os.uname().release,
                }
            ),
            flush=True,
        )


def main(root, built, lab, sizes, parts, *only):
    witness.write("/proc/self/oom_score_adj", "-1000")  # a program that fills memory goes first
    gc.set_threshold(1 << 20)  # or it looks again and again at all that was seen, and frees nothing
    pairing.room_for_output()
    pairing.take_charge()
    os.makedirs(f"{OPEN}/home")
    os.makedirs(WORK, mode=0o700)
    shutil.copy(f"{built}/reference", WORK)
    shutil.copytree(f"{built}/suite", f"{OPEN}/suite")
    shutil.copy(f"{built}/other_device.so", OPEN)
    shutil.copytree(f"{built}/hand-ins", f"{WORK}/hand-ins", symlinks=True)
    with open(f"{built}/class.json", encoding="ascii") as file:
        entries = json.load(file)
    examiner = Examiner(built, lab, sizes)
    os.chmod("/dev/infiniband/uverbs0", 0o666)
    os.remove("/run/cmd")  # what started this
    # Neither the reference's source nor anything else of this machine's owner is seen.
    for place in (root, built, "/home", "/root"):
        pairing.mount("tmpfs", place, "size=64M,mode=1777")
    for number, entry in enumerate(entries):
        examiner.examine(
            number,
            entry,
            {part: int(most) for part, most in re.findall(r"(\w+)=(\d+)", parts)},
            only,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
