#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Hand-ins and their grades: a class of students, most of them honest."""
import copy
import csv
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
import unittest

from grading_class import (
    ALL,
    BAD,
    CLASS,
    SHOWN,
    command,
    ended,
    lab_of,
    make_class,
    of_another,
    packed,
    within,
    write,
)
from samples import ROOT, main

sys.path.append(f"{ROOT}/teach")
# pylint: disable=wrong-import-position
import collect
import figures
import grade
import reader

FIRST = CLASS[0]
GOOD = {}  # filled by setUpModule: each student's hand-in
NAME = "\u5f20\u4e09"  # Zhang San
# What means something in a run, for those that are mangled.
LINES = (
    b"=== exit 0",
    b"=== exit 4294967296",
    b"--- server: ",
    b"--- client: x",
    b"RESULT sample=03_read",
    b"RESULT =",
    b"LAYOUT seed==1",
    b"BENCH method=sgl",
    b"BENCH method=sgl block_size=" + b"9" * 5000,
    b"\xff\xfe",
    b"0x0 0xf",
    "\u0663=\u0661 \u2028\u202e".encode(),
    b"\r",
    b"\x1b[2J",
    b"",
)


def setUpModule():
    GOOD.update(make_class())


def reports(out):
    """The grader's words for each hand-in."""
    parts = out.split("\n#### ")[1:]
    return {re.match("[^,\n]*", part)[0]: part.split("\n\nfile ")[0] for part in parts}


class Graded(unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="grading.")
        self.addCleanup(shutil.rmtree, self.dir)
        os.mkdir(f"{self.dir}/class")
        self.programs = "/dev/null"

    def put(self, name, files):
        return write(
            f"{self.dir}/class/{name}", packed(files) if isinstance(files, dict) else files
        )

    def grade(self, *more, status=0, **env):
        out = f"{self.dir}/out"
        env = {**os.environ, "RESULTS": self.programs, **env}
        words = ("teach/grade.py", "--out", out, *more, f"{self.dir}/class")
        done = command(*words, env=env, errors="replace")
        self.assertEqual(done.returncode, status, done)
        return done.stdout + done.stderr

    def table(self):
        with open(f"{self.dir}/out/grades.csv", encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))


class Grading(Graded):
    def test_failed_handin(self):
        """Where the device can't be had, there is a hand-in all the same, and it says so."""
        env = {**os.environ, "TESTENV": "native"}
        made = command("teach/handin.sh", "x-1", "07", env=env)
        self.addCleanup(shutil.rmtree, f"{ROOT}/results/handin-x-1")
        shutil.move(f"{ROOT}/handin-x-1.zip", f"{self.dir}/class")
        self.assertEqual(made.returncode, 1, made)
        self.assertRegex(made.stderr, "(?s)what make grade will say of it:\n== complete == FAIL")
        last = "no answers.txt: 0 of 27 answers given (make answers makes the file)\n"
        self.assertTrue(made.stderr.endswith(last), made)
        out = self.grade()
        said = "its manifest ends with: failed, exit status 77 (0 of 27 answers given)"
        self.assertIn(said, out)
        self.assertIn("Score: 10/100", out)  # nobody else's

    def test_usage(self):
        for words, said in (
            (("", "05"), "which student"),
            (("a/b", "05"), "which student"),
            ((NAME, "05"), "which student"),
            (("2026\uff10", "05"), "full-width digits or letters instead of 20260"),
            (("1", "04"), "is not 05"),
            (("1", "05", "/none"), "is no directory"),
            (("1", "05", "", "/none"), "cannot read"),
        ):
            with self.subTest(words=words):
                done = command("teach/handin.sh", *words)
                self.assertEqual(done.returncode, 2, done)
                self.assertIn(said, done.stderr)

    def test_bad(self):
        """With a manifest that fits: each kind loses its parts for its reason. Good ones have full marks."""
        for student, files in GOOD.items():
            self.put(f"handin-{student}.zip", files)
        for n, (spoil, _, _) in enumerate(BAD.values()):
            self.put(f"{n}/handin.zip", ended(spoil(GOOD[FIRST]), FIRST, "05"))
        out = self.grade()
        self.assertRegex(out, f"\\A{SHOWN}\\Z", "nothing that a terminal obeys")
        found, table = reports(out), {row["file"]: row for row in self.table()}
        for student in GOOD:
            self.assertIn("\nScore: 100/100", found[f"handin-{student}.zip"])
        for n, (kind, (_, lost, reason)) in enumerate(BAD.items()):
            with self.subTest(kind=kind):
                report, row = found[f"{n}/handin.zip"], table[f"{n}/handin.zip"]
                self.assertEqual({part for part in ALL if row[part] == "0"}, set(lost), report)
                self.assertIn(reason, report)
                self.assertEqual(int(row["score"]), sum(int(row[part]) for part in ALL), report)
        print(f"ok - grading: {len(BAD)} bad hand-ins lose the right points", flush=True)

    def test_edited(self):
        """Whatever was changed after make handin packed it: the manifest says so, and that part alone is lost."""
        good = GOOD[FIRST]
        names = [name for name in good if name != "manifest"]
        for n, name in enumerate(names):
            self.put(f"{n}/handin.zip", {**good, name: good[name].replace("=", "= ", 1)})
        self.put("more/handin.zip", {**good, "program/more.h": "\n"})
        out = self.grade()
        found, table = reports(out), {row["file"]: row for row in self.table()}
        for n, name in enumerate(names):
            self.assertIn(f"{name} isn't as make handin packed it", found[f"{n}/handin.zip"])
            part, row = name[5:-4], table[f"{n}/handin.zip"]
            if name.startswith("runs/") and part not in ("machine", "05_gather_write"):
                self.assertEqual(row.get(part), "0", row)
                lost = 6 if part in ALL - {"measured"} else 40 if part == "measured" else 0
                self.assertEqual(int(row["score"]), 100 - lost, row)
                self.assertTrue(not lost or "isn't as" in row["first_reason"], row)
        self.assertIn("note: program/more.h isn't as make handin", found["more/handin.zip"])

    def test_class(self):
        """200 students, in the shapes of several platforms, with what means harm among them."""
        lab = {lab_of(files): files for files in GOOD.values()}
        students = [*GOOD, *(str(30000000 + n) for n in range(200 - len(GOOD)))]
        for n, student in enumerate(students):
            files = GOOD.get(student) or of_another(lab[sorted(lab)[n % 3]], student)
            front = (
                f"{NAME}_{n}_assignsubmission_file_/",
                f"zhang_LATE_{n}_77_",
                f"Lab_li{n}_attempt_2026-11-01_",
                f"group/{n}/",
            )[n % 4]
            self.put(f"{front}handin-{student}.zip", files)
        self.put("Lab_li2_attempt_2026-11-01.txt", "receipt\n")
        self.put("bomb.zip", packed({"manifest": bytes(9 << 20)}))
        self.put("out.zip", packed({"../../evil": "x"}))
        self.put("cut.zip", packed(GOOD[FIRST])[:900])
        self.put(f"{NAME}\x1b[2J\u202e.pdf", b"%PDF-1.4")
        os.mkfifo(f"{self.dir}/class/fifo")
        os.symlink("/etc/passwd", f"{self.dir}/class/link.zip")
        began = sum(os.times()[:4])
        out = self.grade()
        seconds = sum(os.times()[:4]) - began
        self.assertRegex(out, f"\\A{SHOWN}\\Z", "nothing that a terminal obeys")
        rows = self.table()
        self.assertEqual(len(rows), len(students) + 6)
        refused = {row["file"]: row["first_reason"] for row in rows if not row["student"]}
        self.assertEqual(len(refused), 6, refused)
        for reason in refused.values():
            self.assertIn("run make handin again and hand in its zip", reason)
        self.assertIn("a .pdf file, no zip", refused[f"{NAME}?[2J?.pdf"])
        for row in rows:
            if row["student"]:  # the others' blocks are not those of the measurement
                self.assertEqual(row["score"], "100" if row["student"] in GOOD else "60", row)
        self.assertLess(seconds, 60)
        print(f"ok - grading: {len(rows)} hand-ins in {seconds:.1f} s of CPU", flush=True)

    def test_unanswered(self):
        """It is noted, and costs nothing: a person gives the points for answers."""
        good = GOOD[FIRST]
        empty = re.sub(r"(?s)(## step 8:.*?reason:)[^\n]*", r"\1", good["answers.txt"], count=1)
        for answers, note in (
            (good["answers.txt"], ""),
            (empty, "answers: 26 of 27 given; missing: step 8"),
            ("1. It waits.\n", "answers: the marks of make answers are missing"),
            ("", ""),
        ):
            files = ended({**good, "answers.txt": answers}, FIRST, "05")
            self.put("handin.zip", files)
            found = reports(self.grade())["handin.zip"]
            self.assertIn("Score: 100/100", found)
            self.assertEqual("note: answers" in found, note != "", found)
            self.assertEqual("== answers == OK" in found, answers != "", found)
            self.assertIn(note, found)

    def test_mangled(self):
        """Runs with a manifest that fits, mangled: none raises, prints what a terminal obeys, or takes long; and wrong
        ones get no points for it."""
        random.seed(2)  # the same changes each time
        rubric, good, slowest = grade.read_rubric(), GOOD[FIRST], 0
        wrong = {name: re.sub("digest=.*", "digest=0", text) for name, text in good.items()}
        for n in range(int(os.environ.get("HV_MUTANTS", "150"))):
            files = {**good, **(wrong if n % 2 else {})}
            name = random.choice([name for name in files if name.startswith("runs/")])
            lines = files[name].encode().split(b"\n")
            for _ in range(random.choice((1, 1, 2, 4))):
                at = random.randrange(len(lines))
                line = random.choice(LINES) * random.choice((1, 1, 20000))
                some = random.choice(
                    ([], [line[: 1 << 20]], lines[at : at + 1] * 3, [lines[at][5:]])
                )
                lines[at : at + random.choice((0, 1, 9))] = some
                lines = lines or [b""]
            text = b"\n".join(lines).decode("utf-8", "replace")
            write(f"{self.dir}/handin.zip", packed(ended({**files, name: text}, FIRST, "05")))
            with tempfile.TemporaryDirectory() as scratch:
                (one,) = collect.collect(f"{self.dir}/handin.zip", "05", scratch)
                h, began = reader.Handin(one), time.process_time()
                grade.check(h, rubric, [])
            alone = copy.copy(h)  # with itself in the class twice, as another's
            alone.student += "x"
            grade.compare([h, alone])
            h.reasons.pop("own", None)
            grade.settle(h, rubric)
            self.assertRegex(grade.report(h), f"\\A{SHOWN}\\Z", n)
            self.assertTrue(n % 2 == 0 or grade.points(h, "text")[0] <= 16, grade.report(h))
            slowest = max(slowest, time.process_time() - began)
        self.assertLess(slowest, 5)
        print(f"ok - grading: the slowest mangled one took {slowest:.2f} s of CPU", flush=True)

    def test_copied(self):
        """Another's runs under one's own ID: the digests tell; the owner loses nothing. With the digests put right,
        addresses and figures still tell that two are one run; not whose."""
        a, b = list(GOOD)[::3]  # of the same lab
        self.put(f"handin-{a}.zip", GOOD[a])
        self.put("handin-777.zip", ended(GOOD[a], "777", "05"))
        found = reports(self.grade())
        self.assertIn("Score: 100/100", found[f"handin-{a}.zip"])
        self.assertIn("Score: 6/100", found["handin-777.zip"])
        self.assertIn(f"is from the same run as in handin-{a}.zip", found["handin-777.zip"])
        os.remove(f"{self.dir}/class/handin-777.zip")
        bench = [re.findall("lat_p50.*", GOOD[s]["runs/measured.txt"]) for s in (a, b)]
        measured = GOOD[b]["runs/measured.txt"]
        for mine, other in zip(*bench):
            measured = measured.replace(other, mine)
        address = [
            re.search("0x[0-9a-f]*, rkey 0x[0-9a-f]*", GOOD[s]["runs/03_read.txt"])[0]
            for s in (a, b)
        ]
        read = GOOD[b]["runs/03_read.txt"].replace(address[1], address[0])
        for part, text in ("measured", measured), ("03_read", read):
            with self.subTest(part=part):
                self.put(f"handin-{b}.zip", ended({**GOOD[b], f"runs/{part}.txt": text}, b, "05"))
                found = reports(self.grade())
                for one, other in ((a, b), (b, a)):
                    self.assertIn("Score: 90/100", found[f"handin-{one}.zip"])
                    same = f"{part} is from the same run as in handin-{other}.zip"
                    self.assertIn(same, found[f"handin-{one}.zip"])

    def test_lists(self):
        """Names and points by ID, as spreadsheets save them; and who has not handed in."""
        self.put(f"=1+handin-{FIRST}.zip", GOOD[FIRST])
        given = write(f"{self.dir}/answers", f"{FIRST};50\n")
        for line in ("{},{}", "{1},{0}", '"{}";"{}"', "{}\t{}"):
            for encoding in ("utf-8-sig", "gb18030", "utf-16"):
                roster = "\u5b66\u53f7,\u59d3\u540d\r\n" + "".join(
                    line.format(student, NAME) + "\r\n" for student in (FIRST, "777")
                )
                path = write(f"{self.dir}/roster", roster.encode(encoding))
                out = self.grade("--roster", path, "--answers", given, PYTHONIOENCODING="utf-8")
                rows = [(row["student"], row["name"], float(row["total"])) for row in self.table()]
                self.assertEqual(rows, [(FIRST, NAME, 15), ("777", NAME, 0)], line + encoding)
                self.assertRegex(out, f"777 .*{NAME}")
        self.assertEqual(self.table()[1]["first_reason"], "not handed in")
        self.assertTrue(self.table()[0]["file"].startswith("'="), "a formula, to a spreadsheet")
        self.assertIn("?? ", self.grade(PYTHONIOENCODING="ascii") + "?? ")
        with open(f"{self.dir}/out/feedback/{FIRST}.txt", encoding="utf-8") as file:
            self.assertIn("Score: 100/100", file.read())

    def test_latest(self):
        """Of several hand-ins of one student the latest counts; both are graded."""
        for n, when in (("1", 2000), ("2", 1000)):
            folder = f"{self.dir}/class/{n}"
            for name, data in GOOD[FIRST].items():
                write(f"{folder}/{name}", data)
            os.utime(f"{folder}/manifest", (when, when))
        out = self.grade()
        self.assertEqual([row["counts"] for row in self.table()], ["yes", "no"])
        self.assertIn("the same student's as 2; the latest counts", out)

    def test_rubric(self):
        """Points and parts are the instructor's; a line that is neither is refused."""
        with open(f"{ROOT}/teach/rubric.txt", encoding="utf-8") as file:
            text = file.read()
        path = write(f"{self.dir}/rubric", text.replace("own              10", "own 7"))
        self.assertEqual(grade.read_rubric(path).points["own"], 7)
        for line in ("nothing 5", "own -x", "own", "sizes 0K", "sizes 4K,", "sizes 65M", "total x"):
            write(path, f"{text}{line}\n")
            with self.subTest(line=line), self.assertRaises(ValueError):
                grade.read_rubric(path)

    def test_command_line(self):
        """Wrong words: exit status 2, a reason, nothing graded."""
        os.mkdir(f"{self.dir}/empty")
        for words in (
            (),
            ("/none",),
            (f"{self.dir}/empty",),
            ("--roster", "/none", self.dir),
            ("--result", "/none", self.dir),
        ):
            with self.subTest(words=words):
                done = command("teach/grade.py", *words)
                self.assertEqual(done.returncode, 2, done)
                self.assertIn("grade.py: error: ", done.stderr)


class Total(Graded):
    """Runs and program in one table: runs count beside a program that was graded, and what they measured only if
    that is what the program takes."""

    def setUp(self):
        super().setUp()
        self.put("handin.zip", GOOD[FIRST])
        self.programs = f"{self.dir}/programs.jsonl"
        with tempfile.TemporaryDirectory() as scratch:
            (one,) = collect.collect(f"{self.dir}/class", "05", scratch)
            self.digest = one.digest()
            h = reader.Handin(one)
            reader.check(h)
            figures.check(h, grade.read_rubric().sizes)
        self.figures = {point: (f.p50, f.bandwidth) for point, f in figures.said(h).items()}
        self.assertGreater(len(self.figures), 50)
        text = GOOD[FIRST]["runs/machine.txt"]
        self.kernel = re.search("kernel=(\\S+)", text)[1]

    def total(self, **more):
        row = {"digest": self.digest, "student": FIRST, "lab": "05", "seed": "7", "score": 80}
        row.update({"of": {"sgl": "100"}, "points": {"sgl": 80}, "why": {"sgl": "not so"}})
        write(self.programs, json.dumps({**row, "kernel": self.kernel, **more}) + "\n")
        out = self.grade()
        (row,) = self.table()
        return float(row["total"]), out, row

    def slower(self, times, only="", here=None):
        """Both rounds; only: some points; here: bandwidth has another factor."""
        return {
            point: [[p50 * times, bw / (here or times)] if only in point else [p50, bw]] * 2
            for point, (p50, bw) in self.figures.items()
        }

    def other_kernel(self, packets, only="", times=1.0):
        """Where packets take so many times as long, and what else a method does, as long; some are slower than that."""
        longer, found = packets - 1, {}
        for point, (p50, bw) in self.figures.items():
            one, whole = self.figures["contig " + point.partition(" ")[2]]
            slower = times if only in point else 1
            row = [(p50 + longer * one) * slower, 1 / (1 / bw + longer / whole) / slower]
            found[point] = [row] * 2
        return found

    def test_measured_again(self):
        one_round = self.slower(1)
        one_round["sgl 64 65536"] = [self.slower(n)["sgl 64 65536"][0] for n in (1, 2)]
        for there, expected in (
            (self.slower(1), 62),
            (self.slower(1.025), 62),
            (self.slower(1.04), 44),
            (self.slower(0.95), 44),
            (self.slower(1.04, "sgl"), 44),
            (self.slower(0.96, "128 "), 44),
            (one_round, 62),
            (self.slower(1, "sgl 64 ", 1.1), 62),
            (self.slower(1, "sgl 64 ", 1.3), 44),
            (self.slower(1.2, "sgl 64 "), 44),
            ({}, 44),
        ):
            total, out, row = self.total(figures=there)
            self.assertEqual(total, expected, out)
            self.assertIn("== program: sgl == FAIL (80/100)\n     not so", out)
            self.assertEqual((row["program"], row["seed"]), ("80", "7"))
        self.assertIn("can't be measured", row["first_reason"])
        for there, expected in (
            (self.other_kernel(1.3), 62),
            (self.other_kernel(0.5), 62),
            (self.other_kernel(1.3, "sgl", 1.1), 44),
            (self.other_kernel(0.5, "sgl 128 ", 0.6), 44),
            (self.other_kernel(1, "each 64 ", 1.5), 44),
        ):
            total, out, _ = self.total(figures=there, kernel="9.9")
            self.assertIn("not on 9.9: what one piece takes there is believed", out)
            self.assertEqual(total, expected, out)

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
        real = within("measured", "clock=virtual", "clock=real", 99)(GOOD[FIRST])
        self.put("handin.zip", ended(real, FIRST, "05"))
        total, out, _ = self.total(figures=self.slower(2))
        self.assertIn("measured in real time: nothing can confirm them", out)
        self.assertEqual(total, 62)


if __name__ == "__main__":
    main()
