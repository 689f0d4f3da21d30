#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Grades what make handin wrote, a class in seconds, and adds what grade-program found. Nothing of it is executed,
nor printed but what a terminal doesn't obey. Anybody who knows the suite can make the runs up: they count in the
total only beside a program that was graded. Exit status: 0, or 2 if it was called wrongly."""
import argparse
import csv
import os
import re
import sys
import tempfile
import time
from collections import Counter, namedtuple
from contextlib import suppress

import collect
import expected
import figures
import formats
import program
import reader

sys.path.append(f"{collect.ROOT}/learn")
import answers as written  # pylint: disable=wrong-import-position # of learn/: what make answers writes
from words import padded  # pylint: disable=wrong-import-position

Rubric = namedtuple("Rubric", "points sizes shares")


def read_rubric(path=f"{collect.ROOT}/teach/rubric.txt"):
    """points: of the parts of the runs; shares: of runs, program and answers in the total."""
    points, sizes, shares = {}, "", {}
    with open(path, encoding="utf-8") as file:
        lines = [line.split() for line in file if line.strip() and line[0] != "#"]
    for part, *values in lines:
        if part == "sizes":
            (sizes,) = values
        elif part == "total":
            shares = {name: int(share) for name, share in (value.split("=") for value in values)}
        elif part in reader.PARTS:
            (value,) = values
            points[part] = int(value)
        elif part not in program.PARTS.split("|"):
            raise ValueError(f"{path}: there is no part {part}")
    expected.plan(sizes, 17)  # the shortest blocks that a student has: what they do, all do
    return Rubric(points, sizes, shares)


def check(h, rubric, rows):
    """Everything that can be seen in this hand-in alone. rows: what grade-program found."""
    if h.refused:
        return
    key = (h.from_.digest(), h.student) if h.from_.program else None
    h.row = next((row for row in rows[::-1] if (row["digest"], row["student"]) == key), None)
    reader.check(h)
    figures.check(h, rubric.sizes)
    answers = h.from_.read("answers.txt")
    if not answers.strip():
        h.wrong("answers", "there are none")
    elif why := written.remark(answers):
        h.remarks.append(why)
    if why := h.row and h.row.get("own"):
        h.wrong("chosen", why)
    if h.row and h.row["figures"] is not None and (why := figures.confirm(h, h.row)):
        h.wrong("chosen", why)
        h.wrong("measured", why)
    own = expected.SAMPLES[h.lab - 1]
    for part, needed in (("chosen", own), ("measured", own), ("figures", "measured")):
        if needed in h.reasons and part not in h.reasons:
            h.wrong(part, f"it needs {needed}, which is not right")


def fingerprints(h):
    """What no other run has: addresses and keys together, if they are random; each point's figures."""
    found = {("measured", name, f.p50, f.p99, f.bandwidth) for name, f in figures.said(h).items()}
    for part in ("01_hello_write", "03_read"):
        numbers = re.findall("0x[0-9a-f]+", "\n".join(h.lines(part)))
        if len(numbers) > 1 and not numbers[0].startswith("0x5555555"):
            found.add((part, *numbers))
    return found


def compare(hs):
    """Finds what two hand-ins have in common. If one student's run doesn't fit the ID, or its figures aren't
    those of the program, the other is its owner; if both fit, somebody has edited, and who can't be seen here.
    """
    of_student, runs, common = {}, {}, Counter()
    for h in (h for h in hs if not h.refused):
        of_student.setdefault(h.student, []).append(h)
        for found in fingerprints(h):
            runs.setdefault(found, []).append(h)
    for group in of_student.values():
        group.sort(key=lambda h: (h.from_.when, h.file))
        for h, other in zip(group, group[1:] + group[:1] if group[1:] else ()):
            h.remarks.append(f"the same student's as {other.file}; the latest counts")
            h.counts = h is group[-1]
    for (part, *_), group in runs.items():
        common.update((part, a, b) for a in group for b in group if a.student != b.student)
    for (part, a, b), count in common.items():
        odd_a, odd_b = ({part, "measured"} & h.reasons.keys() for h in (a, b))
        if count >= (10 if part == "measured" else 1) and (odd_a or not odd_b):
            a.wrong("own", f"{part} is from the same run as in {b.file}")


def settle(h, rubric):
    """What each part is worth, of runs and program, and why it is worth nothing."""
    for part, most in rubric.points.items():
        why = [h.refused] if h.refused else h.reasons.get(part, [])
        if len(why) > reader.REASONS:
            why = [*why[: reader.REASONS], f"and {len(why) - reader.REASONS} more"]
        h.parts.append(reader.Part("text", part, 0 if why else most, most, "\n".join(why)))
    for part, most in h.row["of"].items() if h.row else ():
        got = h.row["points"].get(part, 0)
        why = h.row["why"].get(part) or ("" if got or most == "0" else "not graded: see builds")
        h.parts.append(reader.Part("program", part, got, int(most), why))


def points(h, group):
    """What there is, and of how much."""
    mine = [part for part in h.parts if part.group == group]
    return sum(part.got for part in mine), sum(part.most for part in mine)


def total(h, rubric, answers):
    """The runs' points count only beside a program that has shown what it can."""
    most = rubric.shares
    marks = most["answers"] * float(answers.get(h.student) or 0) / 100
    for group in ("text", "program") if h.row else ():
        got, of = points(h, group)
        marks += most[group] * got / max(of, 1)
    return round(marks, 1)


def report(h):
    """What the instructor and the student read about a hand-in."""
    lines = [f"\n#### {h.file}" + (f", student {h.student}" if h.student else "")]
    lines += [f"     {h.refused}"] if h.refused else []
    for group, part, got, most, why in h.parts if not h.refused else ():
        name = part if group == "text" else f"program: {part}"
        verdict = "OK" if not why else "FAIL" if most else "not right"
        lines.append(f"== {name} == {verdict} ({got}/{most})")
        lines += ["     " + line for line in why.splitlines()]
        if why and group == "program" and h.row["points"].get("builds"):
            again = f"SEED={h.row['seed']} ONLY={h.student}:{part} make grade-program"
            lines.append(f"     again: {again} LAB={h.row['lab']} DIR=FOLDER")
    lines += [f"     note: {remark}" for remark in h.remarks]
    lines.append("Score: %d/%d" % points(h, "text"))
    none = "none was graded, so the runs count for nothing in the total"
    own = "%g/%d, SEED=%s" % (*points(h, "program"), h.row["seed"]) if h.row else none
    return "\n".join([*lines, f"Program: {own}"])


def table(hs, rubric, roster, answers):
    """A row for each hand-in, and for each student who hasn't handed in."""
    for h in hs:
        reasons = [part.why for part in h.parts if part.group == "text" and part.why and part.most]
        reason = reasons[0] if reasons else "; ".join(h.remarks)
        when = time.localtime(h.from_.when)
        yield {
            "file": h.file,
            "student": h.student,
            "name": roster.get(h.student, ""),
            **{part.name: part.got for part in h.parts if part.group == "text"},
            "score": points(h, "text")[0],
            "program": points(h, "program")[0] if h.row else "",
            "seed": h.row["seed"] if h.row else "",
            "handed_in": time.strftime("%Y-%m-%d %H:%M:%S", when) if h.from_.when else "",
            "counts": "yes" if h.counts else "no",
            "total": total(h, rubric, answers),
            "first_reason": reason.replace("\n", " "),
        }
    for student in sorted(set(roster) - {h.student for h in hs}):
        row = {"file": "(nothing)", "student": student, "name": roster[student], "score": 0}
        yield {**row, "counts": "yes", "total": 0, "first_reason": "not handed in"}


def write_table(path, rows):
    # The mark is for spreadsheets: without it they take UTF-8 for another encoding.
    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        out = csv.DictWriter(file, rows[0], lineterminator="\n")
        out.writeheader()
        for row in rows:  # a spreadsheet must not take a text for a formula
            text = {name: str(cell) for name, cell in row.items()}
            out.writerow({n: "'" * (cell[:1] in tuple("=+-@")) + cell for n, cell in text.items()})


def list_text(path):
    """A list as spreadsheets save it: UTF-8, "Unicode text", or, in China, GBK."""
    with open(path or os.devnull, "rb") as file:
        data = file.read()
    unicode_text = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    for encoding in ["utf-16"] if unicode_text else ["utf-8-sig", "gb18030"]:
        with suppress(UnicodeDecodeError):
            return data.decode(encoding)
    raise ValueError(f"{path} is no text in UTF-8")


def listed(path):
    """Of each line of a list what stands beside the ID. A name may stand first, if it can't be an ID itself."""
    found = {}
    for line in list_text(path).splitlines():
        words = [word.strip('" ') for word in re.split("[,;\t]", line)] + [""]
        for a, b in (words[:2], words[1::-1]):
            if expected.VALID_ID.fullmatch(a):
                found[a] = reader.printable(b, 60)
                break
    return found


def graded(said, rubric):
    """The hand-ins in the folder, with their reports."""
    rows = program.known()
    with tempfile.TemporaryDirectory() as scratch:
        found = collect.collect(said.folder, "05", scratch, said.result)
        if not found:
            raise ValueError(f"{said.folder} holds nothing")
        hs = [reader.Handin(one) for one in found]
        for h in hs:
            check(h, rubric, rows)
    compare(hs)
    for h in hs:
        settle(h, rubric)
        print(text := report(h))
        if said.out and h.counts:
            name = h.student or re.sub("[^A-Za-z0-9_-]", "_", h.file)
            with open(f"{said.out}/feedback/{name}.txt", "w", encoding="utf-8") as file:
                file.write(text + "\n")
    return hs


def main():
    parser = argparse.ArgumentParser(prog="grade.py", allow_abbrev=False)
    for name, words in (
        ("out", "a folder, for grades.csv and a file for each student"),
        ("roster", "a file of IDs, one a line: who has not handed in?"),
        ("answers", "a file of ID,POINTS (of 100) that you gave"),
        ("format", f"of --result: {', '.join(formats.FORMATS)}"),
        ("result", "a file for a learning platform: all in FOLDER is one student's"),
    ):
        parser.add_argument(f"--{name}", help=words)
    parser.add_argument("folder")
    said = parser.parse_args()
    if said.result and said.format not in formats.FORMATS:
        parser.error(f"--format is none of {', '.join(formats.FORMATS)}")
    sys.stdout.reconfigure(errors="replace")  # where Chinese can't be printed
    try:
        rubric, roster, answers = read_rubric(), listed(said.roster), listed(said.answers)
        if said.out:
            os.makedirs(f"{said.out}/feedback", exist_ok=True)
        hs = graded(said, rubric)
        rows = list(table(hs, rubric, roster, answers))
        if said.out:
            write_table(f"{said.out}/grades.csv", rows)
        if said.result:
            text = formats.result(said.format, rubric.shares, hs[0])
            if said.format == "autolab":
                print(text)  # nothing comes after it
                return
            with open(said.result, "w", encoding="ascii") as file:
                file.write(text + "\n")
            return
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"\n{'file':40} {'student':20} {'score':8} {'program':8} total")
    for row in rows:
        numbers = (
            f"{row['student']:20} {row['score']:<8} {row.get('program', ''):<8} {row['total']:5}"
        )
        last = row["name"] if row["student"] else row["first_reason"]
        print(f"{padded(row['file'], 40)} {numbers}  {last}".rstrip())


if __name__ == "__main__":
    main()
