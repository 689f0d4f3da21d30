# SPDX-License-Identifier: BSD-2-Clause
"""make check: the samples pass, half-written programs have the parts that are written, and of what students get
wrong (mistakes/check.txt) it names the part and the reason."""
import contextlib
import functools
import io
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import mistakes
from samples import ROOT, ran, some, write

sys.path[:0] = [f"{ROOT}/judge", f"{ROOT}/learn"]
# pylint: disable=wrong-import-position
import build  # noqa: E402
import check  # noqa: E402
import pieces  # noqa: E402
import probes  # noqa: E402
import starter  # noqa: E402

FEW = 6  # of the mistakes, in the quick tests
ELSEWHERE = (*check.BLOCKS, "15")  # mutants that a test of their own looks at
BUILT, DEBIAN13 = os.environ.get("HV_BUILD"), f"{ROOT}/tests/debian13.sh"
FLAGS = "-std=c11 -D_GNU_SOURCE -O1 -w -Icommon -Iblocks"


class Judged(unittest.TestCase):
    def compiled(self, scratch, name, lab, source):
        """A job for judge.py, of a program that is built as a sample is."""
        directory, path = f"{scratch}/{name}", f"{scratch}/{name}/program"
        source_file = write(path + ".c", source)
        libraries = [*pieces.suite_objects(), "-lrdmacm", "-libverbs"]
        ran(["gcc", *FLAGS.split(), "-o", path, source_file, *libraries], check=True)
        checked = build.sanitized(lab, directory) if lab in check.BLOCKS else ()
        return build.job(lab, source, path, [], *checked)

    def judged(self, programs, **how):
        """programs: lab and source by name. All in one VM: the rows of each, or, first=True, up to the first wrong one."""
        with tempfile.TemporaryDirectory() as scratch:
            jobs = [
                {**self.compiled(scratch, name.replace(" ", "-"), *program), **how}
                for name, program in programs.items()
            ]
            return dict(zip(programs, check.judged(jobs)))

    def wrong(self, wanted):
        """Mutants are found, each by the part and the reason that lead there."""
        programs = {f"{each.lab} {each.name}": (each.lab, each.program()) for each in wanted}
        rows = self.judged(programs, first=True)
        for lab, name, part, reason, _ in wanted:
            with self.subTest(lab=lab, mutant=name):
                found, none = rows[f"{lab} {name}"], {"part": None, "why": "", "says": ""}
                first = next((row for row in found if not row["right"]), none)
                print("#", f"{lab} {name}:", *map(first.get, none), flush=True)
                self.assertRegex(str(first["part"]), f"^({part})$", first)
                self.assertRegex(f"{first['why']} says: {first['says']}".replace("\n", " "), reason)

    def halves(self, states):
        """Programs of a lab in which some TODOs are written as in the sample: the parts of these are right, and no others;
        all, if all are. They are English and Chinese starters by turns."""
        programs, places = {}, starter.places()
        for (lab, written), tongue in zip(states, itertools.cycle(("en", "zh"))):
            with mock.patch.dict(os.environ, LAB_LANG=tongue):
                missing = [p for p in starter.places()[lab] if p["number"] not in written]
                programs[f"{lab} {written}"] = lab, starter.starter(
                    starter.read(starter.sample_of(lab)), missing
                )
        rows = self.judged(programs)
        for lab, written in states:
            whole = set(written) == {place["number"] for place in places[lab]}
            for row in rows[f"{lab} {written}"]:
                with self.subTest(lab=lab, written=written, part=row["part"]):
                    has = not row["todo"] or row["todo"] in written or (row["todo"] == 99 and whole)
                    self.assertEqual(row["right"], has, row)
                    first = lab in check.BLOCKS or row["todo"] == len(written) + 1
                    if first and not has and row["todo"] != 99:
                        self.assertIn(f"TODO {row['todo']} is not written", row["why"])

    def in_order(self, lab):
        """What is written up to each TODO."""
        last = max(place["number"] for place in starter.places()[lab])
        return [(lab, range(1, written + 1)) for written in range(last + 1)]


class Newer(Judged):
    """15, with Debian 13's library (debian13.sh), and a kernel that has FLUSH (groups.py)."""

    def setUp(self):
        within = f"['env', 'HV_BUILD={BUILT}', '{DEBIAN13}', 'in', 'true']"
        judge = f"\nsubprocess.run({within}, check=True){check.JUDGE}"
        self.enterContext(mock.patch.object(check, "JUDGE", judge))

    def compiled(self, scratch, name, lab, source):
        path = f"{scratch}/{name}.c"
        write(path, source)
        ran([DEBIAN13, "build", BUILT, path], check=True)
        return {**build.job(lab, source, f"{BUILT}/{name}", []), "reference": f"{BUILT}/flush"}

    def test_halves(self):
        self.halves(self.in_order("15"))

    def test_mutants(self):
        self.wrong([each for each in mistakes.read("check") if each.lab == "15"])


LATE = """
import selectors, time
of = selectors.DefaultSelector
select = of.select
def late(*arguments):
    of.select = select
    time.sleep(4)
    return select(*arguments)
of.select = late
"""


class Check(Judged):
    @classmethod
    def setUpClass(cls):
        ran(["make", "-s", "all"], check=True)

    @mock.patch.object(check, "JUDGE", LATE + check.JUDGE)
    def test_some(self):
        """The machine stands still once, longer than programs wait."""
        few = [each for each in mistakes.read("check") if each[0] not in ELSEWHERE]
        self.wrong(few[:: len(few) // FEW])
        self.halves([*self.in_order("02"), ("05", [2, 3])])

    def test_a_field_that_this_kernel_has_not(self):
        """Or a function. A rule that needs it is left out, and a remark says so once; the others judge as before."""
        odd = probes.PROBES.replace("{ib_mw.type}", "{ib_mw.kind}")
        odd = odd.replace(" rxe_req_notify_cq ", " rxe_req_notify ")
        self.assertNotEqual(odd, probes.PROBES)
        right = starter.read(starter.sample_of("13"))
        old, new = "wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey)", "wr.bind_mw.rkey = mw->rkey"
        programs = {"right": ("13", right), "wrong": ("13", right.replace(old, new))}
        programs["sleeps"] = ("08", starter.read(starter.sample_of("08")))
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as scratch, mock.patch.dict(os.environ, LAB_LANG="zh"):
            with mock.patch.object(probes, "PROBES", odd):
                fake = probes.for_the_vm(ROOT, scratch)
            with mock.patch.object(build, "probes", lambda: fake), contextlib.redirect_stdout(said):
                rows = self.judged(programs)
        both = rows["right"] + rows["sleeps"]
        self.assertEqual([row for row in both if not row["right"]], [])
        first = next(row for row in rows["wrong"] if not row["right"])
        self.assertEqual(first["part"], "the loans", first)
        for what in "ib_mw.kind", "function rxe_req_notify：":
            self.assertEqual(said.getvalue().count(f"# 这个内核没有 {what}"), 1, said.getvalue())

    def test_hints(self):
        """Three for each part of each lab."""
        hints = check.hints()
        for lab in check.NUMBERS:
            for part in ["builds", "memory", *(name for name, _ in check.parts_of(lab))]:
                three = hints.get((lab, part)) or hints[("*", part)]
                self.assertEqual(len(three), 3, f"{lab} {part}")

    def test_commands(self):
        """A student's way: a starter, a check, hints, a change, progress."""
        with tempfile.TemporaryDirectory() as scratch:
            os.environ["CHECK_STATE"] = f"{scratch}/check.json"
            mine = "my" + os.path.basename(scratch)[-4:]
            shutil.rmtree(f"{ROOT}/{mine}", ignore_errors=True)
            self.addCleanup(shutil.rmtree, f"{ROOT}/{mine}", ignore_errors=True)
            sample = starter.read(starter.sample_of("02"))
            halfway = functools.partial(starter.starter, sample, starter.places()["02"])
            starter.write("02", halfway(1), mine)

            def learn(*arguments):
                return ran(["judge/check.py", *arguments], stderr=subprocess.STDOUT)

            first = learn("check", "02", mine)
            self.assertEqual(first.returncode, 1, first.stdout)
            self.assertRegex(
                first.stdout,
                r"(?s)ok - builds\nok - the receive\nnot ok - the messages\n    TODO 2 is not "
                r"written yet.*\n2 of 6 parts; next: TODO 2 \(the messages\)\n\Z",
            )
            three = [learn("hint", "02", mine).stdout for _ in range(4)]
            for degree, said in zip((1, 2, 3, 3), three):
                self.assertTrue(
                    said.startswith(f"hint {degree} of 3 for lab 02, the messages: "), said
                )
            parts = rf"(?m)^02 +{mine} +2 of 6 parts "
            self.assertRegex(learn("progress").stdout, parts + " *unchanged since$")
            path = f"{ROOT}/{mine}/send_recv.c"
            write(path, halfway(2))
            self.assertRegex(learn("progress").stdout, parts + " *changed since$")
            command = [f"{ROOT}/judge/check.py", "watch", "02", mine]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:

                def until(wanted):
                    for line in watch.stdout:
                        if wanted in line:
                            return
                    self.fail(wanted)

                until("3 of 6 parts; next: TODO 3 (undo)")
                write(path, halfway(3))
                until("6 of 6 parts")
                watch.send_signal(signal.SIGINT)
            self.assertEqual(watch.returncode, 0)
            self.assertIn("nothing to hint at", learn("hint", "02", mine).stdout)

    def test_samples_and_halves(self):
        labs = some([lab for lab in check.NUMBERS if lab not in ELSEWHERE])
        self.halves([state for lab in labs for state in self.in_order(lab)])

    def test_blocks(self):
        for lab in check.BLOCKS:  # in the file's order, and in others
            self.halves([*self.in_order(lab)[1:], (lab, [4]), (lab, [2, 3])])
        self.wrong(some([each for each in mistakes.read("check") if each[0] in check.BLOCKS]))

    def test_mutants(self):
        wanted = [each for each in mistakes.read("check") if each[0] not in ELSEWHERE]
        self.assertGreaterEqual(len(wanted), 40)
        self.wrong(some(wanted))
