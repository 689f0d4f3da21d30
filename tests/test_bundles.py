#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""make bundle: what it leaves, what it writes for each learning platform, and whether it grades in a
directory laid out as that platform does it, in a new Debian 12 without KVM."""
import glob
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import types
import unittest
import zipfile

from samples import ROOT, main

sys.path.insert(0, f"{ROOT}/teach")
import formats  # pylint: disable=wrong-import-position # where it is, is only known now
import grade

FORMATS = tuple(formats.FORMATS)
# Of 100 points; the answers have the other 30. The wrong one builds, and has the pairs of the other labs.
RIGHT, WRONG = 70, 16
UTC = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
# What the runner of Classroom 50 sets.
CLASSROOM = {
    "CLASSROOM": "rdma",
    "ASSIGNMENT": "lab05",
    "ASSIGNMENT_TYPE": "individual",
    "OWNER": "alice",
    "USERNAME": "alice",
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
su autograde -c 'ulimit -f 102400 -u 200; make' >/hand-in/out/output 2>&1""",
    "gradescope": r"""
mkdir -p /autograder/results /autograder/submission; cp -r /hand-in/files/. /autograder/submission
cp /hand-in/metadata.json /autograder/submission_metadata.json; cp /autograder/source/run_autograder /autograder
cd /autograder; chmod +x run_autograder; ./run_autograder >/hand-in/out/output 2>&1
cp /autograder/results/results.json /hand-in/out""",
    "classroom50": r"""
rm -rf /autograder; mkdir -p /__w/lab05-alice/.git /__w/_temp; cp -r /hand-in/files/. /__w/lab05-alice
cp -r /hand-in/bundle /__w/_temp/lab05; cd /__w/lab05-alice
python3 /__w/_temp/lab05/autograder.py >/hand-in/out/output 2>&1; echo $? >/hand-in/out/status
cp result.json /hand-in/out""",
    "prairielearn": r"""
rm -rf /autograder; mkdir -p /grade/student /grade/data /grade/serverFilesCourse; cp -r /hand-in/bundle/tests /grade
cp /hand-in/handin.zip /grade/student/handin-20260005.zip; echo '{}' >/grade/data/data.json
set -- $(python3 -c 'import json; print(json.load(open("/hand-in/bundle/info.json"))["externalGradingOptions"]["entrypoint"])')
chmod +x "$1"; "$@" >/hand-in/out/output 2>&1
cp /grade/results/results.json /hand-in/out""",
}


def bundle(form, lab="05"):
    made = subprocess.run(
        ["make", "-s", "bundle", f"FORMAT={form}", f"LAB={lab}"],
        cwd=ROOT,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return made, f"{ROOT}/results/bundle-{form}"


def packed(text):
    """The scores in what a platform reads: points of 100, and what each test says."""
    last = json.loads(text.splitlines()[-1])
    if "scores" in last:
        tests = json.loads(text.splitlines()[-2])["parts"]
        return sum(last["scores"].values()), {
            name: test.get("hint", "") for name, test in tests.items()
        }
    name = "test-name" if "schema" in last else "name"
    score = (
        last["score"] / 10
        if "schema" in last
        else last["score"] * RIGHT
        if "score" in last
        else sum(test["score"] for test in last["tests"])
    )
    return score, {test[name]: test["output"] for test in last["tests"]}


class Bundles(unittest.TestCase):
    longMessage = True

    def holds(self, kinds, found, only=True):
        """An object's fields and their types, as a platform's schema names them."""
        for name, kind in kinds.items():
            self.assertIsInstance(found[name], kind, name)
            self.assertFalse(kind is int and isinstance(found[name], bool), name)
        self.assertFalse(only and set(found) - set(kinds), found)

    def autolab(self, text):
        presentation, scores = map(json.loads, text.splitlines()[-2:])
        self.holds({"_presentation": str, "stages": list}, presentation, only=False)
        self.assertEqual(presentation["_presentation"], "semantic")
        for stage in presentation["stages"]:
            for test in presentation[stage].values():
                self.holds({"passed": bool, **({"hint": str} if "hint" in test else {})}, test)
                self.assertNotEqual(test["passed"], "hint" in test)
        self.holds({"scores": dict}, scores)
        self.assertEqual(set(scores["scores"]), {"text", "program"})
        for score in scores["scores"].values():
            self.assertIsInstance(score, (int, float))

    def gradescope(self, text):
        found = json.loads(text)
        self.holds({"output": str, "tests": list}, found)
        for test in found["tests"]:
            self.holds(
                {
                    "name": str,
                    "score": (int, float),
                    "max_score": (int, float),
                    "output": str,
                    "status": str,
                },
                test,
            )
            self.assertIn(test["status"], ("passed", "failed"))
            self.assertLessEqual(test["score"], test["max_score"])

    def classroom50(self, text):
        """schemas/result-v1.schema.json; no other field is allowed there."""
        found = json.loads(text)
        self.holds(
            {
                **dict.fromkeys(
                    (
                        "schema",
                        "classroom",
                        "assignment",
                        "assignment_type",
                        "owner",
                        "submission",
                        "commit",
                        "release",
                        "review",
                        "datetime",
                    ),
                    str,
                ),
                "score": int,
                "max-score": int,
                "tests": list,
            },
            found,
        )
        self.assertEqual(found["schema"], "classroom50/result/v1")
        self.assertIn(found["assignment_type"], ("individual", "group"))
        self.assertRegex(found["submission"], "^submit/")
        self.assertRegex(found["datetime"], f"^{UTC}$")
        self.assertNotIn("", [found[name] for name in found if name != "tests"])
        for test in found["tests"]:
            self.holds(
                {"test-name": str, "passed": bool, "score": int, "max-score": int, "output": str},
                test,
            )
            self.assertTrue(0 <= test["score"] <= test["max-score"], test)
        for name in ("score", "max-score"):
            self.assertEqual(found[name], sum(test[name] for test in found["tests"]))

    def prairielearn(self, text):
        found = json.loads(text)
        self.holds({"score": (int, float), "message": str, "tests": list}, found)
        self.assertTrue(0 <= found["score"] <= 1)
        self.assertLess(len(text), 1 << 20)
        for test in found["tests"]:
            self.holds(
                {"name": str, "points": (int, float), "max_points": (int, float), "output": str},
                test,
            )

    def test_formats(self):
        """Of made-up results: each format's fields, and the same points in all of them."""
        rubric = grade.read_rubric()
        row = {
            "points": {"builds": 10, "sgl": 0},
            "of": {"builds": "10", "sgl": "25", "each": "15"},
            "seed": "7",
            "why": {"builds": "", "sgl": "the blocks are wrong\n\u00e9"},
        }
        for case, (row, wrong, points) in {
            "right": (
                {**row, "points": {"builds": 10}, "of": {"builds": "10"}, "why": {}},
                [],
                RIGHT,
            ),
            "partly": (row, ["figures"], 24 + 8),
            "no program": (None, [], 0),
            "not built": (
                {
                    **row,
                    "points": {"builds": 0, "sgl": 0, "each": 0},
                    "why": {"builds": "error", "sgl": "", "each": ""},
                },
                [],
                30,
            ),
        }.items():
            h = types.SimpleNamespace(
                row=row,
                student="1",
                refused="",
                remarks=["a note"],
                reasons={part: ["it is off"] for part in wrong},
                parts=[],
            )
            grade.settle(h, rubric)
            tests = list(formats.scaled(h, rubric.shares))
            self.assertAlmostEqual(sum(test.most for test in tests), RIGHT)
            os.environ.update(CLASSROOM)
            for form in FORMATS:
                with self.subTest(case=case, form=form):
                    text = formats.result(form, rubric.shares, h)
                    self.assertTrue(text.isascii())
                    getattr(self, form)(text)
                    score, said = packed(text)
                    self.assertAlmostEqual(score, points, 1)
                    for name, why in said.items():
                        self.assertEqual(
                            bool(why), any(t.name == name and t.got == 0 for t in tests), name
                        )
        print(
            "ok - bundles: four formats of made-up results have what the platforms ask for",
            flush=True,
        )

    def test_contents(self):
        """What each platform takes, and no more; the suite in it is the one that is committed."""
        whole = subprocess.run(
            ["git", "ls-tree", "-r", "--name-only", "HEAD"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        for form, files in {
            "autolab": {"autograde-Makefile", "autograde.tar"},
            "gradescope": {"autograder.zip"},
            "classroom50": {"autograder.py", "bundle.sh", "runtime.json", "suite.tar.gz"},
            "prairielearn": {"info.json", "question.html", "tests/bundle.sh", "tests/suite.tar.gz"},
        }.items():
            with self.subTest(form=form):
                made, out = bundle(form)
                self.assertEqual(made.returncode, 0, made)
                found = [
                    path for path in glob.glob(f"{out}/**", recursive=True) if os.path.isfile(path)
                ]
                self.assertEqual({os.path.relpath(path, out) for path in found}, files)
                self.assertLess(
                    sum(map(os.path.getsize, found)), 1 << 20
                )  # Classroom 50 takes 10 MB
                if form == "autolab":
                    with tarfile.open(f"{out}/autograde.tar") as archive:
                        suite = archive.extractfile("suite.tar.gz").read()
                    with open(f"{out}/autograde-Makefile", encoding="ascii") as file:
                        self.assertRegex(
                            file.read(), r"\Aautograde:\n\t@.* \|\| true\n\Z"
                        )  # make adds no words
                elif form == "gradescope":
                    with zipfile.ZipFile(f"{out}/autograder.zip") as archive:
                        self.assertEqual(
                            set(archive.namelist()),
                            {"bundle.sh", "run_autograder", "setup.sh", "suite.tar.gz"},
                        )
                        for name in ("run_autograder", "setup.sh"):
                            self.assertTrue(archive.getinfo(name).external_attr >> 16 & 0o111, name)
                        suite = archive.read("suite.tar.gz")
                else:
                    with open([path for path in found if path.endswith(".gz")][0], "rb") as file:
                        suite = file.read()
                with tarfile.open(fileobj=io.BytesIO(suite)) as archive:
                    self.assertEqual(sorted(m.name for m in archive if m.isfile()), sorted(whole))
        with open(f"{ROOT}/results/bundle-prairielearn/info.json", encoding="ascii") as file:
            info = json.load(file)
        self.holds(
            {
                "uuid": str,
                "type": str,
                "title": str,
                "topic": str,
                "gradingMethod": str,
                "externalGradingOptions": dict,
            },
            info,
        )  # schemas/infoQuestion.json has more, none of them required
        self.assertRegex(info["uuid"], "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
        self.assertEqual((info["type"], info["gradingMethod"]), ("v3", "External"))
        self.holds(
            {"image": str, "timeout": int, "enableNetworking": bool, "entrypoint": str},
            info["externalGradingOptions"],
        )
        self.assertLessEqual(info["externalGradingOptions"]["timeout"], 600)
        for words in ("", "x"), ("gradescope", "04"):
            self.assertNotEqual(bundle(*words)[0].returncode, 0, words)
        print("ok - bundles: four bundles hold what the platforms take", flush=True)

    @unittest.skipUnless(
        os.geteuid() == 0 and shutil.which("mmdebstrap"), "needs root and mmdebstrap"
    )
    def test_platforms(self):
        """HV_HANDIN=FILE: the zip of make handin LAB=05. HV_ROOT=DIR: a root on which setup.sh has
        run already. HV_FORMATS="autolab …", HV_WHICH="right wrong": these alone."""
        with tempfile.TemporaryDirectory(prefix="bundles.") as scratch:
            root, handin = os.environ.get("HV_ROOT"), os.environ.get("HV_HANDIN")
            if not root:
                root = self.new_root(f"{scratch}/root")
            if not handin:
                subprocess.run(
                    ["make", "-s", "handin", "STUDENT=20260005"],
                    cwd=ROOT,
                    check=True,
                    stdin=subprocess.DEVNULL,
                )
                handin = shutil.move(f"{ROOT}/handin-20260005.zip", scratch)
                shutil.rmtree(f"{ROOT}/results/handin-20260005")
            for form in os.environ.get("HV_FORMATS", " ".join(FORMATS)).split():
                for which in os.environ.get("HV_WHICH", "right wrong").split():
                    with self.subTest(form=form, which=which):
                        self.platform(form, which, root, handin, tempfile.mkdtemp(dir=scratch))

    def new_root(self, root):
        subprocess.run(
            ["mmdebstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", root],
            check=True,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with zipfile.ZipFile(f"{bundle('gradescope')[1]}/autograder.zip") as archive:
            archive.extractall(f"{root}/autograder/source")
        subprocess.run(
            [
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "bash",
                "-c",
                'mount -t proc proc "$1/proc" && env -i PATH="$PATH" HOME=/root chroot "$1" bash '
                "/autograder/source/setup.sh",
                "bash",
                root,
            ],
            check=True,
            stdin=subprocess.DEVNULL,
        )
        return root

    def platform(self, form, which, root, handin, place):
        made, out = bundle(form)
        self.assertEqual(made.returncode, 0, made)
        shutil.copytree(out, f"{place}/bundle")
        for name in ("layer", "out"):
            os.mkdir(f"{place}/{name}")
        with zipfile.ZipFile(handin) as archive:
            archive.extractall(f"{place}/files")
        if which == "wrong":
            for name, text in ("Makefile", THIEF), ("gather_write.c", IDLE):
                with open(f"{place}/files/program/{name}", "w", encoding="ascii") as file:
                    file.write(text)
        shutil.make_archive(f"{place}/handin", "zip", f"{place}/files")
        with open(f"{place}/metadata.json", "w", encoding="ascii") as file:
            json.dump(
                {
                    "id": 1,
                    "created_at": "2026-11-22T10:00:00.000000+00:00",
                    "assignment": {"id": 2},
                    "users": [{"email": "a@example.com", "id": 3, "name": "Alice"}],
                    "previous_submissions": [],
                },
                file,
            )
        subprocess.run(
            [
                "unshare",
                "--mount",
                "--pid",
                "--net",
                "--fork",
                "--kill-child",
                "bash",
                "-c",
                INSIDE,
                "bash",
                root,
                f"{place}/layer",
                place,
                PLATFORM[form],
                *(f"{k}={v}" for k, v in CLASSROOM.items() if form == "classroom50"),
            ],
            stdin=subprocess.DEVNULL,
            check=False,
        )
        with open(f"{place}/out/output", encoding="utf-8", errors="replace") as file:
            said = text = file.read()
        if form != "autolab":
            name = "result.json" if form == "classroom50" else "results.json"
            self.assertTrue(os.path.exists(f"{place}/out/{name}"), said)
            with open(f"{place}/out/{name}", encoding="ascii") as file:
                text = file.read()
        getattr(self, form)(text)
        score, tests = packed(text)
        self.assertAlmostEqual(score, RIGHT if which == "right" else WRONG, 1, msg=(tests, said))
        if which == "wrong":
            self.assertNotIn("found", tests["program: builds"])  # the solution
            self.assertTrue(
                all(why for name, why in tests.items() if name.startswith("program: sgl")), tests
            )
        print(f"ok - bundles: {form} gives {score:g} to the {which} one", flush=True)


if __name__ == "__main__":
    main()
