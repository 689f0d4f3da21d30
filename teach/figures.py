# SPDX-License-Identifier: BSD-2-Clause
"""The figures of a hand-in: are all there, and are they what its program takes when grade-program measures some
of them again? Never how fast anything is."""
import re
from collections import namedtuple

from expected import METHODS, Layout, of_student, plan

# In virtual time they repeat: of 700 values, none was off by 1.06. Wider for a program that prints while it moves
# messages, which costs time in grade-program alone.
SLACK = 1.1
FIGURE = r"(?=[0-9.]*[1-9])([0-9]{1,12}\.[0-9]{1,9})"  # not 0
BENCH = re.compile(
    r"BENCH method=(\w+) block_size=(\d{1,9}) block_num=(\d{1,9}) stride=(\d{1,9}) bytes=(\d{1,9}) iters=\d+ "
    rf"depth=\d+ clock=(virtual|real) lat_p50_us={FIGURE} lat_p99_us={FIGURE} bw_MBps={FIGURE} .*"
)

Bench = namedtuple("Bench", "layout clock p50 bandwidth")


def point(method, layout):
    """As grade-program calls it."""
    return f"{method} {layout.block_size} {layout.bytes}"


def check(h, sizes):
    """Is each point there once, and each figure one?"""
    lines = [line for line in h.lines("measured") if line.startswith("BENCH method=")]
    for found in filter(None, map(BENCH.fullmatch, lines)):
        method, *layout, clock, p50, _, bandwidth = found.groups()
        layout = Layout(*map(int, layout))
        h.figures[point(method, layout)] = Bench(layout, clock, float(p50), float(bandwidth))
    layouts = plan(sizes, of_student(h.student).layout.block_size)
    wanted = [(point(method, layout), layout) for layout in layouts for method in METHODS]
    there = [(name, f.layout) for name, f in h.figures.items()]
    if "measured" in h.runs and (sorted(there) != sorted(wanted) or len(lines) != len(wanted)):
        h.wrong("measured", "its BENCH lines are not one of each method at each size")


def off(f, p50, bandwidth):
    """By what factor the handed in ones differ from these."""
    ratios = [mine / max(again, 1e-9) for mine, again in ((f.p50, p50), (f.bandwidth, bandwidth))]
    return max(max(ratio, 1 / ratio) for ratio in ratios)


def confirm(h, row):
    """Why the figures are not what the program takes, or nothing. row: of grade-program."""
    measured = {name: rounds for name, rounds in row["figures"].items() if name in h.figures}
    if not row["figures"] or "not go on to the end" in row["why"].get("itself", ""):  # in --bench
        return "its program can't be measured: see what grade-program says of it"
    kernel = re.search(r"\bkernel=(\S*)|$", h.read("runs/machine.txt"))[1]
    unlike = "in real time" if any(f.clock == "real" for f in h.figures.values()) else ""
    if kernel != row["kernel"]:
        unlike = f"on Linux {kernel}, the program again on {row['kernel']}"
    if unlike:
        h.note(f"the figures were measured {unlike}: nothing confirms them")
        return ""
    for name, rounds in measured.items():
        f = h.figures[name]
        p50, bandwidth = min(rounds, key=lambda again: off(f, *again))
        if off(f, p50, bandwidth) > SLACK:
            return (
                f"{name} bytes: handed in {f.p50:.1f} us and {f.bandwidth:.1f} MB/s; "
                f"measured again, {p50:.1f} and {bandwidth:.1f}"
            )
    return "" if measured else "what its program measures is not what was handed in"
