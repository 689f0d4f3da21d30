# SPDX-License-Identifier: BSD-2-Clause
"""What the NIC did, and what the kernel was asked to do: written down where the program cannot reach. Only in the VM."""
import os
import re
import struct
import sys
from collections import namedtuple
from contextlib import contextmanager, suppress
from functools import cached_property

from memory import read, write

TRACE = "/sys/kernel/tracing"
# The trace as it lies in the kernel (events/header_page, header_event): its text takes far more time. Of an
# event: its length in words (of 5 bits; from 29 on it is none), its number, more flags, the thread.
PAGE, EVENT = struct.Struct("=QQ"), struct.Struct("=IHHi")
SIZES = {"u8": "B", "x8": "B", "16": "H", "32": "I", "64": "Q"}
COUNTERS = "/sys/class/infiniband/rxe0/ports/1/hw_counters/"
ERROR = (1 << 64) - 4096  # pointers from here on are error numbers
# Opcodes of a message's first packet, or only one (IBTA specification, base transport header).
KINDS = {
    0: "SEND",
    4: "SEND",
    5: "SEND with immediate",
    6: "RDMA WRITE",
    10: "RDMA WRITE",
    11: "RDMA WRITE with immediate",
    12: "RDMA READ",
    19: "compare-and-swap",
    20: "fetch-and-add",
    23: "SEND with invalidate",
    28: "FLUSH",
    29: "ATOMIC WRITE",
}
FIRST_OF_A_MESSAGE = " || ".join(f"opcode == {opcode}" for opcode in KINDS)
NONE = "mr == 0"  # of the copies
LABS = [f"{number:02}" for number in (*range(1, 17), 18)]
BLOCKS = ("05", "06", "07")
# Which labs need a probe; the others need all.
WATCHED = {
    **dict.fromkeys(("copy", "exits", "ring"), BLOCKS),
    **dict.fromkeys(("srq", "free_srq", "srq_limit"), ("10",)),
    **dict.fromkeys(("ah", "free_ah"), ("09",)),
    **dict.fromkeys(("mw", "free_mw", "bind"), ("13",)),
    "notify": ("08",),
    "request": ("12",),
}
Region = namedtuple("Region", "addr length iova access thread")
# writes: into that memory, by the NIC; event: its number
Copy = namedtuple("Copy", "thread addr length writes event")
# Attributes of a QP: mtu as enum ibv_mtu; asks, answers: READs and atomics of its own at a time, and of its peer's.
MASKS = {
    "access": 1 << 3,
    "mtu": 1 << 8,
    "timeout": 1 << 9,
    "retry_cnt": 1 << 10,
    "asks": 1 << 13,
    "answers": 1 << 17,
}  # ibv_modify_qp(3)
# type, level: of a FLUSH; value: of an ATOMIC WRITE.
Packet = namedtuple(
    "Packet",
    "opcode dest solicited va rkey length imm add compare qkey syndrome invalidates size type level value",
)


class Unseen(Exception):
    """An event that this kernel does not have, or a field of it."""


class Fields(dict):
    """An event's, by name."""

    event = ""

    def __missing__(self, field):
        raise Unseen(self.event, field)


def wanted(labs, probes):
    """Of these lines (probes.py) those that some of these labs need."""
    return [
        line
        for line in probes.splitlines()
        if set(labs) & set(WATCHED.get(line[2:].split()[0], LABS))
    ]


def counter(name):
    """Of this device: sent_pkts, packets; send_rnr_err, NAKs that it has sent because a SEND found no receive."""
    return int(read(COUNTERS + name))


class Nic:
    """Soft-RoCE, watched."""

    def __init__(self, probes):
        """probes: lines of text (probes.py)."""
        about = [line.split() for line in probes if line.startswith("#")]
        self.lacking = {(event, field): what for _, event, field, what in about}
        self.missed = {}  # of what is lacking: what a rule asked for
        write(COUNTERS + "lifespan", "0")  # or what one reads may be 10 ms old
        write(f"{TRACE}/buffer_size_kb", "4096")
        self.kinds, self.where, self.known = {}, {}, []
        for probe in (line for line in probes if not line.startswith("#")):
            try:
                self.watch(probe)
            except OSError:  # a compiler may make a function a part of another, or rename it
                name, function = probe[2:].split()[:2]
                self.lacking[name, ""] = f"function {function}"
        pipe = f"{TRACE}/per_cpu/cpu0/trace_pipe_raw"
        self.raw = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.inside = None  # where in rxe's structure of a region that is which verbs know

    def watch(self, probe):
        name, _, self.where[name] = probe[2:].partition(" ")
        if not os.path.exists(f"{TRACE}/events/kprobes/{name}"):  # a stopped VM may have it already
            self.change(probe)
            write(f"{TRACE}/events/kprobes/{name}/enable", "1")
        self.kinds.update([self.kind(probe)])

    def unwatch(self, name):
        with suppress(OSError):
            write(f"{TRACE}/events/kprobes/{name}/enable", "0")
            self.change(f"-:{name}")

    @staticmethod
    def change(line):
        """What is watched."""
        events = os.open(f"{TRACE}/kprobe_events", os.O_WRONLY)  # not truncated: the others stay
        try:
            os.write(events, line.encode())
        finally:
            os.close(events)

    def required(self, *events):
        """Raises Unseen for one that this kernel does not have."""
        for event in events:
            if (event, "") in self.lacking:
                raise Unseen(event, "")

    def whole(self):
        """What needs all of them judges nothing on a kernel that lacks one."""
        lost = sorted(set(self.lacking.values()))
        return self if not lost else sys.exit("this kernel has no " + ", ".join(lost))

    @staticmethod
    def only(event, which="0"):
        """Of these events such are written down from here on for which this holds. 0: all."""
        write(f"{TRACE}/events/kprobes/{event}/filter", which)

    @staticmethod
    def kind(probe):
        """An event's number; its name, where its fields lie, and their names."""
        about, _, *fields = probe.split()
        # Behind what all have: the thread, one place in the kernel or two.
        where = "=16x" if about[0] == "p" else "=24x"
        return int(read(f"{TRACE}/events/kprobes/{about[2:]}/id")), (
            type("Fields", (Fields,), {"event": about[2:]}),
            struct.Struct(where + "".join(SIZES[f[-2:]] for f in fields)),
            [f.partition("=")[0] for f in fields],
        )

    @contextmanager
    def unwatched(self, *events):
        """For measuring, and for more copies and packets than are worth looking at: watching takes time.
        events: others than these; "": all."""
        for event in events or ("copy/", "packet/", "completion/"):
            write(f"{TRACE}/events/kprobes/{event}enable", "0")
        try:
            yield
        finally:
            for event in events or ("copy/", "packet/", "completion/"):
                write(f"{TRACE}/events/kprobes/{event}enable", "1")

    def forget(self):
        """From here on events count."""
        write(f"{TRACE}/trace", "")
        write(f"{TRACE}/tracing_on", "1")
        self.known = []

    def events(self):
        """All that happened, in order: thread, kind, and what is known of it."""
        with suppress(BlockingIOError):  # that was all
            while page := os.read(self.raw, 1 << 16):
                at, end = PAGE.size, PAGE.size + (PAGE.unpack_from(page)[1] & 0xFFFFF)
                while at < end:
                    head, number, rest, thread = EVENT.unpack_from(page, at)
                    whole = 4 * (head & 31) if 0 < head & 31 < 29 else 0
                    if whole and number in self.kinds:
                        kind, fields, names = self.kinds[number]
                        values = kind(zip(names, fields.unpack_from(page, at + 4)))
                        self.known.append((thread, kind.event, values))
                    # A time; nothing.
                    at += 4 + (whole or (4 if head & 31 > 29 else number | rest << 16))
        return self.known

    def tried(self, rule, *arguments):
        """What a rule returns; or None, where it asks for what this kernel does not have: missed has its name."""
        try:
            return rule(*arguments)
        except Unseen as reason:
            self.missed[self.lacking.get(reason.args, ".".join(reason.args))] = True
        return None

    def seen(self):
        events = self.events()
        if re.search(r"(?m)^overrun: [1-9]", read(f"{TRACE}/per_cpu/cpu0/stats")):
            raise RuntimeError("more happened than could be watched")
        if self.inside is None and (used := {f["mr"] for _, kind, f in events if kind == "copy"}):
            known = {f["mr"] for _, kind, f in events if kind in ("registered", "free_mr")}
            self.inside = next(
                (d for d in range(0, 512, 8) if all(mr + d in known for mr in used)), None
            )
        return Seen(events, self.inside or 0)


class Seen:
    """What some events come to; each only when it is asked for, since it may need a field that is not there."""

    def __init__(self, events, inside):
        self.events, self.inside = events, inside

    @cached_property
    def memory(self):
        """Its regions, and what the NIC copied there."""
        regions, copies, now, asked = [], [], {}, {}
        for number, (thread, kind, f) in enumerate(self.events):
            if kind == "copy":
                if region := now.get(f["mr"] + self.inside):
                    at = region.addr + f["iova"] - region.iova
                    copies.append(Copy(region.thread, at, f["len"], f["dir"] == 0, number))
            elif kind == "register":
                asked[thread] = Region(f["addr"], f["len"], f["iova"], f["access"], thread)
            elif kind == "registered" and thread in asked and f["mr"] < ERROR:
                now[f["mr"]] = asked.pop(thread)
                regions.append(now[f["mr"]])
        return regions, copies

    @property
    def regions(self):
        return self.memory[0]

    @property
    def copies(self):
        return self.memory[1]

    @cached_property
    def left(self):
        """What was not given back when the kernel closed the device: pairs of a thread and its name."""
        left, closing, exiting = [], set(), set()
        for thread, kind, _ in self.events:
            if kind == "exits":
                exiting.add(thread)
            elif kind == "closing":
                closing.add(thread)
            elif kind == "closed":
                closing.discard(thread)
                left += [(thread, "the device")] * (thread in exiting)
            elif kind[:5] == "free_" and thread in closing:  # the kernel frees what was left
                left.append((thread, "a " + kind[5:].replace("_", " ")))
        return left


def packet(f):
    raw = b"".join(f[f"b{i}"].to_bytes(8, "little") for i in range(5))
    at, kind = 12 + 8 * (raw[0] >> 5 == 3), raw[0] & 31
    reth = 16 if kind == 28 else 12  # a FLUSH has its FETH before (ladder.py)
    va, rkey, length = struct.unpack(">QII", raw[reth : reth + 16])
    immediate = at + 16 * (kind == 11)
    return Packet(
        raw[0],
        int.from_bytes(raw[5:8], "big"),
        raw[1] >> 7,
        va,
        rkey,
        length,
        int.from_bytes(raw[immediate : immediate + 4], "big"),
        struct.unpack(">Q", raw[24:32])[0],
        struct.unpack(">Q", raw[32:40])[0],
        int.from_bytes(raw[12:16], "big"),
        raw[12],
        int.from_bytes(raw[12:16], "big"),
        f["size"],
        raw[15] & 15,
        raw[15] >> 4 & 3,
        struct.unpack(">Q", raw[28:36])[0],
    )
