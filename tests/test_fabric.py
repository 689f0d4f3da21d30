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

from samples import ROOT, ran, read, wait_until, write

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


def fabric(script, seconds=120, text=None, cwd=None, **env):
    """What a script prints in a fabric; text: its description."""
    with tempfile.TemporaryDirectory() as folder:
        if text is not None:
            env["TOPOLOGY"] = write(f"{folder}/given.net", text)
        command = [*START, script]
        return ran(command, env=env, cwd=cwd or folder, timeout=seconds, stderr=subprocess.STDOUT)


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
        (GOOD, 'Switch 2 "s"\n[1] "a"[2]\nCa 2 "a"\n[2] "s"[1]\n', "no host (Ca) has a link"),
        ("Ca", "Switch", "no host (Ca) has a link"),
        ('[2] "b"[1]\n', "", 'line 6: "b"[1] goes to "s"[2], but not back'),
        ('"b"[1]', '"c"[1]', 'line 3: "s"[2] goes to "c"[1], but not back'),
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
            self.assertIn("fabric: " + sentence, self.said(text=self.GOOD.replace(change, by)))

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

    def test_no_word_of_the_library(self):
        said = fabric(
            "for i in 1 2 3 4 5 6 7 8; do ibstatus; at host3 ibstatus ibsim0; done"
        ).stdout
        self.assertEqual(said.count("state:\t\t 4: ACTIVE"), 16, said)
        self.assertNotIn("ERR", said)


class Real(unittest.TestCase):
    """A file of a real cluster is taken as it is."""

    def test_several_thousand_ports(self):
        said = fabric("ibhosts | wc -l; grep -c ERR $FABRIC/opensm.log", 600, HOSTS="1700").stdout
        self.assertRegex(said, r"\A1700 hosts, \d+ switches; .*\n1700\n0\n\Z")

    def test_the_example_of_the_manual_page(self):
        """It has two links from switch to switch and a host with two ports; and then hosts with odd names."""
        page = ran(["man", "ibnetdiscover"], env={"MANWIDTH": "200"}).stdout
        example = re.search(r"(?s)# Topology file: .*?(?=\n *When grouping is used)", page)
        if not example:
            self.skipTest("no manual page")
        # One host becomes a router with a wide link, the others get odd names.
        text = (
            example[0]
            .replace("H-0008f10403961354", "R-1")
            .replace("lid 4 4xSDR", "lid 4 1xSDR s=1 w=1")
        )
        text = re.sub('(# )"MT23108.*?"', r'\1"s=9 w=9"', text)
        text = re.sub(r'ca(guid=.*\n *)Ca( +\d "R-1")', r"rt\1Rt\2", text)
        names = iter(
            ("o'brien's \"gpu\" box", "storage (rows=99 lanes=12)", "{b} #4 " + "long " * 50)
        )
        text = re.sub(r'(Ca +\d "H.*# ").*(?=")', lambda found: found[1] + next(names), text)
        script = """ibhosts | wc -l; ibswitches | wc -l; ibrouters | wc -l
            at "storage (rows=99 lanes=12)" ibstat | grep "Base lid"
            last=$(at H-0008f10403960558 sh -c 'echo "$FABRIC_HOST"'); echo "at $last"
            path "storage (rows=99 lanes=12)" "$last" | wc -l; grep -c ERR $FABRIC/opensm.log
            cut "ISR9024 Voltaire" "SW-6IB4 Voltaire"; at "MT23108" true"""
        self.assertRegex(
            fabric(script, text=text.replace("\n", "\r\n")).stdout,
            r"\A3 hosts, 2 switches; .*\n3\n2\n1\n\t+Base lid: \d+\nat {b} #4 .*\n3\n0\n"
            r"(Unlink port \d+ of ISR9024 Voltaire\n){2}fabric: 0 nodes are called 'MT23108'; .*\n\Z",
        )

    def test_copied_from_a_terminal_and_older(self):
        noise = (
            "src/query_smp.c:195; umad (DR path slid 0; dlid 0; 0,1 Attr 0x11:0) bad status 110\n"
        )
        noise += 'ibwarn: [6931] sim_connect: attached as client 1 at node "Switch1"\n \n    '
        text = Wrong.GOOD.replace("Ca 1", "Hca 1").replace("\n", "\n    ")
        nodes = topology.read(noise + text.replace('"s"', '"s" # SW1 base port 0 lid 3 lmc 0', 1))
        self.assertEqual([node.ports for node in nodes], [2, 1, 1])
        self.assertIn('# "SW1" base port 0 lid 3', nodes[0].head)


class Ends(unittest.TestCase):
    """However it ends, no process and no file is left."""

    def setUp(self):
        """The shell's user has a python3 that is a script which calls cut, as pyenv's is."""
        home = self.enterContext(tempfile.TemporaryDirectory())
        write(f"{home}/.bashrc", "PATH=~:$PATH\nPROMPT_COMMAND='python3 -c 0'\n")
        run = f'[ "$(echo a:b | cut -d: -f2)" = b ] && exec {sys.executable} "$@"\n'
        os.chmod(write(f"{home}/python3", f"#!/bin/sh\n{run}"), 0o755)
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.chdir(home)
            os.execve(START[0], START, {**os.environ, "HOME": home})
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
                if f"FABRIC={self.folder}" in read(path + "/environ", "replace").split("\0"):
                    found[int(path[6:])] = read(path + "/cmdline", "replace")
        return found

    def child(self, word):
        return next(pid for pid, line in self.left().items() if line and word in line)

    def tearDown(self):
        wait_until(lambda: not self.left(), 60)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.assertEqual(self.left(), {})

    def test_exit(self):
        # before its first read bash sees \3 with the next key only
        os.write(self.terminal, b"\3\n")
        self.prompt()
        os.write(self.terminal, b"ibnetdiscover & kill -9 $!\nsleep 1000 &\nexit\n")

    def test_terminal_is_gone(self):
        os.close(self.terminal)

    def test_kill_main(self):
        os.kill(self.pid, signal.SIGKILL)

    def test_kill_simulator(self):
        os.kill(self.child("ibsim\0-s"), signal.SIGKILL)

    def test_kill_keeper(self):
        os.kill(int(read(f"/proc/{self.pid}/task/{self.pid}/children").split()[0]), signal.SIGKILL)
        os.write(self.terminal, b"exit\n")

    def test_kill_shell_leaves_no_mode_of_the_terminal(self):
        with open(f"/proc/{self.pid}/fd/0", "rb", buffering=0) as terminal:
            self.assertFalse(termios.tcgetattr(terminal)[3] & termios.ICANON)  # readline's
            os.kill(self.child("--rcfile"), signal.SIGKILL)
            self.assertTrue(wait_until(lambda: termios.tcgetattr(terminal)[3] & termios.ICANON, 60))


class Lab(unittest.TestCase):
    """What the lab shows is what one sees. In its blocks "…" stands for what may vary."""

    def blocks(self, readme):
        return re.findall(r"(?ms)^```\n(.*?)^```\n|^#", read(f"fabric/{readme}"))

    def test_english(self):
        runs = []
        for block in self.blocks("README.md"):
            if block.startswith("make fabric"):
                runs.append((block.splitlines()[0], []))
            elif re.match(r"at \w+> ", block):
                pattern = r"(?ms)^at (\w+)> (.*?\n)(.*?)(?=^at \w+> |\Z)"
                runs[-1][1].extend(re.findall(pattern, block))
        self.assertGreater(len(runs), 5)
        folder = self.enterContext(tempfile.TemporaryDirectory())
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
