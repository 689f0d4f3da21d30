# SPDX-License-Identifier: BSD-2-Clause
"""10_srq: many clients at one server; some die, hang or lie, and the others do not notice."""
import glob
import os
import random
import re
import signal
import time

from pairs import MASK, PairTest, fnv1a, messages
from protocol import hello
from samples import ROOT, end, ran, read, run, start

SAMPLE, SIZE, BURST, RECEIVES = "10_srq", 1024, 8, 128


def rnr_naks():
    return sum(
        int(read(path)) for path in glob.glob("/sys/class/infiniband/*/ports/1/hw_counters/*rnr*")
    )


def memory(side):
    line = re.search(r"(?m)^MEMORY srq=(\d+) own=(\d+) refills=(\d+)$", side.out)
    assert line, side
    return tuple(map(int, line.groups()))


def line(clients, gid="::ffff:10.0.0.1"):
    return hello(SAMPLE, f",clients={clients}", size=SIZE, iters=5, gid=gid, qpn=0x7FFFF0)


class SrqTest(PairTest):
    def begin(self, *args):
        server, port = self.serve(SAMPLE, *args)
        return port, server

    def client(self, port, clients, *args):
        return start(SAMPLE, "-p", port, "--clients", clients, *args, "10.0.0.1")

    def served(self, client, seed, iters):
        ended = end(client)
        self.assertEqual((ended.status, ended.err), (0, ""), ended)
        self.check_result(ended, SAMPLE, "client", "PASS")
        digest = fnv1a(messages(iters, SIZE, seed))
        got = ended.result["bytes"], ended.result["digest"]
        self.assertEqual(got, (str(SIZE * iters), f"{digest:016x}"), ended)
        return digest

    def lost(self, server, *counts):
        """The server has lost clients, after so many messages each (None: whatever)."""
        server = end(server)
        self.assertEqual(server.status, 1, server)
        self.check_result(server, SAMPLE, "server", "FAIL")
        told = re.findall(r"QPN 0x[0-9a-f]{6} failed after (\d+) messages\n", server.err)
        self.assertEqual(len(told), len(counts), server)
        for count, number in zip(sorted(map(int, told)), counts):
            self.assertIn(number, (None, count), server)
        return server

    def several(self, works, *mode):
        """Clients (iters, seed) that all pass. Returns the server's MEMORY."""
        naks = rnr_naks()
        port, server = self.begin("--timeout", 300, *mode)
        clients = [
            self.client(port, len(works), "-n", iters, "-S", seed, "--timeout", 300)
            for iters, seed in works
        ]
        digest = 0
        for client, (iters, seed) in zip(clients, works):
            digest ^= self.served(client, seed, iters)
        server = end(server)
        self.assertEqual((server.status, server.err), (0, ""), server)
        self.check_result(server, SAMPLE, "server", "PASS")
        self.assertEqual(server.result["digest"], f"{digest:016x}")
        self.assertEqual(server.result["bytes"], str(SIZE * sum(iters for iters, _ in works)))
        self.assertEqual(rnr_naks(), naks)  # a client sends only what it has a receive for
        return memory(server)


class Pairs(SrqTest):
    def test_iters_and_seeds(self):
        for iters, seed in ((1, 0), (7, 5), (8, MASK), (80, 1), (1000, 3)):
            data = messages(iters, SIZE, seed)
            server, _ = self.passes(SAMPLE, "-n", iters, "--seed", seed, data=data)
            shared, own, refills = memory(server)
            self.assertEqual((shared, own), (RECEIVES * SIZE, BURST * SIZE))
            # Each time more than half of the receives are used up.
            most, least = iters // (RECEIVES // 2), iters // RECEIVES
            self.assertTrue(least <= refills <= most, server)

    def test_three_clients_with_other_work_each(self):
        for mode in ((), ("--own",)):
            own, refills = self.several([(100, 1), (33, 2), (8, 3)], *mode)[1:]
            self.assertEqual((own, bool(refills)), (3 * BURST * SIZE, not mode))


class Dying(SrqTest):
    def join(self, port, clients):
        """A stranger that has joined by TCP."""
        tcp = self.meet(port)
        tcp.sendall(line(clients))
        self.assertRegex(tcp.recv(4096), b"^hello-verbs/2 sample=10_srq ")
        return tcp

    def test_gone_or_lying_at_each_step(self):
        for said in (b"", b"sync go\n", b"sync ready\n", b"sync ready\nsync done\nverdict PASS\n"):
            port, server = self.begin()
            client = self.client(port, 2, "-n", 20)
            with self.join(port, 2) as stranger:
                stranger.sendall(said)
            self.served(client, 1, 20)
            self.lost(server, 0)

    def test_one_that_sends_without_a_credit(self):
        """A message more than it has asked for (builds.py makes it): it alone is dropped."""
        port, server = self.begin()
        client = self.client(port, 2, "-n", 20)
        greedy = os.path.join(ROOT, "build", "greedy")
        ran([greedy, "-p", port, "--clients", "2", "-n", "8", "10.0.0.1"])
        self.served(client, 1, 20)
        server = end(server)
        self.assertRegex(server.err, "server: QPN 0x[0-9a-f]{6} sends without a credit\n")
        self.assertEqual(server.status, 1, server)

    def test_hung_in_the_middle(self):
        """It costs the server its patience at most, and the others nothing."""
        port, server = self.begin("--timeout", 6)
        doomed = self.client(port, 2, "-n", 1000000, "--timeout", 60)
        other = self.client(port, 2, "-n", 1000, "--timeout", 60)
        for process in (doomed, other):
            process.stdout.readline()
        time.sleep(0.5)
        doomed.send_signal(signal.SIGSTOP)
        self.served(other, 1, 1000)
        self.lost(server, None)
        doomed.kill()
        end(doomed)

    def test_the_server_dies(self):
        port, server = self.begin()
        client = self.client(port, 1, "-n", 1000000, "--timeout", 6)
        client.stdout.readline()
        time.sleep(1)
        server.kill()
        end(server)
        reason = (
            r"completion of the SEND: (transport retry counter exceeded|remote operation error) "
            "|no completion of the permission in 6 s"
        )
        self.check_failed(end(client), SAMPLE, "client", reason)


class Crowd(SrqTest):
    def test_ten_of_sixty_four_are_killed_and_others_are_wrong(self):
        """Those that are wrong are refused; the server loses the ten alone."""
        dice = random.Random(10)
        port, server = self.begin("--timeout", 300)
        doomed = sorted(dice.sample(range(64), 10))

        def come(numbers):
            work = {k: ["-n", 1000000 if k in doomed else 4, "-S", 100 * k] for k in numbers}
            return [self.client(port, 64, *work[k], "--timeout", 300) for k in numbers]

        clients = come(range(32))
        # before all are there: then nobody listens any more
        for gid, said in (
            ("fe80::1234", b"ibv_modify_qp to RTR with your GID"),
            ("::", b"only one side has a GID"),
        ):
            with self.meet(port) as tcp:
                tcp.sendall(line(64, gid))
                self.assertIn(said, tcp.recv(4096))
        clients += come(range(32, 64))
        for client in clients:  # its first line comes before it has joined
            client.stdout.readline()
        for k in doomed:
            time.sleep(dice.random())
            clients[k].kill()
        for k, client in enumerate(clients):
            if k in doomed:
                self.assertEqual(end(client).status, -signal.SIGKILL)
            else:
                self.served(client, 100 * k, 4)
        server = self.lost(server, *[None] * 10)
        self.assertEqual(server.err.count("refused a client: "), 2)


class Refused(SrqTest):
    def test_who_is_refused_leaves_nothing(self):
        """Neither its timeout nor its clients= nor its place: the server goes on to wait; and so after
        one that leaves before the answer."""
        port, server = self.begin()
        args = ["-g", 0, "--timeout", 1, "--clients", 5, "127.0.0.1"]
        bad = run(SAMPLE, "-p", port, *args)
        reason = "the server refused: ibv_modify_qp to RTR with your GID: Invalid argument"
        self.check_failed(bad, SAMPLE, "client", reason)
        self.assertIn("leave -g out", bad.err)
        with self.meet(port) as tcp:
            tcp.sendall(line(3))
            tcp.shutdown(1)
            self.assertEqual(tcp.recv(4096), b"")
        time.sleep(3)
        first = self.client(port, 2)
        first.stdout.readline()
        self.check_failed(run(SAMPLE, "-p", port, *args), SAMPLE, "client", "the server refused: ")
        self.served(self.client(port, 2), 1, 80)
        self.served(first, 1, 80)
        self.assertEqual(end(server).status, 0)
