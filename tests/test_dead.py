# SPDX-License-Identifier: BSD-2-Clause
"""A side that dies or hangs, at every step: the other ends in time and says at which step.

A relay between client and server (pairs.py) catches one of the victim's lines and sends the victim a
signal just then: SIGKILL, after which the peer's connection is closed, or SIGSTOP, after which it is
silent.
"""
import itertools
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from pairs import PairTest, Relay, rdma_resources
from samples import end

TIMEOUT = 8  # --timeout of both sides; longer than all retries of a request take
# The steps are common/'s; so one sample of each kind. In the middle of the verb, also those that wait
# by code of their own. (10, 11, 14: tests of theirs.)
KINDS = ("02_send_recv", "03_read", "05_gather_write")
OWN = ("07_gssr", "08_write_imm", "09_ud", "12_ordering", "13_memory_window")
STEPS = {  # the line of the victim's at which it is caught, and whether that still gets through
    "swap": (b"hello-verbs/2", False),
    "ready": (b"sync ready", False),
    "verb": (b"sync ready", True),
    "during": (b"sync ready", True),  # and a second later
    "done": (b"sync done", False),
    "verdict": (b"verdict", False),
}
LINES = {  # of samples with more of them: those that the survivor may wait for
    "05_gather_write": ("sync prepared", "sync moved", "sync done"),
    "07_gssr": ("sync prepared", "sync moved", "sync done"),
    "08_write_imm": ("sync arrived=15", "sync ready", "sync done"),
    "12_ordering": ("sync ready", "sync done"),
    "13_memory_window": ("sync done", "sync withdrawn"),
}
LENDER_HANGS = ("during", "server", signal.SIGSTOP)


def reasons(sample, step, victim, sent):
    """What the survivor may say: patterns, of which one has to match."""
    if step == "swap" and victim == "client":
        return [f"no client came in {TIMEOUT} s"]  # to the server it never was one
    said, in_verb = [], step in ("verb", "during")
    lines = [{"swap": "line", "done": "sync done", "verdict": "verdict"}.get(step, "sync ready")]
    if in_verb:
        lines = LINES.get(sample, ["sync done"])
        if sample in ("02_send_recv", *OWN):  # it waits for a message of the victim's
            said.append(rf"no completion of [\w ,-]+ in {TIMEOUT} s")
    # A server that only lends its memory says "done" while the client's requests are under way.
    if sent == signal.SIGKILL and (in_verb or (step, victim) == ("done", "server")):
        said.append(r"completion of [\w ,-]+: transport retry counter exceeded \(status 12\)")
    for line in lines:
        silent = f"the peer is silent: no '{line}' from it"
        closed = f"the peer closed the connection(: no| before this side's) '{line}'"
        said.append(silent if sent == signal.SIGSTOP else closed)
        if step == "verdict":  # who has the peer's may have ended before it is struck
            said.append(closed)
    return said


def strike(process, sent):
    """Returns when the signal has done its work."""
    process.send_signal(sent)
    while sent == signal.SIGSTOP and process.poll() is None:
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "T":
                return
    process.wait()


class DeadPeer(PairTest):
    def case(self, sample, step, victim, sent):
        caught, (catch, passes) = threading.Event(), STEPS[step]
        server, port = self.serve(sample, "--timeout", TIMEOUT)
        sides = {"server": server}

        def change(role, line):
            if role == victim and not caught.is_set() and line.startswith(catch):
                if step != "during":
                    strike(sides[victim], sent)
                caught.set()
                return line if passes else b""
            # What it has said after that line, before it was struck, is lost, too.
            lost = role == victim and caught.is_set() and step != "during"
            return b"" if lost else line

        more = ["-n", 1000000] if step == "during" else []
        relay = Relay(sample, port, change, "--timeout", TIMEOUT, *more)
        sides["client"] = relay.client
        survivor = "client" if victim == "server" else "server"
        with relay:
            self.assertTrue(caught.wait(100), f"{sample}: no {catch}")
            if step == "during":
                time.sleep(1)
                strike(sides[victim], sent)
            began = time.monotonic()
            if sample == "03_read" and (step, victim, sent) == LENDER_HANGS:
                # Its NIC goes on answering: no client notices that nobody is at home.
                time.sleep(TIMEOUT / 2)
                self.assertIsNone(sides[survivor].poll())
                sent = signal.SIGKILL
                strike(sides[victim], sent)
            ended = end(sides[survivor])
            took = time.monotonic() - began
            sides[victim].kill()
            end(sides[victim])
        reason = "|".join(reasons(sample, step, victim, sent))
        self.check_failed(ended, sample, survivor, reason)
        self.assertLess(took, 28, ended)
        socket.create_server(("", int(port))).close()  # the port is free at once

    def test_at_each_step(self):
        before = rdma_resources()
        signals = (signal.SIGKILL, signal.SIGSTOP)
        cases = list(itertools.product(KINDS, STEPS, ("server", "client"), signals))
        cases += itertools.product(OWN, ("during",), ("server", "client"), signals)
        with ThreadPoolExecutor(8) as pool:  # they wait most of the time
            outcomes = [pool.submit(self.case, *case) for case in cases]
        for case, outcome in zip(cases, outcomes):
            with self.subTest(case=case):
                outcome.result()
        self.assertEqual(rdma_resources(), before)  # nothing of ours is left
        print(f"ok - dead: {len(cases)} cases of a dead or stuck peer", flush=True)
