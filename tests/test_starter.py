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
from samples import PROGRAM, ROOT, main
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
    comment = re.compile(r"(?s)/\*.*?\*/")
    lines = [
        line
        for _, region in starter.solution(sample, PLACES[lab])
        for line in comment.sub("", "\n".join(region)).splitlines()
    ]
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
        text = "\n".join(
            "\n".join(region)
            for lab in PLACES
            for _, region in starter.solution(starter.read(starter.sample_of(lab)), PLACES[lab])
        )
        self.assertEqual([verb for verb in VERBS if f"ibv_{verb}(" not in text], [])

    def test_manual_pages(self):
        """A page that a TODO names is there."""
        text = "".join(place["see"] + " " for places in PLACES.values() for place in places)
        named = set(re.findall(r"(\w+)\(3\)", text))
        for package, prefix in (("libibverbs-dev", "ibv_"), ("librdmacm-dev", "rdma_")):
            pages = subprocess.run(
                ["dpkg", "-L", package], capture_output=True, text=True, check=False
            ).stdout
            self.assertEqual(
                [name for name in named if name.startswith(prefix) and f"/{name}.3" not in pages],
                [],
            )

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
        subprocess.run(
            ["learn/starter.py", "part", lab, str(written), directory],
            cwd=COPY,
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "LAB_LANG": "zh" if written % 2 else "en"},
        )
        done = subprocess.run(
            ["make", "-s", "-C", directory, "CFLAGS=-O2 -Werror"],
            cwd=COPY,
            capture_output=True,
            text=True,
            check=False,
        )
        name = next(name for sample, name in PROGRAM.items() if sample.startswith(lab))
        return done.stdout + done.stderr, os.path.join(directory, name)

    def test_each_stops_at_the_next_todo(self):
        here = sorted(set(PLACES) - {"15"})  # 15 ends with 77 here
        states = [(lab, written) for lab in here for written in range(last(lab))]
        subprocess.run(["make", "-s", "-j2"], cwd=COPY, check=True)
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

    def test_the_last_is_the_sample(self):
        for lab, places in PLACES.items():
            sample = starter.read(starter.sample_of(lab))
            self.assertEqual(starter.starter(sample, places, last(lab)), sample)

    def test_a_chinese_starter_has_the_same_code(self):
        """Only comments and strings differ; the same TODOs are found in it."""
        with in_chinese():
            chinese = starter.places()
        for lab, places in PLACES.items():
            sample = starter.read(starter.sample_of(lab))
            for written in range(last(lab)):
                ours = starter.starter(sample, places, written)
                with in_chinese():
                    theirs = starter.starter(sample, chinese[lab], written)
                self.assertEqual(without_words(ours), without_words(theirs), (lab, written))
                self.assertEqual(
                    *(re.findall(starter.UNWRITTEN, text) for text in (ours, theirs)), lab
                )
                self.assertEqual(starter.unwritten(theirs), written + 1)
                self.assertEqual(theirs.count("is not written"), sample.count("is not written"))
                for line in theirs.splitlines():
                    self.assertLessEqual(words.columns(line), 102, line)  # closing marks hang

    def test_only_what_is_written_differs(self):
        for lab, places in PLACES.items():
            sample = starter.read(starter.sample_of(lab))
            for written in range(last(lab)):
                text = starter.starter(sample, places, written)
                regions = starter.solution(sample, places)
                for number, region in regions:
                    self.assertEqual(
                        "\n".join(region) in text, number <= written, (lab, written, number)
                    )
                rest = iter(text.splitlines())  # what is not in a place is there, in this order
                hidden = [line for number, region in regions if number > written for line in region]
                for line in sample.splitlines():
                    if line not in hidden:
                        self.assertIn(line, rest, (lab, written))

    def test_a_directory_that_exists_is_not_changed(self):
        os.mkdir(os.path.join(COPY, "my09"))
        for directory in ("my09", "../my09"):
            done = subprocess.run(
                ["make", "-s", "starter", "LAB=09", f"DIR={directory}"],
                cwd=COPY,
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual((done.returncode, os.listdir(f"{COPY}/my09")), (2, []))
        done = subprocess.run(
            ["make", "-s", "starter", "LAB=15"],
            cwd=COPY,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertRegex(done.stderr, "no sample's number")


class Release(unittest.TestCase):
    """What make student-release packs, of this tree as it is now."""

    # The course slides print these lines, too.
    IDIOMS = {"structibv_send_wr*bad_wr;", ".send_flags=IBV_SEND_SIGNALED,"}

    @classmethod
    def setUpClass(cls):
        source = os.path.join(WORK, "committed")
        os.mkdir(source)
        copy_project(source)
        for command in (
            "git init -q",
            "git add .",
            "git -c user.name=x -c user.email=x@x commit -qm x",
        ):
            subprocess.run(command.split(), cwd=source, check=True)
        cls.trees = {}
        for name, labs in (("assignment", ""), ("all", "LABS=all")):
            subprocess.run(
                ["make", "-s", "student-release", *filter(None, [labs])],
                cwd=source,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            where = os.path.join(COPY, name)  # which the VM sees
            os.mkdir(where)
            subprocess.run(
                ["tar", "-xzf", f"{source}/results/hello-verbs.tar.gz", "-C", where], check=True
            )
            cls.trees[name] = os.path.join(where, "hello-verbs")

    def labs(self, name):
        return ["05", "06", "07"] if name == "assignment" else sorted(PLACES)

    def test_no_line_of_a_solution_is_in_it(self):
        for name, tree in self.trees.items():
            held = {}
            for directory, _, files in os.walk(tree):
                for file in files:
                    with open(os.path.join(directory, file), "rb") as content:
                        held[os.path.join(directory, file)[len(tree) + 1 :]] = re.sub(
                            rb"\s+", b"", content.read()
                        )
            for file in ("learn/places.txt", "learn/places.zh.txt"):
                self.assertEqual(
                    [lab for lab in PLACES if f"=={lab}".encode() in held[file]],
                    [lab for lab in PLACES if lab not in self.labs(name)],
                )
            self.assertFalse([path for path in held if path.startswith(".git/")])
            built = "".join(
                held[path].decode()
                for path in held
                if re.match(r"(\d\d_\w+|common|blocks)/.*\.[ch]$", path)
            )
            for lab in self.labs(name):
                lines = {
                    line for line in secret(lab) if len(line) > 12 and line not in built
                } - self.IDIOMS
                self.assertGreater(len(lines), 12, lab)
                for line in lines:
                    self.assertEqual(
                        [path for path in held if line.encode() in held[path]], [], line
                    )
                self.assertEqual(
                    [
                        path
                        for path in held
                        if path.endswith(".patch")
                        and held[path].startswith(f"sample:{lab}_".encode())
                    ],
                    [],
                )

    def test_its_starters_are_the_suites(self):
        for name, tree in self.trees.items():
            for lab in self.labs(name):
                path = os.path.relpath(starter.sample_of(lab), ROOT)
                self.assertEqual(starter.read(f"{tree}/{path}"), starter.starter_of(lab))
                subprocess.run(
                    ["make", "-s", "starter", f"LAB={lab}"],
                    cwd=tree,
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
                self.assertEqual(
                    starter.read(f"{tree}/my{lab}/{os.path.basename(path)}"),
                    starter.starter_of(lab),
                )
                shutil.rmtree(f"{tree}/my{lab}")
            for lab in set(PLACES) - set(self.labs(name)):  # of a sample that is whole there
                subprocess.run(
                    ["make", "-s", "starter", f"LAB={lab}", f"DIR=own{lab}"],
                    cwd=tree,
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
                shutil.rmtree(f"{tree}/own{lab}")
            made = subprocess.run(
                ["make", "-s", "CFLAGS=-O0 -Werror"],
                cwd=tree,
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual((made.returncode, made.stderr), (0, ""))

    def test_with_one_program_written(self):
        """04 in the sample's own directory, 05 in one of make starter's; the rest is named, and is no failure; but 01 to
        04 belong to what is handed in. The starters of 06 and 07 are Chinese."""
        tree = self.trees["all"]
        shutil.copy(starter.sample_of("04"), f"{tree}/04_atomic")
        for lab in ("05", "06"):
            subprocess.run(
                ["make", "-s", "starter", f"LAB={lab}"],
                cwd=tree,
                check=True,
                stdout=subprocess.DEVNULL,
            )
        shutil.copy(starter.sample_of("05"), f"{tree}/my05")
        for lab, directory in (("06", "my06"), ("07", "07_gssr")):
            path = f"{tree}/{directory}/{os.path.basename(starter.sample_of(lab))}"
            with in_chinese(), open(path, "w", encoding="utf-8") as file:
                file.write(starter.starter_of(lab))
        refused = subprocess.run(
            ["make", "-s", "starter", "LAB=04", "DIR=another"],
            cwd=tree,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((refused.returncode, os.path.exists(f"{tree}/another")), (2, False))
        self.assertIn("the starter of lab 04 was its sample itself", refused.stderr)
        subprocess.run(["make", "-s", "all"], cwd=tree, check=True)
        shutil.copy(f"{ROOT}/build/expected.so", f"{tree}/build")  # which run.sh makes
        for own in ("my05", "my06"):
            subprocess.run(["make", "-s", "-C", own], cwd=tree, check=True)
        programs = "03_read/read 04_atomic/atomic my05/gather_write my06/scatter_read"
        jobs = [
            [f"cd all/hello-verbs && {command}"]
            for command in (
                f"testenv/demo.sh {programs}",
                "bench/measure.sh ''",
                "teach/handin.sh inside pairs 20260001 17 05 my05 2>&1 >/dev/null",
                "{ timeout 60 learn/reference/$(uname -m)/05 -p 24000 & my05/gather_write -p 24000 127.0.0.1 && wait $!; }",
                "python3 tests/test_pairs.py Defaults",
            )
        ]
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
        self.assertIn("ok - ", pairs[0])
        self.assertEqual(
            [done[1] for done in (demo, bench, handin, checked, pairs)],
            [0, 0, 1, 0, 0],
            demo + bench + handin + checked + pairs,
        )


if __name__ == "__main__":
    main()
