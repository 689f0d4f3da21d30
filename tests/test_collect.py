#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Submissions in the shapes that learning platforms give them, and archives that mean harm."""
import email.message
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zipfile

from samples import ROOT, main

sys.path += [f"{ROOT}/grading", f"{ROOT}/learn"]
# pylint: disable=wrong-import-position
import collect
import starter

TEXT = "HANDIN version=1 student={} lab={} sizes=4K\n=== end complete\n"
CODE = 'int main(void) { return "05_gather_write"[0]; }\n'
MAKEFILE = "SAMPLE = x\ninclude ../common/sample.mk\n"


class Folder(unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.dir, self.scratch = (tempfile.mkdtemp(prefix="collect.") for _ in range(2))
        self.addCleanup(shutil.rmtree, self.dir)
        self.addCleanup(shutil.rmtree, self.scratch)

    def put(self, name, content=CODE):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def zipped(self, name, files):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for member, content in files.items():
                archive.writestr(member, content)
        return self.put(name, out.getvalue())

    def tarred(self, name, members):
        """members: a TarInfo and its content."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for info, content in members:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return self.put(name, out.getvalue())


class Collect(Folder):
    def found(self, lab="05", where=""):
        shutil.rmtree(self.scratch)
        os.mkdir(self.scratch)
        return {
            s.name: s for s in collect.collect(os.path.join(self.dir, where), lab, self.scratch)
        }

    def whole(self, found, student, lab="05", files=1):
        """It has a text and a program, of this student and lab, with so many C files."""
        self.assertEqual((found.student, found.lab, found.refused), (student, lab, ""), vars(found))
        self.assertTrue(found.text and found.program, vars(found))
        sources = [f for f in collect.files_of(found.program) if f.endswith(".c")]
        self.assertEqual(len(sources), files, sources)

    def test_a_folder_each(self):
        self.put("Zhang San_1_assignsubmission_file_/handin-a.txt", TEXT.format("a", "05"))
        self.put("Zhang San_1_assignsubmission_file_/my05/gather_write.c")
        self.put("Zhang San_1_assignsubmission_file_/my05/Makefile", MAKEFILE)
        self.put("b/deep/er/report.txt", TEXT.format("b", "06"))
        self.put("b/deep/er/src/main.c")
        self.put("b/deep/er/src/help/help.c", "int help(void);\n")
        found = self.found()
        self.whole(found["Zhang San_1"], "a")
        self.whole(found["b"], "b", "06", 2)

    def test_a_class_in_a_folder_named_like_one_of_the_suites(self):
        self.put("grading/tests/ann/handin-a.txt", TEXT.format("a", "05"))
        self.put("grading/tests/ann/my05/gather_write.c")
        self.put("grading/tests/ann/grading/old.c")
        self.whole(self.found(where="grading/tests")["ann"], "a")

    def test_an_archive_each(self):
        files = {"x/handin-z.txt": TEXT.format("z", "07"), "x/my07/程序.c": CODE, "__MACOSX/._x": "x"}
        self.zipped("学生.zip", files)
        self.tarred(
            "t.tar.gz",
            [
                (tarfile.TarInfo("a b/handin-t.txt"), TEXT.format("t", "05").encode()),
                (tarfile.TarInfo("a b/p.c"), CODE.encode()),
            ],
        )
        found = self.found()
        self.whole(found["学生.zip"], "z", "07")
        self.whole(found["t.tar.gz"], "t")

    def test_one_archive_for_the_class(self):
        self.zipped(
            "all.zip",
            {
                f"class/{s}/{name}": content
                for s in "ab"
                for name, content in (("handin.txt", TEXT.format(s, "05")), ("p.c", CODE))
            },
        )
        found = self.found(where="all.zip")
        self.whole(found["a"], "a")
        self.whole(found["b"], "b")

    def test_flat(self):
        """With what Canvas, Blackboard, Moodle or the student put in front."""
        for front, student in (
            ("zhangsan_12_345_", "1"),
            ("lisi_LATE_13_346_", "2"),
            ("Lab_li_attempt_2026-11-01_", "3"),
            ("Ü3 RDMA_wu_Versuch_2026-11-01-23-58-41_", "8"),
            ("Wang Wu_77_assignsubmission_file_", "4"),
        ):
            self.put(f"{front}handin-{student}.txt", TEXT.format(student, "05"))
            self.put(f"{front}gather_write.c")
        self.put("handin-5.txt", TEXT.format("5", "05"))
        self.put("handin-6.txt", TEXT.format("6", "05"))
        self.put("20260007_gather_write.c")
        self.put("handin-20260007.txt", TEXT.format("20260007", "05"))
        found = self.found()
        self.whole(found["handin-20260007.txt"], "20260007")
        self.whole(found["zhangsan_12"], "1")
        self.whole(found["lisi_LATE_13"], "2")
        self.assertIn("marked LATE by the platform", found["lisi_LATE_13"].remarks)
        self.whole(found["Lab_li"], "3")
        self.whole(found["Ü3 RDMA_wu"], "8")
        self.whole(found["Wang Wu_77"], "4")
        self.assertEqual([found[f"handin-{n}.txt"].student for n in "56"], ["5", "6"])

    def test_twice(self):
        """Of what a student hands in twice the later one counts, on whatever platform."""
        for front, name in (
            ("li_1_100_", "li_1"),
            ("li_1_200_", "li_1"),
            ("L_li_attempt_2026-11-18-09-02-11_", "L_li"),
            ("L_li_attempt_2026-11-19-09-02-11_", "L_li"),
        ):
            self.zipped(
                f"{front}handin-7.zip",
                {"handin-7.txt": TEXT.format("7", "05"), "program/p.c": CODE + front},
            )
            self.put("L_li_attempt_2026-11-18-09-02-11.txt", "receipt\n")
            found = self.found()
            self.whole(found[name], "7")
            with open(f"{found[name].program}/p.c", encoding="ascii") as file:
                self.assertIn(front, file.read())
            later = time.time() + 100 * len(found)
            os.utime(f"{self.dir}/{front}handin-7.zip", (later, later))

    def test_a_mail(self):
        """As it was saved, with text and program attached; the body quotes something else. A saved page; an
        archive that a mail made a text of."""
        mail = email.message.EmailMessage()
        mail["Subject"] = "Abgabe Übung 3"
        mail.set_content("Grüße\n> HANDIN is attached\n")
        mail.add_alternative("<p>Grüße", subtype="html")
        mail.add_attachment(
            TEXT.format("7", "05"), filename="handin-7 größer.txt", cte="quoted-printable"
        )
        with open(self.zipped("p.zip", {"program/p.c": CODE}), "rb") as file:
            mail.add_attachment(
                file.read(), maintype="application", subtype="zip", filename="p.zip"
            )
        os.remove(f"{self.dir}/p.zip")
        self.put("WG_ Abgabe.eml", mail.as_bytes())
        self.put("a page.mht", mail.as_bytes())
        os.rename(
            self.zipped("8.zip", {"handin-8.txt": TEXT.format("8", "05"), "program/p.c": CODE}),
            f"{self.dir}/8.zip.txt",
        )
        self.put("empty.EML", b"")
        self.put("long.eml", b"Content-Type: text/plain; " + b"a=b; " * 10**6 + b"\n\nx\n")
        found = self.found()
        self.whole(found["WG_ Abgabe.eml"], "7")
        self.whole(found["a page.mht"], "7")
        self.whole(found["8.zip.txt"], "8")
        self.assertEqual((found["empty.EML"].text, found["empty.EML"].refused), (None, ""))
        self.assertIn("can't be read", found["long.eml"].refused)

    def test_text_and_file_in_two_folders(self):
        """Moodle, if it is to take both; and Windows hides .txt behind .c."""
        self.put("Li_88_assignsubmission_onlinetext/onlinetext.html", TEXT.format("8", "05"))
        self.zipped(
            "Li_88_assignsubmission_file/x.zip",
            {"gather_write.c.txt": CODE, "Makefile.txt": MAKEFILE},
        )
        self.whole(self.found()["Li_88"], "8", files=0)

    def test_groups(self):
        """A folder of folders of students; but one archive of two students is nobody's."""
        for group, student in (("A", "1"), ("A", "2"), ("B", "3")):
            self.put(f"course/{group}/{student}/handin.txt", TEXT.format(student, "05"))
            self.put(f"course/{group}/{student}/p.c")
        found = self.found()
        for name in ("1", "2"):
            self.whole(found[name], name)
        self.assertEqual(sorted(s.student for s in found.values()), ["1", "2", "3"])
        self.zipped("course/A/two.zip", {f"{s}/handin.txt": TEXT.format(s, "05") for s in "45"})
        self.assertIn("several students", self.found()["two.zip"].refused)

    def test_programs_alone(self):
        """As grade-program is given them: a folder of folders, or one program's own."""
        self.put("one/gather_write.c")
        self.put("two/gather_write.c")
        self.assertEqual(sorted(self.found()), ["one", "two"])
        self.assertEqual(
            [(s.program, s.lab) for s in self.found("05", "one").values()],
            [(f"{self.dir}/one", "05")],
        )

    def test_the_whole_suite(self):
        """Handed in with everything: the program is the student's, in my05."""
        self.put("s/suite/handin-s.txt", TEXT.format("s", "05"))
        for folder in ("05_gather_write", "06_scatter_read", "my05"):
            self.put(f"s/suite/{folder}/p.c")
            self.put(f"s/suite/{folder}/Makefile", MAKEFILE)
        self.put("s/suite/common/options.c", "int x;\n")
        self.put("s/suite/grading/handin.sh", 'echo "HANDIN version=1 student=$id lab=$lab"\n')
        self.put("other/p.c")
        self.put("s/suite/tests/t.c")
        found = self.found()["s"]
        self.assertTrue(
            found.program.endswith("/my05") and found.text.endswith("handin-s.txt"), vars(found)
        )

    def test_several_texts_and_documents(self):
        old = self.put("s/handin-s.txt", TEXT.format("s", "05"))
        os.utime(old, (1, 1))
        self.put("s/handin-s (1).txt", TEXT.format("s", "06"))
        self.zipped("s/report.docx", {"word/document.xml": TEXT})
        found = self.found()["s"]
        self.assertEqual((found.lab, os.path.basename(found.text)), ("06", "handin-s (1).txt"))
        self.assertIn("not read: report.docx", found.remarks)
        self.assertIn("of 2 texts the latest complete one counts", found.remarks)
        self.put("t/handin.ipynb", TEXT.format("t", "05"))
        found = self.found()["t"]
        self.assertEqual((found.text, found.remarks), (None, ["not read: handin.ipynb"]))

    def test_a_text_in_several_files(self):
        """In the order of their names, but for the first line and the answers. A whole one beside an unfinished one is no
        such thing."""
        self.put("s/header.txt", "HANDIN version=1 student=s lab=06\n=== 01\n")
        self.put("s/answers.txt", "=== answers\n=== end complete\n")
        self.put("s/measured.txt", "=== measured\n")
        self.put("t/handin-t (1).txt", "HANDIN version=1 student=t lab=06\n=== 01\n")
        self.put("t/handin-t.txt", TEXT.format("t", "06"))
        found = self.found()
        with open(found["s"].text, encoding="ascii") as file:
            self.assertEqual(
                re.findall("=== (.*)", file.read()), ["01", "measured", "answers", "end complete"]
            )
        self.assertEqual(
            (found["s"].student, found["s"].remarks), ("s", ["its text is in several files"])
        )
        self.assertEqual(os.path.basename(found["t"].text), "handin-t.txt")
        self.assertEqual(found["t"].remarks, ["of 2 texts the latest complete one counts"])

    def test_manifest(self):
        """What was changed after make handin packed it is named."""
        name = self.put("s/program/p.c")
        digest = subprocess.run(
            ["sha256sum", name], check=True, capture_output=True, text=True
        ).stdout[:64]
        self.put("s/handin-s.txt", TEXT.format("s", "05"))
        self.put("s/MANIFEST", f"{digest}  program/p.c\n{digest}  handin-s.txt\n")
        self.assertEqual(self.found()["s"].remarks, ["handin-s.txt isn't as make handin packed it"])

    def test_hostile_archives(self):
        """Each is refused for a reason, and nothing gets out of its place."""
        self.zipped("up.zip", {"../../evil.c": CODE})
        self.zipped("back.zip", {"..\\evil.c": CODE})
        self.zipped("root.zip", {"/tmp/evil.c": CODE})
        self.zipped("many.zip", {f"{n}.c": "" for n in range(600)})
        self.put("junk.zip", b"PK\3\4 no archive")
        self.put(
            "cut.tar.gz",
            open(self.tarred("x.tgz", [(tarfile.TarInfo("p.c"), os.urandom(5000))]), "rb").read()[
                :900
            ],
        )
        self.tarred("bomb.tgz", [(tarfile.TarInfo("p.c"), bytes(9 << 20))])
        found = self.found()
        for name, reason in (
            ("up.zip", "leads out"),
            ("back.zip", "leads out"),
            ("root.zip", "leads out"),
            ("many.zip", "more than 500 files"),
            ("junk.zip", "can't be read"),
            ("cut.tar.gz", "can't be read"),
            ("bomb.tgz", "or 8 MiB"),
        ):
            self.assertIn(reason, found[name].refused, name)
        self.assertEqual([f for f in collect.files_of(self.scratch) if "evil" in f], [])

    def test_links_and_devices(self):
        """In an archive or a folder: as if they weren't there."""
        link, device, hard = (tarfile.TarInfo(name) for name in ("l.c", "d.c", "h.c"))
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        device.type, hard.type, hard.linkname = tarfile.CHRTYPE, tarfile.LNKTYPE, "/etc/passwd"
        self.tarred(
            "t.tgz",
            [(link, b""), (device, b""), (hard, b""), (tarfile.TarInfo("p.c"), CODE.encode())],
        )
        self.put("s/p.c")
        os.symlink("/etc", f"{self.dir}/s/etc")
        os.symlink("/etc/passwd", f"{self.dir}/s/q.c")
        os.mkfifo(f"{self.dir}/s/f.c")
        os.symlink("/etc", f"{self.dir}/linked")
        found = self.found()
        for name in ("t.tgz", "s"):
            names = [os.path.basename(f) for f in collect.files_of(found[name].program)]
            self.assertEqual(names, ["p.c"], name)
        self.assertIsNone(found["linked"].program)


class Similar(Folder):
    @unittest.skipUnless(shutil.which("sim_c"), "no sim_c here")
    def test_pairs_of_programs(self):
        """A copy with other names and comments is found; what all have from the starter is not; who has
        the sample's solution is told."""
        with open(f"{ROOT}/05_gather_write/gather_write.c", encoding="utf-8") as file:
            sample = file.read()
        own = "".join(
            f"static int f{n}(int a) {{\n    int b = a * {n} + g{n}(a);\n    while (b > {n}) b -= a;\n"
            "    return b;\n}\n"
            for n in range(30)
        )
        self.put("solution/p.c", sample)
        self.put("author/p.c", starter.starter_of("05") + own)
        self.put(
            "copier/p.c",
            starter.starter_of("05")
            + own.replace("b", "result")
            .replace("a *", "value /* mine */ *")
            .replace("int a", "int value"),
        )
        own_names = re.sub(
            r"\b(s|m|l|n|i|first|staging|method|last_of|per_wr|piece)\b", r"my_\1", sample
        )
        self.put("renamed/p.c", re.sub(r"/\*.*?\*/", "", own_names, flags=re.S))
        out = subprocess.run(
            [f"{ROOT}/grading/similar.py", "05", self.dir],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.assertRegex(
            out,
            r"\A *(9\d|100) %  author .*  of  copier .*\n100 %  solution .*  of  the sample's solution\n"
            r" *[6-9]\d %  renamed .*  of  the sample's solution\n# 4 programs\n\Z",
        )


if __name__ == "__main__":
    main()
