# SPDX-License-Identifier: BSD-2-Clause
"""The environment itself: what a command sees in the VM, and what is left of it."""
import glob
import os
import pty
import re
import select
import signal
import subprocess
import tempfile
import time
import unittest

from places import CACHE
from samples import EVERYWHERE, ROOT, SAMPLES, ran

TESTENV = os.path.join(ROOT, "testenv", "testenv.sh")
OURS = {"TESTENV_TEST": str(os.getpid())}  # tells our VMs from those of other tests
NAMES = [os.path.basename(path)[:-2] for path in sorted(glob.glob(f"{ROOT}/[0-9][0-9]_*/*.c"))]
VM = {**os.environ, **OURS, "TESTENV": "vm"}


def qemus():
    """The VMs that these tests have started and that run now, as their process numbers."""
    found, (mark,) = set(), OURS.items()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", "rb") as comm:
                is_qemu = comm.read().startswith(b"qemu-system")
            with open(f"/proc/{pid}/environ", "rb") as file:
                if is_qemu and "=".join(mark).encode() in file.read().split(b"\0"):
                    found.add(pid)
        except OSError:  # it has ended meanwhile, or is not ours to see
            continue
    return found


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


class Terminal:
    """A terminal window: a process on a pseudo-terminal, typed at and read from."""

    def __init__(self, *command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execve(command[0], command, VM)
        self.seen = ""

    def type(self, text):
        os.write(self.fd, text.encode())

    def expect(self, pattern, seconds=300):
        """Reads until pattern shows; forgets what stood before it."""
        deadline = time.monotonic() + seconds
        while not (match := re.search(pattern, self.seen)):
            if not select.select([self.fd], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"no {pattern!r} in {seconds} s, but: {self.seen!r}")
            try:
                self.seen += os.read(self.fd, 4096).decode(errors="replace")
            except OSError as error:
                raise AssertionError(f"no {pattern!r} before the end: {self.seen!r}") from error
        self.seen = self.seen[match.end() :]
        return match

    def end(self):
        """Waits for the process and returns its exit status."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    os.read(self.fd, 4096)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("the shell did not end")


class Container(unittest.TestCase):
    def test_no_capability_at_all(self):
        """As in a container with --cap-drop=all: apt can't become another user, say."""
        with tempfile.TemporaryDirectory(prefix="container.") as cache:
            ended = ran(
                [
                    "setpriv",
                    "--bounding-set=-all",
                    "--inh-caps=-all",
                    "--no-new-privs",
                    "sh",
                    "-c",
                    "grep CapEff /proc/self/status; make -s demo",
                ],
                cwd=ROOT,
                env={**VM, "TESTENV_CACHE": cache},
            )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertRegex(ended.stdout, r"^CapEff:\t0+\n")
        for sample in SAMPLES:
            self.assertRegex(ended.stdout, rf"(?m)^{sample} +PASS +PASS *$")
        self.assertTrue(
            ended.stdout.endswith(
                f"\n{len(EVERYWHERE)} of {len(EVERYWHERE)} pairs passed, 1 not here\n"
            ),
            ended.stdout,
        )


def words(*command, cwd=ROOT, **env):
    """What a command prints, both streams in order, and its exit status."""
    ended = subprocess.run(
        command,
        cwd=cwd,
        env={**VM, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    return ended.stdout, ended.returncode


def copy_to(directory):
    """What git tracks, as a student has it after a clone."""
    os.makedirs(directory)
    subprocess.run(
        ["bash", "-c", 'git ls-files -z | xargs -0 cp --parents -t "$1"', "bash", directory],
        check=True,
        cwd=ROOT,
    )


class Places(unittest.TestCase):
    """Paths that have characters of make, the shell, socat and QEMU in them, or are long."""

    def test_everywhere(self):
        for name in ("a b, \"c\" 'd' $e;f%g#i \u4f60", "long" * 45):
            with self.subTest(name=name), tempfile.TemporaryDirectory(prefix="place.") as scratch:
                root, cache, tmp = (
                    os.path.join(scratch, each, name) for each in ("root", "cache", "tmp")
                )
                copy_to(root)
                os.makedirs(tmp)
                os.makedirs(os.path.dirname(cache))
                os.symlink(CACHE, cache)
                env = {"TESTENV_CACHE": cache, "TMPDIR": tmp}
                built, status = words("make", cwd=root, **env)
                self.assertEqual((status, len(built.splitlines())), (0, len(NAMES) + 1), built)
                out, status = words("make", "-C", "03_read", "run", "HOSTS=2", cwd=root, **env)
                self.assertEqual(status, 0, out)
                out, status = words("learn/show/show.py", "03", cwd=root, **env)
                self.assertEqual(status, 0, out)
                self.assertTrue(os.path.exists(f"{root}/results/show/03.html"))
                with open(f"{root}/results/show/03/printed.txt", encoding="utf-8") as printed:
                    out += printed.read()
                self.assertIn("role=client status=PASS", out)
                self.assertNotIn("ERROR: ld.so", out)


class Refused(unittest.TestCase):
    """What cannot be done is told at once, in a sentence."""

    def mounted(self, script, *arguments):
        return words("unshare", "-m", "bash", "-c", script, "bash", *arguments)

    def test_the_cache(self):
        with tempfile.TemporaryDirectory(prefix="cache.") as cache:
            for mount, said in (
                ("size=30m", "only 30 MB are free in .*: TESTENV_CACHE=DIR"),
                ("ro", "cannot write to .*: TESTENV_CACHE=DIR"),
            ):
                out, status = self.mounted(
                    'mount -t tmpfs -o "$1" none "$2"; TESTENV_CACHE=$2 testenv/kernel.sh',
                    mount,
                    cache,
                )
                self.assertRegex(out, rf"\Atestenv: {said}\n\Z")
                self.assertEqual(status, 1)
            out, status = words("testenv/kernel.sh", TESTENV_CACHE=TESTENV)
            self.assertRegex(out, r"\Atestenv: cannot write to .*: TESTENV_CACHE=DIR\n\Z")

    def test_read_only(self):
        mount = 'mount --bind . . && mount -o remount,bind,ro . && cd "$PWD" && '
        out, _ = self.mounted(mount + "make starter LAB=03 DIR=my19")
        self.assertRegex(
            out, r"\A\S*my19 cannot be written \(Read-only file system\)\..*\nmake: .*\n\Z"
        )
        out, _ = self.mounted(mount + "make -C 03_read OUT=new")
        self.assertIn(f"you cannot write to {ROOT}/03_read/new/objects: copy the project", out)
        self.assertNotIn("VM", out)

    def test_full(self):
        with tempfile.TemporaryDirectory(prefix="full.") as root:
            out, _ = self.mounted(
                'mount -t tmpfs -o size=20m none "$1" && git ls-files -z | xargs -0 cp --parents -t "$1"'
                ' && cd "$1" && { dd if=/dev/zero of=fill status=none; make -s starter LAB=03; rm fill;'
                " make -s starter LAB=03; } 2>&1",
                root,
            )
        self.assertRegex(out, r"cannot be written \(No space left on device\)")
        self.assertIn("\nmy03/read.c is yours to complete:", out)


class Made(unittest.TestCase):
    def test_what_make_prints(self):
        with tempfile.TemporaryDirectory(prefix="made.") as scratch:
            root = f"{scratch}/root"
            copy_to(root)
            for language, last in (
                ("en", "Next: make demo"),
                ("zh", "\u4e0b\u4e00\u6b65"),
                ("de", "Next: make demo"),
            ):
                os.utime(f"{root}/03_read/read.c")
                out, _ = words("make", cwd=root, LAB_LANG=language)
                self.assertEqual(
                    out.splitlines()[:-1],
                    ["  read"] if language != "en" else [f"  {name}" for name in NAMES],
                    out,
                )
                self.assertIn(last, out.splitlines()[-1])
            for command in (["make", "-C", "03_read"], ["make", "V=1"]):
                os.utime(f"{root}/03_read/read.c")
                self.assertRegex(words(*command, cwd=root)[0], "(?m)^gcc .* -o read read.c")
            self.assertEqual(words("make", "-s", cwd=root), ("", 0))
            # A verdict is no error of make's; for scripts it is one of check.py's.
            words("make", "starter", "LAB=03", cwd=root)
            out, status = words("make", "check", "LAB=03", cwd=root)
            self.assertEqual((status, "***" in out), (0, False), out)
            self.assertEqual(words("judge/check.py", "check", "03", cwd=root)[1], 1)


class Run(unittest.TestCase):
    def setUp(self):
        self.before = qemus()

    def tearDown(self):
        self.assertTrue(wait_for(lambda: qemus() <= self.before, 60), "a VM is left running")

    def run_vm(self, *command, **more):
        return subprocess.run(
            [TESTENV, "run", *command],
            env=VM,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=900,
            check=False,
            **more,
        )

    def test_output_status_and_arguments_are_unchanged(self):
        odd = ["two words", "it's", '"$HOME"', "a\nb", "你好", "", "*"]
        script = (
            'printf "%s\\n" "$@"; head -c 300000 /usr/bin/qemu-system-x86_64;'
            " head -c 300000 /bin/busybox >&2; test -e /dev/infiniband/uverbs0 && exit 77"
        )
        ended = self.run_vm("bash", "-c", script, "bash", *odd)
        with open("/usr/bin/qemu-system-x86_64", "rb") as file:
            out = "".join(a + "\n" for a in odd).encode() + file.read(300000)
        with open("/bin/busybox", "rb") as file:
            err = file.read(300000)
        self.assertEqual(ended.returncode, 77)
        self.assertTrue(ended.stdout == out, "stdout differs")
        self.assertTrue(ended.stderr.endswith(err), "stderr differs")

    def test_writes_stay_in_the_vm_except_under_results(self):
        results = os.path.join(ROOT, "results")
        os.makedirs(results, exist_ok=True)
        mark = os.path.join(results, "test-mark")
        ended = self.run_vm(
            "bash",
            "-c",
            "touch Makefile.mark /etc/mark && cat Makefile.mark && "
            "echo kept > results/test-mark",
            cwd=ROOT,
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertFalse(os.path.exists(os.path.join(ROOT, "Makefile.mark")))
        self.assertFalse(os.path.exists("/etc/mark"))
        with open(mark, encoding="ascii") as file:
            self.assertEqual(file.read(), "kept\n")
        os.remove(mark)

    def test_interrupt_leaves_nothing_running(self):
        for hosts in (1, 2):
            with self.subTest(hosts=hosts):
                process = subprocess.Popen(
                    [TESTENV, "run", "sleep", "10000"],
                    env={**VM, "TESTENV_HOSTS": str(hosts)},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                self.assertTrue(
                    wait_for(lambda: len(qemus() - self.before) == hosts, 300), "no VM started"
                )
                time.sleep(2)
                os.killpg(process.pid, signal.SIGINT)
                self.assertEqual(process.wait(10), 130)
                self.assertTrue(wait_for(lambda: qemus() <= self.before, 60), "still running")

    def test_limit_is_kept(self):
        ended = ran([TESTENV, "run", "sleep", "10000"], env={**VM, "TESTENV_LIMIT": "8"})
        self.assertEqual(ended.returncode, 124)
        limit = int(re.search("limit of ([0-9]+) s", ended.stderr)[1])
        self.assertEqual(limit % 8, 0, "more on a busy machine")

    def test_a_crash_leaves_a_log_and_its_reason(self):
        ended = ran([TESTENV, "run", "sh", "-c", "echo c >/proc/sysrq-trigger"], env=VM)
        self.assertEqual(ended.returncode, 125)
        self.assertRegex(ended.stderr, r"VM failed \(Kernel panic - .*\); its console log is /.*")

    def test_a_signal_leaves_a_log(self):
        with subprocess.Popen(
            [TESTENV, "run", "sh", "-c", "echo begun; sleep 10000"],
            env=VM,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            self.assertEqual(process.stdout.readline(), "begun\n")
            process.terminate()
            self.assertRegex(process.stderr.read(), "stopped by a signal.*; its console log is /.*")
        self.assertEqual(process.returncode, 143)
        self.assertTrue(wait_for(lambda: qemus() <= self.before, 60), "still running")

    def test_native_never_starts_a_vm(self):
        if os.path.exists("/dev/infiniband"):
            self.skipTest("this machine has an RDMA device")
        ended = ran([TESTENV, "run", "true"], env={**os.environ, "TESTENV": "native"})
        self.assertEqual(ended.returncode, 77)
        self.assertIn("no RDMA device", ended.stderr)

    def test_make_run_shows_both_sides(self):
        ended = ran(
            ["make", "-s", "run", "ARGS=--message 'good morning'"],
            env=VM,
            cwd=os.path.join(ROOT, "01_hello_write"),
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertRegex(
            ended.stdout,
            r'(?s)--- server: \./hello_write\n.*memory holds "good morning"'
            r".*--- client: \./hello_write --message good morning 10\.0\.0\.1\n",
        )

    def test_make_run_on_two_hosts_shows_both_sides(self):
        ended = ran(
            ["make", "-s", "run", "HOSTS=2", "ARGS=--size 100"],
            env=VM,
            cwd=os.path.join(ROOT, "03_read"),
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertRegex(
            ended.stdout,
            r"(?s)--- server on 10\.0\.1\.1: \./read\n.*"
            r"::ffff:10\.0\.1\.1\).*role=server status=PASS.*"
            r"--- client on 10\.0\.1\.2: \./read --size 100 10\.0\.1\.1\n.*"
            r"::ffff:10\.0\.1\.2\).*role=client status=PASS",
        )

    def test_two_terminals_share_a_vm(self):
        subprocess.run(["make", "-s"], cwd=ROOT, check=True)
        one = Terminal(TESTENV, "shell")
        one.expect("terminal 1 of 4")
        two = Terminal(TESTENV, "shell")
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
