#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The API on one page: each call of libibverbs and librdmacm that the samples make, as the first one makes it.

    api.py          prints the table
    api.py write    puts it into reference.md and reference.zh.md, between the two marks

The lines are drawn from the sources, so that the page can't differ from them; a test compares."""
import glob
import os
import re
import sys

from samples import ROOT, read, write

MARKS = "<!-- api: made by tests/api.py -->\n", "<!-- api: end -->\n"
HEADS = {
    ".md": (
        "call",
        "as it stands in the source",
        "where",
        ("device", "memory and queues", "connection", "data path", "completions", "undo"),
    ),
    ".zh.md": (
        "调用",
        "源文件里的写法",
        "出处",
        ("设备", "内存和队列", "建立连接", "数据路径", "完成", "释放"),
    ),
}
# Which group a call belongs to: the first pattern that fits its name.
GROUPS = (
    (5, r"destroy|dealloc|dereg|close|free|disconnect"),
    (4, r"poll|_cq_event|notify|wc_status|async_event|event_type"),
    (3, r"^ibv_wr_|post|bind_mw|inc_rkey"),
    (2, r"modify|_ah|rdma_(?!create_qp)"),
    (0, r"device|query|port|gid"),
    (1, r""),
)


def end_of_call(text, opening):
    """Where the parenthesis at text[opening] is closed."""
    depth = 0
    for at in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    raise ValueError(text[opening : opening + 40])


def calls_in(path):
    """[(name, how it stands there)] of a C file, without what its comments say."""
    text = re.sub(r"(?s)/\*.*?\*/", "", read(path))
    text = re.sub(r'"[^"\n]*"', '""', text)
    for found in re.finditer(r"((?:\w+ )*\**\w[\w.>-]* = )?\b((?:ibv|rdma)_\w+)\(", text):
        stands = text[found.start() : end_of_call(text, found.end() - 1)]
        yield found[2], " ".join(stands.split()).replace(" )", ")")


def calls():
    """{name: (how the first one stands, [where each is])}"""
    found = {}
    paths = sorted(glob.glob(f"{ROOT}/[0-9][0-9]_*/*.c")) + sorted(
        set(glob.glob(f"{ROOT}/common/*.c")) - {f"{ROOT}/common/newer.c"}  # which nothing calls
    )
    for path in paths:
        place = os.path.basename(os.path.dirname(path))[:2].replace("co", os.path.basename(path))
        for name, stands in calls_in(path):
            first, places = found.setdefault(name, (stands, []))
            if place not in places:
                places.append(place)
    return found


def listed(places):
    """01 to 04, 07, device.c"""
    runs = []
    for place in places:
        if runs and place.isdigit() and int(place) == int(runs[-1][-1]) + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return ", ".join(", ".join(run) if len(run) < 3 else f"{run[0]}–{run[-1]}" for run in runs)


def group_of(name):
    return next(group for group, pattern in GROUPS if re.search(pattern, name))


def table(ending):
    call, stands, where, groups = HEADS[ending]
    rows = [f"| {call} | {stands} | {where} |", "|---|---|---|"]
    found = calls()
    for number, title in enumerate(groups):
        rows.append(f"| **{title}** | | |")
        for name in (name for name in found if group_of(name) == number):
            code = found[name][0].replace("|", "\\|")
            rows.append(f"| {name} | `{code}` | {listed(found[name][1])} |")
    return "\n".join(rows) + "\n"


def parts(path):
    """A page: what is before the table, the table, what is behind it."""
    before, _, rest = read(path).partition(MARKS[0])
    return before, *rest.partition(MARKS[1])[::2]


def main():
    if sys.argv[1:] != ["write"]:
        print(table(".md"), end="")
        return
    for ending in HEADS:
        path = f"{ROOT}/reference{ending}"
        before, _, behind = parts(path)
        write(path, f"{before}{MARKS[0]}\n{table(ending)}\n{MARKS[1]}{behind}")


if __name__ == "__main__":
    main()
