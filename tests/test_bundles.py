# SPDX-License-Identifier: BSD-2-Clause
"""make bundle: what it leaves, what it writes for each learning platform, and whether it grades in a
directory laid out as that platform does it, in a new Debian 12 without KVM."""
import glob
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import types
import unittest
import zipfile

from grading_class import command
from samples import ROOT, read, write

sys.path.insert(0, f"{ROOT}/teach")
import formats  # pylint: disable=wrong-import-position # where it is, is only known now
import grade
import rubric

# Of 100 points; the answers have the other 30. The wrong one builds, and has the pairs of the other labs.
RIGHT, WRONG = 70, 16
# What the runner of Classroom 50 sets.
CLASSROOM = {
    "CLASSROOM": "rdma",
    "ASSIGNMENT": "lab05",
    "ASSIGNMENT_TYPE": "individual",
    "OWNER": "alice",
    "SUBMISSION_TAG": "submit/2026-11-22T10-00-00Z-a1b2c3d",
    "COMMIT_URL": "https://x/c",
    "RELEASE_URL": "https://x/r",
    "REVIEW_URL": "https://x/v",
}
# In there the wrong one first looks for the solution.
THIEF = """gather_write: gather_write.c
	f=$$(find / \\( -path /usr -o -path /proc -o -path /sys \\) -prune -o \\( -name suite.tar.gz -o -name autograde.tar \
-o -name gather_write.c -size +9k \\) -print 2>/dev/null); [ -z "$$f" ] || { echo "found $$f"; exit 1; }
	gcc -O2 -o $@ $<
"""
IDLE = '#include <stdio.h>\nint main(void)\n{\n\tputs("RESULT role=client status=PASS");\n\treturn 0;\n}\n'
# $1: the root. A layer above it that is thrown away, its own /proc and /dev, and no network.
INSIDE = r"""
mount --make-rprivate / && mount -t tmpfs layer "$2" && mkdir "$2"/{upper,work,new} &&
mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" root "$2/new" && cd "$2/new" &&
mount -t proc proc proc && mount -t tmpfs dev dev && mkdir dev/shm && chmod 1777 dev/shm tmp &&
for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
ln -s /proc/self/fd dev/fd; mkdir -p hand-in; mount --bind "$3" hand-in
exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${@:5}" chroot . bash -c "$4"
"""
# How each platform lays out its files, and what it starts. /hand-in/bundle is the bundle, /hand-in/files what was
# handed in (and /hand-in/handin.zip the same, packed), /hand-in/out what is looked at afterwards.
PLATFORM = {
    "autolab": r"""
useradd -m autograde; rm -rf /autograder; mkdir /home/autograde/autolab; cd /home/autograde/autolab
cp /hand-in/bundle/autograde.tar .; cp /hand-in/bundle/autograde-Makefile Makefile; cp /hand-in/handin.zip handin.tar
chown -R autograde: .
su autograde -c 'ulimit -f 102400 -u 200; make' >/hand-in/out/result 2>&1""",
    "gradescope": r"""
mkdir -p /autograder/results /autograder/submission; cp -r /hand-in/files/. /autograder/submission
cp /autograder/source/run_autograder /autograder
cd /autograder; chmod +x run_autograder; ./run_autograder >/hand-in/out/output 2>&1
cp /autograder/results/results.json /hand-in/out/result""",
    "classroom50": r"""
rm -rf /autograder; mkdir -p /__w/lab05-alice/.git /__w/_temp; cp -r /hand-in/files/. /__w/lab05-alice
cp -r /hand-in/bundle /__w/_temp/lab05; cd /__w/lab05-alice
python3 /__w/_temp/lab05/autograder.py >/hand-in/out/output 2>&1 && cp result.json /hand-in/out/result""",
    "prairielearn": r"""
rm -rf /autograder; mkdir -p /grade/student /grade/data /grade/serverFilesCourse; cp -r /hand-in/bundle/tests /grade
cp /hand-in/handin.zip /grade/student/handin-20260005.zip; echo '{}' >/grade/data/data.json
entrypoint=$(python3 -c 'import json; print(json.load(open("/hand-in/bundle/info.json"))["externalGradingOptions"]["entrypoint"])')
chmod +x "$entrypoint"; "$entrypoint" >/hand-in/out/output 2>&1
cp /grade/results/results.json /hand-in/out/result""",
}


def bundle(form, lab="05"):
    made = command("make", "-s", "bundle", f"FORMAT={form}", f"LAB={lab}")
    return made.returncode, f"{ROOT}/results/bundle-{form}"


class Bundles(unittest.TestCase):
    def autolab(self, text):
        """Points of 100, and what each test says."""
        shown, scores = map(json.loads, text.splitlines()[-2:])
        self.assertEqual((shown["_presentation"], shown["stages"]), ("semantic", ["parts"]))
        self.assertEqual(list(shown), ["_presentation", "stages", "parts"])
        self.assertEqual(set(scores["scores"]), {"text", "program"})
        said = {name: test.get("hint", "") for name, test in shown["parts"].items()}
        for name, test in shown["parts"].items():
            self.assertEqual(test["passed"], not said[name])
        return sum(scores["scores"].values()), said

    def listed(self, text, whole, one, point=1):
        """The same, in an object of these fields with a list of tests of those."""
        found = json.loads(text)
        self.assertEqual(set(found), {*whole.split(), "tests"})
        name, score, most, output, *passed = one.split()
        for test in found["tests"]:
            self.assertEqual(set(test), set(one.split()))
            self.assertLessEqual(test[score], test[most])
            for field in passed:
                self.assertEqual(test[field] in (True, "passed"), not test[output])
        total = sum(test[score] for test in found["tests"]) * point
        return total, {test[name]: test[output] for test in found["tests"]}

    def gradescope(self, text):
        return self.listed(text, "output", "name score max_score output status")

    def classroom50(self, text):
        """schemas/result-v1.schema.json; no other field is allowed there, and points are whole."""
        names = "schema datetime classroom assignment assignment_type owner submission commit release review"
        found = json.loads(text)
        self.assertLessEqual({*CLASSROOM.values()}, {found[name] for name in names.split()})
        self.assertEqual(found["score"], sum(test["score"] for test in found["tests"]))
        self.assertIsInstance(found["score"], int)
        fields = "test-name score max-score output passed"
        return self.listed(text, names + " score max-score", fields, 0.1)

    def prairielearn(self, text):
        score, said = self.listed(text, "score message", "name points max_points output")
        self.assertAlmostEqual(json.loads(text)["score"] * RIGHT, score, 1)
        return score, said

    def test_formats(self):
        """Of made-up results: each format's fields, and the same points in all of them."""
        row = {
            "points": {"builds": 10, "sgl": 0},
            "of": {"builds": "10", "sgl": "25", "each": "15"},
            "seed": "7",
            "why": {"builds": "", "sgl": "the blocks are wrong\n\u00e9"},
        }
        for row, wrong, points in (
            ({**row, "points": {"builds": 10}, "of": {"builds": "10"}}, [], RIGHT),
            (row, ["figures"], 24 + 8),
            (None, [], 0),
        ):
            h = types.SimpleNamespace(
                row=row, student="1", refused="", remarks=["a note"], parts=[]
            )
            h.reasons = {part: ["it is off"] for part in wrong}
            marks = rubric.read_rubric()
            grade.settle(h, marks, {})
            tests = list(formats.scaled(h, marks.shares))
            os.environ.update(CLASSROOM)
            for form in formats.FORMATS:
                with self.subTest(row=row, form=form):
                    text = formats.FORMATS[form](tests, h)
                    self.assertTrue(text.isascii())
                    score, said = getattr(self, form)(text)
                    self.assertAlmostEqual(score, points, 1)
                    self.assertEqual(said, {test.name: test.why for test in tests})

    def test_contents(self):
        """What each platform takes, and no more."""
        suite = {"bundle.sh", "suite.tar.gz"}
        for form, files in {
            "autolab": {"autograde-Makefile", "autograde.tar"},
            "gradescope": {"autograder.zip"},
            "classroom50": {"autograder.py", "runtime.json", *suite},
            "prairielearn": {"info.json", "question.html", "tests/run"}
            | {f"tests/{name}" for name in suite},
        }.items():
            code, out = bundle(form)
            self.assertEqual(code, 0)
            found = [f for f in glob.glob(f"{out}/**", recursive=True) if os.path.isfile(f)]
            self.assertEqual({os.path.relpath(f, out) for f in found}, files)
            self.assertLess(sum(map(os.path.getsize, found)), 1 << 20)  # Classroom 50 takes 10 MB
        with tarfile.open(f"{ROOT}/results/bundle-autolab/autograde.tar") as archive:
            self.assertEqual(set(archive.getnames()), suite)
        with zipfile.ZipFile(f"{ROOT}/results/bundle-gradescope/autograder.zip") as archive:
            self.assertEqual(set(archive.namelist()), {"run_autograder", "setup.sh", *suite})
            packed = io.BytesIO(archive.read("suite.tar.gz"))
        whole = command("git", "ls-tree", "-r", "--name-only", "HEAD").stdout.split()
        with tarfile.open(fileobj=packed) as archive:
            held = [m.name for m in archive if m.isfile()]
            self.assertEqual(sorted(held + ["teach/answers.md"]), sorted(whole))
        for words in ("", "x"), ("gradescope", "04"):
            self.assertNotEqual(bundle(*words)[0], 0, words)

    @unittest.skipUnless(
        os.geteuid() == 0 and shutil.which("mmdebstrap"), "needs root and mmdebstrap"
    )
    def test_platforms(self):
        """HV_FORMATS="autolab …": these alone."""
        scratch = self.enterContext(tempfile.TemporaryDirectory(prefix="bundles."))
        root = self.new_root(f"{scratch}/root")
        command("make", "-s", "handin", "STUDENT=20260005", check=True)
        handin = shutil.move(f"{ROOT}/handin-20260005.zip", scratch)
        shutil.rmtree(f"{ROOT}/results/handin-20260005")
        for form in os.environ.get("HV_FORMATS", " ".join(PLATFORM)).split():
            for which in ("right", "wrong"):
                with self.subTest(form=form, which=which):
                    self.platform(form, which, root, handin, tempfile.mkdtemp(dir=scratch))

    def new_root(self, root):
        more = "--include=ca-certificates"
        command("mmdebstrap", "--variant=minbase", more, "bookworm", root, check=True)
        with zipfile.ZipFile(f"{bundle('gradescope')[1]}/autograder.zip") as archive:
            archive.extractall(f"{root}/autograder/source")
        chroot = (
            'mount -t proc proc "$1/proc" && env -i PATH="$PATH" HOME=/root chroot "$1" bash '
            "/autograder/source/setup.sh"
        )
        apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
        command(*apart, "bash", "-c", chroot, "bash", root, check=True)
        return root

    def platform(self, form, which, root, handin, place):
        shutil.copytree(bundle(form)[1], f"{place}/bundle")
        for name in ("layer", "out"):
            os.mkdir(f"{place}/{name}")
        with zipfile.ZipFile(handin) as archive:
            archive.extractall(f"{place}/files")
        if which == "wrong":
            for name, text in ("Makefile", THIEF), ("gather_write.c", IDLE):
                write(f"{place}/files/program/{name}", text)
        shutil.make_archive(f"{place}/handin", "zip", f"{place}/files")
        apart = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "bash", "-c")
        inside = ("bash", root, f"{place}/layer", place, PLATFORM[form])
        env = [f"{k}={v}" for k, v in CLASSROOM.items() if form == "classroom50"]
        done = command(*apart, INSIDE, *inside, *env)
        said = {name: read(f"{place}/out/{name}", "replace") for name in os.listdir(f"{place}/out")}
        self.assertIn("result", said, f"{done}{said}")
        score, tests = getattr(self, form)(said["result"])
        self.assertAlmostEqual(score, RIGHT if which == "right" else WRONG, 1, msg=said)
        if which == "wrong":
            self.assertNotIn("found", tests["program: builds"])  # the solution
            sgl = [why for name, why in tests.items() if name.startswith("program: sgl")]
            self.assertTrue(all(sgl), tests)
