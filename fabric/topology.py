# SPDX-License-Identifier: BSD-2-Clause
"""Descriptions of fabrics: generates them, and checks those that somebody wrote.

A description is what ibnetdiscover prints, and what ibsim reads: each node with its ports, so
that each link stands at both of its ends. Generated:

    Switch  4 "leaf1"
    [1]     "host1"[1]
"""
import itertools
import math
import re
import sys
from collections import defaultdict

NODE = re.compile(r'(Switch|Ca|Hca|Rt)\s+(\d+)\s+"([^"@#]{1,64})"(.*)')
NAME = re.compile(r'[^#]*#\s*"?(.*?)"?\s*((?:base|enhanced) port 0.*)?$')
LINK = re.compile(r'\[(\d+)\][^"]*"([^"]*)"\s*(?:\[(\d+)\])?([^#]*)(.*)')
# ibnetdiscover's own, and what it and ibsim's library say on stderr; ibsim passes over them.
OTHER = re.compile(r"#|(Non-)?Chassis |Hostname: |(ibwarn|src/\w+\.c):|$")
MOST_PORTS = 254  # a port's number is a byte, and 255 means "any port"
MOST_LIDS = 0xBFFF  # from 0xC000 on a LID is a multicast group's


class Wrong(Exception):
    """A sentence about a description that is wrong."""


def star(hosts):
    """One switch in the middle."""
    return [(f"host{n + 1}", "switch1") for n in range(hosts)]


def fat_tree(hosts):
    """Two levels. A leaf has as many links up as it has hosts, one to each spine: the tree is
    as fat above as it is below."""
    wide = math.ceil(math.sqrt(hosts / 2))
    leaves = -(-hosts // wide)
    links = [(f"host{n + 1}", f"leaf{n // wide + 1}") for n in range(hosts)]
    pairs = itertools.product(range(leaves), range(wide))
    return links + [(f"leaf{leaf + 1}", f"spine{spine + 1}") for leaf, spine in pairs]


def ring(hosts):
    """A host a switch, and each switch is joined to the next one."""
    links = [(f"host{n + 1}", f"switch{n + 1}") for n in range(hosts)]
    return links + [(f"switch{n + 1}", f"switch{(n + 1) % hosts + 1}") for n in range(hosts)]


def torus(hosts):
    """A square of switches in which each row and each column is a ring."""
    side = min(50, max(3, math.isqrt(hosts)))
    links = [(f"host{n + 1}", f"switch{n // side % side}x{n % side}") for n in range(hosts)]
    for y, x in itertools.product(range(side), repeat=2):
        links.append((f"switch{y}x{x}", f"switch{y}x{(x + 1) % side}"))
        links.append((f"switch{y}x{x}", f"switch{(y + 1) % side}x{x}"))
    return links


def dragonfly(hosts):
    """Groups of routers. In a group each router has a link to each other one; from each group
    there is one link to each other group."""
    size = next(a for a in itertools.count(2, 2) if hosts <= a * a * (a * a // 2 + 1))
    most = size * size // 2 + 1  # groups: each router has links to size / 2 of them
    routers = [f"group{g + 1}router{r + 1}" for g in range(most) for r in range(size)]
    links = [(f"host{n + 1}", routers[n % len(routers)]) for n in range(hosts)]
    for g in range(most):
        links += itertools.combinations(routers[g * size : (g + 1) * size], 2)
    for g, h in itertools.combinations(range(most), 2):
        here, there = (h - g - 1) // (size // 2), (g - h - 1) % most // (size // 2)
        links.append((routers[g * size + here], routers[h * size + there]))
    return links


KINDS = {"star": star, "fat-tree": fat_tree, "ring": ring, "torus": torus, "dragonfly": dragonfly}


def generate(kind, hosts):
    """The text of a description: the switches, then the hosts; ports in the order of links."""
    if hosts < (3 if kind == "ring" else 1):
        raise Wrong(f"HOSTS={hosts}: too few for a {kind}")
    ports = defaultdict(list)
    for a, b in KINDS[kind](hosts):
        ports[a].append((b, len(ports[b]) + 1))
        ports[b].append((a, len(ports[a])))
    lines = []
    for name in sorted(ports, key=lambda name: name.startswith("host")):
        kind = "Ca" if name.startswith("host") else "Switch"
        lines.append(f'{kind}\t{len(ports[name])} "{name}"')
        lines += [f'[{n}]\t"{peer}"[{port}]' for n, (peer, port) in enumerate(ports[name], 1)]
    return "\n".join(lines)


class Node:
    """As a description has it. What people call it: name; what ibsim calls it: id."""

    def __init__(self, kind, ports, node_id, rest):
        self.kind, self.switch, self.host = kind, kind == "Switch", kind in ("Ca", "Hca")
        self.ports, self.id = int(ports), node_id
        name, self.tail = found.groups() if (found := NAME.match(rest)) else ("", "")
        self.name = name.replace('"', "'")[:60] or node_id  # ibsim ends it at a quote
        self.before = []  # lines with its GUIDs
        self.links = {}  # port: (id of the peer, its port, line, what else stands there)

    def text(self):
        """For ibsim, which takes x=1 in a name for an option, and no line of 256 bytes."""
        head = f'{self.kind}\t{self.ports} "{self.id}"\t# "{self.name}" {self.tail or ""}'
        links = (f'[{n}]\t"{to}"[{at}]{more}' for n, (to, at, _, more) in self.links.items())
        return "\n".join([*self.before, head, *links, "\n"])


def read(text):
    """The nodes of a description by their ids. Raises Wrong where ibsim would refuse it."""
    nodes, node, lines, before = {}, None, {}, []
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if node and (found := LINK.match(line)):
            once(lines, f'port {int(found[1])} of "{node.id}"', number)
            add_link(node, number, *found.groups())
        elif re.match("[a-z]+=", line):
            before.append(line.split("#")[0])
            if re.match("(switch|ca|rt)guid", line):
                once(lines, before[-1].split("(")[0], number)
        elif found := NODE.match(line):
            node = Node(*found.groups())
            once(lines, f'"{node.id}"', number)
            if not 1 <= node.ports <= MOST_PORTS:
                raise Wrong(f"line {number}: {node.ports} ports; a node has 1 to {MOST_PORTS}")
            nodes[node.id], node.before, before = node, before, []
        elif not OTHER.match(line):
            raise Wrong(f"line {number}: no node, port or comment: {line[:50]!r}")
    check(nodes)
    return nodes


def once(lines, what, number):
    if (first := lines.setdefault(what, number)) != number:
        raise Wrong(f"line {number}: {what} is in line {first} already")


def add_link(node, number, port, peer, peer_port, options, comment):
    port, comment = int(port), re.sub('".*"', '""', comment)
    if not 1 <= port <= node.ports:
        raise Wrong(f'line {number}: port {port}, but "{node.name}" has {node.ports}')
    # ibsim reads the width of a link at a switch's end, but not at a router's: 4x then, at both.
    more = "" if node.kind == "Rt" or peer.startswith("R-") else options + comment
    node.links[port] = peer, int(peer_port or 1), number, more


def check(nodes):
    """What can't be seen before all of it has been read."""
    for node in nodes.values():
        for port, (peer, peer_port, line, _) in node.links.items():
            if peer not in nodes:
                raise Wrong(f'line {line}: there is no node "{peer}"')
            back = nodes[peer].links.get(peer_port)
            if not back or back[:2] != (node.id, port):
                says = f'says "{back[0]}"[{back[1]}]' if back else "is missing"
                raise Wrong(
                    f'line {line}: "{node.name}"[{port}] goes to "{peer}"[{peer_port}], but '
                    f"that port {says}: a link stands at both of its ends"
                )
    if not any(node.host and 1 in node.links for node in nodes.values()):
        raise Wrong("no host (Ca) with a link at its port 1, where the simulated tools sit")
    if len(nodes) > MOST_LIDS:
        raise Wrong(f"{len(nodes)} nodes; a subnet has {MOST_LIDS} LIDs")


def load(topology, hosts):
    """The nodes that TOPOLOGY and HOSTS ask for."""
    try:
        if topology in KINDS:
            if not re.fullmatch(r"\d{1,5}", hosts):
                raise Wrong(f"HOSTS={hosts} is no number")
            return read(generate(topology, int(hosts)))
        with open(topology, encoding="utf-8", errors="replace") as file:
            return read(file.read())
    except OSError as error:
        kinds = ", ".join(KINDS)
        sys.exit(f"fabric: {topology}: {error.strerror.lower()} (TOPOLOGY= {kinds}, or a file)")
    except Wrong as wrong:
        sys.exit(f"fabric: {topology}: {wrong}")
