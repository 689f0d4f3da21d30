# SPDX-License-Identifier: BSD-2-Clause
"""14_recover: connections that break in every way, and streams that arrive whole. Runs where the RDMA
device is; Wire on two hosts. (What it shares with the other samples is in test_pairs.py and the like.)"""
import collections
import glob
import os
import random
import re
import subprocess
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from pairs import IN_VM, PairTest, messages, ports
from protocol import hello
import samples
from samples import LIMIT, ROOT, Ended, end, line_from, path, read, start, wait_for_listener
from test_faults import Faults, calls_in, calls_of, error_of, preloaded, resources

NAME = "14_recover"
SIZE, SEED = 64, 7
PORT = "/sys/class/infiniband/*/ports/1"
THERE = [os.path.join(ROOT, "testenv", "there.sh")]
SAID = {  # what the program says when it breaks its own connection
    "wrong rkey": "a WRITE with a wrong rkey goes first",
    "too long": "it is sent with a byte too many",
    "own QP": "the QP goes to ERR",
    "no receive": "from now on no receive is posted",
}
OUTSIDE = {  # how it is broken and mended from outside
    "down": ("ip link set dummy0 down", "ip link set dummy0 up"),
    "address": ("ip addr del 10.0.0.1/24 dev dummy0", "ip addr add 10.0.0.1/24 dev dummy0"),
}
EVENTS = {"down": ("port error", "port active"), "address": ("GID table change",)}
UNDO = {  # what undoes a call
    "ibv_open_device": "ibv_close_device",
    "ibv_alloc_pd": "ibv_dealloc_pd",
    "ibv_create_cq": "ibv_destroy_cq",
    "ibv_reg_mr": "ibv_dereg_mr",
    "ibv_create_qp": "ibv_destroy_qp",
}
# A GID that cannot be read is not this side's: the loop looks again. An event comes by chance. The last returns a text.
ELSEWHERE = {"ibv_query_gid_ex", "ibv_get_async_event", "ibv_event_type_str"}


def in_sysfs(what):
    found = []
    for name in glob.glob(f"{PORT}/{what}"):
        try:
            found.append(read(name))
        except OSError:  # an entry of the GID table that is free
            pass
    return found


def packets():
    """That the device has sent so far."""
    return sum(map(int, in_sysfs("hw_counters/sent_pkts")))


def whole():
    """The port is up, and has the address's GID."""
    return "ACTIVE" in "".join(in_sysfs("state")) and "ffff:0a00:0001" in "".join(
        in_sysfs("gids/*")
    )


def settled():
    """It is, and stays so: the kernel works such changes off one after the other."""
    first = whole()
    time.sleep(0.3)
    return first and whole()


def wait_until(holds, what):
    if not samples.wait_until(holds):
        raise AssertionError(f"not in {LIMIT} s: {what}")


def command(words):
    subprocess.run(words.split(), check=True)


class Stream(PairTest):
    """One stream: a server, and clients one after another."""

    def begin(self, iters, every, address="127.0.0.1", there=()):
        self.port, self.address = str(next(ports)), address
        self.iters, self.every = iters, every
        self.log = tempfile.TemporaryFile("w+")
        self.done = collections.Counter()
        self.server = start(NAME, "-p", self.port, "--timeout", "120", there=there)
        if there:
            listens = f"until grep -q :{int(self.port):04X} /proc/net/tcp6; do sleep 0.1; done"
            subprocess.run([*there, "sh", "-c", listens], check=True, timeout=LIMIT)
        else:
            wait_for_listener(self.port, self.server)
        self.start_client()

    def start_client(self):
        self.sent = packets()
        options = f"-p {self.port} --timeout 120 -n {self.iters} -s {SIZE} --seed {SEED}"
        self.client = subprocess.Popen(
            ["stdbuf", "-oL", path(NAME), *options.split(), "--break", str(self.every)]
            + [self.address],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )

    def said(self):
        """What all clients have printed so far."""
        return read(f"/proc/self/fd/{self.log.fileno()}")

    def wait_for_messages(self):
        """Until this client has sent some."""
        wait_until(lambda: packets() > self.sent + 100, "messages")
        self.assertIsNone(self.client.poll(), "the stream has ended before it was broken")

    def kill_the_client(self):
        self.client.kill()
        self.client.wait()
        self.start_client()

    def finish(self):
        """All messages are there, once each, in order. Returns what the server and all clients said."""
        self.client.wait(LIMIT)
        server, client = end(self.server), self.said()
        both = f"server: {server}\nclients: {client}"
        self.assertEqual((server.status, self.client.returncode), (0, 0), both)
        # A client may be killed between connecting and its line.
        refused = r"\A(14_recover server: refused a client: the peer [^\n]*\n)*\Z"
        self.assertRegex(server.err, refused, both)
        last = client.splitlines()[-1]
        self.assertIn("role=client status=PASS", last)
        ended = Ended(0, last + "\n", "")
        data = messages(self.iters, SIZE, SEED)
        self.both_pass(NAME, Ended(0, server.out, ""), ended, data)
        for kind, words in SAID.items():
            self.done[kind] += (server.out + client).count(words)
        self.connections = int(re.search(r"over (\d+) connections?\n", server.out)[1])
        return server.out, client


class Breaks(Stream):
    def test_sizes(self):
        for size, iters in ((1, 50), (1023, 50), (100000, 20)):
            options = f"-s {size} -n {iters} --break 4 --seed 3".split()
            self.passes(NAME, *options, data=messages(iters, size, 3))

    @unittest.skipUnless(IN_VM, "takes the device's address away")
    def test_events(self):
        for kind, (broken, mended) in OUTSIDE.items():
            self.begin(3000, 0)
            self.wait_for_messages()
            command(broken)
            wait_until(lambda: not whole(), broken)
            command(mended)
            wait_until(whole, mended)
            server, client = self.finish()
            for said in EVENTS[kind]:
                self.assertIn(f"event: {said}\n", client)
                self.assertIn(f"event: {said}\n", server)


class Strangers(PairTest):
    """Clients that are not the stream's."""

    def begin(self):
        self.server, self.port = self.serve(NAME, "--timeout", 30)

    def say(self, more, size=64, iters=20, said=b""):
        """Says that, and goes away as soon as there is an answer."""
        with self.meet(self.port) as tcp:
            tcp.sendall(hello(NAME, more, size=size, iters=iters, qpn=0x7FFFFF))
            answer = line_from(tcp).decode()
            tcp.sendall(said)
            return answer

    def served(self, *refused):
        """The right client comes, after these reasons."""
        options = f"-p {self.port} --timeout 30 -s 64 -n 20 --break 0 127.0.0.1".split()
        client, server = end(start(NAME, *options)), end(self.server)
        err = "".join(f"{NAME} server: refused a client: {reason}\n" for reason in refused)
        self.assertEqual(server.err, err)
        self.both_pass(NAME, Ended(0, server.out, ""), client, messages(20, 64, 1))

    def test_another_stream(self):
        """While one is under way. Its client goes, is waited for, and comes again."""
        self.begin()
        self.assertIn(" work=size=64,iters=20,seed=1,", self.say(",break=0"))
        another = "another stream is not at its end"
        for size, iters, every in ((65, 20, "0"), (64, 21, "0"), (64, 20, "1")):
            answer = self.say(f",break={every}", size, iters)
            self.assertEqual(answer, f"hello-verbs/2 error={another}\n")
        self.served(*3 * [another])

    def test_gone_at_each_step(self):
        """None of these takes the server along, and it waits for the next."""
        for said in (b"", b"sync ready\n", b"sync ready\nsync next=0\n"):
            self.begin()
            self.say(",break=0", said=said)
            self.served()

    def test_a_number_that_cannot_be(self):
        for number in ("1", "21", "x", ""):
            self.begin()
            with self.meet(self.port) as tcp:
                tcp.sendall(hello(NAME, ",break=0", size=64, iters=20, qpn=0x7FFFFF))
                tcp.sendall(f"sync ready\nsync next={number}\n".encode())
                said = "a completion of message 0, which never came" if number == "1" else "sent '"
                self.check_failed(end(self.server), NAME, "server", said, hint=False)


@unittest.skipUnless(IN_VM, "takes the device's address away")
class Drawn(Stream):
    """Breaks of seven kinds, four by the program itself (--break), three from outside."""

    def outside(self, kind):
        if kind == "killed":
            self.kill_the_client()
        else:
            broken, mended = OUTSIDE[kind]
            command(broken)
            wait_until(lambda: not whole(), broken)  # the kernel takes its time
            time.sleep(random.uniform(0, 0.1))
            command(mended)
            wait_until(settled, mended)  # who starts needs it at once
        self.done[kind] += 1

    def test_many(self):
        random.seed(os.environ.get("HV_SOME"))
        before, connections, total = resources(), 0, collections.Counter()
        while connections < 100 or len(total) < 7:
            kinds = ["killed", *OUTSIDE]
            self.begin(1000, 20)
            # Broken before it has looked for a device, it would have none: that is no break.
            wait_until(
                lambda: packets() > self.sent + 10 or self.client.poll() is not None, "begun"
            )
            time.sleep(random.uniform(0, 0.2))
            spoken = [int(number) for number in re.findall(r"message (\d+)", self.said())]
            # Killed between done and its verdict, it would take the server along.
            if self.client.poll() is None and max(spoken, default=0) < self.iters - 500:
                self.outside(min(kinds, key=lambda kind: (total[kind], random.random())))
            self.finish()
            connections += self.connections - 1
            total += self.done
        wait_until(lambda: resources() == before, "nothing is left")
        print(f"ok - 14: {connections} breaks: {dict(total)}; 0 lost, 0 doubled", flush=True)


class Ladder(Faults):
    """Each call from ibv_alloc_pd on fails once: what was made before is undone, last first."""

    OPTIONS = "--timeout 3 -s 64 -n 30 --break 6 --seed 2"

    def undone(self, trace, failing=None):
        """What is wrong with the order in which it made and undid things, or None."""
        made, counted = [], collections.Counter()
        for call in trace:
            counted[call] += 1
            if call in UNDO and (call, counted[call]) != failing:
                made.append(call)
            if call in UNDO.values():
                if not made or UNDO[made[-1]] != call:
                    return f"{call} comes while {made} stand"
                made.pop()
        return f"left: {made}" if made else None

    def pair(self, role, **env):
        """Both sides' ends, and the calls that this one made: name, place in the code."""
        with tempfile.TemporaryDirectory() as directory:
            envs = {role + "_env": preloaded(HV_TRACE=f"{directory}/trace", **env)}
            sides = super().pair(NAME, (["--timeout", 3], self.OPTIONS.split()), **envs)
            calls = calls_of(f"{directory}/trace")
        # One of the two names of ibv_reg_mr calls the other.
        names = [name for name, _ in calls]
        twice = [i for i, pair in enumerate(zip(names, names[1:])) if set(pair) == {"ibv_reg_mr"}]
        return sides, [call for i, call in enumerate(calls) if i not in twice]

    def sites(self, role):
        """The first call from each place in the code: name, its number among those of the name."""
        sides, calls = self.pair(role)
        self.both_pass(NAME, sides["server"], sides["client"], messages(30, 64, 2))
        self.assertIsNone(self.undone([name for name, _ in calls]))
        numbers, seen, found = collections.Counter(), set(), []
        for name, place in calls:
            numbers[name] += 1
            begun = numbers["ibv_alloc_pd"] > 0
            if begun and (name, place) not in seen and name.startswith("ibv_"):
                found.append((role, name, numbers[name]))
            seen.add((name, place))
        return found

    def inject(self, site):
        """What is wrong with the outcome, or None."""
        role, name, number = site
        error = 5 if name == "ibv_poll_cq" else error_of(name)
        for _ in range(8):
            sides, calls = self.pair(role, HV_FAIL=f"{name}:{number}:{error}")
            if sides[role].status != 0 or name != "ibv_poll_cq":
                break
            number = number * 2 // 3  # how often it polls is chance
        wrong = self.undone([name for name, _ in calls], (name, number))
        try:
            told = rf"(?m)^{NAME} {role}: {name}[^:]*: {re.escape(os.strerror(error))}"
            self.check_failed(sides[role], NAME, role, told, hint=False)
            self.assertIsNone(wrong)
        except AssertionError as why:
            return f"{site}: {why}\n" + "\n".join(f"{r}: {s}" for r, s in sides.items())
        return None

    def test_each_call(self):
        before = resources()
        sites = self.sites("client") + self.sites("server")
        with ThreadPoolExecutor(6) as pool:  # most of the time is waiting for time-outs
            for site, wrong in zip(sites, pool.map(self.inject, sites)):
                if wrong:
                    with self.subTest(site=site):
                        self.fail(wrong)
        wait_until(lambda: resources() == before, "nothing is left")
        self.assertEqual(set(calls_in(NAME)) - {name for _, name, _ in sites}, ELSEWHERE)
        steps = [role for role, name, _ in sites if name == "ibv_modify_qp"]
        # INIT, RTR, RTS, ERR, RESET; the client's mishap.
        self.assertEqual((steps.count("server"), steps.count("client")), (5, 6))
        print(f"ok - 14: {len(sites)} failures injected, all undone", flush=True)


class Wire(Stream):
    """On two hosts, with a wire that is cut for longer than all retries, or loses packets."""

    def wire(self, what):
        command(f"tc qdisc replace dev eth0 root netem limit 10000 {what}")
        undo = "tc qdisc del dev eth0 root".split()
        self.addCleanup(subprocess.run, undo, check=False, stderr=subprocess.DEVNULL)

    def test_cut(self):
        self.begin(5000, 0, "10.0.1.1", THERE)
        self.wait_for_messages()
        self.wire("loss 100%")
        exceeded = "transport retry counter exceeded"
        wait_until(lambda: exceeded in self.said(), exceeded)
        self.wire("delay 0")
        self.finish()
        self.assertEqual(self.connections, 2)

    def test_loss(self):
        self.wire("loss 5%")
        self.begin(300, 30, "10.0.1.1", THERE)
        self.finish()
