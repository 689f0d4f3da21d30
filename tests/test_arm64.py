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

GUEST = os.path.join(CACHE, "arm64-cm")  # its root file system
COPY = os.path.join(GUEST, "project")
PACKAGES = (
    "bash,coreutils,sed,grep,libc6-dev,libibverbs-dev,ibverbs-providers,iproute2,"
    "librdmacm-dev,busybox-static,util-linux"
)


def sh(command, **env):
    cwd = COPY if os.path.isdir(COPY) else ROOT
    return ran(["bash", "-c", command], cwd=cwd, env=env, timeout=4000)


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
        copy_project(COPY)
        compiler = f"CC='aarch64-linux-gnu-gcc --sysroot={GUEST}' CFLAGS='-O2 -g -Werror'"
        for sample in EVERYWHERE:
            built = sh(f"make -s -C {sample} {compiler}")
            assert built.returncode == 0, built.stderr
        apt = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="arm64."))
        sources = os.path.join(GUEST, "etc/apt/sources.list")
        more = {"TESTENV": "vm", "TESTENV_ARCH": "aarch64", "TESTENV_ROOT": GUEST}
        cls.env = {**apt_config(apt, sources, "arm64"), **more}
        updated = sh("apt-get -qq update", **cls.env)
        assert updated.returncode == 0, updated.stderr

    def test_every_pair_and_a_students_layout(self):
        """Here, and on arm64."""
        programs = {sample: f"{sample}/{PROGRAM[sample]}" for sample in EVERYWHERE}
        command = f"uname -m; testenv/demo.sh {' '.join(programs.values())}"
        command += "; echo ==" + "".join(
            f"; testenv/pair.sh {programs[sample]} --student 20260001" for sample in WITH_BLOCKS
        )
        here = ran([f"{ROOT}/testenv/testenv.sh", "run", "bash", "-c", command])
        there = sh(f"testenv/testenv.sh run bash -c '{command}'", **self.env)
        for ended in (here, there):
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertIn("aarch64", there.stdout)
        for samples, ours, theirs in zip(
            (EVERYWHERE, WITH_BLOCKS), here.stdout.split("\n==\n"), there.stdout.split("\n==\n")
        ):
            self.assertEqual(len(rows(theirs)), 2 * len(samples))
            self.assertEqual(rows(ours), rows(theirs))
            self.assertEqual({status for status, _, _ in rows(theirs).values()}, {"PASS"})
        print(f"# arm64: {rows(theirs)}")
