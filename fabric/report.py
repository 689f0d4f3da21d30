# SPDX-License-Identifier: BSD-2-Clause
"""What OpenSM made of a fabric, from the files that it dumps after each sweep: links, forwarding
tables; and what follows from them: paths, how many share a link, deadlocks, a page with all of it."""
import graphlib
import html
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict

# One side of a line of opensm-subnet.lst. A name may hold braces.
SIDE = r"\{ (\S+) Ports:.*?\{(.*)\} LID:(\w+) PN:(\w+) \}"
LINE = re.compile(SIDE + " " + SIDE + " PHY=")
TABLE = re.compile(r"Unicast lids .* of switch Lid (\d+) guid |(0x\w{4}) (\d+) ")
MANY = 200  # hosts: from there on the picture has the switches only, and the paths of load shift
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Fabric</title>
<style>body {{ font-family: sans-serif }} p {{ margin: 4px 16px }} .new {{ color: #c00 }}</style>
</head><body><h1>What OpenSM made of the fabric, at {time}</h1>
<p>At a link: its two ports, and how many paths between hosts use it, there/back.</p>{body}
</body></html>
"""


def read_file(name):
    with open(f"{os.environ['FABRIC']}/{name}", encoding="utf-8", errors="replace") as file:
        return file.read()


class Fabric:
    """By LID: names, the set of switches, links {lid: {port: (lid, port)}}, tables {lid: {lid:
    port}}. A link in one direction, a channel, is the (lid, port) that sends into it."""

    def __init__(self):
        self.names, self.switches = {}, set()
        self.links, self.tables = defaultdict(dict), defaultdict(dict)
        for sides in filter(None, map(LINE.match, read_file("opensm-subnet.lst").splitlines())):
            here, there = self.end(*sides.groups()[:4]), self.end(*sides.groups()[4:])
            self.links[here[0]][here[1]], self.links[there[0]][there[1]] = there, here
        for switch, target, port in TABLE.findall(read_file("opensm-lfts.dump")):
            if switch:
                table = self.tables[int(switch)]
            else:
                table[int(target, 16)] = int(port)
        hosts = self.names.keys() - self.switches
        self.hosts = sorted(hosts, key=lambda lid: (len(self.names[lid]), self.names[lid]))

    def end(self, kind, name, lid, port):
        lid = int(lid, 16)
        self.names[lid] = name
        if kind == "SW":
            self.switches.add(lid)
        return lid, int(port, 16)

    def lid(self, name):
        """Of a name, or of a LID as text."""
        for lid, known in self.names.items():
            if name in (known, str(lid)):
                return lid
        sys.exit(f"fabric: no node {name!r} that OpenSM sees")

    def path(self, source, target):
        """The channels from one host's LID to another's; none if it leads nowhere."""
        port = min(self.links[source])
        path, at = [], source
        while at != target:
            if port not in self.links[at] or len(path) > 64:
                return []
            path.append((at, port))
            at = self.links[at][port][0]
            port = self.tables[at].get(target)
        return path

    def load(self, kind):
        """How many paths there are, and how many of them go through each channel between switches:
        all to all, each host to its neighbour, or each to the one half around."""
        step = {"all": 0, "neighbour": 1, "shift": len(self.hosts) // 2}[kind]
        pairs = zip(self.hosts, self.hosts[step:] + self.hosts[:step])
        pairs = [*pairs] if step else [*itertools.permutations(self.hosts, 2)]
        count = Counter()
        for channel in itertools.chain.from_iterable(self.path(a, b) for a, b in pairs):
            if {channel[0], self.links[channel[0]][channel[1]][0]} <= self.switches:
                count[channel] += 1
        return len(pairs), count

    def cycle(self, service_levels):
        """Channels that wait for each other in a ring: [] if there are none. A packet holds a
        channel's buffer until the next channel of its path has room. service_levels: {(source,
        target): SL}; each has buffers, and so channels, of its own (its virtual lane)."""
        before = graphlib.TopologicalSorter()
        for a, b in itertools.permutations(self.hosts, 2):
            level = service_levels.get((a, b), 0)
            path = [(*channel, level) for channel in self.path(a, b)]
            for first, then in zip(path, path[1:]):
                before.add(then, first)
        try:
            before.prepare()
            return []
        except graphlib.CycleError as error:
            ring = error.args[1][1:]
            begin = ring.index(min(ring))
            return ring[begin:] + ring[:begin]

    def show(self, channel):
        """A channel as people call it."""
        at, port = channel[:2]
        return f"{self.names[at]} port {port} -> {self.names[self.links[at][port][0]]}"


def path(a, b):
    """path A B: the way from host to host, hop by hop, by the forwarding tables"""
    fabric = Fabric()
    channels = fabric.path(fabric.lid(a), fabric.lid(b))
    print("\n".join(map(fabric.show, channels)) or f"no path from {a} to {b}")
    return not channels


def load(kind="all"):
    """load [all|neighbour|shift]: how many paths share the links between switches"""
    if kind not in ("all", "neighbour", "shift"):
        sys.exit(load.__doc__)
    fabric = Fabric()
    pairs, count = fabric.load(kind)
    print(f"{pairs} paths; between switches:")
    for paths in sorted(set(count.values()), reverse=True):
        some = [fabric.show(channel) for channel in sorted(count) if count[channel] == paths]
        print(f"  {paths} on {len(some)} channels: {some[0]}{' …' if len(some) > 1 else ''}")


def loops():
    """loops: channels that can wait for each other in a ring (a deadlock by credits)"""
    fabric, levels = Fabric(), {}
    engine = re.findall(r"(\w+) tables configured", read_file("opensm.log"))[-1]
    if engine in ("lash", "dfsssp", "nue", "torus"):  # they give service levels
        # One path at a time: a longer answer is several packets, which the simulator does not do.
        for a, b in itertools.permutations(fabric.hosts, 2):
            ask = ["saquery", "-p", "--src-to-dst", f"{a}:{b}"]
            said = subprocess.run(ask, capture_output=True, text=True, check=False).stdout
            levels[a, b] = int(re.search(r"\bsl\.+(\w+)", said)[1], 0)
    print(f"routing {engine}, service levels {', '.join(map(str, sorted({0, *levels.values()})))}")
    cycle = fabric.cycle(levels)
    for channel in cycle:
        print(f"  {fabric.show(channel)} (SL {channel[2]}) waits for the next")
    end = "  the last one waits for the first: deadlock is possible"
    print(end if cycle else "no loop: no deadlock")
    return bool(cycle)


def check_tables(file):
    """check-tables FILE: your forwarding tables, lines like: leaf1 host3 port 4"""
    fabric, want, leads, right, wrong = Fabric(), {}, {}, set(), 0
    for switch in fabric.switches:
        for host in fabric.hosts:
            port = fabric.tables[switch].get(host)
            want[f"{fabric.names[switch]} {fabric.names[host]}"] = str(port)
            for port, (peer, _) in fabric.links[switch].items():
                entry = f"{fabric.names[switch]} {fabric.names[host]}"
                leads[entry, str(port)] = fabric.names[peer]
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            entry, _, port = " ".join(line.split()).partition(" port ")
            if want.get(entry) == port:
                right.add(entry)
            elif entry:
                wrong += 1
                said = f"port {port} leads to {leads.get((entry, port), 'nothing')}"
                print(
                    f"{file}:{number}: {said if entry in want else 'write SWITCH HOST port NUMBER'}"
                )
    print(f"{len(right)} of {len(want)} entries are right" + (f"; {wrong} wrong" if wrong else ""))
    return (len(right), wrong) != (len(want), 0)


def kinds(fabric):
    """What each node is. A leaf has hosts."""
    leaves = {peer for host in fabric.hosts for peer, _ in fabric.links[host].values()}
    switches = {lid: "leaf" if lid in leaves else "root" for lid in fabric.switches}
    return dict.fromkeys(fabric.hosts, "host") | switches


def picture(fabric, what, count):
    """The fabric as graphviz draws it: hosts are ovals; a link's number: paths there/back."""
    shown = set(fabric.names) if len(fabric.hosts) <= MANY else fabric.switches
    lines = ["graph { node [fontname=sans]; edge [fontname=sans, fontsize=10];"]
    for lid in sorted(shown):
        label = json.dumps(f"{fabric.names[lid]}\nLID {lid}", ensure_ascii=False)
        lines.append(f"n{lid} [label={label}, shape={'oval' if what[lid] == 'host' else 'box'}];")
        for port, (peer, back) in sorted(fabric.links[lid].items()):
            # Once for each link; dot draws from above. By the alphabet: root, leaf, host.
            if peer in shown and (what[lid], lid, port) > (what[peer], peer, back):
                there, here = count[lid, port], count[peer, back]
                label = f', label="{there}/{here}"' if there or here else ""
                lines.append(f"n{lid} -- n{peer} [taillabel={port}, headlabel={back}{label}];")
    command = ["dot" if len(fabric.names) < 60 else "sfdp", "-Tsvg"]
    dot = "\n".join([*lines, "}"])
    svg = subprocess.run(command, input=dot, stdout=subprocess.PIPE, text=True, check=True).stdout
    return svg[svg.find("<svg") :]


def in_words(fabric, what, count):
    """What the page says: {title: sentences}."""
    names, some = fabric.names, fabric.hosts[:64]
    parts = {
        "LIDs": [f"LID {lid}: {names[lid]}, {what[lid]}" for lid in sorted(names)],
        "The most used links": [f"{n} paths: {fabric.show(c)}" for c, n in count.most_common(64)],
    }
    for switch in sorted(fabric.switches):
        parts[f"Forwarding table of {names[switch]}, LID {switch}"] = [
            f"to LID {to} ({names[to]}) by port {port}"
            for to, port in sorted(fabric.tables[switch].items())
            if to != switch and to in names
        ]
    for a in some:
        ways = {b: ", ".join(map(fabric.show, fabric.path(a, b))) for b in some if a != b}
        parts[f"Paths from {names[a]}, LID {a}"] = [
            f"to {names[b]}: {way or 'none'}" for b, way in ways.items()
        ]
    return parts


def fabric_map(file="fabric.html"):
    """fabric-map [FILE]: a page: picture, LIDs, tables, paths; once more: red is what has changed"""
    fabric, memory = Fabric(), os.environ["FABRIC"] + "/before.json"
    before = json.loads(read_file("before.json")) if os.path.exists(memory) else {}
    what = kinds(fabric)
    count = fabric.load("all" if len(fabric.hosts) <= MANY else "shift")[1]
    parts, body = in_words(fabric, what, count), picture(fabric, what, count)
    for title, sentences in parts.items():
        new = {*sentences} - {*before.get(title, sentences)}
        note = f' <span class="new">{len(new)} changed</span>' if new else ""
        body += f"<details><summary>{html.escape(title)}{note}</summary>\n"
        body += "".join(f"<p{' class=new' * (s in new)}>{html.escape(s)}</p>\n" for s in sentences)
        body += "</details>\n"
    with open(file, "w", encoding="utf-8") as page:
        page.write(PAGE.format(time=time.strftime("%H:%M:%S"), body=body))
    with open(memory, "w", encoding="utf-8") as new:
        json.dump(parts, new)
    print(f"{file}: open it in a browser" + ("; red: not so at the last map" if before else ""))


COMMANDS = path, load, loops, check_tables, fabric_map
