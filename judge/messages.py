# SPDX-License-Identifier: BSD-2-Clause
"""What is done to a program (harm), and what it must put on the wire: for the tables in labs.py."""
import re
from collections import namedtuple

from check_words import say
from objects import asked, shown
from sandbox import OTHER
from wire import count

# Harm that a side must notice. what: a key of check_words.en.txt; action(step, run, role): what is done to the run at a
# barrier (see Run.on); env(draw): or what tests/fail_verbs.c or other_device.c is told; peer: in the peer, and not in
# the program itself; role: whose, if it needs a run of its own; status: how it must end, if not with a failure;
# options: of its run, more than the role's; unless: what the peer says where this machine's library is at fault; demand:
# what its run must be like besides.
Harm = namedtuple(
    "Harm",
    "what action env peer role status options unless demand",
    defaults=(None, None, False, "client", None, "", None, None),
)
LW, RW, RR, RA, MW = 1, 2, 4, 8, 16
QKEY, BURST = 12345, 4


def at(moment, offset):
    """Changes a byte of the student's first region."""

    def action(step, run, role):
        if step == moment:
            run.poke(role, 0, offset(run) if callable(offset) else offset)

    return action


def told(moment, words, others):
    """The server's line says something else."""
    return lambda step, run, _: run.replace("server", words, others) if step == moment else None


def middle(draw, each=1, which=1):
    """The number of a request, of a message that is neither the first nor the last. each: requests of a message."""
    return each * (1 + draw["seed"] % (draw["few"] - 2)) + which


def place(draw, size):
    """The last byte, or one of the second half: who verifies too few bytes, begins at the first."""
    return (size // 2 + draw["seed"] % (size // 2), size - 1)[draw["seed"] % 3 > 0]


LATE, GUARD = Harm("late", at("done", 5)), Harm(
    "guard", at("done", lambda run: asked(run, "size", 8) + 3)
)
RKEY = Harm("rkey", told("server's line", rb" rkey=0x[0-9a-f]+", b" rkey=0x1"))


def status(number, role="client"):
    return Harm("status", env=lambda draw: f"HV_FAIL=completion:{number}:10", role=role)


STATUS = status(1)
EACH_STATUS = [status(number, role) for role in OTHER for number in (1, 2)]
VERDICT = Harm("verdict", told("verdict", b"PASS", b"FAIL"), status=1)
WR_ID = Harm("wr id", env=lambda draw: "HV_FAIL=wr_id:1:4097")


# ---- what goes over the wire ----


def text(run):
    return len(run.arguments[0].split("=", 1)[1]) if run.arguments else 11


def size(run, _=None):
    return asked(run, "size")


def to_peer(run, offset=0, **more):
    """Where the server's line says, with its rkey."""
    return {
        "va": (run.number("server", "addr") + offset, "why addr"),
        "rkey": (run.number("server", "rkey"), "why rkey"),
        **more,
    }


def atomics(run):
    """As the head comment of 04 says; the first alone, if the values are not yet looked at."""
    times, seed = asked(run, "iters"), asked(run, "seed")
    counted = (seed + times) % 2**64
    steps = [("fetch-and-add", {"add": 1})] * times + [
        ("compare-and-swap", {"compare": counted, "add": ~counted % 2**64}),
        ("compare-and-swap", {"compare": counted, "add": 0}),
        ("fetch-and-add", {"add": 0}),
    ]
    return [
        (kind, to_peer(run, **values))
        for kind, values in (steps[:1] if run.todo("client") == 4 else steps)
    ]


def bursts(run):
    return [
        (
            "RDMA WRITE with immediate",
            to_peer(
                run,
                i % BURST * size(run),
                length=size(run),
                imm=(i, "why network"),
                solicited=int(i % BURST == BURST - 1),
            ),
        )
        for i in range(BURST * asked(run, "iters"))
    ]


def datagrams(role, every=True):
    """every: or those alone that have been sent."""

    def right(run):
        peer = run.number(OTHER[role], "qpn")
        number = asked(run, "iters") if every else max(1, len(run.datagrams(role)))
        return [
            (
                "SEND with immediate",
                {"dest": (peer, "why dest"), "qkey": QKEY, "imm": (i, "why network")},
            )
            for i in range(number)
        ]

    return right


def text_and_back(run):
    lent = next(iter(run.keys("server")), None)
    where = {"va": lent[0].iova, "rkey": lent[1], "length": text(run)} if lent else {}
    return [("RDMA WRITE", where), ("RDMA READ", where), ("SEND", {})]


def chains(run):
    return [("RDMA READ", to_peer(run, length=size(run))), ("SEND", {}), ("SEND", {})] * (
        1 if run.todo("client") else asked(run, "iters")
    )


def loans(run):
    part = next((f["addr"] for f in run.any("bind")), 0)
    last = [("RDMA WRITE", {"va": (part, "why lent"), "length": size(run)})]
    keys = [p.rkey for p in run.messages("client") if p.opcode & 31 in (6, 10)]
    return [
        message
        for i in range(asked(run, "iters"))
        for message in last
        + [("SEND with invalidate", {"invalidates": (keys[i] if i < len(keys) else 0, "why lent")})]
    ] + last


def binds(run, role):
    """Each loan is bound inside the region for windows, for WRITEs alone."""
    lent = [r for r in run.regions(role) if r.access & MW][0]
    used = [p.rkey for p in run.messages("client") if p.opcode & 31 in (6, 10)]
    keys = [f["rkey"] for f in run.any("bind")]
    for key, told in zip(keys, used):
        if key != told:
            return say("told key", role=role, found=told, right=key)
        if keys.count(key) > 1:
            return say("same key", rkey=key)
    for f in run.any("bind"):
        inside = min(max(f["addr"], lent.iova), lent.iova + lent.length - size(run))
        for name, right in (("addr", inside), ("length", size(run)), ("access", RW)):
            if f[name] != right:
                both = {"found": shown(name, f[name]), "right": shown(name, right)}
                what = "mw_access_flags" if name == "access" else name
                return say("bind", role=role, name=what, **both)
    return None


def refilled(run, role):
    """The server's limit is set once, and once more with each refill: to half of the SRQ's 128 receives."""
    for f in run.of(role, "srq_limit"):
        if f["limit"] != 64:
            return say("limit", role=role, found=f["limit"], right=64)
    said = re.search(r"refills=(\d+)", " ".join(run.said(role)))
    return count("srq_limit", "srq limit", "server", lambda _: 1 + int(said[1]) if said else 1)(
        run, role
    )
