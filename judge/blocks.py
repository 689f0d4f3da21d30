# SPDX-License-Identifier: BSD-2-Clause
"""What is demanded of each TODO of the labs 05 to 07, of a program in which it is the student's and the rest is the
sample's (pieces.py). Only in the VM."""
import re
from collections import namedtuple
from contextlib import nullcontext

from check_words import say
from judge import Judge
from pair import OTHER, starts
from rows import reason, why_unseen
from run import Watched
from ends import passes
from objects import asked
from wire import completes, waited

Piece = namedtuple("Piece", "name roles runs rules")
OPCODES = {"05": (0, "IBV_WR_RDMA_WRITE"), "06": (4, "IBV_WR_RDMA_READ"), "07": (2, "IBV_WR_SEND")}
ASAN = {"ASAN_OPTIONS": "use_sigaltstack=0:detect_leaks=0"}
MANY = "--method=each --block-size=8 --block-num=2100 --stride=9"  # more than a queue that is to hold 1024 really holds
NAMES = {"send": "request", "receive": "receive"}
BENCH = "--bench --iters=1 --sizes=4096 --block-size=512 --depth=5"


class Expected:
    """Where each byte of a message lies in a side's memory, by the method that its client was told."""

    def __init__(self, run, role):
        self.size, self.number, self.stride = (
            asked(run, name) for name in ("block-size", "block-num", "stride")
        )
        self.method = next(a[9:] for a in run.arguments if a.startswith("--method="))
        self.bytes, span = self.size * self.number, self.stride * (self.number - 1) + self.size
        if self.method == "copy":
            self.size, self.number, self.stride, span = self.bytes, 1, self.bytes, self.bytes
        self.base, self.lkey = next(
            ((r.addr, key) for r, key in run.keys(role) if r.length == span), (0, 0)
        )

    def at(self, offset):
        """The address, and how much of its block is left."""
        block, byte = divmod(offset, self.size)
        return self.base + block * self.stride + byte, self.size - byte

    def shown(self, addr):
        """An address, and where it lies in this memory, or near it."""
        away = addr - self.base
        return f"{addr:#x} (base {away:+})" if abs(away) < 1 << 20 else hex(addr)

    def wrong(self, sges, offset):
        """Of elements that begin at this byte of the message: which, what of it, what it is, what it must be."""
        for number, (addr, length, lkey) in enumerate(sges):
            right, left = self.at(offset)
            if addr != right:
                return number, "addr", self.shown(addr), self.shown(right)
            if not 0 < length <= left:
                return number, "length", length, left
            if lkey != self.lkey:
                return number, "lkey", hex(lkey), hex(self.lkey)
            offset += length
        return None


def odd(run, request, right, total, places):
    """Of a request behind so many bytes of the message: what of it, what it is, what it must be; else where it lies."""
    offset, rkey = total, run.number("server", "rkey")
    if request.opcode != OPCODES[run.lab][0]:
        return ("opcode", request.opcode, OPCODES[run.lab][1]), 0
    if run.lab != "07":
        offset = request.remote - run.number("server", "addr")
        if request.rkey != rkey:
            return ("wr.rdma.rkey", hex(request.rkey), hex(rkey)), 0
    if offset != total and (offset in places or right.wrong(request.sges, offset)):
        wanted = request.remote - offset + total
        found = f"{request.remote:#x} (addr {offset:+})", f"{wanted:#x} (addr {total:+})"
        return ("wr.rdma.remote_addr", *found), 0
    return (), offset


def in_all(run, role, what, right, number, total):
    """Of all requests: their number, and the bytes that they name."""
    messages = asked(run, "iters")
    if total != right.bytes * messages:
        return say("total", role=role, what=what, found=total, right=right.bytes * messages)
    fewest = right.number if right.method == "each" else 1
    most = -(-right.number // 16) if right.method == "sgl" else fewest
    if not fewest <= number / messages <= most:
        wanted = fewest if most == fewest else f"<= {most}"
        return say("count of", role=role, method=right.method, found=number, right=wanted)
    return None


def requests(run, role, which="send"):
    """The last ones that can be seen, and whether these are all."""
    for step in ("done", "meanwhile"):
        found = run.queue(role, step, "recv" if which == "receive" else which)[1]
        if found:
            return found, step == "done"
    return [], False


def listed(which="send"):
    """All that is posted: its kind, its elements, its remote address, and how many there are."""

    def demand(run, role):
        posted, every = requests(run, role, which)
        right, total, places, what = Expected(run, role), 0, set(), NAMES[which]
        if right.number > 1000:  # the first ones can no longer be seen
            return None
        for number, each in enumerate(posted):
            where = {"role": role, "number": number, "what": what}
            wrong, offset = odd(run, each, right, total, places) if which == "send" else ((), total)
            if wrong:
                return say("posted", name=wrong[0], found=wrong[1], right=wrong[2], **where)
            wrong = right.wrong(each.sges, offset)
            if wrong:
                return say(
                    "sge", sge=wrong[0], name=wrong[1], found=wrong[2], right=wrong[3], **where
                )
            places.add(offset)
            total += sum(length for _, length, _ in each.sges)
        return in_all(run, role, what, right, len(posted), total) if every and posted else None

    return demand


def first_message(demand):
    """Of a run of one message."""
    return lambda run, role: demand(run, role) if asked(run, "iters") == 1 else None


def chained(run, role):
    """Signalled, with the numbers that tell how many requests are done, and never more than the queue holds."""
    (posted, _), room = requests(run, role), run.rooms.get(role)
    if posted and room and not room.completed and not posted[-1].flags & 2:
        return say("flags", number=len(posted) - 1, role=role, name="IBV_SEND_SIGNALED")
    for number, (found, right) in enumerate(room.completed if room else ()):
        if found != right:
            return say("wr_id", number=number, role=role, found=found, right=right)
    return held(run, role)


def held(run, role):
    if not run.over.get(role):
        return None
    which, found, most = run.over[role]
    return say("over", role=role, which=NAMES[which], held=found, most=most)


def memory(run, role):
    """What gcc's sanitizers say: of what kind, and which line of the student's."""
    said = run.said(role, 1)
    error = next((line for line in said if "runtime error: " in line or "ERROR: Addr" in line), "")
    if not error:
        return None
    places = (line.split()[-1] for line in said if line.lstrip().startswith("#") and ".c:" in line)
    words = re.sub(r"^.*ERROR: | on (unknown )?address .*", "", error)
    return say("memory", role=role, words=words[:150], at=next(places, "").rsplit("/", 1)[-1])


def by(method, draw, messages=1):
    """A layout whose parts have different lengths, all of them."""
    size = 17 + 2 * (draw["odd"] % 40)
    return (
        f"--method={method} --block-size={size} --block-num={37 + draw['few'] * 8} --stride={size + 7 + draw['few']} "
        f"--seed={draw['seed']} --iters={messages}"
    )


def blocks():
    one, client = first_message(listed()), ("client",)
    return [
        Piece("the list", client, lambda draw: [by("sgl", draw)], [memory, one, completes, passes]),
        Piece(
            "the chain",
            client,
            lambda draw: [by("sgl", draw, messages=2), MANY + " --iters=1"],
            [memory, chained, waited, completes, passes],
        ),
        Piece(
            "a message",
            client,
            lambda draw: [by(method, draw) for method in ("sgl", "copy", "each")],
            [memory, one, completes, passes],
        ),
        Piece(
            "many messages",
            client,
            lambda draw: [by("copy", draw, messages=2), BENCH],
            [memory, held, waited, completes, passes],
        ),
    ]


PIECES = {
    "05": blocks(),
    "06": blocks(),
    "07": [
        Piece(
            "the list",
            ("client", "server"),
            lambda draw: [by("sgl", draw)],
            [
                memory,
                lambda run, role: listed("send" if role == "client" else "receive")(run, role),
                completes,
                passes,
            ],
        ),
        Piece(
            "the SENDs",
            ("client",),
            lambda draw: [by("sgl", draw), by("copy", draw, messages=2), MANY + " --iters=1"],
            [memory, chained, waited, completes, first_message(listed()), passes],
        ),
        Piece(
            "the receives",
            ("server",),
            lambda draw: [by("sgl", draw), by("copy", draw, messages=2)],
            [memory, first_message(listed("receive")), completes, passes],
        ),
        Piece(
            "the receives ahead",
            ("server",),
            lambda draw: [by("sgl", draw), MANY + " --iters=1", BENCH],
            [memory, held, completes, passes],
        ),
    ],
}


class Pieced(Judge):
    """One program's TODOs."""

    most_cpu = 60  # the sanitizers' reports take long

    def row(self, name, todo, why):
        found, broken = super().row(name, todo, why), bool(self.last and memory(*self.last))
        return {**found, "memory": broken, "says": "" if broken else found["says"]}

    def alone(self, piece, number):
        """What is wrong."""
        lab = self.job["lab"]
        student = {"program": self.job["sanitized"], "env": {**ASAN, "HV_TODO": str(number)}}
        for role in piece.roles:
            for words in piece.runs(self.job["draws"][0]):
                # Against itself: both have less to measure; it is more than can be written down.
                bench, more = "--bench" in words, words.split()
                peer = student if bench else {"program": self.job["reference"], "away": True}
                sides = starts({role: student, OTHER[role]: peer}, more)
                moment = "client's line" if lab + role == "07server" else "prepared"
                how = {"most_cpu": self.most_cpu, "room": {} if bench else {role: moment}}
                with self.nic.unwatched() if bench else nullcontext():
                    run = Watched(self.nic, sides, more, **how)
                run.lab = lab
                self.last = run, role
                for rule in (memory, passes) if bench else piece.rules:
                    if why := rule(run, role):
                        return why
        return ""

    def shows(self, options):
        with self.nic.unwatched():
            return super().shows(options)

    def rows(self, alone):
        """Of each TODO its row. alone: what is written is tried; else the whole program is right, and so are these."""
        rows, wrong, unwritten = [], "", self.job["unwritten"]
        for number, piece in enumerate(PIECES[self.job["lab"]], 1):
            self.last = None
            why = why_unseen(unwritten, number, wrong)
            if not why and self.job["alone"] and alone:
                why = reason(self.alone, piece, number)
            elif not why and unwritten:
                why = say("not alone", number=number)
            rows.append(self.row(piece.name, number, why))
            wrong = wrong or (piece.name if why and not unwritten else "")
        return rows
