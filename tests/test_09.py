# SPDX-License-Identifier: BSD-2-Clause
"""09_ud: datagrams between its own sides, and from strangers and liars (by pyverbs)."""
import errno
import os
import re
import socket
import time

from pairs import MASK, PairTest, fnv1a, messages, pattern
from protocol import hello
from samples import end, line_from, run, start

SAMPLE, QKEY = "09_ud", 12345


def datagrams(side):
    """The counts that a side prints."""
    line = re.search(r"(?m)^DATAGRAMS (.*)$", side.out)
    assert line, side
    return {name: int(n) for name, n in (field.split("=") for field in line[1].split())}


class Pairs(PairTest):
    def test_sizes_iters_and_seeds(self):
        for size, iters, seed in ((1, 1, 0), (256, 10, 1), (1023, 2, MASK), (1024, 70, 1)):
            args = ["-s", size, "-n", iters, "--seed", seed]
            for side in self.passes(SAMPLE, *args, data=messages(iters, size, seed)):
                counts = {"sent": iters, "came": iters, "again": 0, "strange": 0}
                self.assertEqual(datagrams(side), counts)

    def test_a_message_is_one_packet(self):
        """Who has too long ones for his own port does not even connect. Who has them for the server's,
        or a GID that it cannot reach, is refused, and the next one is served."""
        server, port = self.serve(SAMPLE, "-m", "512")
        for args, said in (
            (("-s", 1025), "path MTU 1024 is below 1025 bytes"),
            (("-s", 513, "--clients", 3), "the server refused: path MTU 512 is below 513 bytes"),
            (("-g", 0), "the server refused: ibv_create_ah with your GID: Invalid argument"),
        ):
            client = run(SAMPLE, "-p", port, *args, "127.0.0.1")
            self.check_failed(client, SAMPLE, "client", said)
        self.serves_the_next(SAMPLE, server, port, 2, "-s", 512)

    def several(self, works):
        """Clients (size, iters, seed, timeout) at one server, which all pass."""
        server, port = self.serve(SAMPLE, "--timeout", 60)
        clients = []
        for size, iters, seed, timeout in works:
            args = ["-s", size, "-n", iters, "-S", seed, "--timeout", timeout]
            args += ["--clients", len(works), "127.0.0.1"]
            clients.append(start(SAMPLE, "-p", port, *args))
        digest = came = 0
        for (size, iters, seed, _), client in zip(works, map(end, clients)):
            self.assertEqual((client.status, client.err), (0, ""), client)
            own = fnv1a(messages(iters, size, seed))
            self.assertEqual(client.result["digest"], f"{own:016x}")
            digest, came = digest ^ own, came + datagrams(client)["sent"]
        server = end(server)
        self.assertEqual((server.status, server.err), (0, ""), server)
        self.check_result(server, SAMPLE, "server", "PASS")
        self.assertEqual(server.result["digest"], f"{digest:016x}")
        self.assertEqual(datagrams(server)["came"], came)

    def test_several_clients_at_one_queue_pair(self):
        self.several([(200 + k, 10 + k, 1000 * k, 60) for k in range(16)])

    def test_one_that_does_not_fit_and_one_too_many(self):
        server, port = self.serve(SAMPLE)
        args = [SAMPLE, "-p", port, "127.0.0.1", "--clients"]
        first = start(*args, 2)
        first.stdout.readline()
        other = run(*args, 3)
        self.check_failed(other, SAMPLE, "client", "the server refused: work= ")
        for side in (run(*args, 2), end(first), end(server)):
            self.assertEqual(side.status, 0, side)
        self.check_failed(run(*args, 2), SAMPLE, "client", "cannot connect")


class Python:
    """A UD queue pair."""

    def __init__(self):
        import pyverbs.enums as e
        from pyverbs.cq import CQ
        from pyverbs.device import Context, get_device_list
        from pyverbs.mr import MR
        from pyverbs.pd import PD
        from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

        self.e = e
        self.ctx = Context(name=get_device_list()[0].name.decode())
        self.pd, self.cq = PD(self.ctx), CQ(self.ctx, 100)
        self.mr = MR(self.pd, 8192, e.IBV_ACCESS_LOCAL_WRITE)
        gids = [str(self.ctx.query_gid(1, i)) for i in range(8)]
        self.gid = next(i for i, gid in enumerate(gids) if gid.endswith(":ffff:0a00:0001"))
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
        opcode = e.IBV_WR_SEND if number is None else e.IBV_WR_SEND_WITH_IMM
        sge = SGE(self.mr.buf, len(data), self.mr.lkey)
        wr = SendWR(num_sge=1, sg=[sge], send_flags=e.IBV_SEND_SIGNALED, opcode=opcode)
        if number is not None:
            wr.imm_data = socket.htonl(number)
        wr.set_wr_ud(ah, qpn, qkey)
        self.qp.post_send(wr)
        while not self.cq.poll()[0]:
            time.sleep(0.001)


class Liars(PairTest):
    @classmethod
    def setUpClass(cls):
        cls.python = Python()
        cls.line = hello(SAMPLE, ",clients=1", size=256, iters=10, qpn=cls.python.qp.qp_num)

    def begin(self):
        """A server, and a TCP connection to it on which both are ready; and its QPN."""
        server, port = self.serve(SAMPLE, "--timeout", 8)
        tcp = self.meet(port)
        tcp.sendall(self.line)
        answer = line_from(tcp).decode()
        tcp.sendall(b"sync ready\n")
        self.assertEqual(line_from(tcp), b"sync ready\n")
        return server, tcp, int(re.search("qpn=0x([0-9a-f]+)", answer)[1], 16)

    def after(self, *sent):
        """What the server says that was sent such datagrams, (sender, data, number, Q_Key)."""
        server, tcp, qpn = self.begin()
        with tcp:
            for sender, *datagram in sent:
                sender.send(qpn, *datagram)
            time.sleep(0.5)
            tcp.sendall(b"sync done\nverdict PASS\n")
            while tcp.recv(4096):
                pass
        server = end(server)
        self.check_result(server, SAMPLE, "server", "FAIL" if server.status else "PASS")
        return server

    def test_what_a_client_may_not_send(self):
        right = [(self.python, pattern(256, 1 + i), i) for i in range(10)]
        first = right[0][1]

        def other(*datagram):
            return (self.python, *datagram)

        for name, sent, counts, status, said in (
            ("all right", right, (10, 0, 0), 0, ""),
            ("again and late", right[:5] + right[2:], (13, 3, 0), 0, ""),
            ("one missing", right[:9], (9, 0, 0), 1, ""),
            ("too soon", right[:3] + right[4:5] + right[3:], (10, 0, 1), 0, ""),
            ("no immediate", right + [other(first)], (10, 0, 1), 0, ""),
            ("another Q_Key", right + [other(first, 0, QKEY + 1)], (10, 0, 0), 0, ""),
            ("wrong", [other(bytes(256), 0)] + right[1:], (10, 0, 0), 1, "byte 0 of 256 is"),
            ("shorter", [other(first[:255], 0)] + right[1:], (10, 0, 0), 1, "295 bytes came"),
            ("one too many", right + [other(pattern(256, 11), 10)], (11, 0, 0), 1, ""),
        ):
            server = self.after(*sent)
            seen = datagrams(server)
            self.assertEqual((seen["came"], seen["again"], seen["strange"]), counts, server)
            self.assertEqual(seen["sent"], seen["came"])
            self.assertIn(said, server.err)
            self.assertEqual(server.status, status, server)

    def test_a_stranger_harms_nobody(self):
        strange = [(Python(), b"x" * 1024, i) for i in range(100)]  # more than there are receives
        server = self.after(*strange, *((self.python, pattern(256, 1 + i), i) for i in range(10)))
        self.assertEqual((server.status, server.err), (0, ""), server)
        self.assertEqual(datagrams(server)["came"], 10)
        self.assertGreater(datagrams(server)["strange"], 10)

    def test_a_child_may_not_post_on_its_parents_queue_pair(self):
        """As common/hints.c says of EACCES."""
        child = os.fork()
        if child == 0:
            try:
                self.python.send(self.python.qp.qp_num, b"x")
                os._exit(0)
            except BaseException as error:
                os._exit(getattr(error, "error_code", 1))
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), errno.EACCES)

    def test_a_client_that_sends_nothing(self):
        server, tcp, _ = self.begin()
        with tcp:
            self.check_failed(end(server), SAMPLE, "server", "no completion of a datagram in 8 s")
