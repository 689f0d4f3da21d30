# SPDX-License-Identifier: BSD-2-Clause
"""Labs 05 to 07, the part careful: least rights, everything given back, completions awaited, failures noticed, no errors
with memory. A part of assignment.py's Examiner; what other parts' runs show counts here. Only in the VM."""
import re

from harms import dies, fails, nowhere, scribble, stops
from memory import Layout, Wrong, request
from pair import OTHER
import transfer
from transfer import RIGHTS


class Careful:
    def tidy(self, role, run, limits, reads):
        """Least rights, and everything given back. reads: that its device asks for at a time, at most."""
        self.careless += self.rights(role, run.regions(role))
        self.careless += self.reach(role, run)
        self.careless += self.writable(role, run)
        self.careless += self.attributes(role, run, limits, reads)
        self.careless += self.patient(role, run)
        left = run.left(role) + ["a process"] * run.sides[role].left_running
        self.careless += [f"the {role} ends without giving back {what}" for what in left]

    def rights(self, role, regions):
        """Those of regions that nobody needs (MW_BIND: its windows have them then)."""
        return [
            f"the {role} registers {r.length} bytes with rights that nobody needs (access {r.access:#x})"
            for r in regions
            if r.access & 0xE & ~RIGHTS.get(self.lab + role, 0)
        ]

    def reach(self, role, run):
        needed, named = RIGHTS.get(self.lab + role, 0), run.line(role)
        addr, end = int(named["addr"], 16), int(named["addr"], 16) + int(named["len"])
        return [
            f"the {role}'s peer may reach {r.length} bytes; len={named['len']}"
            for r in run.regions(role)
            if r.access & needed and (r.iova < addr or r.iova + r.length > end)
        ]

    def writable(self, role, run):
        """What its NIC only reads, and yet is registered with LOCAL_WRITE."""
        source = int(run.line(role)["addr"], 16) if self.lab == "06" else self.base
        copies = run.copies(role)
        for r in run.regions(role) if role != self.receiver else ():
            inside = [c.writes for c in copies if r.addr <= c.addr < r.addr + r.length]
            used = inside or run.seen.copies and r.iova <= source < r.iova + r.length
            if r.access & 1 and not any(inside) and used:
                yield f"the {role} registers what its NIC only reads with LOCAL_WRITE"

    def attributes(self, role, run, limits, reads):
        """Of its queue pair."""
        needed = RIGHTS.get(self.lab + role, 0)
        for access in run.changed(role, "access"):
            if access & 0xE & ~needed:
                yield f"the {role}'s queue pair gives rights that nobody needs (qp_access_flags {access:#x})"
        told = int(run.line("server")["rd_atomic"])
        most = min(limits.get(b"rd_atomic", told), reads)
        for deep in run.changed(role, "asks") if self.lab + role == "06client" else ():
            if deep > most:
                yield f"the client's queue pair asks for {deep} READs at a time; its peer and its device allow {most}"
        for deep in run.changed(role, "answers") if self.lab + role == "06server" else ():
            if deep < told:
                yield f"the server's queue pair answers {deep} READs at a time; its peer was told {told}"
        for code in run.changed(role, "mtu"):
            if 128 << code > limits.get(b"mtu", 4096):
                yield f"the {role}'s path MTU is {128 << code}; its peer has {limits[b'mtu']}"

    def patient(self, role, run):
        """It waits for an answer, and not for ever."""
        if run.sent(role):
            # 2^23 * 4.096 us are longer than the programs wait (--timeout)
            for name in ("timeout", "retry_cnt"):
                for n in run.changed(role, name):
                    if not 0 < n < 23:
                        yield f"the {role}'s queue pair never sends a lost packet again, or too late ({name} {n})"

    def awaits(self, run):
        """When the client says that a message is moved, its requests have completed, and it was told so."""
        order = run.order("client")
        for _, taken in run.queues["client"]:
            queues = [(*made, *queue) for made, queue in zip(order, taken)]
            receives = any(kind == "recv" and held.strip(b"\0") for kind, _, _, _, held in queues)
            if len(order) != len(taken) or receives:
                continue  # it has others than these; its peer may have told it by a message
            for kind, made, size, waiting, held in queues:
                newest, early = held[(waiting - 1) * size :][:size], ""
                if kind == "create_cq" and waiting:
                    early = "it has polled its requests' completions"
                if kind == "send" and any(newest):
                    silent = made["asked"] and not request(newest).flags & 2
                    early = "its last request has completed" if waiting or silent else ""
                self.careless += ["the client goes on before " + early] if early else []

    def part_careful(self):
        self.must_move()
        if self.careless:
            raise Wrong(self.careless[0])
        self.when("built with gcc's sanitizers", self.sanitized)
        self.timeout = 2  # seconds: some wait for nothing
        name = b"qpn" if self.lab == "07" else b"rkey"
        for most in (20, 120):  # one request, and several
            layout = Layout(17, self.random.randint(most - 15, most), 30)
            self.when("its request fails", self.refuses, "client", nowhere(name), layout)
        if self.lab == "06":
            under_way = scribble(self.random)
            self.when("while its READs are under way", self.refuses, "client", under_way)
        for role, peer in OTHER.items():
            self.when("its peer says FAIL", self.refuses, role, fails(peer))
            self.when("its peer stops", self.refuses, role, stops(self.lab))
            self.when("its peer dies", self.refuses, role, dies)

    def refuses(self, role, on, layout=None):
        """The side must not pass."""
        transfer.fails(self.pair([role], "sgl", layout or self.draw(), on), role)

    def sanitized(self):
        """Built so that errors with memory show, it must have none."""
        if not (checked := self.checked()):
            return
        plain, self.program = self.program, checked
        run = self.pair(["server", "client"], "sgl", Layout(301, 77, 417), None, 2)
        self.program = plain
        for line in (line for side in run.sides.values() for line in side.said(1)):
            if re.search("ERROR: AddressSanitizer|runtime error: ", line):
                raise Wrong(line.split("ERROR: ")[-1][:150])
