# SPDX-License-Identifier: BSD-2-Clause
"""11_rdma_cm, which has no TCP rendezvous: pairs over IPv4 and IPv6, a peer of another
implementation, wrong options and addresses, refused, dying and missing peers. Runs where the
RDMA device is; class Hosts in one of two hosts (TESTENV_HOSTS=2)."""
import contextlib
import os
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from pairs import IN_VM, PairTest, fnv1a, ports, rdma_resources
from samples import LIMIT, ROOT, end, path, ran, run, start

NAME, HOST, HOST6 = "11_rdma_cm", "10.0.0.1", "fd00::1"
OTHER_DEVICE = os.environ.get("HV_OTHER_DEVICE", "")  # tests/other_device.c, built
PEER = os.path.join(ROOT, "build", "cm_peer")  # tests/peer/cm_peer.c, built
NO_IPV6 = {
    **os.environ,
    "LD_PRELOAD": OTHER_DEVICE,
    "HV_DEVICE": "no-ipv6",
    "ASAN_OPTIONS": "verify_asan_link_order=0",
}


def sh(script):
    return ran(["sh", "-ec", script], check=True).stdout


def link_local():
    """The address that the kernel gave the RDMA interface."""
    line = sh("ip -6 -o address show dev dummy0 scope link")
    return line.split()[3].split("/")[0]


@contextlib.contextmanager
def host_name(*addresses):
    """Both sides' resolver knows a name for these."""
    with open("/etc/hosts", encoding="ascii") as file:
        before = file.read()
    try:
        with open("/etc/hosts", "a", encoding="ascii") as file:
            file.writelines(f"\n{address} several.example\n" for address in addresses)
        yield "several.example"
    finally:
        with open("/etc/hosts", "w", encoding="ascii") as file:
            file.write(before)


@contextlib.contextmanager
def ipv6():
    sh(
        f"ip -6 address add {HOST6}/64 dev dummy0 nodad; "
        "ip link add dummy1 type dummy; ip address add 10.0.5.1/24 dev dummy1; ip link set dummy1 up"
    )
    time.sleep(0.5)  # until the GID is there
    try:
        yield
    finally:
        sh(f"ip -6 address del {HOST6}/64 dev dummy0; ip link delete dummy1")


class CmTest(PairTest):
    def setUp(self):
        if self.IPV6:
            self.enterContext(ipv6())

    IPV6 = False

    def serve(self, *args, env=None, command=None):
        """A server that listens, and its port."""
        port = str(next(ports))
        if command:
            server = subprocess.Popen(
                [*command(port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        else:
            server = start(NAME, "-p", port, *args, env=env)
        deadline = time.monotonic() + LIMIT
        while server.poll() is None and time.monotonic() < deadline:
            ids = ran(["rdma", "resource", "show", "cm_id"], check=True).stdout
            if any("LISTEN" in line and f":{port} " in line + " " for line in ids.splitlines()):
                break
            time.sleep(0.02)
        return server, port

    def pair(self, *args, server_args=(), data=b"hello verbs", host=HOST, env=None):
        server, port = self.serve(*server_args, env=env)
        client = run(NAME, "-p", port, *args, host)
        server = end(server)
        self.both_pass(NAME, server, client, data)
        return server, client


@unittest.skipUnless(IN_VM, "needs the VM's address")
class Good(CmTest):
    def test_defaults(self):
        server, client = self.pair()
        self.assertRegex(
            client.out,
            'wrote "hello verbs" to the server\'s address 0x[0-9a-f]+, '
            "rkey 0x[0-9a-f]+, and read it back\n",
        )
        for side in (server, client):
            self.assertRegex(side.out, r"device rxe0, port 1, QPN 0x[0-9a-f]{6}\n")

    def test_messages(self):
        for text in ("x", "你好,verbs", "long " * 5000):
            with self.subTest(text=text[:20]):
                self.pair("-M", text, data=text.encode())

    def test_verbose_shows_the_events_in_order(self):
        server, client = self.pair("-v", server_args=["--verbose"])
        events = [
            [line[3:] for line in side.out.splitlines() if line.startswith("<- ")]
            for side in (server, client)
        ]
        self.assertEqual(
            events,
            [
                [
                    "RDMA_CM_EVENT_CONNECT_REQUEST",
                    "RDMA_CM_EVENT_ESTABLISHED",
                    "RDMA_CM_EVENT_DISCONNECTED",
                ],
                [
                    "RDMA_CM_EVENT_ADDR_RESOLVED",
                    "RDMA_CM_EVENT_ROUTE_RESOLVED",
                    "RDMA_CM_EVENT_ESTABLISHED",
                    "RDMA_CM_EVENT_DISCONNECTED",
                ],
            ],
        )

    def test_bind_and_the_port_again_at_once(self):
        port = str(next(ports))
        for _ in range(3):
            server, port = self.serve("-b", HOST)
            self.both_pass(
                NAME, *reversed((run(NAME, "-p", port, HOST), end(server))), b"hello verbs"
            )


@unittest.skipUnless(IN_VM, "changes the machine's addresses")
class BothFamilies(CmTest):
    IPV6 = True

    def test_a_server_takes_both(self):
        for host in (HOST, HOST6, link_local() + "%dummy0", "::ffff:" + HOST):
            with self.subTest(host=host):
                self.pair(host=host)

    def test_a_server_on_one_address_serves_no_other(self):
        for bound, others in (
            (HOST, (HOST6,)),
            (HOST6, (HOST,)),
            (link_local() + "%dummy0", (HOST, HOST6)),
            ("::ffff:" + HOST, (HOST6,)),
        ):
            with self.subTest(bound=bound):
                server, port = self.serve("-b", bound)
                for other in others:
                    self.check_failed(
                        run(NAME, "-p", port, other), NAME, "client", "cannot connect: no server\n"
                    )
                self.both_pass(
                    NAME, *reversed((run(NAME, "-p", port, bound), end(server))), b"hello verbs"
                )

    def test_without_ipv6_in_the_kernel_it_is_ipv4(self):
        self.pair(env=NO_IPV6)
        server, port = self.serve(env=NO_IPV6)
        self.check_failed(
            run(NAME, "-p", port, HOST6), NAME, "client", "cannot connect: no server\n"
        )
        server.kill()
        end(server)

    def test_the_systems_default_for_ipv6_sockets_does_not_matter(self):
        sh("echo 1 >/proc/sys/net/ipv6/bindv6only")
        try:
            self.pair(host=HOST)
        finally:
            sh("echo 0 >/proc/sys/net/ipv6/bindv6only")

    def test_a_client_goes_through_all_addresses_of_a_name(self):
        with host_name("::1", "10.0.5.1", HOST) as name:  # no RDMA device has the first two
            self.pair(host=name)
        with host_name("::1", HOST6) as name:
            self.pair(host=name)
        with host_name("127.0.0.1", "10.0.5.1") as name:
            self.check_failed(
                run(NAME, name), NAME, "client", r"rdma_resolve_\w+ for (127.0.0.1|10.0.5.1): "
            )

    def test_a_server_goes_through_all_addresses_of_a_name(self):
        with host_name("10.0.0.77", "10.0.5.1", HOST) as name:
            self.pair(server_args=["--bind", name])

    def test_a_peer_of_another_implementation(self):
        for host in (HOST, HOST6):
            for text in ("x", "not the default"):
                with self.subTest(host=host, text=text):
                    server, port = self.serve()
                    peer = ran([PEER, "client", host, port, "P", text])
                    self.check_peer(peer.returncode, peer.stdout, peer.stderr)
                    self.check_passed(end(server), "server", text)

                    peer, port = self.serve(
                        command=lambda port, at=host: (PEER, "server", at, port, "P")
                    )
                    client = run(NAME, "-p", port, "-M", text, host)
                    peer = end(peer)
                    self.check_peer(peer.status, peer.out, peer.err)
                    self.check_passed(client, "client", text)

    def check_peer(self, *found):
        self.assertEqual(found, (0, "peer P\n", ""))

    def check_passed(self, side, role, text):
        self.assertEqual((side.status, side.err), (0, ""), side)
        self.check_result(side, NAME, role, "PASS")
        self.assertEqual(side.result["digest"], f"{fnv1a(text.encode()):016x}")

    def test_a_peer_that_says_fail(self):
        server, port = self.serve()
        subprocess.run(
            [PEER, "client", HOST6, port, "F", "x"], capture_output=True, timeout=LIMIT, check=True
        )
        self.check_failed(end(server), NAME, "server", "the peer's verdict is FAIL", hint=False)

    def test_make_run_on_a_host_without_ipv4(self):
        pair = os.path.join(ROOT, "testenv", "pair.sh")
        sh(
            "ip -4 address flush dev dummy0; ip -4 address flush dev dummy1; ip -4 address flush dev lo"
        )
        try:
            for sample in ("01_hello_write", NAME):
                ended = ran([pair, path(sample)])
                self.assertEqual(
                    (ended.returncode, ended.stdout.count("status=PASS")), (0, 2), ended
                )
            self.assertIn(f"--- client: {path(NAME)} {HOST6}\n", ended.stdout)
        finally:
            sh(f"ip address add 127.0.0.1/8 dev lo; ip address add {HOST}/24 dev dummy0")
            time.sleep(0.5)

    def test_addresses_that_cannot_be_bound(self):
        hint = r".*\n  hint: .*"
        for bound, status, reason in (
            *(
                (
                    loopback,
                    2,
                    f"--bind: for {says} rdma_cm would listen on all interfaces: give one's\n",
                )
                for loopback, says in (
                    ("127.0.0.1", "127.0.0.1"),
                    ("127.1.2.3", "127.1.2.3"),
                    ("::1", "::1"),
                    ("::ffff:127.0.0.1", "127.0.0.1"),
                    ("localhost", "(127.0.0.1|::1)"),
                )
            ),
            (
                "10.0.5.1",
                1,
                "rdma_bind_addr for 10.0.5.1, .*No such device" + hint + "RDMA interface",
            ),
            (
                "10.0.0.77",
                1,
                "rdma_bind_addr for 10.0.0.77, .*assign" + hint + "no such address here",
            ),
            (
                "224.0.0.1",
                1,
                "rdma_bind_addr for 224.0.0.1, .*assign" + hint + "no such address here",
            ),
            (link_local(), 1, "rdma_bind_addr for fe80::.* Invalid argument" + hint + "append %IF"),
            ("nosuch.invalid", 1, "cannot resolve 'nosuch.invalid': "),
        ):
            with self.subTest(bound=bound):
                self.check_failed(
                    run(NAME, "--timeout", "3", "-b", bound),
                    NAME,
                    "server",
                    reason,
                    status=status,
                    hint="resolve" not in reason,
                )

    def test_a_port_that_is_taken(self):
        for first, second, error in (
            ((), (), "99"),
            ((), ("-b", HOST), "99"),
            ((), ("-b", HOST6), "99"),
            (("-b", HOST6), ("-b", HOST6), "98"),
        ):
            with self.subTest(first=first, second=second):
                server, port = self.serve(*first)
                self.check_failed(
                    run(NAME, "-p", port, *second),
                    NAME,
                    "server",
                    rf"rdma_bind_addr for \S+, port "
                    rf"{port}: .* \({error}\)\n  hint: another server uses this port",
                )
                server.kill()
                end(server)

    def test_addresses_that_lead_nowhere(self):
        for host in ("127.0.0.1", "::1", "10.0.5.1", "localhost"):
            with self.subTest(host=host):
                side = run(NAME, host)
                self.check_failed(
                    side,
                    NAME,
                    "client",
                    r"rdma_resolve_(addr|route) for \S+: No such device \(19\)"
                    "\n  hint: is it an RDMA interface's address",
                )
                if host == "::1":
                    self.assertNotIn("127.0.0.1", side.err)
        self.check_failed(
            run(NAME, "nosuch.invalid"),
            NAME,
            "client",
            "cannot resolve 'nosuch.invalid': ",
            hint=False,
        )


@unittest.skipUnless(os.environ.get("TESTENV_HOSTS") == "2", "needs two hosts")
class Hosts(CmTest):
    """The server on the other host."""

    THERE = os.path.join(ROOT, "testenv", "there.sh")
    HERE6, THERE6 = "fd00:1::2", "fd00:1::1"

    @classmethod
    def setUpClass(cls):
        sh(
            f"ip -6 address add {cls.HERE6}/64 dev eth0 nodad\n"
            f"{cls.THERE} ip -6 address add {cls.THERE6}/64 dev eth0 nodad; sleep 0.5"
        )

    @classmethod
    def tearDownClass(cls):
        sh(
            f"ip -6 address del {cls.HERE6}/64 dev eth0\n{cls.THERE} ip -6 address del {cls.THERE6}/64 dev eth0"
        )

    def serve_there(self, *args):
        port = str(next(ports))
        server = start(NAME, "-p", port, *args, there=(self.THERE,))
        self.assertIn(b"waiting for a client", server.stdout.readline())
        return server, port

    def test_ipv4_and_ipv6(self):
        for host in ("10.0.1.1", self.THERE6, "fe80::5054:ff:fe00:401%eth0"):
            with self.subTest(host=host):
                server, port = self.serve_there()
                client = run(NAME, "-p", port, host)
                self.both_pass(NAME, end(server), client, b"hello verbs")

    def test_a_server_on_a_loopback_address_is_refused(self):
        """It would serve this host."""
        for bound in ("127.0.0.1", "::1"):
            side = end(start(NAME, "-b", bound, "--timeout", "5", there=(self.THERE,)))
            self.check_failed(side, NAME, "server", "would listen on all interfaces", status=2)
            self.check_failed(run(NAME, "10.0.1.1"), NAME, "client", "cannot connect: no server")

    def test_the_traffic_class_is_in_each_packet(self):
        """Of both sides, the connection manager's included."""
        for host in ("10.0.1.1", self.THERE6):
            for wanted in (0, 104):
                with self.subTest(host=host, wanted=wanted):
                    server, port = self.serve_there()
                    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
                        client = end(
                            subprocess.Popen(
                                [
                                    os.path.join(ROOT, "testenv", "capture.sh"),
                                    file.name,
                                    path(NAME),
                                    "-p",
                                    port,
                                    *(["--traffic-class", str(wanted)] if wanted else []),
                                    host,
                                ],
                                stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE,
                            )
                        )
                        found = traffic_classes(file.read())
                    self.both_pass(NAME, end(server), client, b"hello verbs")
                    self.assertGreater(len(found), 10)
                    self.assertEqual(set(found), {wanted})


def traffic_classes(pcap):
    """Of each packet: type of service (IPv4) or traffic class (IPv6)."""
    at, found = 24, []
    while at < len(pcap):
        length = struct.unpack_from("<I", pcap, at + 8)[0]
        ip = pcap[at + 16 + 14 : at + 16 + length]  # behind Ethernet's header
        found.append(ip[1] if ip[0] >> 4 == 4 else int.from_bytes(ip[:2], "big") >> 4 & 0xFF)
        at += 16 + length
    return found


@unittest.skipUnless(IN_VM, "needs the VM's address")
class Bad(CmTest):
    def test_options_that_rdma_cm_decides(self):
        self.check_failed(
            run(NAME, "--traffic-class", "8"),
            NAME,
            "server",
            "--traffic-class: only for the client",
            status=2,
        )
        for option in (
            ["-d", "rxe0"],
            ["-i", "1"],
            ["-g", "1"],
            ["-m", "1024"],
            ["-l", "3"],
            ["--pkey-idx", "1"],
        ):
            for host, role in (((), "server"), ((HOST,), "client")):
                self.check_failed(
                    run(NAME, *option, *host),
                    NAME,
                    role,
                    "rdma_cm chooses these by the address",
                    status=2,
                )
        self.check_failed(run(NAME, "-Z"), NAME, "server", "-Z: no such option", status=2)
        self.check_failed(run(NAME, "-M", "x"), NAME, "server", "only for the client", status=2)

    def test_no_server(self):
        self.check_failed(
            run(NAME, "-p", str(next(ports)), HOST), NAME, "client", "cannot connect: no server\n"
        )

    def test_no_client(self):
        server, _ = self.serve("--timeout", "2")
        self.check_failed(
            end(server),
            NAME,
            "server",
            "the peer is silent: no RDMA_CM_EVENT_CONNECT_REQUEST in 2 s",
        )

    def test_strangers_are_rejected_and_then_the_right_client_is_served(self):
        """rping says other private data."""
        server, port = self.serve()
        for _ in range(3):
            stranger = ran(["rping", "-c", "-a", HOST, "-p", port, "-C", "1"])
            self.assertIn("REJECTED", stranger.stdout + stranger.stderr)
        client = run(NAME, "-p", port, HOST)
        server = end(server)
        self.assertEqual(server.err.count("refused a client: this side runs 11_rdma_cm\n"), 3)
        server.err = ""
        self.both_pass(NAME, server, client, b"hello verbs")

    def test_a_client_too_many_is_rejected(self):
        """While one is served, nobody listens any more."""
        server, port = self.serve("--timeout", "20")
        first = start(NAME, "-p", port, "--timeout", "20", "-M", "x" * 100000, HOST)
        second = start(NAME, "-p", port, "--timeout", "20", HOST)
        sides = [end(first), end(second)]
        server = end(server)
        passed = [side for side in sides if side.status == 0]
        self.assertEqual((len(passed), server.status), (1, 0), (server, *map(str, sides)))
        self.assertIn("cannot connect: no server", (sides[0].err + sides[1].err))

    def test_a_peer_that_dies_or_hangs(self):
        for sent in (signal.SIGKILL, signal.SIGSTOP):
            with self.subTest(sent=sent):
                before = rdma_resources()
                server, port = self.serve("--timeout", "4")
                server.send_signal(sent)
                time.sleep(0.2)
                client = run(NAME, "-p", port, "--timeout", "4", HOST)
                self.check_failed(
                    client,
                    NAME,
                    "client",
                    "no server"
                    if sent == signal.SIGKILL
                    else "the peer is silent: no RDMA_CM_EVENT_ESTABLISHED in 4 s",
                )
                server.kill()
                end(server)
                self.assertEqual(rdma_resources(), before)

    def test_no_device_exits_77(self):
        subprocess.run(["rdma", "link", "delete", "rxe0"], check=True)
        try:
            for host, role in (((), "server"), ((HOST,), "client")):
                self.check_failed(run(NAME, *host), NAME, role, "no RDMA device here", status=77)
        finally:
            subprocess.run(
                ["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "dummy0"], check=True
            )
