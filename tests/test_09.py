# SPDX-License-Identifier: BSD-2-Clause
"""09_ud: datagrams between its own sides, from strangers and liars (by pyverbs), and over a wire
that loses some. Loss needs the two hosts of TESTENV_HOSTS=2."""
import os
import re
import socket
import time
import unittest

from pairs import PairTest, fnv1a, pattern, ports
from samples import end, line_from, run, start, wait_for_listener

SAMPLE, QKEY, GRH = "09_ud", 12345, 40
HOSTS = os.environ.get("TESTENV_HOSTS", "1")
SHORT, LONG = ("-n", "1", "--timeout", "1"), ("-n", "3000", "--timeout", "60")


def datagrams(side):
    """The counts that a side prints."""
    line = re.search(r"(?m)^DATAGRAMS (.*)$", side.out)
    assert line, side
    return {name: int(n) for name, n in (field.split("=") for field in line[1].split())}


def messages(size, seed, iters):
    return b"".join(pattern(size, seed + i) for i in range(iters))


def several(wanted, port, host="127.0.0.1"):
    """Clients for one server: their arguments; returns them ended."""
    clients = [
        start(SAMPLE, "-p", port, "--clients", str(len(wanted)), *args, host) for args in wanted
    ]
    return [end(client) for client in clients]


class Pairs(PairTest):
    def test_default(self):
        server, client = self.passes(SAMPLE, data=messages(256, 1, 10))
        for side in (server, client):
            self.assertEqual(datagrams(side), {"sent": 10, "came": 10, "again": 0, "strange": 0})

    def test_sizes_iters_and_seeds(self):
        for size, iters, seed in ((1, 1, 0), (7, 3, 5), (1023, 2, 2**64 - 1), (1024, 70, 1)):
            with self.subTest(size=size):
                self.passes(
                    SAMPLE,
                    "-s",
                    str(size),
                    "-n",
                    str(iters),
                    "--seed",
                    str(seed),
                    data=messages(size, seed, iters),
                )

    def test_a_message_is_one_packet(self):
        """Too long for this side's port: the server never hears of it."""
        port = str(next(ports))
        server = start(SAMPLE, "-p", port)
        wait_for_listener(port, server)
        self.check_failed(
            run(SAMPLE, "-p", port, "-s", "1025", "127.0.0.1"),
            SAMPLE,
            "client",
            "path MTU 1024 is below 1025 bytes",
        )
        self.check_failed(
            run(SAMPLE, "-p", port, "-m", "512", "-s", "513", "127.0.0.1"),
            SAMPLE,
            "client",
            "path MTU 512 is below 513 bytes",
        )
        client = run(SAMPLE, "-p", port, "-s", "1024", "127.0.0.1")
        self.both_pass(SAMPLE, end(server), client)

    def test_who_cannot_be_served_is_refused(self):
        """Too long for the server's port, or with a GID that it cannot reach: the next one is served."""
        port = str(next(ports))
        server = start(SAMPLE, "-p", port, "-m", "512")
        wait_for_listener(port, server)
        for args, said in (
            (("-s", "513", "--clients", "3"), "path MTU 512 is below 513 bytes"),
            (("-g", "0"), "ibv_create_ah with your GID: Invalid argument"),
        ):
            client = run(SAMPLE, "-p", port, *args, "127.0.0.1")
            self.check_failed(client, SAMPLE, "client", f"the server refused: {said}")
        client = run(SAMPLE, "-p", port, "-s", "512", "127.0.0.1")
        server = end(server)
        self.assertEqual(server.err.count("refused a client: "), 2, server)
        server.err = ""
        self.both_pass(SAMPLE, server, client)

    def test_several_clients_at_one_queue_pair(self):
        for works in (
            ((100, 50, 5), (1000, 20, 9)),
            tuple((200 + k, 10 + k, 1000 * k) for k in range(16)),
        ):
            with self.subTest(clients=len(works)):
                port = str(next(ports))
                server = start(SAMPLE, "-p", port)
                wait_for_listener(port, server)
                clients = several(
                    [
                        ("-s", str(size), "-n", str(iters), "-S", str(seed))
                        for size, iters, seed in works
                    ],
                    port,
                )
                server, digest = end(server), 0
                self.assertEqual((server.status, server.err), (0, ""), server)
                self.check_result(server, SAMPLE, "server", "PASS")
                for (size, iters, seed), client in zip(works, clients):
                    self.assertEqual((client.status, client.err), (0, ""), client)
                    own = fnv1a(messages(size, seed, iters))
                    self.assertEqual(client.result["digest"], f"{own:016x}")
                    digest ^= own
                self.assertEqual(server.result["digest"], f"{digest:016x}")
                self.assertEqual(
                    datagrams(server)["came"], sum(datagrams(client)["sent"] for client in clients)
                )

    def test_one_that_has_soon_done(self):
        """It does not wait for the others' end: its patience is shorter than what they take."""
        for first, second in ((SHORT, LONG), (LONG, SHORT)):
            port = str(next(ports))
            server = start(SAMPLE, "-p", port, "--timeout", "60")
            wait_for_listener(port, server)
            began = time.monotonic()
            for client in (*several([first, second], port), end(server)):
                self.assertEqual((client.status, client.err), (0, ""), client)
            self.assertGreater(time.monotonic() - began, 1)

    def test_one_too_many_and_others_that_do_not_fit(self):
        port = str(next(ports))
        server = start(SAMPLE, "-p", port)
        wait_for_listener(port, server)
        first = start(SAMPLE, "-p", port, "--clients", "2", "-n", "3", "127.0.0.1")
        while True:  # until the first has come: the server then listens again
            other = run(SAMPLE, "-p", port, "--clients", "3", "-v", "127.0.0.1")
            if "first client's clients=" in other.err:
                break
            self.fail(other)
        self.check_failed(other, SAMPLE, "client", "the server refused: work= ")
        second = run(SAMPLE, "-p", port, "--clients", "2", "127.0.0.1")
        first, server = end(first), end(server)
        self.assertEqual(
            (first.status, second.status, server.status), (0, 0, 0), f"{first}{second}{server}"
        )
        self.check_failed(
            run(SAMPLE, "-p", port, "--clients", "2", "127.0.0.1"),
            SAMPLE,
            "client",
            "cannot connect",
        )


class Python:
    """A UD queue pair, and a connection to a server's TCP port."""

    def __init__(self):
        import pyverbs.enums as e
        from pyverbs.cq import CQ
        from pyverbs.device import Context, get_device_list
        from pyverbs.mr import MR
        from pyverbs.pd import PD
        from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

        self.e = e
        name = get_device_list()[0].name.decode()
        self.ctx = Context(name=name)
        self.pd, self.cq = PD(self.ctx), CQ(self.ctx, 100)
        self.mr = MR(self.pd, 8192, e.IBV_ACCESS_LOCAL_WRITE)
        self.gid = next(
            i for i in range(8) if str(self.ctx.query_gid(1, i)).endswith(":ffff:0a00:0001")
        )
        init = QPInitAttr(e.IBV_QPT_UD, scq=self.cq, rcq=self.cq, cap=QPCap(50, 50, 1, 1))
        attr = QPAttr(port_num=1)
        attr.qkey = QKEY
        self.qp = QP(self.pd, init, attr)

    def send(self, qpn, data, number=None, qkey=QKEY):
        from pyverbs.addr import AH, AHAttr, GlobalRoute
        from pyverbs.wr import SGE, SendWR

        e = self.e
        route = GlobalRoute(dgid=self.ctx.query_gid(1, self.gid), sgid_index=self.gid)
        ah = AH(self.pd, attr=AHAttr(port_num=1, is_global=1, gr=route))
        self.mr.write(data, len(data))
        sge = SGE(self.mr.buf, len(data), self.mr.lkey)
        wr = SendWR(
            num_sge=1,
            sg=[sge],
            send_flags=e.IBV_SEND_SIGNALED,
            opcode=e.IBV_WR_SEND if number is None else e.IBV_WR_SEND_WITH_IMM,
        )
        if number is not None:
            wr.imm_data = socket.htonl(number)
        wr.set_wr_ud(ah, qpn, qkey)
        self.qp.post_send(wr)
        while not self.cq.poll()[0]:
            time.sleep(0.001)

    def line(self, work="size=256,iters=10,seed=1,timeout=10,clients=1"):
        return (
            f"hello-verbs/2 sample={SAMPLE} lid=0x0000 qpn=0x{self.qp.qp_num:06x} psn=0x0 "
            f"gid=::ffff:10.0.0.1 mtu=1024 addr=0x0 rkey=0x0 len=0 max_sge=1 rd_atomic=0 "
            f"work={work}\n"
        ).encode()


@unittest.skipIf(HOSTS == "2", "one host does")
class Liars(PairTest):
    @classmethod
    def setUpClass(cls):
        cls.python = Python()

    def meet(self, *server_args):
        """A server, and a TCP connection to it on which both are ready; and its QPN."""
        port = next(ports)
        server = start(SAMPLE, "-p", str(port), "--timeout", "8", *server_args)
        wait_for_listener(port, server)
        tcp = socket.create_connection(("127.0.0.1", port), timeout=60)
        tcp.sendall(self.python.line())
        answer = line_from(tcp).decode()
        tcp.sendall(b"sync ready\n")
        self.assertEqual(line_from(tcp), b"sync ready\n")
        return server, tcp, int(re.search("qpn=0x([0-9a-f]+)", answer)[1], 16)

    def after(self, *sent):
        """What the server says that was sent such datagrams, (data, number, Q_Key)."""
        server, tcp, qpn = self.meet()
        with tcp:
            for datagram in sent:
                self.python.send(qpn, *datagram)
            time.sleep(0.5)
            tcp.sendall(b"sync done\nverdict PASS\n")
            while tcp.recv(4096):
                pass
        server = end(server)
        self.check_result(server, SAMPLE, "server", "FAIL" if server.status else "PASS")
        return server

    def test_what_a_client_may_not_send(self):
        right = [(pattern(256, 1 + i), i) for i in range(10)]
        for name, sent, counts, said in (
            ("all right", right, (10, 0, 0), ""),
            ("again and late", right[:5] + right[2:], (13, 3, 0), ""),
            ("none", [], (0, 0, 0), ""),
            ("one missing", right[:9], (9, 0, 0), ""),
            ("an immediate too soon", right[:3] + right[4:5] + right[3:], (10, 0, 1), ""),
            ("an immediate that is none", right + [(right[0][0], 4_000_000_000)], (10, 0, 1), ""),
            ("no immediate", right + [(right[0][0],)], (10, 0, 1), ""),
            ("another Q_Key", right + [(right[0][0], 0, QKEY + 1)], (10, 0, 0), ""),
            ("wrong data", [(bytes(256), 0)] + right[1:], (10, 0, 0), "datagram: byte 0 of 256 is"),
            ("shorter", [(right[0][0][:255], 0)] + right[1:], (10, 0, 0), "295 bytes came"),
            ("longer", [(right[0][0] + b"x", 0)] + right[1:], (10, 0, 0), "297 bytes came"),
            ("one too many", right + [(pattern(256, 11), 10)], (11, 0, 0), ""),
        ):
            with self.subTest(name=name):
                server = self.after(*sent)
                seen = datagrams(server)
                self.assertEqual((seen["came"], seen["again"], seen["strange"]), counts, server)
                self.assertEqual(seen["sent"], seen["came"])
                self.assertIn(said, server.err)
                good = not said and name not in ("none", "one missing", "one too many")
                self.assertEqual(server.status, 0 if good else 1, server)

    def test_a_stranger_harms_nobody(self):
        server, tcp, qpn = self.meet()
        other = Python()
        with tcp:
            for i in range(100):  # more than there are receives
                other.send(qpn, b"x" * 1024, i)
            for i in range(10):
                self.python.send(qpn, pattern(256, 1 + i), i)
            time.sleep(0.5)
            tcp.sendall(b"sync done\nverdict PASS\n")
            while tcp.recv(4096):
                pass
        server = end(server)
        self.assertEqual((server.status, server.err), (0, ""), server)
        self.assertEqual(datagrams(server)["came"], 10)
        self.assertGreater(datagrams(server)["strange"], 10)

    def test_silent_and_dying_peers(self):
        server, tcp, _ = self.meet()
        with tcp:
            self.check_failed(end(server), SAMPLE, "server", "no completion of a datagram in 8 s")
        server, tcp, _ = self.meet()
        tcp.close()
        self.check_failed(end(server), SAMPLE, "server", "the peer closed .*: no 'sync done'")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = start(
                SAMPLE, "--timeout", "3", "-p", str(listener.getsockname()[1]), "127.0.0.1"
            )
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(self.python.line("size=256,iters=10,seed=1,timeout=3,clients=1"))
                connection.sendall(b"sync ready\n")
                self.check_failed(
                    end(client), SAMPLE, "client", "no completion of a datagram in 3 s"
                )

    def test_lines_that_are_refused(self):
        port = next(ports)
        server = start(SAMPLE, "-p", str(port))
        wait_for_listener(port, server)
        for work in (
            "size=256,iters=10,seed=1,timeout=10",
            "size=256,iters=10,seed=1,timeout=10,clients=0",
            "size=256,iters=10,seed=1,timeout=10,clients=17",
            "size=256,iters=10,seed=1,timeout=10,clients=-1",
            "size=256,iters=10,seed=1,timeout=10,clients=1,x=1",
            "size=4097,iters=10,seed=1,timeout=10,clients=1",
        ):
            with self.subTest(work=work), socket.create_connection(("127.0.0.1", port)) as tcp:
                tcp.sendall(self.python.line(work))
                self.assertRegex(
                    tcp.recv(4096), b"^hello-verbs/2 error=(work= is malformed|a field is )"
                )
        client = run(SAMPLE, "-p", str(port), "127.0.0.1")
        server = end(server)
        server.err = ""
        self.both_pass(SAMPLE, server, client)


@unittest.skipIf(HOSTS != "2", "needs two hosts")
class Loss(unittest.TestCase):
    def test_both_sides_and_the_wire_count_the_same(self):
        import test_wire as wire

        # Nothing but RoCE takes that wire then.
        no_ipv6 = "echo {} >/proc/sys/net/ipv6/conf/eth0/disable_ipv6"
        wire.on_both(no_ipv6.format(1))
        self.addCleanup(wire.on_both, no_ipv6.format(0))
        test = wire.WireTest()
        for percent, number in ((0, 100), (2, 200), (10, 60)):
            with self.subTest(loss=percent):
                wire.setUpModule()
                self.addCleanup(wire.setUpModule)
                wire.on_both(f"tc qdisc add dev eth0 root netem limit 10000 loss {percent}%")
                ((_, server, client),) = test.start_all(
                    wire.CONTROL, {SAMPLE: ("-n", str(number), "--timeout", "60")}
                )
                server, client = end(server), end(client)
                test.both_pass(SAMPLE, server, client, messages(256, 1, number))
                here, there = [
                    int(out or 0)
                    for out in wire.on_both(
                        "tc -s qdisc show dev eth0 root | sed -n 's/.*(dropped \\([0-9]*\\),.*/\\1/p'"
                    )
                ]
                ours, theirs = datagrams(client), datagrams(server)
                print(
                    f"# loss {percent} %: client {ours}, server {theirs}, dropped on the way there "
                    f"{here}, back {there}",
                    flush=True,
                )
                self.assertEqual(ours["sent"] - theirs["came"], here)
                self.assertEqual(theirs["sent"] - ours["came"], there)
                self.assertEqual((ours["strange"], theirs["strange"]), (0, 0))
                self.assertEqual(here + there > 0, percent > 0)
