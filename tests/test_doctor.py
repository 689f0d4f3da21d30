# SPDX-License-Identifier: BSD-2-Clause
"""make doctor: each problem that it knows, provoked in the VM; where its fix is a command,
that command is run as it stands there, and has to help."""
import os
import re
import resource
import subprocess
import unittest

from pairs import IN_VM
from samples import ROOT, changed, end, ran, sh, start, wait_for_listener

DOCTOR = os.path.join(ROOT, "testenv", "doctor.sh")
TESTENV = os.path.join(ROOT, "testenv", "testenv.sh")
NEW_DEVICE = "rdma link add rxe0 type rxe netdev dummy0"
# What breaks it, what mends it; the problem and its fix; whether the fix is a command.
BROKEN = (
    (
        "ip link set dummy0 down",
        "ip link set dummy0 up",
        "port 1 of rxe0 is not ACTIVE",
        "ip link set dummy0 up, as root",
        True,
    ),
    (
        "ip addr del 10.0.0.1/24 dev dummy0",
        "ip addr replace 10.0.0.1/24 dev dummy0",
        "no RoCE v2 GID but link-local ones: dummy0 has no IP address",
        "ip addr add .* dev dummy0, as root",
        True,
    ),
    ("rdma link delete rxe0", NEW_DEVICE, "no RDMA device", "make rxe-up.*make shell", False),
)


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
        return ended.stdout

    def problems(self, out):
        """{problem: fix}; both are told in Chinese, too."""
        found = re.findall(r"(?m)^PROBLEM: (.*)\n    fix: (.*)$", out)
        self.assertIn(f"\nproblems  {len(found)}\n", out)
        sed = ["sed", "-Ef", DOCTOR.replace(".sh", ".zh.sed")]
        chinese = subprocess.check_output(sed, input=out, text=True)
        self.assertNotRegex(chinese, r"PROBLEM|fix:|解决.*(, as root|\b(the|its)\b)")
        return dict(found)

    def finds(self, problem, fix, *within, **more):
        """Exactly this one; returns its fix."""
        ((found, its_fix),) = self.problems(self.doctor(*within, **more)).items()
        self.assertRegex(found, problem)
        self.assertRegex(its_fix, fix)
        return its_fix

    def test_it_speaks_of_the_vm_as_the_vm(self):
        self.assertRegex(self.guest, "machine +testenv's small VM")
        self.assertNotRegex(self.guest, "qemu|kvm|project")
        self.assertEqual(self.problems(self.guest), {})

    def test_a_sound_machine_and_the_gid_that_the_samples_take(self):
        out = self.doctor()
        self.assertEqual(self.problems(out), {})
        for line in (
            "rdma_rxe +loaded\n",
            "device +rxe0 port 1: ACTIVE, Ethernet, path MTU 1024, on dummy0",
            r"rxe0 has none of these: FLUSH and ATOMIC WRITE \(15\), on-demand paging \(17\)\n",
            r"GID 0 +fe80:.* \(RoCE v2, link-local\)\n",
            r"kernel \d+\.\d+.*, x86_64, as root\n",
            r"versions +libibverbs [\d.]+.*, gcc \d+\.\d+.*, qemu \d+\.\d+",
            "kvm +no /dev/kvm",
        ):
            self.assertRegex(out, line)
        chosen = re.search(r"(?m)^ +GID (\d+) +(\S+) .*<- the samples take this one$", out)
        server = start("03_read", "--timeout", "20")
        wait_for_listener(18515, server)
        left = "something listens on TCP port 18515, perhaps a server left running"
        self.finds(left, "-p on both sides")
        client = end(start("03_read", "127.0.0.1"))
        self.assertEqual(end(server).status, 0)
        self.assertIn(f"GID index {chosen[1]} ({chosen[2]})", client.out)

    def test_each_problem_and_its_fix(self):
        for command, back, problem, fix, is_command in BROKEN:
            with changed(command, back):
                told = self.finds(problem, fix)
                if is_command:
                    sh(re.sub(r", as root.*", "", told))
                    self.assertEqual(self.problems(self.doctor()), {})

    def test_no_node_and_no_userspace_driver(self):
        mounts = "/dev/infiniband", "/etc/libibverbs.d"
        hidden = "; ".join(f"mount -t tmpfs none {path}" for path in mounts)
        with changed(hidden, f"umount {' '.join(mounts)}"):
            out = self.doctor()
            self.assertIn("/dev/infiniband/rdma_cm can't be opened: 11 needs it", out)
            found = self.problems(out)
            self.assertIn("ib_uverbs", found["a device, but no /dev/infiniband/uverbs*"])
            not_seen = "the kernel has rxe0, libibverbs doesn't see it"
            self.assertIn("ibverbs-providers", found[not_seen])

    def test_a_user_with_little_memlock_and_no_way_to_the_node(self):
        with changed("chmod 600 /dev/infiniband/uverbs0", "chmod 666 /dev/infiniband/uverbs0"):
            out = self.doctor(preexec_fn=somebody)
            self.assertIn("as user\n", out)
            found = self.problems(out)
            little = "only 64 KiB of memory can be registered"
            self.assertRegex(found[little], "limits.conf.*--size")
            fix = found["you can't open /dev/infiniband/uverbs0"]
            self.assertIn("--device=", fix)
            sh(re.search(r"\((chmod .*) as root", fix)[1])
            self.finds(little, "raise memlock", preexec_fn=somebody)

    def test_another_network_namespace(self):
        addresses = "the addresses of rxe0's GIDs are not in this network namespace"
        self.assertNotIn("samples take this one", self.doctor("unshare", "-n"))
        self.finds(addresses, ".", "unshare", "-n")
        with changed("rdma system set netns exclusive", "rdma system set netns shared"):
            self.finds(addresses, "leave the namespace", "unshare", "-n")
            inside = ["unshare", "-nm", "sh", "-c", 'mount -t sysfs sys /sys && exec "$0"']
            self.finds("but no device in this network namespace", "leave the namespace", *inside)

    def test_rxe_up_says_why_not(self):
        """The loopback interface, one that is not there, one that has a device."""

        def says(words, *netdev):
            ended = ran([TESTENV, "rxe-up", *netdev])
            self.assertIn(words, ended.stdout + ended.stderr)

        says("rxe0 is on dummy0 already, not on lo", "lo")
        sh("rdma link delete rxe0")
        says("lo is the loopback interface", "lo")
        says("no network interface nosuch here", "nosuch")
        with changed(NEW_DEVICE.replace("rxe0", "rxe7"), "rdma link delete rxe7"):
            says("dummy0 has a Soft-RoCE device already, rxe7: use that one", "dummy0")
        sh(f"{TESTENV} rxe-down; {TESTENV} rxe-up dummy0")
        self.assertEqual(self.problems(self.doctor()), {})
