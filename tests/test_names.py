#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Names and answers in Chinese pass through hand-in and grading unharmed, in the encodings that people's
editors, spreadsheets and archivers write; and an ID of full-width digits is refused with a reason."""
import csv
import json
import os
import random
import shutil
import struct
import subprocess
import tempfile
import unittest
import zipfile
import zlib

from samples import ROOT, main

TEXT = "HANDIN version=1 student={} lab=05 sizes=4K\n=== answers\n{}\n=== end complete\n"
CODE = "int main(void) { return 0; }\n"
NAME, OTHER = (
    "\u5f20\u4e09",
    "\u6b27\u9633\u00b7\u5a1c\u5a1c",
)  # Zhang San; one with a dot, as of other peoples
WIDE = "".join(chr(ord(digit) + 0xFEE0) for digit in "20260001")
ANSWER = "1. \u4ea4\u53c9\u70b9\u5728\u4e0a\u9762\uff1a\u8def\u5f84 MTU\n2. \u8f6e\u8be2\n"  # with U+4E0A: 0A in UTF-16
ENCODINGS = ("utf-8", "utf-8-sig", "gbk", "gb18030", "utf-16")


def packed(members):
    """A zip as old archivers in Chinese Windows write it: names in GBK, without the flag for UTF-8."""
    body, directory = b"", b""
    for name, content in members.items():
        name, content = name.encode("gbk"), content.encode()
        fields = struct.pack(
            "<HHHHHIIIHH",
            20,
            0,
            0,
            0,
            0x5B21,
            zlib.crc32(content),
            len(content),
            len(content),
            len(name),
            0,
        )
        directory += (
            b"PK\1\2"
            + struct.pack("<H", 20)
            + fields
            + struct.pack("<HHHII", 0, 0, 0, 0, len(body))
            + name
        )
        body += b"PK\3\4" + fields + name + content
    return (
        body
        + directory
        + b"PK\5\6"
        + struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    )


class Names(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="names.")
        self.addCleanup(shutil.rmtree, self.top)
        os.mkdir(f"{self.top}/class")

    def put(self, name, content):
        path = f"{self.top}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def grade(self, *more, status=0, **env):
        ended = subprocess.run(
            [
                f"{ROOT}/grading/grade.py",
                "--csv",
                f"{self.top}/out/g.csv",
                "--feedback",
                f"{self.top}/out/feedback",
                *more,
                f"{self.top}/class",
            ],
            cwd=ROOT,
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **env},
        )
        self.assertEqual(ended.returncode, status, ended)
        return (ended.stdout + ended.stderr).decode("utf-8", "replace")

    def table(self):
        with open(f"{self.top}/out/g.csv", encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))

    def test_roster(self):
        """In every encoding; the name behind the ID or in front of it; with Chinese commas; and with a first line."""
        os.makedirs(f"{self.top}/out")
        self.put("class/handin-2026001.txt", TEXT.format("2026001", ANSWER))
        lines = ("{},{}", "{1},{0}", "{}\uff0c{}", "{}\t{}", '"{}";"{}"', "{}\u3000{}")
        for n, line in enumerate(lines):
            for encoding in (ENCODINGS[n % 5], random.choice(ENCODINGS)):
                roster = "\u5b66\u53f7,\u59d3\u540d\r\n" + "".join(
                    line.format(*who) + "\r\n" for who in (("2026001", NAME), ("2026002", OTHER))
                )
                out = self.grade(
                    "--roster",
                    self.put(
                        "roster.csv", roster.encode(encoding if encoding != "gbk" else "gb18030")
                    ),
                )
                found = [
                    (row["student"], row["name"], row["first_reason"][:7]) for row in self.table()
                ]
                self.assertEqual(
                    [row[:2] for row in found],
                    [("2026001", NAME), ("2026002", OTHER)],
                    encoding + line,
                )
                self.assertEqual(found[1][2], "nothing")
                self.assertRegex(out, f"2026002 +{OTHER}")
        with open(f"{self.top}/out/g.json", encoding="utf-8") as file:
            self.assertEqual(json.load(file)[0]["name"], NAME)
        with open(f"{self.top}/out/g.csv", "rb") as file:
            self.assertEqual(
                file.read(3), b"\xef\xbb\xbf", "or a spreadsheet takes it for another encoding"
            )

    def test_names_of_files(self):
        """As platforms and students call them: the text and the program are found, and the name is shown whole."""
        os.makedirs(f"{self.top}/out")
        text, names = TEXT.format("{}", ANSWER), []
        for n, name in enumerate(
            (
                f"{NAME}_2026{{0}}_assignsubmission_file_",
                f"2026{{0}}-{NAME}",
                f"{NAME}2026{{0}}",
                f"{NAME}\uff08\u4f5c\u4e1a\uff09",
                OTHER,
            )
        ):
            student = f"2026{n:03}"
            names.append(name.format(f"{n:03}"))
            self.put(f"class/{names[-1]}/handin-{student}.txt", text.format(student))
            self.put(f"class/{names[-1]}/\u7a0b\u5e8f/\u4e3b\u51fd\u6570.c", CODE)
        for n, name in enumerate(
            (
                f"{NAME}_77_88_handin-2026{{0}}.zip",
                f"2026{{0}}-{NAME}-\u4f5c\u4e1a\u4e94.zip",
                f"{NAME}\u7684\u4f5c\u4e1a.zip",
            ),
            50,
        ):
            student = f"2026{n:03}"
            content = packed(
                {
                    f"{NAME}/handin-{student}.txt": text.format(student),
                    f"{NAME}/\u7a0b\u5e8f\u8bb8/\u4e3b\u51fd\u6570.c": CODE,
                }
            )
            names.append(name.format(f"{n:03}"))
            self.put(f"class/{names[-1]}", content)
        out = self.grade()
        rows = {row["student"]: row["file"] for row in self.table()}
        self.assertEqual(
            sorted(rows), sorted([f"2026{n:03}" for n in (*range(5), *range(50, 53))]), out
        )
        for student, name in zip(sorted(rows), names):
            shown = name.split("_assign")[0] if "_assign" in name else name.split("_88_")[0]
            self.assertIn(rows[student], (shown, name))
            self.assertIn(f"#### {rows[student]}, student {student}", out)
            self.assertTrue(os.path.exists(f"{self.top}/out/feedback/{student}.txt"))
        self.assertNotIn("can't be read", out)

    def test_archive_of_a_class(self):
        """One zip of all, made in Chinese Windows: each student's folder has its name."""
        os.makedirs(f"{self.top}/out")
        os.rmdir(f"{self.top}/class")
        self.put(
            "class",
            packed(
                {
                    f"{name}\\handin-{n}.txt": TEXT.format(n, ANSWER)
                    for n, name in enumerate((NAME, "\u8bb8\u56db"), 1)
                }
            ),
        )
        out = self.grade()
        self.assertEqual(
            [(row["file"], row["student"]) for row in self.table()],
            [(NAME, "1"), ("\u8bb8\u56db", "2")],
            out,
        )

    def test_where_chinese_cannot_be_printed(self):
        os.makedirs(f"{self.top}/out")
        self.put(f"class/{NAME}/handin-1.txt", TEXT.format("1", ANSWER))
        out = self.grade(PYTHONIOENCODING="ascii")
        self.assertIn("#### ??, student 1", out)
        self.assertEqual(self.table()[0]["file"], NAME)

    def test_what_a_terminal_obeys(self):
        """Of names and lines, nothing but letters is shown: no escape, no change of direction, no accents on end."""
        os.makedirs(f"{self.top}/out")
        bad = "\x1b[2J\u202e\u0301\u200b\x9b\ue000"
        self.put(f"class/{NAME}{bad}/handin-1.txt", bad + "\n" + TEXT.format("1", ANSWER))
        self.put("roster", f"1,{NAME}{bad}\n")
        out = self.grade("--roster", f"{self.top}/roster")
        self.assertIn(NAME + "?[2J?????", out)
        for character in bad.replace("[2J", ""):
            self.assertNotIn(character, out + json.dumps(self.table(), ensure_ascii=False))

    def test_full_width_digits(self):
        """In the text's first line, in a roster and on make handin's command line: refused, and why."""
        os.makedirs(f"{self.top}/out")
        for encoding in ("utf-8", "utf-16"):
            self.put("class/handin-x.txt", TEXT.format(WIDE, ANSWER).encode(encoding))
            out = self.grade()
            self.assertIn("full-width digits or letters instead of 20260001", out)
            self.assertIn("Score: 0/100", out)
        roster = self.put("roster", f"{WIDE},{NAME}\n")
        self.assertIn(
            "full-width digits or letters instead of 20260001",
            self.grade("--roster", roster, status=2),
        )
        for student in (WIDE, "2026\uff10", NAME):
            ended = subprocess.run(
                ["make", "-s", "handin", f"STUDENT={student}"],
                cwd=ROOT,
                check=False,
                text=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                errors="replace",
            )
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn(
                "which student?"
                if student == NAME
                else "full-width digits or letters instead of 2026",
                ended.stderr,
            )

    def test_answers(self):
        """make handin writes them in UTF-8, whatever they were; here where there is no device to run on."""
        for encoding in ENCODINGS:
            answers = self.put("\u7b54\u6848.txt", ANSWER.encode(encoding))
            program = f"{self.top}/\u6211\u7684\u7a0b\u5e8f"
            self.put("\u6211\u7684\u7a0b\u5e8f/\u5de5\u5177.h", "\n")
            self.put("\u6211\u7684\u7a0b\u5e8f/p.c", CODE)
            self.put("\u6211\u7684\u7a0b\u5e8f/Makefile", "SAMPLE = p\nall:\n")
            ended = subprocess.run(
                ["grading/handin.sh", "x-zh", "05", program, answers],
                cwd=ROOT,
                check=False,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "TESTENV": "native"},
            )
            self.assertEqual(ended.returncode, 1, ended)
            shutil.rmtree(f"{self.top}/class", ignore_errors=True)
            os.makedirs(f"{self.top}/class")
            os.makedirs(f"{self.top}/out", exist_ok=True)
            os.rename(f"{ROOT}/handin-x-zh.txt", f"{self.top}/handin.txt")
            shutil.move(f"{ROOT}/handin-x-zh.zip", f"{self.top}/class")
            with zipfile.ZipFile(f"{self.top}/class/handin-x-zh.zip") as archive:
                self.assertIn("program/\u5de5\u5177.h", archive.namelist())
                texts = [archive.read("handin-x-zh.txt")]
            with open(f"{self.top}/handin.txt", "rb") as file:
                texts.append(file.read())
            for text in texts:
                self.assertIn(
                    f"=== answers\n{ANSWER}=== end failed", text.decode("utf-8"), encoding
                )
            out = self.grade()
            self.assertIn("== answers == OK", out)
            self.assertNotIn("isn't as make handin packed it", out)


if __name__ == "__main__":
    main()
