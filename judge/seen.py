# SPDX-License-Identifier: BSD-2-Clause
"""What one run of a pair left behind, seen from outside: calls that reached the kernel, packets,
completions, the queues' contents, the lines on TCP, and what was printed. Only in the VM."""
import os
import re
import struct
import time
from collections import namedtuple
from contextlib import suppress

import witness
from pairing import OTHER, Pair, Side

# Beside witness.py's: struct ib_qp_init_attr and ib_cq_init_attr (rdma/ib_verbs.h), the fields of
# ib_uverbs_modify_qp and ib_uverbs_wc (rdma/ib_user_verbs.h), rxe_send_wqe (rdma/rdma_user_rxe.h), and a
# packet's first 40 bytes (IBTA specification, its transport headers).
PROBES = """p:pd rxe_alloc_pd
p:cq rxe_create_cq cqe=+0($arg2):u32 channel=+32($arg1):x64
p:srq rxe_create_srq
p:ah rxe_create_ah
p:mw rxe_alloc_mw type=+28($arg1):u32
r:keys rxe_reg_user_mr lkey=+16($retval):x32
p:qp rxe_create_qp srq=+32($arg2):x64 inline=+64($arg2):u32 all=+72($arg2):u32 type=+76($arg2):u32
p:state ib_uverbs:modify_qp mask=+68($arg2):x32 qkey=+72($arg2):u32 rq_psn=+76($arg2):x32 sq_psn=+80($arg2):x32 \
dest=+84($arg2):x32 access=+88($arg2):x32 state=+96($arg2):u8 mtu=+98($arg2):u8 asks=+101($arg2):u8 \
answers=+102($arg2):u8 rnr_timer=+103($arg2):u8 timeout=+105($arg2):u8 retry=+106($arg2):u8 \
rnr_retry=+107($arg2):u8 sgid=+24($arg2):u8 is_global=+30($arg2):u8
p:wire rxe_xmit_packet qp=$arg1:x64 psn=+36($arg2):x32 b0=+0(+24($arg2)):x64 b1=+8(+24($arg2)):x64 \
b2=+16(+24($arg2)):x64 b3=+24(+24($arg2)):x64 b4=+32(+24($arg2)):x64 size=+42($arg2):u16
p:completion rxe_cq_post id=+0($arg2):x64 status=+8($arg2):u32 opcode=+12($arg2):u32 bytes=+20($arg2):u32 \
imm=+24($arg2):u32 qpn=+28($arg2):x32
p:notify rxe_req_notify_cq flags=$arg2:u32
p:request rdma_rxe:copy_data opcode=-172($arg3):u32 flags=-168($arg3):x32 access=$arg2:x32
p:srq_limit rxe_modify_srq limit=+8($arg2):u32
p:bind rxe_bind_mw rkey=+48($arg2):x32 addr=+24($arg2):x64 length=+32($arg2):u64 access=+52($arg2):x32
p:free_ah rxe_destroy_ah
p:free_mw rxe_dealloc_mw
p:free_srq rxe_destroy_srq
"""
Packet = namedtuple(
    "Packet", "opcode dest solicited va rkey length imm add compare qkey syndrome invalidates size"
)
Request = namedtuple("Request", "wr_id opcode flags remote rkey num_sge sges")
Receive = namedtuple("Receive", "wr_id num_sge sges")
DONE = "/run/grade/done"  # fail_verbs.c makes it when it has done harm
PATIENCE = 2  # seconds
FIRST = (0, 4, 5, 6, 10, 11, 12, 19, 20, 23)  # opcodes: a message's first packet, or only one


def packet(f):
    raw = b"".join(f[f"b{i}"].to_bytes(8, "little") for i in range(5))
    at, kind = 12 + 8 * (raw[0] >> 5 == 3), raw[0] & 31
    va, rkey, length, last = struct.unpack(">QIII", raw[12:32])
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
    )


def sges(element, at, number, most=32):
    return [
        struct.unpack_from("QII", element, at + 16 * i)
        for i in range(min(number, most))
        if at + 16 * i + 16 <= len(element)
    ]


def request(element):
    wr_id, _, opcode, flags = struct.unpack_from("QIII", element)
    remote, rkey = struct.unpack_from("QI", element, 24)
    number = struct.unpack_from("I", element, 196)[0]
    return Request(wr_id, opcode, flags, remote, rkey, number, sges(element, 208, number))


def receive(element):
    number = struct.unpack_from("I", element, 28)[0]
    return Receive(struct.unpack_from("Q", element)[0], number, sges(element, 40, number))


class Flow(Pair):
    """Passes each line on at once: for a side that waits for a line before it sends its own."""

    def pass_on(self, ends):
        if len(self.first) < 2:
            return super().pass_on(ends)
        for role in ("client", "server"):
            while self.lines[role]:
                self.said[role] = self.lines[role].pop(0)
                step = self.said[role].decode("ascii", "replace").removeprefix("sync ")
                if self.on(step.split(" ")[0], self) == "cut":
                    return False
                with suppress(OSError):
                    ends[OTHER[role]].sendall(self.said[role] + b"\n")
        return False


class Lead(Pair):
    """At a barrier the server goes on a little before the client: it is to sleep when a message comes."""

    lead = 0.03


class Direct:
    """A server and a client with no TCP between them (11): rdma_cm's port, and its device's address."""

    port, host = 21000, "10.0.0.1"
    waits = (
        True  # with the client until the server says that it waits; and not long for it at the end
    )

    def __init__(self, on, limit=20):
        self.on, self.until, self.said, self.first = on, time.monotonic() + limit, {}, {}

    def run(self, server, client):
        Direct.port += 1
        self.sides = {"server": server([f"--port={self.port}"])}
        try:
            while self.waits and not (
                self.sides["server"].ended()
                or time.monotonic() > self.until
                or any("waiting" in line for line in self.sides["server"].said(0))
            ):
                time.sleep(0.005)
            self.sides["client"] = client([f"--port={self.port}", self.host])
            while (
                any(not side.ended() for side in self.sides.values())
                and time.monotonic() < self.until
            ):
                failed = self.sides["client"].ended() and self.sides["client"].process.returncode
                if failed and self.waits:
                    self.until = min(self.until, time.monotonic() + 0.3)
                time.sleep(0.005)
        finally:
            for side in self.sides.values():
                side.finish()


class Apart(Direct):
    """The same on TCP: they connect more than once (14), so nobody stands between them. The client waits for the
    server by itself, and the server for another client."""

    host, waits = "127.0.0.1", False


class Run:
    """One pair, and what is known of it. student: the roles that are the student's program."""

    def __init__(self, nic, kind, programs, arguments, harm=None, harmed="", env=None):
        """programs, env: by role. harm: what is done to the side harmed, see parts.py. spoilt: it was done."""
        self.nic, self.arguments, self.harm, self.harmed, self.spoilt = (
            nic,
            arguments,
            harm,
            harmed,
            False,
        )
        self.env, self.before = (
            env or {},
            {},
        )  # before: how many events were before both said ready, and done
        self.steps, self.queues, self.verdicts = [], {"client": [], "server": []}, {}
        nic.forget()
        with suppress(OSError):
            os.remove(DONE)

        def side(role, more):
            return lambda rest: Side(
                role,
                [programs[role], *more, f"--timeout={PATIENCE}", *rest],
                env=self.env.get(role),
            )

        self.pair, began = kind(self.on, 10), time.monotonic()
        self.pair.run(side("server", []), side("client", arguments))
        self.out_of_time = time.monotonic() > began + PATIENCE
        self.sides, self.events = self.pair.sides, nic.events()
        self.seen = nic.seen([event for event in self.events if event[1] != "cq_error"])
        self.spoilt = self.spoilt or os.path.exists(DONE)
        self.output = {
            role: [side.said(which) for which in (0, 1)] for role, side in self.sides.items()
        }
        assert "cannot be preloaded" not in str(
            self.output
        ), self.output  # no harm is done then, and nobody sees it

    def on(self, step, pair):
        self.steps += [step] * (step != "meanwhile")
        if step in ("ready", "done"):
            self.before[step] = len(self.nic.events())
        self.sides = pair.sides
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
                ] + [(step, witness.rings(pair.sides[role].process.pid, 1 << 16))]
        return self.harm.action(step, self, self.harmed) if self.harm and self.harm.action else None

    def pid(self, role):
        return self.sides[role].process.pid if role in self.sides else 0

    def of(self, role, kind):
        """A role's events of one kind."""
        return [f for thread, name, f in self.events if name == kind and thread == self.pid(role)]

    def regions(self, role):
        return [r for r in self.seen.regions if r.thread == self.pid(role)]

    def keys(self, role):
        """Of each region that it registered: the region and its lkey."""
        return list(
            zip(self.regions(role), (f["lkey"] for f in self.of(role, "keys") if f["lkey"]))
        )

    def packets(self, role):
        """What a role's queue pairs sent, each packet once; then their kinds: messages and answers."""
        mine = {f["qp"] for f in self.of(role, "create_qp")}
        known, out = set(), []
        for _, kind, f in self.events:
            if kind == "wire" and f["qp"] in mine and (f["qp"], f["b0"], f["psn"]) not in known:
                known.add((f["qp"], f["b0"], f["psn"]))
                out.append(packet(f))
        return out

    def messages(self, role):
        """The first packets of its requests."""
        return [p for p in self.packets(role) if p.opcode & 31 in FIRST]

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
        return [f for _, name, f in self.events if name == kind]

    def number(self, role, name):
        return int(self.line(role).get(name, "0"), 0)

    def completions(self, role):
        qpn = self.number(role, "qpn")
        said = re.search(r"QPN (0x[0-9a-f]+)", " ".join(self.said(role)))  # 11
        if not qpn and said:
            qpn = int(said[1], 16)
        return [f for _, kind, f in self.events if kind == "completion" and f["qpn"] == qpn]

    def queue(self, role, step, which):
        """What a queue holds at a barrier: how many are posted and not yet taken; the elements that have been
        used. which: send, recv, srq."""
        taken = next((queues for at, queues in self.queues[role] if at == step), None)
        made = [
            (kind, f)
            for thread, kind, f in self.events
            if thread == self.pid(role) and kind in ("cq", "srq", "qp")
        ]
        order = []
        for kind, f in made:
            order += ["send", *([] if f["srq"] else ["recv"])] if kind == "qp" else [kind]
        if not taken or which not in order or order.index(which) >= len(taken):
            return 0, []
        size, waiting, held = taken[order.index(which)]
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
                witness.poke(
                    [(at.thread, at.addr + (offset if offset >= 0 else at.length - offset - 1))],
                    change,
                )

    def replace(self, role, pattern, by):
        """Changes the line that a role has just sent."""
        self.spoilt = True
        self.pair.said[role] = re.sub(pattern, by, self.pair.said[role])
