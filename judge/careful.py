# SPDX-License-Identifier: BSD-2-Clause
"""The part careful: least rights, everything given back, completions awaited, failures noticed, no errors with
memory. A part of examine.py's Examiner."""
import os
import re
import signal
import time

from measuring import MEASURING, METHODS
from pairing import OTHER, fields
from witness import Layout, Wrong, counter

RIGHTS = {"05server": 2, "06server": 4}  # that a peer needs there: REMOTE_WRITE, REMOTE_READ
SOURCES = (
    "$(find . -type d -printf '-I%p\\n') -I../common -I../blocks $(find . -name '*.c') ../build/objects/*.o "
    "-libverbs -lm"
)


class Careful:
    def tidy(self, role, seen, threads, pair, limits, reads):
        """Least rights, and everything given back: what is not so counts in the part careful. reads: that its device asks
        for at a time, at most."""
        needed = RIGHTS.get(self.lab + role, 0)
        named = fields(pair.first[role].decode("ascii", "replace"))
        addr, end = int(named["addr"], 16), int(named["addr"], 16) + int(named["len"])
        self.careless += self.rights(role, [r for r in seen.regions if r.thread in threads])
        self.careless += [
            f"the {role}'s peer may reach {r.length} bytes; len={named['len']}"
            for r in seen.regions
            if r.thread in threads
            and r.access & needed
            and (r.iova < addr or r.iova + r.length > end)
        ]
        source = addr if self.lab == "06" else self.base  # of what its NIC only reads
        for r in (
            r
            for r in seen.regions
            if role != self.receiver and r.thread in threads and r.access & 1
        ):
            inside = [
                c.writes
                for c in seen.copies
                if c.thread in threads and r.addr <= c.addr < r.addr + r.length
            ]
            self.pooled |= any(inside)  # with something that the NIC writes
            if not any(inside) and (inside or seen.copies and r.iova <= source < r.iova + r.length):
                self.careless.append(
                    f"the {role} registers what its NIC only reads with LOCAL_WRITE"
                )
        has = {
            name: {value for thread, value in found if thread in threads}
            for name, found in seen.attributes.items()
        }
        self.careless += [
            f"the {role}'s queue pair gives rights that nobody needs (qp_access_flags {access:#x})"
            for access in has["access"]
            if access & 0xE & ~needed
        ]
        if self.lab == "06":  # it READs
            told = int(fields(str(pair.first["server"]))["rd_atomic"])
            most = min(limits.get(b"rd_atomic", told), reads)
            self.careless += [
                f"the client's queue pair asks for {deep} READs at a time; its peer and its device allow {most}"
                for deep in has["asks"]
                if role == "client" and deep > most
            ]
            self.careless += [
                f"the server's queue pair answers {deep} READs at a time; its peer was told {told}"
                for deep in has["answers"]
                if role == "server" and deep < told
            ]
        self.careless += [
            f"the {role}'s path MTU is {128 << code}; its peer has {limits[b'mtu']}"
            for code in has["mtu"]
            if 128 << code > limits.get(b"mtu", 4096)
        ]
        if any(
            seen.sent[thread] for thread in threads
        ):  # 2^23 * 4.096 us are longer than the programs wait (--timeout)
            self.careless += [
                f"the {role}'s queue pair never sends a lost packet again, or too late ({name} {n})"
                for name in ("timeout", "retry_cnt")
                for n in has[name]
                if not 0 < n < 23
            ]
        left = [what for thread, what in seen.left if thread in threads] + [
            "a process"
        ] * pair.sides[role].left_running
        self.careless += [f"the {role} ends without giving back {what}" for what in left]

    def rights(self, role, regions):
        """Those of regions that nobody needs (MW_BIND: its windows have them then)."""
        return [
            f"the {role} registers {r.length} bytes with rights that nobody needs (access {r.access:#x})"
            for r in regions
            if r.access & 0xE & ~RIGHTS.get(self.lab + role, 0)
        ]

    def awaits(self, seen, threads, rings):
        """When the client says that a message is moved, its requests have completed, and it was told so."""
        made = [queue for thread, *queue in seen.queues if thread in threads]
        for found in (
            found for found in rings if len(found) == len(made)
        ):  # or it has others than these
            if any(
                kind == "receive" and held.strip(b"\0")
                for (kind, _), (_, _, held) in zip(made, found)
            ):
                continue  # its peer may have told it by a message
            for (kind, asked), (size, waiting, held) in zip(made, found):
                if kind == "completion" and waiting:
                    self.careless.append(
                        "the client goes on before it has polled its requests' completions"
                    )
                last = held[(waiting - 1) * size :][
                    :size
                ]  # struct rxe_send_wqe (rdma/rdma_user_rxe.h): its flags
                if (
                    kind == "send"
                    and any(last)
                    and (waiting or asked and not int.from_bytes(last[16:20], "little") & 2)
                ):
                    self.careless.append("the client goes on before its last request has completed")

    def part_careful(self):
        self.must_move()
        if self.careless:
            raise Wrong(self.careless[0])
        self.when("built with gcc's sanitizers", self.sanitized)
        name, self.timeout = (
            b"qpn" if self.lab == "07" else b"rkey",
            2,
        )  # seconds: some wait for nothing

        def nowhere(step, pair):
            if step == "server's line":
                pair.said["server"] = re.sub(
                    rb" %s=0x[0-9a-f]+" % name, b" %s=0x1" % name, pair.said["server"]
                )
            if step in ("moved", "done") and pair.said["client"] == b"sync " + step.encode():
                raise Wrong(f'the client says "sync {step}"')

        def at(moment, action):
            return lambda step, pair: action(pair) if step == moment else None

        def to_itself(step, pair):
            """Its own queue pair, which gives no rights, answers with a NAK: invalid request."""
            nowhere(step if step != "server's line" else "", pair)
            for field in (rb" qpn=\S+", rb" psn=\S+") if step == "server's line" else ():
                pair.said["server"] = re.sub(
                    field, re.search(field, pair.first["client"])[0], pair.said["server"]
                )

        for on, most in (
            (nowhere, self.random.choice((20, 120))),
            *[(to_itself, 120)] * (self.whole and self.lab != "07"),
        ):
            self.when(
                "its request fails",
                self.refuses,
                "client",
                on,
                Layout(17, self.random.randint(most - 15, most), 30),
            )  # one, or several
        if self.lab == "06":
            self.when("while its READs are under way", self.refuses, "client", self.scribble)
        for role, peer in OTHER.items():
            self.when(
                "its peer says FAIL",
                self.refuses,
                role,
                at("verdict", lambda pair, peer=peer: pair.said.update({peer: b"verdict FAIL"})),
            )
            self.when("its peer stops", self.refuses, role, self.stops)
            self.when("its peer dies", self.refuses, role, at("prepared", lambda pair: "cut"))
            if self.whole and (role == "client" or self.lab == "07"):
                size = self.random.randint(300, 1500)
                for move in (len(METHODS) + 1, len(METHODS) + 2, METHODS.index("each") + 1)[
                    self.lab != "07" :
                ]:
                    self.when(
                        "measuring: its peer stops, or dies",
                        self.ends_in_time,
                        role,
                        size if move > len(METHODS) else 8,
                        move,
                    )

    def ends_in_time(self, role, size, move):
        """In a transfer of --bench its peer dies; of 07, where its receives are needed, the server stops. move: which
        one: the first, one at a time (07) or many, or that by each, of blocks so short that a queue is full.
        """
        self.tried, sent = [*MEASURING, f"--block-size={size}"], []
        self.timeout = 5 if move == len(METHODS) + 2 else 1  # 2^32 ns are less than 5 s

        def on(step, pair):
            if step == "go":
                sent.append(counter("sent_pkts"))
                pair.nap = 0.0003
            if step == "meanwhile" and len(sent) == move and counter("sent_pkts") > sent[-1] + 99:
                pair.sides[OTHER[role]].stopped = True
                pair.sides[OTHER[role]].process.send_signal(
                    signal.SIGSTOP if self.lab + role == "07client" else signal.SIGKILL
                )
                pair.nap, pair.until = 0.5, time.monotonic() + self.timeout + 2  # seconds
                sent.append(None)

        pair = self.itself(on, self.tried, self.program, [role])
        if None in sent:
            self.outcome(pair.sides[role], right=False)

    def scribble(self, step, pair):
        """Its requests go nowhere, and meanwhile other bytes come into all that it has registered."""
        if step == "server's line":
            pair.said["server"] = re.sub(
                rb" qpn=0x[0-9a-f]+", b" qpn=0xfffff0", pair.said["server"]
            )
        if step in ("moved", "done") and pair.said["client"] == b"sync " + step.encode():
            raise Wrong(f'the client says "sync {step}"')
        for r in (
            self.nic.seen().regions
            if step == "meanwhile" and "prepared" in str(pair.said["client"])
            else ()
        ):
            if r.thread in pair.sides["client"].members("threads"):
                with open(f"/proc/{r.thread}/mem", "r+b", buffering=0) as memory:
                    os.pwrite(memory.fileno(), self.random.randbytes(r.length), r.addr)

    def stops(self, step, pair):
        """The reference, for ever: the other one must end by itself, in time; of 07, nothing is acknowledged."""
        if (
            step == "client waits"
            and self.lab == "07"
            and pair.lines["client"][0] in (b"sync moved", b"sync done")
        ):
            raise Wrong(
                f'the client says "{pair.lines["client"][0].decode()}", and nothing was acknowledged'
            )
        for reference in (
            side for side in pair.sides.values() if step == "prepared" and not side.student
        ):
            reference.stopped = True
            reference.process.send_signal(signal.SIGSTOP)

    def checked(self):
        """The same program with gcc's sanitizers, and with less for --bench to measure; or nothing, if it needs its own
        Makefile."""
        if self.built_again is None:
            self.built_again = not self.build(
                "rm -rf .sanitized; gcc -w -fsanitize=address,undefined -fno-sanitize-recover=all -o .sanitized "
                + SOURCES.replace("objects", "short")
            ).returncode
        return ".sanitized" if self.built_again else ""

    def sanitized(self):
        """Built so that errors with memory show, it must have none; nor when it measures, a little, to the end."""
        if not self.checked():
            return
        plain, self.program = self.program, self.checked()
        pair = self.pair(["server", "client"], "sgl", Layout(301, 77, 417), lambda *_: None, 2)
        self.program = plain
        self.no_errors(pair)
        if self.whole:
            self.when("measuring with --depth=64", self.to_the_end)

    @staticmethod
    def no_errors(pair):
        for line in (line for side in pair.sides.values() for line in side.said(1)):
            if re.search("ERROR: AddressSanitizer|runtime error: ", line):
                raise Wrong(line.split("ERROR: ")[-1][:150])

    def to_the_end(self):
        """Once --bench, which must end well and give everything back, too."""
        self.tried = [
            "--bench",
            "--iters=1",
            "--sizes=192",
            "--block-size=64",
            "--depth=64",
            "--seed=7",
        ]
        self.message, threads = self.pattern(192, 7), []

        def on(step, pair):
            if step == "verify":
                threads.extend(
                    thread for side in pair.sides.values() for thread in side.members("threads")
                )

        self.nic.forget()
        pair = self.itself(on, self.tried, self.checked(), watched=True)
        self.no_errors(pair)
        for side in pair.sides.values():
            self.outcome(side)
        left = [what for thread, what in self.nic.seen().left if thread in threads]
        if left:
            raise Wrong(f"it ends without giving back {left[0]}")
