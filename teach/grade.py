#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Grades the texts that make handin wrote, a class in seconds, and adds what grade-program found. Nothing of the
files is executed, nor printed but what a terminal doesn't obey. Anybody who knows the suite can make such a text up: it
counts in the total only beside a program that was graded. Exit status: 0, or 2 if it was called wrongly."""
import argparse
import csv
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter, namedtuple

import collect
import expected
import figures
import formats
import handin  # which finds learn/, too
import program
from words import padded

PROGRAM_PARTS = (
    "builds",
    "sgl",
    "copy",
    "each",
    "itself",
    "verifies",
    "careful",
)  # grade-program's
LINE = re.compile(
    r"BENCH method=(\w+) block_size=(\d+) .* lat_p50_us=(\S+) lat_p99_us=(\S+) bw_MBps=(\S+)"
)
Rubric = namedtuple("Rubric", "points needs sizes total shares")  # the first two: by part


def read_rubric(path):
    points, needs, sizes, shares = {}, {}, "", {"text": 30, "program": 40, "answers": 30}
    with open(path, encoding="utf-8") as file:
        for line in file:
            part, value, needed = (*line.split(), "", "", "")[:3]
            needed = needed[6:] if needed.startswith("needs=") else ""
            sizes = value if part == "sizes" else sizes
            if part == "total":
                shares = {
                    name: int(share) for name, share in re.findall(r"(\w+)=(\d{1,3})\b", line)
                }
            if part in ("", "sizes", "total", *PROGRAM_PARTS) or part[0] == "#":
                continue
            if (
                part not in handin.PARTS
                or needed not in ("", "lab", *handin.PARTS)
                or part in points
                or not re.fullmatch("[0-9]{1,4}", value)
            ):
                raise ValueError(f"{path}: no part and points, or it is there twice: {line}")
            points[part], needs[part] = int(value), needed
    expected.plan(sizes, 17)  # the shortest blocks that a student has: what they do, all do
    return Rubric(points, needs, sizes, sum(points.values()), shares)


def check(h, rubric, reference, rows, programs):
    """Everything that can be seen in this submission alone. rows: what grade-program found; programs: each
    student's last submission with a program, which counts also with a later text."""
    source = h.from_ if h.from_.program else programs.get(h.from_.student or None)
    digest = source and source.digest()
    h.row = next(
        (
            row
            for row in reversed(rows)
            if digest and (row["digest"], row["student"]) == (digest, h.from_.student)
        ),
        None,
    )
    if h.row and source is not h.from_:
        h.remarks.append(
            f"it came without a program; that of {handin.printable(source.name, 200)} counts"
        )
    try:
        handin.check(h)
        figures.check(h, rubric.sizes, reference)
        if h.row and h.row.get("own"):
            h.wrong("chosen", h.row["own"])
        if h.row and h.row["figures"] is not None and (why := figures.confirm(h, h.row)):
            for part in ("chosen", "measured"):
                h.wrong(part, why)
    except handin.Refused as reason:
        h.refused = str(reason)


def fingerprints(h, part):
    """What no other run has: a transcript's addresses and keys together, if they are random; or each line of figures."""
    first, end = h.sections.get(part, (0, 0))
    lines = h.lines[first : end or first]
    if part == "measured":
        return {found.groups() for found in map(LINE.match, lines) if found}
    found = re.findall("0x[0-9a-f]+", "\n".join(lines))
    return {tuple(found)} if len(found) > 1 and "0x5555555" not in "".join(lines) else set()


def compare(hs):
    """Finds what two files have in common. If one student's transcript doesn't fit the ID, or its figures aren't
    those of the program, the other is its owner; if both fit, somebody has edited, and who can't be seen here.
    """

    def odd(h, part):
        return part in h.reasons or "measured" in h.reasons

    files, runs = {}, {}
    for h in (h for h in hs if not h.refused):
        files.setdefault(h.student, []).append(h)
        for part in ("01_hello_write", "03_read", "measured"):
            for found in fingerprints(h, part):
                runs.setdefault((part, found), []).append(h)
    for group in files.values():
        group.sort(key=lambda h: (h.from_.when, h.file))
        for a, b in zip(group, group[1:] + group[:1] if group[1:] else ()):
            a.remarks.append(f"the same student's as {b.file}; the latest counts")
            a.counts = a is group[-1]
    common = Counter(
        (part, a, b)
        for (part, _), group in runs.items()
        for a in group
        for b in group
        if a.student != b.student
    )
    for (part, a, b), count in common.items():
        if count >= (10 if part == "measured" else 1) and (odd(a, part) or not odd(b, part)):
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
            why = [*why[: handin.REASONS], f"and {len(why) - handin.REASONS} more"]
        h.why[part], h.points[part] = why, 0 if why else most


def total(h, rubric, answers):
    """The text's points count only beside a program that has shown what it can."""
    shares, row = rubric.shares, h.row
    text = sum(h.points.values()) / max(rubric.total, 1) if row else 0
    most = sum(map(int, row["of"].values())) if row else 1
    return round(
        shares["text"] * text
        + shares["program"] * (row["score"] / max(most, 1) if row else 0)
        + shares["answers"] * float(answers.get(h.student) or 0) / 100,
        1,
    )


def report(h, rubric):
    """What the instructor and the student read about a submission."""
    lines = [
        f"\n#### {h.file}" + (f", student {h.student}" if h.student else ""),
        *[f"     {h.refused}"] * bool(h.refused),
    ]
    for part, most in rubric.points.items() if not h.refused else ():
        verdict = "OK" if not h.why[part] else "FAIL" if most else "not right"
        lines.append(f"== {part} == {verdict} ({h.points[part]}/{most})")
        lines += [f"     {reason}" for reason in h.why[part]]
    lines += [f"     note: {remark}" for remark in h.remarks]
    lines.append(f"Score: {sum(h.points.values())}/{rubric.total}")
    for part, most in h.row["of"].items() if h.row else ():
        why = h.row["why"].get(part) or (
            "" if h.row["points"].get(part) or most == "0" else "not graded"
        )
        lines.append(
            f"== program: {part} == {'FAIL' if why else 'OK'} ({h.row['points'].get(part, 0)}/{most})"
        )
        lines += ["     " + line for line in why.splitlines()]
        if why and h.row["points"].get("builds"):
            lines.append(
                f"     again: SEED={h.row['seed']} ONLY={h.row['student']}:{part} make grade-program LAB={h.row['lab']} DIR=FOLDER"
            )
    lines.append(
        f"Program: {h.row['score']}/{sum(map(int, h.row['of'].values()))}, SEED={h.row['seed']}"
        if h.row
        else "Program: none was graded, so the text counts for nothing in the total"
    )
    return "\n".join(lines)


def table(hs, rubric, roster, answers):
    """A row for each submission, and for each student who hasn't handed in."""
    for h in hs:
        reasons = [h.why[part][0] for part in h.why if h.why[part] and rubric.points[part]]
        when = (
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(h.from_.when)) if h.from_.when else ""
        )
        yield {
            "file": h.file,
            "student": h.student,
            "name": roster.get(h.student, ""),
            **h.points,
            "score": sum(h.points.values()),
            "of": rubric.total,
            "program": h.row["score"] if h.row else "",
            "seed": h.row["seed"] if h.row else "",
            "handed_in": when,
            "counts": "yes" if h.counts else "no",
            "total": total(h, rubric, answers),
            "first_reason": (reasons or ["; ".join(h.remarks)])[0].replace("\n", " "),
        }
    for student in sorted(set(roster) - {h.student for h in hs}):
        yield {
            "file": "",
            "student": student,
            "name": roster[student],
            "score": 0,
            "of": rubric.total,
            "counts": "yes",
            "total": 0,
            "first_reason": "nothing was handed in",
        }


def write_tables(path, rows):
    # The mark is for spreadsheets: without it they take UTF-8 for another encoding.
    encoding = "ascii" if repr(rows).isascii() else "utf-8-sig"
    with open(path, "w", encoding=encoding, newline="") as file:
        out = csv.DictWriter(file, rows[0], lineterminator="\n")
        out.writeheader()
        for row in rows:  # a spreadsheet must not take a text for a formula
            out.writerow(
                {
                    name: "'" * (str(cell)[:1] in tuple("=+-@")) + str(cell)
                    for name, cell in row.items()
                }
            )
    with open(os.path.splitext(path)[0] + ".json", "w", encoding="ascii") as file:
        json.dump(rows, file, indent=1)


def listed(path):
    """Of each line of a list what stands beside the ID. A name may stand first, if it can't be an ID itself."""
    found = {}
    for line in handin.answers.decoded(collect.begins(path, 1 << 24)).splitlines() if path else ():
        words = [word.strip('"') for word in re.split(r"[,;\s\uff0c\uff1b\u3000]+", line.strip())]
        at = next(
            (n for n, word in enumerate(words[:2]) if expected.VALID_ID.fullmatch(word)), None
        )
        if at is None and (wide := next(filter(None, map(handin.wide_id, words)), "")):
            raise ValueError(f"{path}: {handin.printable(line, 60)}: {wide}")
        if at is not None:
            found[words[at]] = next(
                (handin.printable(word, 60) for word in words[1 - at : 2 - at]), ""
            )
    return found


def main():
    parser = argparse.ArgumentParser(prog="grade.py", allow_abbrev=False)
    parser.add_argument("--student", metavar="ID", help="print this ID's layout and seed, no more")
    parser.add_argument("--rubric", metavar="FILE", default="grading/rubric.txt")
    parser.add_argument("--reference", metavar="FILE", default="grading/reference.txt")
    parser.add_argument("--csv", metavar="FILE", help="a table; beside it the same as .json")
    parser.add_argument("--feedback", metavar="FOLDER", help="a file there for each student")
    parser.add_argument(
        "--programs", metavar="FILE", default=program.RESULTS, help="of grade-program"
    )
    parser.add_argument("--roster", metavar="FILE", help="IDs, one a line: who has not handed in?")
    parser.add_argument("--answers", metavar="FILE", help="ID,POINTS (of 100) that you gave")
    parser.add_argument("--format", choices=formats.FORMATS, help="of one student's result")
    parser.add_argument(
        "--result", metavar="FILE", help="of text and program, all in FOLDER being one student's"
    )
    parser.add_argument("folder", metavar="FOLDER", nargs="?")
    said = parser.parse_args()
    sys.stdout.reconfigure(errors="replace")  # where Chinese can't be printed
    try:
        if expected.VALID_ID.fullmatch(said.student or ""):
            layout, seed, _ = expected.of_student(said.student)
            print("LAYOUT", *(f"{k}={v}" for k, v in layout._asdict().items()), f"seed={seed}")
            return
        if said.student is not None or said.folder is None:
            parser.exit(
                2,
                (
                    handin.wide_id(said.student or "")
                    or "which student? ID: up to 32 ASCII letters, digits, - and _"
                )
                + "\n",
            )
        rubric, reference = read_rubric(said.rubric), figures.read_reference(said.reference)
        for path in filter(None, (said.roster, said.answers)):
            open(path, "rb").close()  # or it is said why not
        roster, answers = listed(said.roster), listed(said.answers)
        with tempfile.TemporaryDirectory() as scratch:
            hs = [
                handin.Handin(one)
                for one in collect.collect(said.folder, "05", scratch, said.result)
            ]
            if not hs or (said.format and len(hs) > 1):
                raise ValueError(f"{said.folder} holds {len(hs)} submissions")
            programs = {
                h.from_.student: h.from_
                for h in sorted(hs, key=lambda h: h.from_.when)
                if h.from_.program
            }
            for h in hs:
                check(h, rubric, reference, program.known(said.programs), programs)
        compare(hs)
        for h in hs:
            settle(h, rubric)
            print(report(h, rubric))
            if said.feedback and h.counts:
                os.makedirs(said.feedback, exist_ok=True)
                name = h.student or re.sub("[^A-Za-z0-9_-]", "_", h.file)
                with open(f"{said.feedback}/{name}.txt", "w", encoding="utf-8") as file:
                    file.write(report(h, rubric) + "\n")
        rows = list(table(hs, rubric, roster, answers))
        if said.csv:
            write_tables(said.csv, rows)
        if said.format:
            text = formats.result(said.format, formats.tests_of(hs[0], rubric, said.result), hs[0])
            if said.format == "autolab":
                print(text)  # nothing comes after it
            else:
                with open(said.result or "results/results.json", "w", encoding="ascii") as file:
                    file.write(text + "\n")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if not said.format:
        print(f"\n{'file':40} {'student':20} {'score':8} {'program':8} total")
        for row, h in zip(rows, hs):
            print(
                f"{padded(h.file, 40)} {h.student:20} {row['score']:3}/{rubric.total:<4} {str(row['program']):8} {row['total']:5}  "
                f"{h.refused[:60]}".rstrip()
            )
        for row in rows[len(hs) :]:
            print(f"{'(nothing)':40} {row['student']:20} {row['name']}".rstrip())


if __name__ == "__main__":
    main()
