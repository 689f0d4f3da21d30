# SPDX-License-Identifier: BSD-2-Clause
"""What OpenSM made of a fabric, from the files that it dumps after each sweep: links, forwarding
tables; and what follows from them: paths, how many share a link, deadlocks, a page with all of it."""
import graphlib
import html
import inspect
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict

# Each link stands there from both of its ends. A name may hold braces.
LINK = r"\{ (\S+) Ports:.*?\{(.*?)\} LID:(\w+) PN:(\w+) \} \{.* LID:(\w+) PN:(\w+) \} PHY="
TABLE = r"Unicast lids .* of switch Lid (\d+) guid |(0x\w{4}) (\d+) "
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
    """By LID: names, kinds, links {lid: {port: (lid, port)}}, tables {lid: {lid: port}}. A link in
    one direction, a channel, is the (lid, port) that sends into it."""

    def __init__(self):
        self.names, self.kinds = {}, {}
        self.links, self.tables = defaultdict(dict), defaultdict(dict)
        for kind, name, *numbers in re.findall(LINK, read_file("opensm-subnet.lst")):
            lid, port, peer, back = (int(number, 16) for number in numbers)
            self.names[lid], self.links[lid][port] = name, (peer, back)
            self.kinds[lid] = "root" if kind == "SW" else "host"
        for switch, target, port in re.findall(TABLE, read_file("opensm-lfts.dump")):
            if switch:
                table = self.tables[int(switch)]
            else:
                table[int(target, 16)] = int(port)
        by_name = sorted(self.names, key=lambda lid: (len(self.names[lid]), self.names[lid]))
        self.hosts = [lid for lid in by_name if self.kinds[lid] == "host"]
        self.switches = self.names.keys() - self.hosts
        for host in self.hosts:
            for peer, _ in self.links[host].values():
                self.kinds[peer] = "leaf"

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

    def pairs(self, kind):
        """Who sends to whom: all to all, each to its neighbour, or each to the one half around."""
        step = {"all": 0, "neighbour": 1, "shift": len(self.hosts) // 2}[kind]
        around = zip(self.hosts, self.hosts[step:] + self.hosts[:step])
        return [*around] if step else [*itertools.permutations(self.hosts, 2)]

    def load(self, kind):
        """How many of these paths go through each channel between switches."""
        count = Counter(channel for pair in self.pairs(kind) for channel in self.path(*pair))
        for lid, port in [*count]:
            if not {lid, self.links[lid][port][0]} <= self.switches:
                del count[lid, port]
        return count

    def cycle(self, service_levels):
        """Channels that wait for each other in a ring: [] if there are none. A packet holds a
        channel's buffer until the next channel of its path has room. service_levels: {(source,
        target): SL}; each has buffers, and so channels, of its own (its virtual lane)."""
        before = graphlib.TopologicalSorter()
        for pair in self.pairs("all"):
            path = [(*channel, service_levels.get(pair, 0)) for channel in self.path(*pair)]
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


# --- The commands: see fabric-help.


def path(a, b):
    fabric = Fabric()
    channels = fabric.path(fabric.lid(a), fabric.lid(b))
    print("\n".join(map(fabric.show, channels)) or f"no path from {a} to {b}")
    return not channels


def load(kind="all"):
    if kind not in ("all", "neighbour", "shift"):
        sys.exit(2)
    fabric = Fabric()
    count = fabric.load(kind)
    print(f"{len(fabric.pairs(kind))} paths; between switches:")
    for paths in sorted(set(count.values()), reverse=True):
        some = [fabric.show(channel) for channel in sorted(count) if count[channel] == paths]
        print(f"  {paths} on {len(some)} channels: {some[0]}{' …' if len(some) > 1 else ''}")


def loops():
    fabric, levels = Fabric(), {}
    engine = re.findall(r"(\w+) tables configured", read_file("opensm.log"))[-1]
    if engine in ("lash", "dfsssp", "nue", "torus"):  # they give service levels
        # One at a time: a longer answer is several packets, which ibsim does not do.
        for a, b in fabric.pairs("all"):
            ask = ["saquery", "-t", "9999", "-p", "--src-to-dst", f"{a}:{b}"]
            said = subprocess.run(ask, capture_output=True, text=True, check=False).stdout
            found = re.search(r"\bsl\.+(\w+)", said) or sys.exit("fabric: OpenSM does not answer")
            levels[a, b] = int(found[1], 0)
    print(f"routing {engine}, service levels {', '.join(map(str, sorted({0, *levels.values()})))}")
    cycle = fabric.cycle(levels)
    for channel in cycle:
        print(f"  {fabric.show(channel)} (SL {channel[2]}) waits for the next")
    end = "  the last one waits for the first: deadlock is possible"
    print(end if cycle else "no loop: no deadlock")
    return bool(cycle)


def check_tables(file):
    fabric, want, right, wrong = Fabric(), {}, set(), 0
    for switch, host in itertools.product(fabric.switches, fabric.hosts):
        want[f"{fabric.names[switch]} {fabric.names[host]}"] = switch, fabric.tables[switch].get(
            host
        )
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            entry, _, port = " ".join(line.split()).partition(" port ")
            if entry not in want or not port.isdecimal():
                problem = "write SWITCH HOST port NUMBER"
            elif want[entry][1] != int(port):
                peer = fabric.links[want[entry][0]].get(int(port))
                problem = f"port {port} leads to {fabric.names[peer[0]] if peer else 'nothing'}"
            else:
                right.add(entry)
                continue
            if entry:
                wrong += 1
                print(f"{file}:{number}: {problem}")
    print(f"{len(right)} of {len(want)} entries are right" + (f"; {wrong} wrong" if wrong else ""))
    return (len(right), wrong) != (len(want), 0)


def picture(fabric, count):
    """The fabric as graphviz draws it: hosts are ovals; a link's number: paths there/back."""
    shown = fabric.names.keys() if len(fabric.hosts) <= MANY else fabric.switches
    lines = ["graph { node [fontname=sans, shape=box]; edge [fontname=sans, fontsize=10];"]
    for lid in sorted(shown):
        label = json.dumps(f"{fabric.names[lid]}\nLID {lid}", ensure_ascii=False)
        shape = ", shape=oval" if lid in fabric.hosts else ""
        lines.append(f"n{lid} [label={label}{shape}];")
        for port, (peer, back) in sorted(fabric.links[lid].items()):
            # Each link once, from above to below. By the alphabet, backwards: root, leaf, host.
            if peer in shown and (fabric.kinds[lid], lid, port) > (fabric.kinds[peer], peer, back):
                there, here = count[lid, port], count[peer, back]
                label = f', label="{there}/{here}"' if there or here else ""
                lines.append(f"n{lid} -- n{peer} [taillabel={port}, headlabel={back}{label}];")
    command = ["dot" if len(fabric.names) < 60 else "sfdp", "-Tsvg"]
    dot = "\n".join([*lines, "}"])
    svg = subprocess.run(command, input=dot, stdout=subprocess.PIPE, text=True, check=True).stdout
    return svg[svg.find("<svg") :]


def in_words(fabric, count):
    """What the page says: titles, and sentences under each."""
    names, some = fabric.names, fabric.hosts[:64]
    yield "LIDs", [f"LID {lid}: {names[lid]}, {fabric.kinds[lid]}" for lid in sorted(names)]
    most = count.most_common(64)
    yield "The most used links", [f"{n} paths: {fabric.show(channel)}" for channel, n in most]
    for switch in sorted(fabric.switches):
        table = sorted(fabric.tables[switch].items())
        yield f"Forwarding table of {names[switch]}, LID {switch}", [
            f"to LID {to} ({names[to]}) by port {port}"
            for to, port in table
            if to != switch and to in names
        ]
    for a in some:
        ways = {b: ", ".join(map(fabric.show, fabric.path(a, b))) for b in some if a != b}
        yield f"Paths from {names[a]}, LID {a}", [
            f"to {names[b]}: {way or 'none'}" for b, way in ways.items()
        ]


def fabric_map(file="fabric.html"):
    fabric, before = Fabric(), json.loads(read_file("before.json"))
    count = fabric.load("all" if len(fabric.hosts) <= MANY else "shift")
    parts, body = dict(in_words(fabric, count)), picture(fabric, count)
    for title, sentences in parts.items():
        new = {*sentences} - {*before.get(title, sentences)}
        note = f' <span class="new">{len(new)} changed</span>' if new else ""
        body += f"<details><summary>{html.escape(title)}{note}</summary>\n"
        body += "".join(f"<p{' class=new' * (s in new)}>{html.escape(s)}</p>\n" for s in sentences)
        body += "</details>\n"
    with open(file, "w", encoding="utf-8") as page:
        page.write(PAGE.format(time=time.strftime("%H:%M:%S"), body=body))
    with open(os.environ["FABRIC"] + "/before.json", "w", encoding="utf-8") as new:
        json.dump(parts, new)
    print(f"{file}: open it in a browser" + ("; red: not so at the last map" if before else ""))


def main(name, *arguments):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # load | head
    command = globals()[name.replace("-", "_")]
    try:
        inspect.signature(command).bind(*arguments)
    except TypeError:
        sys.exit(2)
    try:
        sys.exit(command(*arguments))
    except (KeyboardInterrupt, OSError) as problem:
        sys.exit(f"fabric: {problem}")


if __name__ == "__main__":
    main(*sys.argv[1:])
