# SPDX-License-Identifier: BSD-2-Clause
"""The samples on arm64: cross-compiled for an emulated machine, over a root file system of
Debian's packages. The same pairs run on this machine's processor, and digests must agree."""
import os
import re
import shutil
import tempfile
import unittest

from places import CACHE, apt_config, copy_project
from samples import EVERYWHERE, PROGRAM, ROOT, WITH_BLOCKS, ran

ALL = EVERYWHERE
GUEST = os.path.join(CACHE, "arm64-cm")  # its root file system
COPY = os.path.join(GUEST, "project")
PACKAGES = (
    "bash,coreutils,sed,grep,libc6-dev,libibverbs-dev,ibverbs-providers,iproute2,"
    "librdmacm-dev,busybox-static,util-linux"
)
STUDENT = "--student 20260001"


def sh(command, **env):
    return ran(
        ["bash", "-c", command],
        cwd=COPY if os.path.isdir(COPY) else ROOT,
        env={**os.environ, **env},
        timeout=4000,
    )


def make_guest():
    if os.path.isdir(GUEST):
        return
    os.makedirs(CACHE, exist_ok=True)
    shutil.rmtree(GUEST + ".new", ignore_errors=True)
    # extract: nothing of another processor's runs here
    made = sh(
        f"mmdebstrap --quiet --mode=chrootless --variant=extract --architectures=arm64 "
        f"--include={PACKAGES} bookworm {GUEST}.new"
    )
    assert made.returncode == 0, made.stderr
    os.rename(GUEST + ".new", GUEST)


def rows(output):
    """{(sample, role): (status, bytes, digest)} of the RESULT lines."""
    found = re.findall(
        r"RESULT sample=(\S+) role=(\w+) status=(\w+) bytes=(\d+) digest=(\w+)", output
    )
    return {row[:2]: row[2:] for row in found}


class Arm64(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        make_guest()
        shutil.rmtree(COPY, ignore_errors=True)
        os.mkdir(COPY)
        copy_project(COPY)
        for sample in ALL:
            built = sh(
                f"make -s -C {sample} CC='aarch64-linux-gnu-gcc --sysroot={GUEST}'"
                " CFLAGS='-O2 -g -Werror'"
            )
            assert built.returncode == 0, built.stderr
        cls.apt = tempfile.mkdtemp(prefix="arm64.")
        cls.addClassCleanup(shutil.rmtree, cls.apt)
        cls.env = {
            **apt_config(cls.apt, os.path.join(GUEST, "etc/apt/sources.list"), "arm64"),
            "TESTENV": "vm",
            "TESTENV_ARCH": "aarch64",
            "TESTENV_ROOT": GUEST,
        }
        updated = sh("apt-get -qq update", **cls.env)
        assert updated.returncode == 0, updated.stderr

    def both(self, command):
        """The rows of the pairs that command runs: here, and on arm64."""
        here = ran(
            [os.path.join(ROOT, "testenv", "testenv.sh"), "run", "bash", "-c", command], cwd=ROOT
        )
        there = sh(f"testenv/testenv.sh run bash -c '{command}'", **self.env)
        for ended in (here, there):
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertIn("aarch64", there.stdout)
        return rows(here.stdout), rows(there.stdout)

    def check(self, samples, here, there):
        self.assertEqual(len(there), 2 * len(samples))
        self.assertEqual(here, there)
        for (sample, role), (status, size, digest) in sorted(there.items()):
            self.assertEqual(status, "PASS")
            print(f"# arm64: {sample} {role} {size} bytes {digest}")

    def test_every_pair(self):
        programs = " ".join(f"{sample}/{PROGRAM[sample]}" for sample in ALL)
        self.check(ALL, *self.both(f"uname -m; testenv/demo.sh {programs}"))

    def test_a_students_layout(self):
        samples = WITH_BLOCKS
        self.check(
            samples,
            *self.both(
                "uname -m; "
                + "; ".join(
                    f"testenv/pair.sh {sample}/{PROGRAM[sample]} {STUDENT}" for sample in samples
                )
            ),
        )
