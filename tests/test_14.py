#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""14_recover: connections that break in every way, and streams that arrive whole. Runs where the RDMA
device is; Wire on two hosts. (What it shares with the other samples is in test_pairs.py and the like.)"""
import collections
import contextlib
import errno
import glob
import os
import random
import re
import subprocess
import tempfile
import time
import unittest

from pairs import IN_VM, PairTest, messages, ports
from samples import LIMIT, ROOT, Ended, end, main, path, start, wait_for_listener

NAME = "14_recover"
SIZE, SEED = 64, 7
THERE = [os.path.join(ROOT, "testenv", "there.sh")]
SAID = {  # what the program says when it breaks its own connection
    "wrong rkey": "a WRITE with a wrong rkey goes first",
    "too long": "it is sent with a byte too many",
    "own QP": "the QP goes to ERR",
    "no receive": "from now on no receive is posted",
}
OUTSIDE = {
    "down": ("ip link set dummy0 down", "ip link set dummy0 up"),
    "address": ("ip addr del 10.0.0.1/24 dev dummy0", "ip addr add 10.0.0.1/24 dev dummy0"),
}
EVENTS = {"down": ("port error", "port active"), "address": ("GID table change",)}
FAIL_VERBS = os.environ.get("HV_FAIL_VERBS", "")
UNDO = {  # what undoes a call, last first
    "ibv_open_device": "ibv_close_device",
    "ibv_alloc_pd": "ibv_dealloc_pd",
    "ibv_create_cq": "ibv_destroy_cq",
    "ibv_reg_mr": "ibv_dereg_mr",
    "ibv_create_qp": "ibv_destroy_qp",
}


def resources():
    return subprocess.run(
        ["rdma", "resource", "show"], capture_output=True, text=True, check=True
    ).stdout


def gids():
    for path_of_gid in glob.glob("/sys/class/infiniband/rxe0/ports/1/gids/*"):
        with contextlib.suppress(OSError), open(path_of_gid, encoding="ascii") as file:
            yield file.read()


class Stream(PairTest):
    """One stream: a server, and clients one after another."""

    def begin(self, iters, every, address="127.0.0.1", there=()):
        self.port, self.address = str(next(ports)), address
        self.iters, self.every = iters, every
        self.log = tempfile.TemporaryFile("w+")
        self.done = collections.Counter()
        self.server = start(NAME, "-p", self.port, "--timeout", "120", there=there)
        if there:
            subprocess.run(
                [
                    *there,
                    "sh",
                    "-c",
                    f"until grep -q :{int(self.port):04X} /proc/net/tcp6; do sleep " "0.1; done",
                ],
                check=True,
                timeout=LIMIT,
            )
        else:
            wait_for_listener(self.port, self.server)
        self.client = self.start_client()

    def start_client(self):
        return subprocess.Popen(
            [
                path(NAME),
                "-p",
                self.port,
                "--timeout",
                "120",
                "-n",
                str(self.iters),
                "-s",
                str(SIZE),
                "--seed",
                str(SEED),
                "--break",
                str(self.every),
                self.address,
            ],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )

    def progress(self):
        """The last message that a client has spoken of."""
        with open(f"/proc/self/fd/{self.log.fileno()}", encoding="utf-8") as file:
            return max(map(int, re.findall(r"message (\d+)", file.read())), default=0)

    def kill_the_client(self):
        self.client.kill()
        self.client.wait()
        self.client = self.start_client()

    def finish(self):
        """All messages are there, once each, in order. Returns what the server and all clients said."""
        self.client.wait(LIMIT)
        server = end(self.server)
        self.log.seek(0)
        client = self.log.read()
        both = f"server: {server}\nclients: {client}"
        self.assertEqual((server.status, self.client.returncode), (0, 0), both)
        # A client may be killed between connecting and its line.
        self.assertRegex(
            server.err, r"\A(14_recover server: refused a client: the peer [^\n]*\n)*\Z", both
        )
        last = client.splitlines()[-1]
        self.assertIn("role=client status=PASS", last)
        ended = Ended(0, last + "\n", "")
        self.both_pass(NAME, Ended(0, server.out, ""), ended, messages(self.iters, SIZE, SEED))
        for kind, words in SAID.items():
            self.done[kind] += (server.out + client).count(words)
        self.connections = int(re.search(r"over (\d+) connections?\n", server.out)[1])
        return server.out, client


class Breaks(Stream):
    def test_none(self):
        self.begin(300, 0)
        server, client = self.finish()
        self.assertEqual(self.done.total(), 0)
        self.assertIn("sent 300 messages", client)
        self.assertIn("received 300 messages", server)

    def test_each_kind_of_its_own(self):
        self.begin(300, 5)
        self.finish()
        for kind in SAID:
            self.assertGreater(self.done[kind], 2, self.done)
        self.assertGreater(self.connections, 20)

    def test_sizes(self):
        for size, iters in ((1, 50), (1023, 50), (100000, 20)):
            self.passes(
                NAME,
                "-s",
                str(size),
                "-n",
                str(iters),
                "--break",
                "4",
                "--seed",
                "3",
                data=messages(iters, size, 3),
            )

    def test_a_client_killed_and_started_again(self):
        self.begin(4000, 0)
        for _ in range(4):
            time.sleep(0.15)
            self.kill_the_client()
        self.finish()
        self.assertGreater(self.connections, 2)

    @unittest.skipUnless(IN_VM, "takes the device's address away")
    def test_events(self):
        for kind, (broken, mended) in OUTSIDE.items():
            with self.subTest(kind=kind):
                self.begin(4000, 0)
                time.sleep(0.1)
                subprocess.run(broken.split(), check=True)
                time.sleep(0.1)
                subprocess.run(mended.split(), check=True)
                server, client = self.finish()
                for said in EVENTS[kind]:
                    self.assertIn(f"event: {said}\n", client)
                    self.assertIn(f"event: {said}\n", server)


@unittest.skipUnless(IN_VM, "takes the device's address away")
class Drawn(Stream):
    """Breaks of seven kinds, four by the program itself (--break), three from outside."""

    def wait_for_the_address(self):
        """Who starts needs it at once. The kernel takes it out of the GID table, and puts it back, a little later."""
        time.sleep(0.5)
        while "ffff:0a00:0001" not in "".join(gids()):
            time.sleep(0.05)

    def outside(self, kind):
        if kind == "killed":
            self.wait_for_the_address()
            if self.progress() > self.iters - 300:
                return  # it has gone on meanwhile
            self.kill_the_client()
        else:
            broken, mended = OUTSIDE[kind]
            subprocess.run(broken.split(), check=True)
            time.sleep(0.05)
            subprocess.run(mended.split(), check=True)
        self.done[kind] += 1

    def draw(self, breaks):
        random.seed(os.environ.get("HV_SOME"))
        before, connections, total = resources(), 0, collections.Counter()
        while connections < breaks:
            self.wait_for_the_address()
            self.begin(2000, 20)
            while self.client.poll() is None and connections < breaks:
                time.sleep(random.uniform(0.05, 0.3))
                if self.progress() > self.iters - 300:
                    break  # who is killed between done and its verdict would take the server along
                self.outside(random.choice(("killed", "down", "address")))
            self.finish()
            connections += self.connections - 1
            total += self.done
        deadline = time.monotonic() + 10
        while resources() != before and time.monotonic() < deadline:
            time.sleep(0.2)
        self.assertEqual(resources(), before)
        print(f"ok - 14: {connections} breaks: {dict(total)}; 0 lost, 0 doubled", flush=True)
        self.assertEqual(len(total), 7, total)

    def test_a_hundred(self):
        self.draw(100)

    def test_a_thousand(self):
        self.draw(1000)


class Ladder(PairTest):
    """Each call that recover.c itself makes fails once: what was made before is undone, last first."""

    def undone(self, trace, failing):
        """What is wrong with the order in which it made and undid things, or None."""
        made, counted = [], collections.Counter()
        for call in trace:
            counted[call] += 1
            if call == "ibv_reg_mr" and made and made[-1] == call:
                continue  # one of its two names calls the other
            if call in UNDO and (call, counted[call]) != failing:
                made.append(call)
            if call in UNDO.values():
                if not made or UNDO[made[-1]] != call:
                    return f"{call} comes while {made} stand"
                made.pop()
        return f"left: {made}" if made else None

    def inject(self, role, name, number, error, *args):
        port = str(next(ports))
        with tempfile.TemporaryDirectory() as directory:
            trace = os.path.join(directory, "trace")
            env = {
                **os.environ,
                "LD_PRELOAD": FAIL_VERBS,
                "HV_FAIL": f"{name}:{number}:{error}",
                "HV_TRACE": trace,
                "ASAN_OPTIONS": "verify_asan_link_order=0",
            }
            envs = {"server": None, "client": None, role: env}
            server = start(NAME, "-p", port, "--timeout", "3", env=envs["server"])
            wait_for_listener(port, server)
            client = start(
                NAME,
                "-p",
                port,
                "--timeout",
                "3",
                "-s",
                "64",
                *args,
                "127.0.0.1",
                env=envs["client"],
            )
            sides = {"client": end(client), "server": end(server)}
            with open(trace, encoding="ascii") as file:
                calls = [line.split()[0] for line in file]
        both = f"server: {sides['server']}\nclient: {sides['client']}\ncalls: {calls}"
        self.check_failed(
            sides[role], NAME, role, rf"{NAME} {role}: {name}[^:]*: {re.escape(os.strerror(error))}"
        )
        self.assertIsNone(self.undone(calls, (name, number)), both)
        return sides

    def test_each_call(self):
        before = resources()
        for role, name, number, error in (
            ("client", "ibv_alloc_pd", 1, errno.ENOMEM),
            ("client", "ibv_create_cq", 1, errno.ENOMEM),
            ("client", "ibv_reg_mr", 1, errno.ENOMEM),
            ("client", "ibv_create_qp", 1, errno.ENOMEM),
            ("server", "ibv_post_recv", 1, errno.ENOMEM),
            ("server", "ibv_post_recv", 11, errno.ENOMEM),
            ("client", "ibv_post_send", 1, errno.EINVAL),
            ("client", "ibv_post_send", 13, errno.EINVAL),
            ("client", "ibv_poll_cq", 1, errno.EIO),
            ("server", "ibv_poll_cq", 1, errno.EIO),
            ("client", "ibv_modify_qp", 2, errno.EINVAL),
            ("server", "ibv_modify_qp", 2, errno.EINVAL),
            ("client", "ibv_modify_qp", 4, errno.EINVAL),
            ("server", "ibv_modify_qp", 5, errno.EINVAL),
            ("client", "ibv_destroy_qp", 1, errno.EBUSY),
            ("client", "ibv_dereg_mr", 1, errno.EBUSY),
            ("client", "ibv_destroy_cq", 1, errno.EBUSY),
            ("client", "ibv_dealloc_pd", 1, errno.EBUSY),
        ):
            with self.subTest(role=role, name=name, number=number):
                self.inject(role, name, number, error, "--break", "0")
        self.assertEqual(resources(), before)

    @unittest.skipUnless(IN_VM, "takes the device's address away")
    def test_an_event_that_cannot_be_read(self):
        down = subprocess.Popen(
            "sleep 1; ip link set dummy0 down; sleep 1; ip link set dummy0 up", shell=True
        )
        self.inject("client", "ibv_get_async_event", 1, errno.EIO, "--break", "0", "-n", "100000")
        down.wait()

    def test_a_completion_with_an_error(self):
        """The client asks where to go on: that message had arrived."""
        server, client = self.start_pair(
            NAME,
            "--break",
            "0",
            "-n",
            "50",
            env={
                **os.environ,
                "LD_PRELOAD": FAIL_VERBS,
                "HV_FAIL": "completion:5:21",
                "ASAN_OPTIONS": "verify_asan_link_order=0",
            },
        )
        client, server = end(client), end(server)
        self.both_pass(NAME, server, client, messages(50, 4096, 1))
        self.assertIn("over 2 connections", client.out)


class Wire(Stream):
    """On two hosts, with a wire that is cut for longer than all retries, or loses packets."""

    def wire(self, what):
        subprocess.run(
            [
                "tc",
                "qdisc",
                "replace",
                "dev",
                "eth0",
                "root",
                "netem",
                "limit",
                "10000",
                *what.split(),
            ],
            check=True,
        )
        self.addCleanup(subprocess.run, ["tc", "qdisc", "del", "dev", "eth0", "root"], check=False)

    def test_cut(self):
        self.begin(20000, 0, "10.0.1.1", THERE)
        time.sleep(1)
        self.wire("loss 100%")
        time.sleep(10)
        self.wire("delay 0")
        _, client = self.finish()
        self.assertIn("transport retry counter exceeded", client)
        self.assertGreater(self.connections, 1)

    def test_interface_down(self):
        self.begin(20000, 0, "10.0.1.1", THERE)
        time.sleep(1)
        subprocess.run(["ip", "link", "set", "eth0", "down"], check=True)
        time.sleep(3)
        subprocess.run(["ip", "link", "set", "eth0", "up"], check=True)
        self.finish()
        self.assertGreater(self.connections, 1)

    def test_loss(self):
        self.wire("loss 5%")
        self.begin(300, 30, "10.0.1.1", THERE)
        self.finish()


if __name__ == "__main__":
    main()
