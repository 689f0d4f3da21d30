#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What the figures of 05 to 07 mean: a table, and the model beside the measurement.

    model.py FILE.csv [PLOT.csv]

FILE.csv is what --bench --csv wrote. With one message in flight the model is

    T_copy = T_pack + T_contig          T_sgl = T_contig + extra * c

extra counts the list elements (SGEs) that are not the first one in their packet, and c is
what each of them costs: the least-squares fit over the block sizes. PLOT.csv gets the
figures with two columns more, the speed-up of sgl over copy as measured and as predicted.
"""
import csv
import sys

REPEATS = 0.01  # figures of virtual time repeat within this part: what differs by less is equal


def read(path):
    """The points in their order, each {method: row}, numbers as float."""
    points = []
    with open(path, encoding="ascii") as file:
        for row in csv.DictReader(file):
            for name, text in row.items():
                if text.replace(".", "", 1).isdigit():
                    row[name] = float(text)
            if row["method"] == "sgl":
                points.append({})
            points[-1][row["method"]] = row
    if not points:
        sys.exit(f"model.py: {path} has no measurements: has the run ended?")
    return points


def on_the_wire(row):
    """Packets of a message sent as lists of max_sge blocks, and its extra elements."""
    size, mtu, packets, extra = int(row["block_size"]), int(row["mtu"]), 0, 0
    left = int(row["block_num"])
    while left:
        blocks = min(left, int(row["max_sge"]))
        left -= blocks
        for at in range(0, blocks * size, mtu):
            last = min(at + mtu, blocks * size) - 1
            packets += 1
            extra += last // size - at // size
    return packets, extra


def contiguous_part(point):
    """The contiguous message's time, if it had as many packets as the lists have."""
    row = point["contig"]
    return row["lat_p50_us"] * on_the_wire(row)[0] / -(-row["bytes"] // row["mtu"])


def crossover(points, speedup):
    """The two block sizes, as text, between which the speed-up last passes 1: copying is faster at the first, and not
    at the second. none, if there are no such two."""
    found = "none"
    for i in range(1, len(points)):
        if speedup[i - 1] < 1 - REPEATS <= speedup[i]:
            found = "..".join(f"{p['sgl']['block_size']:.0f}" for p in points[i - 1 : i + 1])
    return found


def mark(figure, other):
    """= behind a figure that does not differ from the other one by more than figures repeat."""
    return "=" if abs(figure / other - 1) <= REPEATS else " "


def main(path, plot=None):
    points = read(path)
    by_block = [i for i, p in enumerate(points) if p["sgl"]["sweep"] == "block"]
    products = squares = 0
    for i in by_block:
        extra = on_the_wire(points[i]["sgl"])[1]
        products += extra * (points[i]["sgl"]["lat_p50_us"] - contiguous_part(points[i]))
        squares += extra * extra
    element = products / squares if squares else 0
    measured = [p["copy"]["lat_p50_us"] / p["sgl"]["lat_p50_us"] for p in points]
    predicted = [
        (p["contig"]["lat_p50_us"] + p["copy"]["copy_us"])
        / (contiguous_part(p) + on_the_wire(p["sgl"])[1] * element)
        for p in points
    ]

    row = points[0]["sgl"]
    print(
        f"\n{row['sample']}, {row['clock']} time, path MTU {row['mtu']:.0f}, {row['depth']:.0f} "
        "in flight for MB/s, one for the speed-up; medians\n"
    )
    print(
        f"{'block':>8}{'blocks':>8}{'bytes':>9} |{'sgl':>8} {'copy':>8} {'each':>8} {'auto':>8} "
        f"{'contig':>8} |{'copying':>9} |{'copy/sgl':>9} {'model':>8}"
    )
    for i, point in enumerate(points):
        if i and i == by_block[0]:
            print()
        row = point["sgl"]
        print(
            f"{row['block_size']:8.0f}{row['block_num']:8.0f}{row['bytes']:9.0f} |"
            + "".join(
                f"{point[m]['bw_MBps']:8.2f}{mark(point[m]['bw_MBps'], point['contig']['bw_MBps'])}"
                for m in point
                if m != "contig"
            )
            + f"{point['contig']['bw_MBps']:8.2f} |{row['bytes'] / row['copy_us']:9.0f} |"
            + f"{measured[i]:9.3f}{mark(measured[i], 1)}{predicted[i]:8.3f}"
        )
    disturbed = sum(any(row["repeats"] for row in point.values()) for point in points)
    if disturbed:
        print(
            f"\nWhile {disturbed} of these lines were measured, packets were sent again (repeats=)."
        )
    print(
        f"\n= behind a figure: within {REPEATS:.0%} of contig's (behind copy/sgl: of 1). In virtual time figures\n"
        "repeat within that, so one such difference, up or down, says nothing (the same at many sizes\n"
        "does); in real time they repeat worse.\n"
        "An SGE that is not the first one in its packet costs element_us. The crossover lies between two block\n"
        "sizes that were measured: copying is faster at the first, zero-copy at least as fast from the second\n"
        "on (none: at all sizes, or at no size)."
    )
    print(
        f"MODEL element_us={element:.3f} "
        f"crossover_measured={crossover([points[i] for i in by_block], [measured[i] for i in by_block])} "
        f"crossover_predicted={crossover([points[i] for i in by_block], [predicted[i] for i in by_block])}"
    )

    if plot:
        with open(plot, "w", encoding="ascii", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow([*points[0]["sgl"], "measured_speedup", "predicted_speedup"])
            for i, point in enumerate(points):
                for row in point.values():
                    out.writerow([*row.values(), f"{measured[i]:.4f}", f"{predicted[i]:.4f}"])


if __name__ == "__main__":
    main(*sys.argv[1:])
