# SPDX-License-Identifier: BSD-2-Clause
"""A class of students for test_grading.py: honest hand-ins, and what can go wrong with one."""
import html
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import textwrap

from pairs import fnv1a, pattern
from samples import ROOT, SAMPLES

sys.path.append(f"{ROOT}/grading")
import collect  # noqa: E402  pylint: disable=wrong-import-position

TEMPLATE = "20260001"
# What a report may hold, whatever strangers wrote: nothing that a terminal obeys.
SHOWN = "[\n -~\u00b7\u00c0-\u024f\u3001-\u3011\u3400-\u9fff\uff01-\uff5e\U00020000-\U000323af]*"
SIZES = "4K,16K,64K,256K"
GOOD = 4  # two of lab 05, one of each other
PAIRS = {sample[:2]: sample for sample in SAMPLES}


def command(*words, **more):
    return subprocess.run(
        words, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, **more
    )


def layout_line(student):
    return command("grading/grade.py", "--student", student).stdout.strip()


def bench_digest(student):
    """Of the last message that is measured: 64 KiB of the student's pattern."""
    seed = int(re.search("seed=([0-9]*)", layout_line(student))[1])
    return f"{fnv1a(pattern(65536, seed)):016x}"


def classmates(count):
    """Students whose blocks are as long as the template's: what was measured with one
    student's layout is a measurement with theirs, too."""
    found, number = [], int(TEMPLATE)
    size = layout_line(TEMPLATE).split()[1]
    while len(found) < count:
        number += 1
        first = int.from_bytes(pattern(8, fnv1a(str(number).encode())), "little")
        if f"block_size={17 + 2 * (first % 1000)}" == size:
            found.append(str(number))
    return found


def jitter(match):
    """Another run's figure: it differs by the tenth of a per cent that virtual time does."""
    return f"{match[1]}={float(match[2]) * random.uniform(0.999, 1.001):.3f}"


def measured_by(student, pair, lab):
    """What make handin writes of a measurement, with the figures of the reference: test_handin.py compares it
    with a real one. pair: the section of this student's ordinary pair."""
    with open(f"{ROOT}/grading/reference.txt", encoding="ascii") as file:
        bench = re.search(f"^{PAIRS[lab]}\n((BENCH.*\n)*)", file.read(), re.M)[1]
    bench = re.sub("(lat_p50_us|bw_MBps)=([0-9.]*)", jitter, bench)
    bench = re.sub(
        "(lat_p99_us)=([0-9.]*)",  # never below the median
        lambda m: f"{m[1]}={float(m[2]) * random.uniform(1.003, 1.01):.2f}",
        bench,
    )
    section = re.sub("=== [^ \n]+", "=== measured", pair)
    section = re.sub("moved .*\n", "REGISTER bytes=4708445 us=36012.0\n" + bench, section)
    section = section.replace(
        f"--student={student} ",
        f"--student={student} --bench --iters=1 --sizes={SIZES} --timeout=300 ",
    )
    return re.sub("bytes=[0-9]+ digest=.*", "bytes=65536 digest=" + bench_digest(student), section)


def make_class():
    """Students' pairs, as make handin has them, in one boot: the text of each student's file."""
    random.seed(1)
    command("make", "-s", "all", check=True)
    students = [TEMPLATE, *classmates(GOOD - 1)]
    seeds = {s: re.search("seed=([0-9]*)", layout_line(s))[1] for s in students}
    # Two as make handin runs them; two at the same addresses each time (see FIXED), by which nobody is told apart.
    script = "".join(
        f"echo STUDENT {s}; {'' if s in students[:2] else 'setarch -R '}"
        f"grading/handin.sh inside pairs {s} {seeds[s]} 05 05_* || exit\n"
        for s in students
    )
    boot = command(
        "testenv/testenv.sh",
        "run",
        "bash",
        "-c",
        script,
        env={
            **os.environ,
            "TESTENV_CLOCK": "virtual",
            "TESTENV_LIMIT": "3000",
            "TESTENV_CPU": "max,-erms,-fsrm",
        },
    )
    pairs = boot.stdout.split("STUDENT ")[1:]
    assert boot.returncode == 0 and len(pairs) == len(students), "the pairs in the VM failed"
    good = {}
    for n, text in enumerate(pairs):
        student, _, body = text.partition("\n")
        lab = ["05", "06", "07"][n % 3]
        good[student] = (
            f"HANDIN version=1 student={student} lab={lab} sizes={SIZES}\n{body}"
            f"{measured_by(student, section(body, PAIRS[lab]), lab)}=== end runs complete (0 of 27 answers given)\n"
        )
    good[TEMPLATE] = good[TEMPLATE].replace(
        "=== end runs complete (0 ", f"=== answers\n{answered()}=== end complete (27 "
    )
    return good


def answered():
    """All answers, and marks among them that look like those of make handin."""
    template = command(
        "python3",
        "-c",
        "import sys; sys.path.append('learn'); import answers; print(answers.template())",
        check=True,
    ).stdout
    return (
        re.sub(r"(?m)^(prediction|seen|reason|answer):$", r"\1: At the path MTU (交叉点)", template)
        + "=== end complete\n=== answers\n"
    )


def make_handin():
    """A real one of TEMPLATE, by make, with all answers but one: how that ended, and the text."""
    answers = tempfile.NamedTemporaryFile("w", suffix=".txt")
    answers.write(re.sub(r"(?s)(## explain 3\n.*?answer:)[^\n]*", r"\1", answered()))
    answers.flush()
    made = command("make", "handin", f"STUDENT={TEMPLATE}", f"ANSWERS={answers.name}")
    name = f"{ROOT}/handin-{TEMPLATE}.txt"
    with open(name, encoding="utf-8") as file:
        text = file.read()
    os.remove(name)
    check_packed(f"{ROOT}/handin-{TEMPLATE}.zip", text)
    return made, text


def check_packed(name, text):
    """The archive beside it holds this text and the program, and a manifest that fits both."""
    with tempfile.TemporaryDirectory() as scratch:
        (found,) = collect.collect(name, "05", scratch)
        assert found.student == TEMPLATE and not found.refused and not found.remarks, (
            vars(found),
            text[:300],
        )
        assert sorted(os.listdir(found.program)) == ["Makefile", "gather_write.c"], vars(found)
        with open(found.text, encoding="utf-8") as packed:
            assert packed.read() == text
    os.remove(name)


def section(text, name):
    return re.search(f"=== {name}\n.*?=== {name} exit [0-9]+\n", text, re.S)[0]


def within(name, pattern, new, count=1):
    """Spoils a hand-in: in one section, what pattern finds becomes new."""

    def spoil(text):
        old = section(text, name)
        changed = re.sub(pattern, new, old, count=count, flags=re.S | re.M)
        assert changed != old, (name, pattern)
        return text.replace(old, changed)

    return spoil


def bench(method, block_size, **by):
    """Multiplies figures of one method at one block size of the sweep."""

    def spoil(text):
        def scale(match):
            line = match[0]
            for name, factor in by.items():
                line = re.sub(
                    f"({name}[a-zA-Z0-9_]*)=([0-9.]+)",
                    lambda m: f"{m[1]}={float(m[2]) * factor:.3f}",
                    line,
                )
            return line

        return re.sub(
            f"BENCH method={method} block_size={block_size} .*bytes=65536 .*", scale, text
        )

    return spoil


def in_proportion(text):
    """The shortest messages' figures, made from those of the next size."""
    lines = re.findall("(?m)^BENCH .*", text)
    for short, longer in zip(lines[:5], lines[5:10]):
        less = int(re.search(r"bytes=(\d+)", short)[1]) / int(re.search(r"bytes=(\d+)", longer)[1])
        new = re.sub("bw_MBps=[0-9.]*", re.search("bw_MBps=[0-9.]*", longer)[0], short)
        for name in ("lat_p50_us", "lat_p99_us"):
            new = re.sub(
                f"{name}=[0-9.]*",
                f"{name}={float(re.search(f'{name}=([0-9.]*)', longer)[1]) * less:.2f}",
                new,
            )
        text = text.replace(short, new)
    return text


def swapped_figures(text):
    lines = [re.search(f"BENCH method={m} block_size=64 .*", text)[0] for m in ("sgl", "each")]
    tails = [line[line.index(" lat_p50") :] for line in lines]
    return text.replace(tails[0], " SGL").replace(tails[1], tails[0]).replace(" SGL", tails[1])


def relabelled(text):
    """A run that failed at once, made to look as if it had passed."""
    old = section(text, "07_gssr")
    results = [
        f"RESULT sample=07_gssr role={r} status=PASS bytes=0 digest={'0' * 16}\n"
        for r in ("server", "client")
    ]
    return text.replace(
        old,
        (
            "=== 07_gssr\n--- server: 07_gssr/gssr\nwaiting for a client on TCP port 18515\n"
            f"{results[0]}--- client: 07_gssr/gssr 127.0.0.1\n"
            f"07_gssr client: ibv_create_qp: Invalid argument (22)\n  hint: less\n{results[1]}"
            "=== 07_gssr exit 0\n"
        ),
    )


BENCHED = {"measured", "figures"}
CHOSEN = {"chosen", *BENCHED}  # what hangs on the pair of the student's own lab
ALL = {*SAMPLES[:4], *CHOSEN, "complete", "own"}
# Kinds of bad hand-in: what makes one of a good one, the parts that it loses (ALL: it is
# refused; {"06"}: what hangs on that lab, of a student who chose it), and the reason.
BAD = {
    "digest of one side": (
        within("03_read", "digest=....", "digest=0bad"),
        {"03_read"},
        "the server's digest is not that of student",
    ),
    "digest of both": (
        within("02_send_recv", "digest=....", "digest=0bad", 2),
        {"02_send_recv"},
        "the client's digest is not that of student",
    ),
    "failed pair": (
        within("05_gather_write", "status=PASS", "status=FAIL", 2),
        {"05"},
        "the client didn't pass",
    ),
    "failed, relabelled": (relabelled, {"07"}, "bytes is not what student"),
    "an error in it": (
        within("07_gssr", "(?=^RESULT)", "07_gssr server: wrong\n"),
        {"07"},
        "the server reports an error",
    ),
    "exit status": (within("04_atomic", "exit 0", "exit 1"), {"04_atomic"}, "it failed"),
    "another's, renamed": (None, ALL, "by its first line, and not by its name"),
    "no server": (
        within("02_send_recv", "--- server.*(?=--- client)", ""),
        {"02_send_recv"},
        "the server's side is missing",
    ),
    "no client": (
        within("06_scatter_read", "--- client.*(?====)", ""),
        {"06"},
        "the client's side is missing",
    ),
    "no RESULT": (
        within("06_scatter_read", "^RESULT.*?\n", ""),
        {"06"},
        "the server has 0 RESULT lines",
    ),
    "no section": (
        lambda t: t.replace(section(t, "01_hello_write"), ""),
        {"01_hello_write"},
        "it is missing",
    ),
    "section twice": (
        lambda t: t.replace(
            "=== 04", section(t, "03_read").replace("rkey 0x", "rkey 0x1") + "=== 04", 1
        ),
        {"03_read"},
        "it is there twice",
    ),
    "no environment": (
        lambda t: re.sub("ENV.*\n", "", t, count=1),
        {"complete"},
        "no line describes the environment",
    ),
    "unknown section": (
        lambda t: t.replace("=== 04_atomic\n", "=== 99_all\n=== 04_atomic\n"),
        {"complete"},
        "no section is called so",
    ),
    "cut off": (
        lambda t: t[: t.index("BENCH method=auto block_size=512")],
        {*BENCHED, "complete"},
        "it is cut off",
    ),
    "no last line": (lambda t: t[: t.rindex("=== end")], {"complete"}, "the last line isn't"),
    "interrupted": (
        lambda t: re.sub("=== end (runs )?complete", "=== end interrupted", t),
        {"complete"},
        "the last line isn't",
    ),
    "another seed": (
        within("06_scatter_read", "seed=[0-9]*", "seed=1", 2),
        {"06"},
        "seed is not what student",
    ),
    "another layout": (
        within("06_scatter_read", "block_num=[0-9]*", "block_num=64"),
        {"06"},
        "block_num is not what student",
    ),
    "no layout": (within("07_gssr", "LAYOUT.*?\n", ""), {"07"}, "has 0 LAYOUT lines"),
    "two RESULTs": (
        within("02_send_recv", "(RESULT .*?)PASS(.*?\n)", r"\1FAIL\2\1PASS\2"),
        {"02_send_recv"},
        "has 2 RESULT lines",
    ),
    "a swap that did not swap": (
        within("04_atomic", r"(swap, right value: (\d+) -> )\d+", r"\1\2"),
        {"04_atomic"},
        "the word is not what 04's operations leave",
    ),
    "more after RESULT": (
        within("04_atomic", "(?=--- client)", "really\n"),
        {"04_atomic"},
        "says something after its RESULT",
    ),
    "a field after RESULT": (
        within("03_read", "(?=--- client)", "late=1\n"),
        {"03_read"},
        "says something after its RESULT",
    ),
    "a server too many": (
        within("03_read", "(?=RESULT)", "--- server: 03_read/read\n"),
        {"03_read"},
        "there are 3 sides",
    ),
    "a field twice": (
        within("03_read", "status=", "status=FAIL status="),
        {"03_read"},
        "status= is missing, double or no number",
    ),
    "swapped roles": (
        within("03_read", "role=server", "role=client"),
        {"03_read"},
        "result is of another role",
    ),
    "escape codes": (
        within("01_hello_write", "waiting", "\x1bc\x1b]0;gone\x07waiting"),
        {"01_hello_write"},
        "a program prints no byte 0x1b",
    ),
    "Latin-1": (
        lambda t: within("04_atomic", "wait", "w\xe4it")(t).encode("latin-1", "replace"),
        {"04_atomic"},
        "a program prints no byte 0xe4",
    ),
    "huge number": (
        within("06_scatter_read", "stride=[0-9]*", "stride=" + "9" * 22),
        {"06"},
        "stride= is missing, double or no number",
    ),
    "zero bytes": (lambda t: t.replace("=== 05", "\0=== 05", 1), ALL, "it holds zero bytes"),
    "binary": (lambda t: random.randbytes(20000), ALL, "first line is not that of a hand-in"),
    "zero bytes in UTF-16": (
        lambda t: t.replace("=== 05", "\0=== 05", 1).encode("utf-16"),
        ALL,
        "it holds zero bytes",
    ),
    "UTF-16 without a mark": (lambda t: t.encode("utf-16-le"), ALL, "first line is not that of"),
    "2 MiB": (lambda t: t + "x" * (2 << 20), ALL, "it is larger than 1024 KiB"),
    "a million lines": (lambda t: t + "\n" * 1000000, ALL, "more than 50000 lines"),
    "empty": (lambda t: "", ALL, "first line is not that of a hand-in"),
    "no ID": (lambda t: t.replace("student=", "student=\x1b[31m", 1), ALL, "names no student"),
    "lab 09": (lambda t: re.sub("lab=0.", "lab=09", t, count=1), ALL, "doesn't say lab="),
    "another lab": (
        lambda t: re.sub("lab=0.", "lab=06", t, count=1),
        BENCHED,
        "result is of another sample",
    ),
    "bandwidth": (bench("sgl", 4096, bw=3), {"figures"}, "latency and bandwidth don't agree"),
    "a faster method": (
        bench("sgl", 2048, lat=0.5, bw=2),
        {"figures"},
        "faster than the same bytes in one piece",
    ),
    "a slower method": (
        bench("copy", 1024, lat=1.5, bw=1 / 1.5),
        {"figures"},
        "times as long as in one piece; this should be about 1",
    ),
    "a faster point": (
        bench("[a-z]*", 256, lat=0.4, bw=2.5),
        {"figures"},
        "the bytes of block size 64 took",
    ),
    "a size in proportion": (in_proportion, {"figures"}, "by every method the same MB/s as with"),
    "swapped methods": (swapped_figures, {"figures"}, "this should be about"),
    "percentiles": (
        bench("each", 512, lat_p99=0.5),
        {"figures"},
        "the median is above the 99th percentile",
    ),
    "a point missing": (
        lambda t: re.sub("BENCH method=copy block_size=128 .*\n", "", t),
        BENCHED,
        "no BENCH line of copy, block size 128",
    ),
    "a point twice": (
        lambda t: re.sub("(BENCH method=copy block_size=128 .*\n)", r"\1\1", t),
        BENCHED,
        "nobody asked for this point",
    ),
    "no figure": (
        lambda t: re.sub("(sgl block_size=64 .*)p50_us=[0-9.]*", r"\1p50_us=nan", t),
        BENCHED,
        "a figure is missing, or isn't one",
    ),
    "another clock": (
        lambda t: re.sub("(=sgl block_size=512 .*clock=)virtual", r"\1real", t),
        {"figures"},
        "another clock than the other methods'",
    ),
    "symbolic link": ("symlink", ALL, "it is no regular file"),
    "FIFO": ("fifo", ALL, "it is no regular file"),
    "socket": ("socket", ALL, "it is no regular file"),
    "folder": ("mkdir", ALL, "there is no text of make handin"),
}


def above(text):
    return lambda t: text + t


def inside(name, line):
    """Between the lines of a section: behind the first that the server prints."""
    return within(name, "(?<=18515\n)", line)


def backwards(text):
    start, *parts = re.split(
        "(?m)^(?==== (?:0[1-7]|measured)[^ ]*$)",
        text[: text.rindex("=== end")].partition("=== answers\n")[0],
    )
    return start + "=== answers\nall are right\n" + "".join(reversed(parts)) + "=== end complete\n"


MORE = "make handin didn't write 1 of its lines"
# What happens to honest people's files: what makes one of a good one, and what is remarked. It
# costs nothing.
ODD = {
    "Windows": (lambda t: t.replace("\n", "\r\n"), "carriage returns"),
    "classic Mac": (lambda t: t.replace("\n", "\r"), "carriage returns"),
    "Notepad": (lambda t: "\ufeff" + t.replace("\n", "\r\n"), "byte order mark, carriage returns"),
    "PowerShell": (lambda t: t.replace("\n", "\r\n").encode("utf-16"), "UTF-16, carriage returns"),
    "UTF-16, big end first": (lambda t: b"\xfe\xff" + t.encode("utf-16-be"), "UTF-16"),
    "blank lines": (lambda t: t.replace("\n", "\n\n"), "blank lines"),
    "blanks behind": (lambda t: t.replace("\n", " \t\n"), "tabs or blanks around its lines"),
    "indented": (lambda t: "    " + t.replace("\n", "\n    "), "blanks around its lines"),
    "tabs": (
        lambda t: re.sub("(?m)^[^ ].*", lambda m: m[0].replace(" ", "\t"), t),
        "came with tabs or blanks around",
    ),
    "a name above": (above("张三, 20260001\n\n"), r"1 of its lines.* line 1: 张三, 20260001"),
    "a title above": (above("=== homework of HANDIN ===\nHANDIN in time\n"), "2 of its lines"),
    "a comment below": (lambda t: t + "\n# made on the lab's machine\n", MORE),
    "a banner": (lambda t: t.replace("=== 04", "Welcome!\n=== 04", 1), MORE + ".*: Welcome!"),
    "a banner above all": (lambda t: t.replace("ENV", "Welcome!\nENV", 1), MORE),
    "a warning": (inside("05_gather_write", "libibverbs: Warning: no driver\n"), MORE),
    "progress": (
        within("measured", "(?=BENCH)", "\rpoint 1\r\rpoint 2\r", 99),
        "blank lines(.*\n)+.*150 of its lines",
    ),
    "extra output": (
        inside("measured", "RESULT so far: good\nLAYOUT fits\nBENCHMARK of=me\n"),
        "1 of its lines.*: BENCHMARK",
    ),
    "a heading": (inside("07_gssr", "=== my own program ===\n"), MORE),
    "another heading": (inside("01_hello_write", "=== 12 ===\n=== 12 exit 1\n"), "2 of its lines"),
    "a diff": (
        inside("06_scatter_read", "--- a/x.c\n+++ b/x.c\n--- server of mine\n"),
        "3 of its lines",
    ),
    "Chinese output": (inside("05_gather_write", "完成 ✓\n"), MORE + r".*: 完成 \?"),
    "colours": (
        lambda t: re.sub(
            "(?m)^((?!HANDIN|BENCH).*?)(PASS|[a-z0-9_]+)", "\x1b[1m\\1\x1b[32;1m\\2\x1b[0m", t
        ),
        "came with a terminal's colours",
    ),
    "erased ends of lines": (
        lambda t: re.sub("(?m)(status=PASS| exit 0)", "\x1b[K\\1\x1b[0K", t),
        "came with a terminal's",
    ),
    "quoted in a mail": (
        lambda t: "Dear all,\n\n" + re.sub("(?m)^", "> ", t) + "\nRegards\n",
        "quotation marks",
    ),
    "a log of GitHub": (
        lambda t: re.sub("(?m)^", "2026-11-26T15:41:55.1234567Z ", "##[group]Run\n" + t),
        "times before its lines",
    ),
    "right to left": (
        lambda t: re.sub("(?m)^(.*)$", "\u2066\\1\u2069", t),
        "came with zero-width marks$",
    ),
    "folds of vim": (lambda t: re.sub("(?m)^(=== 0[^ ]*)$", r"\1 {{{1", t), None),
    "a banner as a section": (inside("05_gather_write", "=== 05_gather_write ===\n"), MORE),
    "wrapped by a mail program": (
        lambda t: "\n".join(
            "\n".join(textwrap.wrap(line, 76, break_on_hyphens=False)) for line in t.split("\n")
        ),
        "wrapped lines",
    ),
    "a section pasted twice": (
        lambda t: t.replace("=== 04", section(t, "03_read") + "=== 04", 1),
        "came with a section twice, word for word$",
    ),
    "answers first, sections backwards": (backwards, "the marks of make answers are missing"),
    "an interrupted run before it": (
        lambda t: t[: t.index("=== 03")] + "=== end interrupted\n\n" + t,
        ".*HANDIN version=1",
    ),
    "a run that was stopped before it": (
        lambda t: t[: t.index("=== 03") + 150] + "^C\nmake: *** [handin] Interrupt\n" + t,
        ".*HANDIN version=1",
    ),
    "a terminal of 120 columns": (
        lambda t: re.sub("(?m)^(.{120})(?=.)", r"\1\n", t),
        "wrapped lines",
    ),
    "a PDF's pages": (
        lambda t: "\n".join(
            line + ("\n\n  printed by M\u00fcller   1\n\fpage 2 of 5\n\n" if n % 60 == 59 else "\n")
            for n, line in enumerate(
                piece
                for line in t.replace("fi", "\ufb01").splitlines()
                for piece in textwrap.wrap(
                    line,
                    100,
                    initial_indent=8 * " ",
                    subsequent_indent=12 * " ",
                    break_on_hyphens=False,
                )
            )
        ),
        "wrapped lines",
    ),
    "a listing with numbers": (
        lambda t: "".join(f"{n:4}   \u2502 {line}\n" for n, line in enumerate(t.splitlines(), 1)),
        "times before",
    ),
    "a listing in a narrow window": (
        lambda t: "".join(
            f"{n:4}   \u2502 "
            + "\n       \u2502 ".join(re.findall(".{1,112}", line) or [""])
            + "\n"
            for n, line in enumerate(t.splitlines(), 1)
        ),
        "times before",
    ),
    "vim's numbers in a narrow window": (
        lambda t: "".join(
            f"{n:3} " + "\n    ".join(re.findall(".{1,128}", line) or [""]) + "\n"
            for n, line in enumerate(t.splitlines(), 1)
        ),
        "times before",
    ),
    "a console on which the kernel speaks": (
        lambda t: re.sub(
            "(?m)^(?=--- client|=== 0. exit)", "[  413.298200] systemd[1]: Starting it\n", t
        ),
        None,
    ),
    "a page of OneNote": (
        lambda t: "<html>\n<body>\n"
        + "".join(
            "<p>"
            + "\n".join(textwrap.wrap(html.escape(line), 90, break_on_hyphens=False))
            + "</p>\n"
            for line in t.splitlines()
        ),
        "came with HTML",
    ),
    "copied in pieces that overlap": (
        lambda t: re.sub("((?:BENCH .*\n){3})(?=BENCH method=each block_size=64)", r"\1\1", t),
        None,
    ),
    "a document saved as Markdown": (
        lambda t: "# **Lab**\n\n" + re.sub("([-=_]+)", r"\\\1", t).replace("\n", "\n\n"),
        "Markdown's marks, blank",
    ),
    "Chinese Windows": (
        lambda t: ("姓名：张伟\r\n" + re.sub("(?m)^(RESULT|BENCH) .*", r"\g<0>  # 对吗？", t)).encode(
            "gb18030"
        ),
        "of its lines, the first of them line 1: 姓名：张伟",
    ),
    "numbered pages": (
        lambda t: "\f".join(
            f"\n\n2026-11-27 04:39   handin.txt   Page {n // 56}\n\n\n"
            + "".join(
                f"{at:5}\t{line}\n" for at, line in enumerate(t.splitlines()[n : n + 56], n + 1)
            )
            for n in range(0, t.count("\n"), 56)
        ),
        "times before",
    ),
    "a patch": (
        lambda t: "From: A <a@b.c>\n\n--- /dev/null\n+++ b/handin.txt\n@@ -0,0 +1,191 @@\n"
        + re.sub("(?m)^", "+", t),
        "times before",
    ),
    "Markdown": (lambda t: t.replace("status=PASS", "**status=PASS**"), None),
    "a spreadsheet's apostrophes": (lambda t: re.sub("(?m)^(?=[-=]{3})", "'", t), None),
    "a page's foot and head behind a RESULT": (
        lambda t: re.sub(
            "(?m)^(RESULT sample=04.*)$", r"\1\nMr A 1\n\n\f27.11.26, 09:52 x.txt\n", t
        ),
        "blank lines",
    ),
    "pages without form feeds": (
        lambda t: re.sub(
            "(?m)^(RESULT sample=04.*)$", r"\1\n\n\n2026-11-27 04:37    Lab 06    Page 2\n\n", t
        ),
        MORE.replace("1 of", "2 of"),
    ),
    "DOS": (lambda t: t.replace("\n", "\r\n") + "\x1a", "came with carriage returns$"),
    "a PDF whose lines are as long as others": (
        lambda t: "\n".join(
            "\n".join(textwrap.wrap(line, 150, break_on_hyphens=False)) for line in t.splitlines()
        ),
        "wrapped lines",
    ),
    "a page that ends in a BENCH": (
        lambda t: re.sub("(?m)^(BENCH method=each .*) (?=bw_MBps)", r"\1\n", t).replace(
            "\nBENCH method=auto", "\n\fPage 2 of 4\nBENCH method=auto"
        ),
        "wrapped lines",
    ),
    "TextEdit": (
        lambda t: t.replace("---", "\u2014")
        .replace("--", "\u2013")
        .replace("->", "\u2192")
        .replace("...", "\u2026"),
        "a word processor's",
    ),
    "a spreadsheet of cells between commas": (
        lambda t: "".join(
            '"' + line.replace('"', '""').replace(",", '";"') + '";;;\r\n'
            for line in t.splitlines()
        ),
        "a table's cells",
    ),
    "a spreadsheet": (
        lambda t: "Name;M\u00fcller;;\r\n"
        + "".join(
            ('"' + line.replace('"', '""') + '"' if set(line) & set(',;"') else line) + ";;;\r\n"
            for line in t.splitlines()
        ),
        "a table's cells",
    ),
    "a spreadsheet of three columns": (
        lambda t: (
            "No.\tOutput\tRemark\r\n"
            + "".join(
                f"{n}\t"
                + ('"' + line.replace('"', '""') + '"' if set(line) & set(',"') else line)
                + '\t"so, it\nseems"\r\n' * (n == 9)
                + "\t\r\n" * (n != 9)
                for n, line in enumerate(t.splitlines())
            )
        ).encode("utf-16"),
        "UTF-16, a table's cells",
    ),
    "a table of Markdown": (
        lambda t: "| No. | Output |\n|---|---|\n"
        + "".join(f"| {n} | {line} |\n" for n, line in enumerate(t.splitlines())),
        "a table's cells",
    ),
    "a spreadsheet that quotes less": (
        lambda t: "".join(
            ('"' + line.replace('"', '""') + '"' if '"' in line else line) + ";;\n"
            for line in t.splitlines()
        ),
        "a table's cells",
    ),
    "a table of one column": (
        lambda t: re.sub('(?m)^(.*[,"].*)$', lambda m: '"' + m[1].replace('"', '""') + '"', t),
        "a table's cells",
    ),
    "Word": (
        lambda t: re.sub('"(.*)"', "\u201c\\1\u201d", t.replace(" --", " \u2013"))
        .replace(" on ", "\xa0on\xa0")
        .replace("->", "\xe0")
        .replace("--- client: 04", "Wei\xdf, page 2\f\n--- client: 04", 1)
        .encode("cp1252", "replace"),
        "a word processor's blanks",
    ),
    "Word of a Mac": (
        lambda t: re.sub('"(.*)"', "\u201c\\1\u201d", t.replace(" --", " \u2013")).encode(
            "mac_roman", "replace"
        ),
        "a word processor's blanks",
    ),
    "online text": (
        lambda t: "<div><p>"
        + html.escape(t).replace(" ", "&nbsp;").replace("\n", "</p><p>")
        + "</p></div>",
        "came with HTML, blank lines",
    ),
    "online text with breaks": (
        lambda t: "<!DOCTYPE html>\n<html><body>" + html.escape(t).replace("\n", "<br />\r\n"),
        "came with HTML",
    ),
    "no last end of line": (lambda t: t[:-1], None),
    "more fields": (
        lambda t: re.sub("(?m)^(RESULT|LAYOUT|BENCH|HANDIN).*", r"\g<0> more=1 x", t),
        None,
    ),
    "two hosts": (within("02_send_recv", "--- (server|client):", r"--- \1 on 10.0.1.1:", 2), None),
}


def write(path, content):
    with open(path, "wb") as file:
        file.write(
            content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
        )


def special(path, kind):
    """Something in the folder that is no file."""
    if kind == "symlink":
        os.symlink(f"{ROOT}/README.md", path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "mkdir":
        os.mkdir(path)
    else:
        here = os.getcwd()
        os.chdir(os.path.dirname(path))  # a socket's path must be short
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(os.path.basename(path))
        os.chdir(here)
