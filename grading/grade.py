#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Grades the files that make handin wrote, a folder of them in seconds.

What a run must have printed is computed anew from the student's ID. Nothing of the files is
executed, nor printed but printable ASCII. Exit status: 0, or 2 if it was called wrongly."""
import argparse
import csv
import json
import os
import re
from collections import namedtuple

import expected
import figures
import handin

PROGRAM_PARTS = ("builds", "sgl", "copy", "each", "itself", "verifies", "careful")  # grade-program's
Rubric = namedtuple("Rubric", "points needs sizes total")  # the first two: by part


def read_rubric(path):
    points, needs, sizes = {}, {}, ""
    with open(path, encoding="utf-8") as file:
        for line in file:
            part, value, needed = (*line.split(), "", "", "")[:3]
            needed = needed[6:] if needed.startswith("needs=") else ""
            sizes = value if part == "sizes" else sizes
            if part in ("", "sizes", *PROGRAM_PARTS) or part[0] == "#":
                continue
            if (part not in handin.PARTS or needed not in ("", "lab", *handin.PARTS)
                    or part in points or not re.fullmatch("[0-9]{1,4}", value)):
                raise ValueError(f"{path}: no part and points, or it is there twice: {line}")
            points[part], needs[part] = int(value), needed
    expected.plan(sizes, 17)  # the shortest blocks that a student has: what they do, all do
    return Rubric(points, needs, sizes, sum(points.values()))


def check(h, folder, rubric, reference):
    """Everything that can be seen in this file alone."""
    try:
        handin.check(h, folder)
        figures.check(h, rubric.sizes, reference)
    except handin.Refused as reason:
        h.refused = str(reason)


def fingerprint(h, part):
    """A run's addresses and keys, or its figures: no two runs have all of them in common. None
    if there is nothing to tell by: some machines don't randomise addresses."""
    first, end = h.sections.get(part, (0, 0))
    text = "\n".join(h.lines[first:end or first])
    found = re.findall("(?:0x|lat_p50_us=|lat_p99_us=|bw_MBps=)[0-9a-f.]+", text)
    return tuple(found) if len(found) > 1 and "0x5555555" not in text else None


def compare(hs):
    """Finds what two files have in common. If one student's transcript doesn't fit the ID, the
    other is its owner; if both fit, somebody has edited, and who can't be seen here."""
    files, runs = {}, {}
    for h in (h for h in hs if not h.refused):
        files.setdefault(h.student, []).append(h)
        for part in ("01_hello_write", "03_read", "measured"):
            runs.setdefault((part, fingerprint(h, part)), []).append(h)
    for group in files.values():
        for a, b in zip(group, group[1:] + group[:1] if group[1:] else ()):
            a.remarks.append(f"the same student's as {b.file}")
    for (part, found), group in runs.items():
        for a, b in ((a, b) for a in group for b in group if found and a.student != b.student):
            if part in a.reasons or part not in b.reasons:
                a.wrong("own", f"{part} is from the same run as in {b.file}")


def settle(h, rubric):
    """What each part is worth, and why it is worth nothing."""
    for part, most in rubric.points.items():
        chain = [part]  # what this one hangs on
        while (needs := rubric.needs.get(chain[-1])) and len(chain) < len(handin.PARTS):
            chain.append(expected.SAMPLES[h.lab - 1] if needs == "lab" else needs)
        why = [h.refused] if h.refused else h.reasons.get(part, [])
        if not why and any(link in h.reasons for link in chain):
            why = [f"it needs {chain[1]}, which is not right"]
        if len(why) > handin.REASONS:
            why = [*why[:handin.REASONS], f"and {len(why) - handin.REASONS} more"]
        h.why[part], h.points[part] = why, 0 if why else most


def report(h, rubric):
    """What the instructor reads about a file."""
    lines = [f"\n#### {h.file}" + (f", student {h.student}" if h.student else "")]
    lines += [f"     {h.refused}"] if h.refused else []
    for part, most in rubric.points.items() if not h.refused else ():
        verdict = "OK" if not h.why[part] else "FAIL" if most else "not right"
        lines.append(f"== {part} == {verdict} ({h.points[part]}/{most})")
        lines += [f"     {reason}" for reason in h.why[part]]
    lines += [f"     note: {remark}" for remark in h.remarks]
    return "\n".join([*lines, f"Score: {sum(h.points.values())}/{rubric.total}"])


def write_csv(path, hs, rubric):
    with open(path, "w", encoding="ascii", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["file", "student", *rubric.points, "score", "of", "first_reason"])
        for h in hs:
            reasons = [h.why[part][0] for part in h.why if h.why[part] and rubric.points[part]]
            row = [h.file, h.student, *h.points.values(), sum(h.points.values()), rubric.total,
                   (reasons or ["; ".join(h.remarks)])[0].replace("\n", " ")]
            # A spreadsheet must not take a text for a formula.
            out.writerow(["'" * (str(cell)[:1] in tuple("=+-@")) + str(cell) for cell in row])


def main():
    parser = argparse.ArgumentParser(prog="grade.py", allow_abbrev=False)
    parser.add_argument("--student", metavar="ID", help="print this ID's layout and seed, no more")
    parser.add_argument("--rubric", metavar="FILE", default="grading/rubric.txt")
    parser.add_argument("--reference", metavar="FILE", default="grading/reference.txt")
    parser.add_argument("--csv", metavar="FILE")
    parser.add_argument("--format", choices=("autolab", "gradescope"))
    parser.add_argument("folder", metavar="FOLDER", nargs="?")
    said = parser.parse_args()
    try:
        if expected.VALID_ID.fullmatch(said.student or ""):
            layout, seed, _ = expected.of_student(said.student)
            print("LAYOUT", *(f"{k}={v}" for k, v in layout._asdict().items()), f"seed={seed}")
            return
        if said.student is not None or said.folder is None:
            raise ValueError("which folder, or which student?")
        rubric, reference = read_rubric(said.rubric), figures.read_reference(said.reference)
        folder = os.open(said.folder, os.O_RDONLY | os.O_DIRECTORY)
        hs = [handin.Handin(name) for name in sorted(os.listdir(folder)) if name[0] != "."]
        if not hs or (said.format and len(hs) > 1):
            raise ValueError(f"{said.folder} holds {len(hs)} files")
        for h in hs:
            check(h, folder, rubric, reference)
        compare(hs)
        for h in hs:
            settle(h, rubric)
            print(report(h, rubric))
        if said.csv:
            write_csv(said.csv, hs, rubric)
        if said.format == "gradescope":
            tests = [{"name": part, "score": got, "max_score": rubric.points[part],
                      "output": "\n".join(hs[0].why[part])} for part, got in hs[0].points.items()]
            with open("results/results.json", "w", encoding="ascii") as file:
                json.dump({"tests": tests}, file)
        elif said.format == "autolab":
            print(json.dumps({"scores": hs[0].points}))  # the last line of the output
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if not said.format:
        print(f"\n{'file':40} {'student':20} score")
        for h in hs:
            score = f"{sum(h.points.values()):3}/{rubric.total}"
            print(f"{h.file:40} {h.student:20} {score}  {h.refused[:60]}".rstrip())


if __name__ == "__main__":
    main()
