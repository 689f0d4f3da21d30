# SPDX-License-Identifier: BSD-2-Clause
"""The environment itself: what a command sees in the VM, and what is left of it."""
import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import tempfile
import time
import unittest

from places import CACHE, copy_project
from samples import EVERYWHERE, PROGRAM, ROOT, SAMPLES, ran, read, wait_until, write

TESTENV = os.path.join(ROOT, "testenv", "testenv.sh")
OURS = {"TESTENV_TEST": str(os.getpid())}  # tells our VMs from those of other tests
VM = {**os.environ, **OURS, "TESTENV": "vm"}


def qemus():
    """The VMs that these tests have started and that run now, as their process numbers."""
    found, (mark,) = set(), OURS.items()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or is not ours to see
            is_qemu = read(f"/proc/{pid}/comm").startswith("qemu-system")
            if is_qemu and "=".join(mark) in read(f"/proc/{pid}/environ", "replace").split("\0"):
                found.add(pid)
    return found


class Terminal:
    """A terminal window with testenv.sh shell in it: typed at and read from."""

    def __init__(self):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execve(TESTENV, [TESTENV, "shell"], VM)
        self.seen = ""

    def type(self, text):
        os.write(self.fd, text.encode())

    def expect(self, pattern):
        """Reads until pattern shows; forgets what stood before it."""
        while not (match := re.search(pattern, self.seen)):
            if not select.select([self.fd], [], [], 300)[0]:
                raise AssertionError(f"no {pattern!r}, but: {self.seen!r}")
            self.seen += os.read(self.fd, 4096).decode(errors="replace")
        self.seen = self.seen[match.end() :]

    def end(self):
        """Reads to the end: there, Linux gives an error."""
        with contextlib.suppress(OSError):
            self.expect("no such text")
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def words(*command, cwd=ROOT, **env):
    """What a command prints, both streams in order, and its exit status."""
    ended = ran(command, cwd=cwd, env={**VM, **env}, stderr=subprocess.STDOUT)
    return ended.stdout, ended.returncode


class Places(unittest.TestCase):
    """Paths that have characters of make, the shell, socat and QEMU in them, or are long."""

    def test_everywhere(self):
        for name in ("a b, \"c\" 'd' $e;f%g#i \u4f60", "long" * 45):
            with tempfile.TemporaryDirectory(prefix="place.") as scratch:
                root, cache, tmp = (
                    os.path.join(scratch, each, name) for each in ("root", "cache", "tmp")
                )
                copy_project(root)
                os.makedirs(tmp)
                os.makedirs(os.path.dirname(cache))
                os.symlink(CACHE, cache)
                env = {"TESTENV_CACHE": cache, "TMPDIR": tmp}
                built, status = words("make", cwd=root, **env)
                self.assertEqual((status, len(built.splitlines())), (0, len(PROGRAM) + 1), built)
                out, status = words("make", "-C", "03_read", "run", "HOSTS=2", cwd=root, **env)
                self.assertEqual(status, 0, out)
                out, status = words("learn/show/show.py", "03", cwd=root, **env)
                self.assertEqual(status, 0, out)
                self.assertTrue(os.path.exists(f"{root}/results/show/03.html"))
                out += read(f"{root}/results/show/03/printed.txt")
                self.assertIn("role=client status=PASS", out)
                self.assertNotIn("ERROR: ld.so", out)


class Refused(unittest.TestCase):
    """What cannot be done is told at once, in a sentence."""

    def test_the_cache(self):
        mount = 'mount -t tmpfs -o "$1" none "$2"; TESTENV_CACHE=$2 testenv/kernel.sh'
        with tempfile.TemporaryDirectory(prefix="cache.") as cache:
            for options, said in (
                ("size=30m", "only 30 MB are free in .*: TESTENV_CACHE=DIR"),
                ("ro", "cannot write to .*: TESTENV_CACHE=DIR"),
            ):
                out, status = words("unshare", "-m", "bash", "-c", mount, "bash", options, cache)
                self.assertRegex(out, rf"\Atestenv: {said}\n\Z")
                self.assertEqual(status, 1)

    def test_what_unpacks_kernels(self):
        """Debian 12's is packed by xz, Debian 13's by zstd."""
        tools = 'ln -s /usr/bin/{bash,dirname,env,grep,id,uname} "$0"'
        with tempfile.TemporaryDirectory() as here:
            out, _ = words("bash", "-c", f"{tools}; PATH=$0 testenv/deps.sh --check vm", here)
        self.assertRegex(out, "missing:.* xz zstd")


class Run(unittest.TestCase):
    def setUp(self):
        self.before = qemus()

    def tearDown(self):
        self.assertTrue(wait_until(lambda: qemus() <= self.before, 60), "a VM is left running")

    def start(self, *command, **env):
        return subprocess.Popen(
            [TESTENV, "run", *command],
            env={**VM, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run_vm(self, *command, **env):
        """Exit status, stdout, stderr."""
        process = self.start(*command, **env)
        out, err = process.communicate(timeout=900)
        return process.returncode, out, err

    def test_no_capability_at_all(self):
        """As in a container with --cap-drop=all: apt can't become another user, say."""
        drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "sh", "-c"]
        with tempfile.TemporaryDirectory(prefix="container.") as cache:
            script = "grep CapEff /proc/self/status; make -s demo"
            out, status = words(*drop, script, TESTENV_CACHE=cache)
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"^CapEff:\t0+\n")
        for sample in SAMPLES:
            self.assertRegex(out, rf"(?m)^{sample} +PASS +PASS *$")
        number = len(EVERYWHERE)
        self.assertIn(f"\n{number} of {number} pairs passed, 2 not here\n", out)

    def test_output_status_and_arguments_are_unchanged(self):
        """And what is written stays in the VM, except under results/."""
        odd = ["two words", "it's", '"$HOME"', "a\nb", "你好", "", "*"]
        mark = write(f"{ROOT}/results/test-mark", "")
        script = (
            'printf "%s\\n" "$@"; head -c 300000 /usr/bin/qemu-system-x86_64;'
            " head -c 300000 /bin/busybox >&2; touch Makefile.mark /etc/mark;"
            " echo kept >results/test-mark; test -e /dev/infiniband/uverbs0 && exit 77"
        )
        status, out, err = self.run_vm("bash", "-c", f"cd {ROOT}; {script}", "bash", *odd)
        with open("/usr/bin/qemu-system-x86_64", "rb") as file:
            wanted = "".join(a + "\n" for a in odd).encode() + file.read(300000)
        with open("/bin/busybox", "rb") as file:
            wanted_err = file.read(300000)
        self.assertEqual(status, 77)
        self.assertTrue(out == wanted, "stdout differs")
        self.assertTrue(err.endswith(wanted_err), "stderr differs")
        self.assertFalse(os.path.exists(f"{ROOT}/Makefile.mark") or os.path.exists("/etc/mark"))
        self.assertEqual(read(mark), "kept\n")
        os.remove(mark)

    def test_interrupt_leaves_nothing_running(self):
        for hosts in (1, 2):
            with self.start("sleep", "10000", TESTENV_HOSTS=str(hosts)) as process:
                runs = wait_until(lambda: len(qemus() - self.before) == hosts, 300)
                self.assertTrue(runs, "no VM started")
                time.sleep(2)
                os.killpg(process.pid, signal.SIGINT)
                self.assertEqual(process.wait(99), 130)
            self.assertTrue(wait_until(lambda: qemus() <= self.before, 60), "still running")

    def test_limit_is_kept(self):
        status, _, err = self.run_vm("sleep", "10000", TESTENV_LIMIT="8")
        self.assertEqual(status, 124)
        limit = int(re.search(b"limit of ([0-9]+) s", err)[1])
        self.assertEqual(limit % 8, 0, "more on a busy machine")

    def test_a_crash_or_a_signal_leaves_a_log_and_its_reason(self):
        status, _, err = self.run_vm("sh", "-c", "echo c >/proc/sysrq-trigger")
        self.assertEqual(status, 125)
        self.assertRegex(err, rb"VM failed \(Kernel panic - .*\); its console log is /.*")
        with self.start("sh", "-c", "echo begun; sleep 10000") as process:
            self.assertEqual(process.stdout.readline(), b"begun\n")
            process.terminate()
            self.assertRegex(process.stderr.read(), b"by a signal.*; its console log is /.*")
        self.assertEqual(process.returncode, 143)

    def test_two_terminals_share_a_vm(self):
        ran(["make", "-s"], check=True)
        one = Terminal()
        one.expect("terminal 1 of 4")
        two = Terminal()
        two.expect("terminal 2 of 4")
        self.assertEqual(len(qemus() - self.before), 1)
        one.expect("[#$] ")
        two.expect("[#$] ")
        one.type("03_read/read\n")
        one.expect("waiting for a client")
        one.type("\x03")  # Ctrl-C goes to the program, not to the VM
        one.expect("[#$] ")
        one.type("03_read/read; echo status=$?\n")
        one.expect("waiting for a client")
        two.type("03_read/read 127.0.0.1; echo status=$?\n")
        two.expect("role=client status=PASS.*\r\n.*status=0")
        one.expect("role=server status=PASS.*\r\n.*status=0")
        one.type("exit\n")
        one.end()
        two.type("echo still $((6 * 7))\n")
        two.expect("still 42")
        two.type("exit\n")
        two.end()
