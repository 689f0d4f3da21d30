#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Hand-ins in the shapes that learning platforms give them, and archives that mean harm."""
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
import zipfile

from grading_class import ended, packed, write
from samples import ROOT, main

sys.path += [f"{ROOT}/teach", f"{ROOT}/learn"]
# pylint: disable=wrong-import-position
import collect
import starter

CODE = "int main(void) { return 0; }\n"


def handin(student, lab="05", code=CODE):
    files = {"runs/machine.txt": "ENV\n", "program/p.c": code, "program/Makefile": "SAMPLE = p\n"}
    return ended(files, student, lab)


class Folder(unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.dir, self.scratch = (tempfile.mkdtemp(prefix="collect.") for _ in range(2))
        self.addCleanup(shutil.rmtree, self.dir)
        self.addCleanup(shutil.rmtree, self.scratch)

    def put(self, name, content=CODE):
        """A file; or a zip, of a dictionary of files."""
        content = packed(content) if isinstance(content, dict) else content
        return write(os.path.join(self.dir, name), content)

    def unpacked(self, folder, files):
        for name, content in files.items():
            self.put(f"{folder}/{name}", content)


class Collect(Folder):
    def found(self, lab="05", where=".", one=False):
        found = collect.collect(os.path.join(self.dir, where), lab, self.scratch, one)
        return {s.name: s for s in found}

    def whole(self, found, student, lab="05"):
        self.assertEqual((found.student, found.lab, found.refused), (student, lab, ""), vars(found))
        names = sorted(os.path.basename(f) for f in collect.files_of(found.program))
        self.assertEqual(names, ["Makefile", "p.c"], vars(found))

    def test_shapes(self):
        """Nested or not, with what Canvas, Blackboard and Moodle put in front; packed, unpacked, packed once more."""
        late = "zhangsan_LATE_12_345_handin-1.zip"
        names = (
            late,
            "Lab_li_attempt_2026-11-01_handin-2.zip",
            "Wang Wu_77_assignsubmission_file_/handin-3.zip",
            "\u5f20\u4e09/deep/er/whatever (1).zip",
        )
        for n, name in enumerate(names, 1):
            self.put(name, handin(str(n), "06"))
        self.unpacked("repository", {**handin("5"), ".git/config": "x", "__MACOSX/._x": "x"})
        again = {f"a b/{name}": text for name, text in handin("6").items()}
        self.put("again.zip", {**again, "__MACOSX/._x": "x", ".DS_Store": "x"})
        self.put("Lab_li_attempt_2026-11-01.txt", "receipt\n")
        found = self.found()
        self.assertEqual(set(found), {*names, "repository", "again.zip/a b"})
        for n, name in enumerate(names, 1):
            self.whole(found[name], str(n), "06")
        self.whole(found["repository"], "5")
        self.whole(found["again.zip/a b"], "6")
        self.assertEqual(found[late].remarks, ["marked LATE by the platform"])

    def test_one_archive_for_the_class(self):
        self.put("all.zip", {f"class/{s}/handin.zip": packed(handin(s)) for s in "ab"})
        found = self.found(where="all.zip")
        for s in "ab":
            self.whole(found[f"all.zip/class/{s}/handin.zip"], s)
        self.whole(self.found()["all.zip/class/a/handin.zip"], "a")
        self.put("all.zip", {"x.zip": packed({"y.zip": packed(handin("c"))})})
        self.assertIn("a zip without the manifest", self.found()["all.zip"].refused)

    def test_anything_else(self):
        """One sentence: what it is, and what to do."""
        self.put("handin-1.txt", "HANDIN version=1 student=1 lab=05\n")
        self.put("a.tar.gz", b"\x1f\x8b")
        self.put("report.docx", {"word/document.xml": "x"})
        self.put("old.zip", {"MANIFEST": "", "handin-1.txt": "x"})
        self.put("empty.zip", {})
        self.put("b/manifest", "HANDIN version=2 student=a/b lab=05 sizes=4K\n")
        self.unpacked("c", {"p.c": CODE})
        os.symlink("/etc/passwd", f"{self.dir}/link.zip")
        os.mkfifo(f"{self.dir}/f.zip")
        found = self.found()
        for name, reason in {
            "handin-1.txt": "a .txt file, no zip",
            "a.tar.gz": "a .gz file, no zip",
            "report.docx": "a zip without the manifest of make handin",
            "old.zip": "a zip without the manifest",
            "empty.zip": "a zip without the manifest",
            "b": "its manifest names no student and lab",
            "c": "a program without make handin's manifest",
            "link.zip": "a link or a device",
            "f.zip": "a link or a device",
        }.items():
            self.assertIn(reason, found[name].refused)
            self.assertTrue(
                found[name].refused.endswith("run make handin again and hand in its zip")
            )
        self.assertEqual(len(found), 9)

    def test_one_students(self):
        """All in a folder being one student's, as in a bundle: what else lies there doesn't count."""
        self.put("a.pdf", "x")
        self.put("handin-1.zip", handin("1"))
        (found,) = self.found(one=True).values()
        self.whole(found, "1")
        os.remove(f"{self.dir}/handin-1.zip")
        self.assertEqual(len(self.found(one=True)), 1)

    def test_programs_alone(self):
        """As grade-program is given them: a folder of folders, or one program's own."""
        for name in ("one/gather_write.c", "two/main.c", "two/help/help.c"):
            self.put(name)
        self.assertEqual(sorted(self.found()), ["one", "two"])
        found = [(s.program, s.lab) for s in self.found("05", "one").values()]
        self.assertEqual(found, [(f"{self.dir}/one", "05")])

    def test_edited(self):
        """What was changed after make handin packed it is named; also what is more, or not there."""
        good = handin("1")
        for name, change in {
            "program/p.c": lambda files: files.update({"program/p.c": CODE + " "}),
            "program/q.h": lambda files: files.update({"program/q.h": ""}),
            "program/Makefile": lambda files: files.pop("program/Makefile"),
        }.items():
            files = dict(good)
            change(files)
            self.put("handin.zip", files)
            (found,) = self.found().values()
            self.assertEqual(len(found.remarks), 1, found.remarks)
            self.assertIn(f"{name} isn't as make handin packed it", found.remarks[0])

    def test_hostile_archives(self):
        """Each is refused for a reason, and nothing gets out of its place."""
        good = handin("1")
        self.put("up.zip", {**good, "../../evil.c": CODE})
        self.put("back.zip", {**good, "..\\evil.c": CODE})
        self.put("root.zip", {**good, "/tmp/evil.c": CODE})
        self.put("many.zip", {**good, **{f"{n}.c": "" for n in range(600)}})
        self.put("deep.zip", {**good, "a/" * 900 + "p.c": ""})
        self.put("bomb.zip", {**good, "runs/03_read.txt": bytes(9 << 20)})
        self.put("junk.zip", b"PK\3\4 no archive")
        self.put("cut.zip", packed(good)[:400])
        liar = packed({**good, "runs/03_read.txt": bytes(9 << 20)})
        self.put("liar.zip", liar.replace((9 << 20).to_bytes(4, "little"), bytes(4)))
        with zipfile.ZipFile(f"{self.dir}/twice.zip", "w") as archive:
            for _ in range(2):
                archive.writestr("manifest", good["manifest"])
        found = self.found()
        for name, reason in (
            ("up.zip", "leads out"),
            ("back.zip", "leads out"),
            ("root.zip", "leads out"),
            ("many.zip", "more than 500 files"),
            ("deep.zip", "more than 20 folders"),
            ("bomb.zip", "or 8 MiB"),
            ("junk.zip", "can't be read"),
            ("cut.zip", "can't be read"),
            ("twice.zip", "can't be read"),
        ):
            self.assertIn(reason, found[name].refused, name)
        held = list(collect.files_of(self.scratch))
        self.assertEqual([f for f in held if "evil" in f], [])
        self.assertLess(max(map(os.path.getsize, held)), 1 << 20)

    def test_links_and_devices(self):
        """In an archive or a folder: as if they weren't there."""
        good = handin("1")
        with zipfile.ZipFile(f"{self.dir}/t.zip", "w") as archive:
            for name, text in good.items():
                archive.writestr(name, text)
            for name, kind in (("l.c", stat.S_IFLNK), ("f.c", stat.S_IFIFO), ("d.c", stat.S_IFCHR)):
                info = zipfile.ZipInfo(f"program/{name}")
                info.external_attr = (kind | 0o644) << 16
                archive.writestr(info, "/etc/passwd")
        self.unpacked("s", good)
        os.symlink("/etc", f"{self.dir}/s/program/etc")
        os.symlink("/etc/passwd", f"{self.dir}/s/program/q.c")
        os.mkfifo(f"{self.dir}/s/program/f.c")
        self.unpacked("u", {"manifest": good["manifest"]})
        os.symlink(f"{ROOT}/03_read", f"{self.dir}/u/program")
        found = self.found()
        for name in ("t.zip", "s"):
            self.whole(found[name], "1")
            self.assertEqual(found[name].remarks, [])
        self.assertIsNone(found["u"].program)


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
            [f"{ROOT}/teach/similar.py", "05", self.dir],
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
