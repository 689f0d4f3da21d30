#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""fabric/: what it says about tables and paths beside what the tools say; its lab; its ends."""
import contextlib
import glob
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest

from samples import ROOT, main

sys.path.insert(0, os.path.join(ROOT, "fabric"))
import topology  # noqa: E402

START = [f"{ROOT}/fabric/fabric.py", "start"]
# In the fabric: every table and every path, as routes.py has them and as the tools do.
COMPARE = r"""
import re, subprocess, sys
sys.path.insert(0, sys.argv[1])
import routes
tool = lambda *command: subprocess.run(command, capture_output=True, text=True, check=True).stdout
fabric, entries, paths = routes.Fabric(), 0, 0
for lid in fabric.switches:
    said = {int(to, 16): int(port) for to, port in re.findall(r"(?m)^(0x\w+) (\d+) ", tool("ibroute", str(lid)))}
    assert said == fabric.tables[lid], (lid, said, fabric.tables[lid])
    entries += len(said)
for a, b in fabric.pairs("all"):
    said = [int(lid) for lid in re.findall(r"(?m)^\[.* lid (\d+)-", tool("ibtracert", str(a), str(b)))]
    ours = [fabric.links[at][port][0] for at, port in fabric.path(a, b)]
    assert said == ours, (a, b, said, ours)
    paths += 1
print(entries, "entries", paths, "paths")
"""


def fabric(script, seconds=120, cwd=None, **env):
    """What a script prints in a fabric."""
    return subprocess.run(
        [*START, script], env={**os.environ, **env}, cwd=cwd or tempfile.gettempdir(), timeout=seconds,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def processes(name):
    """Those of the fabric with this name: {PID: command line}."""
    found = {}
    for path in glob.glob("/proc/[0-9]*"):
        with contextlib.suppress(OSError):
            with open(path + "/environ", "rb") as environ, open(path + "/cmdline", "rb") as line:
                if f"IBSIM_SOCKNAME={name}".encode() in environ.read().split(b"\0"):
                    found[int(path[6:])] = line.read()
    return found


class Tables(unittest.TestCase):
    """The tables of fabric-map are those of ibroute, the paths those of ibtracert, for each pair."""

    def check(self, kind, link):
        compare = f"python3 -c {shlex.quote(COMPARE)} {ROOT}/fabric"
        done = fabric(
            f"{compare} && cut {link} && {compare}", TOPOLOGY=kind, HOSTS="8", seconds=600
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(
            len(re.findall(r"(?m)^\d+ entries 56 paths$", done.stdout)), 2, done.stdout
        )

    def test_fat_tree(self):
        self.check("fat-tree", "leaf1 spine1")

    def test_ring(self):
        self.check("ring", "switch1 switch2")

    def test_torus(self):
        self.check("torus", "switch0x0 switch0x1")

    def test_dragonfly(self):
        self.check("dragonfly", "group1router1 group1router2")

    def test_star(self):
        compare = f"python3 -c {shlex.quote(COMPARE)} {ROOT}/fabric"
        done = fabric(compare, TOPOLOGY="star")
        self.assertIn("entries 56 paths", done.stdout)


class Wrong(unittest.TestCase):
    """A wrong description: one sentence, and the line."""

    GOOD = 'Switch 2 "s"\n[1] "a"[1]\n[2] "b"[1]\nCa 1 "a"\n[1] "s"[1]\nCa 1 "b"\n[1] "s"[2]\n'

    def check(self, change, by, sentence):
        text = self.GOOD.replace(change, by)
        self.assertNotEqual(text, self.GOOD)
        with self.assertRaises(topology.Wrong) as caught:
            topology.read(text)
        self.assertIn(sentence, str(caught.exception))

    def test_descriptions(self):
        topology.read(self.GOOD)
        self.check('[2] "b"[1]\n', "", 'line 6: "b"[1] goes to "s"[2], but that port is missing')
        self.check("[2]", "[3]", 'line 3: port 3, but "s" has 2')
        self.check('Ca 1 "b"', 'Ca 1 "a"', 'line 6: "a" is in line 4 already')
        self.check("Ca", "Switch", "no host")
        self.check("Switch 2", "Sandwich 2", "line 1: no node, port or comment: 'Sandwich 2 \"s\"'")
        self.check('"b"[1]', '"c"[1]', 'line 3: there is no node "c"')
        self.check("Switch 2", "Switch 300", "line 1: 300 ports")
        self.check("[2]", "[1]", 'line 3: port 1 of "s" is in line 2 already')

    def test_options(self):
        for env, sentence in (
            ({"TOPOLOGY": "/no"}, "fabric: /no: no such file or directory (TOPOLOGY= star,"),
            ({"TOPOLOGY": "/bin/true"}, "fabric: /bin/true: line 1: no node, port or comment: "),
            ({"TOPOLOGY": "/etc/passwd"}, "fabric: /etc/passwd: line 1: no node"),
            ({"HOSTS": "x"}, "HOSTS=x is no number"),
            ({"HOSTS": "0"}, "HOSTS=0: too few"),
        ):
            done = fabric("true", **env)
            self.assertIn(sentence, done.stdout)
            self.assertEqual((done.returncode, done.stdout.count("\n")), (1, 1), done.stdout)


class Ends(unittest.TestCase):
    """However it ends, no process and no file is left."""

    def setUp(self):
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.chdir(tempfile.gettempdir())
            os.execve(START[0], START, {**os.environ, "HOME": "/nonexistent"})  # no .bashrc
        self.prompt()
        os.write(self.terminal, b"echo =$FABRIC=\n")
        self.folder = re.search(b"=(/.*?)=", self.prompt())[1].decode()

    def prompt(self):
        said, deadline = b"", time.monotonic() + 60
        while b"at host1> " not in said:
            self.assertLess(time.monotonic(), deadline, said)
            if select.select([self.terminal], [], [], 1)[0]:
                said += os.read(self.terminal, 4096)
        return said

    def child(self, word):
        return next(
            pid for pid, line in processes(os.path.basename(self.folder)).items() if word in line
        )

    def tearDown(self):
        deadline = time.monotonic() + 60
        while left := {
            **processes(os.path.basename(self.folder)),
            **dict.fromkeys(glob.glob(self.folder)),
        }:
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.assertEqual(left, {})

    def test_exit(self):
        os.write(self.terminal, b"\3")
        self.prompt()
        os.write(self.terminal, b"ibnetdiscover & kill -9 $!\nsleep 1000 &\nexit\n")

    def test_terminal_is_gone(self):
        os.close(self.terminal)

    def test_kill_shell(self):
        os.kill(self.child(b"--rcfile"), signal.SIGKILL)

    def test_kill_main(self):
        os.kill(self.pid, signal.SIGKILL)

    def test_kill_simulator(self):
        os.kill(self.child(b"ibsim\0-s"), signal.SIGKILL)

    def test_kill_keeper(self):
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="utf-8") as pids:
            os.kill(int(pids.read().split()[0]), signal.SIGKILL)
        os.write(self.terminal, b"exit\n")

    def test_a_killed_shell_leaves_no_mode_of_the_terminal(self):
        with open(f"/proc/{self.pid}/fd/0", "rb", buffering=0) as terminal:
            self.assertFalse(termios.tcgetattr(terminal)[3] & termios.ICANON)  # readline's
            os.kill(self.child(b"--rcfile"), signal.SIGKILL)
            deadline = time.monotonic() + 60
            while not termios.tcgetattr(terminal)[3] & termios.ICANON:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.1)


class Lab(unittest.TestCase):
    """What the lab shows is what one sees. In its blocks "…" stands for what may vary."""

    def check(self, readme):
        with open(f"{ROOT}/fabric/{readme}", encoding="utf-8") as file:
            blocks = re.findall(r"(?ms)^```\n(.*?)^```\n", file.read())
        runs = []
        for block in blocks:
            if block.startswith("make fabric"):
                runs.append((block.splitlines()[0], []))
            elif re.match(r"at \w+> ", block):
                runs[-1][1].extend(
                    re.findall(r"(?ms)^at (\w+)> (.*?\n)(.*?)(?=^at \w+> |\Z)", block)
                )
        self.assertGreater(len(runs), 5)
        with tempfile.TemporaryDirectory() as folder:
            for line, steps in runs:
                self.run_steps(folder, line, steps)

    def run_steps(self, folder, line, steps):
        env = dict(re.findall(r"([A-Z]+)=(\S+)", line))
        if env.get("TOPOLOGY", "").startswith("fabric/"):
            env["TOPOLOGY"] = f"{ROOT}/{env['TOPOLOGY']}"
        script = "".join(
            f"echo '##'{n}\nexport SIM_HOST={at}\n{do}" for n, (at, do, _) in enumerate(steps)
        )
        said = fabric(script, cwd=folder, seconds=600, **env).stdout
        parts = re.split(r"(?m)^##\d+\n", said)
        self.assertEqual(len(parts), len(steps) + 1, f"{line}\n{said}")
        for (_, command, expected), part in zip(steps, parts[1:]):
            pattern = re.escape(expected.strip()).replace("…", "(?s:.*?)")
            with self.subTest(line=line, command=command):
                self.assertRegex(part.strip(), rf"\A{pattern}\Z")

    def test_english(self):
        self.check("README.md")

    def test_chinese_has_the_same_blocks(self):
        texts = []
        for name in "README.md", "README.zh.md":
            with open(f"{ROOT}/fabric/{name}", encoding="utf-8") as file:
                text = file.read()
            texts.append(
                (re.findall(r"(?ms)^```\n.*?^```\n", text), len(re.findall("(?m)^#", text)))
            )
        self.assertEqual(*texts)


if __name__ == "__main__":
    main()
