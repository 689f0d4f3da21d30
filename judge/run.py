# SPDX-License-Identifier: BSD-2-Clause
"""One run of a pair, and what it left behind, seen from outside: calls that reached the kernel, packets,
completions, the queues' contents, the lines on TCP, and what was printed. Only in the VM."""
import os
import re
import struct
import time
from contextlib import suppress

from memory import poke, receive, request, rings
from pair import OTHER, PATIENCE, Pair, fields
from room import Room
from trace import KINDS, MASKS, packet

DONE = "/run/grade/done"  # fail_verbs.c makes it when it has done harm


def spins(pid, most):
    """It has used the CPU for so many seconds that it will go on for ever: these programs wait without it."""
    with suppress(OSError):
        return time.clock_gettime(~pid << 3 | 2) > most  # clock_getcpuclockid(3)
    return False


class Run:
    """sides: by role, what starts it with some options more. on(step, run): what is done at a barrier (see Pair); "cut"
    ends the connection. room: by role the step from which on it is watched whether its queues hold too many; over: what
    held too many. spoilt: harm was done."""

    def __init__(self, nic, sides, arguments, kind=Pair, on=None, limit=10, room=None):
        self.nic, self.arguments, self.action = nic, arguments, on
        self.room_from, self.rooms = room or {}, {}
        self.spoilt = False
        self.before, self.steps, self.verdicts = {}, [], {}  # before: events before a barrier
        self.queues, self.threads = {"client": [], "server": []}, {role: set() for role in OTHER}
        self.qpns, self.seen = {role: set() for role in OTHER}, None
        nic.forget()
        with suppress(OSError):
            os.remove(DONE)
        self.pair, began = kind(self.at, limit), time.monotonic()
        try:
            self.pair.run(sides["server"], sides["client"])
        finally:
            self.over = {role: room.end() for role, room in self.rooms.items()}
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
                if step == self.room_from.get(role) and role not in self.rooms:
                    self.rooms[role] = Room(self.nic, side.process.pid)
        return self.action(step, self) if self.action else None

    def mine(self, role):
        """Its threads, with those of its other processes."""
        return self.threads[role] | {self.sides[role].process.pid} if role in self.sides else set()

    def of(self, role, kind):
        """A role's events of one kind."""
        self.nic.required(kind)
        mine = self.mine(role)
        return [f for thread, name, f in self.events if name == kind and thread in mine]

    def changed(self, role, name):
        """Of its queue pairs: an attribute's values (MASKS)."""
        return {f[name] for f in self.of(role, "modify_qp") if f["mask"] & MASKS[name]}

    def regions(self, role):
        """Those that it has registered until now."""
        self.nic.required("register", "registered")
        mine = self.mine(role)
        return [r for r in (self.seen or self.nic.seen()).regions if r.thread in mine]

    def copies(self, role):
        """What the NIC copied there."""
        mine = self.mine(role)
        return [c for c in self.seen.copies if c.thread in mine]

    def keys(self, role):
        """Of each region that it registered: the region and its lkey."""
        return list(
            zip(self.regions(role), (f["lkey"] for f in self.of(role, "registered") if f["lkey"]))
        )

    def sent(self, role):
        """What a role's queue pairs sent, each packet once."""
        self.nic.required("packet")
        mine = {f["qp"] for f in self.of(role, "create_qp")}
        first = {}
        for _, kind, f in self.events:
            if kind == "packet" and f["qp"] in mine:
                first.setdefault((f["qp"], f["b0"], f["psn"]), f)
        return list(first.values())

    def packets(self, role):
        """The same; then their kinds: messages and answers."""
        return list(map(packet, self.sent(role)))

    def messages(self, role):
        """The first packets of its requests."""
        return [p for p in self.packets(role) if p.opcode & 31 in KINDS]

    def by_place(self, role):
        """The same, of several queue pairs, by where they go."""
        return sorted(self.messages(role), key=lambda p: p.va)

    def datagrams(self, role):
        """Its requests, each number once."""
        first = {}
        return [first.setdefault(p.imm, p) for p in self.messages(role) if p.imm not in first]

    def line(self, role):
        """The fields of its line of the rendezvous."""
        return fields(self.pair.first.get(role, b"").decode("ascii", "replace"))

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
        made, destroyed, mine = {}, [], self.mine(role)
        for thread, kind, f in self.events:
            if thread in mine and kind in ("free_qp", "free_cq"):
                destroyed += f.values()
            elif thread in mine and kind in ("create_cq", "srq", "create_qp"):
                made = {key: one for key, one in made.items() if key not in destroyed}
                made[f.get("qp", f.get("cq", len(made)))] = kind, f
                destroyed = []
        return [(kind, f) for kind, f in made.values() if kind in kinds]

    def held(self, role, step, which):
        """Its queues of a kind at a barrier (rings() in memory.py). which: create_cq, send, recv, srq."""
        taken = next((queues for at, queues in self.queues[role] if at == step), ())
        return [queue for (kind, _), queue in zip(self.order(role), taken) if kind == which]

    def order(self, role):
        """The kinds of its queues, in the order in which they were made, each with what it was made with."""
        order = []
        for kind, f in self.has(role, "create_cq", "srq", "create_qp"):
            names = ["send", *([] if f["srq"] else ["recv"])] if kind == "create_qp" else [kind]
            order += [(name, f) for name in names]
        return order

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
        first, *more = self.said(role, 1) or [""]
        hints = [line.strip() for line in more[:1] if line.startswith("  hint: ")]
        return "; ".join([re.sub(r"^\S+ (server|client): ", "", first)[:200], *hints])

    def todo(self, role):
        """The number of the TODO that it has stopped at, or 0."""
        found = re.search(
            r"(?:is not written yet|尚未编写) \(TODO (\d+)\)", " ".join(self.said(role, 1))
        )
        return int(found[1]) if found else 0

    def status(self, role):
        return self.sides[role].process.returncode if role in self.sides else None

    def result(self, role):
        return fields((self.results(role) or [""])[-1])

    def results(self, role):
        """Its RESULT lines; one may stand behind words that the program has not ended."""
        return re.findall(r"(?m)RESULT \w+=.*", "\n".join(self.said(role)))

    def left(self, role):
        mine = self.mine(role)
        return [what for thread, what in self.seen.left if thread in mine]

    def poke(self, role, region, offset, change=1):
        """Changes a byte of a role's memory: of the region-th one that it registered."""
        regions = self.regions(role)
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
    """A run with what its queues held at the barriers, and with harm. harm: see labs.py; harmed: the role to which it is
    done; most_cpu: seconds, of either side."""

    def __init__(self, *how, harm=None, harmed="", most_cpu=1, **more):
        self.harm, self.harmed, self.most_cpu = harm, harmed, most_cpu
        super().__init__(*how, **more)

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
