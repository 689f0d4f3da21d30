#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Hand-ins and their grades: a class of students, most of them honest."""
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import grading_fuzz
from grading_class import (
    ALL,
    BAD,
    CHOSEN,
    GOOD,
    ODD,
    SHOWN,
    TEMPLATE,
    bench_digest,
    command,
    layout_line,
    make_class,
    section,
    special,
    within,
    write,
)
from samples import ROOT, WITH_BLOCKS, main

sys.path.append(f"{ROOT}/grading")
import collect  # pylint: disable=wrong-import-position

folder = {}  # filled by setUpModule: the students' files


def setUpModule():
    folder["good"] = make_class()


def reports(out):
    """The grader's words for each file."""
    found = {}
    for part in out.split("\n#### ")[1:]:
        name = re.match("[^,\n]*", part)[0]
        found[name] = part.split("\n\nfile ")[0]
    return found


class Grading(unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="grading.")
        self.addCleanup(shutil.rmtree, self.dir)

    def grade(self, *more):
        ended = command("make", "-s", "grade", f"HANDINS={self.dir}", *more, errors="replace")
        self.assertEqual(ended.returncode, 0, ended)
        return ended.stdout

    def test_failed_handin(self):
        """Where the device can't be had, there is a file all the same, and it says so."""
        env = {**os.environ, "TESTENV": "native"}
        ended = command("grading/handin.sh", "x-1", "07", env=env)
        with open(f"{ROOT}/handin-x-1.txt", encoding="utf-8") as file:
            text = file.read()
        os.remove(f"{ROOT}/handin-x-1.txt")
        os.remove(f"{ROOT}/handin-x-1.zip")
        self.assertEqual(ended.returncode, 1, ended)
        self.assertRegex(ended.stderr, "(?s)what make grade will say of it:\n== complete == FAIL")
        self.assertRegex(
            text,
            r"HANDIN version=1 student=x-1 lab=07.*\n(.*\n)*=== end failed, exit status 77 "
            r"\(0 of 27 answers given\)\n\Z",
        )
        self.assertTrue(
            ended.stderr.endswith(
                "no answers.txt: 0 of 27 answers given (make answers makes the file)\n"
            ),
            ended,
        )
        write(f"{self.dir}/handin-x-1.txt", text)
        self.assertIn("Score: 10/100", self.grade())  # nobody else's

    def test_usage(self):
        for words, said in (
            (("", "05"), "which student"),
            (("a/b", "05"), "which student"),
            (("1", "04"), "is not 05"),
            (("1", "05", "/none"), "is no directory"),
            (("1", "05", "", "/none"), "cannot read"),
        ):
            with self.subTest(words=words):
                ended = command("grading/handin.sh", *words)
                self.assertEqual(ended.returncode, 2, ended)
                self.assertIn(said, ended.stderr)

    def test_class(self):
        good = folder["good"]
        of_lab = {lab: [s for s in good if f" lab={lab} " in good[s]] for lab in ("05", "06", "07")}
        for student, text in good.items():
            write(f"{self.dir}/handin-{student}.txt", text)
        expected = {}
        for n, (kind, (spoil, lost, reason)) in enumerate(BAD.items()):
            students = of_lab["05"]
            if lost < set(of_lab):  # one lab
                students, lost = of_lab[min(lost)], CHOSEN
            student = students[n % len(students)]
            name = f"smith_handin-{student}-{n}.txt"
            path = f"{self.dir}/{name}"
            if spoil is None:
                write(path, good[students[(n + 1) % len(students)]])
            elif isinstance(spoil, str):
                special(path, spoil)
            else:
                write(path, spoil(good[student]))
            expected[name] = (kind, lost, reason)
        began = sum(os.times()[:4])
        out = self.grade()
        seconds = sum(os.times()[:4]) - began
        self.assertLess(seconds, 10)
        self.assertRegex(out, f"\\A{SHOWN}\\Z", "nothing that a terminal obeys")
        found = reports(out)
        full = 0
        for student in good:
            report = found[f"handin-{student}.txt"]
            self.assertIn("\nScore: 100/100", report)
            self.assertNotIn("     note: make handin didn't", report)
            full += 1
        with open(f"{ROOT}/results/grades.csv", encoding="ascii", newline="") as file:
            table = {row["file"]: row for row in csv.DictReader(file)}
        right = 0
        for name, (kind, lost, reason) in expected.items():
            with self.subTest(kind=kind):
                report, row = found[name], table[name]
                self.assertEqual({part for part in ALL if row[part] == "0"}, set(lost), report)
                self.assertIn(reason, report)
                if lost != ALL:  # the reason stands below a part that it is the reason of
                    why = re.search(
                        r"\n== (\w+) == [^O](?:(?!\n==).)*" + re.escape(reason), report, re.S
                    )
                    self.assertIn(why[1], lost if lost != CHOSEN else WITH_BLOCKS)
                self.assertEqual(int(row["score"]), sum(int(row[part]) for part in ALL), report)
                right += 1
        print(f"ok - grading: {full} good hand-ins with full marks")
        print(
            f"ok - grading: {right} bad hand-ins lose the right points for the right reason, "
            f"all {full + right} in {seconds:.1f} s of CPU",
            flush=True,
        )
        self.assertEqual((full, right), (GOOD, len(BAD)))
        self.assertGreaterEqual(full + right, 50)

    def test_odd(self):
        """What editors, mail and people do to an honest file is remarked, and costs nothing."""
        students = list(folder["good"])
        for n, (change, _) in enumerate(ODD.values()):
            student = students[n % len(students)]
            write(f"{self.dir}/{n}_handin-{student}.txt", change(folder["good"][student]))
        out = self.grade()
        self.assertRegex(out, f"\\A{SHOWN}\\Z", "nothing that a terminal obeys")
        found = {int(name.split("_")[0]): report for name, report in reports(out).items()}
        self.assertEqual(len(found), len(ODD))
        for n, (kind, (_, remark)) in enumerate(ODD.items()):
            with self.subTest(kind=kind):
                self.assertIn("\nScore: 100/100", found[n])
                notes = [
                    line
                    for line in found[n].splitlines()
                    if line.startswith("     note: ") and "the same student's" not in line
                ]
                self.assertEqual(len(notes) > 0, remark is not None, found[n])
                self.assertRegex("\n".join(notes), remark or "^$")

    def test_answers(self):
        """They may look like the rest of the file, which can't be cut off unnoticed for that."""
        text = folder["good"][TEMPLATE]
        write(f"{self.dir}/handin-{TEMPLATE}.txt", text[: text.rindex("=== end complete")])
        found = reports(self.grade())[f"handin-{TEMPLATE}.txt"]
        self.assertIn("Score: 94/100", found)
        self.assertIn("== answers == OK", found)
        self.assertIn("the last line isn't", found)

    def test_unanswered(self):
        """They are noted, and cost nothing: a person gives the points for answers."""
        text = folder["good"][TEMPLATE]
        empty = re.sub(r"(?s)(## step 8:.*?reason:)[^\n]*", r"\1", text, count=1)
        before, answers = text.split("=== answers\n", 1)
        wide = answers.partition("=== end")[0].encode("utf-16")
        for written, note in (
            (text, ""),
            (empty, "answers: 26 of 27 given; missing: step 8"),
            (
                before + "=== answers\n1. It waits.\n=== end runs complete (answers without marks: "
                "not counted)\n",
                "answers: the marks of make answers are missing",
            ),
            (before + "=== answers\n\n=== end runs complete (0 of 27 answers given)\n", ""),
            (before.encode() + b"=== answers\n" + wide + b"\n\0\n=== end complete\n", ""),
        ):
            write(f"{self.dir}/handin-{TEMPLATE}.txt", written)
            found = reports(self.grade())[f"handin-{TEMPLATE}.txt"]
            self.assertIn("Score: 100/100", found)
            self.assertEqual("note: answers" in found, note != "", found)
            self.assertEqual("== answers == OK" in found, "(0 of 27" not in str(written), found)
            self.assertIn(note, found)

    def test_hostile(self):
        """Mangled, huge and misleading files: see grading_fuzz.py."""
        count = grading_fuzz.mutants(folder["good"], int(os.environ.get("HV_MUTANTS", "500")))
        print(
            f"ok - grading: {count} mangled hand-ins, none of them with more points for it",
            flush=True,
        )
        slowest = grading_fuzz.floods(folder["good"][TEMPLATE], TEMPLATE)
        print(f"ok - grading: a file of 1 MiB takes at most {slowest:.2f} s of CPU", flush=True)
        self.assertLess(slowest, 1)

    def test_copied(self):
        """Another's transcripts under one's own ID: the digests tell; the owner loses
        nothing."""
        students = list(folder["good"])
        text = folder["good"][students[1]]
        write(f"{self.dir}/handin-{students[1]}.txt", text)
        write(f"{self.dir}/handin-777.txt", text.replace("student=" + students[1], "student=777"))
        found = reports(self.grade())
        self.assertIn("Score: 100/100", found[f"handin-{students[1]}.txt"])
        self.assertIn("Score: 6/100", found["handin-777.txt"])
        self.assertIn(
            f"is from the same run as in handin-{students[1]}.txt", found["handin-777.txt"]
        )

    def test_copied_and_edited(self):
        """With the digests put right, the addresses and figures still tell that two hand-ins
        are one run; not whose."""
        a, b = list(folder["good"])[::3]  # of the same lab
        texts = folder["good"]
        stolen = section(texts[a], "measured")
        stolen = re.sub("LAYOUT.*", layout_line(b), stolen.replace(a, b))
        stolen = re.sub("digest=.*", "digest=" + bench_digest(b), stolen)
        address = [
            re.search("0x[0-9a-f]*, rkey 0x[0-9a-f]*", section(texts[s], "03_read"))[0]
            for s in (a, b)
        ]
        for name, text in {
            "measured": texts[b].replace(section(texts[b], "measured"), stolen),
            "03_read": texts[b].replace(address[1], address[0]),
        }.items():
            with self.subTest(part=name):
                write(f"{self.dir}/handin-{a}.txt", texts[a])
                write(f"{self.dir}/handin-{b}.txt", text)
                found = reports(self.grade())
                for one, other in ((a, b), (b, a)):
                    self.assertIn("Score: 90/100", found[f"handin-{one}.txt"])
                    self.assertIn(
                        f"{name} is from the same run as in handin-{other}.txt",
                        found[f"handin-{one}.txt"],
                    )

    def test_formats(self):
        write(
            f"{self.dir}/=1+handin-{TEMPLATE}.txt",
            within("03_read", "digest=....", "digest=0bad")(folder["good"][TEMPLATE]),
        )
        scores = json.loads(self.grade("FORMAT=autolab").splitlines()[-1])["scores"]
        self.assertEqual((scores["03_read"], scores["measured"]), (0, 20))
        self.grade("FORMAT=gradescope")
        with open(f"{ROOT}/results/results.json", encoding="ascii") as file:
            tests = {test["name"]: test for test in json.load(file)["tests"]}
        self.assertEqual(set(tests), ALL | {*WITH_BLOCKS, "answers"})
        self.assertEqual((tests["03_read"]["score"], tests["03_read"]["max_score"]), (0, 6))
        self.assertIn("digest", tests["03_read"]["output"])
        with open(f"{ROOT}/results/grades.csv", encoding="ascii", newline="") as file:
            row = next(csv.DictReader(file))
        self.assertEqual(
            (row["file"], row["score"], row["of"]),
            (f"'=1+handin-{TEMPLATE}.txt", "94", "100"),
            "a formula, to a spreadsheet",
        )

    def test_rubric(self):
        """Points, parts and what needs what are the instructor's."""
        write(
            f"{self.dir}/handin-{TEMPLATE}.txt",
            within("03_read", "digest=....", "digest=0bad")(folder["good"][TEMPLATE]),
        )
        rubric = tempfile.NamedTemporaryFile("w", suffix=".txt")
        rubric.write("04_atomic 7 needs=03_read\n03_read 1\nown 3\nsizes 4K,16K,64K,256K\n")
        rubric.flush()
        grade = ["grading/grade.py", "--rubric", rubric.name, self.dir]
        out = command(*grade).stdout
        self.assertIn("Score: 3/11", out)
        self.assertIn("== 04_atomic == FAIL (0/7)\n     it needs 03_read, which", out)
        rubric.write("measured 1 needs=chosen\nchosen 1 needs=measured\n")
        rubric.flush()
        self.assertIn("Score: 5/13", command(*grade, timeout=600).stdout)
        for line in (
            "nothing 5",
            "own",
            "own -1",
            "own 3\nown 4",
            "own 1 needs=x",
            "sizes 0K",
            "sizes 4K,",
            "sizes 8M",
            "sizes 65M",
            "sizes 4K" + 40 * ",4K",
        ):
            with self.subTest(line=line):
                rubric.seek(0)
                rubric.truncate()
                rubric.write("sizes 4K\n" + line + "\n")
                rubric.flush()
                self.assertEqual(command(*grade).returncode, 2)

    def test_total(self):
        """Text and program in one table: a text counts beside a program that was graded, and what it
        measured only if that is what the program takes. No two rows of grade-program but these are read.
        """
        text, write_all = folder["good"][TEMPLATE], f"{self.dir}/x/programs.jsonl"
        os.makedirs(f"{self.dir}/class/{TEMPLATE}/program")
        os.makedirs(f"{self.dir}/x")
        write(f"{self.dir}/class/{TEMPLATE}/program/p.c", "int main(void) { return 0; }\n")
        write(f"{self.dir}/class/{TEMPLATE}/handin-{TEMPLATE}.txt", text)
        write(f"{self.dir}/x/roster", f"{TEMPLATE},Zhang\n777,Li\n")
        write(f"{self.dir}/x/answers", f"{TEMPLATE};50\n")
        figures = {
            f"{m[1]} {m[2]} {m[3]}": [float(m[4]), float(m[5])]
            for m in re.finditer(
                "BENCH method=(\\w+) block_size=(\\d+) .*bytes=(\\d+) .*lat_p50_us=(\\S+) .*bw_MBps=(\\S+)",
                text,
            )
        }
        self.assertGreater(len(figures), 50)
        with tempfile.TemporaryDirectory() as scratch:
            digest = collect.collect(f"{self.dir}/class", "05", scratch)[0].digest()
        kernel = re.search("kernel=(\\S+)", text)[1]

        def total(rows, *more):
            with open(write_all, "w", encoding="ascii") as file:
                file.writelines(
                    json.dumps(
                        {
                            "digest": digest,
                            "student": TEMPLATE,
                            "lab": "05",
                            "seed": "7",
                            "score": 80,
                            "of": {"sgl": "100"},
                            "points": {"sgl": 80},
                            "why": {"sgl": "not so"},
                            "kernel": kernel,
                            **row,
                        }
                    )
                    + "\n"
                    for row in rows
                )
            ended = command(
                "grading/grade.py",
                "--programs",
                write_all,
                "--csv",
                f"{self.dir}/x/g.csv",
                "--feedback",
                f"{self.dir}/x/feedback",
                *more,
                f"{self.dir}/class",
            )
            self.assertEqual(ended.returncode, 0, ended)
            with open(f"{self.dir}/x/g.csv", encoding="ascii", newline="") as file:
                return ended.stdout, list(csv.DictReader(file))

        def slower(times, only="", here=None):
            """Both rounds; only: some points; here: bandwidth has another factor."""
            return {
                point: [[p50 * times, bw / (here or times)] if only in point else [p50, bw]] * 2
                for point, (p50, bw) in figures.items()
            }

        one_round = slower(1)
        one_round["sgl 64 65536"] = [one_round["sgl 64 65536"][0], slower(2)["sgl 64 65536"][0]]
        for figures_there, more, expected in (
            (slower(1), (), 62),
            (slower(1.025), (), 62),
            (slower(1.04), (), 44),
            (slower(1.1), (), 44),
            (slower(0.95), (), 44),
            (slower(1.04, "sgl"), (), 44),
            (slower(0.96, "128 "), (), 44),
            (one_round, (), 62),
            (slower(1, "sgl 64 ", 1.1), (), 62),
            (slower(1, "sgl 64 ", 1.3), (), 44),
            (slower(1.2, "sgl 64 "), (), 44),
            ({}, (), 44),
            (slower(1.1), ("--answers", f"{self.dir}/x/answers"), 59),
        ):
            out, rows = total([{"figures": figures_there}], *more)
            self.assertEqual(float(rows[0]["total"]), expected, out)
            self.assertIn("== program: sgl == FAIL (80/100)\n     not so", out)
            self.assertEqual((rows[0]["program"], rows[0]["seed"]), ("80", "7"))
        self.assertIn("us and", rows[0]["first_reason"])
        out, rows = total(
            [{"figures": slower(1.05), "prints": True}]
        )  # which is not measured where it prints
        self.assertEqual(float(rows[0]["total"]), 62, out)
        out, rows = total([{"figures": slower(1), "own": "the server does not pass"}])
        self.assertEqual((rows[0]["chosen"], rows[0]["measured"]), ("0", "20"), out)
        self.assertIn("the server does not pass", out)
        out, rows = total(
            [{"figures": slower(1), "why": {"itself": "measuring: it does not go on to the end\n"}}]
        )
        self.assertEqual(float(rows[0]["total"]), 44, out)

        def other_kernel(packets, only="", times=1.0):
            """Where packets take so many times as long, and what else a method does, as long; some are slower than that."""
            longer, found = packets - 1, {}
            for point, (p50, bw) in figures.items():
                one, whole = figures["contig " + point.partition(" ")[2]]
                slower = times if only in point else 1
                found[point] = [
                    [(p50 + longer * one) * slower, 1 / (1 / bw + longer / whole) / slower]
                ] * 2
            return found

        for figures_there, expected in (
            (other_kernel(1.3), 62),
            (other_kernel(0.5), 62),
            (other_kernel(1.3, "sgl", 1.1), 44),
            (other_kernel(0.5, "sgl 128 ", 0.6), 44),
            (other_kernel(1, "each 64 ", 1.5), 44),
        ):
            out, rows = total([{"figures": figures_there, "kernel": "9.9"}])
            self.assertIn("not on 9.9: what one piece takes there is believed", out)
            self.assertEqual(float(rows[0]["total"]), expected, out)
        os.makedirs(
            later := f"{self.dir}/class/later"
        )  # a text alone: the program of before counts with it
        write(f"{later}/handin-{TEMPLATE}.txt", text)
        os.utime(f"{later}/handin-{TEMPLATE}.txt", (4e9, 4e9))
        for figures_there, expected in ((slower(1), 62), (slower(1.1), 44)):
            out, rows = total([{"figures": figures_there}])
            self.assertEqual(
                [(row["counts"], float(row["total"])) for row in rows],
                [("no", expected), ("yes", expected)],
                out,
            )
        shutil.rmtree(later)
        out, rows = total(
            [{"figures": slower(1), "digest": "another's"}], "--roster", f"{self.dir}/x/roster"
        )
        self.assertEqual(
            [(row["student"], row["total"]) for row in rows], [(TEMPLATE, "0.0"), ("777", "0")]
        )
        self.assertIn("the text counts for nothing", out)
        with open(f"{self.dir}/x/feedback/{TEMPLATE}.txt", encoding="ascii") as file:
            self.assertIn("Score: 100/100", file.read())
        with open(f"{self.dir}/x/g.json", encoding="ascii") as file:
            self.assertEqual([row["student"] for row in json.load(file)], [TEMPLATE, "777"])

    def test_latest(self):
        """Of several hand-ins of one student the latest counts; both are graded."""
        for n, when in (("1", 2000), ("2", 1000)):
            write(f"{self.dir}/{n}_handin-{TEMPLATE}.txt", folder["good"][TEMPLATE])
            os.utime(f"{self.dir}/{n}_handin-{TEMPLATE}.txt", (when, when))
        self.grade()
        with open(f"{ROOT}/results/grades.csv", encoding="ascii", newline="") as file:
            self.assertEqual([row["counts"] for row in csv.DictReader(file)], ["yes", "no"])

    def test_command_line(self):
        """Wrong words: exit status 2, a reason, nothing graded."""
        write(f"{self.dir}/handin-1.txt", "")
        os.mkdir(f"{self.dir}/.empty")
        for words in (
            (),
            ("--student", "a/b"),
            ("--student", ""),
            ("/none",),
            ("--format", "x"),
            ("--rubric", "/none", self.dir),
            ("--reference", "README.md", self.dir),
            (f"{self.dir}/handin-1.txt",),
            (f"{self.dir}/.empty",),
            ("--csv", "/none/x.csv", self.dir),
        ):
            with self.subTest(words=words):
                ended = command("grading/grade.py", *words)
                self.assertEqual(ended.returncode, 2, ended)
                self.assertRegex(ended.stderr, "grade.py: error: .|which student")


if __name__ == "__main__":
    main()
