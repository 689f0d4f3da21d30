# SPDX-License-Identifier: BSD-2-Clause
"""What the shell's commands say about paths and tables, and the page of make fabric-map."""
import html
import json
import os
import re
import subprocess
import sys
import time

from routes import Fabric

MANY = 200  # hosts: from there on the picture has the switches only, and the paths of load shift
SHOW = os.path.realpath(__file__ + "/../../learn/show/show.html")
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Fabric</title>{style}<style>
details {{ border: 1px solid var(--line); border-radius: 6px; padding: 4px 10px; margin: 4px 0; }}
p {{ margin: 4px 0; }}</style></head><body><h1>What OpenSM made of the fabric, at {time}</h1>
<p>At a link: its two ports, and how many paths between hosts use it, there/back.</p>{body}
</body></html>
"""


def find(fabric, name):
    """The LID of a name, or of a LID as text."""
    for lid, known in fabric.names.items():
        if name in (known, str(lid)):
            return lid
    sys.exit(f"fabric: no node {name!r} that OpenSM sees")


def path(a, b):
    """path A B: the way from host to host, hop by hop, by the forwarding tables"""
    fabric = Fabric()
    channels = fabric.path(find(fabric, a), find(fabric, b))
    if channels is None:
        sys.exit(f"fabric: no path from {a} to {b}")
    print("\n".join(map(fabric.show, channels)))


def load(kind="all"):
    """load [all|neighbour|shift]: how many paths share the links between switches"""
    if kind not in ("all", "neighbour", "shift"):
        sys.exit("fabric: load all, load neighbour or load shift")
    fabric = Fabric()
    pairs = fabric.pairs(kind)
    count = fabric.load(pairs)
    print(f"{len(pairs)} paths; between switches:")
    for paths in sorted(set(count.values()), reverse=True):
        some = [fabric.show(channel) for channel in sorted(count) if count[channel] == paths]
        print(f"  {paths} on {len(some)} channels: {some[0]}{' …' if len(some) > 1 else ''}")


def service_levels(fabric):
    """{(source, target): SL}, from the subnet administrator. It is asked for one path at a time: a
    longer answer comes in several packets, which the simulator does not do."""
    with open(os.environ["FABRIC"] + "/opensm.log", encoding="utf-8", errors="replace") as log:
        engine = re.findall(r"(\w+) tables configured", log.read())[-1]
    levels = {}
    for a, b in fabric.pairs("all") if engine in ("lash", "dfsssp", "nue", "torus") else []:
        ask = ["saquery", "-p", "--src-to-dst", f"{a}:{b}"]
        said = subprocess.run(ask, capture_output=True, text=True, check=False).stdout
        levels[a, b] = int(re.search(r"\bsl\.+(\w+)", said)[1], 0)
    return engine, levels


def loops():
    """loops: channels that can wait for each other in a ring (a deadlock by credits)"""
    fabric = Fabric()
    engine, levels = service_levels(fabric)
    print(f"routing {engine}, service levels {', '.join(map(str, sorted({0, *levels.values()})))}")
    cycle = fabric.cycle(levels)
    for channel in cycle:
        print(f"  {fabric.show(channel)} (SL {channel[2]}) waits for the next")
    end = "  the last one waits for the first: deadlock is possible"
    print(end if cycle else "no loop: no deadlock")
    return 1 if cycle else 0


def check_tables(file):
    """check-tables FILE: your forwarding tables, lines like: leaf1 host3 port 4"""
    fabric, right, wrong = Fabric(), set(), 0
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                if problem := entry_problem(fabric, line):
                    wrong += 1
                    print(f"{file}:{number}: {problem}")
                else:
                    right.add(tuple(line.split()))
    want = len(fabric.hosts) * len(fabric.switches)
    print(f"{len(right)} of {want} entries are right" + (f"; {wrong} wrong" if wrong else ""))
    return 0 if (len(right), wrong) == (want, 0) else 1


def entry_problem(fabric, line):
    """What is wrong with an entry of a student's table; "" if nothing is."""
    lids = {name: lid for lid, name in fabric.names.items()}
    words = re.fullmatch(r"(\S+) (\S+) port (\d+)", " ".join(line.split()))
    switch, host, port = words.groups() if words else ("", "", "0")
    if lids.get(switch) not in fabric.switches or lids.get(host) not in fabric.hosts:
        return "write SWITCH HOST port NUMBER"
    if int(port) == fabric.tables[lids[switch]].get(lids[host]):
        return ""
    peer = fabric.links[lids[switch]].get(int(port))
    return f"port {port} leads to {fabric.names[peer[0]] if peer else 'nothing'}"


def kinds(fabric):
    """What each node is. A leaf has hosts."""
    leaves = {fabric.links[host][min(fabric.links[host])][0] for host in fabric.hosts}
    switches = {lid: "leaf" if lid in leaves else "root" for lid in fabric.switches}
    return dict.fromkeys(fabric.hosts, "host") | switches


def picture(fabric, count):
    """The fabric as graphviz draws it: hosts are ovals; a link's number: paths there/back."""
    lines = ["graph { node [fontname=sans]; edge [fontname=sans, fontsize=10];"]
    shown = set(fabric.names) if len(fabric.hosts) <= MANY else fabric.switches
    what, above, drawn = kinds(fabric), ("root", "leaf", "host"), set()
    for lid in sorted(shown, key=lambda lid: (above.index(what[lid]), lid)):
        label = json.dumps(f"{fabric.names[lid]}\nLID {lid}", ensure_ascii=False)
        shape = "box" if lid in fabric.switches else "oval"
        lines.append(f"n{lid} [label={label}, shape={shape}];")
        for port, (peer, back) in sorted(fabric.links[lid].items()):
            if peer in shown and (peer, back) not in drawn:
                drawn.add((lid, port))
                there, here = count[lid, port], count[peer, back]
                label = f', label="{there}/{here}"' if there or here else ""
                lines.append(f"n{lid} -- n{peer} [taillabel={port}, headlabel={back}{label}];")
    command = ["dot" if len(fabric.names) < 60 else "sfdp", "-Tsvg"]
    dot = "\n".join([*lines, "}"])
    svg = subprocess.run(command, input=dot, stdout=subprocess.PIPE, text=True, check=True).stdout
    return svg[svg.find("<svg") :]


def in_words(fabric, count):
    """What the page says: {title: sentences}."""
    names, what, some = fabric.names, kinds(fabric), fabric.hosts[:64]
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
        ways = {b: map(fabric.show, fabric.path(a, b) or []) for b in some if a != b}
        parts[f"Paths from {names[a]}, LID {a}"] = [
            f"to {names[b]}: {', '.join(way) or 'none'}" for b, way in ways.items()
        ]
    return parts


def part(title, sentences, before):
    """One part of the page. What the last map did not say is red."""
    new = {*sentences} - {*before.get(title, sentences)}
    note = f' <span class="bad">{len(new)} changed</span>' if new else ""
    text = (f"<p{' class=bad' * (s in new)}>{html.escape(s)}</p>\n" for s in sentences)
    return f"<details><summary>{html.escape(title)}{note}</summary>{''.join(text)}</details>\n"


def fabric_map(file="fabric.html"):
    """fabric-map [FILE]: a page: picture, LIDs, tables, paths; once more: red is what has changed"""
    fabric, memory, before = Fabric(), os.environ["FABRIC"] + "/before.json", {}
    if os.path.exists(memory):
        with open(memory, encoding="utf-8") as old:
            before = json.load(old)
    count = fabric.load(fabric.pairs("all" if len(fabric.hosts) <= MANY else "shift"))
    parts = in_words(fabric, count)
    body = picture(fabric, count) + "".join(part(*group, before) for group in parts.items())
    with open(SHOW, encoding="utf-8") as show:
        style = re.search("(?s)<style>.*</style>", show.read())[0]
    with open(file, "w", encoding="utf-8") as page:
        page.write(PAGE.format(time=time.strftime("%H:%M:%S"), style=style, body=body))
    with open(memory, "w", encoding="utf-8") as new:
        json.dump(parts, new)
    print(f"{file}: open it in a browser" + ("; red: not so at the last map" if before else ""))


COMMANDS = path, load, loops, check_tables, fabric_map
