# SPDX-License-Identifier: BSD-2-Clause
"""Each starter is its sample but for the places that are to be written; each half-written program
compiles without a warning, runs, and stops where it is not written yet. What is packed for students
has no line of a solution."""
import os
import re
import shutil
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

from places import copy_project
from samples import PROGRAM, ROOT, ran, write
from vm import in_vm

sys.path.append(f"{ROOT}/learn")
import starter  # pylint: disable=wrong-import-position
import words  # pylint: disable=wrong-import-position

WORK = os.path.join(ROOT, "build", "starters")
COPY = os.path.join(WORK, "rdma")
PLACES = starter.places()


def run(*command, cwd=COPY, **env):
    return ran(command, cwd=cwd, env=env)


def made(*words_of_make, cwd=COPY, status=0):
    ended = run("make", "-s", *words_of_make, cwd=cwd)
    assert ended.returncode == status, (words_of_make, ended)
    return ended.stderr


def last(lab):
    """The number of its last TODO."""
    return max(place["number"] for place in PLACES[lab])


def in_chinese():
    return mock.patch.dict(os.environ, LAB_LANG="zh")


def source_of(lab):
    """Where a lab's C file is, from the project's root; and the sample's text."""
    path = starter.sample_of(lab)
    return os.path.relpath(path, ROOT), starter.read(path)


def without_words(source):
    """A program without its comments, and with nothing in its strings."""
    source = re.sub(r"/\*.*?\*/", "", source, flags=re.S)
    return re.sub(r'("(\\.|[^"\\])*"\s*)+', '""', source).split()


def lines_of(text):
    """The lines of code, without comments and blanks."""
    return [re.sub(r"\s+", "", line) for line in re.sub(r"(?s)/\*.*?\*/", "", text).splitlines()]


def solution(source, listed):
    """Of each place its number and the sample's lines."""
    lines = source.split("\n")
    return [(place["number"], lines[slice(*starter.region(lines, place))]) for place in listed]


def secret(lab):
    """The lines that are in the lab's places, and not also in the rest of the sample."""
    _, sample = source_of(lab)
    given = lines_of(starter.starter(sample, PLACES[lab]))
    hidden = sum((region for _, region in solution(sample, PLACES[lab])), [])
    return [line for line in lines_of("\n".join(hidden)) if line not in given]


class Places(unittest.TestCase):
    def test_every_lab_has_some(self):
        self.assertEqual(sorted(PLACES), [sample[:2] for sample in sorted(PROGRAM)])
        for lab, places in PLACES.items():
            numbers = {place["number"] for place in places}
            self.assertIn(numbers, [set(range(1, n + 1)) for n in range(1, 5)], lab)
            self.assertTrue(all(place["what"] and place["see"] for place in places), lab)

    def test_only_what_is_written_differs(self):
        """State K of a lab: TODO 1 to K are written, as in the sample. In Chinese the same, but for comments and strings."""
        with in_chinese():
            chinese = starter.places()
        for lab, places in PLACES.items():
            _, sample = source_of(lab)
            regions = solution(sample, places)
            for written in range(last(lab) + 1):
                with self.subTest(lab=lab, written=written):
                    text = starter.starter(sample, places, written)
                    self.check_state(sample, regions, written, text)
                    with in_chinese():
                        translated = starter.starter(sample, chinese[lab], written)
                    self.assertEqual(without_words(text), without_words(translated))
                    todos = [re.findall(starter.UNWRITTEN, each) for each in (text, translated)]
                    self.assertEqual(todos[0], todos[1])
                    widths = map(words.columns, translated.splitlines())
                    self.assertLessEqual(max(widths), 102)  # closing marks hang
            self.assertEqual(text, sample)

    def check_state(self, sample, regions, written, text):
        for number, region in regions:
            self.assertEqual("\n".join(region) in text, number <= written, number)
        hidden = [line for number, region in regions if number > written for line in region]
        rest = iter(text.splitlines())  # what is not in a place is there, in this order
        for line in sample.splitlines():
            if line not in hidden:
                self.assertIn(line, rest)


STATE = """
import sys, starter
lab, written, directory = sys.argv[1:]
text = starter.starter(starter.read(starter.sample_of(lab)), starter.places()[lab], int(written))
starter.write(lab, text, directory)
"""


class HalfWay(unittest.TestCase):
    """That they stop where they are not written yet, test_check.py sees."""

    @classmethod
    def setUpClass(cls):
        copy_project(COPY)

    def compile(self, lab, written):
        """Of two states one is a Chinese starter's."""
        directory = f"state{lab}{written}"
        language = "zh" if written % 2 else "en"
        command = ("python3", "-c", STATE, lab, str(written), directory)
        run(*command, PYTHONPATH="learn", LAB_LANG=language)
        done = run("make", "-s", "-C", directory, "CFLAGS=-O2 -Werror")
        return done.returncode, done.stdout + done.stderr

    def test_each_compiles_without_a_warning(self):
        states = [(lab, k) for lab in PLACES for k in range(last(lab))]
        made("-j2")
        with ThreadPoolExecutor(2) as pool:
            for state, said in zip(states, pool.map(self.compile, *zip(*states))):
                self.assertEqual(said, (0, ""), state)

    def test_a_directory_that_exists_is_not_changed(self):
        os.mkdir(f"{COPY}/my09")
        for directory in ("my09", "../my09"):
            made("starter", "LAB=09", f"DIR={directory}", status=2)
            self.assertEqual(os.listdir(f"{COPY}/my09"), [])
        self.assertIn("no sample's number", made("starter", "LAB=19", status=2))


class Release(unittest.TestCase):
    """What make student-release packs, of this tree as it is now: the assignment's starters, or those of all labs."""

    # The course slides print these lines, too.
    IDIOMS = {
        "structibv_send_wr*bad_wr;",
        ".send_flags=IBV_SEND_SIGNALED,",
        "constintret=ibv_advise_mr(mr->pd,IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,",  # API on one page
    }

    @classmethod
    def setUpClass(cls):
        copy_project(COPY)
        source = os.path.join(WORK, "committed")
        copy_project(source)
        for command in ("init -q", "add .", "-c user.name=x -c user.email=x@x commit -qm x"):
            ran(["git", *command.split()], check=True, cwd=source)
        cls.trees = {}
        for name, labs in (("assignment", []), ("all", ["LABS=all"])):
            made("student-release", *labs, cwd=source)
            where = os.path.join(COPY, name)  # which the VM sees
            os.mkdir(where)
            run("tar", "-xzf", f"{source}/results/hello-verbs.tar.gz", "-C", where)
            released = ["05", "06", "07"] if name == "assignment" else sorted(PLACES)
            cls.trees[os.path.join(where, "hello-verbs")] = released

    def test_no_line_of_a_solution_is_in_it(self):
        for tree, labs in self.trees.items():
            held = {}
            for directory, _, files in os.walk(tree):
                for path in (os.path.join(directory, file) for file in files):
                    with open(path, "rb") as content:
                        held[path[len(tree) + 1 :]] = re.sub(rb"\s+", b"", content.read())
            self.assertFalse([path for path in held if re.match(r"\.git/|teach/answers", path)])
            sources = re.compile(r"(\d\d_\w+|common|blocks)/.*\.[ch]$")
            shown = b"".join(held[path] for path in held if sources.match(path)).decode()
            for lab in labs:
                lines = {line for line in secret(lab) if len(line) > 12 and line not in shown}
                self.assertGreater(len(lines - self.IDIOMS), 12, lab)
                for line in lines - self.IDIOMS:  # also of Break it: a patch shows what is around
                    self.assertEqual([p for p in held if line.encode() in held[p]], [], line)

    def test_its_starters_are_the_suites(self):
        """In the sample's place, and by make starter; of a sample that is whole there, make starter makes one."""
        for tree, labs in self.trees.items():
            for lab in PLACES:
                path, _ = source_of(lab)
                made("starter", f"LAB={lab}", cwd=tree)
                copies = [path] * (lab in labs) + [f"my{lab}/{os.path.basename(path)}"]
                for copy in copies:
                    self.assertEqual(starter.read(f"{tree}/{copy}"), starter.starter_of(lab))
                shutil.rmtree(f"{tree}/my{lab}")
            self.assertEqual(made("CFLAGS=-O0 -Werror", cwd=tree), "")

    def test_with_one_program_written(self):
        """04 in the sample's own directory, 05 in one of make starter's; the rest is named, and is no failure; but 01 to
        04 belong to what is handed in."""
        tree = os.path.join(COPY, "all", "hello-verbs")
        made("starter", "LAB=05", cwd=tree)
        for lab, directory in (("04", "04_atomic"), ("05", "my05")):
            path, text = source_of(lab)
            name = f"{tree}/{directory}/{os.path.basename(path)}"
            write(name, text)
        refused = made("starter", "LAB=04", "DIR=another", cwd=tree, status=2)
        self.assertFalse(os.path.exists(f"{tree}/another"))
        self.assertIn("the starter of lab 04 was its sample itself", refused)
        made("all", cwd=tree)
        shutil.copy(f"{ROOT}/build/expected.so", f"{tree}/build")  # which builds.py makes
        made("-C", "my05", cwd=tree)
        jobs = {
            "testenv/demo.sh 03_read/read 04_atomic/atomic my05/gather_write": (
                0,
                r"03_read: not written yet \(TODO 1\)\n04_atomic +PASS +PASS *\nmy05 +PASS +PASS *\n"
                r"2 of 2 pairs passed, 1 not written yet\n$",
            ),
            "teach/handin.sh inside pairs 20260001 17 05 my05 2>&1 >/dev/null": (
                1,
                r"(?s)01_\w+: not .*04_\w+: passed.*05_\w+: passed.*07_\w+: not ",
            ),
            "python3 tests/runner.py test_pairs.Defaults": (0, '"outcome": "passed"'),
        }
        where = os.path.relpath(tree, COPY)
        answers = in_vm(COPY, [([f"cd {where} && {command}"], 1) for command in jobs])
        for (command, (wanted, pattern)), ((output, status),) in zip(jobs.items(), answers):
            with self.subTest(command=command):
                self.assertRegex(output, pattern)
                self.assertEqual(status, wanted, output)
