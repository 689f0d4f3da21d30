# SPDX-License-Identifier: BSD-2-Clause
"""Hand-ins and their grades: a class of students, most of them honest."""
import csv
import json
import os
import re
import shutil
import sys
import tempfile
import unittest

from grading_class import (
    ALL,
    BAD,
    CLASS,
    SHOWN,
    command,
    ended,
    make_class,
    packed,
    within,
)
from samples import ROOT, SAMPLES, read, write

sys.path.append(f"{ROOT}/teach")
# pylint: disable=wrong-import-position
import collect
import grade
import rubric

FIRST = CLASS[0]
GOOD = {}  # filled by setUpModule: each student's hand-in
NAME = "\u5f20\u4e09"  # Zhang San


def setUpModule():
    GOOD.update(make_class())


def reports(out):
    """The grader's words for each hand-in."""
    parts = out.split("\n#### ")[1:]
    return {re.match("[^,\n]*", part)[0]: part.split("\n\nstudent ")[0] for part in parts}


class Graded(unittest.TestCase):
    def setUp(self):
        self.dir = self.enterContext(tempfile.TemporaryDirectory(prefix="grading."))
        os.mkdir(f"{self.dir}/class")
        self.programs = "/dev/null"

    def put(self, name, files):
        return write(
            f"{self.dir}/class/{name}", packed(files) if isinstance(files, dict) else files
        )

    def grade(self, *more, status=0):
        words = ("teach/grade.py", "--out", f"{self.dir}/out", *more, f"{self.dir}/class")
        done = command(*words, env={"RESULTS": self.programs}, errors="replace")
        self.assertEqual(done.returncode, status, done)
        return done.stdout + done.stderr

    def table(self):
        """The rows, by file."""
        with open(f"{self.dir}/out/grades.csv", encoding="utf-8-sig", newline="") as file:
            return {row["file"]: row for row in csv.DictReader(file)}


class Grading(Graded):
    def test_failed_handin(self):
        """Where the device can't be had, there is a hand-in all the same, and it says so."""
        made = command("teach/handin.sh", "x-1", "07", env={"TESTENV": "native"})
        self.addCleanup(shutil.rmtree, f"{ROOT}/results/handin-x-1")
        shutil.move(f"{ROOT}/handin-x-1.zip", f"{self.dir}/class")
        self.assertEqual(made.returncode, 1, made)
        self.assertRegex(made.stderr, "(?s)what make grade will say of it:\n== complete == FAIL")
        last = "no answers.txt: 0 of 27 answers given (make answers makes the file)\n"
        self.assertTrue(made.stderr.endswith(last), made)
        out = self.grade()
        self.assertIn("the line: failed, exit status 77 (0 of 27 answers given)", out)
        self.assertIn("Score: 10/100", out)  # nobody else's

    def test_usage(self):
        """Wrong words: exit status 2, a reason, nothing run or graded."""
        os.mkdir(f"{self.dir}/empty")
        for words, said in (
            (("handin.sh", "a/b", "05"), "which student"),
            (("handin.sh", "1", "04"), "is not 05"),
            (("grade.py", "/none"), "grade.py: error: "),
            (("grade.py", f"{self.dir}/empty"), "holds nothing"),
        ):
            done = command(f"teach/{words[0]}", *words[1:])
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(said, done.stderr)

    def test_bad(self):
        """With a manifest that fits: each kind loses its parts for its reason. Good ones have full marks."""
        for student, files in GOOD.items():
            self.put(f"handin-{student}.zip", files)
        for kind, (spoil, _, _) in BAD.items():
            self.put(f"{kind}.zip", ended(spoil(GOOD[FIRST]), FIRST, "05"))
        found, table = reports(self.grade()), self.table()
        for student in GOOD:
            self.assertIn("\nScore: 100/100", found[f"handin-{student}.zip"])
        for kind, (_, lost, reason) in BAD.items():
            report, row = found[f"{kind}.zip"], table[f"{kind}.zip"]
            self.assertEqual({part for part in ALL if row[part] == "0"}, set(lost), report)
            self.assertIn(reason, report)
            self.assertEqual(int(row["score"]), sum(int(row[part]) for part in ALL), report)

    def test_edited(self):
        """What was changed after make handin packed it, is more, or not there: the manifest says so. A run is lost,
        all else is noted."""
        good = GOOD[FIRST]
        for name in set(good) - {"manifest"}:
            self.put(f"{name}.zip", {**good, name: good[name].replace("=", "= ", 1)})
        self.put("program/more.h.zip", {**good, "program/more.h": "\n"})
        self.put("answers.txt.zip", {name: good[name] for name in good if name != "answers.txt"})
        found, table = reports(self.grade()), self.table()
        lost = {"measured": 40, "machine": 6, "05_gather_write": 60}
        lost = {f"runs/{part}.txt": points for part, points in lost.items()}
        lost.update({f"runs/{part}.txt": 6 for part in SAMPLES[:4]})
        for name, report in found.items():
            file = name.removesuffix(".zip")
            words = "" if file.startswith("runs/") else "note: "
            self.assertIn(f"{words}{file} isn't as make handin packed it", report)
            self.assertEqual(int(table[name]["score"]), 100 - lost.get(file, 0), report)
        self.assertGreater(len(found), 12)

    def test_class(self):
        """200 hand-ins in seconds, with strangers' things among them. All but one have the same runs, who made them
        loses nothing."""
        self.put("handin.zip", GOOD[FIRST])
        for n in range(200):
            student = str(30000000 + n)
            files = ended(GOOD[FIRST], student, "05")
            self.put(f"group{n % 7}/{NAME}_{n}_handin-{student}.zip", files)
        self.put("=bomb.zip", packed({"manifest": bytes(9 << 20)}))
        self.put(f"{NAME}\x1b[2J\u202e.pdf", b"%PDF-1.4")
        began = sum(os.times()[:4])
        out = self.grade()
        seconds = sum(os.times()[:4]) - began
        self.assertRegex(out, f"\\A{SHOWN}\\Z", "nothing that a terminal obeys")
        rows = self.table()
        self.assertEqual(len(rows), 203)
        again = "run make handin again and hand in its zip"
        self.assertIn(again, rows["'=bomb.zip"]["first_reason"])  # no formula, to a spreadsheet
        said = f"it is a .pdf file, no zip: {again}"
        self.assertEqual(said, rows[f"{NAME}?[2J?.pdf"]["first_reason"])
        lines = [line.split()[:2] for line in out.partition("\n\nstudent ")[2].splitlines()[1:]]
        self.assertEqual(len(lines), 203)
        self.assertIn([FIRST, "100"], lines)
        scores = sorted(row["score"] for row in rows.values() if row["student"])
        self.assertEqual(scores, ["100", *["6"] * 200])
        self.assertIn("is from the same run as another student's", out)
        self.assertLess(seconds, 60)

    def test_copied(self):
        """Another's run under one's own ID, with the digests put right: addresses, or ten points' figures, still tell
        that two are one run; not whose. (With another's digests, see test_class.)"""
        a, b = list(GOOD)[::3]  # of the same lab
        self.put(f"handin-{a}.zip", GOOD[a])
        for part, pattern, count, score in (
            ("measured", "lat_p50.*", 9, 100),
            ("measured", "lat_p50.*", 10, 90),
            ("03_read", "0x[0-9a-f]*, rkey.*", 0, 90),
        ):
            name = f"runs/{part}.txt"
            theirs = iter(re.findall(pattern, GOOD[a][name]))
            text = re.sub(pattern, lambda _, theirs=theirs: next(theirs), GOOD[b][name], count)
            self.put(f"handin-{b}.zip", ended({**GOOD[b], name: text}, b, "05"))
            found = reports(self.grade())
            for one, other in ((a, b), (b, a)):
                report = found[f"handin-{one}.zip"]
                self.assertIn(f"Score: {score}/100", report)
                same = f"{part}: the same run as in handin-{other}.zip"
                self.assertEqual(same in report, score < 100, report)
                theirs = read(f"{self.dir}/out/feedback/{one}.txt")  # what the student sees
                self.assertEqual("the same run as another" in theirs, score < 100, theirs)
                self.assertNotIn(other, theirs)

    def test_lists(self):
        """Names and points by ID, as spreadsheets save them; and who has not handed in."""
        self.put("handin.zip", GOOD[FIRST])
        lines = f"\u5b66\u53f7,\u59d3\u540d\r\n{FIRST},{NAME}\r\n777,{NAME}\r\n"
        given = write(f"{self.dir}/answers", f"ID,POINTS\n{FIRST},50\n")
        for encoding in ("utf-8-sig", "gb18030"):
            roster = write(f"{self.dir}/roster", lines.encode(encoding))
            self.grade("--roster", roster, "--answers", given)
            rows = [(row["student"], row["name"], row["total"]) for row in self.table().values()]
            self.assertEqual(rows, [(FIRST, NAME, "15.0"), ("777", NAME, "0")], encoding)
        self.assertEqual(self.table()["(nothing)"]["first_reason"], "not handed in")
        self.assertIn("Score: 100/100", read(f"{self.dir}/out/feedback/{FIRST}.txt"))
        for text in (lines.encode("utf-16"), f"{FIRST};50\n"):
            write(roster, text)
            self.assertIn("save it as CSV", self.grade("--roster", roster, status=2))
        for points in ("late", "150"):
            write(given, f"{FIRST},{points}\n")
            said = self.grade("--answers", given, status=2)
            self.assertIn(f"{FIRST}: '{points}' is no number from 0 to 100", said)

    def test_latest(self):
        """Of several hand-ins of one student the latest counts; both are graded."""
        for n, when in (("1", 2000), ("2", 1000)):
            folder = f"{self.dir}/class/{n}"
            for name, data in GOOD[FIRST].items():
                write(f"{folder}/{name}", data)
            os.utime(f"{folder}/manifest", (when, when))
        old = write(f"{self.dir}/out/feedback/of-an-earlier-call.txt", "")
        said = self.grade()
        self.assertIn("note: the student has handed in again: 1 counts", said)
        self.assertIn(f"\nlook at 2: of student {FIRST}, too", said)
        self.assertFalse(os.path.exists(old))
        self.assertEqual([row["counts"] for row in self.table().values()], ["yes", "no"])

    def test_rubric(self):
        """Points are the instructor's."""
        text = read("teach/rubric.txt")
        path = write(f"{self.dir}/rubric", text.replace("own = 10", "own = 7"))
        self.assertEqual(rubric.read_rubric(path).text["own"], 7)
        for good in ("own = 10", "[total]", "4K"):
            write(path, text.replace(good, "nothing = 5"))
            self.assertRaises(ValueError, rubric.read_rubric, path)


class Total(Graded):
    """Runs and program in one table: runs count beside a program that was graded, and what they measured only if
    that is what the program takes."""

    def setUp(self):
        super().setUp()
        self.put("handin.zip", GOOD[FIRST])
        self.programs = f"{self.dir}/programs.jsonl"
        with tempfile.TemporaryDirectory() as scratch:
            (h,) = collect.collect(f"{self.dir}/class", scratch)
            self.digest = h.digest()
            grade.check(h, rubric.read_rubric(), [])
        self.figures = {point: (f.p50, f.bandwidth) for point, f in h.figures.items()}
        self.assertGreater(len(self.figures), 50)
        text = GOOD[FIRST]["runs/machine.txt"]
        self.kernel = re.search("kernel=(\\S+)", text)[1]

    def total(self, **more):
        row = {"digest": self.digest, "student": FIRST, "lab": "05", "seed": "7", "own": ""}
        row.update({"of": {"sgl": "100"}, "points": {"sgl": 80}, "why": {"sgl": "not so"}})
        write(self.programs, json.dumps({**row, "kernel": self.kernel, **more}) + "\n")
        out = self.grade()
        (row,) = self.table().values()
        return float(row["total"]), out, row

    def slower(self, times, only=""):
        """What would be measured again, in two rounds; only: some points."""
        return {
            point: [[p50 * times, bw / times] if only in point else [p50, bw]] * 2
            for point, (p50, bw) in self.figures.items()
        }

    def test_measured_again(self):
        one_round = self.slower(1)
        one_round["sgl 64 65536"] = [self.slower(n)["sgl 64 65536"][0] for n in (1, 2)]
        for there, total in (
            (self.slower(1.025), 62),
            (one_round, 62),
            (self.slower(1.04), 44),
            (self.slower(0.95), 44),
            (self.slower(1.2, "sgl 64 "), 44),
            ({}, 44),
        ):
            got, out, row = self.total(figures=there)
            self.assertEqual(got, total, out)
            self.assertIn("== program: sgl == FAIL (80/100)\n     not so", out)
            self.assertEqual((row["program"], row["seed"]), ("80", "7"))
        self.assertIn("can't be measured", row["first_reason"])

    def test_what_cannot_be_confirmed(self):
        """Another kernel's figures, and those in real time, count; a note says that nothing confirms them."""
        got, out, _ = self.total(figures=self.slower(2), kernel="9.9")
        self.assertIn("the program again on 9.9: nothing confirms them", out)
        self.assertEqual(got, 62)
        real = within("measured", "clock=virtual", "clock=real", 99)(GOOD[FIRST])
        self.put("handin.zip", ended(real, FIRST, "05"))
        got, out, _ = self.total(figures=self.slower(2))
        self.assertIn("measured in real time: nothing confirms them", out)
        self.assertEqual(got, 62)

    def test_other_words_of_grade_program(self):
        self.assertEqual(self.total(figures=self.slower(1.05), prints=True)[0], 62)
        _, out, row = self.total(figures=self.slower(1), own="the server does not pass")
        self.assertEqual((row["chosen"], row["measured"]), ("0", "20"), out)
        self.assertIn("the server does not pass", out)
        stuck = {"itself": "measuring: it does not go on to the end\n"}
        self.assertEqual(self.total(figures=self.slower(1), why=stuck)[0], 44)
        total, out, _ = self.total(figures=self.slower(1), digest="another's")
        self.assertEqual(total, 0)
        self.assertIn("the runs count for nothing", out)
