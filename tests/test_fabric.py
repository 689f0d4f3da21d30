#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""fabric/: what it says about tables and paths beside what the tools say; its lab; its ends."""
import contextlib
import glob
import itertools
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

    def test_no_word_of_the_library(self):
        """See do_ibstatus."""
        said = fabric(
            "for i in 1 2 3 4 5 6 7 8; do ibstatus; at host3 ibstatus ibsim0; done"
        ).stdout
        self.assertEqual(said.count("state:\t\t 4: ACTIVE"), 16, said)
        self.assertNotIn("ERR", said)


NAMES = (
    "node{} HCA-1", "o'brien's \"gpu\" box {}", "storage{} HCA-2 (rows=99 lanes=12)", "lid {} lmc 3",
    "MT25408 ConnectX Mellanox Technologies", "", "{{braces}} #{}, " + "a name as long as a line " * 12,
)  # fmt: skip
SPEEDS = "4xFDR", "4xQDR", "4xFDR10", "1xSDR", "4xEDR", "2xHDR", "12xDDR"


def cluster():
    """A large fabric in the form of ibnetdiscover -g -f, with what real ones have: names of all kinds,
    widths, a second link, a host and a router with two ports."""
    more = ("leaf1", "spine1"), ("host1", "leaf2"), ("R-1", "leaf3"), ("R-1", "leaf4")
    topology.KINDS["real"] = lambda hosts: [*topology.fat_tree(hosts), *more]
    guids = itertools.count(0x7CFE900300A00000, 256)

    def node(found):
        kind, ports, name = found.groups()
        kind, n, guid = "Rt" if name == "R-1" else kind, int(re.sub(r"\D", "", name)), next(guids)
        known = (
            NAMES[n % 7].format(n) if kind == "Ca" else "SwitchX" if n % 5 else f"MF0;{name}:IS5200"
        )
        tail = " enhanced port 0 lid 2 lmc 0" * (name == "leaf1")
        return (
            f"\r\nvendid=0x2c9\r\nsysimgguid=0x{guid:x}\t\t# Chassis 1\r\n"
            f'{kind.lower()}guid=0x{guid:x}({guid:x})\r\n{kind}\t{ports} "{name}"\t\t# "{known}"{tail}'
        )

    def link(found):
        speed = SPEEDS[(int(found[1]) + int(found[3])) % 7]
        return f'[{found[1]}](7cf)\t"{found[2]}"[{found[3]}]\t\t# lid 0 "a=1" lid 7 {speed} s=4 w=2'

    text = re.sub(r'(Switch|Ca) (\d+) "(.+)"', node, topology.generate("real", "1700"))
    text = re.sub(r'\[(\d+)\] "(.+)"\[(\d+)\]', link, text)
    return f"# Topology file: generated on Tue\n#\nChassis 1 (guid 0x2c90)\n{text}\nNon-Chassis Nodes\n"


class Real(unittest.TestCase):
    """A file of a real cluster is taken as it is."""

    def test_several_thousand_ports(self):
        with tempfile.NamedTemporaryFile("w", suffix=".net", newline="") as file:
            file.write(cluster())
            file.flush()
            script = """ibhosts | wc -l; ibswitches | wc -l; ibrouters | wc -l
                at "storage2 HCA-2 (rows=99 lanes=12)" ibstat | grep "Base lid"
                at SwitchX true || at host1700 sh -c 'echo "at $FABRIC_HOST"'
                path "node7 HCA-1" "node14 HCA-1" | wc -l; grep -c ERR $FABRIC/opensm.log
                cut leaf1 spine1"""
            said = fabric(script, TOPOLOGY=file.name, seconds=600).stdout
        self.assertRegex(
            said, r"\A1700 hosts, 87 switches; .*\n1700\n87\n1\n"
            r"\t+Base lid: \d+\nfabric: \d+ nodes are called 'SwitchX'; .*\nat .* #1700, .*\n2\n0\n(Unlink port \d+ of leaf1\n){2}\Z",
        )  # fmt: skip

    def test_its_format_by_its_manual_page(self):
        env = {**os.environ, "MANWIDTH": "200"}
        page = subprocess.run(["man", "ibnetdiscover"], env=env, stdout=-1, text=True).stdout
        example = re.search(r"(?s)# Topology file: .*?(?=\n *When grouping is used)", page)
        if not example:
            self.skipTest("no manual page")
        nodes = topology.read(example[0])
        self.assertEqual(len(nodes), 6)
        self.assertIn('"ISR9024 Voltaire"', "".join(node.head for node in nodes))

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
        with open(f"{home}/.bashrc", "w", encoding="ascii") as file:
            file.write("PATH=~:$PATH\nPROMPT_COMMAND='python3 -c 0'\n")
        with open(f"{home}/python3", "w", encoding="ascii") as file:
            file.write(
                f'#!/bin/sh\n[ "$(echo a:b | cut -d: -f2)" = b ] && exec {sys.executable} "$@"\n'
            )
            os.chmod(file.name, 0o755)
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
                with open(path + "/environ", "rb") as environ, open(
                    path + "/cmdline", "rb"
                ) as line:
                    if f"FABRIC={self.folder}".encode() in environ.read().split(b"\0"):
                        found[int(path[6:])] = line.read()
        return found

    def child(self, word):
        return next(pid for pid, line in self.left().items() if line and word in line)

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

    def test_kill_simulator(self):
        os.kill(self.child(b"ibsim\0-s"), signal.SIGKILL)

    def test_kill_keeper(self):
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="utf-8") as pids:
            os.kill(int(pids.read().split()[0]), signal.SIGKILL)
        os.write(self.terminal, b"exit\n")

    def test_kill_shell_leaves_no_mode_of_the_terminal(self):
        with open(f"/proc/{self.pid}/fd/0", "rb", buffering=0) as terminal:
            self.assertFalse(termios.tcgetattr(terminal)[3] & termios.ICANON)  # readline's
            os.kill(self.child(b"--rcfile"), signal.SIGKILL)
            deadline = time.monotonic() + 60
            while not termios.tcgetattr(terminal)[3] & termios.ICANON:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.1)


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
