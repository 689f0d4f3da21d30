#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Grades what make handin wrote, a class in seconds, and adds what grade-program found. Nothing of it is executed,
nor printed but what a terminal doesn't obey. Exit status: 0, or 2 if it was called wrongly."""
import argparse
import csv
import os
import re
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from contextlib import suppress

import collect
import expected
import figures
import formats
import reader
from rubric import Part, known, read_rubric

sys.path.append(f"{expected.ROOT}/learn")
import answers as written  # pylint: disable=wrong-import-position # of learn/: what make answers writes


def check(h, rubric, rows):
    """Everything that can be seen in this hand-in alone. rows: what grade-program found."""
    if h.refused:
        return
    key = (h.digest(), h.student)
    h.row = next((row for row in rows[::-1] if (row["digest"], row["student"]) == key), None)
    reader.check(h)
    figures.check(h, rubric.sizes)
    if why := written.remark(h.read("answers.txt")):
        h.note(why)
    if why := h.row and h.row["own"]:
        h.wrong("chosen", why)
    if why := h.row and h.figures and figures.confirm(h, h.row):
        h.wrong("chosen", why)
        h.wrong("measured", why)
    for part, needed in (("chosen", h.sample), ("measured", h.sample), ("figures", "measured")):
        if needed in h.reasons and part not in h.reasons:
            h.wrong(part, f"it needs {needed}, which is not right")


def fingerprints(h):
    """What no other run has: addresses and keys together, if they are random; each point's figures."""
    for point, f in h.figures.items():
        yield ("measured", point, f.p50, f.p99, f.bandwidth)
    for part in ("01_hello_write", "03_read"):
        numbers = re.findall("0x[0-9a-f]+", "\n".join(h.lines(part)))
        if len(numbers) > 1 and not numbers[0].startswith("0x5555555"):
            yield (part, *numbers)


def compare(hs):
    """Finds what two hand-ins have in common. If one student's run doesn't fit the ID, or its figures aren't
    those of the program, the other is its owner; if both fit, somebody has edited, and who can't be seen here.
    """
    of_student, runs, common = defaultdict(list), defaultdict(list), defaultdict(Counter)
    for h in (h for h in hs if not h.refused):
        of_student[h.student].append(h)
        for found in fingerprints(h):
            runs[found].append(h)
    for group in of_student.values():
        *earlier, latest = sorted(group, key=lambda h: (h.when, h.name))
        for h in earlier:
            h.note(f"the student has handed in again: {latest.name} counts")
            h.counts = False
    for (part, *_), group in runs.items():
        for a in group:
            common[part, a].update(b for b in group if b.student != a.student)
    for (part, a), others in common.items():
        odd = {h for h in (a, *others) if {part, "measured"} & h.reasons.keys()}
        least = 10 if part == "measured" else 1  # of equal points
        same = [b.name for b, n in others.items() if n >= least and (a in odd or b not in odd)]
        if same:
            a.wrong("own", f"{part} is from the same run as another student's")
            a.shared.append(f"{part}: the same run as in {', '.join(same)[:200]}")


def settle(h, rubric, answers):
    """What each part is worth, of runs and program, and why it is worth nothing."""
    for part, most in rubric.text.items():
        why = h.refused or "\n".join(h.reasons.get(part, ()))
        h.parts.append(Part("text", part, 0 if why else most, most, why))
    for part, most in h.row["of"].items() if h.row else ():
        got = h.row["points"].get(part, 0)
        why = h.row["why"].get(part) or ("" if got or most == "0" else "not graded: see builds")
        h.parts.append(Part("program", part, got, int(most), why))
    h.answers = rubric.shares["answers"] * answers.get(h.student, 0) / 100
    h.total = round(sum(part.got for part in formats.scaled(h, rubric.shares)) + h.answers, 1)


def points(h, group):
    """What there is, and of how much."""
    mine = [part for part in h.parts if part.group == group]
    return sum(part.got for part in mine), sum(part.most for part in mine)


def report(h):
    """What the instructor and the student read about a hand-in."""
    lines = [f"\n#### {h.name}" + (f", student {h.student}" if h.student else "")]
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
    own = "none was graded, so the runs count for nothing in the total"
    if h.row:
        own = "%g/%d, SEED=%s" % (*points(h, "program"), h.row["seed"])
    lines += [f"Program: {own}", f"Total: {h.total:g}/100, of these {h.answers:g} for the answers"]
    return "\n".join(lines)


def table(hs, roster):
    """A row for each hand-in, and for each student who hasn't handed in."""
    for h in hs:
        reasons = [part.why for part in h.parts if part.group == "text" and part.why and part.most]
        yield {
            "file": h.name,
            "student": h.student,
            "name": roster.get(h.student, ""),
            **{part.name: part.got for part in h.parts if part.group == "text"},
            "score": points(h, "text")[0],
            "program": points(h, "program")[0] if h.row else "",
            "seed": h.row["seed"] if h.row else "",
            "counts": "yes" if h.counts else "no",
            "total": h.total,
            "first_reason": "; ".join(reasons[:1] + h.shared or h.remarks).replace("\n", " "),
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
            out.writerow({n: re.sub("^([=+@-])", r"'\1", str(cell)) for n, cell in row.items()})


def listed(path):
    """{ID: what stands behind it} of a list as spreadsheets save it: CSV in UTF-8, or, in China, GBK."""
    rows = []
    for encoding in ("utf-8-sig", "gb18030") if path else ():
        with suppress(UnicodeDecodeError), open(path, encoding=encoding, newline="") as file:
            rows = rows or [
                row
                for row in csv.reader(file)
                if row and expected.VALID_ID.fullmatch(row[0]) and row[0].upper() != "ID"
            ]
    if path and not rows:
        raise ValueError(f"{path}: no line begins with an ID and a comma; save it as CSV")
    return {student: collect.printable(" ".join(more), 60) for student, *more in rows}


def answered(path):
    """{ID: points} of such a list."""
    points_of = {}
    for student, text in listed(path).items():
        with suppress(ValueError):
            points_of[student] = float(text or 0)
        if not 0 <= points_of.get(student, -1) <= 100:
            raise ValueError(f"{path}: {student}: '{text}' is no number from 0 to 100")
    return points_of


def graded(said, rubric, answers):
    """The hand-ins in the folder, with their reports."""
    rows = known()
    with tempfile.TemporaryDirectory() as scratch:
        hs = collect.collect(said.folder, scratch)
        if not hs:
            raise ValueError(f"{said.folder} holds nothing")
        if said.format:  # all is one student's, of whom a whole hand-in counts before all else
            hs = sorted(hs, key=lambda h: bool(h.refused))[:1]
        for h in hs:
            check(h, rubric, rows)
    compare(hs)
    for h in hs:
        settle(h, rubric, answers)
        text = report(h)  # others' names are not for the student
        print(text, *h.shared, sep="\n     ", file=sys.stderr if said.format else sys.stdout)
        if said.out and h.student and h.counts:
            with open(f"{said.out}/feedback/{h.student}.txt", "w", encoding="utf-8") as file:
                file.write(text + "\n")
    return hs


def main():
    parser = argparse.ArgumentParser(prog="grade.py")
    for name, words in (
        ("out", "a folder, for grades.csv and a file for each student"),
        ("roster", "a file of IDs and names, ID,NAME: who has not handed in?"),
        ("answers", "a file of ID,POINTS (of 100) that you gave"),
    ):
        parser.add_argument(f"--{name}", help=words)
    words = "print a result for a learning platform: all in FOLDER is one student's"
    parser.add_argument("--format", choices=formats.FORMATS, help=words)
    parser.add_argument("folder")
    said = parser.parse_args()
    sys.stdout.reconfigure(errors="replace")  # where Chinese can't be printed
    try:
        rubric, roster, answers = read_rubric(), listed(said.roster), answered(said.answers)
        if said.out:
            shutil.rmtree(f"{said.out}/feedback", ignore_errors=True)  # an earlier call's
            os.makedirs(f"{said.out}/feedback")
        hs = graded(said, rubric, answers)
        if said.format:
            print(formats.FORMATS[said.format](list(formats.scaled(hs[0], rubric.shares)), hs[0]))
            return
        rows = list(table(hs, roster))
        if said.out:
            write_table(f"{said.out}/grades.csv", rows)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"\n{'student':20} {'score':>7} {'program':>7} {'total':>7}")
    for row in rows:
        marks = (f"{row.get(column, ''):>7}" for column in ("score", "program", "total"))
        print(f"{row['student']:20}", *marks, "", row["file"], row["name"])
    for h in hs:
        if not h.counts:
            print(
                f"look at {h.name}: of student {h.student}, too, who has a later one. Is the number right?"
            )


if __name__ == "__main__":
    main()
