# SPDX-License-Identifier: BSD-2-Clause
"""Other machines than the usual one: two devices, none, broken ones, ones with other limits;
and wrong options about the device and the network."""
import contextlib
import os
import re
import resource
import subprocess
import tempfile
import time
import unittest

from pairs import IN_VM, PairTest, ports
from samples import ROOT, SAMPLES, WITH_BLOCKS, end, ran, run, start, wait_for_listener

OTHER_DEVICE = os.environ.get("HV_OTHER_DEVICE", "")  # tests/other_device.c, built


def sh(script):
    subprocess.run(["sh", "-ec", script], check=True)


@contextlib.contextmanager
def changed(script, undo):
    """The machine as a script makes it; then as it was."""
    sh(script)
    try:
        yield
    finally:
        sh(undo)


def other(device):
    return {
        **os.environ,
        "LD_PRELOAD": OTHER_DEVICE,
        "HV_DEVICE": device,
        "ASAN_OPTIONS": "verify_asan_link_order=0",
    }


class DeviceTest(PairTest):
    def fails_when_met(self, sample, *args, reason, env=None):
        """The client's own device doesn't do: it says so, and the server waits on."""
        server, client = self.start_pair(sample, *args, server_args=["--timeout", "3"], env=env)
        self.check_failed(end(client), sample, "client", reason)
        server = end(server)
        self.check_failed(server, sample, "server", "no client came in 3 s", hint=False)


class WrongOptions(DeviceTest):
    def test_unknown_device_is_named_at_once(self):
        for sample in SAMPLES:
            with self.subTest(sample=sample):
                self.check_failed(
                    run(sample, "-d", "nosuch0"),
                    sample,
                    "server",
                    "no RDMA device nosuch0",
                    status=77,
                )

    def test_port_that_the_device_has_not(self):
        self.fails_when_met(
            "03_read", "-d", "rxe0", "-i", "7", reason="no ACTIVE port with a usable GID on rxe0"
        )

    def test_gid_index_that_is_empty(self):
        self.fails_when_met("03_read", "-g", "200", reason="no such GID index")

    def test_mtu_above_the_ports(self):
        self.fails_when_met(
            "03_read", "-m", "4096", reason="path MTU 4096 is above the port's, 1024"
        )

    def test_host_that_does_not_resolve(self):
        self.check_failed(
            run("03_read", "no.such.host.invalid"),
            "03_read",
            "client",
            "cannot resolve 'no.such.host.invalid'",
            hint=False,
        )

    def test_a_link_local_address_without_its_interface(self):
        for sample in SAMPLES:
            self.check_failed(
                run(sample, "fe80::1"),
                sample,
                "client",
                "cannot reach fe80::1: Invalid argument .*\n  hint: .*append %IF",
            )
            self.check_failed(
                run(sample, "-p", str(next(ports)), "--bind", "fe80::1"),
                sample,
                "server",
                "cannot listen on TCP port .* Invalid argument .*\n  hint: .*append %IF",
            )

    def test_refused_connection_says_to_start_the_server(self):
        began = time.monotonic()
        side = run("03_read", "-p", str(next(ports)), "127.0.0.1")
        self.check_failed(
            side, "03_read", "client", "cannot connect to 127.0.0.1(?s:.)*start the server first"
        )
        self.assertTrue(4 < time.monotonic() - began < 15)

    def test_unreachable_host_within_the_timeout(self):
        began = time.monotonic()
        side = run("03_read", "--timeout", "2", "10.0.0.77")
        self.check_failed(side, "03_read", "client", "cannot connect to 10.0.0.77")
        self.assertLess(time.monotonic() - began, 10)

    def test_server_port_in_use(self):
        port = str(next(ports))
        server = start("03_read", "-p", port, "--timeout", "6")
        wait_for_listener(port, server)
        self.check_failed(
            run("03_read", "-p", port),
            "03_read",
            "server",
            "cannot listen on TCP port(?s:.)*another server uses this port",
        )
        self.check_failed(end(server), "03_read", "server", "no client came in 6 s", hint=False)

    def test_memlock_limit_is_named(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become a user with a low limit")

        def become_limited_user():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
            os.setgroups([])
            os.setuid(65534)

        port = str(next(ports))
        server = start("03_read", "-p", port, "--timeout", "5")
        wait_for_listener(port, server)
        side = run("03_read", "-p", port, "-s", "1M", "127.0.0.1", preexec_fn=become_limited_user)
        self.check_failed(
            side,
            "03_read",
            "client",
            r"ibv_reg_mr of 1048576 bytes: Cannot allocate memory \(12\); " "ulimit -l is 64 KiB",
        )
        end(server)


@unittest.skipUnless(IN_VM, "would change the machine's own device")
class NoDevice(DeviceTest):
    def test_no_device_exits_77_at_once(self):
        with changed("rdma link delete rxe0", "rdma link add rxe0 type rxe netdev dummy0"):
            for sample in SAMPLES:
                for host, role in (((), "server"), (("localhost",), "client")):
                    self.check_failed(
                        run(sample, *host), sample, role, "no RDMA device here", status=77
                    )

    def test_rxe_up_takes_the_interface_of_the_default_route(self):
        """IPv4's, or where there is none, IPv6's."""
        make = os.path.join(ROOT, "testenv", "testenv.sh")
        tools = self.enterContext(tempfile.TemporaryDirectory())
        os.symlink("/bin/true", tools + "/modprobe")  # the VM's modules are loaded
        with changed(
            "rdma link delete rxe0; ip link add dummy1 type dummy; ip link add dummy2 type dummy\n"
            "ip link set dummy1 up; ip link set dummy2 up; ip address add 10.0.5.1/24 dev dummy2\n"
            "ip -6 address add fd00:5::1/64 dev dummy1 nodad",
            "ip link delete dummy1; ip link delete dummy2; rdma link add rxe0 type rxe netdev dummy0",
        ):
            for route, netdev in (
                ("ip -6 route add default via fd00:5::2 dev dummy1", "dummy1"),
                ("ip route add default via 10.0.5.2 dev dummy2", "dummy2"),
            ):
                sh(route)
                made = ran(
                    [make, "rxe-up"], env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
                )
                self.assertRegex(made.stdout, f" netdev {netdev} ?\n", made)
                sh("rdma link delete rxe0")

    def test_port_without_link(self):
        with changed("ip link set dummy0 down", "ip link set dummy0 up"):
            for sample in ("01_hello_write", "07_gssr"):
                self.fails_when_met(sample, reason="no ACTIVE port with a usable GID on any")

    def test_interface_without_an_address(self):
        with changed(
            "ip address del 10.0.0.1/24 dev dummy0", "ip address add 10.0.0.1/24 dev dummy0"
        ):
            self.fails_when_met("03_read", reason="no ACTIVE port with a usable GID")

    def test_device_without_atomics_exits_77(self):
        port = str(next(ports))
        server = start("04_atomic", "-p", port, "--timeout", "3")
        wait_for_listener(port, server)
        self.check_failed(
            run("04_atomic", "-p", port, "127.0.0.1", env=other("no-atomics")),
            "04_atomic",
            "client",
            "no atomic operations on rxe0",
            status=77,
            hint=False,
        )
        end(server)

    def test_roce_v1_is_named(self):
        self.fails_when_met(
            "03_read", env=other("roce-v1"), reason="warning: rxe0, port 1, has RoCE v1 GIDs only"
        )

    def test_a_port_without_gids_is_not_said_to_have_some(self):
        self.fails_when_met(
            "03_read", env=other("no-gids"), reason="warning: rxe0, port 1, has no GIDs\n"
        )

    def test_link_local_gids_are_named(self):
        with changed(
            "ip address del 10.0.0.1/24 dev dummy0", "ip address add 10.0.0.1/24 dev dummy0"
        ):
            self.fails_when_met(
                "03_read", reason="warning: rxe0, port 1, has no GIDs but link-local ones\n"
            )

    def test_an_index_above_255_is_never_cut_to_8_bits(self):
        server, client = self.start_pair(
            "03_read", "-d", "rxe0", server_args=["--timeout", "3"], env=other("gids-up:256")
        )
        self.check_failed(
            end(client), "03_read", "client", "no ACTIVE port with a usable GID on rxe0"
        )
        end(server)

    def test_iwarp_is_named(self):
        self.fails_when_met(
            "03_read",
            env=other("iwarp:rxe0"),
            reason="warning: rxe0 passed over: for iWARP take 11_rdma_cm\n",
        )

    def test_the_partition_key_that_is_asked_for(self):
        for sample in SAMPLES:
            for index in ("0", "300"):
                side = self.client_of(sample, "--pkey-idx", index, env=other("pkey"))
                self.assertIn(f"pkey_index {index}\n", side.out)

    def client_of(self, sample, *args, env):
        server, client = self.start_pair(sample, *args, server_args=["--timeout", "5"], env=env)
        client = end(client)
        server.kill()
        end(server)
        return client


@unittest.skipUnless(IN_VM, "would add a device to the machine")
class TwoDevices(PairTest):
    """rxe0 on 10.0.0.1 and rxe1 on 10.0.9.1: the one that is taken has the address."""

    @classmethod
    def setUpClass(cls):
        sh(
            "ip link add dummy1 type dummy; ip address add 10.0.9.1/24 dev dummy1\n"
            "ip address add fd00:9::1/64 dev dummy1 nodad; ip link set dummy1 up\n"
            "rdma link add rxe1 type rxe netdev dummy1"
        )
        for _ in range(50):  # its GIDs come when the interface is up
            with open("/sys/class/infiniband/rxe1/ports/1/gids/1", encoding="ascii") as file:
                if file.read(4) != "0000" or os.path.exists(
                    "/sys/class/infiniband/rxe1/ports/1/gid_attrs/types/1"
                ):
                    break
            time.sleep(0.1)
        time.sleep(0.5)

    @classmethod
    def tearDownClass(cls):
        sh("rdma link delete rxe1; ip link delete dummy1")

    def devices(self, sample, address, *args, server_args=()):
        """(server's, client's) device line of a pair that passes."""
        port = str(next(ports))
        server = start(sample, "-p", port, *server_args)
        wait_for_listener(port, server)
        client = run(sample, "-p", port, *args, address)
        server = end(server)
        self.both_pass(sample, server, client)
        return [
            next(line for line in side.out.splitlines() if line.startswith("device "))
            for side in (server, client)
        ], server.out + client.out

    def test_each_address_has_its_device(self):
        for sample in SAMPLES:
            for address, device in (
                ("10.0.0.1", "rxe0"),
                ("10.0.9.1", "rxe1"),
                ("fd00:9::1", "rxe1"),
            ):
                with self.subTest(sample=sample, address=address):
                    lines, out = self.devices(sample, address)
                    gid = address if ":" in address else "::ffff:" + address
                    for line in lines:
                        self.assertRegex(
                            line,
                            f"^device {device}, port 1, GID index \\d+ " f"\\({gid}\\), MTU 1024$",
                        )
                    self.assertNotIn("the first usable one is taken", out)

    def test_without_such_an_address_it_is_the_first_and_a_line_says_so(self):
        lines, out = self.devices("03_read", "127.0.0.1")
        for line in lines:
            self.assertIn("device rxe0, ", line)
        self.assertEqual(
            out.count(
                "(no port has this connection's address, ::ffff:127.0.0.1: "
                "the first usable one is taken)"
            ),
            2,
        )

    def test_the_device_that_is_named_is_taken(self):
        lines, _ = self.devices("03_read", "127.0.0.1", "-d", "rxe1", server_args=["-d", "rxe1"])
        for line in lines:
            self.assertIn("device rxe1, ", line)

    def test_a_broken_device_is_passed_over(self):
        port = str(next(ports))
        server = start("03_read", "-p", port, env=other("broken"))
        wait_for_listener(port, server)
        client = run("03_read", "-p", port, "127.0.0.1", env=other("broken"))
        server = end(server)
        for side in (server, client):
            self.assertIn("warning: rxe0 passed over: Input/output error", side.err)
            self.assertIn("device rxe1, ", side.out)
            side.err = ""
        self.both_pass("03_read", server, client)

    def client_alone(self, address, device, *args):
        """What a client prints whose devices look like others; the queue pairs then fail."""
        port = str(next(ports))
        server = start("03_read", "-p", port, "--timeout", "5")
        wait_for_listener(port, server)
        client = run("03_read", "-p", port, *args, address, env=other(device))
        server.kill()
        end(server)
        return client

    def test_on_infiniband_the_port_under_the_ipoib_interface_is_taken(self):
        both = "infiniband:rxe0/dummy0,rxe1/dummy1"
        for address, device, wanted in (
            ("10.0.0.1", both, "rxe0, port 1, LID 100"),
            ("10.0.9.1", both, "rxe1, port 1, LID 101"),
            ("fd00:9::1", both, "rxe1, port 1, LID 101"),
            # a RoCE port of the same machine comes first in the list, but has not this address
            ("10.0.9.1", "infiniband:rxe1/dummy1", "rxe1, port 1, LID 101"),
            # the other port is on InfiniBand, but this one has the address
            ("10.0.9.1", "infiniband:rxe0/ib0", r"rxe1, port 1, GID index \d+ \(::ffff:10.0.9.1\)"),
        ):
            with self.subTest(address=address, device=device):
                side = self.client_alone(address, device)
                self.assertRegex(side.out, f"(?m)^device {wanted}, MTU 1024$", side)
                self.assertNotIn("the first usable one", side.out)

    def test_where_infiniband_leaves_it_open_the_ports_are_listed(self):
        """TCP goes over a third network."""
        with changed(
            "ip link add dummy2 type dummy; ip address add 10.0.8.1/24 dev dummy2\n"
            "ip link set dummy2 up",
            "ip link delete dummy2",
        ):
            for device in ("infiniband:rxe0/ib0,rxe1/ib1", "infiniband:rxe1/ib1"):
                side = self.client_alone("10.0.8.1", device)
                self.check_failed(
                    side,
                    "03_read",
                    "client",
                    "which port\\? None has this connection's address, ::ffff:10.0.8.1, and "
                    "these are ACTIVE: rxe0 port 1, rxe1 port 1\n",
                )
                side = self.client_alone("10.0.8.1", device, "-d", "rxe1", "-i", "1")
                self.assertIn("device rxe1, port 1, LID 101, MTU 1024\n", side.out)
            # Both sides are here: they take the same one.
            side = self.client_alone("127.0.0.1", "infiniband:rxe0/ib0,rxe1/ib1")
            self.assertIn("device rxe0, port 1, LID 100, MTU 1024\n", side.out)
            self.assertIn("the first usable one is taken", side.out)
            # Two RoCE ports: as ever.
            side = self.client_alone("10.0.8.1", "")
            self.assertIn("device rxe0, port 1, GID index 1 ", side.out)

    def test_iwarp_beside_roce_is_named_and_roce_is_taken(self):
        side = self.client_alone("127.0.0.1", "iwarp:rxe0")
        self.assertIn("warning: rxe0 passed over: for iWARP take 11_rdma_cm\n", side.err)
        self.assertIn("device rxe1, ", side.out)

    def test_a_device_that_is_down_is_passed_over(self):
        with changed("ip link set dummy0 down", "ip link set dummy0 up"):
            lines, _ = self.devices("03_read", "127.0.0.1")
            for line in lines:
                self.assertIn("device rxe1, ", line)


@unittest.skipUnless(IN_VM and OTHER_DEVICE, "needs the tests' own library")
class OtherLimits(PairTest):
    """Lists and queue pairs where the device names or gives less than Soft-RoCE does."""

    LAYOUT = ("--block-size", "100", "--block-num", "100", "--stride", "150")

    def requests(self, sample, client="", server="", layout=()):
        """How many work requests the client took for 100 blocks, or those of layout."""
        port = str(next(ports))
        there = start(sample, "-p", port, env=other(server) if server else None)
        wait_for_listener(port, there)
        here = run(
            sample,
            "-p",
            port,
            *(layout or self.LAYOUT),
            "127.0.0.1",
            env=other(client) if client else None,
        )
        self.both_pass(sample, end(there), here)
        return int(re.search(r": (\d+) work requests", here.out)[1])

    def test_fewer_sges(self):
        for sample in WITH_BLOCKS:
            with self.subTest(sample=sample):
                self.assertEqual(self.requests(sample), 4)  # 32 of rxe's
                self.assertEqual(self.requests(sample, "sges:30:30:30"), 4)
                self.assertEqual(self.requests(sample, "sges:10:10:10"), 10)

    def test_a_queue_pair_that_is_refused_is_asked_for_with_less(self):
        for sample in WITH_BLOCKS:
            for why in ("", ":m"):
                with self.subTest(sample=sample, why=why):
                    self.assertEqual(self.requests(sample, "sges:32:32:20" + why), 7)  # 16
                    self.assertEqual(self.requests(sample, "sges:30:30:1" + why), 100)

    def test_shorter_queues(self):
        """Named by the device; or only found out by asking; and by one that does not set errno."""
        for sample in WITH_BLOCKS:
            for device in ("wrs:64:64", "wrs:2048:100", "wrs:2048:100:0"):
                for sides in ((device, ""), ("", device), (device, device)):
                    with self.subTest(sample=sample, device=device, sides=sides):
                        requests = self.requests(
                            sample, *sides, layout=("-B", "8", "--block-num", "4500")
                        )
                        self.assertIn(requests, (141, 4500))  # of 32 SGEs, or of 1

    def test_reads_take_the_smaller_limit(self):
        self.assertEqual(self.requests("06_scatter_read", "sges:32:13:32"), 8)
        self.assertEqual(self.requests("05_gather_write", "sges:32:13:32"), 4)

    def test_both_sides_of_07_split_at_the_smaller_limit(self):
        self.assertEqual(self.requests("07_gssr", "", "sges:7:7:7"), 15)
        self.assertEqual(self.requests("07_gssr", "sges:9:9:9", "sges:32:32:30"), 12)
