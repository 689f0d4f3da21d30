# SPDX-License-Identifier: BSD-2-Clause
"""Other machines than the usual one: two devices, none, broken ones, ones with other limits;
and wrong options about the device and the network. What looks at devices is common/device.c: one sample
does; where samples have something of their own, each. (Which GID is best: unit/test_choices.c.)"""
import os
import re
import tempfile
import time

from pairs import OTHER_DEVICE, PairTest, preloaded
from samples import ROOT, SAMPLES, WITH_BLOCKS, changed, end, ran, run, sh

SAMPLE = "03_read"
NONE_USABLE = "no ACTIVE port with a usable GID on "


def other(device):
    return preloaded(OTHER_DEVICE, HV_DEVICE=device)


class DeviceTest(PairTest):
    def fails_when_met(self, *args, reason, sample=SAMPLE, device="", status=1, hint=True):
        """The client's own device doesn't do: it says so, and the server waits on."""
        server, port = self.serve(sample, "--timeout", 3)
        client = run(sample, "-p", port, *args, "127.0.0.1", env=other(device))
        self.check_failed(client, sample, "client", reason, status=status, hint=hint)
        self.check_failed(end(server), sample, "server", "no client came in 3 s", hint=False)

    def client_alone(self, *args, address="127.0.0.1", sample=SAMPLE, device=""):
        """What a client prints whose devices look like others; the queue pairs then fail."""
        server, port = self.serve(sample, "--timeout", 5)
        client = run(sample, "-p", port, *args, address, env=other(device))
        server.kill()
        end(server)
        return client


class WrongOptions(DeviceTest):
    def test_what_the_device_has_not(self):
        self.fails_when_met("-d", "rxe0", "-i", 7, reason=NONE_USABLE + "rxe0", status=77)
        self.fails_when_met("-g", 200, reason="no such GID index")
        self.fails_when_met("-m", 4096, reason="path MTU 4096 is above the port's, 1024")

    def test_addresses(self):
        other, port = self.serve(SAMPLE)
        for args, role, reason in (
            ([], "server", "cannot listen on .*\n  hint: .*another server uses this port"),
            (["no.such.host.invalid"], "client", "cannot resolve 'no.such.host.invalid'"),
            (["fe80::1"], "client", "cannot reach fe80::1: Invalid .*\n  hint: .*append %IF"),
            (["--bind", "fe80::1"], "server", "cannot listen on .*\n  hint: .*append %IF"),
            (
                ["--timeout", 2, "10.0.0.77"],
                "client",
                "cannot connect to 10.0.0.77.*\n.*server first",
            ),
        ):
            began = time.monotonic()
            side = run(SAMPLE, "-p", port, *args)
            self.check_failed(side, SAMPLE, role, reason, hint="resolve" not in reason)
            self.assertLess(time.monotonic() - began, 28)
        other.kill()
        end(other)


class NoDevice(DeviceTest):
    def test_no_device_exits_77_at_once(self):
        for sample in SAMPLES:
            side = run(sample, "-d", "nosuch0")
            self.check_failed(side, sample, "server", "no RDMA device nosuch0", status=77)
        with changed("rdma link delete rxe0", "rdma link add rxe0 type rxe netdev dummy0"):
            for sample in (*SAMPLES, "11_rdma_cm"):
                for host, role in (((), "server"), (("10.0.0.1",), "client")):
                    side = run(sample, *host)
                    self.check_failed(side, sample, role, "no RDMA device here", status=77)

    def test_rxe_up_takes_the_interface_of_the_default_route(self):
        tools = self.enterContext(tempfile.TemporaryDirectory())
        os.symlink("/bin/true", tools + "/modprobe")  # the VM's modules are loaded
        env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        with changed(
            "rdma link delete rxe0; ip link add dummy2 type dummy; ip link set dummy2 up\n"
            "ip address add 10.0.5.1/24 dev dummy2; ip route add default via 10.0.5.2 dev dummy2",
            "rdma link delete rxe0; ip link delete dummy2; rdma link add rxe0 type rxe netdev dummy0",
        ):
            made = ran([f"{ROOT}/testenv/testenv.sh", "rxe-up"], env=env)
            self.assertRegex(made.stdout, " netdev dummy2 ?\n", made)

    def test_a_port_without_link_or_address(self):
        with changed("ip link set dummy0 down", "ip link set dummy0 up"):
            self.fails_when_met(reason=NONE_USABLE + "any", status=77)
            testenv = f"{ROOT}/testenv/testenv.sh"  # it would take the VM
            self.assertEqual(ran([testenv, "has-device"]).returncode, 1)
            native = ran([testenv, "run", "true"], env={"TESTENV": "native"})
            self.assertEqual(native.returncode, 77)
            self.assertIn(
                "no RDMA device here with an ACTIVE port that root can open", native.stderr
            )
        add, delete = (f"ip address {do} 10.0.0.1/24 dev dummy0" for do in ("add", "del"))
        with changed(delete, add):
            reason = "warning: rxe0, port 1, has no GIDs but link-local ones\n"
            self.fails_when_met(reason=reason + ".*" + NONE_USABLE, status=77)

    def test_devices_that_do_not_do_are_named(self):
        for device, reason in (
            ("roce-v1", "warning: rxe0, port 1, has RoCE v1 GIDs only"),
            ("iwarp:rxe0", "warning: rxe0 passed over: for iWARP take 11_rdma_cm\n"),
        ):
            self.fails_when_met(device=device, reason=reason, status=77)
        reason = "no atomic operations on rxe0"
        more = {"sample": "04_atomic", "device": "no-atomics", "status": 77, "hint": False}
        self.fails_when_met(reason=reason, **more)

    def test_the_partition_key_that_is_asked_for(self):
        for sample in (
            "01_hello_write",
            SAMPLE,
            "09_ud",
        ):  # the first and the last by code of their own
            for index in ("0", "300"):
                side = self.client_alone("--pkey-idx", index, sample=sample, device="pkey")
                self.assertIn(f"pkey_index {index}\n", side.out)


class TwoDevices(DeviceTest):
    """rxe0 on 10.0.0.1 and rxe1 on 10.0.9.1: the one that is taken has the address."""

    @classmethod
    def setUpClass(cls):
        sh(
            "ip link add dummy1 type dummy; ip address add 10.0.9.1/24 dev dummy1\n"
            "ip address add fd00:9::1/64 dev dummy1 nodad; ip link set dummy1 up\n"
            "rdma link add rxe1 type rxe netdev dummy1\n"
            "until grep -q v2 /sys/class/infiniband/rxe1/ports/1/gid_attrs/types/1; do sleep 0.1\n"
            "done 2>/dev/null; sleep 0.5"  # its GIDs come when the interface is up
        )

    @classmethod
    def tearDownClass(cls):
        sh("rdma link delete rxe1; ip link delete dummy1")

    def devices(self, address, device, *args, sample=SAMPLE, env=None):
        """A pair that passes; both sides have this device. Returns what they printed."""
        server, port = self.serve(sample, *args, env=env)
        client = run(sample, "-p", port, *args, address, env=env)
        server = end(server)
        if env:
            for side in (server, client):
                passed_over = rf"^{sample} \w+: warning: rxe0 passed over: .*\n( .*\n)?$"
                self.assertRegex(side.err, passed_over)
                side.err = ""
        self.both_pass(sample, server, client)
        for side in (server, client):
            self.assertRegex(side.out, f"(?m)^device {device}, port 1, .*MTU 1024$")
        return server.out + client.out

    def test_each_address_has_its_device(self):
        for sample in SAMPLES:
            for address, device in (("10.0.0.1", "rxe0"), ("fd00:9::1", "rxe1")):
                out = self.devices(address, device, sample=sample)
                self.assertEqual(out.count(f"{address})"), 2)
                self.assertNotIn("the first usable one is taken", out)

    def test_without_such_an_address_it_is_the_first_and_a_line_says_so(self):
        out = self.devices("127.0.0.1", "rxe0")
        said = "this connection's address, ::ffff:127.0.0.1: the first usable one is taken)"
        self.assertEqual(out.count(said), 2)

    def test_a_device_that_does_not_do_is_passed_over(self):
        self.devices("127.0.0.1", "rxe1", env=other("broken"))
        self.devices("127.0.0.1", "rxe1", env=other("iwarp:rxe0"))
        with changed("ip link set dummy0 down", "ip link set dummy0 up"):
            self.devices("127.0.0.1", "rxe1")

    def test_on_infiniband_the_port_under_the_ipoib_interface_is_taken(self):
        side = self.client_alone(address="10.0.9.1", device="infiniband:rxe0/dummy0,rxe1/dummy1")
        self.assertIn("device rxe1, port 1, LID 101, MTU 1024\n", side.out)
        self.assertNotIn("the first usable one", side.out)

    def test_where_infiniband_leaves_it_open_the_ports_are_listed(self):
        """TCP goes over a third network."""
        device = "infiniband:rxe0/ib0,rxe1/ib1"
        with changed(
            "ip link add dummy2 type dummy; ip address add 10.0.8.1/24 dev dummy2\n"
            "ip link set dummy2 up",
            "ip link delete dummy2",
        ):
            side = self.client_alone(address="10.0.8.1", device=device)
            reason = (
                "which port\\? None has this connection's address, ::ffff:10.0.8.1, and "
                "these are ACTIVE: rxe0 port 1, rxe1 port 1\n"
            )
            self.check_failed(side, SAMPLE, "client", reason)
            args = ["-d", "rxe1", "-i", "1"]
            side = self.client_alone(*args, address="10.0.8.1", device=device)
            self.assertIn("device rxe1, port 1, LID 101, MTU 1024\n", side.out)


class OtherLimits(PairTest):
    """Lists and queue pairs where the device names or gives less than Soft-RoCE does."""

    LAYOUT = ("--block-size", 100, "--block-num", 100, "--stride", 150)

    def requests(self, sample, client="", server="", layout=LAYOUT):
        """How many work requests the client took for 100 blocks, or those of layout."""
        there, port = self.serve(sample, env=other(server))
        here = run(sample, "-p", port, *layout, "127.0.0.1", env=other(client))
        self.both_pass(sample, end(there), here)
        return int(re.search(r": (\d+) work requests", here.out)[1])

    def test_fewer_sges(self):
        """Than 32; or fewer than the device names: a queue pair that is refused, by either errno, is
        asked for with less."""
        for sample in WITH_BLOCKS:
            for device, requests in (
                ("sges:10:10:10", 10),
                ("sges:32:32:20", 7),  # 16
                ("sges:30:30:1:m", 100),
            ):
                self.assertEqual(self.requests(sample, device), requests)
        # READs have a limit of their own, and 07 splits at the smaller one of both sides.
        self.assertEqual(self.requests("06_scatter_read", "sges:32:13:32"), 8)
        self.assertEqual(self.requests("07_gssr", "", "sges:7:7:7"), 15)

    def test_shorter_queues(self):
        """Named by the device; or only found out by asking, from one that does not set errno."""
        layout = ("-B", 8, "--block-num", 4500)
        for sample in WITH_BLOCKS:
            for sides in (("wrs:64:64", ""), ("", "wrs:2048:100:0")):
                requests = self.requests(sample, *sides, layout=layout)
                self.assertIn(requests, (141, 4500))  # of 32 SGEs, or of 1
