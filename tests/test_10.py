# SPDX-License-Identifier: BSD-2-Clause
"""10_srq: many clients at one server; some die, hang or lie, and the others do not notice. Both with the
shared receive queue and, in the classes Own..., with a receive queue for each client."""
import glob
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

from pairs import IN_VM, PairTest, fnv1a, pattern, ports
from samples import ROOT, end, ran, run, start, wait_for_listener

sys.path.insert(0, os.path.join(ROOT, "judge"))
from memory import write  # noqa: E402
from probes import resolved  # noqa: E402
from trace import TRACE, Nic  # noqa: E402

SAMPLE, SIZE, BURST, RECEIVES = "10_srq", 1024, 8, 128
MADE = (
    "p:made rxe_create_qp srq={ib_qp_init_attr.srq}($arg2):x64 "
    "receives={ib_qp_init_attr.cap+ib_qp_cap.max_recv_wr}($arg2):u32"
)
WORK = "size=1024,iters=5,seed=1,timeout=10,clients={}"


def messages(seed, iters):
    return b"".join(pattern(SIZE, seed + i) for i in range(iters))


def rnr_naks():
    total = 0
    for path in glob.glob("/sys/class/infiniband/*/ports/1/hw_counters/*rnr*"):
        with open(path, encoding="ascii") as file:
            total += int(file.read())
    return total


def objects(kind, server):
    """What the kernel holds for this server: "qp", "srq", "mr"."""
    listed = ran(["rdma", "-d", "-j", "resource", "show", kind], check=True).stdout
    return [each for each in json.loads(listed or "[]") if each.get("pid") == server.pid]


def memory(side):
    line = re.search(r"(?m)^MEMORY srq=(\d+) own=(\d+) refills=(\d+)$", side.out)
    assert line, side
    return tuple(map(int, line.groups()))


class SrqTest(PairTest):
    mode = ()  # options of each server

    def passes(self, sample, *client_args, server_args=(), data=None):
        return super().passes(
            sample, *client_args, server_args=[*self.mode, *server_args], data=data
        )

    def begin(self, *args):
        port = str(next(ports))
        server = start(SAMPLE, "-p", port, *self.mode, *args)
        wait_for_listener(port, server)
        return port, server

    def client(self, port, clients, *args):
        return start(SAMPLE, "-p", port, "--clients", str(clients), *args, "10.0.0.1")

    def served(self, ended, seed, iters):
        self.assertEqual((ended.status, ended.err), (0, ""), ended)
        self.check_result(ended, SAMPLE, "client", "PASS")
        digest = fnv1a(messages(seed, iters))
        self.assertEqual(
            (ended.result["bytes"], ended.result["digest"]),
            (str(SIZE * iters), f"{digest:016x}"),
            ended,
        )
        return digest

    def lost(self, server, *counts):
        """The server has lost clients, after so many messages each (None: whatever)."""
        server = end(server)
        self.assertEqual(server.status, 1, server)
        self.check_result(server, SAMPLE, "server", "FAIL")
        told = [
            int(n)
            for n in re.findall(r"QPN 0x[0-9a-f]{6} failed after (\d+) messages\n", server.err)
        ]
        self.assertEqual(len(told), len(counts), server)
        self.assertEqual(len(server.err.splitlines()), len(counts), server)
        for count, number in zip(sorted(told), counts):
            self.assertIn(number, (None, count), server)
        return server

    def fake(self, port, clients, *said):
        """Joins as a client by TCP, says that, and leaves; but None: stays."""
        tcp = socket.create_connection(("127.0.0.1", int(port)), timeout=100)
        tcp.sendall(
            f"hello-verbs/2 sample={SAMPLE} lid=0x0 qpn=0x7ffff0 psn=0x0 "
            "gid=::ffff:10.0.0.1 mtu=1024 addr=0x0 rkey=0x0 len=0 max_sge=1 rd_atomic=0 "
            f"work={WORK.format(clients)}\n".encode()
        )
        self.assertRegex(tcp.recv(4096), b"^hello-verbs/2 sample=10_srq ")
        for line in said:
            if line is None:
                return tcp
            tcp.sendall(line)
        tcp.close()
        return None

    def wrong(self, port, clients):
        """Comes in eight wrong ways, one after the other, and returns how many of them the server refuses."""
        line = (
            f"hello-verbs/2 sample={SAMPLE} lid=0x0 qpn=0x7ffff0 psn=0x0 gid=::ffff:10.0.0.1 mtu=1024 addr=0x0 "
            f"rkey=0x0 len=0 max_sge=1 rd_atomic=0 work={WORK.format(clients)}\n"
        )
        ways = (
            ("fe80::1234", "ibv_modify_qp to RTR with your GID"),
            ("::", "only one side has a GID"),
            ("2001:db8::7", "ibv_modify_qp to RTR with your GID"),
        )
        lines = [(line.replace("::ffff:10.0.0.1", gid), said) for gid, said in ways] + [
            (line.replace(SAMPLE, "02_send_recv"), "this side runs 10_srq"),
            (line.replace("size=1024", "size=4096"), "work= is malformed"),
            ("x" * 3000, "more than 1024 bytes"),
            (chr(7) * 9 + line, "printable"),
            ("", ""),
        ]
        for sent, said in lines:
            with socket.create_connection(("127.0.0.1", int(port)), timeout=100) as tcp:
                tcp.sendall(sent.encode())
                if said:
                    self.assertIn(said.encode(), tcp.recv(4096))
        return len(lines)

    def several(self, works):
        naks = rnr_naks()
        port, server = self.begin("--timeout", "300")
        clients = [
            self.client(port, len(works), "-n", str(iters), "-S", str(seed), "--timeout", "300")
            for iters, seed in works
        ]
        digest = 0
        for client, (iters, seed) in zip(clients, works):
            digest ^= self.served(end(client), seed, iters)
        server = end(server)
        self.assertEqual((server.status, server.err), (0, ""), server)
        self.check_result(server, SAMPLE, "server", "PASS")
        self.assertEqual(server.result["digest"], f"{digest:016x}")
        self.assertEqual(server.result["bytes"], str(SIZE * sum(iters for iters, _ in works)))
        self.assertEqual(rnr_naks(), naks)  # a client sends only what it has a receive for
        return memory(server)


class Pairs(SrqTest):
    def test_default(self):
        server, client = self.passes(SAMPLE, data=messages(1, 80))
        self.assertEqual(memory(server), (RECEIVES * SIZE, BURST * SIZE, 0 if self.mode else 1))
        self.assertEqual(memory(client)[2], 0)

    def test_iters_and_seeds(self):
        for iters, seed in ((1, 0), (7, 5), (8, 2**64 - 1), (9, 1), (1000, 3)):
            with self.subTest(iters=iters):
                server, _ = self.passes(
                    SAMPLE, "-n", str(iters), "--seed", str(seed), data=messages(seed, iters)
                )
                # Each time more than half of the receives are used up.
                most, least = (0, 0) if self.mode else (iters // (RECEIVES // 2), iters // RECEIVES)
                self.assertLessEqual(memory(server)[2], most)
                self.assertGreaterEqual(memory(server)[2], least)

    def test_a_small_path_mtu(self):
        self.passes(SAMPLE, "-m", "256", data=messages(1, 80))
        self.passes(SAMPLE, server_args=["-m", "512"], data=messages(1, 80))

    def test_three_clients_with_other_work_each(self):
        self.assertEqual(self.several([(100, 1), (33, 2), (8, 3)])[1], 3 * BURST * SIZE)

    def test_what_the_kernel_holds(self):
        """Neither MEMORY's numbers nor the SRQ are only what the server says."""
        if IN_VM:
            nic = Nic(resolved(MADE).splitlines())
            self.addCleanup(write, f"{TRACE}/kprobe_events", "")
            self.addCleanup(write, f"{TRACE}/events/kprobes/enable", "0")
            nic.forget()
        port, server = self.begin()
        clients = [self.client(port, 3, "-n", "1000000") for _ in range(3)]
        deadline = time.monotonic() + 100
        while [qp["state"] for qp in objects("qp", server)] != [
            "RTS"
        ] * 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        srqs, (region,) = objects("srq", server), objects("mr", server)
        made = [f for pid, _, f in nic.events() if pid == server.pid] if IN_VM else []
        for process in (server, *clients):
            process.kill()
            end(process)
        self.assertEqual(len(made), 3 if IN_VM else 0)
        self.assertEqual(len(srqs), 0 if self.mode else 1)
        self.assertEqual(region["mrlen"], 3 * BURST * SIZE if self.mode else RECEIVES * SIZE)
        for qp in made:
            self.assertEqual((qp["srq"] == 0, qp["receives"]), (bool(self.mode), BURST))


class Dying(SrqTest):
    def test_gone_or_lying_at_each_step(self):
        for said in (
            (),
            (b"sync ready\n",),
            (b"sync go\n",),
            (b"sync ready\nsync done\n",),
            (b"sync ready\nsync done\nverdict PASS\n",),
            (b"x" * 100,),
        ):
            with self.subTest(said=said):
                port, server = self.begin()
                client = self.client(port, 2, "-n", "20")
                self.fake(port, 2, *said)
                self.served(end(client), 1, 20)
                self.lost(server, 0)

    def test_a_client_that_says_fail(self):
        """It has sent all, but says that it has failed: a relay changes its verdict."""
        port, server = self.begin()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = start(SAMPLE, "-p", str(listener.getsockname()[1]), "127.0.0.1")
            ours, _ = listener.accept()
        theirs = socket.create_connection(("127.0.0.1", int(port)))
        with ours, theirs:
            for wanted in (b"work=", b"sync ready\n", b"sync done\n", b"verdict PASS\n"):
                for here, there in ((ours, theirs), (theirs, ours)):
                    data = b""
                    while wanted not in data or not data.endswith(b"\n"):
                        piece = here.recv(4096)
                        self.assertTrue(piece)
                        data += piece
                        if wanted == b"sync done\n" and b"verdict" in data:
                            break
                    if here is ours:
                        data = data.replace(b"PASS", b"FAIL")
                    there.sendall(data)
                    if wanted == b"verdict PASS\n" and here is ours:
                        break
        end(client)
        self.lost(server, 80)

    def test_one_that_sends_without_a_credit(self):
        """A message more than it has asked for (builds.py makes it): it alone is dropped."""
        port, server = self.begin()
        client = self.client(port, 2, "-n", "20")
        greedy = os.path.join(ROOT, "build", "greedy")
        subprocess.run(
            [greedy, "-p", port, "--clients", "2", "-n", "8", "10.0.0.1"],
            capture_output=True,
            check=False,
        )
        self.served(end(client), 1, 20)
        server = end(server)
        self.assertRegex(server.err, "server: QPN 0x[0-9a-f]{6} sends without a credit\n")
        self.assertEqual(server.status, 1, server)

    def test_hung(self):
        """The hung one costs the server its patience, and the others nothing."""
        port, server = self.begin("--timeout", "6")
        hung = self.client(port, 2, "-n", "1000000", "--timeout", "60")
        other = self.client(port, 2, "-n", "1000", "--timeout", "60")
        for process in (hung, other):
            process.stdout.readline()
        time.sleep(0.5)
        hung.send_signal(signal.SIGSTOP)
        self.served(end(other), 1, 1000)
        self.lost(server, None)
        hung.kill()
        end(hung)

    def test_killed_in_the_middle(self):
        port, server = self.begin()
        doomed = self.client(port, 2, "-n", "1000000", "--timeout", "60")
        other = self.client(port, 2, "-n", "1000", "--timeout", "60")
        for process in (doomed, other):
            process.stdout.readline()
        time.sleep(0.5)
        doomed.kill()
        end(doomed)
        self.served(end(other), 1, 1000)
        self.lost(server, None)

    def test_the_server_dies(self):
        port, server = self.begin()
        client = self.client(port, 1, "-n", "1000000", "--timeout", "6")
        client.stdout.readline()
        time.sleep(1)
        server.kill()
        end(server)
        self.check_failed(
            end(client),
            SAMPLE,
            "client",
            r"completion of the SEND: transport retry counter exceeded \(status 12\)"
            "|no completion of the permission in 6 s",
        )

    def test_who_does_not_come(self):
        port, server = self.begin()
        tcp = self.fake(port, 2, b"sync ready\n", None)
        with tcp:
            self.check_failed(end(server), SAMPLE, "server", "no client came in 10 s")


class Crowd(SrqTest):
    def test_sixty_four_clients(self):
        shared, own, refills = self.several([(4, 100 * k) for k in range(64)])
        self.assertEqual((shared, own), (131072, 524288))
        if self.mode:
            self.assertEqual(refills, 0)
        else:
            self.assertGreaterEqual(refills, 64 * 4 // RECEIVES)
        print(f"# 64 clients: {shared} bytes of receives, {own} in queues of their own", flush=True)

    def test_ten_of_sixty_four_are_killed(self):
        dice = random.Random(10)
        port, server = self.begin("--timeout", "300")
        doomed = set(dice.sample(range(64), 10))
        clients = [
            self.client(
                port,
                64,
                "-n",
                "1000000" if k in doomed else "4",
                "-S",
                str(100 * k),
                "--timeout",
                "300",
            )
            for k in range(64)
        ]
        for client in clients:  # its first line comes before it has joined
            client.stdout.readline()
        regions = []
        for k in sorted(doomed):
            time.sleep(dice.random())
            regions = (
                objects("mr", server) or regions
            )  # the server registers it when the first client has come
            clients[k].kill()
        for k, client in enumerate(clients):
            client = end(client)
            if k in doomed:
                self.assertEqual(client.status, -signal.SIGKILL)
            else:
                self.served(client, 100 * k, 4)
        self.lost(server, *[None] * 10)
        held = 64 * BURST * SIZE if self.mode else RECEIVES * SIZE
        self.assertEqual([region["mrlen"] for region in regions], [held])
        print(
            f"ok - srq{''.join(self.mode)}: ten of 64 clients killed, 54 served; {held} bytes registered",
            flush=True,
        )

    def test_sixty_four_come_and_eight_are_wrong(self):
        """In eight ways, before they are accepted. The other 56 are served, and the server passes."""
        port, server = self.begin("--timeout", "300")
        clients = [
            self.client(port, 56, "-n", "4", "-S", str(k), "--timeout", "300") for k in range(28)
        ]
        wrong = self.wrong(port, 56)
        clients += [
            self.client(port, 56, "-n", "4", "-S", str(k), "--timeout", "300")
            for k in range(28, 56)
        ]
        digest = 0
        for k, client in enumerate(clients):
            digest ^= self.served(end(client), k, 4)
        server = end(server)
        self.assertEqual(server.status, 0, server)
        self.check_result(server, SAMPLE, "server", "PASS")
        self.assertEqual(
            (server.result["digest"], server.result["bytes"]),
            (f"{digest:016x}", str(56 * 4 * SIZE)),
        )
        self.assertEqual(server.err.count("refused a client: "), wrong, server)


class OwnPairs(Pairs):
    mode = ("--own",)


class OwnDying(Dying):
    mode = ("--own",)


class OwnCrowd(Crowd):
    mode = ("--own",)


class Refused(SrqTest):
    def test_who_is_refused_leaves_nothing(self):
        """Neither its timeout nor its place: the server goes on to wait, and so after one that leaves before the answer."""
        port, server = self.begin()
        bad = end(start(SAMPLE, "-p", port, "-g", "0", "--timeout", "1", "127.0.0.1"))
        self.check_failed(bad, SAMPLE, "client", "the server refused: ibv_modify_qp to RTR")
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", int(port)), timeout=100) as tcp:
                tcp.sendall(
                    f"hello-verbs/2 sample={SAMPLE} lid=0x0 qpn=0x7ffff0 psn=0x0 gid=::ffff:10.0.0.1 mtu=1024 "
                    f"addr=0x0 rkey=0x0 len=0 max_sge=1 rd_atomic=0 work={WORK.format(3)}\n".encode()
                )
                tcp.shutdown(socket.SHUT_WR)
                self.assertEqual(tcp.recv(4096), b"")
        time.sleep(3)
        self.served(end(self.client(port, 1)), 1, 80)
        server = end(server)
        self.assertEqual(server.status, 0, server)

    def test_a_gid_that_cannot_be_reached(self):
        """Its client is told, and neither the server nor another client ends. Also if it is the first one, whose
        clients= then does not count."""
        for others in (2, 5):
            with self.subTest(clients=others):
                port, server = self.begin()
                clients = [self.client(port, 2)] if others == 2 else []
                for client in clients:
                    client.stdout.readline()
                bad = end(
                    start(SAMPLE, "-p", port, "-g", "0", "--clients", str(others), "127.0.0.1")
                )
                self.check_failed(
                    bad,
                    SAMPLE,
                    "client",
                    "the server refused: ibv_modify_qp to RTR with your GID: Invalid argument",
                )
                self.assertIn("leave -g out", bad.err)
                clients += [self.client(port, 2) for _ in range(2 - len(clients))]
                for client in clients:
                    self.served(end(client), 1, 80)
                server = end(server)
                self.assertEqual(
                    (server.status, server.err.count("refused a client: ")), (0, 1), server
                )

    def test_what_does_not_fit(self):
        port, server = self.begin()
        first = self.client(port, 2)
        first.stdout.readline()
        for work in (
            "size=1023,iters=1,seed=1,timeout=9,clients=2",
            "size=1024,iters=1,seed=1,timeout=9,clients=0",
            "size=1024,iters=1,seed=1,timeout=9,clients=65",
            "size=1024,iters=1,seed=1,timeout=9",
        ):
            with socket.create_connection(("127.0.0.1", int(port))) as tcp:
                tcp.sendall(
                    f"hello-verbs/2 sample={SAMPLE} lid=0x0 qpn=0x1 psn=0x0 gid=::ffff:10.0.0.1 "
                    "mtu=1024 addr=0x0 rkey=0x0 len=0 max_sge=1 rd_atomic=0 "
                    f"work={work}\n".encode()
                )
                self.assertRegex(tcp.recv(4096), b"^hello-verbs/2 error=work= is malformed")
        self.check_failed(end(self.client(port, 3)), SAMPLE, "client", "the server refused: work=")
        second = self.client(port, 2)
        self.served(end(second), 1, 80)
        self.served(end(first), 1, 80)
        server = end(server)
        self.assertEqual(server.status, 0, server)
        self.assertEqual(server.err.count("refused a client"), 5)
        self.check_failed(run(SAMPLE, "-p", port, "127.0.0.1"), SAMPLE, "client", "cannot connect")
