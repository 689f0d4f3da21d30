# SPDX-License-Identifier: BSD-2-Clause
"""A class of students for test_grading.py: honest hand-ins, and what can go wrong with one. A hand-in is here a
dictionary of its files; packed() makes the zip of it."""
import functools
import glob
import hashlib
import io
import os
import random
import re
import shutil
import sys
import zipfile

from samples import ROOT, SAMPLES, ran, read

sys.path += [f"{ROOT}/teach", f"{ROOT}/learn"]
# pylint: disable=wrong-import-position
import answers
import expected

TEMPLATE = "20260001"  # who runs make handin in test_handin.py
# Their blocks are as long: what was measured with the template's layout is a measurement with theirs, too.
CLASS = ("20260517", "20260720", "20261007", "20262736")
# What a report may hold, whatever strangers wrote: nothing that a terminal obeys.
SHOWN = "[\n -~\u00b7\u00c0-\u024f\u3001-\u3011\u3400-\u9fff\uff01-\uff5e\U00020000-\U000323af]*"
SIZES = "4K,16K,64K,256K"
PAIRS = {sample[:2]: sample for sample in SAMPLES}
LABS = ("05", "06", "07")


def command(*words, **more):
    return ran(words, timeout=None, **more)


def ended(files, student, lab, end="runs complete (27 of 27 answers given)"):
    """With the manifest that fits."""
    files = {name: data for name, data in files.items() if name != "manifest"}
    sums = [f"{hashlib.sha256(as_bytes(files[n])).hexdigest()}  {n}" for n in sorted(files)]
    head = f"HANDIN version=2 student={student} lab={lab} sizes={SIZES}"
    return {**files, "manifest": "\n".join([head, *sums, f"end {end}", ""])}


def as_bytes(data):
    return data if isinstance(data, bytes) else data.encode()


def packed(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def jitter(match):
    """Another run's figure: it differs by the tenth of a per cent that virtual time does."""
    return f"{match[1]}={float(match[2]) * random.uniform(0.999, 1.001):.3f}"


def measured_by(student, pair, lab):
    """What make handin writes of a measurement, with the figures of the reference: test_handin.py compares it
    with a real one. pair: what this student's ordinary pair printed."""
    bench = re.search(f"^{PAIRS[lab]}\n((BENCH.*\n)*)", read("bench/reference.txt"), re.M)[1]
    bench = re.sub("(lat_p.._us|bw_MBps)=([0-9.]*)", jitter, bench)
    text = re.sub("moved .*\n", "REGISTER bytes=4708445 us=36012.0\n" + bench, pair)
    more = f"--bench --iters=1 --sizes={SIZES} --timeout=300 "
    text = text.replace(f"--student={student} ", f"--student={student} {more}")
    sizes = {expected.of_student(s).layout.block_size for s in (student, TEMPLATE)}
    assert len(sizes) == 1, sizes
    length, digest = expected.of_student(student).message["measured"]
    return re.sub("bytes=[0-9]+ digest=.*", f"bytes={length} digest={digest:016x}", text)


@functools.lru_cache(None)
def answered():
    """All answers, and lines among them that look like those of a run."""
    text = answers.template()
    filled = r"\1: At the path MTU (交叉点)"
    return re.sub(r"(?m)^(prediction|seen|reason|answer):$", filled, text) + "=== exit 1\n"


def with_program(runs, student, lab):
    """A hand-in: the answers and the sample's program beside these runs."""
    files = {**runs, "runs/measured.txt": measured_by(student, runs[f"runs/{PAIRS[lab]}.txt"], lab)}
    for path in glob.glob(f"{ROOT}/{PAIRS[lab]}/*.c") + [f"{ROOT}/{PAIRS[lab]}/Makefile"]:
        files[f"program/{os.path.basename(path)}"] = read(path)
    return ended({**files, "answers.txt": answered()}, student, lab)


def make_class():
    """Students' pairs, as make handin has them run, in one boot: the files of each student's hand-in."""
    random.seed(1)
    command("make", "-s", "all", check=True)
    seeds = {s: expected.of_student(s).seed for s in CLASS}
    # Two as make handin runs them; two at the same addresses each time (see FIXED), by which nobody is told apart.
    script = "".join(
        f"{'' if s in CLASS[:2] else 'setarch -R '}"
        f"teach/handin.sh inside pairs {s} {seeds[s]} 05 05_* || exit\n"
        for s in CLASS
    )
    env = {"TESTENV_CLOCK": "virtual", "TESTENV_LIMIT": "3000", "TESTENV_CPU": "max,-erms,-fsrm"}
    boot = command("testenv/testenv.sh", "run", "bash", "-c", script, env=env)
    assert boot.returncode == 0, boot
    good = {}
    for n, student in enumerate(CLASS):
        runs, lab = {}, LABS[n % 3]
        for path in glob.glob(f"{ROOT}/results/handin-{student}/runs/*"):
            runs[f"runs/{os.path.basename(path)}"] = read(path)
        shutil.rmtree(f"{ROOT}/results/handin-{student}")
        good[student] = with_program(runs, student, lab)
    return good


def within(part, search, new, count=1):
    """Spoils a hand-in: in one run, what search finds becomes new."""

    def spoil(files):
        old = files[f"runs/{part}.txt"]
        changed = re.sub(search, new, old, count=count, flags=re.S | re.M)
        assert changed != old, (part, search)
        return {**files, f"runs/{part}.txt": changed}

    return spoil


BENCHED = {"measured", "figures"}
CHOSEN = {"chosen", *BENCHED}  # what hangs on the pair of the student's own lab
ALL = {*SAMPLES[:4], *CHOSEN, "complete", "own"}
# Kinds of bad hand-in, with a manifest that fits: what makes one of a good one of lab 05, the parts that it loses,
# and the reason.
BAD = {
    "digest": (
        within("02_send_recv", "(digest=.*digest=)....", r"\g<1>0bad"),
        {"02_send_recv"},
        "the client's result is not that of student",
    ),
    "failed pair": (within("04_atomic", "exit 0", "exit 1"), {"04_atomic"}, "it failed"),
    "another seed": (
        within("05_gather_write", "seed=[0-9]*", "seed=1", 2),
        CHOSEN,
        "layout is not student",
    ),
    "no run": (
        lambda files: {n: data for n, data in files.items() if "01_hello" not in n},
        {"01_hello_write"},
        "it was not run",
    ),
    "a point missing": (
        within("measured", "BENCH method=copy block_size=128 [^\n]*\n", ""),
        BENCHED,
        "not one of each method",
    ),
}
