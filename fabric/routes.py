# SPDX-License-Identifier: BSD-2-Clause
"""What OpenSM made of a fabric, from the files that it dumps after each sweep: nodes, links,
forwarding tables; and what follows from them: paths, how many share a link, deadlocks."""
import graphlib
import os
import re
from collections import Counter, defaultdict

# One side of a line of opensm-subnet.lst. A name may hold braces.
SIDE = r"\{ (\S+) Ports:.*?\{(.*)\} LID:(\w+) PN:(\w+) \}"
LINE = re.compile(SIDE + " " + SIDE + " PHY=")
TABLE = re.compile(r"Unicast lids .* of switch Lid (\d+) guid |(0x\w{4}) (\d+) ")


class Fabric:
    """By LID: names, the set of switches, links {lid: {port: (lid, port)}}, tables {lid: {lid:
    port}}. A link in one direction, a channel, is the (lid, port) that sends into it."""

    def __init__(self):
        folder = os.environ["FABRIC"]
        self.names, self.switches = {}, set()
        self.links, self.tables = defaultdict(dict), defaultdict(dict)
        with open(f"{folder}/opensm-subnet.lst", encoding="utf-8", errors="replace") as file:
            for sides in filter(None, map(LINE.match, file)):
                here, there = self.end(*sides.groups()[:4]), self.end(*sides.groups()[4:])
                self.links[here[0]][here[1]], self.links[there[0]][there[1]] = there, here
        with open(f"{folder}/opensm-lfts.dump", encoding="utf-8", errors="replace") as file:
            for found in filter(None, map(TABLE.match, file)):
                switch, target, port = found.groups()
                if switch:
                    table = self.tables[int(switch)]
                else:
                    table[int(target, 16)] = int(port)
        hosts = ((len(name), name, lid) for lid, name in self.names.items())  # host2 < host10
        self.hosts = [lid for _, _, lid in sorted(hosts) if lid not in self.switches]

    def end(self, kind, name, lid, port):
        lid = int(lid, 16)
        self.names[lid] = name
        if kind == "SW":
            self.switches.add(lid)
        return lid, int(port, 16)

    def path(self, source, target):
        """The channels from one host's LID to another's; None if it leads nowhere."""
        port = min(self.links[source])
        path, at = [], source
        while at != target:
            if port not in self.links[at] or len(path) > 64:
                return None
            path.append((at, port))
            at = self.links[at][port][0]
            port = self.tables[at].get(target)
        return path

    def pairs(self, kind):
        """Who sends to whom: all to all, each to its neighbour, or each to the one half around."""
        hosts, n = self.hosts, len(self.hosts)
        if kind == "all":
            return [(a, b) for a in hosts for b in hosts if a != b]
        step = 1 if kind == "neighbour" else n // 2
        return [(a, hosts[(i + step) % n]) for i, a in enumerate(hosts) if n > 1]

    def load(self, pairs):
        """How many of these paths go through each channel between switches."""
        count = Counter()
        for a, b in pairs:
            for at, port in self.path(a, b) or []:
                if {at, self.links[at][port][0]} <= self.switches:
                    count[at, port] += 1
        return count

    def cycle(self, service_levels):
        """Channels that wait for each other in a ring: [] if there are none. A packet holds a
        channel's buffer until the next channel of its path has room. service_levels: {(source,
        target): SL}; each has buffers, and so channels, of its own (its virtual lane)."""
        before = defaultdict(dict)
        for a, b in self.pairs("all"):
            level = service_levels.get((a, b), 0)
            path = [(*channel, level) for channel in self.path(a, b) or []]
            for first, then in zip(path, path[1:]):
                before[then][first] = True
        try:
            graphlib.TopologicalSorter(before).prepare()
            return []
        except graphlib.CycleError as error:
            ring = error.args[1][1:]
            begin = ring.index(min(ring))
            return ring[begin:] + ring[:begin]

    def show(self, channel):
        """A channel as people call it."""
        at, port = channel[:2]
        return f"{self.names[at]} port {port} -> {self.names[self.links[at][port][0]]}"
