# SPDX-License-Identifier: BSD-2-Clause
"""Hand-ins in the shapes that learning platforms give them, and archives that mean harm."""
import os
import shutil
import stat
import sys
import tempfile
import unittest
import zipfile

from grading_class import ended, packed
from samples import ROOT, ran, read, write

sys.path += [f"{ROOT}/teach", f"{ROOT}/learn"]
# pylint: disable=wrong-import-position
import collect
import starter

CODE = "int main(void) { return 0; }\n"


def handin(student, lab="05", code=CODE):
    files = {"runs/machine.txt": "ENV\n", "program/p.c": code, "program/Makefile": "SAMPLE = p\n"}
    return ended(files, student, lab)


class Folder(unittest.TestCase):
    def setUp(self):
        self.dir = self.enterContext(tempfile.TemporaryDirectory(prefix="collect."))
        self.scratch = self.enterContext(tempfile.TemporaryDirectory(prefix="collect."))

    def put(self, name, content=CODE):
        """A file; or a zip, of a dictionary of files."""
        content = packed(content) if isinstance(content, dict) else content
        return write(os.path.join(self.dir, name), content)

    def unpacked(self, folder, files):
        for name, content in files.items():
            self.put(f"{folder}/{name}", content)


class Collect(Folder):
    def found(self, where="."):
        return {h.name: h for h in collect.collect(os.path.join(self.dir, where), self.scratch)}

    def whole(self, found, student, lab="05"):
        self.assertEqual((found.student, found.lab, found.refused), (student, lab, ""), vars(found))
        names = sorted(map(os.path.basename, found.program))
        self.assertEqual((names, found.remarks), (["Makefile", "p.c"], []), vars(found))

    def test_shapes(self):
        """Nested or not, with what Canvas, Blackboard and Moodle put in front; packed, unpacked, packed once more."""
        names = (
            "zhangsan_LATE_12_345_handin-1.zip",
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
        self.whole(self.found("repository")["repository"], "5")

    def test_one_archive_for_the_class(self):
        files = {f"class/{s}/handin.zip": packed(handin(s)) for s in "ab"}
        # as much as many hand-ins
        self.put("all.zip", {**files, "class/c/long.pdf": bytes(9 << 20)})
        found = self.found("all.zip")
        self.assertIn("it is a .pdf file", found["all.zip/class/c/long.pdf"].refused)
        for s in "ab":
            self.whole(found[f"all.zip/class/{s}/handin.zip"], s)
        self.put("all.zip", {"x.zip": packed({"y.zip": packed(handin("c"))})})
        self.assertIn("a zip without the manifest", self.found()["all.zip"].refused)

    def test_anything_else(self):
        """One sentence: what it is, and what to do."""
        self.put("handin-1.txt", "HANDIN version=1 student=1 lab=05\n")
        self.put("old.zip", {"MANIFEST": "", "handin-1.txt": "x"})
        self.put("b/manifest", "HANDIN version=2 student=a/b lab=05 sizes=4K\n")
        self.put("c/p.c")
        os.symlink("/etc/passwd", f"{self.dir}/link.zip")
        os.mkfifo(f"{self.dir}/f.zip")
        again = "run make handin again and hand in its zip"
        self.assertEqual(
            {name: h.refused for name, h in self.found().items()},
            {
                "handin-1.txt": f"it is a .txt file, no zip: {again}",
                "old.zip": f"it is a zip without the manifest of make handin: {again}",
                "b": f"its manifest names no student and lab: {again}",
                "c": f"it is a program without make handin's manifest: {again}",
                "link.zip": f"it is a link or a device: {again}",
                "f.zip": f"it is a link or a device: {again}",
            },
        )

    def test_programs_alone(self):
        """As grade-program takes them: a folder of folders, or one program's own; not beside hand-ins."""

        def programs(where=".", lab="05"):
            found = collect.programs(os.path.join(self.dir, where), self.scratch, lab)
            files = [os.path.relpath(f, h.base) for h in found for f in h.program]
            return [(h.name, h.lab) for h in found], files

        for name in ("one/Makefile", "one/a (1).c", "one/built", "two/main.c", "two/help/help.h"):
            self.put(name)
        one = ["Makefile", "a (1).c"]
        self.assertEqual(programs("one", "06"), ([("one", "06")], one))
        both = ([("one", "05"), ("two", "05")], [*one, "main.c", "help/help.h"])
        self.assertEqual(programs(), both)
        self.assertEqual(programs(lab="04"), ([], []))
        self.put("one/handin.zip", handin("1"))
        self.assertEqual(programs()[0], [("one/handin.zip", "05")])
        self.assertEqual(programs(lab="06")[0], [])

    def test_hostile_archives(self):
        """Each is refused for a reason, or is as if it had no such files; nothing gets out of its place."""
        good = handin("1")
        bomb = packed({**good, "runs/03_read.txt": bytes(9 << 20)})
        for name, content in {
            ": up.zip": {**good, "../../evil.c": CODE},
            ": back.zip": {**good, "..\\evil.c": CODE},
            ": root.zip": {**good, f"{self.dir}/evil.c": CODE},
            "more than 500 files: many.zip": {**good, **{f"{n}.c": "" for n in range(600)}},
            "20 folders: deep.zip": {**good, "a/" * 900 + "p.c": ""},
            "8 MiB: bomb.zip": bomb,
            ": liar.zip": bomb.replace((9 << 20).to_bytes(4, "little"), bytes(4)),
            "can't be read: cut.zip": packed(good)[:400],
        }.items():
            self.put(name, content)
        found = self.found()
        self.assertEqual(len(found), 8)
        for name, h in found.items():
            self.assertIn(name.split(":")[0], h.refused, name)
        for name in ("up", "back", "root"):
            self.whole(found[f": {name}.zip"], "1")
        held = list(collect.files_of(self.scratch))
        self.assertLess(max(map(os.path.getsize, held)), 1 << 20)
        for place in (self.dir, os.path.dirname(self.scratch), os.path.dirname(self.dir)):
            self.assertFalse(os.path.exists(f"{place}/evil.c"))

    def test_links_and_devices(self):
        """In an archive: a file that make handin has not packed. In a folder: as if they weren't there."""
        good = handin("1")
        with zipfile.ZipFile(f"{self.dir}/t.zip", "w") as archive:
            for name, text in good.items():
                archive.writestr(name, text)
            info = zipfile.ZipInfo("program/l.c")
            info.external_attr = (stat.S_IFLNK | 0o644) << 16
            archive.writestr(info, "/etc/passwd")
        self.unpacked("s", good)
        os.symlink("/etc", f"{self.dir}/s/program/etc")
        os.symlink("/etc/passwd", f"{self.dir}/s/program/q.c")
        os.mkfifo(f"{self.dir}/s/program/f.c")
        self.unpacked("u", {"manifest": good["manifest"]})
        os.symlink(f"{ROOT}/03_read", f"{self.dir}/u/program")
        found = self.found()
        self.whole(found["s"], "1")
        link = found["t.zip"]
        self.assertEqual(link.remarks, ["program/l.c isn't as make handin packed it"])
        self.assertFalse(any(map(os.path.islink, link.program)))
        self.assertEqual(found["u"].program, [])


class Similar(Folder):
    @unittest.skipUnless(shutil.which("sim_c"), "no sim_c here")
    def test_pairs_of_programs(self):
        """A copy with other names and comments is found; what all have from the starter is not; who has
        the sample's solution is told."""
        sample = read("05_gather_write/gather_write.c")
        given = starter.starter_of("05")
        own = "".join(
            f"static int f{n}(int a) {{\n    int b = a * {n} + g{n}(a);\n    while (b > {n}) b -= a;\n"
            "    return b;\n}\n"
            for n in range(30)
        )
        copied = own.replace("b", "result").replace("a *", "value /* mine */ *")
        copied = copied.replace("int a", "int value")
        for name, code in {
            "solution": sample,
            "author": given + own,
            "copier": given + copied,
        }.items():
            self.put(f"{name}/p.c", code)
        out = ran([f"{ROOT}/teach/similar.py", "05", self.dir], check=True).stdout
        self.assertRegex(
            out,
            r"\A100 %  solution.* of  the sample's solution\n *(9\d|100) %  author .*  of  copier .*\n"
            r"# 3 programs\n\Z",
        )
