# SPDX-License-Identifier: BSD-2-Clause
"""kernel.sh and stopped VMs: packages of each distribution's shape, wrong ones, and a
stopped VM that was changed. Packages that can't be had here are made here, of Debian's files."""
import glob
import hashlib
import os
import shutil
import subprocess
import tempfile
import unittest

from places import CACHE, apt_config, unpack_kernel
from samples import ROOT, ran, write

KERNEL_SH = os.path.join(ROOT, "testenv", "kernel.sh")
TESTENV = os.path.join(ROOT, "testenv", "testenv.sh")


def sh(command, cwd=ROOT, **env):
    return ran(["bash", "-c", command], cwd=cwd, env=env)


def start(command, **env):
    return subprocess.Popen(
        command,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class Packages(unittest.TestCase):
    """A package manager's view of the world in a temporary directory."""

    @classmethod
    def setUpClass(cls):
        """Debian's kernel in pieces: the kernel, the modules, rdma_rxe."""
        cls.dir = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="kernels."))
        ran([KERNEL_SH], check=True)  # the machine's own, which all tests use
        large = (
            f"--exclude='*/{name}/*'" for name in ("gpu", "sound", "staging", "media", "wireless")
        )
        cls.whole = unpack_kernel(cls.dir, *large, "'./boot/vmlinuz*'", "'./lib/modules/*'")
        (cls.linux,) = glob.glob(f"{cls.dir}/boot/vmlinuz*")
        (cls.modules,) = glob.glob(f"{cls.dir}/lib/modules/*/kernel")
        (cls.rxe,) = glob.glob(cls.modules + "/drivers/infiniband/sw/rxe/rdma_rxe.ko*")

    def setUp(self):
        self.work = self.enterContext(tempfile.TemporaryDirectory(dir=self.dir))
        self.repo = os.path.join(self.work, "repo")
        os.makedirs(self.repo)
        self.index = ""

    def package(self, name, depends="", **files):
        """A package of files {kind: path in it}: linux, modules, rxe."""
        tree = os.path.join(self.work, name)
        for kind, path in files.items():
            to = os.path.join(tree, path)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            if kind == "modules":
                others = shutil.ignore_patterns("rdma_rxe.ko*")
                shutil.copytree(self.modules, to, copy_function=os.link, ignore=others)
            else:
                source = self.linux if kind == "linux" else self.rxe
                shutil.copy(source, to + (".xz" if source.endswith(".xz") else ""))
        control = f"Package: {name}\nVersion: 1\nArchitecture: amd64\nMaintainer: a test <a@b>\n"
        control += (f"Depends: {depends}\n" if depends else "") + "Description: a test\n"
        write(f"{tree}/DEBIAN/control", control)
        deb = os.path.join(self.repo, name + "_1_amd64.deb")
        ran(["dpkg-deb", "-Znone", "--root-owner-group", "-b", tree, deb], check=True)
        with open(deb, "rb") as file:
            data = file.read()
        self.index += (
            f"{control}Filename: ./{os.path.basename(deb)}\nSize: {len(data)}\n"
            f"SHA256: {hashlib.sha256(data).hexdigest()}\n\n"
        )
        return deb

    def apt(self):
        """A configuration with which apt knows these packages only."""
        write(os.path.join(self.repo, "Packages"), self.index)
        sources = os.path.join(self.work, "sources")
        write(sources, f"deb [trusted=yes] file:{self.repo} ./\n")
        env = apt_config(self.work, sources, "amd64")
        ran(["apt-get", "update"], check=True, env=env)
        return env

    def kernel(self, **env):
        return sh(KERNEL_SH, TESTENV_CACHE=os.path.join(self.work, "kernels"), **env)

    def makes_one(self, **env):
        made = self.kernel(**env)
        self.assertEqual(made.returncode, 0, made.stderr)
        out = made.stdout.strip()
        listed = sh(f"busybox cpio -t <{out}/initramfs").stdout.split()
        self.assertIn("modules/rdma_rxe.ko", listed)
        self.assertGreater(os.path.getsize(out + "/vmlinux"), 20 << 20)
        again = self.kernel(**env)
        self.assertEqual((again.stdout, again.stderr), (made.stdout, ""))

    def refused(self, reason, **env):
        made = self.kernel(**env)
        self.assertNotEqual(made.returncode, 0)
        self.assertRegex(made.stderr, reason)
        left = os.listdir(os.path.join(self.work, "kernels"))
        self.assertFalse([name for name in left if not name.startswith(("lock", "debs-"))], left)

    def test_ubuntu_by_its_version_finds_the_extra_modules(self):
        v = "6.8.0-1-generic"
        self.package(f"linux-image-{v}", f"linux-modules-{v}", linux=f"boot/vmlinuz-{v}")
        self.package(f"linux-modules-{v}", modules=f"lib/modules/{v}/kernel")
        self.package(f"linux-modules-extra-{v}", rxe=f"lib/modules/{v}/kernel/x/rdma_rxe.ko")
        self.makes_one(KERNEL=f"linux-image-{v}", **self.apt())

    def test_by_hand_in_two_files_of_which_one_does_not_do(self):
        kernel = self.package("a", linux="boot/vmlinuz-1")
        all_modules = {"modules": "lib/modules/1/kernel", "rxe": "lib/modules/1/kernel/rdma_rxe.ko"}
        modules = self.package("b", **all_modules)
        without = self.package("c", linux="boot/vmlinuz-1", modules="lib/modules/1/kernel")
        half = os.path.join(self.work, "half.deb")
        with open(self.whole, "rb") as whole, open(half, "wb") as file:
            file.write(whole.read(20 << 20))
        for deb, arch, reason in (
            (without, "x86_64", r"no Soft-RoCE \(a file rdma_rxe.ko\) in: .*Another kernel may do"),
            (modules, "x86_64", r"no kernel \(a file vmlinuz\) in: "),
            (f"{kernel} {modules}", "aarch64", "a kernel for another processor than aarch64"),
            (half, "x86_64", "cannot unpack .*half.deb: is it a whole Debian package"),
        ):
            self.refused(reason, KERNEL_DEB=deb, TESTENV_ARCH=arch)
        self.makes_one(KERNEL_DEB=f"{kernel} {modules}")

    def test_interrupted(self):
        env = {"TESTENV_CACHE": os.path.join(self.work, "kernels"), "KERNEL_DEB": self.whole}
        process = start([KERNEL_SH], **env)
        self.assertIn("unpacking", process.stderr.readline())
        os.killpg(process.pid, 15)
        process.communicate()
        left = set(os.listdir(os.path.join(self.work, "kernels")))
        self.assertLessEqual(left, {"lock", "work"})
        self.makes_one(KERNEL_DEB=self.whole)


class Stopped(unittest.TestCase):
    """Where the VM is emulated, one goes on that was stopped; and any doubt about it boots one."""

    ONCE = r"testenv: starting a VM \(once.*\n"
    USELESS = r"testenv: the stopped VM in .* is of no use.*\n"

    def setUp(self):
        self.cache = self.enterContext(tempfile.TemporaryDirectory(prefix="stopped."))
        for path in glob.glob(os.path.join(CACHE, "*")):
            if os.path.isdir(path) and not os.path.basename(path).startswith("vm-"):
                os.symlink(path, os.path.join(self.cache, os.path.basename(path)))
        self.env = {"TESTENV_CACHE": self.cache, "TESTENV": "vm", "TESTENV_CPUS": "1"}
        if os.path.exists("/dev/kvm"):  # tried and found to hang, as far as this cache knows
            kernel = os.path.basename(sh(KERNEL_SH, **self.env).stdout.strip()).rpartition("-")[0]
            write(
                os.path.join(self.cache, "no-kvm"), sh("uname -nr").stdout.strip() + f" {kernel}\n"
            )

    def run_vm(self, says=""):
        """The stopped VMs that are there then."""
        command = f"{TESTENV} run sh -c 'cat /sys/class/infiniband/*/ports/1/state'"
        ended = sh(command, **self.env)
        self.assertEqual((ended.returncode, ended.stdout), (0, "4: ACTIVE\n"), ended.stderr)
        self.assertRegex(ended.stderr, f"^{says}$")
        return glob.glob(os.path.join(self.cache, "vm-[0-9]*", ""))

    def test_what_is_wrong_with_it(self):
        (vm,) = self.run_vm(self.ONCE)
        self.assertEqual(self.run_vm(), [vm])
        good = os.path.join(self.cache, "good")
        os.rename(vm, good)
        for wrong in (
            "truncate -s 50M state",
            "rm state",
        ):
            shutil.copytree(good, vm)
            sh(wrong, cwd=vm)
            self.assertEqual(self.run_vm(self.USELESS), [])
        shutil.copytree(good, vm)
        self.assertEqual(self.run_vm(), [vm])

    def test_another_one(self):
        """Another anything of which it was made: another name. And one that is interrupted is not kept."""
        self.env["TESTENV_MTU"] = "2000"
        process = start([TESTENV, "run", "true"], **self.env)
        self.assertRegex(process.stderr.readline(), self.ONCE.rstrip("\n"))
        os.killpg(process.pid, 15)
        process.communicate()
        self.assertEqual(len(self.run_vm(self.ONCE)), 1)
        self.env["TESTENV_MTU"] = "4200"
        self.assertEqual(len(self.run_vm(self.ONCE)), 2)
