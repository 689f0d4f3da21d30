# SPDX-License-Identifier: BSD-2-Clause
"""Are the figures that were measured possible? Never how fast anything is: in virtual time the
methods stand in the same proportions everywhere, and the reference holds them."""
import re
from collections import namedtuple

import expected
from handin import fields, printable, whole_number

# How far figures in virtual time may lie from what they should be. They repeat within 1 %. Between kernels
# the software NIC's packets differ by a factor of two, and what a method takes beyond one piece hardly.
# Who invents a speed-up is further off. Real time, where others' work disturbs, gets wide bounds.
RATIO_SLACK = (
    1.25  # a method to contig, against the reference; the same bytes in one piece, over the sweep
)
SIZES_SLACK = 1.6  # the same at message sizes between its points
GROWTH_SLACK = 1.6  # time in proportion to bytes
LONG = 12000  # bytes; in shorter messages the fixed cost of a message counts for more
FASTEST_LIST = {"virtual": 0.9, "real": 0.3}  # a list's time, to the contiguous message's
# The same program measured again: more than half of the values of a method, or with a layout, lie within the first, each
# within the third. (Of 700 none was off by 1.06.) Looser for a program that prints while it moves messages, which costs
# time here alone; for 07, whose latencies vary by 5 %; and for another kernel, there also by each.
AGAIN_SLACK, LOOSER, AGAIN_MOST, OTHER_EACH = 1.03, 1.06, 1.15, 1.2

Bench = namedtuple("Bench", "line layout method clock depth p50 p99 bandwidth")


def bench(i, line):
    """What a BENCH line says, None for what is missing or can't be; None if it is no such line."""
    found = fields(line, "BENCH")
    if not found:
        return None
    layout = expected.Layout(*(whole_number(found, name) for name in expected.Layout._fields))
    texts = [found.get(name) or "" for name in ("lat_p50_us", "lat_p99_us", "bw_MBps")]
    return Bench(
        i,
        layout,
        found.get("method"),
        found.get("clock"),
        whole_number(found, "depth"),
        *(
            float(text) or None if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{0,9})?", text) else None
            for text in texts
        ),
    )


def read_reference(path):
    """The BENCH lines of three right runs, each behind a line that names its sample. Returns, by lab and method,
    how long that takes in proportion to contig, at the block sizes swept; and, "us", how long contig takes.
    """
    lab, p50 = 0, {}
    with open(path, encoding="utf-8") as file:
        for i, line in enumerate(file):
            if line.strip() in expected.SAMPLES:
                lab = expected.SAMPLES.index(line.strip()) + 1
            f = bench(i, line)
            if f and f.layout.bytes == expected.SWEEP_BYTES:
                p50[lab, f.method, f.layout.block_size] = f.p50
    try:
        return {
            (lab, method): [
                p50[lab, method, size] / p50[lab, "contig", size] for size in expected.SWEEP
            ]
            for lab in (5, 6, 7)
            for method in expected.METHODS
        } | {(lab, "us"): p50[lab, "contig", expected.SWEEP[-1]] for lab in (5, 6, 7)}
    except (KeyError, TypeError) as missing:
        raise ValueError(f"{path}: no figures of lab, method, block size {missing}") from missing


def ratio_at(ratios, block_size):
    """Of the reference at any block size: between its points on straight lines."""
    i = max(0, min(block_size.bit_length() - 7, len(ratios) - 2))
    size = expected.SWEEP[i]
    return ratios[i] + (ratios[i + 1] - ratios[i]) * max(0, block_size - size) / size


def read_bench(h, points):
    """The figures by point and method; of two points with the same layout, of the first that has none yet."""
    measured, wanted = {}, {}
    for number, layout in enumerate(points):
        for method in expected.METHODS:
            wanted.setdefault((layout, method), []).append(number)
    said = set()
    for f in filter(None, (bench(i, h.lines[i]) for i in range(*h.sections["measured"]))):
        places = wanted.get((f.layout, f.method))
        if (
            not places and h.lines[f.line] in said and h.lines[f.line] != h.lines[f.line - 1]
        ):  # copied in pieces that overlap
            continue
        said.add(h.lines[f.line])
        if not places:
            h.wrong("measured", "nobody asked for this point", f.line)
            continue
        if None in f or f.clock not in FASTEST_LIST or not 1 <= f.depth <= 64:
            h.wrong("measured", "a figure is missing, or isn't one", f.line)
        measured[places.pop(0), f.method] = f
    for (layout, method), places in wanted.items():
        if places:
            h.wrong(
                "measured",
                f"no BENCH line of {method}, block size {layout.block_size}, {layout.bytes} bytes",
                h.sections["measured"][0] - 1,
            )
    return measured


def check_method(h, swept, should, contig, f):
    """Of one method at one point; should: how many times as long as contig it takes, at least and at most."""
    virtual, ratio = f.clock == "virtual", f.p50 / contig.p50
    # A message a latency goes through with one in flight. With more they overlap, by no more than
    # as many as there are; in virtual time hardly, as one CPU does it all. MB/s: bytes a us.
    overlap = f.bandwidth * f.p50 / f.layout.bytes
    least, most = (0.6, 1.6 if f.layout.bytes >= LONG else 4) if virtual else (0.1, 2 * f.depth)
    # Short messages, and blocks below the sweep, have no reference.
    compared = virtual and (swept or (f.layout.block_num >= 32 and f.layout.block_size >= 64))
    slack = RATIO_SLACK if swept else SIZES_SLACK
    for bad, words in (
        (f.clock != contig.clock, "another clock than the other methods'"),
        (f.p50 > f.p99, "the median is above the 99th percentile"),
        (
            not least <= overlap <= most,
            f"latency and bandwidth don't agree: {overlap:.2f} messages in flight",
        ),
        (
            ratio < FASTEST_LIST[f.clock],
            f"faster than the same bytes in one piece, {ratio:.2f} of its time",
        ),
        (
            compared and not should[0] / slack <= ratio <= should[1] * slack,
            f"{ratio:.2f} times as long as in one piece; this should be about {should[0]:.2f}, at most {should[1]:.2f}",
        ),
    ):
        if bad:
            h.wrong("figures", words, f.line)


def check(h, sizes, reference):
    """The measurement in h: is all of it there, and if so, is it possible?"""
    if h.sections.get("measured", [0, None])[1] is None:
        return
    points = expected.plan(sizes, expected.of_student(h.student).layout.block_size)
    measured, by_size = read_bench(h, points), len(points) - len(expected.SWEEP)
    for number, layout in enumerate(points if "measured" not in h.reasons else ()):
        contig, swept = measured[number, "contig"], number >= by_size
        for method in expected.METHODS:
            ratio = ratio_at(reference[h.lab, method], layout.block_size)
            faster = min(
                max(reference[h.lab, "us"] / measured[len(points) - 1, "contig"].p50, 0.25), 4
            )
            check_method(
                h,
                swept,
                sorted((ratio, 1 + (ratio - 1) * faster)),
                contig,
                measured[number, method],
            )
        if number == 0 or contig.clock != "virtual" or layout.bytes < LONG:
            continue
        other, slack = (by_size, RATIO_SLACK) if swept else (number - 1, GROWTH_SLACK)
        if not swept and all(
            measured[number, m].bandwidth == measured[other, m].bandwidth for m in expected.METHODS
        ):
            h.wrong(
                "figures",
                f"by every method the same MB/s as with {points[other].bytes} bytes",
                contig.line,
            )
        # Bytes take their time: the same everywhere in the sweep over block sizes.
        grown = contig.p50 / measured[other, "contig"].p50
        times = layout.bytes / points[other].bytes
        if points[other].bytes >= LONG and not times / slack <= grown <= times * slack:
            h.wrong(
                "figures",
                f"{times:.1f} times the bytes of block size "
                f"{points[other].block_size} took {grown:.2f} times as long",
                contig.line,
            )


def better(said, measured, point, same):
    """How many times better the text's latency and bandwidth are than those measured again, in the round that is nearer.
    On another kernel what a method takes beyond one piece is the same; by each, with other packets, or its proportion.
    """
    f, contig = said.get(point), "contig " + point.partition(" ")[2]
    if (
        not f
        or not f.bandwidth
        or not same
        and not (contig in measured and contig in said and said[contig].bandwidth)
    ):
        return []
    found = []
    for time in (
        lambda p50, _: p50,
        lambda _, bandwidth: f.layout.bytes / bandwidth,
    ):  # of a message, alone and among others
        mine, should = time(f.p50, f.bandwidth), [(time(*figures),) for figures in measured[point]]
        if not same:
            piece = time(said[contig].p50, said[contig].bandwidth)
            should = [
                [piece + takes - one]
                if f.method != "each"
                else [
                    other * slack
                    for other in (piece + takes - one, piece * takes / one)
                    for slack in (1 / OTHER_EACH, OTHER_EACH)
                ]
                for (takes,), one in zip(should, (time(*figures) for figures in measured[contig]))
            ]
        ratios = [max(min(max(mine, min(times)), max(times)) / mine, 1e-9) for times in should]
        found.append(min(ratios, key=lambda x: max(x, 1 / x)))
    return found


def confirm(h, row):
    """Is what the text says what the program takes? row: of grade-program, which has measured some of it
    again. In virtual time on the same kernel these must be the same; on another, see better."""
    first, end = h.sections.get("measured", [0, None])
    said = {
        f"{f.method} {f.layout.block_size} {f.layout.bytes}": f
        for f in (bench(i, h.lines[i]) for i in range(first, end or first))
        if f and f.p50
    }
    kernel = next(
        (fields(line, "ENV").get("kernel") for line in h.lines if line.startswith("ENV ")), None
    )
    if not row["figures"] or "not go on to the end" in row["why"].get("itself", ""):  # in --bench
        return "its program can't be measured: see what grade-program says of it"
    if any(f.clock != "virtual" for f in said.values()):
        h.remarks.append("the figures were measured in real time: nothing can confirm them")
        return ""
    same = kernel == row["kernel"]
    h.remarks += [
        f"measured on Linux {printable(str(kernel), 40)}, not on {row['kernel']}: what one piece takes there is believed"
    ] * (not same)
    ratios = {point: better(said, row["figures"], point, same) for point in row["figures"]}
    if not any(ratios.values()):
        return "what its program measures is not what the text has"
    slack = AGAIN_SLACK if same and h.lab != 7 else LOOSER

    def often(word):
        """Is half of the values odd, of a method or with a block size and length?"""
        values = [x for point in ratios if word in point.split(" ", 1) for x in ratios[point]]
        return 2 * sum(
            not 1 / slack < x < (LOOSER if row.get("prints") else slack) for x in values
        ) >= max(len(values), 4)

    for point in sorted(
        filter(ratios.get, ratios), key=lambda point: -max(max(x, 1 / x) for x in ratios[point])
    ):
        method, _, layout = point.partition(" ")
        if often(method) or often(layout) or max(max(x, 1 / x) for x in ratios[point]) > AGAIN_MOST:
            f, (p50, bandwidth) = said[point], row["figures"][point][-1]
            return (
                f"{method}, block size {f.layout.block_size}, {f.layout.bytes} bytes: the text says {f.p50:.1f} us "
                f"and {f.bandwidth:.1f} MB/s; measured again, {p50:.1f} and {bandwidth:.1f}"
            )
    return ""
