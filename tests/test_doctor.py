# SPDX-License-Identifier: BSD-2-Clause
"""make doctor: each problem that it knows, provoked in the VM; where its fix is a command,
that command is run as it stands there, and has to help."""
import os
import re
import resource
import subprocess
import tempfile
import unittest

from pairs import IN_VM
from samples import ROOT, end, ran, start, wait_for_listener

DOCTOR = os.path.join(ROOT, "testenv", "doctor.sh")


def sh(command):
    subprocess.run(["bash", "-c", command], check=True)


def somebody():
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    os.setgroups([])
    os.setuid(65534)


@unittest.skipUnless(IN_VM, "would take the machine's own device away")
class Doctor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """What it says of testenv's VM; then without the mark by which it knows that."""
        cls.guest = ran([DOCTOR], check=True).stdout
        os.remove("/run/testenv")

    def doctor(self, *within, **more):
        ended = ran([*within, DOCTOR], cwd="/", **more)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), ended.stdout)
        self.assertLess(len(ended.stdout.splitlines()), 40)
        return ended.stdout

    def problems(self, out):
        found = re.findall(r"(?m)^PROBLEM: (.*)\n    fix: (.*)$", out)
        self.assertIn(f"\nproblems  {len(found)}\n", out)
        chinese = subprocess.run(
            ["sed", "-Ef", DOCTOR.replace(".sh", ".zh.sed")],
            input=out,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        self.assertNotRegex(chinese, r"PROBLEM|fix:|\u89e3\u51b3.*(, as root|\b(the|its)\b)")
        return found

    def finds(self, problem, fix, *within, **more):
        """Exactly this one; returns its fix."""
        found = self.problems(self.doctor(*within, **more))
        self.assertEqual(len(found), 1, found)
        self.assertRegex(found[0][0], problem)
        self.assertRegex(found[0][1], fix)
        return found[0][1]

    def test_it_speaks_of_the_vm_as_the_vm(self):
        self.assertRegex(self.guest, "machine +testenv's small VM")
        self.assertRegex(self.guest, "<- the samples take this one\n")
        self.assertNotRegex(self.guest, "qemu|kvm|project")
        self.assertEqual(self.problems(self.guest), [])

    def test_a_sound_machine_and_the_gid_that_the_samples_take(self):
        out = self.doctor()
        self.assertEqual(self.problems(out), [])
        self.assertRegex(out, "rdma_rxe +loaded\n")
        self.assertRegex(out, "device +rxe0 port 1: ACTIVE, Ethernet, path MTU 1024, on dummy0")
        self.assertRegex(out, r"GID 0 +fe80:.* \(RoCE v2, link-local\)\n")
        self.assertRegex(out, r"kernel \d+\.\d+.*, x86_64, as root\n")
        self.assertRegex(out, r"versions +libibverbs [\d.]+.*, gcc \d+\.\d+.*, qemu \d+\.\d+")
        self.assertRegex(out, "kvm +no /dev/kvm")
        chosen = re.search(r"(?m)^ +GID (\d+) +(\S+) .*<- the samples take this one$", out)
        server = start("03_read", "--timeout", "20")
        wait_for_listener(18515, server)
        client = end(start("03_read", "127.0.0.1"))
        self.assertEqual(end(server).status, 0)
        self.assertIn(f"GID index {chosen[1]} ({chosen[2]})", client.out)

    def test_several_things_at_once(self):
        """Each by itself: a larger MTU, which is no problem, headers that are missing, a
        server left running, a /dev/kvm that nothing drives."""
        server = start("03_read", "--timeout", "100")
        wait_for_listener(18515, server)
        sh(
            "ip link set dummy0 mtu 4200; mknod /dev/kvm c 10 232; "
            "mount -t tmpfs none /usr/include/infiniband"
        )
        try:
            out = self.doctor()
            self.assertRegex(out, r"path MTU 4096, on dummy0 \(MTU 4200\)")
            self.assertRegex(out, "kvm +/dev/kvm can't be opened")
            found = self.problems(out)
            self.assertEqual(
                [problem for problem, _ in found],
                [
                    "something listens on TCP port 18515, perhaps a server left running",
                    "missing to build: /usr/include/infiniband/verbs.h",
                ],
            )
            self.assertIn("-p on both sides", found[0][1])
            self.assertEqual(found[1][1], "make deps")
        finally:
            sh("umount /usr/include/infiniband; rm /dev/kvm; ip link set dummy0 mtu 1500")
            server.kill()
            server.communicate()

    def test_interface_down(self):
        sh("ip link set dummy0 down")
        try:
            fix = self.finds("port 1 of rxe0 is not ACTIVE", "ip link set dummy0 up, as root")
            sh(fix.removesuffix(", as root"))
            self.assertEqual(self.problems(self.doctor()), [])
        finally:
            sh("ip link set dummy0 up")

    def test_no_address(self):
        sh("ip addr del 10.0.0.1/24 dev dummy0")
        try:
            fix = self.finds(
                "no RoCE v2 GID but link-local ones: dummy0 has no IP address",
                "ip addr add .* dev dummy0, as root",
            )
            sh(fix.split(", as root")[0])
            self.assertEqual(self.problems(self.doctor()), [])
        finally:
            sh("ip addr replace 10.0.0.1/24 dev dummy0")

    def test_another_network_namespace(self):
        out = self.doctor("unshare", "-n")
        self.assertNotIn("samples take this one", out)
        self.assertEqual(
            [problem for problem, _ in self.problems(out)],
            [
                "the addresses of rxe0's GIDs are not in this network namespace: no program here can use them"
            ],
        )
        sh("rdma system set netns exclusive")
        try:
            self.finds(
                "the addresses of rxe0's GIDs are not in this",
                "leave the namespace",
                "unshare",
                "-n",
            )
            self.finds(
                "/dev/infiniband/uverbs0 is here, but no device in this network namespace",
                "leave the namespace",
                "unshare",
                "-nm",
                "sh",
                "-c",
                'mount -t sysfs sys /sys && exec "$0"',
            )
        finally:
            sh("rdma system set netns shared")
        sh("ip -6 addr add fd00::51/64 dev dummy0 nodad; ip addr del 10.0.0.1/24 dev dummy0")
        try:
            self.assertRegex(self.doctor(), "GID .* fd00:.*samples take this one")
        finally:
            sh("ip addr replace 10.0.0.1/24 dev dummy0; ip -6 addr del fd00::51/64 dev dummy0")

    def test_rxe_up_says_why_not(self):
        """The loopback interface, one that is not there, one that has a device; a network that is in use."""

        def rxe_up(*netdev):
            return subprocess.run(
                [f"{ROOT}/testenv/testenv.sh", "rxe-up", *netdev],
                check=False,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ).stdout

        self.assertIn("rxe0 is on dummy0 already, not on lo", rxe_up("lo"))
        sh(
            "rdma link delete rxe0; rdma link add rxe7 type rxe netdev dummy0; ip link add down0 type dummy"
        )
        try:
            self.assertIn("lo is the loopback interface", rxe_up("lo"))
            self.assertIn("no network interface nosuch here", rxe_up("nosuch"))
            self.assertIn(
                "dummy0 has a Soft-RoCE device already, rxe7: use that one", rxe_up("dummy0")
            )
            self.assertRegex(rxe_up("down0"), "ip link set down0 up\n.*down0 has no IP address")
            sh(f"{ROOT}/testenv/testenv.sh rxe-down")
            self.assertIn("rxe-dummy, 10.118.51.1", rxe_up())
        finally:
            sh(
                f"{ROOT}/testenv/testenv.sh rxe-down; rdma link delete rxe7; ip link delete down0; "
                "rdma link add rxe0 type rxe netdev dummy0"
            )

    def test_what_a_device_lacks(self):
        """By the real ibv_devinfo with some of its numbers changed: there is no other device here."""
        self.assertNotIn("has none of these", self.doctor())
        with tempfile.TemporaryDirectory() as scratch:
            tool = os.path.join(scratch, "ibv_devinfo")
            with open(tool, "w", encoding="utf-8") as file:
                file.write(
                    '#!/bin/sh\n/usr/bin/ibv_devinfo "$@" | sed -E '
                    '"s/(max_(srq|mw):[^0-9]*).*/\\10/; s/ATOMIC_HCA/ATOMIC_NONE/"\n'
                )
            os.chmod(tool, 0o755)
            out = self.doctor(env={**os.environ, "PATH": scratch + ":" + os.environ["PATH"]})
        self.assertRegex(
            out,
            r"rxe0 has none of these: atomics \(04\), shared receive queues \(10\), "
            r"memory windows \(13\)\n",
        )
        self.assertEqual(self.problems(out), [])

    def test_no_device(self):
        sh("rdma link delete rxe0")
        try:
            self.finds("no RDMA device here", "'make rxe-up' as root .*'make shell'")
            sh(f"{ROOT}/testenv/testenv.sh rxe-up dummy0 >/dev/null")
            self.assertEqual(self.problems(self.doctor()), [])
        finally:
            sh(
                "rdma link show rxe0/1 >/dev/null 2>&1 || "
                "rdma link add rxe0 type rxe netdev dummy0"
            )

    def test_a_user_with_little_memlock_and_no_way_to_the_node(self):
        sh("chmod 600 /dev/infiniband/uverbs0")
        try:
            out = self.doctor(preexec_fn=somebody)
            self.assertIn("as user\n", out)
            self.assertRegex(out, r"memlock +64 KiB\n")
            self.assertRegex(out, "firewall +only root sees it\n")
            found = dict(self.problems(out))
            self.assertRegex(
                found["only 64 KiB of memory can be registered"], "limits.conf.*--size"
            )
            fix = found["you can't open /dev/infiniband/uverbs0"]
            self.assertIn("--device=", fix)
            sh(re.search(r"\((chmod .*) as root", fix)[1])
            self.finds("only 64 KiB", "raise memlock", preexec_fn=somebody)
        finally:
            sh("chmod 666 /dev/infiniband/uverbs0")

    def test_no_node_and_no_userspace_driver(self):
        sh("mount -t tmpfs none /dev/infiniband; mount -t tmpfs none /etc/libibverbs.d")
        try:
            out = self.doctor()
            found = dict(self.problems(out))
            self.assertIn("/dev/infiniband/rdma_cm can't be opened: 11 needs it", out)
            self.assertIn("ib_uverbs", found["a device, but no /dev/infiniband/uverbs*"])
            self.assertIn(
                "ibverbs-providers", found["the kernel has rxe0, libibverbs doesn't see it"]
            )
        finally:
            sh("umount /dev/infiniband /etc/libibverbs.d")
