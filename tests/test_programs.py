# SPDX-License-Identifier: BSD-2-Clause
"""make grade-program: tells the reference from copies of it with one thing wrong each."""
import base64
import glob
import json
import os
import re
import sys
import tempfile
import time
import unittest

import mistakes
from samples import ROOT, WITH_BLOCKS, ran, read, some, write

sys.path.append(f"{ROOT}/learn")
import starter  # noqa: E402  pylint: disable=wrong-import-position


PLANTED = mistakes.read("grade")
CHOSEN = {}  # by lab, and by name
for number in WITH_BLOCKS:
    number = number[:2]
    wrong = {each.name: each for each in PLANTED if each.lab == number and each.part != "right"}
    CHOSEN[number] = some(wrong)


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ran(["make", "-s", "all"], check=True)
        cls.dir = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="programs."))
        for lab in CHOSEN:
            cls.plant(lab)

    @classmethod
    def plant(cls, lab):
        file = glob.glob(f"{ROOT}/{lab}_*/*.c")[0]
        source = read(file)
        programs = {"right": source}
        if lab == "05":
            programs["starter"] = starter.starter(source, starter.places()[lab])
            for name in "hostile", "greedy":
                programs[name] = read(f"tests/mistakes/{name}.c").replace("ROOT", ROOT)
        right = [each for each in PLANTED if (each.lab, each.part) == (lab, "right")]
        programs |= {each.name: each.program() for each in (*CHOSEN[lab].values(), *right)}
        for name, text in programs.items():
            folder = f"{cls.dir}/{lab}/{name}"
            copied = "a copy (1).c" if name == "another" else os.path.basename(file)
            write(f"{folder}/{copied}", text)
            of = CHOSEN[lab].get(name)  # the others are compiled where they are graded
            if of and of.part != "builds" and "sanitizers" not in of.reason:
                cls.compile(folder, os.path.basename(file))
            for name in os.listdir(folder):  # written where it is tomorrow
                os.utime(f"{folder}/{name}", (time.time() + 86400,) * 2)

    @staticmethod
    def compile(folder, file):
        """Here, where it takes a twentieth: what is handed in is the program as text, with a Makefile of its own."""
        files = glob.glob(f"{ROOT}/common/*.c") + glob.glob(f"{ROOT}/blocks/*.c")
        objects = [f"{ROOT}/build/objects/{os.path.basename(name)[:-2]}.o" for name in files]
        flags = f"-O2 -w -s -I{ROOT}/common -I{ROOT}/blocks -o program".split()
        ran(["gcc", *flags, file, *objects, "-libverbs"], cwd=folder, check=True)
        with open(f"{folder}/program", "rb") as built, open(f"{folder}/program.h", "wb") as text:
            base64.encode(built, text)
        os.remove(f"{folder}/program")
        write(f"{folder}/{file}", "int main(int argc, char *argv[]); // in program.h\n")
        write(f"{folder}/Makefile", "program: program.h\n\tbase64 -d $< >$@ && chmod +x $@\n")

    def grade(self, lab):
        """All of a lab in one boot, each wrong one by the part that it is to lose."""
        only = [
            f"{each.name}:{part}" for each in CHOSEN[lab].values() for part in each.part.split()
        ] + ["hostile:sgl", "greedy:sgl"]
        only += [
            f"{name}:{part}"
            for name in ("right", "starter", "another")
            for part in ("sgl", "copy", "each", "itself", "verifies", "careful")
        ]
        began = sum(os.times()[:4])
        ended = ran(
            ["make", "-s", "grade-program", f"LAB={lab}", f"DIR={self.dir}/{lab}"],
            env={"ONLY": " ".join(only), "TESTENV_LIMIT": "5000"},
            timeout=None,
        )
        self.assertEqual(ended.returncode, 0, ended)
        self.assertRegex(ended.stdout, r"\A[ -~\n]*\Z", "nothing but printable ASCII")
        found = {part.partition("\n")[0]: part for part in ended.stdout.split("\n#### ")[1:]}
        self.assertIn("Score: 100/100", found["right"])
        self.assertNotIn("FAIL", found["right"])
        self.assertIn("Score: 100/100", found.get("another", found["right"]))
        for each in CHOSEN[lab].values():
            with self.subTest(program=each.name):
                self.assertIn(f"== {each.part.split()[-1]} == FAIL (0/", found[each.name])
                self.assertRegex(found[each.name], each.reason)
        print(
            f"ok - programs: {lab}: {len(CHOSEN[lab])} wrong ones told from the right one, "
            f"in {sum(os.times()[:4]) - began:.0f} s of CPU",
            flush=True,
        )
        return found

    def test_05(self):
        found = self.grade("05")
        self.assertIn("Score: 10/100", found["starter"])  # it builds
        self.assertIn("== sgl == FAIL", found["greedy"])
        self.assertRegex(found["hostile"], "seen 0 written 0 as 600[0-9][0-9]")
        self.assertFalse(os.path.exists(f"{ROOT}/results/by-a-student"))

    def test_06(self):
        self.grade("06")

    def test_07(self):
        self.grade("07")

    def test_a_class_goes_on_where_it_was_stopped(self):
        """What is graded stays, and is not graded again, unless another SEED is asked for."""
        folder, results = f"{self.dir}/class", f"{self.dir}/found/programs.jsonl"
        for name in ("a", "b", "c"):  # of two of them the same
            write(
                f"{folder}/{name}/p.c", f"int main(void) {{ return {name.replace('b', 'a')}; }}\n"
            )

        def grade(names, **more):
            """Returns what was said; names: who was graded in this run."""
            env = {"RESULTS": results, **more}
            ended = ran(["make", "-s", "grade-program", f"DIR={folder}"], env=env)
            self.assertEqual(ended.returncode, 0, ended)
            graded = re.findall(r"#### (.)\n== builds == FAIL", ended.stdout)
            self.assertEqual("".join(sorted(graded)), names, ended)
            return [json.loads(line) for line in read(results).splitlines() if line[-1:] == "}"]

        first = sorted(grade("abc"), key=lambda row: row["name"])  # several are graded at a time
        # stopped after the first, while it wrote the second
        write(results, json.dumps(first[0]) + "\n" + json.dumps(first[1])[:50])
        rows = grade("bc")
        self.assertEqual(sorted(row["name"] for row in rows), ["a", "b", "c"])
        self.assertEqual(rows[0], first[0])
        write(f"{folder}/c/p.c", read(f"{folder}/c/p.c") + "// changed\n")
        grade("c")
        self.assertEqual({row["seed"] for row in grade("abc", SEED="17")[-3:]}, {"17"})
        grade("", SEED="17")

    def test_usage(self):
        for words in (("04", self.dir), ("05", f"{self.dir}/none"), ()):
            ended = ran([f"{ROOT}/teach/program.py", *words])
            self.assertEqual(ended.returncode, 2, ended)
            self.assertIn("which programs?", ended.stderr)
