# SPDX-License-Identifier: BSD-2-Clause
"""11_rdma_cm, which has no TCP rendezvous: pairs over IPv4 and IPv6, wrong options and addresses, refused,
dying and missing peers. Runs where the RDMA device is; class Hosts in one of two hosts (TESTENV_HOSTS=2)."""
import os
import re
import signal
import tempfile
import time

from pairs import PairTest, ports, rdma_resources
from samples import ROOT, end, ran, run, sh, start, wait_until

NAME, HOST, HOST6 = "11_rdma_cm", "10.0.0.1", "fd00::1"
THERE6 = "fe80::5054:ff:fe00:401"  # of the other host, in class Hosts


def link_local():
    """The address that the kernel gave the RDMA interface, and that."""
    line = sh("ip -6 -o address show dev dummy0 scope link")
    return line.split()[3].split("/")[0] + "%dummy0"


class CmTest(PairTest):
    def serve(self, *args, **more):
        port = str(next(ports))
        server = start(NAME, "-p", port, *args, **more)

        def listens():
            return re.search(
                rf"(?m)^.*:{port}\b.* LISTEN\b|LISTEN.*:{port}\b", sh("rdma resource show cm_id")
            )

        wait_until(lambda: server.poll() is not None or listens())
        return server, port

    def pair(self, *args, server_args=(), data=b"hello verbs", host=HOST, env=None):
        server, port = self.serve(*server_args, env=env)
        client = run(NAME, "-p", port, *args, host)
        server = end(server)
        self.both_pass(NAME, server, client, data)
        return server, client

    def no_server(self, port, host=HOST):
        side = run(NAME, "-p", port, host)
        self.check_failed(side, NAME, "client", "cannot connect: no server\n")


class Good(CmTest):
    def test_messages(self):
        for text in ("hello verbs", "x", "你好,verbs", "long " * 5000):
            server, client = self.pair("-M", text, data=text.encode())
            for side in (server, client):
                self.assertRegex(side.out, r"device rxe0, port 1, QPN 0x[0-9a-f]{6}\n")
        self.assertRegex(
            client.out, r"to the server's address 0x\w+, rkey 0x\w+, and read it back\n"
        )

    def test_verbose_shows_the_events_in_order(self):
        server, client = self.pair("-v", server_args=["--verbose"])
        for side, events in (
            (server, "CONNECT_REQUEST ESTABLISHED DISCONNECTED"),
            (client, "ADDR_RESOLVED ROUTE_RESOLVED ESTABLISHED DISCONNECTED"),
        ):
            shown = [line[3:] for line in side.out.splitlines() if line.startswith("<- ")]
            self.assertEqual(shown, [f"RDMA_CM_EVENT_{event}" for event in events.split()])


class BothFamilies(CmTest):
    @classmethod
    def setUpClass(cls):
        sh(
            f"ip -6 address add {HOST6}/64 dev dummy0 nodad; ip link add dummy1 type dummy\n"
            "ip address add 10.0.5.1/24 dev dummy1; ip link set dummy1 up"
        )
        time.sleep(0.5)  # until the GID is there

    @classmethod
    def tearDownClass(cls):
        sh(f"ip -6 address del {HOST6}/64 dev dummy0; ip link delete dummy1")

    def test_a_server_takes_both(self):
        for host in (HOST, HOST6, link_local(), "::ffff:" + HOST):
            self.pair(host=host)

    def test_a_server_on_one_address_serves_no_other(self):
        for bound, other in ((HOST, HOST6), (HOST6, HOST), (link_local(), HOST6)):
            server, port = self.serve("-b", bound)
            self.no_server(port, other)
            client = run(NAME, "-p", port, bound)
            self.both_pass(NAME, end(server), client, b"hello verbs")

    def test_addresses_that_cannot_be_bound(self):
        for bound, status, reason in (
            ("127.0.0.1", 2, "127.0.0.1 rdma_cm would listen on all interfaces: give one's\n"),
            ("localhost", 2, "1 rdma_cm would listen on all interfaces: give one's\n"),
            ("10.0.5.1", 1, "rdma_bind_addr .*No such device.*\n  hint: .*RDMA interface"),
            ("10.0.0.77", 1, "rdma_bind_addr .*assign.*\n  hint: .*no such address here"),
            ("fe80::1", 1, "rdma_bind_addr .* Invalid argument.*\n  hint: .*append %IF"),
        ):
            side = run(NAME, "--timeout", 3, "-b", bound)
            self.check_failed(side, NAME, "server", reason, status=status)

    def test_a_port_that_is_taken(self):
        for first, second, error in (((), ("-b", HOST), 99), (("-b", HOST6), ("-b", HOST6), 98)):
            server, port = self.serve(*first)
            reason = rf" port {port}: .* \({error}\)\n  hint: another server uses this port"
            side = run(NAME, "-p", port, *second)
            self.check_failed(side, NAME, "server", r"rdma_bind_addr for \S+," + reason)
            server.kill()
            end(server)

    def test_addresses_that_lead_nowhere(self):
        reason = r"rdma_resolve_(addr|route) for {}: No such device \(19\)\n  hint: is it an RDMA "
        for host in ("127.0.0.1", "::1", "10.0.5.1"):
            self.check_failed(run(NAME, host), NAME, "client", reason.format(host))
        side = run(NAME, "nosuch.invalid")
        self.check_failed(side, NAME, "client", "cannot resolve 'nosuch.invalid': ", hint=False)


class Hosts(CmTest):
    """The server on the other host."""

    def test_the_traffic_class_is_in_each_packet(self):
        """Of both sides, the connection manager's included. And over IPv6 as over IPv4."""
        testenv = os.path.join(ROOT, "testenv")
        for host, wanted in (("10.0.1.1", 0), ("10.0.1.1", 104), (f"{THERE6}%eth0", 104)):
            with tempfile.TemporaryDirectory() as work:
                port, pcap = str(next(ports)), f"{work}/pcap"
                server = start(NAME, "-p", port, there=[f"{testenv}/there.sh"])
                self.assertIn(b"waiting for a client", server.stdout.readline())
                option = ["--traffic-class", wanted] if wanted else []
                capture = [f"{testenv}/capture.sh", pcap]
                client = end(start(NAME, "-p", port, *option, host, there=capture))
                self.both_pass(NAME, end(server), client, b"hello verbs")
                shown = "tshark -T fields -E occurrence=f -e ip.dsfield -e ipv6.tclass -r".split()
                found = [int(word, 16) for word in ran([*shown, pcap], check=True).stdout.split()]
                self.assertGreater(len(found), 10)
                self.assertEqual(set(found), {wanted})


class Bad(CmTest):
    def test_options_that_rdma_cm_decides(self):
        for option in ("-d rxe0", "-i 1", "-g 1", "-m 1024", "-l 3", "--pkey-idx 1"):
            for host, role in (((), "server"), ((HOST,), "client")):
                side = run(NAME, *option.split(), *host)
                reason = "rdma_cm chooses these by the address"
                self.check_failed(side, NAME, role, reason, status=2)
        for option, reason in (
            ("--traffic-class 8", "--traffic-class: only for the client"),
            ("-M x", "only for the client"),
            ("-Z", "-Z: no such option"),
        ):
            self.check_failed(run(NAME, *option.split()), NAME, "server", reason, status=2)

    def test_no_client(self):
        server, _ = self.serve("--timeout", 2)
        reason = "the peer is silent: no RDMA_CM_EVENT_CONNECT_REQUEST in 2 s"
        self.check_failed(end(server), NAME, "server", reason)

    def test_strangers_are_rejected_and_then_the_right_client_is_served(self):
        """rping says other private data."""
        server, port = self.serve()
        for _ in range(2):
            stranger = ran(["rping", "-c", "-a", HOST, "-p", port, "-C", "1"])
            self.assertIn("REJECTED", stranger.stdout + stranger.stderr)
        client, server = run(NAME, "-p", port, HOST), end(server)
        self.assertEqual(server.err.count("refused a client: this side runs 11_rdma_cm\n"), 2)
        server.err = ""
        self.both_pass(NAME, server, client, b"hello verbs")

    def test_a_client_too_many_is_rejected(self):
        """While one is served, nobody listens any more."""
        server, port = self.serve("--timeout", 20)
        args = [NAME, "-p", port, "--timeout", 20]
        sides = [start(*args, "-M", "x" * 100000, HOST), start(*args, HOST)]
        first, second = map(end, sides)
        self.assertEqual(end(server).status, 0)
        self.assertEqual({first.status, second.status}, {0, 1}, f"{first}{second}")
        self.assertIn("cannot connect: no server", first.err + second.err)

    def test_a_peer_that_dies_or_hangs(self):
        silent = "the peer is silent: no RDMA_CM_EVENT_ESTABLISHED in 4 s"
        for sent, reason in ((signal.SIGKILL, "no server"), (signal.SIGSTOP, silent)):
            before = rdma_resources()
            server, port = self.serve("--timeout", 4)
            server.send_signal(sent)
            time.sleep(0.2)
            client = run(NAME, "-p", port, "--timeout", 4, HOST)
            self.check_failed(client, NAME, "client", reason)
            server.kill()
            end(server)
            self.assertEqual(rdma_resources(), before)
