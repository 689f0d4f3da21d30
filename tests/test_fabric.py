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
# In the fabric: every table, and the paths of a sample of pairs, as routes.py has them and as the
# tools do. A tool takes up to a second to start on a busy machine.
COMPARE = r"""
import random, re, subprocess, sys
sys.path.insert(0, sys.argv[1])
import report as routes
tool = lambda *command: subprocess.run(command, capture_output=True, text=True, check=True).stdout
fabric = routes.Fabric()
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
    """The tables of fabric-map are those of ibroute, the paths those of ibtracert."""

    def compare(self, kind, switches, link=""):
        compare = f"python3 -c {shlex.quote(COMPARE)} {ROOT}/fabric"
        script = f"{compare} && cut {link} && {compare}" if link else compare
        said = fabric(script, TOPOLOGY=kind, HOSTS="8", seconds=300).stdout
        self.assertEqual(said.count(f"8 hosts, {switches} tables"), 2 if link else 1, said)

    def test_star(self):
        self.compare("star", 1)

    def test_fat_tree_before_and_after_a_cut(self):
        self.compare("fat-tree", 6, "leaf1 spine1")

    def test_ring_before_and_after_a_cut(self):
        self.compare("ring", 8, "switch1 switch2")

    def test_torus_before_and_after_a_cut(self):
        self.compare("torus", 9, "switch0x0 switch0x1")

    def test_dragonfly_before_and_after_a_cut(self):
        self.compare("dragonfly", 6, "group1router1 group1router2")


class Wrong(unittest.TestCase):
    """A wrong description: one sentence, and the line."""

    GOOD = 'Switch 2 "s"\n[1] "a"[1]\n[2] "b"[1]\nCa 1 "a"\n[1] "s"[1]\nCa 1 "b"\n[1] "s"[2]\n'

    CHANGES = (
        ("Switch 2", "caguid=0x1\ncaguid=0x1\nSwitch 2", "line 2: caguid=0x1 is in line 1 already"),
        ("Switch 2", "do quit\nSwitch 2", "line 1: no node, port or comment: 'do quit'"),
        ('"a"', '"@a"', "line 4: no node, port or comment: 'Ca 1 \"@a\"'"),
        (GOOD, 'Ca 1 "a"\n', "no host (Ca) with a link"),
        (GOOD, "", "no host (Ca) with a link"),
        (GOOD, 'Switch 2 "s"\n[1] "a"[2]\nCa 2 "a"\n[2] "s"[1]\n', "link at its port 1"),
        (GOOD, GOOD[:-20], "there is no node"),
        ('[2] "b"[1]\n', "", 'line 6: "b"[1] goes to "s"[2], but that port is missing'),
        ("[2]", "[3]", 'line 3: port 3, but "s" has 2'),
        ('Ca 1 "b"', 'Ca 1 "a"', 'line 6: "a" is in line 4 already'),
        ("Ca", "Switch", "no host"),
        ("Switch 2", "Sandwich 2", "line 1: no node, port or comment: 'Sandwich 2 \"s\"'"),
        ('"b"[1]', '"c"[1]', 'line 3: there is no node "c"'),
        ("Switch 2", "Switch 300", "line 1: 300 ports"),
        ("[2]", "[1]", 'line 3: port 1 of "s" is in line 2 already'),
    )

    def test_descriptions(self):
        topology.read(self.GOOD)
        for change, by, sentence in self.CHANGES:
            with self.subTest(sentence=sentence), self.assertRaises(topology.Wrong) as caught:
                topology.read(self.GOOD.replace(change, by))
            self.assertIn(sentence, str(caught.exception))

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


NAMES = (
    "node{} HCA-1", "o'brien's \"gpu\" box {}", "storage{} HCA-2 (rows=99 lanes=12)", "lid {} lmc 3",
    "MT25408 ConnectX Mellanox Technologies", "", "{{braces}} #{}, " + "a name as long as a line " * 12,
)  # fmt: skip
SPEEDS = "4xFDR", "4xQDR", "4xFDR10", "1xSDR", "4xEDR", "2xHDR", "12xDDR"


class Cluster:
    """A real cluster as ibnetdiscover -g -f prints it."""

    def __init__(self, leaves, spines):
        self.nodes, self.links = {}, {}
        for n in range(spines):
            self.add(
                "Switch",
                0x7CFE900300A00000 + n,
                leaves + 6,
                f"MF0;sw:IS5200/S{n // 2}/U{n % 2 + 1}",
            )
        for n in range(leaves):
            self.add(
                "Switch",
                0x7CFE900300B00000 + n,
                40,
                f"MF0;sw:IS5200/L{n}/U1" if n % 5 else "SwitchX",
            )
        switches = [*self.nodes]
        for leaf, spine in itertools.product(range(leaves), range(spines)):
            self.join((switches[spine], leaf + 1), (switches[spines + leaf], 19 + spine), "4xFDR")
        for n, (leaf, port) in enumerate(itertools.product(range(leaves), range(1, 19))):
            if n % 17:  # the others are not connected
                self.add("Ca", 0x2C90300100000 + 16 * n, 2, NAMES[n % 7].format(n))
                self.join(([*self.nodes][-1], 1), (switches[spines + leaf], port), SPEEDS[n % 7])
        for n in range(3):  # parallel links, a loop cable, a CA and a router with two ports
            self.join((switches[0], leaves + 1 + n), (switches[1], leaves + 1 + n), "4xEDR")
        self.join((switches[1], leaves + 5), (switches[1], leaves + 6), "4xEDR")
        for kind, guid, port, speed in (
            ("Ca", 0x2C90300900000, 38, "4xEDR"), ("Rt", 0x2C90300A00000, 39, "2xNDR")
        ):  # fmt: skip
            self.add(kind, guid, 2, 'Skyway "north"')
            for n in 1, 2:
                self.join(([*self.nodes][-1], n), (switches[spines + n], port), speed)

    def add(self, kind, guid, ports, name):
        self.nodes[f"{'SHR'[('Switch', 'Ca', 'Rt').index(kind)]}-{guid:016x}"] = (
            kind,
            guid,
            ports,
            name,
        )

    def join(self, a, b, speed):
        self.links.setdefault(a[0], {})[a[1]] = *b, speed
        self.links.setdefault(b[0], {})[b[1]] = *a, speed

    def text(self):
        lines = [
            "#\n# Topology file: generated on Tue Mar  4 09:11:52 2025\n#\nChassis 1 (guid 0x2c90)\n"
        ]
        for number, (key, (kind, guid, ports, name)) in enumerate(self.nodes.items()):
            variable = {"Switch": "switch", "Ca": "ca", "Rt": "rt"}[kind]
            lines.append(
                f"\nvendid=0x2c9\nsysimgguid=0x{guid:x}\t\t# Chassis 1\n{variable}guid=0x{guid:x}({guid:x})"
            )
            head = f'{kind}\t{ports} "{key}"\t\t# "{name}"'
            lines.append(head + f" enhanced port 0 lid {2 * number + 1} lmc 0" * (kind == "Switch"))
            for port, (peer, at, speed) in sorted(self.links[key].items()):
                own = "[ext 3]" if kind == "Switch" else f"({guid + port:x}) "
                lid = "" if kind == "Switch" else f"lid {2 * number + port} lmc 0 "
                more = f'"{self.nodes[peer][3]}" lid 7 {speed} s=4 w=2 v=4'
                lines.append(f'[{port}]{own}\t"{peer}"[{at}]\t\t# {lid}{more}')
        return "\r\n".join([*lines, "\nNon-Chassis Nodes\n"])


class Real(unittest.TestCase):
    """A file of a real cluster is taken as it is."""

    def test_several_thousand_ports(self):
        cluster = Cluster(100, 18)
        cas = sum(kind == "Ca" for kind, *_ in cluster.nodes.values())
        self.assertGreater(sum(map(len, cluster.links.values())), 6000)
        with tempfile.NamedTemporaryFile("w", suffix=".net", newline="") as file:
            file.write(cluster.text())
            file.flush()
            script = """ibhosts | wc -l; ibswitches | wc -l; ibrouters | wc -l
                at "storage2 HCA-2 (rows=99 lanes=12)" ibstat | grep "Base lid"
                at SwitchX true || at H-0002c90300900000 sh -c 'echo "at $FABRIC_HOST"'
                path "node7 HCA-1" "node14 HCA-1" | wc -l; grep -c ERR $FABRIC/opensm.log"""
            said = fabric(script, TOPOLOGY=file.name, seconds=600).stdout
        self.assertRegex(
            said, rf"\A{cas} hosts, 118 switches; .*\n{cas}\n118\n1\n\t+Base lid: \d+\n"
            r"fabric: 20 nodes are called 'SwitchX'; there are S-.*\nat Skyway 'north'\n2\n0\n\Z",
        )  # fmt: skip

    def test_its_format_by_its_manual_page(self):
        page = subprocess.run(
            ["man", "ibnetdiscover"], env={**os.environ, "MANWIDTH": "200"}, stdout=-1, text=True
        ).stdout
        if not (
            example := re.search(r"(?s)# Topology file: .*?(?=\n *When grouping is used)", page)
        ):
            self.skipTest("no manual page")
        nodes = topology.read("\n".join(map(str.strip, example[0].splitlines())))
        self.assertEqual(len(nodes), 6)
        self.assertEqual(nodes["S-005442ba00003080"].name, "ISR9024 Voltaire")

    def test_copied_from_a_page_or_a_terminal(self):
        lines = [
            "src/query_smp.c:195; umad (DR path slid 0; dlid 0; 0,1 Attr 0x11:0) bad status 110"
        ]
        lines += ['ibwarn: [6931] sim_connect: attached as client 1 at node "Switch1"', " "]
        lines += ["    " + line for line in Wrong.GOOD.splitlines()]
        self.assertEqual(len(topology.read("\n".join(lines))), 3)

    def test_older_formats(self):
        old = Wrong.GOOD.replace("Ca 1", "Hca 1").replace(
            '"s"\n', '"s" # SW1 base port 0 lid 3 lmc 0\n', 1
        )
        self.assertEqual(topology.read(old)["s"].name, "SW1")


class Ends(unittest.TestCase):
    """However it ends, no process and no file is left."""

    @classmethod
    def setUpClass(cls):
        """The shell's user has a python3 that is a script which calls cut, as pyenv's is."""
        cls.home = cls.enterClassContext(tempfile.TemporaryDirectory())
        texts = {
            "python3": f'#!/bin/sh\n[ "$(echo a:b | cut -d: -f2)" = b ] && exec {sys.executable} "$@"\n',
            ".bashrc": "PATH=~:$PATH\nPROMPT_COMMAND='python3 -c 0'\n",
        }
        for name, text in texts.items():
            with open(f"{cls.home}/{name}", "w", encoding="ascii") as file:
                file.write(text)
        os.chmod(f"{cls.home}/python3", 0o755)

    def setUp(self):
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.chdir(tempfile.gettempdir())
            os.execve(START[0], START, {**os.environ, "HOME": self.home})
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
