# SPDX-License-Identifier: BSD-2-Clause
"""Every sample between two hosts: over a good wire, a bad one, and one that is cut.

Runs in one of the two VMs of TESTENV_HOSTS=2. Where the wire is bad the rendezvous
takes the control wire, which is good: what is tried then is RDMA's transport, not TCP's.
"""
import os
import re

import subprocess
import time

from pairs import PairTest, ports
from samples import BUILD, ROOT, SAMPLES, WITH_BLOCKS, end, ran, some, start

TESTENV = os.path.join(ROOT, "testenv")
THERE = (f"{TESTENV}/there.sh",)
WIRE, CONTROL = "10.0.1.1", "10.0.2.1"
COUNTERS = "/sys/class/infiniband/rxe0/ports/1/hw_counters/"
NEIGHBOURS = (
    "ip neigh replace 10.0.1.1 lladdr 52:54:00:00:04:01 dev eth0\n"
    "ip neigh replace 10.0.1.2 lladdr 52:54:00:00:04:02 dev eth0\n"
)
DROPPED = "tc -s qdisc show dev eth0 root | sed -n 's/.*(dropped \\([0-9]*\\),.*/\\1/p'"


def many(times):
    """Many messages of few packets each: what a work request may lose before the sender gives
    up is bounded (README.md), so long ones end over a wire that loses much. 01 has but one."""
    few_packets = {"04_atomic": [], "09_ud": [], "10_srq": [], "14_recover": ["--break", 0]}
    few_packets |= dict.fromkeys(("08_write_imm", "12_ordering"), ["-s", 500])
    layout = ["--block-size", 32, "--block-num", 64, "--stride", 77]
    few_packets |= dict.fromkeys(WITH_BLOCKS, layout)
    workload = {name: ["-n", times, *few_packets.get(name, ["-s", 2000])] for name in SAMPLES}
    return workload | {"01_hello_write": ["--message", "long " * 400]}


def on_both(script):
    """Runs a shell script on both hosts at a time; returns what it printed, ours first."""
    runs = [
        subprocess.Popen([*there, "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        for there in ((), THERE)
    ]
    outs = [run.communicate()[0] for run in runs]
    assert not any(run.returncode for run in runs), f"failed: {script}"
    return outs


def dropped():
    """Packets that the wire has dropped on the way there, and on the way back."""
    return [int(out or 0) for out in on_both(DROPPED)]


def counted(name):
    """What rxe has counted (rdma-statistic(8)), here and there; or packets that were dropped."""
    if name == "dropped":
        return dropped()
    return list(map(int, on_both(f"cat {COUNTERS}{name}")))


def setUpModule():
    """A good wire, on which no neighbour has to be looked for when it is bad."""
    on_both("tc qdisc del dev eth0 root 2>/dev/null; ip link set eth0 up\n" + NEIGHBOURS)


class WireTest(PairTest):
    spent, chance = 0, 0  # pairs of a test whose retries were used up, and how many may be

    def spoil(self, what):
        """Makes the wire bad in both directions; good again after the test."""
        on_both(f"tc qdisc replace dev eth0 root netem limit 10000 {what}")
        self.addCleanup(setUpModule)

    def start_all(self, address, workload):
        """Starts all pairs, so that their waits overlap: (sample, server, client)."""
        port = {sample: str(next(ports)) for sample in workload}
        servers = [start(sample, "-p", port[sample], there=THERE) for sample in workload]
        for number in port.values():
            listens = f"until grep -q :{int(number):04X} /proc/net/tcp6; do sleep 0.1; done"
            ran([*THERE, "sh", "-c", listens], check=True)
        clients = [start(name, "-p", port[name], *workload[name], address) for name in workload]
        return list(zip(workload, servers, clients))

    def all_pass(self, address, workload):
        patient = {sample: (*args, "--timeout", 300) for sample, args in workload.items()}
        for sample, server, client in self.start_all(address, patient):
            for _ in range(4):
                client = end(client)
                # All start at once: on a busy machine one may have no turn between connecting and its line.
                silent = "refused: the peer is silent" in client.err
                spent = "transport retry counter exceeded" in client.err
                if silent or spent:  # it would wait for long
                    server.kill()
                server = end(server)
                # 13's last WRITE is refused. If that NAK is lost, nobody repeats it: the server's QP is in ERR.
                # That all retries of another request are lost may be chance once (see Bad), not twice.
                self.spent += spent and "the last WRITE" not in client.err
                if not silent and not spent or self.spent > self.chance:
                    break
                print(f"# {sample}: once more: {client.err.splitlines()[:1]}", flush=True)
                ((_, server, client),) = self.start_all(address, {sample: patient[sample]})
            with self.subTest(sample=sample):
                self.both_pass(sample, server, client)
                self.assertIn("(::ffff:10.0.1.1)", server.out)
                self.assertIn("(::ffff:10.0.1.2)", client.out)


class Good(WireTest):
    def test_every_pair_crosses_the_wire(self):
        before = sum(counted("rcvd_pkts"))
        for at in range(0, len(SAMPLES), 4):  # all at once take long
            self.all_pass(WIRE, {sample: () for sample in SAMPLES[at : at + 4]})
        # 64 packets for 256 KiB in 05, 06 and 07 each
        self.assertGreater(sum(counted("rcvd_pkts")) - before, 3 * 64)


class Bad(WireTest):
    # Of 800 pairs at 10 % one or so ends with its retries used up (README.md): at 7 %, 15 times fewer.
    chance = 1

    def test_every_kind_of_it(self):
        """And a counter shows that the wire was so."""
        for wire, times, effect in (
            ("loss 7%", 15, "dropped"),
            ("duplicate 10%", 20, "duplicate_request"),
            # 10 of 100 packets 5 ms late; of these, some 20 are overtaken by the next
            ("delay 5ms reorder 90%", 20, "out_of_seq_request"),
            ("delay 10ms 2ms loss 1% duplicate 2%", 20, "dropped"),
        ):
            with self.subTest(wire=wire):
                setUpModule()
                self.spoil(wire)
                before, began = sum(counted(effect)), time.monotonic()
                self.all_pass(CONTROL, some(many(times)))
                seen = sum(counted(effect)) - before
                self.assertGreater(seen, 0)
                print(f"# {wire}: {time.monotonic() - began:.1f} s, {effect} {seen}", flush=True)

    def test_11_whose_last_acknowledgement_is_lost(self):
        """In one pair of ten: the queue pair that has to send it again is still there."""
        self.spoil("loss 10%")
        pairs = []
        for port in [str(next(ports)) for _ in range(24)]:
            server = start("11_rdma_cm", "-p", port, there=THERE)
            self.assertIn(b"waiting for a client", server.stdout.readline())
            pairs.append((server, start("11_rdma_cm", "-p", port, "--timeout", 300, WIRE)))
        for server, client in pairs:
            self.both_pass("11_rdma_cm", end(server), end(client), b"hello verbs")


class Flush(WireTest):
    """15, on a newer kernel and library: what its lab says of Soft-RoCE, which sends a FLUSH again to address 0."""

    def test_duplicates_and_loss(self):
        ran(
            [*THERE, "env", f"HV_BUILD={BUILD}", f"{ROOT}/tests/debian13.sh", "in", "true"],
            check=True,
        )
        self.spoil("duplicate 10%")
        self.all_pass(CONTROL, {"15_flush": ["-n", 100]})
        self.spoil("loss 7%")
        self.all_pass(CONTROL, {"15_flush": ["-n", 100, "--no-flush", "--plain-tail"]})
        lost = {"15_flush": ["-n", 300, "--timeout", 15]}
        ((_, server, client),) = self.start_all(CONTROL, lost)
        self.check_failed(end(client), "15_flush", "client", "remote access error .status 10")
        self.check_failed(end(server), "15_flush", "server", "the tail is at byte", hint=False)


class Unreliable(WireTest):
    """Over UC the receiver's count, the sender's and the wire's are the same."""

    def test_missed_messages(self):
        """By bad luck (on rxe, where later messages are lost with the first one) nothing arrives, and the sample
        says FAIL: another pair, then."""
        self.spoil("loss 10%")
        args = ["--transport", "uc", "-n", 50, "-s", 1000, "--timeout", 100]  # of a packet each
        for _ in range(3):
            before = dropped()[0]
            ((sample, server, client),) = self.start_all(CONTROL, {"08_write_imm": args})
            server, client = end(server), end(client)
            if " 0 arrived" not in server.out:
                break
        self.both_pass(sample, server, client)
        line = r"(\d+) messages sent, (\d+) arrived, (\d+) missed\n"
        lost = dropped()[0] - before
        self.assertGreater(lost, 0)
        for side in (client, server):
            counts = tuple(map(int, re.search(line, side.out).groups()))
            self.assertEqual(counts, (200, 200 - lost, lost))
        self.assertEqual(len(re.findall(r"(?m)^message \d+ missed$", client.out)), lost)
        self.assertEqual(client.result["bytes"], str((200 - lost) * 1000))


class Cut(WireTest):
    """Nothing gets through any more. The one whose request is under way is told so by its
    NIC; the other by TCP, or where it waits for a message by its clock."""

    TIMEOUT = 40  # longer than all retries take, on however busy a machine
    SAID = (
        r"completion of [\w ,-]+: transport retry counter exceeded \(status 12\)"
        r"|no completion of [\w ,-]+ in \d+ s|the peer (is silent|closed the connection)"
        r"|QPN 0x\w+ failed after \d+ messages"
    )

    def test_in_the_middle(self):
        # 01 has one message only; 14 connects anew: test_14.py; 18 has memory for each message.
        samples = [sample for sample in SAMPLES[1:] if sample[:2] not in ("14", "18")]
        args = ("--timeout", self.TIMEOUT, "-n", 1000000)
        pairs = self.start_all(CONTROL, dict.fromkeys(samples, args))
        for _, _, client in pairs:
            client.stdout.readline()
        time.sleep(2)
        self.spoil("loss 100%")
        began = time.monotonic()
        for sample, server, client in pairs:
            with self.subTest(sample=sample):
                client, server = end(client), end(server)
                for role, side in (("server", server), ("client", client)):
                    hint = (sample, role) != ("10_srq", "server")
                    self.check_failed(side, sample, role, self.SAID, hint=hint)
                if sample not in ("09_ud", "10_srq"):  # UD has none; 10's server may be the one
                    self.assertIn("retry counter exceeded", server.err + client.err)
        self.assertLess(time.monotonic() - began, 3 * self.TIMEOUT)
