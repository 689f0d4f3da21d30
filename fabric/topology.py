# SPDX-License-Identifier: BSD-2-Clause
"""Descriptions of fabrics: generates them, and prints any as ibsim takes it.

A description is what ibnetdiscover prints, and what ibsim reads: each node with its ports, so
that each link stands at both of its ends. Generated:

    Switch  4 "leaf1"
    [1]     "host1"[1]
"""
import itertools
import math
import os
import re
import sys
from collections import defaultdict, namedtuple

# links: by port its peer's id and port, the rest, its line
Node = namedtuple("Node", "kind ports id head links")
NODE = re.compile(r'(Switch|Ca|Hca|Rt)\s+(\d+)\s+"([^"]+)"(.*)')
NAME = re.compile(r'[^#]*#\s*"?(.*?)"?\s*((?:base|enhanced) port 0.*)?$')
LINK = re.compile(r'\[(\d+)\][^"]*"([^"]*)"\s*(?:\[(\d+)\])?([^#]*)(.*)')
# ibnetdiscover's own, and what it and ibsim's library say on stderr.
OTHER = re.compile(r"#|(Non-)?Chassis |Hostname: |(ibwarn|src/\w+\.c):|$")
MOST_PORTS = 254  # a byte; 255 is "any port"
MOST_HOSTS = 48000  # of 49,151 LIDs


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
    if not hosts.isdecimal() or not 1 <= int(hosts) <= MOST_HOSTS:
        sys.exit(f"fabric: HOSTS={hosts}: 1 to {MOST_HOSTS}")
    ports = defaultdict(list)
    for a, b in KINDS[kind](int(hosts)):
        ports[a].append(f'"{b}"[{len(ports[b]) + 1}]')
        ports[b].append(f'"{a}"[{len(ports[a])}]')
    lines = []
    for name in sorted(ports, key=lambda name: name.startswith("host")):
        lines.append(f'{"Ca" if name.startswith("host") else "Switch"} {len(ports[name])} "{name}"')
        lines += [f"[{n}] {peer}" for n, peer in enumerate(ports[name], 1)]
    return "\n".join(lines)


def read(text):
    """The nodes of a description, as ibsim takes them."""
    nodes, guids, ids = [], [], set()
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if nodes and (found := LINK.match(line)):
            port, peer, peer_port, options, comment = found.groups()
            # ibsim takes x=1 in a name for an option, and it reads the width of a link at a switch's
            # end, but not at a router's: 4x then, at both.
            router = nodes[-1].kind == "Rt" or peer.startswith("R-")
            more = "" if router else options + re.sub('".*"', '""', comment)
            nodes[-1].links[int(port)] = peer, int(peer_port or 1), more, number
        elif re.match("[a-z]+=", line):
            guids.append(line.split("#")[0])
        elif found := NODE.match(line):
            kind, ports, node_id, rest = found.groups()
            name, lids = found.groups("") if (found := NAME.match(rest)) else ("", "")
            if node_id in ids:
                sys.exit(f'fabric: line {number}: "{node_id}" is there twice')
            ids.add(node_id)
            name = name.replace('"', "'")[:60] or node_id  # ibsim takes no line of 256 bytes
            kind = kind.replace("Hca", "Ca")
            head = f'{kind}\t{ports} "{node_id}"\t# "{name}" {lids}'
            nodes.append(Node(kind, int(ports), node_id, "\n".join([*guids, head]), {}))
            guids = []
        elif not OTHER.match(line):
            sys.exit(f"fabric: line {number}: no node, port or comment: {line[:50]!r}")
    return nodes


def check(nodes):
    """What else is wrong is for ibsim to say."""
    links = {(node.id, port): link for node in nodes for port, link in node.links.items()}
    for node in nodes:
        if not 1 <= node.ports <= MOST_PORTS:
            sys.exit(f'fabric: "{node.id}" has {node.ports} ports; a node has 1 to {MOST_PORTS}')
        for port, (peer, peer_port, _, number) in node.links.items():
            here = f'fabric: line {number}: "{node.id}"[{port}]'
            if port > node.ports:
                sys.exit(f"{here}: it has {node.ports} ports")
            if links.get((peer, peer_port), ())[:2] != (node.id, port):
                sys.exit(f'{here} goes to "{peer}"[{peer_port}], but not back')
    if not any(node.kind == "Ca" and 1 in node.links for node in nodes):
        sys.exit("fabric: no host (Ca) has a link at its port 1, where the simulated tools sit")


def main(topology, hosts):
    """The description that they ask for, as ibsim takes it."""
    if topology in KINDS:
        text = generate(topology, hosts)
    elif os.path.isfile(topology):
        with open(topology, encoding="utf-8", errors="replace") as file:
            text = file.read()
    else:
        sys.exit(f"fabric: no file {topology} (TOPOLOGY= {', '.join(KINDS)}, or a file)")
    nodes = read(text)
    check(nodes)
    for node in nodes:
        print(node.head)
        for port, (peer, peer_port, more, _) in sorted(node.links.items()):
            print(f'[{port}]\t"{peer}"[{peer_port}]{more}')
        print()


if __name__ == "__main__":
    main(*sys.argv[1:])
