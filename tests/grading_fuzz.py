# SPDX-License-Identifier: BSD-2-Clause
"""Hand-ins from people who don't wish the grader well, for test_grading.py: mangled ones, and ones
of the full size that try to stall it. They are graded in this process, so that one that breaks the
grader shows where."""
import copy
import random
import re
import sys
import tempfile
import time

from grading_class import SHOWN, write
from samples import ROOT, SOME, some

sys.path.insert(0, f"{ROOT}/grading")
import collect  # noqa: E402  pylint: disable=wrong-import-position
import figures  # noqa: E402  pylint: disable=wrong-import-position
import grade  # noqa: E402  pylint: disable=wrong-import-position
import handin  # noqa: E402  pylint: disable=wrong-import-position

RUBRIC = grade.read_rubric(f"{ROOT}/grading/rubric.txt")
REFERENCE = figures.read_reference(f"{ROOT}/grading/reference.txt")
# Lines that mean something, or did in some file.
LINES = (
    b"=== measured",
    b"=== measured exit 0",
    b"=== 03_read exit 4294967296",
    b"=== answers",
    b"=== end complete",
    b"=== end",
    b"===",
    b"=== ",
    b"HANDIN version=1 student=1 lab=05",
    b"HANDIN",
    b"ENV ",
    b"--- server: ",
    b"--- client: x",
    b"---",
    b"RESULT sample=03_read",
    b"RESULT =",
    b"LAYOUT seed==1",
    b"BENCH method=sgl",
    b"BENCH bytes=1 bytes=1",
    b"BENCH lat_p50_us=1e999 depth=0",
    b"BENCH block_size=" + b"9" * 5000,
    b"  hint: ",
    b"0x0 0xf",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    "\u0663=\u0661 \u2028\u202e".encode(),
    b"\r",
    b"\x1b[2J",
)


def mangle(data):
    """One change to the bytes of a file."""
    lines = data.split(b"\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    byte = random.randrange(len(data) + 1)
    count = random.choice((1, 1, 2, 10, 100))
    kind = random.randrange(14)
    if kind == 0:
        return data[:byte]
    if kind == 1:
        return data[:byte] + data[byte + count :]
    if kind == 2:
        return data[:byte] + random.randbytes(count) + data[byte + count :]
    if kind == 3:
        controls = random.choices((0, 9, 11, 13, 27, 127, 155), k=count)
        return data[:byte] + bytes(controls) + data[byte:]
    if kind == 4:  # one digit or letter for another
        return (
            data[:byte]
            + random.choice(b"0123456789abcdef.=- \n").to_bytes(1, "little")
            + data[byte + 1 :]
        )
    if kind == 5:
        lines[at:at] = [random.choice(LINES)] * count
    elif kind == 6:
        lines[at:at] = [
            random.choice((b"x", b"=", b" ", b"\t", b"0", b"a=1 ", b"\xe4", b"===\t"))
            * random.choice((100, 5000, 100000))
        ]
    elif kind == 7:
        del lines[at : at + count]
    elif kind == 8:
        lines[at:at] = lines[other : other + count]
    elif kind == 9:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 10:
        lines[at] = lines[at][: random.randrange(len(lines[at]) + 1)]
    elif kind == 11:
        lines[at] += b" " + random.choice(lines[other].split() or [b"="])
    elif kind == 12:
        lines[at] = random.choice(LINES)
    else:
        return random.choice(
            (
                lambda d: d + d,
                lambda d: d.replace(b"\n", b"\r\n"),
                lambda d: b"\xff\xfe" + d,
                lambda d: b"\xef\xbb\xbf" + d,
                lambda d: d.decode("latin-1").encode("utf-16"),
            )
        )(data)
    return b"\n".join(lines)


def graded(folder, name):
    """A file's grade by itself, and what is printed of it."""
    submission = collect.Submission(name)
    submission.text = f"{folder}/{name}"
    h = handin.Handin(submission)
    grade.check(h, RUBRIC, REFERENCE, [], {})
    alone = copy.copy(h)  # with itself in the class twice, as another's
    alone.student += "x"
    grade.compare([h, alone])
    h.reasons.pop("own", None)
    grade.settle(h, RUBRIC)
    return h, grade.report(h, RUBRIC)


def mutants(good, count):
    """Mangles good hand-ins, and ones whose digests are wrong or another's. Fails where the grader
    raises, prints what isn't printable, or gives a part points that it hadn't before."""
    random.seed(2)  # the same changes each time
    students = list(good)
    bases = []
    for student, other in zip(students, students[1:] + students[:1]):
        bases += [
            (student, good[student]),
            (student, re.sub("digest=.*", "digest=" + "0" * 16, good[student])),
            (student, good[other].replace(f"student={other}", f"student={student}", 1)),
        ]
    with tempfile.TemporaryDirectory(prefix="grading.") as path:
        points = []
        for student, text in bases:
            write(f"{path}/handin-{student}.txt", text)
            points.append(graded(path, f"handin-{student}.txt")[0].points)
        for n in range(count):
            student, text = bases[n % len(bases)]
            data = text.encode()
            for _ in range(random.choice((1, 1, 2, 4))):
                data = mangle(data)
            name = f"handin-{student}.txt"
            write(f"{path}/{name}", data)
            h, report = graded(path, name)
            assert re.fullmatch(SHOWN, report), (n, report)
            for part, most in points[n % len(bases)].items():
                assert h.points[part] <= most, (n, part, report)
    return count


def floods(good, student):
    """Files of nearly 1 MiB, most of it one thing over and over. Returns the CPU seconds of the
    slowest."""
    random.seed(SOME)  # over many runs, all with all
    slowest, size = 0, handin.MAX_FILE - len(good.encode()) - 100
    places = [good.index(mark) for mark in ("RESULT", "=== 04", "BENCH", "HANDIN")] + [len(good)]
    units = [line.decode("utf-8", "surrogateescape") for line in LINES if len(line) < 100]
    units += [
        " ",
        "\t",
        "0",
        "=",
        "=== a",
        "===\t",
        "a=1 ",
        "0x1 ",
        "\x85",
        "\u4ea4",
        "\x1b[m",
        "RESULT a=1",
        "LAYOUT a=1",
        "BENCH a=1",
        "BENCH 0x",
        "--- a",
        "HANDIN a=1",
        "ENV a",
        ";",
        '"',
        "\f",
        "\\-",
        "\n 1 | ",
        "\n     | ",
        "01_hello_write server: x",
        "--- server: a",
        "swap ",
        "look ->",
    ]
    with tempfile.TemporaryDirectory(prefix="grading.") as path:
        for unit in [one + random.choice(("", "\n")) for one in some(units)]:
            times = size // len(unit.encode("utf-8", "surrogateescape"))
            if "\n" in unit or "\r" in unit:
                times = min(times, handin.MAX_LINES - good.count("\n") - 5)
            at, word = random.choice(places), random.choice(("", "RESULT ", "BENCH "))
            if unit[:4] in ("swap", "look"):  # words of 04 mean something in its section
                at = good.index("RESULT sample=04")
            write(
                f"{path}/handin-{student}.txt",
                f"{random.choice(('', '<p>'))}{good[:at]}{word}{unit * times}\n{good[at:]}",
            )
            began = time.process_time()
            graded(path, f"handin-{student}.txt")
            slowest = max(slowest, time.process_time() - began)
    return slowest
