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
import time
import unittest

from samples import ROOT, main, ran

sys.path.insert(0, os.path.join(ROOT, "fabric"))
import topology  # noqa: E402

START = [f"{ROOT}/fabric/fabric.sh", "start"]
# In the fabric: every table, and the paths of a sample of pairs, as report.py has them and as the
# tools do. A tool takes up to a second to start on a busy machine.
COMPARE = r"""
import random, re, subprocess, sys
sys.path.insert(0, sys.argv[1])
import report
tool = lambda *command: subprocess.run(command, capture_output=True, text=True, check=True).stdout
fabric = report.Fabric()
for lid in fabric.switches:
    said = tool("ibroute", "-t", "9999", str(lid))
    said = {int(to, 16): int(port) for to, port in re.findall(r"(?m)^(0x\w+) (\d+) ", said)}
    assert said == fabric.tables[lid], (lid, said, fabric.tables[lid])
for a, b in random.Random(39).sample(fabric.pairs("all"), 6):
    said = tool("ibtracert", "-t", "9999", str(a), str(b))
    said = [int(lid) for lid in re.findall(r"(?m)^\[.* lid (\d+)-", said)]
    ours = [fabric.links[at][port][0] for at, port in fabric.path(a, b)]
    assert said == ours, (a, b, said, ours)
print(len(fabric.hosts), "hosts,", len(fabric.switches), "tables as the tools have them")
"""


def fabric(script, seconds=120, cwd=None, **env):
    """What a script prints in a fabric."""
    return subprocess.run(
        [*START, script], env={**os.environ, **env}, cwd=cwd or tempfile.gettempdir(), timeout=seconds,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


class Tables(unittest.TestCase):
    """The tables of fabric-map are those of ibroute, the paths those of ibtracert."""

    def test_before_and_after_a_cut(self):
        for kind, switches, link in (
            ("star", 1, "host7 switch1; mend host7 switch1"),
            ("fat-tree", 6, "leaf1 spine1"),
            ("ring", 8, "switch1 switch2"),
            ("torus", 9, "switch0x0 switch0x1"),
            ("dragonfly", 6, "group1router1 group1router2"),
        ):
            compare = f"python3 -c {shlex.quote(COMPARE)} {ROOT}/fabric"
            script = f"{compare} && cut {link} && {compare}"
            said = fabric(script, TOPOLOGY=kind, HOSTS="8", seconds=300).stdout
            self.assertEqual(said.count(f"8 hosts, {switches} tables"), 2, said)


class Wrong(unittest.TestCase):
    """A wrong description, or a wrong option: one sentence."""

    GOOD = 'Switch 2 "s"\n[1] "a"[1]\n[2] "b"[1]\nCa 1 "a"\n[1] "s"[1]\nCa 1 "b"\n[1] "s"[2]\n'

    CHANGES = (
        ("Switch 2", "do quit\nSwitch 2", "line 1: no node, port or comment: 'do quit'"),
        (GOOD, "", "no host (Ca) has a link at its port 1"),
        ('[2] "b"[1]\n', "", 'line 6: "b"[1] goes to "s"[2], but not back'),
        ("Switch 2", "Switch 300", '"s" has 300 ports'),
        ("[2]", "[3]", 'line 3: "s"[3]: it has 2 ports'),
        (GOOD, GOOD + 'Ca 1 "a"\n[1] "s"[1]', 'line 8: "a" is there twice'),
    )

    def said(self, **env):
        done = fabric("true", **env)
        self.assertEqual((done.returncode, done.stdout.count("\n")), (1, 1), done.stdout)
        return done.stdout

    def test_descriptions(self):
        for change, by, sentence in self.CHANGES:
            with tempfile.NamedTemporaryFile("w", suffix=".net") as file:
                file.write(self.GOOD.replace(change, by))
                file.flush()
                self.assertIn("fabric: " + sentence, self.said(TOPOLOGY=file.name))

    def test_options(self):
        for env, sentence in (
            ({"TOPOLOGY": "/no"}, "no file /no (TOPOLOGY= star,"),
            ({"HOSTS": "x"}, "HOSTS=x: 1 to 48000"),
            ({"HOSTS": "255", "TOPOLOGY": "star"}, '"switch1" has 255 ports'),
        ):
            self.assertIn("fabric: " + sentence, self.said(**env))

    def test_commands(self):
        said = fabric(
            "path host1; cut leaf1; cut host1 host2; at; at nobody ls; stop-sm host2;"
            " start-sm host2 --nosuchoption"
        ).stdout
        self.assertEqual(
            [line[:30] for line in said.splitlines()[1:]],
            [
                "path A B                   the",
                "cut A B                    cut",
                "fabric: host1 and host2 have n",
                "at HOST [COMMAND…]         a c",
                "fabric: 0 nodes are called 'no",
                "fabric: no OpenSM at host2",
                "fabric: OpenSM has ended: wron",
            ],
        )

    def test_simulator_is_killed(self):
        """And what it said before is no reason."""
        script = 'smpquery -t 99 nodedesc 77; pkill -9 -f "ibsim -s .*$FABRIC/net"; sleep 60'
        end = r"failed\n(.*Lid 77\)\n)?fabric: the simulator has ended: no word\n\Z"
        self.assertRegex(fabric(script).stdout, end)


class Real(unittest.TestCase):
    """A file of ibnetdiscover is taken as it is."""

    def test_its_format_by_its_manual_page(self):
        env = {**os.environ, "MANWIDTH": "200"}
        page = ran(["man", "ibnetdiscover"], env=env).stdout
        example = re.search(r"(?s)# Topology file: .*?(?=\n *When grouping is used)", page)
        if not example:
            self.skipTest("no manual page")
        nodes = topology.read(example[0])
        self.assertEqual(len(nodes), 6)
        self.assertIn('"ISR9024 Voltaire"', "".join(node.head for node in nodes))


class Ends(unittest.TestCase):
    """However it ends, no process and no file is left."""

    def setUp(self):
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.execv(START[0], START)
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

    def left(self):
        """The processes of the fabric: {PID: command line}, and its files."""
        found = {path: "" for path in glob.glob(self.folder)}
        for path in glob.glob("/proc/[0-9]*"):
            with contextlib.suppress(OSError):
                with open(path + "/environ", "rb") as environ, open(
                    path + "/cmdline", "rb"
                ) as line:
                    if f"FABRIC={self.folder}".encode() in environ.read().split(b"\0"):
                        found[int(path[6:])] = line.read()
        return found

    def tearDown(self):
        deadline = time.monotonic() + 60
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.assertEqual(self.left(), {})

    def test_exit(self):
        os.write(
            self.terminal, b"\3\n"
        )  # before its first read bash sees \3 with the next key only
        self.prompt()
        os.write(self.terminal, b"ibnetdiscover & kill -9 $!\nsleep 1000 &\nexit\n")

    def test_terminal_is_gone(self):
        os.close(self.terminal)

    def test_kill_main(self):
        os.kill(self.pid, signal.SIGKILL)


class Lab(unittest.TestCase):
    """What the lab shows is what one sees. In its blocks "…" stands for what may vary."""

    def blocks(self, readme):
        with open(f"{ROOT}/fabric/{readme}", encoding="utf-8") as file:
            return re.findall(r"(?ms)^```\n(.*?)^```\n|^#", file.read())

    def test_english(self):
        runs = []
        for block in self.blocks("README.md"):
            if block.startswith("make fabric"):
                runs.append((block.splitlines()[0], []))
            elif re.match(r"at \w+> ", block):
                pattern = r"(?ms)^at (\w+)> (.*?\n)(.*?)(?=^at \w+> |\Z)"
                runs[-1][1].extend(re.findall(pattern, block))
        self.assertGreater(len(runs), 5)
        with tempfile.TemporaryDirectory() as folder:
            for line, steps in runs:
                self.run_steps(folder, line, steps)

    def run_steps(self, folder, line, steps):
        env = dict(re.findall(r"([A-Z]+)=(\S+)", line))
        if env.get("TOPOLOGY", "").startswith("fabric/"):
            env["TOPOLOGY"] = f"{ROOT}/{env['TOPOLOGY']}"
        script = "".join(f"echo '##'\nexport SIM_HOST={at}\n{do}" for at, do, _ in steps)
        said = fabric(script, cwd=folder, seconds=600, **env).stdout
        parts = re.split(r"(?m)^##\n", said)
        self.assertEqual(len(parts), len(steps) + 1, f"{line}\n{said}")
        for (_, command, expected), part in zip(steps, parts[1:]):
            pattern = re.escape(expected.strip()).replace("…", "(?s:.*?)")
            with self.subTest(line=line, command=command):
                self.assertRegex(part.strip(), rf"\A{pattern}\Z")

    def test_chinese_has_the_same_blocks_and_headings(self):
        self.assertEqual(self.blocks("README.zh.md"), self.blocks("README.md"))


if __name__ == "__main__":
    main()
