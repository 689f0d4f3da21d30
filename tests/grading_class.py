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
import subprocess
import sys
import zipfile

from pairs import fnv1a, pattern
from samples import ROOT, SAMPLES

sys.path += [f"{ROOT}/teach", f"{ROOT}/learn"]
# pylint: disable=wrong-import-position
import answers
import expected

TEMPLATE = "20260001"  # who runs make handin in test_handin.py
# What a report may hold, whatever strangers wrote: nothing that a terminal obeys.
SHOWN = "[\n -~\u00b7\u00c0-\u024f\u3001-\u3011\u3400-\u9fff\uff01-\uff5e\U00020000-\U000323af]*"
SIZES = "4K,16K,64K,256K"
PAIRS = {sample[:2]: sample for sample in SAMPLES}
LABS = ("05", "06", "07")


def command(*words, **more):
    return subprocess.run(
        words, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, **more
    )


def ended(files, student, lab, end="complete (27 of 27 answers given)"):
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


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(as_bytes(content))
    return path


def classmates(count):
    """Students whose blocks are as long as the template's: what was measured with one
    student's layout is a measurement with theirs, too."""
    found, number = [], int(TEMPLATE)
    size = expected.layout_line(TEMPLATE).split()[1]
    while len(found) < count:
        number += 1
        first = int.from_bytes(pattern(8, fnv1a(str(number).encode())), "little")
        if f"block_size={17 + 2 * (first % 1000)}" == size:
            found.append(str(number))
    return found


CLASS = classmates(4)


def jitter(match):
    """Another run's figure: it differs by the tenth of a per cent that virtual time does."""
    return f"{match[1]}={float(match[2]) * random.uniform(0.999, 1.001):.3f}"


def measured_by(student, pair, lab):
    """What make handin writes of a measurement, with the figures of the reference: test_handin.py compares it
    with a real one. pair: what this student's ordinary pair printed."""
    with open(f"{ROOT}/bench/reference.txt", encoding="ascii") as file:
        bench = re.search(f"^{PAIRS[lab]}\n((BENCH.*\n)*)", file.read(), re.M)[1]
    bench = re.sub("(lat_p50_us|bw_MBps)=([0-9.]*)", jitter, bench)
    bench = re.sub(
        "(lat_p99_us)=([0-9.]*)",  # never below the median
        lambda m: f"{m[1]}={float(m[2]) * random.uniform(1.003, 1.01):.2f}",
        bench,
    )
    text = re.sub("moved .*\n", "REGISTER bytes=4708445 us=36012.0\n" + bench, pair)
    more = f"--bench --iters=1 --sizes={SIZES} --timeout=300 "
    text = text.replace(f"--student={student} ", f"--student={student} {more}")
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
        with open(path, encoding="utf-8") as file:
            files[f"program/{os.path.basename(path)}"] = file.read()
    return ended({**files, "answers.txt": answered()}, student, lab)


def make_class():
    """Students' pairs, as make handin has them run, in one boot: the files of each student's hand-in."""
    random.seed(1)
    command("make", "-s", "all", check=True)
    os.makedirs(f"{ROOT}/results", exist_ok=True)
    seeds = {s: expected.of_student(s).seed for s in CLASS}
    # Two as make handin runs them; two at the same addresses each time (see FIXED), by which nobody is told apart.
    script = "".join(
        f"{'' if s in CLASS[:2] else 'setarch -R '}"
        f"teach/handin.sh inside pairs {s} {seeds[s]} 05 05_* || exit\n"
        for s in CLASS
    )
    env = {"TESTENV_CLOCK": "virtual", "TESTENV_LIMIT": "3000", "TESTENV_CPU": "max,-erms,-fsrm"}
    boot = command("testenv/testenv.sh", "run", "bash", "-c", script, env={**os.environ, **env})
    assert boot.returncode == 0, boot
    good = {}
    for n, student in enumerate(CLASS):
        runs, lab = {}, LABS[n % 3]
        for path in glob.glob(f"{ROOT}/results/handin-{student}/runs/*"):
            with open(path, encoding="utf-8") as file:
                runs[f"runs/{os.path.basename(path)}"] = file.read()
        shutil.rmtree(f"{ROOT}/results/handin-{student}")
        good[student] = with_program(runs, student, lab)
    return good


def lab_of(files):
    return re.search("lab=(..)", files["manifest"])[1]


def of_another(files, student):
    """The same, as this student would have run it: another layout, seed and digests, other addresses."""
    old, runs = re.search("student=(\\S+)", files["manifest"])[1], {}
    for name, text in files.items():
        part = name[5:-4]
        if name.startswith("runs/") and part in PAIRS.values():
            length, digest = expected.of_student(student).message[part]
            text = re.sub("bytes=[0-9]+ digest=.*", f"bytes={length} digest={digest:016x}", text)
            text = re.sub("LAYOUT .*", expected.layout_line(student), text)
            text = re.sub("0x[0-9a-f]{6,}", lambda m: f"0x{random.getrandbits(44):x}", text)
        if name.startswith("runs/"):
            runs[name] = text.replace(old, student)
    return with_program(runs, student, lab_of(files))


def within(part, search, new, count=1):
    """Spoils a hand-in: in one run, what search finds becomes new."""

    def spoil(files):
        old = files[f"runs/{part}.txt"]
        changed = re.sub(search, new, old, count=count, flags=re.S | re.M)
        assert changed != old, (part, search)
        return {**files, f"runs/{part}.txt": changed}

    return spoil


def without(name):
    return lambda files: {n: data for n, data in files.items() if n != name}


BENCHED = {"measured", "figures"}
CHOSEN = {"chosen", *BENCHED}  # what hangs on the pair of the student's own lab
ALL = {*SAMPLES[:4], *CHOSEN, "complete", "own"}
RESULT = "is not that of student"
# Kinds of bad hand-in, with a manifest that fits: what makes one of a good one of lab 05, the parts that it loses,
# and the reason.
BAD = {
    "digest of one side": (
        within("03_read", "digest=....", "digest=0bad"),
        {"03_read"},
        f"the server's result {RESULT}",
    ),
    "digest of the other": (
        within("02_send_recv", "(digest=.*digest=)....", r"\g<1>0bad"),
        {"02_send_recv"},
        f"the client's result {RESULT}",
    ),
    "failed pair": (
        within("05_gather_write", "status=PASS", "status=FAIL", 2),
        CHOSEN,
        "the client's part did not pass",
    ),
    "exit status": (within("04_atomic", "exit 0", "exit 1"), {"04_atomic"}, "it failed"),
    "no server": (
        within("02_send_recv", "--- server.*(?=--- client)", ""),
        {"02_send_recv"},
        "there are 1 sides",
    ),
    "a server too many": (
        within("03_read", "(?=RESULT)", "--- server: 03_read/read\n"),
        {"03_read"},
        "there are 3 sides",
    ),
    "no RESULT": (
        within("05_gather_write", "^RESULT.*?\n", ""),
        CHOSEN,
        "the server has 0 RESULT lines",
    ),
    "two RESULTs": (
        within("02_send_recv", "(RESULT .*?)PASS(.*?\n)", r"\1FAIL\2\1PASS\2"),
        {"02_send_recv"},
        "has 2 RESULT lines",
    ),
    "more after RESULT": (
        within("04_atomic", "(?=--- client)", "really\n"),
        {"04_atomic"},
        "not one at its end",
    ),
    "swapped roles": (within("03_read", "role=server", "role=client"), {"03_read"}, RESULT),
    "another seed": (
        within("05_gather_write", "seed=[0-9]*", "seed=1", 2),
        CHOSEN,
        "layout is not student",
    ),
    "no layout": (within("05_gather_write", "LAYOUT.*?\n", ""), CHOSEN, "layout is not student"),
    "no run": (without("runs/01_hello_write.txt"), {"01_hello_write"}, "it was not run"),
    "no environment": (without("runs/machine.txt"), {"complete"}, "isn't as make handin packed it"),
    "cut off": (
        within("measured", "BENCH method=auto block_size=512.*", ""),
        BENCHED,
        "it has no end",
    ),
    "empty": (lambda f: {**f, "runs/03_read.txt": ""}, {"03_read"}, "it has no end"),
    "binary": (
        lambda f: {**f, "runs/03_read.txt": random.randbytes(20000)},
        {"03_read"},
        "it has no end",
    ),
    "8 MiB": (
        lambda f: {**f, "runs/03_read.txt": f["runs/03_read.txt"] + "x" * (8 << 20)},
        ALL,
        "an archive of more than",
    ),
    "percentiles": (
        within("measured", "(each block_size=512 .*?lat_p99_us=)[0-9.]*", r"\g<1>1.5"),
        {"figures"},
        "the median is above the 99th percentile",
    ),
    "a point missing": (
        within("measured", "BENCH method=copy block_size=128 [^\n]*\n", ""),
        BENCHED,
        "no BENCH line of copy, block size 128",
    ),
    "a point twice": (
        within("measured", "(BENCH method=copy block_size=128 [^\n]*\n)", r"\1\1"),
        BENCHED,
        "nobody asked for this point",
    ),
    "no figure": (
        within("measured", "(sgl block_size=64 .*?p50_us=)[0-9.]*", r"\g<1>nan"),
        BENCHED,
        "a figure is missing, or isn't one",
    ),
    "a figure of nothing": (
        within("measured", "(sgl block_size=64 .*?bw_MBps=)[0-9.]*", r"\g<1>0.0"),
        BENCHED,
        "a figure is missing, or isn't one",
    ),
}
