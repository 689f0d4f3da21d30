# SPDX-License-Identifier: BSD-2-Clause
"""A side that dies or hangs, at every step: the other ends in time and says at which step.

A TCP proxy stands between client and server. It reads the lines that they exchange
(common/rendezvous.h), catches one of the victim's and sends the victim a signal just then:
SIGKILL, after which the peer's connection is closed, or SIGSTOP, after which it is silent.
"""
import concurrent.futures
import itertools
import select
import signal
import socket
import time

from pairs import PairTest, ports, rdma_resources
from samples import SAMPLES, end, start

TIMEOUT = 8  # --timeout of both sides; longer than all retries of a request take
# The line of the victim's at which it is caught, and whether that line still gets through
# to the peer; during: a second after the verb has begun. Then the samples to try: where
# the verb has a part, all (but 01 has one message only), else one of each kind.
KINDS = ("02_send_recv", "03_read", "05_gather_write", "14_recover")
STEPS = {
    "swap": ("hello-verbs/2", False, KINDS),
    "ready": ("sync ready", False, KINDS),
    "verb": ("sync ready", True, SAMPLES),
    "during": (None, True, SAMPLES[1:]),
    "done": ("sync done", False, KINDS),
    "verdict": ("verdict", False, KINDS),
}
VICTIMS = ("server", "client")
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
ONE_SIDED = ("03_read", "04_atomic")  # and no line from one message to the next
MESSAGES = (
    "02_send_recv",
    "07_gssr",
    "08_write_imm",
    "09_ud",
    "10_srq",
    "12_ordering",
    "13_memory_window",
)


def reasons(sample, step, victim, sent):
    """What the survivor may say: patterns, of which one has to match."""
    line = {"swap": "line", "done": "sync done", "verdict": "verdict"}.get(step, "sync ready")
    if step == "swap" and victim == "client":
        return [f"no client came in {TIMEOUT} s"]  # to the server it never was one
    if sample == "14_recover":  # it has waited for another connection
        return [
            f"no client came in {TIMEOUT} s",
            "cannot connect to",
            "the peer (closed the connection|is silent)",
        ]
    lines = [line]
    said = []
    if step in ("verb", "during"):
        lines = (
            ["sync prepared", "sync moved", "sync done"] if "05" < sample < "08" else ["sync done"]
        )
        if sample == "08_write_imm":
            lines = ["sync arrived=15", "sync ready", "sync done"]
        if sample == "13_memory_window":
            lines.append("sync withdrawn")
        if sample == "12_ordering":
            lines = ["sync ready", "sync done"]
        if sample in MESSAGES:  # it waits for a message of the victim's
            said.append(rf"no completion of [\w ,-]+ in {TIMEOUT} s")
    # A server that only lends its memory says "done" while the client's requests are under way.
    early = (step, victim) == ("done", "server") and sample != "02_send_recv"
    if sent == signal.SIGKILL and (early or step in ("verb", "during")):  # its NIC is gone
        said.append(r"completion of [\w ,-]+: transport retry counter exceeded \(status 12\)")
    if (sample, victim) == ("10_srq", "client"):  # for this server it is one client less
        return [r"QPN 0x\w+ failed after \d+ messages"]
    for line in lines:
        said.append(
            f"the peer is silent: no '{line}' from it"
            if sent == signal.SIGSTOP
            else f"the peer closed the connection(: no| before this side's) '{line}'"
        )
    return said


def strike(process, sent):
    """Returns when the signal has done its work. Who has the peer's verdict may have ended
    before, and is just as silent."""
    process.send_signal(sent)
    while sent == signal.SIGSTOP and process.poll() is None:
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "T":
                return
    process.wait()


class Relay:
    """The proxy: between a pair, until it has struck the victim."""

    def __init__(self, sample, step, victim, sent):
        self.catch, self.passes, _ = STEPS[step]
        self.victim, self.sent = victim, sent
        self.seen = []
        args = ["--timeout", str(TIMEOUT)]
        if step == "during":
            args += ["-n", "1000000"]
        if sample == "14_recover":
            args += ["--break", "0"]  # or it connects anew by itself
        self.port = next(ports)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.side = {
                "server": start(sample, "-p", str(self.port), "--timeout", str(TIMEOUT)),
                "client": start(sample, "-p", str(listener.getsockname()[1]), *args, "127.0.0.1"),
            }
            self.link = {"client": listener.accept()[0]}
        for _ in range(200):
            try:
                self.link["server"] = socket.create_connection(("127.0.0.1", self.port))
                break
            except ConnectionRefusedError:
                time.sleep(0.1)

    def run(self):
        """Passes lines on until the victim is struck; returns when that was."""
        peer = {"server": "client", "client": "server"}
        role_of = {sock: role for role, sock in self.link.items()}
        held = {role: b"" for role in self.link}
        begun = None
        while True:
            wait = None if begun is None else max(0, begun + 1 - time.monotonic())
            readable = select.select(list(role_of), [], [], wait)[0]
            if begun is not None and time.monotonic() >= begun + 1:
                strike(self.side[self.victim], self.sent)
                return time.monotonic()
            for sock in readable:
                role = role_of[sock]
                data = sock.recv(4096)
                if not data:
                    raise AssertionError(f"{role} went by itself, after {self.seen}")
                *lines, held[role] = (held[role] + data).split(b"\n")
                for line in lines:
                    self.seen.append((role, line.split(b" sample")[0].decode()))
                    caught = (
                        role == self.victim
                        and self.catch is not None
                        and line.startswith(self.catch.encode())
                    )
                    if caught:
                        strike(self.side[role], self.sent)
                    if not caught or self.passes:
                        self.link[peer[role]].sendall(line + b"\n")
                    if caught:
                        return time.monotonic()
            if (
                self.catch is None
                and begun is None
                and all((role, "sync ready") in self.seen for role in peer)
            ):
                begun = time.monotonic()


class DeadPeer(PairTest):
    cases = 0

    def case(self, sample, step, victim, sent):
        relay = Relay(sample, step, victim, sent)
        survivor = relay.side["client" if victim == "server" else "server"]
        struck = relay.run()
        if (step, victim, sent) == ("during", "server", signal.SIGSTOP) and sample in ONE_SIDED:
            # Its NIC goes on answering: no client notices that nobody is at home.
            time.sleep(TIMEOUT / 2)
            self.assertIsNone(survivor.poll(), survivor)
            sent = signal.SIGKILL
            strike(relay.side[victim], sent)
            struck = time.monotonic()
        if sent == signal.SIGKILL:
            for sock in relay.link.values():
                sock.close()
        ended = end(survivor)
        took = time.monotonic() - struck
        relay.side[victim].kill()
        end(relay.side[victim])
        for sock in relay.link.values():
            sock.close()
        self.check_failed(
            ended,
            sample,
            "client" if victim == "server" else "server",
            "|".join(reasons(sample, step, victim, sent)),
            hint=(sample, victim) != ("10_srq", "client"),
        )
        self.assertLess(took, 2 * TIMEOUT + 4, ended)
        socket.create_server(("", relay.port)).close()  # the port is free at once
        DeadPeer.cases += 1
        return took, ended

    @classmethod
    def setUpClass(cls):
        cls.before = rdma_resources()
        cls.pool = concurrent.futures.ThreadPoolExecutor(8)  # they wait most of the time
        one = cls("case")
        cls.outcome = {
            key: {sample: cls.pool.submit(one.case, sample, *key) for sample in STEPS[key[0]][2]}
            for key in itertools.product(STEPS, VICTIMS, SIGNALS)
        }

    @classmethod
    def tearDownClass(cls):
        cls.pool.shutdown()
        print(
            f"{'ok' if cls.cases else 'not ok'} - dead: {cls.cases} cases of a dead or stuck "
            "peer",
            flush=True,
        )

    def test_zz_nothing_is_left(self):
        """Last, as its name sorts: the kernel holds no more of ours than before."""
        self.pool.shutdown()
        self.assertEqual(rdma_resources(), self.before)


def cell(step, victim, sent):
    def test(self):
        for sample, future in self.outcome[step, victim, sent].items():
            with self.subTest(sample=sample):
                future.result()

    return test


for key in itertools.product(STEPS, VICTIMS, SIGNALS):
    step, victim, sent = key
    setattr(DeadPeer, f"test_{list(STEPS).index(step)}_{step}_{victim}_{sent.name}", cell(*key))
