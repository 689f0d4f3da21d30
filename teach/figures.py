# SPDX-License-Identifier: BSD-2-Clause
"""The figures of a hand-in: are all there, and are they what its program takes when grade-program measures some
of them again? Never how fast anything is."""
import re
from collections import namedtuple

from expected import METHODS, Layout, of_student, plan
from reader import printable

# Measured again in virtual time, more than half of the values of a method, or with a layout, lie within the first,
# each within the third. (Of 700 none was off by 1.06.) Looser for a program that prints while it moves messages, which
# costs time here alone; for 07, whose latencies vary by 5 %; and for another kernel, there also by each.
AGAIN_SLACK, LOOSER, AGAIN_MOST, OTHER_EACH = 1.03, 1.06, 1.15, 1.2
FIGURE = r"([0-9]{1,12}\.[0-9]{1,9})"
BENCH = re.compile(
    r"BENCH method=(\w+) block_size=(\d{1,9}) block_num=(\d{1,9}) stride=(\d{1,9}) bytes=(\d{1,9}) iters=\d+ "
    rf"depth=\d+ clock=(virtual|real) lat_p50_us={FIGURE} lat_p99_us={FIGURE} bw_MBps={FIGURE} .*"
)

Bench = namedtuple("Bench", "layout method clock p50 p99 bandwidth line")


def read(h):
    """The BENCH lines. One that has another form, or a figure of 0, is wrong."""
    for line in h.lines("measured"):
        if found := BENCH.fullmatch(line):
            method, *layout, clock, p50, p99, bandwidth = found.groups()
            figures = float(p50), float(p99), float(bandwidth)
            if all(figures):
                yield Bench(Layout(*map(int, layout)), method, clock, *figures, line)
                continue
        if line.startswith("BENCH method="):
            h.wrong("measured", "a figure is missing, or isn't one", line)


def said(h):
    """Of each point, as grade-program calls it."""
    return {f"{f.method} {f.layout.block_size} {f.layout.bytes}": f for f in h.figures}


def check(h, sizes):
    """Is each point there once?"""
    h.figures = list(read(h))
    layouts = plan(sizes, of_student(h.student).layout.block_size)
    wanted = {(layout, method) for layout in layouts for method in METHODS}
    for f in h.figures:
        if (f.layout, f.method) not in wanted:
            h.wrong("measured", "nobody asked for this point, or it is there twice", f.line)
        if f.p50 > f.p99:
            h.wrong("figures", "the median is above the 99th percentile", f.line)
        wanted.discard((f.layout, f.method))
    for layout, method in sorted(wanted if "measured" in h.runs else ()):
        block = f"block size {layout.block_size}, {layout.bytes} bytes"
        h.wrong("measured", f"no BENCH line of {method}, {block}")


def off(ratio):
    return max(ratio, 1 / ratio)


def elsewhere(f, contig, takes, piece):
    """What a value should be that was measured on another kernel, where one piece took contig; here it takes this,
    and one piece that. What a method takes beyond one piece is the same; by each, with other packets, or its
    proportion."""
    if f.method != "each":
        return [contig + takes - piece]
    either = (contig + takes - piece, contig * takes / piece)
    return [time * slack for time in either for slack in (1 / OTHER_EACH, OTHER_EACH)]


def better(points, measured, point, same):
    """How many times better latency and bandwidth are in the hand-in than measured again, in the round that is nearer."""
    f, one = points.get(point), "contig " + point.partition(" ")[2]
    if not f or not (same or (one in measured and one in points)):
        return []
    found = []
    for time in (lambda p50, _: p50, lambda _, bandwidth: f.layout.bytes / bandwidth):
        mine, should = time(f.p50, f.bandwidth), [[time(*row)] for row in measured[point]]
        if not same:
            contig = time(points[one].p50, points[one].bandwidth)
            pieces = [time(*row) for row in measured[one]]
            should = [elsewhere(f, contig, takes, piece) for (takes,), piece in zip(should, pieces)]
        ratios = [max(min(max(mine, min(t)), max(t)) / mine, 1e-9) for t in should]
        found.append(min(ratios, key=off))
    return found


def confirm(h, row):
    """Why the figures are not what the program takes, or nothing. row: of grade-program."""
    points, measured = said(h), row["figures"]
    if not measured or "not go on to the end" in row["why"].get("itself", ""):  # in --bench
        return "its program can't be measured: see what grade-program says of it"
    if any(f.clock != "virtual" for f in points.values()):
        h.remarks.append("the figures were measured in real time: nothing can confirm them")
        return ""
    kernel = re.search(r"\bkernel=(\S*)|$", h.from_.read("runs/machine.txt"))[1]
    same = kernel == row["kernel"]
    if not same:
        where = f"measured on Linux {printable(str(kernel), 40)}, not on {row['kernel']}"
        h.remarks.append(f"{where}: what one piece takes there is believed")
    found = {p: ratios for p in measured if (ratios := better(points, measured, p, same))}
    if not found:
        return "what its program measures is not what was handed in"
    slack = AGAIN_SLACK if same and h.lab != 7 else LOOSER
    above = LOOSER if row.get("prints") else slack

    def often(word):
        """Is half of the values odd, of a method or with a block size and length?"""
        values = [x for point in found if word in point.split(" ", 1) for x in found[point]]
        return 2 * sum(not 1 / slack < x < above for x in values) >= max(len(values), 4)

    for point in sorted(found, key=lambda point: -max(map(off, found[point]))):
        if max(map(off, found[point])) > AGAIN_MOST or any(map(often, point.split(" ", 1))):
            f, (p50, bandwidth) = points[point], measured[point][-1]
            return (
                f"{f.method}, block size {f.layout.block_size}, {f.layout.bytes} bytes: handed in "
                f"{f.p50:.1f} us and {f.bandwidth:.1f} MB/s; measured again, {p50:.1f} and {bandwidth:.1f}"
            )
    return ""
