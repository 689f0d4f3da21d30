#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""make break and make answers: every step of the handout with its own code, in one VM and on two
hosts; what is asked, offered, judged and written down.

In the VM this file runs as "test_break.py guest HOSTS FILE", runs the pairs, and writes what both sides
printed into FILE."""
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

from places import copy_project
from samples import FIXED, ROOT, main

sys.path.insert(0, os.path.join(ROOT, "learn"))
os.environ["LAB_LANG"] = "en"
import answers  # pylint: disable=wrong-import-position
import handout  # pylint: disable=wrong-import-position

breaking = importlib.import_module("break")
WORK = os.path.join(ROOT, "results", "test-break")
STEPS = handout.steps("en")
LIMIT = 600  # seconds for a program that is driven, on however busy a machine
PATIENCE = 150  # for the next thing that it says


def there(number):
    """Is it in this tree? A student's release lacks the patches that show a solution."""
    return os.path.exists(os.path.join(breaking.PATCHES, STEPS[number].name + ".patch"))


RUN = [number for number in STEPS if there(number)]
PACKETS = {1, 7, 8, 14, 18, 28, 33, 38, 43} & set(
    RUN
)  # refused, sent again, dropped: looked at on the wire, too


def guest(hosts, path):
    """Runs all steps; on one host several at a time, but not two of rdma_cm, which finds no port by itself."""

    def one(number):
        more = f"-p {21000 + number}" if hosts == 1 else ""
        step = STEPS[number]
        place = f"{breaking.COPIES}/{step.name}"  # which is made already
        return breaking.run(step, breaking.head(step), place, hosts, "", (), more)._asdict()

    numbers = RUN if hosts == 1 else sorted(PACKETS)
    groups = groupby(numbers, lambda n: STEPS[n].lab if STEPS[n].lab == "11" else n)
    groups = [list(group) for _, group in groups]
    with ThreadPoolExecutor(4 if hosts == 1 else 1) as pool:
        ran = pool.map(lambda group: {n: one(n) for n in group}, groups)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({number: each for group in ran for number, each in group.items()}, file)


class Outcomes(unittest.TestCase):
    """What the pairs print is what the handout promises, and one of the choices that are offered."""

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(WORK, ignore_errors=True)
        os.makedirs(WORK)
        for number in RUN:
            breaking.prepare(STEPS[number], breaking.head(STEPS[number]))

    def check(self, hosts):
        path = os.path.join(WORK, f"{hosts}.json")
        env = {**os.environ, "TESTENV_HOSTS": str(hosts), "TESTENV_LIMIT": "3000"}
        if hosts == 1:
            env["TESTENV_CLOCK"] = "virtual"
        command = [sys.executable, __file__, "guest", str(hosts), path]
        ended = subprocess.run(
            [breaking.TESTENV, "run", *FIXED, *command],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        written = os.path.join(WORK, f"answers{hosts}.txt")
        self.assertEqual(set(map(int, found)), set(RUN) if hosts == 1 else PACKETS)
        for number, ran in found.items():
            with self.subTest(step=number, hosts=hosts):
                self.check_step(STEPS[int(number)], breaking.Run(**ran), written)
        return found

    def check_step(self, step, ran, written):
        about = breaking.head(step)
        right = breaking.expected(about)
        happened = breaking.outcome(ran.client, ran.server)
        self.assertIn(happened, right, ran.output)
        offered = breaking.choices(step, right)
        true = [word for word in offered if "came true" in breaking.judge(word, right, happened)]
        self.assertEqual(true, [right[0]], ran.output)
        for word in offered:  # a wrong prediction is told what happened, a right one nothing else
            self.assertEqual(
                breaking.told(happened) in breaking.judge(word, right, happened), word != right[0]
            )
            self.assertNotIn("This device", breaking.judge(word, right, happened))
        seen = breaking.seen(ran)
        for role in ("client", "server"):
            said = [about[key] for key in about if key.startswith(role) and "argument" not in key]
            self.assertTrue(any(words in getattr(ran, role) for words in said), ran.output)
            self.assertNotIn(f"{role}: ?", seen)
        key, role, told = breaking.to_see(ran)
        self.assertIn(told, getattr(ran, role), key)
        self.assertNotEqual(told, "?", ran.output)
        for typed in (told, told.upper(), f"{told} or 9", "7", "no"):
            right = typed.upper() == told.upper()
            self.assertEqual(breaking.is_seen(typed, told, ran.output), right, f"{key}: {typed}")
        self.assertFalse(
            answers.record(written, step, breaking.told(offered[0]), seen, f"reason {step.number}")
        )
        entry = answers.entries(answers.read(written))[f"step {step.number}"]
        self.assertIn("prediction: " + breaking.told(offered[0]), entry)
        self.assertIn("seen: " + seen, entry)

    def test_one_host(self):
        self.check(1)
        missing, _ = answers.unanswered(answers.read(os.path.join(WORK, "answers1.txt")))
        self.assertEqual([mark for mark in missing if mark.startswith("step")], [])

    def test_two_hosts_and_their_packets(self):
        found = self.check(2)
        shown = subprocess.run(
            [os.path.join(ROOT, "judge", "ladder.py"), found["7"]["pcap"]],
            text=True,
            capture_output=True,
            check=True,
        ).stdout
        self.assertEqual(
            shown.count("RDMA WRITE Only"), 7, shown
        )  # the first time, and 6 times more
        self.assertRegex(shown, r"-1  Acknowledge, AETH NAK \(PSN sequence error\)")


class Asked(unittest.TestCase):
    """The handout's text, which is the one source."""

    def test_questions_do_not_tell_the_outcome(self):
        telling = [*breaking.STATUSES.values(), "status=", "no completion", "Invalid argument"]
        telling += ["Cannot allocate", "(status", "resource busy", "verdict"]
        telling.remove("success")
        for step in STEPS.values():
            with self.subTest(step=step.number):
                self.assertIn("?", step.question)
                self.assertGreater(len(step.outcome), 30)
                for words in telling:
                    self.assertNotIn(words.lower(), step.question.lower())

    def test_choices(self):
        for number in RUN:
            with self.subTest(step=number):
                right = breaking.expected(breaking.head(STEPS[number]))
                offered = breaking.choices(STEPS[number], right)
                self.assertEqual(len(set(map(breaking.told, offered))), 4)
                self.assertEqual(set(offered) & set(right), {right[0]})
                self.assertNotIn("other", offered)
                self.assertEqual(offered, breaking.choices(STEPS[number], right))
        places = [
            breaking.choices(STEPS[n], right).index(right[0])
            for n in RUN
            if (right := breaking.expected(breaking.head(STEPS[n])))
        ]
        self.assertEqual(set(places), {0, 1, 2, 3})
        self.assertLess(max(map(places.count, places)), len(RUN) / 3)

    def test_what_is_found_in_the_handout(self):
        self.assertEqual(list(STEPS), list(range(1, 50)))
        self.assertEqual(
            [STEPS[n].lab for n in (1, 14, 16, 20, 45, 49)],
            ["01", "02", "03", "04", "13", "14"],
        )
        marks = [mark for mark, _ in handout.questions("en")]
        self.assertEqual(
            marks,
            [f"question 0{lab}.{n}" for lab in (1, 2, 3, 4) for n in (1, 2, 3)]
            + [f"explain {n}" for n in range(1, 8)],
        )
        translated = handout.steps("zh")
        self.assertEqual(
            [step.name for step in translated.values()], [step.name for step in STEPS.values()]
        )
        self.assertTrue(all(step.question and step.outcome for step in translated.values()))
        self.assertEqual([mark for mark, _ in handout.questions("zh")], marks)


class Answers(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="answers.")
        self.addCleanup(shutil.rmtree, self.dir)
        self.path = os.path.join(self.dir, "answers.txt")

    def filled(self):
        return re.sub(r"(?m)^(prediction|seen|reason|answer):$", r"\1: 因为 PSN", answers.template())

    def test_template(self):
        missing, most = answers.unanswered(answers.template())
        self.assertEqual((len(missing), most), (27, 27))
        self.assertEqual(answers.remark(self.filled()), "")
        text = (
            self.filled()
            .replace("seen: 因为 PSN", "seen:  \n", 3)
            .replace("> Compare with 01", "", 1)
        )
        text = re.sub(r"(?s)(## question 02\.2.*?answer: ).*?(?=\n##)", r"\1", text)
        self.assertEqual(
            answers.remark(text),
            "answers: 23 of 27 given; missing: step 1, step 3, step 5, question 02.2",
        )
        text = text.replace("## step 9:", "Step nine:")  # its mark is gone
        self.assertIn("step 5, step 9, question 02.2", answers.remark(text))
        text = re.sub(
            r"(?s)(## step 14.*?)reason: 因为 PSN\n", r"\1", text, count=1
        )  # and this field
        self.assertIn("step 9, step 14, question 02.2", answers.remark(text))

    def test_count(self):
        """What make handin writes below the answers."""
        one = re.sub(r"(?s)(## explain 7\n.*?answer:)[^\n]*", r"\1", self.filled())
        for text, words in (
            ("", ("0 of 27 answers given", False)),
            (answers.template(), ("0 of 27 answers given", False)),
            (one, ("26 of 27 answers given", False)),
            (self.filled(), ("27 of 27 answers given", True)),
            ("my own words", ("answers without marks: not counted", False)),
        ):
            self.assertEqual(answers.count(text), words)

    def run_on(self, data, *command):
        with open(self.path, "wb") as file:
            file.write(data)
        program = os.path.join(ROOT, "learn", "answers.py")
        return subprocess.run(
            [program, *command, self.path], capture_output=True, text=True, check=False
        )

    def test_what_editors_make_of_it(self):
        """Windows' ends of lines and its mark of UTF-8 are no harm. Another encoding is told, and the file stays."""
        text = self.filled()
        for data in (text.encode("utf-8-sig"), text.replace("\n", "\r\n").encode()):
            ran = self.run_on(data, "count")
            self.assertEqual((ran.returncode, ran.stdout), (0, "27 of 27 answers given\n"))
            self.assertEqual(self.run_on(data, "plain").stdout, text.rstrip("\n") + "\n")
        for command in ("count",), ("plain",), ():
            ran = self.run_on(text.encode("gb18030"), *command)
            self.assertEqual((ran.returncode, "save it as UTF-8" in ran.stderr), (1, True), ran)
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), text.encode("gb18030"))

    def test_of_ones_own(self):
        for text in ("1. because of the MTU\n\n2. it waits\n", "# Lab 01\nstep 7 was nice\n"):
            self.assertEqual(
                answers.remark(text),
                "answers: the marks of make answers are missing, so it is not known "
                "which are unanswered",
            )
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("my own words\n")
        link = self.path + ".link"
        os.symlink(self.path, link)  # the file stays where its owner keeps it
        self.addCleanup(os.remove, link)
        self.assertFalse(answers.record(link, STEPS[7], "p", "s", "r"))
        self.assertIn("my own words\n\n## step 7: 07-psn-ahead\n", answers.read(self.path))

    def test_a_step_replaces_its_own_answer_alone(self):
        self.assertFalse(answers.record(self.path, STEPS[7], "first", "s", "r"))
        before = answers.entries(answers.read(self.path))
        self.assertTrue(answers.record(self.path, STEPS[7], "once more", "s", ""))
        self.assertTrue(answers.record(self.path, STEPS[7], "second", "s", ""))
        after = answers.entries(answers.read(self.path))
        self.assertEqual(list(before), list(after))
        self.assertIn("prediction: second", after.pop("step 7"))
        self.assertIn("prediction: first", before.pop("step 7"))
        self.assertEqual(before, after)
        self.assertFalse(
            answers.record(self.path, STEPS[30], "p", "s", "r")
        )  # which the template lacks
        self.assertTrue(answers.record(self.path, STEPS[30], "q", "s", "r"))
        self.assertEqual(answers.read(self.path).count("## step 30"), 1)


class Driven(unittest.TestCase):
    """make break as a student types it, each in a VM of its own."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="break.")
        self.addCleanup(shutil.rmtree, self.dir)
        self.path = os.path.join(self.dir, "answers.txt")
        temporary = tempfile.mkdtemp(dir=self.dir)
        self.env = {**os.environ, "ANSWERS": self.path, "WIRE": "no", "TMPDIR": temporary}
        self.addCleanup(lambda: self.assertEqual(os.listdir(temporary), [], "left behind"))
        self.env.pop("MAKEFLAGS", None)

    def make(self, *words, cwd=ROOT, typed=None):
        """typed: lines; with none, no stdin at all."""
        return subprocess.run(
            ["make", "-s", "break", *words],
            cwd=cwd,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
            **({"stdin": subprocess.DEVNULL} if typed is None else {"input": typed}),
        )

    def entry(self, number):
        return answers.entries(answers.read(self.path)).get(f"step {number}")

    def interrupted(self, number, typed, prompt):
        """Ctrl-C when that prompt is there; in a run, when the VM is there. Returns what was printed."""
        made = subprocess.Popen(
            ["make", "-s", "break", f"STEP={number}"],
            cwd=ROOT,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        made.stdin.write(typed.encode())
        made.stdin.flush()
        screen = b""
        while prompt.encode() not in screen and (data := os.read(made.stdout.fileno(), 65536)):
            screen += data
        end = time.monotonic() + PATIENCE
        while prompt == "Running" and not os.listdir(self.env["TMPDIR"]):
            self.assertLess(time.monotonic(), end, "no VM")
            time.sleep(0.1)
        os.killpg(made.pid, signal.SIGINT)
        screen += made.communicate(timeout=LIMIT)[0]
        self.assertNotEqual(made.returncode, 0, screen)
        self.assertIn(prompt.encode(), screen)
        end = time.monotonic() + PATIENCE
        while self.session(made.pid) and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(self.session(made.pid), [], "still there")
        return screen.decode()

    def session(self, leader):
        """The processes of a session: a VM that nobody has stopped is one."""
        command = ["ps", "-o", "pid=,stat=,args=", "-s", str(leader)]
        listed = subprocess.run(command, text=True, check=False, capture_output=True).stdout
        return [line for line in listed.splitlines() if " Z" not in line]

    def test_as_typed(self):
        right = breaking.choices(STEPS[4], ["status 10"]).index("status 10") + 1
        made = self.make("STEP=4", typed=f"{right % 4 + 1}\n9\nStatus 10\nthe last byte\n")
        screen = made.stdout
        self.assertEqual(made.returncode, 0, made)
        for words in (  # asked first, then told
            "+            .wr.rdma = {.remote_addr = peer.addr + 1",
            "--- server: ./hello_write",
            "completion? That is not what was printed.\n",
            "did not come true. What happened: A completion says: remote access error (status 10)",
            "Why?",
            "What the handout says: the server's NIC refuses",
            "answer to step 4.\n",
        ):
            self.assertIn(words, screen)
            screen = screen.partition(words)[2]
        self.assertNotIn("It still lacks", screen)
        self.assertIn("reason: the last byte", self.entry(4))
        said = "completion of the RDMA WRITE: remote access error (status 10)"
        self.assertIn(f"seen: Status 10 (client: {said}", self.entry(4))
        made = self.make("STEP=4", typed=f"9\n{right}\n9\n9\n9\n\n")
        self.assertEqual(made.returncode, 0, made)
        for words in ("prediction came true.", "step 4, instead of an earlier one"):
            self.assertIn(words, made.stdout)
        self.assertIn("seen:\nreason:\n", self.entry(4))
        for field in ("seen", "reason"):
            self.assertIn(f"It still lacks: {field}. Write", made.stdout)

    def test_interrupted(self):
        """Before the run nothing is written, behind it what is known is."""
        for typed, prompt in (("", "words): "), ("2\n", "Running")):
            self.interrupted(4, typed, prompt)
            self.assertFalse(os.path.exists(self.path))
        screen = self.interrupted(4, "own words\n10\n", "answers.txt): ")
        self.assertIn("Compare your own words", screen)
        self.assertIn("prediction: own words\nseen: 10 (client", self.entry(4))
        self.assertEqual(len(os.listdir(self.dir)), 2)  # answers.txt and TMPDIR

    def test_without_a_terminal(self):
        made = self.make("STEP=22", typed="1\n12\nthe queue is full\n")
        if not there(22):
            self.assertIn("not in this release", made.stdout)
            return
        self.assertEqual(made.returncode, 0, made)
        self.assertIn("Cannot allocate memory (12)", self.entry(22))
        self.assertIn("reason: the queue is full", self.entry(22))
        self.env.update({"LAB_LANG": "zh"})
        made = self.make("STEP=36", typed="拒绝\n")  # a pipe that ends before the reason
        self.assertEqual(made.returncode, 0, made)
        self.assertIn("第 36 步", made.stdout)
        self.assertIn("prediction 预测： 拒绝\nseen 看到的：\nreason 原因：\n", self.entry(36))
        self.assertIn("the server refused", made.stdout)
        self.assertIn("还缺", made.stdout)

    def test_nothing_is_run_without_a_prediction(self):
        for words, said in (
            (["STEP=4"], "No prediction"),
            (["STEP=50"], "steps 1 to 49"),
            ([], "which step"),
            (["STEP=x"], "which step"),
        ):
            made = self.make(*words)
            self.assertEqual((made.returncode, said in made.stderr), (2, True), made)
            self.assertNotIn("Running", made.stdout)
        self.env["ANSWERS"] = os.path.join(self.dir, "not", "there", "answers.txt")
        made = self.make("STEP=4", typed="1\n")
        self.assertEqual(
            (made.returncode, "cannot be written here" in made.stderr), (2, True), made
        )
        self.assertFalse(os.path.exists(self.path))

    def test_a_tree_that_has_been_changed(self):
        tree = os.path.join(self.dir, "tree")
        os.mkdir(tree)
        copy_project(tree)
        source = f"{tree}/01_hello_write/hello_write.c"
        mine = breaking.read(source).replace("peer.rkey}", "peer.rkey + 1}")
        with open(source, "w", encoding="utf-8") as file:
            file.write(mine)
        with open(f"{tree}/05_gather_write/gather_write.c", "a", encoding="utf-8") as file:
            file.write("/* is not written yet (TODO 1) */\n")
        made = self.make("STEP=3", cwd=tree, typed="1\n")
        self.assertNotEqual(made.returncode, 0)
        self.assertIn("has that file been changed already", made.stderr)
        self.assertEqual(breaking.read(source), mine)
        for says in ("is a starter here", "not in this release")[not there(21) :]:
            made = self.make("STEP=21", cwd=tree, typed="1\n")
            self.assertEqual((made.returncode, says in made.stdout), (0, True), made)
            if says == "is a starter here":
                os.remove(f"{tree}/tests/breakit/{STEPS[21].name}.patch")


if __name__ == "__main__":
    if sys.argv[1:2] == ["guest"]:
        guest(int(sys.argv[2]), sys.argv[3])
    else:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
