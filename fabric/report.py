# SPDX-License-Identifier: BSD-2-Clause
"""What the shell's commands say about paths and tables, and the page of make fabric-map."""
import html
import json
import os
import re
import shutil
import subprocess
import sys
import time

import routes

MANY = 200  # hosts: from there on the picture has the switches only, and the paths of load shift
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
:root {{ --ink: #111; --dim: #555; --line: #888; --bad: #a00000; }}
body {{ margin: 0 auto; max-width: 1700px; padding: 0 14px 30px; color: var(--ink);
  font: 16px/1.4 system-ui, "Noto Sans", "Noto Sans CJK SC", sans-serif; }}
h1 {{ font-size: 1.35rem; }} h2 {{ font-size: 1.15rem; margin: 18px 0 4px; }}
details {{ border: 1px solid var(--line); border-radius: 6px; padding: 4px 10px; margin: 4px 0; }}
svg {{ max-width: 100%; height: auto; }} table {{ border-collapse: collapse; font-size: .9rem; }}
td, th {{ text-align: left; padding: 1px 10px; border-bottom: 1px solid #ddd; }}
.changed {{ color: var(--bad); font-weight: 700; }} p {{ margin: 4px 0; }}
</style></head><body><h1>{title}</h1>{body}</body></html>
"""


def known(fabric, name):
    if (lid := fabric.lid(name)) is None:
        sys.exit(f"fabric: no node {name!r} that OpenSM sees")
    return lid


def path(a, b):
    """path A B: the way from host to host, hop by hop, by the forwarding tables"""
    fabric = routes.current()
    channels = fabric.path(known(fabric, a), known(fabric, b))
    if channels is None:
        sys.exit(f"fabric: no path from {a} to {b}")
    print("\n".join(fabric.show(channel) for channel in channels))


def load(kind="all"):
    """load [all|neighbour|shift]: how many paths share the links between switches"""
    if kind not in ("all", "neighbour", "shift"):
        sys.exit("fabric: load all, load neighbour or load shift")
    fabric = routes.current()
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
    fabric = routes.current()
    engine, levels = service_levels(fabric)
    print(f"routing {engine}, service levels {', '.join(map(str, sorted({0, *levels.values()})))}")
    cycle = fabric.cycle(levels)
    for channel in cycle:
        print(f"  {fabric.show(channel)} (SL {channel[2]}) waits for the next")
    print(
        "  the last one waits for the first: deadlock is possible"
        if cycle
        else "no loop: no deadlock"
    )
    return 1 if cycle else 0


def check_tables(file):
    """check-tables FILE: your forwarding tables, lines like: leaf1 host3 port 4"""
    fabric, entries, wrong = routes.current(), 0, 0
    far = fabric.hops()
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("#"):
                entries += 1
                problem = entry_problem(fabric, far, line.split())
                wrong += bool(problem)
                print(f"{file}:{number}: {problem}\n" if problem else "", end="")
    want = len(fabric.hosts) * len(fabric.switches)
    print(f"{entries - wrong} of {want} entries are right" + (f"; {wrong} wrong" if wrong else ""))
    return 0 if (entries, wrong) == (want, 0) else 1


def entry_problem(fabric, far, words):
    """What is wrong with an entry of a student's table; "" if nothing is."""
    if len(words) != 4 or words[2] != "port" or not words[3].isdigit():
        return "write SWITCH HOST port NUMBER"
    switch, target, port = fabric.lid(words[0]), fabric.lid(words[1]), int(words[3])
    if switch not in fabric.switches or target not in fabric.hosts:
        return f"{words[0]} is no switch" if target in fabric.hosts else f"{words[1]} is no host"
    if (switch, port) not in fabric.links:
        return f"port {port} of {words[0]} has no link"
    peer = fabric.links[switch, port][0]
    right = fabric.tables[switch].get(target)
    if port == right:
        return ""
    if (peer, target) not in far or (peer not in fabric.switches and peer != target):
        return f"port {port} leads to {fabric.names[peer]}: nothing gets from there to {words[1]}"
    if far[peer, target] >= far[switch, target]:
        return f"port {port} leads to {fabric.names[peer]}: no step nearer to {words[1]}"
    return f"port {port} is as short, but OpenSM chose port {right}"


def picture(fabric, count):
    """The fabric as graphviz draws it: hosts are ovals; a link's number: paths there/back."""
    lines = ["graph { node [fontname=sans]; edge [fontname=sans, fontsize=10];"]
    small = len(fabric.hosts) <= MANY
    for lid, name in fabric.names.items():
        if not small and lid not in fabric.switches:
            continue
        label = f"{name}\nLID {lid}".replace("\\", "\\\\").replace('"', '\\"')
        lines.append(
            f'n{lid} [label="{label}", shape={"box" if lid in fabric.switches else "oval"}];'
        )
    above, kinds = ("root", "leaf", "host"), levels(fabric)
    rank = {lid: above.index(kinds.get(lid, "host")) for lid in fabric.names}
    for end, other in sorted(fabric.links.items()):
        if (rank[end[0]], end) < (rank[other[0]], other) and (
            small or {end[0], other[0]} <= fabric.switches
        ):
            label = f', label="{count[end]}/{count[other]}"' if count[end] + count[other] else ""
            lines.append(
                f"n{end[0]} -- n{other[0]} [taillabel={end[1]}, headlabel={other[1]}{label}];"
            )
    layout = "dot" if len(fabric.names) < 60 else "sfdp"
    drawn = subprocess.run(
        [layout, "-Tsvg"],
        input="\n".join([*lines, "}"]),
        capture_output=True,
        text=True,
        check=False,
    )
    return drawn.stdout[drawn.stdout.find("<svg") :]


def levels(fabric):
    """What each switch is: a leaf has hosts, a root is farthest from all of them."""
    leaves = {peer[0] for end, peer in fabric.links.items() if end[0] in fabric.hosts}
    return {lid: "leaf" if lid in leaves else "root" for lid in fabric.switches}


def in_words(fabric):
    """The tables and paths, as {part of the page: {name: sentences}}."""
    names, parts = fabric.names, {"Forwarding tables": {}, "Paths": {}}
    for lid in sorted(fabric.switches):
        table = sorted(fabric.tables[lid].items())
        parts["Forwarding tables"][f"{names[lid]}, LID {lid}"] = [
            f"to LID {to} ({names[to]}) by port {port}"
            for to, port in table
            if to != lid and to in names
        ]
    hosts = fabric.hosts_in_order()[:64]
    for a in hosts:
        ways = ((b, fabric.path(a, b)) for b in hosts if a != b)
        parts["Paths"][f"from {names[a]}"] = [
            f"to {names[b]}: " + (", ".join(map(fabric.show, way)) if way else "none")
            for b, way in ways
        ]
    return parts


def section(title, groups, before):
    text = [f"<h2>{title}</h2>"]
    for name, sentences in groups.items():
        old = before.get(title, {}).get(name) if before else None
        changed = [s for s in sentences if old is not None and s not in old]
        note = f' <span class="changed">{len(changed)} changed</span>' if changed else ""
        text.append(f"<details><summary>{html.escape(name)}{note}</summary>")
        for s in sentences:
            mark = ' class="changed"' if s in changed else ""
            text.append(f"<p{mark}>{html.escape(s)}</p>")
        text.append("</details>")
    return "\n".join(text)


def fabric_map(file="fabric.html"):
    """fabric-map [FILE]: a page with a picture, LIDs, forwarding tables, paths; run it again after a cut"""
    if not shutil.which("dot"):
        sys.exit("fabric: no dot: the package graphviz is missing")
    fabric, memory = routes.current(), os.environ["FABRIC"] + "/before.json"
    before = {}
    if os.path.exists(memory):
        with open(memory, encoding="utf-8") as old:
            before = json.load(old)
    count = fabric.load(fabric.pairs("all" if len(fabric.hosts) <= MANY else "shift"))
    parts = in_words(fabric)
    kinds = levels(fabric)
    rows = "".join(
        f"<tr><td>{lid}<td>{html.escape(fabric.names[lid])}<td>{kinds.get(lid, 'host')}"
        for lid in sorted(fabric.names)
    )
    most = "".join(
        f"<p>{n} paths: {html.escape(fabric.show(c))}</p>" for c, n in count.most_common(64)
    )
    body = (
        f"<p>{len(fabric.hosts)} hosts, {len(fabric.switches)} switches; {time.strftime('%H:%M:%S')}. "
        "At a link: its two ports, and how many paths between hosts use it, there/back.</p>"
        + picture(fabric, count)
        + f"<h2>LIDs</h2><details><summary>{len(fabric.names)}</summary><table>{rows}</table></details>"
        + "".join(section(title, groups, before) for title, groups in parts.items())
        + f"<h2>Links by paths</h2><details><summary>the most used</summary>{most}</details>"
    )
    with open(file, "w", encoding="utf-8") as page:
        page.write(PAGE.format(title="What OpenSM made of the fabric", body=body))
    with open(memory, "w", encoding="utf-8") as new:
        json.dump(parts, new)
    print(f"{file}: open it in a browser" + ("; red: not so at the last map" if before else ""))


COMMANDS = path, load, loops, check_tables, fabric_map
