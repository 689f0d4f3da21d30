# SPDX-License-Identifier: BSD-2-Clause
"""One run of a pair, and what it left behind, seen from outside: calls that reached the kernel, packets,
completions, the queues' contents, the lines on TCP, and what was printed. Only in the VM."""
import os
import re
import struct
import time
from contextlib import suppress

from memory import poke, receive, request, rings
from pair import OTHER, Pair
from trace import FIRST, packet

DONE = "/run/grade/done"  # fail_verbs.c makes it when it has done harm
PATIENCE = 2  # seconds


def spins(pid, most):
    """It has used the CPU for so many seconds that it will go on for ever: these programs wait without it."""
    with suppress(OSError):
        return time.clock_gettime(~pid << 3 | 2) > most  # clock_getcpuclockid(3)
    return False


class Run:
    """sides: by role, what starts it with some options more. on(step, run): what is done at a barrier (see Pair); "cut"
    ends the connection. harm: see labs.py; harmed: the role to which it is done. spoilt: it was done.
    """

    def __init__(self, nic, sides, arguments, kind=Pair, on=None, harm=None, harmed="", limit=10):
        self.nic, self.arguments, self.action = nic, arguments, on
        self.harm, self.harmed, self.spoilt = harm, harmed, False
        self.before, self.steps, self.verdicts = {}, [], {}  # before: events before a barrier
        self.queues, self.threads = {"client": [], "server": []}, {role: set() for role in OTHER}
        self.qpns = {role: set() for role in OTHER}
        nic.forget()
        with suppress(OSError):
            os.remove(DONE)
        self.pair, began = kind(self.at, limit), time.monotonic()
        self.pair.run(sides["server"], sides["client"])
        self.out_of_time = time.monotonic() > began + PATIENCE
        self.sides, self.events = self.pair.sides, nic.events()
        self.seen = nic.seen()
        self.spoilt = self.spoilt or os.path.exists(DONE)
        self.output = {
            role: [side.said(which) for which in (0, 1)] for role, side in self.sides.items()
        }
        # no harm is done then, and nobody sees it
        assert "cannot be preloaded" not in str(self.output), self.output

    def at(self, step, pair):
        self.sides = pair.sides
        for role, said in pair.said.items():  # its line, and what 18 says of further queue pairs
            self.qpns[role] |= {int(qpn, 16) for qpn in re.findall(rb"qpn=0x([0-9a-f]+)", said)}
        if step not in ("meanwhile", "client waits"):
            for role, side in pair.sides.items():
                self.threads[role].update(side.members("threads"))
        return self.action(step, self) if self.action else None

    def pid(self, role):
        return self.sides[role].process.pid if role in self.sides else 0

    def of(self, role, kind):
        """A role's events of one kind."""
        self.nic.required(kind)
        return [f for thread, name, f in self.events if name == kind and thread == self.pid(role)]

    def regions(self, role):
        self.nic.required("register", "registered")
        return [r for r in self.seen.regions if r.thread == self.pid(role)]

    def keys(self, role):
        """Of each region that it registered: the region and its lkey."""
        return list(
            zip(self.regions(role), (f["lkey"] for f in self.of(role, "registered") if f["lkey"]))
        )

    def packets(self, role):
        """What a role's queue pairs sent, each packet once; then their kinds: messages and answers."""
        self.nic.required("packet")
        mine = {f["qp"] for f in self.of(role, "create_qp")}
        known, out = set(), []
        for _, kind, f in self.events:
            if kind == "packet" and f["qp"] in mine and (f["qp"], f["b0"], f["psn"]) not in known:
                known.add((f["qp"], f["b0"], f["psn"]))
                out.append(packet(f))
        return out

    def messages(self, role):
        """The first packets of its requests."""
        return [p for p in self.packets(role) if p.opcode & 31 in FIRST]

    def by_place(self, role):
        """The same, of several queue pairs, by where they go."""
        return sorted(self.messages(role), key=lambda p: p.va)

    def datagrams(self, role):
        """Its requests, each number once."""
        first = {}
        return [first.setdefault(p.imm, p) for p in self.messages(role) if p.imm not in first]

    def line(self, role):
        """The fields of its line of the rendezvous."""
        words = self.pair.first.get(role, b"").decode("ascii", "replace").split()
        return {name: value for name, _, value in (word.partition("=") for word in words)}

    def any(self, kind):
        """The same of both: for what the NIC does, which newer kernels do in threads of their own."""
        self.nic.required(kind)
        return [f for _, name, f in self.events if name == kind]

    def number(self, role, name):
        return int(self.line(role).get(name, "0"), 0)

    def completions(self, role):
        self.nic.required("completion")
        said = re.findall(r"QPN (0x[0-9a-f]+)", " ".join(self.said(role)))[:1]  # 11
        qpns = self.qpns[role] or {int(qpn, 16) for qpn in said}
        return [f for _, kind, f in self.events if kind == "completion" and f["qpn"] in qpns]

    def requests_done(self, role):
        """Completions of its requests, not of its receives (enum ibv_wc_opcode)."""
        return [f for f in self.completions(role) if f["opcode"] < 128]

    def has(self, role, *kinds):
        """Of what it made: each kind with its event. Without what it destroyed before it made more (a trial, in 16)."""
        self.nic.required(*kinds)
        made, destroyed = {}, []
        for thread, kind, f in self.events:
            if thread == self.pid(role) and kind in ("free_qp", "free_cq"):
                destroyed += f.values()
            elif thread == self.pid(role) and kind in ("create_cq", "srq", "create_qp"):
                made = {key: one for key, one in made.items() if key not in destroyed}
                made[f.get("qp", f.get("cq", len(made)))] = kind, f
                destroyed = []
        return [(kind, f) for kind, f in made.values() if kind in kinds]

    def held(self, role, step, which):
        """Its queues of a kind at a barrier (rings() in memory.py). which: create_cq, send, recv, srq."""
        taken = next((queues for at, queues in self.queues[role] if at == step), ())
        order = []
        for kind, f in self.has(role, "create_cq", "srq", "create_qp"):
            order += ["send", *([] if f["srq"] else ["recv"])] if kind == "create_qp" else [kind]
        return [queue for kind, queue in zip(order, taken) if kind == which]

    def queue(self, role, step, which):
        """What the first queue of a kind holds at a barrier: how many are posted and not yet taken; the elements
        that have been used."""
        size, waiting, held = next(iter(self.held(role, step, which)), (1, 0, b""))
        elements = [held[at : at + size] for at in range(0, len(held), size)]
        read_one = request if which == "send" else receive
        return waiting, [read_one(e) for e in elements if any(e)]

    def said(self, role, which=0):
        """The lines of its stdout, or its stderr (1)."""
        return self.output[role][which] if role in self.output else []

    def words(self, role):
        """What it complains about: its first line on stderr, without its name, and its hint."""
        lines = self.said(role, 1)
        return (
            "; ".join(
                [
                    re.sub(r"^\S+ (server|client): ", "", lines[0])[:200],
                    *(line.strip() for line in lines[1:2] if line.startswith("  hint: ")),
                ]
            )
            if lines
            else ""
        )

    def todo(self, role):
        """The number of the TODO that it has stopped at, or 0."""
        found = re.search(
            r"(?:is not written yet|尚未编写) \(TODO (\d+)\)", " ".join(self.said(role, 1))
        )
        return int(found[1]) if found else 0

    def status(self, role):
        return self.sides[role].process.returncode if role in self.sides else None

    def result(self, role):
        lines = [line for line in self.said(role) if line.startswith("RESULT ")]
        return dict(word.partition("=")[::2] for word in lines[-1].split()[1:]) if lines else {}

    def left(self, role):
        return [what for thread, what in self.seen.left if thread == self.pid(role)]

    def poke(self, role, region, offset, change=1):
        """Changes a byte of a role's memory: of the region-th one that it registered."""
        regions = [r for r in self.nic.seen().regions if r.thread == self.pid(role)]
        if region < len(regions):
            self.spoilt = True
            with suppress(OSError):
                at = regions[region]
                poke(
                    [(at.thread, at.addr + (offset if offset >= 0 else at.length - offset - 1))],
                    change,
                )

    def replace(self, role, pattern, by):
        """Changes the line that a role has just sent."""
        self.spoilt = True
        self.pair.said[role] = re.sub(pattern, by, self.pair.said[role])


class Watched(Run):
    """A run with what its queues held at the barriers, and with harm."""

    most_cpu = 1  # seconds

    def at(self, step, pair):
        super().at(step, pair)
        pids = [side.process.pid for side in pair.sides.values()]
        if step == "meanwhile" and any(spins(pid, self.most_cpu) for pid in pids):
            pair.until = 0
        self.steps += [step] * (step != "meanwhile")
        if step in ("ready", "done"):
            self.before[step] = len(self.nic.events())
        if step == "verdict":
            self.verdicts = {
                role: said.decode("ascii", "replace") for role, said in pair.said.items()
            }
            if self.harm:  # or it would fail by its peer's verdict
                pair.said[OTHER[self.harmed]] = b"verdict PASS"
        for role, queues in (
            self.queues.items() if step in ("ready", "done", "verdict", "meanwhile") else ()
        ):
            with suppress(OSError, struct.error):  # of several moments in between the last one
                queues[:] = [
                    each for each in queues if each[0] != "meanwhile" or step != "meanwhile"
                ] + [(step, rings(pair.sides[role].process.pid, 1 << 16))]
        return self.harm.action(step, self, self.harmed) if self.harm and self.harm.action else None
