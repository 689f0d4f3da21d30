# SPDX-License-Identifier: BSD-2-Clause
"""What OpenSM made of a fabric, from the files that it dumps after each sweep: nodes, links,
forwarding tables; and what follows from them: paths, how many share a link, deadlocks."""
import os
import re
from collections import Counter, defaultdict

# One side of a line of opensm-subnet.lst. A name may hold braces and quotes.
SIDE = r"\{ (\S+) Ports:\w+ .*?NodeGUID:(\w+) PortGUID:(\w+) .*?\{(.*)\} LID:(\w+) PN:(\w+) \}"
LINE = re.compile(SIDE + " " + SIDE + " PHY=")
TABLE = re.compile(r"Unicast lids .* of switch Lid (\d+) guid \w+ \('(.*)'\):$")


class Fabric:
    """By LID: names, the set of switches, links {(lid, port): (lid, port)}, tables {lid: {lid:
    port}}. A link in one direction, a channel, is the (lid, port) that sends into it."""

    def __init__(self, folder):
        self.names, self.switches, self.links, self.tables = {}, set(), {}, defaultdict(dict)
        with open(f"{folder}/opensm-subnet.lst", encoding="utf-8", errors="replace") as file:
            for line in file:
                if sides := LINE.match(line):
                    self.add(sides.groups())
        with open(f"{folder}/opensm-lfts.dump", encoding="utf-8", errors="replace") as file:
            for line in file:
                if head := TABLE.match(line):
                    table = self.tables[int(head[1])]
                elif re.match("0x[0-9a-fA-F]{4} ", line):
                    table[int(line[:6], 16)] = int(line[7:10])
        self.hosts = sorted(set(self.names) - self.switches)

    def add(self, fields):
        ends = []
        for kind, _, _, name, lid, port in (fields[:6], fields[6:]):
            lid, port = int(lid, 16), int(port, 16)
            self.names[lid] = name
            ends.append((lid, port))
            if kind.startswith("SW"):
                self.switches.add(lid)
        self.links[ends[0]], self.links[ends[1]] = ends[1], ends[0]

    def lid(self, name):
        """Of a name or a LID as text; None if there is none."""
        found = [lid for lid, known in self.names.items() if name in (known, str(lid))]
        return found[0] if found else None

    def path(self, source, target):
        """The channels from one host's LID to another's; None if it leads nowhere."""
        port = next(port for lid, port in sorted(self.links) if lid == source)
        path, at = [], source
        while at != target:
            if (at, port) not in self.links or len(path) > 64:
                return None
            path.append((at, port))
            at = self.links[at, port][0]
            port = self.tables[at].get(target)
        return path

    def hops(self):
        """From each switch and to each LID the fewest links."""
        far = {}
        for target in self.names:
            far[target, target], queue = 0, [target]
            for at in queue:
                for _, (peer, _) in self.around(at):
                    if (peer, target) not in far:
                        far[peer, target] = far[at, target] + 1
                        queue += [peer] if peer in self.switches else []
        return far

    def around(self, lid):
        """The links at a node."""
        ends = ((lid, port) for port in range(1, 255))
        return [(end, self.links[end]) for end in ends if end in self.links]

    def pairs(self, kind):
        """Who sends to whom: all to all, each to its neighbour, or each to the one half around."""
        hosts, n = self.hosts_in_order(), len(self.hosts)
        if kind == "all":
            return [(a, b) for a in hosts for b in hosts if a != b]
        step = 1 if kind == "neighbour" else n // 2
        return [(a, hosts[(i + step) % n]) for i, a in enumerate(hosts) if n > 1]

    def hosts_in_order(self):
        """host2 before host10."""
        return sorted(
            self.hosts,
            key=lambda lid: [
                int(t) if t.isdigit() else t for t in re.split(r"(\d+)", self.names[lid])
            ],
        )

    def load(self, pairs):
        """How many of these paths go through each channel between switches."""
        count = Counter()
        for a, b in pairs:
            for channel in self.path(a, b) or []:
                if channel[0] in self.switches and self.links[channel][0] in self.switches:
                    count[channel] += 1
        return count

    def cycle(self, service_levels=None):
        """Channels that wait for each other in a ring: [] if there are none. A packet holds a
        channel's buffer until the next channel of its path has room. service_levels: {(source,
        target): SL}; each has buffers, and so channels, of its own (its virtual lane)."""
        after = defaultdict(set)
        for a, b in self.pairs("all"):
            level = (service_levels or {}).get((a, b), 0)
            path = [(*channel, level) for channel in self.path(a, b) or []]
            for first, then in zip(path, path[1:]):
                after[first].add(then)
        state = {}  # None: not seen; 1: on the way that is being followed; 2: no cycle from here
        for begin in sorted(after):
            way = [(begin, iter(sorted(after[begin])))] if begin not in state else []
            state.setdefault(begin, 1)
            while way:
                channel = next(way[-1][1], None)
                if channel is None:
                    state[way.pop()[0]] = 2
                elif state.get(channel) == 1:
                    names = [at for at, _ in way]
                    return names[names.index(channel) :]
                elif channel not in state:
                    state[channel] = 1
                    way.append((channel, iter(sorted(after[channel]))))
        return []

    def show(self, channel):
        """A channel as people call it."""
        peer = self.links[channel[0], channel[1]]
        return f"{self.names[channel[0]]} port {channel[1]} -> {self.names[peer[0]]}"


def current():
    return Fabric(os.environ["FABRIC"])
