# SPDX-License-Identifier: BSD-2-Clause
"""Every sample between two hosts: over a good wire, a bad one, and one that is cut.

Runs in one of the two VMs of TESTENV_HOSTS=2. Where the wire is bad the rendezvous
takes the control wire, which is good: what is tried then is RDMA's transport, not TCP's.
"""
import os
import re
import signal
import subprocess
import time
import unittest

from pairs import PairTest, ports
from samples import ROOT, SAMPLES, WITH_BLOCKS, end, path, ran, some, start

THERE = (os.path.join(ROOT, "testenv", "there.sh"),)
WIRE, CONTROL = "10.0.1.1", "10.0.2.1"
COUNTERS = "/sys/class/infiniband/rxe0/ports/1/hw_counters/"
MACS = {"10.0.1.1": "52:54:00:00:04:01", "10.0.1.2": "52:54:00:00:04:02"}

# Many messages of few packets each: what a work request may lose before the sender gives
# up is bounded (README.md), so long ones end over a wire that loses much. 01 has but one.
FEW_PACKETS = ("--block-size", "32", "--block-num", "64", "--stride", "77")

# What is captured for test_ladder.py: file, sample, client's options.
LAYOUT = ("--block-size", "100", "--block-num", "40", "--stride", "133")
CAPTURES = {
    "01_hello_write": ("01_hello_write",),
    "02_send_recv": ("02_send_recv",),
    "03_read": ("03_read",),
    "04_atomic": ("04_atomic", "--iters", "2", "--seed", "5"),
    "05_gather_write": ("05_gather_write", *LAYOUT),
    "05_gather_write-each": ("05_gather_write", *LAYOUT, "--method", "each"),
    "06_scatter_read": ("06_scatter_read", *LAYOUT),
    "07_gssr": ("07_gssr", *LAYOUT),
    "08_write_imm": ("08_write_imm", "--size", "1500", "--iters", "1"),
    "12_ordering": ("12_ordering",),
    "12_ordering-no-fence": ("12_ordering", "--no-fence"),  # fails, as it should
    "11_rdma_cm": ("11_rdma_cm",),
    "13_memory_window": ("13_memory_window", "-n", "1", "-s", "100"),
    "09_ud": ("09_ud", "-n", "3", "-s", "100"),
    "10_srq": ("10_srq", "-n", "9"),
}


def many(times):
    workload = {
        "01_hello_write": ("--message", "long " * 400),
        "02_send_recv": ("-n", str(times), "-s", "2000"),
        "03_read": ("-n", str(times), "-s", "2000"),
        "04_atomic": ("-n", str(times)),
        "08_write_imm": ("-n", str(times), "-s", "500"),
        "12_ordering": ("-n", str(times), "-s", "500"),
        "09_ud": ("-n", str(times)),
        "10_srq": ("-n", str(times)),
        "13_memory_window": ("-n", str(times), "-s", "2000"),
        "14_recover": ("-n", str(times), "-s", "2000", "--break", "0"),
    }
    return workload | {sample: ("-n", str(times), *FEW_PACKETS) for sample in WITH_BLOCKS}


SHOWN = ("sent_pkts", "dropped", "out_of_seq_request", "duplicate_request", "completer_retry_err")


def on_both(script):
    """Runs a shell script on both hosts at a time; returns what it printed, ours first."""
    runs = [
        subprocess.Popen(
            [*there, "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        for there in ((), THERE)
    ]
    outs = [run.communicate()[0] for run in runs]
    assert not any(run.returncode for run in runs), f"failed: {script}"
    return outs


def counters():
    """Of both hosts together: rxe's (rdma-statistic(8)), and packets that netem dropped."""
    total = {}
    for out in on_both(
        f"cd {COUNTERS} && grep . *; "
        "tc -s qdisc show dev eth0 root | sed -n 's/.*(dropped /dropped:/p'"
    ):
        for line in out.splitlines():
            name, value = line.split(",")[0].split(":")
            total[name] = total.get(name, 0) + int(value)
    return total


def setUpModule():
    """A good wire, on which no neighbour has to be looked for when it is bad."""
    on_both(
        "tc qdisc del dev eth0 root 2>/dev/null; ip link set eth0 up\n"
        + "".join(
            f"ip neigh replace {address} lladdr {mac} dev eth0\n" for address, mac in MACS.items()
        )
    )


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
        subprocess.run(
            [
                *THERE,
                "sh",
                "-c",
                "".join(
                    f"until grep -q :{int(p):04X} /proc/net/tcp6; do sleep 0.1; done\n"
                    for p in port.values()
                ),
            ],
            check=True,
            timeout=600,
        )
        clients = [
            start(sample, "-p", port[sample], *workload[sample], address) for sample in workload
        ]
        return list(zip(workload, servers, clients))

    def all_pass(self, address, workload):
        """Runs them to their end; returns how many passed."""
        passed = 0
        patient = {sample: (*args, "--timeout", "300") for sample, args in workload.items()}
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
                # That all retries of another request are lost may be chance once (see test_loss), not twice.
                self.spent += spent and "the last WRITE" not in client.err
                if not silent and not spent or self.spent > self.chance:
                    break
                print(f"# {sample}: once more: {client.err.splitlines()[:1]}", flush=True)
                ((_, server, client),) = self.start_all(address, {sample: patient[sample]})
            with self.subTest(sample=sample):
                self.both_pass(sample, server, client)
                self.assertIn("(::ffff:10.0.1.1)", server.out)
                self.assertIn("(::ffff:10.0.1.2)", client.out)
                passed += 1
        return passed


class There(unittest.TestCase):
    """there.sh itself."""

    def test_output_status_and_arguments_are_unchanged(self):
        odd = ["two words", "it's", '"$HOME"', "a\nb", "你好", "", "*"]
        script = 'printf "%s\\n" "$@"; hostname -I; echo wrong >&2; printf end >&2; exit 7'
        ended = ran([*THERE, "bash", "-c", script, "bash", *odd])
        self.assertEqual(ended.returncode, 7)
        self.assertEqual(ended.stdout.rpartition("\n10.0.1.1")[0], "\n".join(odd), ended.stdout)
        self.assertEqual(ended.stderr, "wrong\nend\n")

    def test_what_it_started_goes_with_it(self):
        process = subprocess.Popen([*THERE, "sleep", "4321"])
        running = (*THERE, "sh", "-c", "grep -qszx '432[1]' /proc/[0-9]*/cmdline")
        for _ in range(50):
            if subprocess.run(running, stdout=subprocess.DEVNULL, check=False).returncode == 0:
                break
        else:
            self.fail("it never ran")
        process.send_signal(signal.SIGKILL)
        process.wait()
        for _ in range(10):
            if subprocess.run(running, stdout=subprocess.DEVNULL, check=False).returncode != 0:
                return
        self.fail("it runs on")


class Good(WireTest):
    def test_every_pair_crosses_the_wire(self):
        before = counters()
        self.all_pass(WIRE, {sample: () for sample in SAMPLES})
        # 64 packets for 256 KiB in 05, 06 and 07 each
        self.assertGreater(counters()["rcvd_pkts"] - before["rcvd_pkts"], 3 * 64)


class Capture(WireTest):
    def test_captures(self):
        """Leaves results/wire/*.pcap; test_ladder.py, outside, reads them with tshark."""
        testenv = os.path.join(ROOT, "testenv")
        for name, (sample, *args) in CAPTURES.items():
            with self.subTest(name=name):
                fails = "--no-fence" in args
                for _ in range(
                    5 if fails else 1
                ):  # a busy machine's answer may be there before the SEND leaves
                    ended = ran(
                        [
                            os.path.join(testenv, "capture.sh"),
                            os.path.join(ROOT, "results", "wire", name + ".pcap"),
                            os.path.join(testenv, "pair.sh"),
                            path(sample),
                            *args,
                        ]
                    )
                    if ended.returncode:
                        break
                self.assertEqual(ended.returncode, fails, ended.stdout + ended.stderr)
                if fails:
                    self.assertIn(
                        "data sent back: byte 0 of 4096 is 0x3e (poison: never written)",
                        ended.stdout,
                    )


class Bad(WireTest):
    pairs, chance = 0, 1

    @classmethod
    def tearDownClass(cls):
        print(
            f"{'ok' if cls.pairs else 'not ok'} - wire: {cls.pairs} pairs passed over a bad wire",
            flush=True,
        )

    def over(self, wire, times, effect=None):
        """All over such a wire; then a counter shows that the wire was so."""
        self.spoil(wire)
        before, began = counters(), time.monotonic()
        with self.subTest(wire=wire):
            Bad.pairs += self.all_pass(CONTROL, some(many(times)))
            after = counters()
            seen = {name: after[name] - before.get(name, 0) for name in SHOWN}
            print(
                f"# {wire}, {times} messages each: {time.monotonic() - began:.1f} s, {seen}",
                flush=True,
            )
            if effect:
                self.assertGreater(seen[effect], 0)

    def test_loss(self):
        self.over("loss 1%", 50, "dropped")
        # Of 800 pairs at 10 % one or so ends with its retries used up (README.md): at 7 %, 15 times fewer.
        self.over("loss 7%", 15, "dropped")

    def test_duplicates(self):
        self.over("duplicate 10%", 20, "duplicate_request")

    def test_reordering(
        self,
    ):  # 10 of 100 packets 5 ms late; of these, some 20 are overtaken by the next
        self.over("delay 5ms reorder 90%", 20, "out_of_seq_request")

    def test_delay(self):
        began = time.monotonic()
        self.over("delay 30ms", 10)
        self.assertGreater(time.monotonic() - began, 10 * 2 * 0.030)

    def test_all_of_it(self):
        self.over("delay 10ms 2ms loss 1% duplicate 2%", 20, "dropped")

    def test_11_whose_last_acknowledgement_is_lost(self):
        """In one pair of ten: the queue pair that has to send it again is still there."""
        self.spoil("loss 10%")
        pairs = []
        for port in [str(next(ports)) for _ in range(24)]:
            server = start("11_rdma_cm", "-p", port, there=THERE)
            self.assertIn(b"waiting for a client", server.stdout.readline())
            pairs.append((server, start("11_rdma_cm", "-p", port, "--timeout", "300", WIRE)))
        for server, client in pairs:
            self.both_pass("11_rdma_cm", end(server), end(client), b"hello verbs")
            Bad.pairs += 1


class Unreliable(WireTest):
    """Over UC the receiver's count, the sender's and the wire's are the same."""

    def counted(self):
        """Packets: that this NIC has sent, that this end of the wire dropped, that the other NIC
        got."""
        ours, theirs = on_both(
            f"cd {COUNTERS} && cat sent_pkts rcvd_pkts; tc -s qdisc show dev "
            "eth0 root | sed -n 's/.*(dropped \\([0-9]*\\),.*/\\1/p'"
        )
        sent, _, dropped = map(int, ours.split())
        return sent, dropped, int(theirs.split()[1])

    def run_08(self, *args):
        """One pair over a bad wire: what both sides counted, and what the wire did. By bad luck (on rxe, where
        later messages are lost with the first one) nothing arrives, and the sample says FAIL, or a late message comes
        just while its slot is being verified: another pair, then."""
        for _ in range(3):
            before = self.counted()
            ((sample, server, client),) = self.start_all(
                CONTROL, {"08_write_imm": (*args, "--timeout", "100")}
            )
            server, client = end(server), end(client)
            if " 0 arrived" not in server.out and "0x" not in server.err:
                break
        self.both_pass(sample, server, client)
        self.said = server.out
        counts = [
            list(
                map(
                    int,
                    re.search(
                        r"(\d+) messages sent, (\d+) arrived, (\d+) missed\n", side.out
                    ).groups(),
                )
            )
            for side in (server, client)
        ]
        wire = [after - old for after, old in zip(self.counted(), before)]
        print(
            f"# {' '.join(args)}: sent, arrived, missed {counts[0]}; packets sent, dropped, "
            f"got {wire}",
            flush=True,
        )
        self.assertEqual(counts[0], counts[1])
        self.assertEqual(len(re.findall(r"(?m)^message \d+ missed$", client.out)), counts[0][2])
        self.assertEqual(
            int(client.result["bytes"]), counts[0][1] * int(args[args.index("-s") + 1])
        )
        return counts[0], wire

    def test_missed_messages(self):
        for loss in (1, 10):
            with self.subTest(loss=loss):
                self.spoil(f"loss {loss}%")
                (sent, arrived, missed), wire = self.run_08(
                    "--transport", "uc", "-n", "50", "-s", "1000"
                )
                self.assertEqual([sent, missed, arrived], wire)  # a message is a packet
                self.assertEqual(sent, 200)

    def test_messages_of_several_packets(self):
        """One lost packet is one lost message, or, on rxe, all the later ones, too."""
        self.spoil("loss 1%")
        (sent, arrived, missed), wire = self.run_08("--transport", "uc", "-n", "10", "-s", "2000")
        self.assertEqual((sent, arrived + missed, wire[0]), (40, 40, 80))
        self.assertEqual(wire[0], wire[1] + wire[2])
        self.assertEqual(missed > 0, wire[1] > 0)

    def test_messages_that_come_after_their_burst(self):
        """They count as missed, though none is lost."""
        self.spoil("delay 300ms reorder 85%")
        (sent, arrived, missed), wire = self.run_08("--transport", "uc", "-n", "30", "-s", "1000")
        self.assertEqual((sent, arrived + missed, wire[1]), (120, 120, 0))
        self.assertGreater(missed, 0)
        late = len(re.findall(r"(?m)^message \d+ came too late$", self.said))
        self.assertTrue(0 < late <= missed, self.said)

    def test_rc_misses_none(self):
        self.spoil("loss 7%")
        (sent, arrived, missed), wire = self.run_08("-n", "25", "-s", "1000")
        self.assertEqual((sent, arrived, missed), (100, 100, 0))
        self.assertGreater(wire[1], 0)


BREAK = [sample for sample in SAMPLES if sample != "14_recover"]  # repairs itself: test_14.py


class Cut(WireTest):
    """Nothing gets through any more. The one whose request is under way is told so by its
    NIC; the other by TCP or, where that is cut too, by its clock."""

    # --timeout of both: longer than all retries take, on however busy a machine; and where both wait for it
    PATIENT, SHORT = 40, 10
    runs = 0

    @classmethod
    def tearDownClass(cls):
        print(
            f"{'ok' if cls.runs else 'not ok'} - wire: {cls.runs} pairs ended over a cut wire",
            flush=True,
        )

    def both_end(self, pairs, timeout, by_nic=True):
        """by_nic: TCP goes on, so that it is the NIC's word that ends the run."""
        began = time.monotonic()
        for sample, server, client in pairs:
            with self.subTest(sample=sample):
                client = end(client)
                # see all_pass; or it had no turn to connect before the cut
                if re.search("refused: the peer is silent|cannot (connect|reach)", client.err):
                    server.kill()
                    end(server)
                    ((_, server, client),) = self.start_all(
                        CONTROL, {sample: ("--timeout", str(timeout))}
                    )
                    client, began = end(client), time.monotonic()
                server = end(server)
                for role, side in (("server", server), ("client", client)):
                    self.check_failed(
                        side,
                        sample,
                        role,
                        r"completion of [\w ,-]+: transport retry counter exceeded \(status 12\)"
                        # without an interface there is no way to the peer
                        r"|completion of [\w ,-]+: local QP operation error \(status 2\)"
                        rf"|no completion of [\w ,-]+ in {timeout} s"
                        "|the peer is silent: no '(sync [a-z0-9=]+|line)' from it"
                        "|the peer closed the connection(: no| before this side's) '(sync [a-z0-9=]+|line|hello)"
                        r"|QPN 0x\w+ failed after \d+ messages"
                        # 09 and 10 look for the way to a client before they answer, and then wait for others
                        r"|the server refused: ibv_\w+( to RTR)? with your GID|no client came in \d+ s"
                        # a server that had no turn to open its device before the plug was pulled
                        "|no ACTIVE port with a usable GID on any device",
                        hint=(sample, role) != ("10_srq", "server"),
                    )
                if by_nic and sample not in (
                    "09_ud",
                    "10_srq",
                ):  # UD has none; 10's server may be the one
                    self.assertIn("retry counter exceeded", server.err + client.err)
                Cut.runs += 1
        self.assertLess(time.monotonic() - began, 3 * timeout)

    def long_runs(self, address, timeout):
        """Under way for 2 s. 01 has one message only."""
        pairs = self.start_all(
            address,
            {sample: ("--timeout", str(timeout), "-n", "1000000") for sample in BREAK[1:]},
        )
        time.sleep(2)
        return pairs

    def test_before_the_verb_and_in_the_middle(self):
        pairs = self.long_runs(CONTROL, self.PATIENT)
        self.spoil("loss 100%")
        pairs += self.start_all(
            CONTROL, {sample: ("--timeout", str(self.PATIENT)) for sample in BREAK}
        )
        self.both_end(pairs, self.PATIENT)

    def test_plug_pulled_out_of_the_server(self):
        pairs = self.long_runs(WIRE, self.SHORT)
        # What is sent to a NIC that is down would pile up in QEMU, not be lost as on a wire.
        self.spoil("loss 100%")
        subprocess.run([*THERE, "ip", "link", "set", "eth0", "down"], check=True)
        self.both_end(pairs, self.SHORT, by_nic=False)
