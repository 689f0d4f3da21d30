# SPDX-License-Identifier: BSD-2-Clause
"""The figures of a hand-in: are all there, and are they what its program takes when grade-program measures some
of them again? Never how fast anything is."""
import re
from collections import namedtuple
from statistics import median

from expected import METHODS, Layout, of_student, plan

# Measured again in virtual time, the median of a method's values lies within the first, each within the third.
# (Of 700 none was off by 1.06.) Looser for 07, whose latencies vary by 5 %, and for a program that prints while it moves
# messages, which costs time here alone.
SLACK, LOOSER, MOST = 1.03, 1.06, 1.15
FIGURE = r"(?=[0-9.]*[1-9])([0-9]{1,12}\.[0-9]{1,9})"  # not 0
BENCH = re.compile(
    r"BENCH method=(\w+) block_size=(\d{1,9}) block_num=(\d{1,9}) stride=(\d{1,9}) bytes=(\d{1,9}) iters=\d+ "
    rf"depth=\d+ clock=(virtual|real) lat_p50_us={FIGURE} lat_p99_us={FIGURE} bw_MBps={FIGURE} .*"
)

Bench = namedtuple("Bench", "layout clock p50 p99 bandwidth")


def point(method, layout):
    """As grade-program calls it."""
    return f"{method} {layout.block_size} {layout.bytes}"


def check(h, sizes):
    """Is each point there once, and each figure one?"""
    lines = [line for line in h.lines("measured") if line.startswith("BENCH method=")]
    for found in filter(None, map(BENCH.fullmatch, lines)):
        method, *layout, clock, p50, p99, bandwidth = found.groups()
        layout, values = Layout(*map(int, layout)), map(float, (p50, p99, bandwidth))
        h.figures[point(method, layout)] = Bench(layout, clock, *values)
    layouts = plan(sizes, of_student(h.student).layout.block_size)
    wanted = [(point(method, layout), layout) for layout in layouts for method in METHODS]
    there = [(name, f.layout) for name, f in h.figures.items()]
    if "measured" in h.runs and (sorted(there) != sorted(wanted) or len(lines) != len(wanted)):
        h.wrong("measured", "its BENCH lines are not one of each method at each size")


def off(ratio):
    return max(ratio, 1 / ratio)


def better(f, rounds):
    """How many times better latency and bandwidth are in the hand-in than measured again, in the round that is nearer."""
    latencies, bandwidths = zip(*((p50 / f.p50, f.bandwidth / max(bw, 1e-9)) for p50, bw in rounds))
    return [min((max(x, 1e-9) for x in ratios), key=off) for ratios in (latencies, bandwidths)]


def confirm(h, row):
    """Why the figures are not what the program takes, or nothing. row: of grade-program."""
    if not row["figures"] or "not go on to the end" in row["why"].get("itself", ""):  # in --bench
        return "its program can't be measured: see what grade-program says of it"
    kernel = re.search(r"\bkernel=(\S*)|$", h.read("runs/machine.txt"))[1]
    unlike = "in real time" if any(f.clock == "real" for f in h.figures.values()) else ""
    if kernel != row["kernel"]:
        unlike = f"on Linux {kernel}, the program again on {row['kernel']}"
    if unlike:
        h.note(f"the figures were measured {unlike}: nothing confirms them")
        return ""
    rounds = {name: found for name, found in row["figures"].items() if name in h.figures}
    found = {name: better(h.figures[name], rounds[name]) for name in rounds}
    slack = LOOSER if h.lab == "07" else SLACK
    above = LOOSER if row.get("prints") else slack
    for method in METHODS:
        names = [name for name in found if name.split()[0] == method]
        values = [value for name in names for value in found[name]]
        if values and not (max(map(off, values)) < MOST and 1 / slack < median(values) < above):
            name = max(names, key=lambda name: max(map(off, found[name])))
            f, (p50, bandwidth) = h.figures[name], rounds[name][-1]
            return (
                f"{name} bytes: handed in {f.p50:.1f} us and {f.bandwidth:.1f} MB/s; "
                f"measured again, {p50:.1f} and {bandwidth:.1f}"
            )
    return "" if found else "what its program measures is not what was handed in"
