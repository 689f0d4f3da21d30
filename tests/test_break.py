# SPDX-License-Identifier: BSD-2-Clause
"""make break and make answers: what is asked, offered and written down. What the pairs of all steps print, and what
make break makes of that, is in test_labs.py."""
import importlib
import os
import re
import tempfile
import unittest

from places import copy_project
from samples import ROOT, ran, read, write
from texts import handout

os.environ["LAB_LANG"] = "en"
answers, breaking = importlib.import_module("answers"), importlib.import_module("break")
STEPS = handout.steps("en")


class Asked(unittest.TestCase):
    """The handout's text, which is the one source."""

    def test_questions_do_not_tell_the_outcome(self):
        telling = {*breaking.STATUSES.values(), "status=", "no completion", "invalid argument"}
        telling |= {"cannot allocate", "(status", "resource busy", "verdict"}
        for step in STEPS.values():
            self.assertIn("?", step.question)
            question = step.question.lower()
            self.assertEqual([each for each in telling - {"success"} if each in question], [])

    def test_choices(self):
        """Four, one of which is right, in no place more often than in the others; and how each is judged."""
        places = []
        for step in STEPS.values():
            right = breaking.expected(breaking.head(step))
            offered = breaking.choices(step, right)
            self.assertEqual(len(set(map(breaking.told, offered))), 4)
            self.assertEqual(set(offered) & {*right, "other"}, {right[0]})
            for word in offered:
                verdict = breaking.judge(word, right, right[0])
                self.assertEqual("came true" in verdict, word == right[0])
                self.assertEqual(breaking.told(right[0]) in verdict, word != right[0])
            places.append(offered.index(right[0]))
        self.assertEqual(set(places), {0, 1, 2, 3})
        self.assertLess(max(map(places.count, places)), len(STEPS) * 0.4)


class Answers(unittest.TestCase):
    def setUp(self):
        self.dir = self.enterContext(tempfile.TemporaryDirectory(prefix="answers."))
        self.path = os.path.join(self.dir, "answers.txt")

    def filled(self):
        return re.sub(r"(?m)^(prediction|seen|reason|answer):$", r"\1: 因为 PSN", answers.template())

    def test_what_is_missing(self):
        text = self.filled().replace("seen: 因为 PSN", "seen:  \n", 2)
        text = re.sub(r"(?s)(## question 02\.2.*?answer: ).*?(?=\n##)", r"\1", text)
        text = text.replace("## step 9:", "Step nine:")  # its mark is gone
        missing = "23 of 27 given; missing: step 1, step 3, step 9, question 02.2"
        for text, given, remark in (
            (answers.template(), 0, "answers: 0 of 27 given"),
            (self.filled(), 27, ""),
            (text, 23, f"answers: {missing}"),
            ("1. because\n\nstep 7 was nice\n", 0, "answers: 0 of 27 given"),
        ):
            lacking, most = answers.unanswered(text)
            self.assertEqual((most - len(lacking), most), (given, 27))
            self.assertIn(remark, answers.remark(text))

    def test_what_editors_make_of_it(self):
        """Windows' ends of lines and its mark of UTF-8 are no harm."""
        text = self.filled()
        for data in (text.encode("utf-8-sig"), text.replace("\n", "\r\n").encode()):
            ended = ran(["learn/answers.py", "count", write(self.path, data)])
            self.assertEqual((ended.returncode, ended.stdout), (0, "27 of 27 answers given\n"))

    def test_a_step_replaces_its_own_answer_alone(self):
        self.assertFalse(answers.record(self.path, STEPS[8], "first", "s", "r"))
        self.assertTrue(answers.record(self.path, STEPS[8], "second", "s", ""))
        empty = answers.entries(answers.template())
        after = answers.entries(answers.read(self.path))
        self.assertEqual(list(empty), list(after))
        self.assertIn("prediction: second\nseen: s\nreason:\n", after.pop("step 8"))
        del empty["step 8"]
        self.assertEqual(empty, after)


class Driven(unittest.TestCase):
    """make break as a student types it, each in a VM of its own."""

    def setUp(self):
        self.dir = self.enterContext(tempfile.TemporaryDirectory(prefix="break."))
        self.path = os.path.join(self.dir, "answers.txt")
        temporary = tempfile.mkdtemp(dir=self.dir)
        self.env = {"ANSWERS": self.path, "WIRE": "no", "TMPDIR": temporary}
        self.addCleanup(lambda: self.assertEqual(os.listdir(temporary), [], "left behind"))

    def make(self, *words, typed="", cwd=ROOT):
        return ran(["make", "-s", "break", *words], cwd=cwd, env=self.env, input=typed)

    def entry(self, number):
        return answers.entries(answers.read(self.path)).get(f"step {number}")

    def test_as_typed(self):
        """Predicted wrongly: asked first, then told."""
        right = breaking.choices(STEPS[4], ["status 10"]).index("status 10") + 1
        made = self.make("STEP=4", typed=f"{right % 4 + 1}\n9\nStatus 10\nthe last byte\n")
        self.assertEqual(made.returncode, 0, made)
        screen = made.stdout
        for words in (
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
        said = "completion of the RDMA WRITE: remote access error (status 10)"
        self.assertIn(f"seen: Status 10 (client: {said}", self.entry(4))
        self.assertIn("reason: the last byte", self.entry(4))

    def test_packets_and_chinese(self):
        """On two hosts; a pipe ends before the reason."""
        self.env.update({"LAB_LANG": "zh", "WIRE": "", "TESTENV_CLOCK": ""})
        made = self.make("STEP=7", typed="重传\n")
        self.assertEqual(made.returncode, 0, made)
        self.assertIn("第 7 步", made.stdout)
        # the first time, and 6 times more
        self.assertEqual(made.stdout.count("RDMA WRITE Only"), 7, made.stdout)
        self.assertRegex(made.stdout, r"-1  Acknowledge, AETH NAK \(PSN sequence error\)")
        self.assertIn("prediction 预测： 重传\nseen 看到的：\nreason 原因：\n", self.entry(7))
        self.assertIn("还缺", made.stdout)

    def test_nothing_is_run_without_a_prediction(self):
        for words, typed, said in (
            (["STEP=4"], "", "No prediction"),
            (["STEP=60"], "1\n", "steps 1 to 59"),
            ([], "1\n", "which step"),
        ):
            made = self.make(*words, typed=typed)
            self.assertEqual((made.returncode, said in made.stderr), (2, True), made)
            self.assertNotIn("Running", made.stdout)

    def test_a_tree_that_has_been_changed(self):
        """The student's own program, or a starter: each is told, and left alone."""
        tree = os.path.join(self.dir, "tree")
        copy_project(tree)
        source = f"{tree}/01_hello_write/hello_write.c"
        mine = read(source).replace("peer.rkey}", "peer.rkey + 1}")
        write(source, mine)
        made = self.make("STEP=3", cwd=tree, typed="1\n")
        self.assertNotEqual(made.returncode, 0)
        self.assertIn("has that file been changed already", made.stderr)
        self.assertEqual(read(source), mine)
        source = f"{tree}/05_gather_write/gather_write.c"
        write(source, read(source) + "/* is not written yet (TODO 1) */\n")
        self.assertIn("is a starter here", self.make("STEP=21", cwd=tree, typed="1\n").stdout)
