#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Each starter is its sample but for the places that are to be written; each half-written program
compiles without a warning, runs, and stops where it is not written yet. What is packed for students
has no line of a solution.

All pairs run in one VM (see test_labs.py)."""
import os
import re
import shutil
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

from places import copy_project
from samples import PROGRAM, ROOT
from test_labs import Vm

sys.path.append(f"{ROOT}/learn")
import starter  # pylint: disable=wrong-import-position
import words  # pylint: disable=wrong-import-position

WORK = os.path.join(ROOT, "build", "starters")
COPY = os.path.join(WORK, "rdma")
PLACES = starter.places()
# The course slides' verbs, but for those that find a device: these are in common/device.c.
VERBS = """ack_cq_events alloc_pd create_ah create_comp_channel create_cq create_qp create_srq dealloc_pd
dereg_mr destroy_ah destroy_comp_channel destroy_cq destroy_qp destroy_srq get_cq_event modify_qp poll_cq
post_recv post_send reg_mr req_notify_cq close_device""".split()


vm = None


def setUpModule():
    global vm
    if not PLACES:
        raise unittest.SkipTest("the samples here are starters themselves")
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(os.path.join(COPY, "results"))
    copy_project(COPY)
    vm = Vm(COPY)
    unittest.addModuleCleanup(vm.end)


def run(*command, cwd=COPY, **env):
    return subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
    )


def made(*words, cwd=COPY, status=0):
    """What make says."""
    ended = run("make", "-s", *words, cwd=cwd)
    assert ended.returncode == status, (words, ended)
    return ended.stderr


def last(lab):
    """The number of its last TODO."""
    return max(place["number"] for place in PLACES[lab])


def in_chinese():
    return mock.patch.dict(os.environ, LAB_LANG="zh")


def without_words(source):
    """A program without its comments, and with nothing in its strings."""
    source = re.sub(r"/\*.*?\*/", "", source, flags=re.S)
    return re.sub(r'("(\\.|[^"\\])*"\s*)+', '""', source).split()


def squeezed(line):
    """A line of code without its comment and blanks."""
    return re.sub(r"\s+", "", re.sub(r"/\*.*?(\*/|$)", "", line))


def secret(lab):
    """The lines that are in the lab's places, and not also in the rest of the sample."""
    sample = starter.read(starter.sample_of(lab))
    given = set(map(squeezed, starter.starter(sample, PLACES[lab]).splitlines()))
    hidden = "\n".join("\n".join(region) for _, region in starter.solution(sample, PLACES[lab]))
    lines = re.sub(r"(?s)/\*.*?\*/", "", hidden).splitlines()
    return [line for line in map(squeezed, lines) if line not in given]


def both_sides(program, port):
    """A script that runs a pair. A client may stop before the server knows of it: then the server, which
    goes on waiting, is ended."""
    if program.endswith("rdma_cm"):  # does not try again, so its server must be there
        return f"flock /tmp/rdma_cm testenv/pair.sh {program}"
    return (
        f"{program} -p {port} >/tmp/{port} 2>&1 & {program} -p {port} --timeout 3 127.0.0.1; status=$?\n"
        "for try in 1 2 3 4 5; do kill -0 $! 2>/dev/null || break; sleep 0.2; done\n"
        f"kill $! 2>/dev/null; wait $!; cat /tmp/{port}; exit $status"
    )


class Places(unittest.TestCase):
    def test_every_lab_has_some(self):
        self.assertEqual(sorted(PLACES), [sample[:2] for sample in sorted(PROGRAM)])
        for lab, places in PLACES.items():
            numbers = [place["number"] for place in places]
            self.assertEqual(sorted(set(numbers)), list(range(1, last(lab) + 1)))
            self.assertIn(last(lab), range(1, 5), lab)
            for place in places:
                self.assertTrue(place["what"], lab)
                self.assertRegex(place["see"], r"\w", lab)

    def test_every_verb_is_written_once(self):
        text = " ".join(line for lab in PLACES for line in secret(lab))
        self.assertEqual([verb for verb in VERBS if f"ibv_{verb}(" not in text], [])

    def test_manual_pages(self):
        """A page that a TODO names is there."""
        text = "".join(place["see"] + " " for places in PLACES.values() for place in places)
        named = set(re.findall(r"(\w+)\(3\)", text))
        for package, prefix in (("libibverbs-dev", "ibv_"), ("librdmacm-dev", "rdma_")):
            pages = run("dpkg", "-L", package).stdout
            lacking = [n for n in named if n.startswith(prefix) and f"/{n}.3" not in pages]
            self.assertEqual(lacking, [])

    def test_a_pattern_that_fits_nowhere_or_twice_is_refused(self):
        sample = starter.read(starter.sample_of("01"))
        for change in (
            {"from": "no such line"},
            {"from": "if (client)"},
            {"before": "ibv_modify_qp"},
            {"before": "struct rendezvous rv;"},
        ):
            place = {**PLACES["01"][2], **change}
            with self.assertRaisesRegex(SystemExit, "starter: step 6: "):
                starter.starter(sample, [place])


class HalfWay(unittest.TestCase):
    """State K of a lab: TODO 1 to K are written, as in the sample."""

    def compile(self, lab, written):
        """Of two states one is a Chinese starter's."""
        directory = f"state{lab}{written}"
        language = "zh" if written % 2 else "en"
        run("learn/starter.py", "part", lab, str(written), directory, LAB_LANG=language)
        done = run("make", "-s", "-C", directory, "CFLAGS=-O2 -Werror")
        name = next(name for sample, name in PROGRAM.items() if sample.startswith(lab))
        return done.stdout + done.stderr, os.path.join(directory, name)

    def test_each_stops_at_the_next_todo(self):
        states = [
            (lab, written) for lab in sorted(set(PLACES) - {"15"}) for written in range(last(lab))
        ]
        made("-j2")
        with ThreadPoolExecutor(2) as pool:
            built = list(pool.map(lambda state: self.compile(*state), states))
        answers = vm.ask(
            [[both_sides(program, 23000 + i)] for i, (_, program) in enumerate(built)], at_a_time=4
        )
        for (lab, written), (said, _), answer in zip(states, built, answers):
            with self.subTest(lab=lab, written=written):
                self.assertEqual(said, "")
                ((output, status),) = answer
                # of functions alone the last one, which calls the others, is got to first
                functions = not any("from" in place for place in PLACES[lab])
                self.assertEqual(
                    starter.unwritten(output), last(lab) if functions else written + 1, output
                )
                self.assertIn("status=FAIL", output)
                self.assertEqual(status, 1, output)  # of the client

    def states(self):
        """Each state: lab, places, sample, number of what is written, its text."""
        for lab, places in PLACES.items():
            sample = starter.read(starter.sample_of(lab))
            for written in range(last(lab) + 1):
                yield lab, places, sample, written, starter.starter(sample, places, written)

    def test_only_what_is_written_differs(self):
        for lab, places, sample, written, text in self.states():
            if written == last(lab):
                self.assertEqual(text, sample)
            regions = starter.solution(sample, places)
            for number, region in regions:
                there = "\n".join(region) in text
                self.assertEqual(there, number <= written, (lab, written, number))
            rest = iter(text.splitlines())  # what is not in a place is there, in this order
            hidden = [line for number, region in regions if number > written for line in region]
            for line in sample.splitlines():
                if line not in hidden:
                    self.assertIn(line, rest, (lab, written))

    def test_a_chinese_starter_has_the_same_code(self):
        """Only comments and strings differ; the same TODOs are found in it."""
        with in_chinese():
            chinese = starter.places()
        for lab, _, sample, written, ours in self.states():
            with in_chinese():
                theirs = starter.starter(sample, chinese[lab], written)
            self.assertEqual(without_words(ours), without_words(theirs), (lab, written))
            todos = [re.findall(starter.UNWRITTEN, text) for text in (ours, theirs)]
            self.assertEqual(*todos, lab)
            self.assertEqual(starter.unwritten(theirs), (written + 1) % (last(lab) + 1))
            self.assertEqual(theirs.count("is not written"), sample.count("is not written"))
            for line in theirs.splitlines():
                self.assertLessEqual(words.columns(line), 102, line)  # closing marks hang

    def test_a_directory_that_exists_is_not_changed(self):
        os.mkdir(f"{COPY}/my09")
        for directory in ("my09", "../my09"):
            made("starter", "LAB=09", f"DIR={directory}", status=2)
            self.assertEqual(os.listdir(f"{COPY}/my09"), [])
        self.assertIn("no sample's number", made("starter", "LAB=16", status=2))


class Release(unittest.TestCase):
    """What make student-release packs, of this tree as it is now."""

    # The course slides print these lines, too.
    IDIOMS = {"structibv_send_wr*bad_wr;", ".send_flags=IBV_SEND_SIGNALED,"}

    @classmethod
    def setUpClass(cls):
        source = os.path.join(WORK, "committed")
        os.mkdir(source)
        copy_project(source)
        for command in ("init -q", "add .", "-c user.name=x -c user.email=x@x commit -qm x"):
            subprocess.run(["git", *command.split()], cwd=source, check=True)
        cls.trees = {}
        for name, labs in (("assignment", []), ("all", ["LABS=all"])):
            made("student-release", *labs, cwd=source)
            where = os.path.join(COPY, name)  # which the VM sees
            os.mkdir(where)
            run("tar", "-xzf", f"{source}/results/hello-verbs.tar.gz", "-C", where)
            cls.trees[name] = os.path.join(where, "hello-verbs")

    def labs(self, name):
        return ["05", "06", "07"] if name == "assignment" else sorted(PLACES)

    def test_no_line_of_a_solution_is_in_it(self):
        for name, tree in self.trees.items():
            held = {}
            for directory, _, files in os.walk(tree):
                for path in (os.path.join(directory, file) for file in files):
                    with open(path, "rb") as content:
                        held[path[len(tree) + 1 :]] = re.sub(rb"\s+", b"", content.read())
            for file in ("learn/places.txt", "learn/places.zh.txt"):
                whole = {lab for lab in PLACES if f"=={lab}".encode() in held[file]}
                self.assertEqual(whole, set(PLACES) - set(self.labs(name)))
            self.assertFalse([path for path in held if path.startswith(".git/")])
            source = re.compile(r"(\d\d_\w+|common|blocks)/.*\.[ch]$")
            built = b"".join(text for path, text in held.items() if source.match(path)).decode()
            for lab in self.labs(name):
                lines = {line for line in secret(lab) if len(line) > 12 and line not in built}
                self.assertGreater(len(lines - self.IDIOMS), 12, lab)
                for line in lines - self.IDIOMS:
                    self.assertEqual([p for p in held if line.encode() in held[p]], [], line)
                step = f"sample:{lab}_".encode()
                self.assertEqual([p for p in held if held[p].startswith(step)], [])

    def test_its_starters_are_the_suites(self):
        for name, tree in self.trees.items():
            for lab in self.labs(name):
                path = os.path.relpath(starter.sample_of(lab), ROOT)
                made("starter", f"LAB={lab}", cwd=tree)
                for copy in (path, f"my{lab}/{os.path.basename(path)}"):
                    self.assertEqual(starter.read(f"{tree}/{copy}"), starter.starter_of(lab))
                shutil.rmtree(f"{tree}/my{lab}")
            for lab in set(PLACES) - set(self.labs(name)):  # of a sample that is whole there
                made("starter", f"LAB={lab}", f"DIR=own{lab}", cwd=tree)
                shutil.rmtree(f"{tree}/own{lab}")
            self.assertEqual(made("CFLAGS=-O0 -Werror", cwd=tree), "")

    def test_with_one_program_written(self):
        """04 in the sample's own directory, 05 in one of make starter's; the rest is named, and is no failure; but 01 to
        04 belong to what is handed in. The starters of 06 and 07 are Chinese."""
        tree = self.trees["all"]
        shutil.copy(starter.sample_of("04"), f"{tree}/04_atomic")
        for lab in ("05", "06"):
            made("starter", f"LAB={lab}", cwd=tree)
        shutil.copy(starter.sample_of("05"), f"{tree}/my05")
        for lab, directory in (("06", "my06"), ("07", "07_gssr")):
            path = f"{tree}/{directory}/{os.path.basename(starter.sample_of(lab))}"
            with in_chinese(), open(path, "w", encoding="utf-8") as file:
                file.write(starter.starter_of(lab))
        refused = made("starter", "LAB=04", "DIR=another", cwd=tree, status=2)
        self.assertFalse(os.path.exists(f"{tree}/another"))
        self.assertIn("the starter of lab 04 was its sample itself", refused)
        made("all", cwd=tree)
        shutil.copy(f"{ROOT}/build/expected.so", f"{tree}/build")  # which builds.py makes
        for own in ("my05", "my06"):
            made("-C", own, cwd=tree)
        self.all_are_told(tree)

    def all_are_told(self, tree):
        """By each tool: what passes, and what is yet to be written."""
        programs = "03_read/read 04_atomic/atomic my05/gather_write my06/scatter_read"
        pair = "{ timeout 60 learn/reference/$(uname -m)/05 -p 24000 & my05/gather_write -p 24000 127.0.0.1 && wait $!; }"
        jobs = (
            f"testenv/demo.sh {programs}",
            "bench/measure.sh ''",
            "teach/handin.sh inside pairs 20260001 17 05 my05 2>&1 >/dev/null",
            pair,
            "python3 tests/runner.py test_pairs.Defaults",
        )
        jobs = [[f"cd {os.path.relpath(tree, COPY)} && {command}"] for command in jobs]
        demo, bench, handin, checked, pairs = [answer[0] for answer in vm.ask(jobs)]
        self.assertRegex(
            demo[0],
            r"03_read: not written yet \(TODO 1\)\n04_atomic +PASS +PASS *\nmy05 +PASS +PASS *\n"
            r"my06: 尚未编写 \(TODO 4\)\n2 of 2 pairs passed, 2 not written yet\n$",
        )
        self.assertRegex(
            bench[0], r"^(0\d_\w+ is not written yet \(TODO 1\)\n){2}07_gssr 尚未编写 \(TODO 1\)\n$"
        )
        self.assertEqual(
            re.findall(r"(0\d)_\w+: (\w+)", handin[0]),
            [
                *((lab, "not") for lab in ("01", "02", "03")),
                *((lab, "passed") for lab in ("04", "05")),
                *((lab, "尚未编写") for lab in ("06", "07")),
            ],
            handin[0],
        )
        self.assertIn('"outcome": "passed"', pairs[0])
        self.assertEqual(
            [done[1] for done in (demo, bench, handin, checked, pairs)],
            [0, 0, 1, 0, 0],
            demo + bench + handin + checked + pairs,
        )
