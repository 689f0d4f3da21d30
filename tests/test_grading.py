#!/usr/bin/env python3
"""Hand-ins and their grades: a class of students, most of them honest."""
import csv
import glob
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from samples import ROOT, SAMPLES, main

TEMPLATE = "20260001"
GOOD = 9  # three of each lab
PAIRS = {sample[:2]: sample for sample in SAMPLES}
MASK = (1 << 64) - 1
folder = {}  # filled by setUpModule: the students' files, and where they lie


def command(*words, **more):
    return subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, **more)


def layout_line(student):
    return command("grading/grade", "--student", student).stdout.strip()


def bench_digest(student):
    """Of the last message that is measured: 64 KiB of the student's pattern."""
    seed = int(re.search("seed=([0-9]*)", layout_line(student))[1])
    digest = 0xcbf29ce484222325
    for n in range(8192):
        z = (seed + (n + 1) * 0x9e3779b97f4a7c15) & MASK
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & MASK
        z = (z ^ z >> 27) * 0x94d049bb133111eb & MASK
        for byte in (z ^ z >> 31).to_bytes(8, "little"):
            digest = (digest ^ byte) * 0x100000001b3 & MASK
    return f"{digest:016x}"


def classmates(count):
    """Students whose blocks are as long as the template's: what was measured with one
    student's layout is a measurement with theirs, too."""
    found, number = [], int(TEMPLATE)
    size = layout_line(TEMPLATE).split()[1]
    while len(found) < count:
        number += 1
        h = 0xcbf29ce484222325
        for byte in str(number).encode():
            h = (h ^ byte) * 0x100000001b3 & MASK
        z = (h + 0x9e3779b97f4a7c15) & MASK
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & MASK
        z = (z ^ z >> 27) * 0x94d049bb133111eb & MASK
        if f"block_size={17 + 2 * ((z ^ z >> 31) % 1000)}" == size:
            found.append(str(number))
    return found


def jitter(match):
    """Another run's figure: it differs by the tenth of a per cent that virtual time does."""
    return f"{match[1]}={float(match[2]) * random.uniform(0.999, 1.001):.3f}"


def measured_by(student, section, lab):
    """The measurement that the template made, as this student's."""
    sample = PAIRS[lab]
    if lab != "05":  # the reference's figures were measured in the same way
        with open(f"{ROOT}/grading/reference.txt", encoding="ascii") as file:
            text = file.read()
        bench = re.search(f"^{sample}\n((BENCH.*\n)*)", text, re.M)[1]
        section = re.sub(r"(BENCH.*\n)+", bench, section, count=1)
        section = section.replace("05_gather_write/gather_write",
                                  command("bash", "-c", f"echo {sample}/*.c").stdout[:-3])
        section = section.replace("05_gather_write", sample)
    section = section.replace(TEMPLATE, student)
    section = re.sub("LAYOUT.*", layout_line(student), section)
    section = re.sub("digest=.*", "digest=" + bench_digest(student), section)
    section = re.sub("(lat_p50_us|bw_MBps)=([0-9.]*)", jitter, section)
    return re.sub("(lat_p99_us)=([0-9.]*)",  # never below the median
                  lambda m: f"{m[1]}={float(m[2]) * random.uniform(1.003, 1.01):.2f}", section)


def setUpModule():
    """One real hand-in from make, and beside it the other students' pairs in one boot."""
    random.seed(1)
    command("make", "-s", "all", "grading/grade", check=True)
    others = classmates(GOOD - 1)
    seeds = {s: re.search("seed=([0-9]*)", layout_line(s))[1] for s in others}
    script = "".join(f"echo STUDENT {s}; grading/handin.sh inside pairs {s} {seeds[s]} 05 05_*"
                     " || exit\n"
                     for s in others)
    boot = subprocess.Popen(
        ["testenv/testenv.sh", "run", "bash", "-c", script], cwd=ROOT,
        env={**os.environ, "TESTENV_CLOCK": "virtual", "TESTENV_LIMIT": "1200"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    answers = tempfile.NamedTemporaryFile("w", suffix=".txt")
    answers.write("1. At the path MTU (交叉点)\n=== end complete\n=== answers\n")
    answers.flush()
    made = command("make", "handin", f"STUDENT={TEMPLATE}", f"ANSWERS={answers.name}")
    folder["make"] = made
    pairs = boot.communicate()[0].split("STUDENT ")[1:]
    assert boot.returncode == 0 and len(pairs) == len(others), "the pairs in the VM failed"
    name = f"{ROOT}/handin-{TEMPLATE}.txt"
    with open(name, encoding="utf-8") as file:
        template = file.read()
    os.remove(name)
    section = re.search("=== measured\n.*=== measured exit 0\n", template, re.S)[0]
    folder["good"] = {TEMPLATE: template}
    for n, text in enumerate(pairs):
        student, _, body = text.partition("\n")
        lab = ["05", "06", "07"][n % 3]
        folder["good"][student] = (
            f"HANDIN version=1 student={student} lab={lab} sizes=4K,16K,64K,256K\n{body}"
            f"{measured_by(student, section, lab)}=== end complete\n")


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
                line = re.sub(f"({name}[a-zA-Z0-9_]*)=([0-9.]+)",
                              lambda m: f"{m[1]}={float(m[2]) * factor:.3f}", line)
            return line
        return re.sub(f"BENCH method={method} block_size={block_size} .*bytes=65536 .*",
                      scale, text)
    return spoil


def swapped_figures(text):
    lines = [re.search(f"BENCH method={m} block_size=64 .*", text)[0] for m in ("sgl", "each")]
    tails = [line[line.index(" lat_p50"):] for line in lines]
    return text.replace(tails[0], " SGL").replace(tails[1], tails[0]).replace(" SGL", tails[1])


def relabelled(text):
    """A run that failed at once, made to look as if it had passed."""
    old = section(text, "07_gssr")
    results = [f"RESULT sample=07_gssr role={r} status=PASS bytes=0 digest={'0' * 16}\n"
               for r in ("server", "client")]
    return text.replace(old, (
        "=== 07_gssr\n--- server: 07_gssr/gssr\nwaiting for a client on TCP port 18515\n"
        f"{results[0]}--- client: 07_gssr/gssr 127.0.0.1\n"
        f"07_gssr client: ibv_create_qp: Invalid argument (22)\n  hint: less\n{results[1]}"
        "=== 07_gssr exit 0\n"))


BENCHED = {"measured", "figures"}
CHOSEN = {"chosen", *BENCHED}  # what hangs on the pair of the student's own lab
ALL = {*SAMPLES[:4], *CHOSEN, "complete", "own"}
# Kinds of bad hand-in: what makes one of a good one, the parts that it loses (ALL: it is
# refused; {"06"}: what hangs on that lab, of a student who chose it), and the reason.
BAD = {
    "digest of one side": (within("03_read", "digest=....", "digest=0bad"), {"03_read"},
                           "the server's digest is not that of student"),
    "digest of both": (within("02_send_recv", "digest=....", "digest=0bad", 2),
                       {"02_send_recv"}, "the client's digest is not that of student"),
    "failed pair": (within("05_gather_write", "status=PASS", "status=FAIL", 2),
                    {"05"}, "the client didn't pass"),
    "failed, relabelled": (relabelled, {"07"}, "bytes is not what student"),
    "an error in it": (within("07_gssr", "(?=^RESULT)", "07_gssr server: wrong\n"), {"07"},
                       "the server reports an error"),
    "exit status": (within("04_atomic", "exit 0", "exit 1"), {"04_atomic"}, "it failed"),
    "another's, renamed": (None, ALL, "by its first line, and not by its name"),
    "no server": (within("02_send_recv", "--- server.*(?=--- client)", ""),
                  {"02_send_recv"}, "the server's side is missing"),
    "no client": (within("06_scatter_read", "--- client.*(?====)", ""),
                  {"06"}, "the client's side is missing"),
    "no RESULT": (within("06_scatter_read", "^RESULT.*?\n", ""), {"06"},
                  "the server has 0 RESULT lines"),
    "no section": (lambda t: t.replace(section(t, "01_hello_write"), ""),
                   {"01_hello_write"}, "it is missing"),
    "section twice": (lambda t: t.replace("=== 04", section(t, "03_read") + "=== 04", 1),
                      {"03_read"}, "it is there twice"),
    "unknown section": (lambda t: t.replace("=== 04_atomic\n", "=== 99_all\n=== 04_atomic\n"),
                        {"complete"}, "no section is called so"),
    "cut off": (lambda t: t[:t.index("BENCH method=auto block_size=512")],
                {*BENCHED, "complete"}, "it is cut off"),
    "no last line": (lambda t: t[:t.rindex("=== end")], {"complete"}, "the last line isn't"),
    "interrupted": (lambda t: t.replace("=== end complete", "=== end interrupted"),
                    {"complete"}, "the last line isn't"),
    "another seed": (within("06_scatter_read", "seed=[0-9]*", "seed=1", 2),
                     {"06"}, "seed is not what student"),
    "another layout": (within("06_scatter_read", "block_num=[0-9]*", "block_num=64"),
                       {"06"}, "block_num is not what student"),
    "no layout": (within("07_gssr", "LAYOUT.*?\n", ""), {"07"}, "has 0 LAYOUT lines"),
    "two RESULTs": (within("02_send_recv", "(RESULT .*?)PASS(.*?\n)", r"\1FAIL\2\1PASS\2"),
                    {"02_send_recv"}, "has 2 RESULT lines"),
    "more after RESULT": (within("04_atomic", "(?=--- client)", "really\n"), {"04_atomic"},
                          "says something after its RESULT"),
    "swapped roles": (within("03_read", "role=server", "role=client"), {"03_read"},
                      "result is of another role"),
    "escape codes": (within("01_hello_write", "waiting", "\x1b[2J\x1b]0;gone\x07waiting"),
                     {"01_hello_write"}, "a program prints no byte 0x1b"),
    "Latin-1": (lambda t: within("04_atomic", "wait", "w\xe4it")(t).encode("latin-1", "replace"),
                {"04_atomic"}, "a program prints no byte 0xe4"),
    "huge number": (within("06_scatter_read", "stride=[0-9]*", "stride=" + "9" * 22),
                    {"06"}, "stride= is missing, double or no number"),
    "zero bytes": (lambda t: t.replace("=== 05", "\0=== 05", 1), ALL, "it holds zero bytes"),
    "binary": (lambda t: random.randbytes(20000), ALL, "first line is not that of a hand-in"),
    "UTF-16": (lambda t: t.encode("utf-16"), ALL, "it is in UTF-16"),
    "2 MiB": (lambda t: t + "x" * (2 << 20), ALL, "it is larger than 1024 KiB"),
    "a million lines": (lambda t: t + "\n" * 1000000, ALL, "more than 50000 lines"),
    "empty": (lambda t: "", ALL, "first line is not that of a hand-in"),
    "no ID": (lambda t: t.replace("student=", "student=\x1b[31m", 1), ALL, "names no student"),
    "lab 09": (lambda t: re.sub("lab=0.", "lab=09", t, count=1), ALL, "doesn't say lab="),
    "another lab": (lambda t: re.sub("lab=0.", "lab=06", t, count=1), BENCHED,
                    "result is of another sample"),
    "bandwidth": (bench("sgl", 4096, bw=3), {"figures"}, "latency and bandwidth don't agree"),
    "a faster method": (bench("sgl", 2048, lat=.5, bw=2), {"figures"},
                        "faster than the same bytes in one piece"),
    "a slower method": (bench("copy", 1024, lat=1.5, bw=1 / 1.5), {"figures"},
                        "times as long as in one piece; this should be about 1"),
    "a faster point": (bench("[a-z]*", 256, lat=.4, bw=2.5), {"figures"},
                       "the bytes of block size 64 took"),
    "swapped methods": (swapped_figures, {"figures"}, "this should be about"),
    "percentiles": (bench("each", 512, lat_p99=.5), {"figures"},
                    "the median is above the 99th percentile"),
    "a point missing": (lambda t: re.sub("BENCH method=copy block_size=128 .*\n", "", t),
                        BENCHED, "no BENCH line of copy, block size 128"),
    "a point twice": (lambda t: re.sub("(BENCH method=copy block_size=128 .*\n)", r"\1\1", t),
                      BENCHED, "nobody asked for this point"),
    "no figure": (lambda t: re.sub("(sgl block_size=64 .*)p50_us=[0-9.]*", r"\1p50_us=nan", t),
                  BENCHED, "a figure is missing, or isn't one"),
    "symbolic link": ("symlink", ALL, "it is no regular file"),
    "FIFO": ("fifo", ALL, "it is no regular file"),
    "socket": ("socket", ALL, "it is no regular file"),
    "folder": ("mkdir", ALL, "it is no regular file"),
}


def write(path, content):
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes)
                   else content.encode("utf-8", "surrogateescape"))


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


def reports(out):
    """The grader's words for each file."""
    found = {}
    for part in out.split("\n#### ")[1:]:
        name = re.match("[^,\n]*", part)[0]
        found[name] = part.split("\n\nfile ")[0]
    return found


class Grading(unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="grading.")
        self.addCleanup(shutil.rmtree, self.dir)

    def grade(self, *more):
        ended = command("make", "-s", "grade", f"HANDINS={self.dir}", *more, errors="replace")
        self.assertEqual(ended.returncode, 0, ended)
        return ended.stdout

    def test_handin(self):
        """make handin passed, said how it went, and its file has the answers."""
        self.assertEqual(folder["make"].returncode, 0, folder["make"])
        self.assertIn("07_gssr: passed", folder["make"].stderr)
        self.assertIn("交叉点", folder["good"][TEMPLATE])

    def test_failed_handin(self):
        """Where the device can't be had, there is a file all the same, and it says so."""
        env = {**os.environ, "TESTENV_LIMIT": "1"}
        ended = command("grading/handin.sh", "x-1", "07", env=env)
        with open(f"{ROOT}/handin-x-1.txt", encoding="utf-8") as file:
            text = file.read()
        os.remove(f"{ROOT}/handin-x-1.txt")
        self.assertEqual(ended.returncode, 1, ended)
        self.assertRegex(text, "HANDIN version=1 student=x-1 lab=07.*\n(.*\n)*=== end failed")
        write(f"{self.dir}/handin-x-1.txt", text)
        self.assertIn("Score: 10/100", self.grade())  # nobody else's

    def test_interrupted_handin(self):
        """Ctrl-C after the first pairs: they are in the file, and it says what happened."""
        name = f"{ROOT}/handin-x-2.txt"
        made = subprocess.Popen(["make", "handin", "STUDENT=x-2"], cwd=ROOT,
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, start_new_session=True)
        for line in made.stderr:
            if line == "02_send_recv: passed\n":
                os.killpg(made.pid, signal.SIGINT)  # as a terminal does
        self.assertNotEqual(made.wait(20), 0)
        with open(name, encoding="utf-8") as file:
            text = file.read()
        os.remove(name)
        self.assertIn("=== 02_send_recv exit 0\n", text)
        self.assertTrue(text.endswith("\n=== end interrupted\n"), text[-200:])

    def test_usage(self):
        for words, said in ((("", "05"), "which student"), (("a/b", "05"), "which student"),
                            (("1", "04"), "is not 05"), (("1", "05", "/none"), "is no directory"),
                            (("1", "05", "", "/none"), "cannot read")):
            with self.subTest(words=words):
                ended = command("grading/handin.sh", *words)
                self.assertEqual(ended.returncode, 2, ended)
                self.assertIn(said, ended.stderr)

    def test_class(self):
        good = folder["good"]
        of_lab = {lab: [s for s in good if f" lab={lab} " in good[s]] for lab in ("05", "06", "07")}
        for student, text in good.items():
            write(f"{self.dir}/handin-{student}.txt", text)
        expected = {}
        for n, (kind, (spoil, lost, reason)) in enumerate(BAD.items()):
            students = of_lab["05"]
            if lost < set(of_lab):  # one lab
                students, lost = of_lab[min(lost)], CHOSEN
            student = students[n % len(students)]
            name = f"smith_handin-{student}-{n}.txt"
            path = f"{self.dir}/{name}"
            if spoil is None:
                write(path, good[students[(n + 1) % len(students)]])
            elif isinstance(spoil, str):
                special(path, spoil)
            else:
                write(path, spoil(good[student]))
            expected[name] = (kind, lost, reason)
        if corpus := os.environ.get("HV_CORPUS"):  # for the fuzzer to begin with
            for path in filter(os.path.isfile, glob.glob(f"{self.dir}/*")):
                shutil.copy(path, corpus)
        began = time.monotonic()
        out = self.grade()
        seconds = time.monotonic() - began
        self.assertLess(seconds, 10)
        self.assertRegex(out, r"\A[ -~\n]*\Z", "nothing but printable ASCII")
        found = reports(out)
        full = 0
        for student in good:
            report = found[f"handin-{student}.txt"]
            self.assertIn("\nScore: 100/100", report)
            full += 1
        with open(f"{ROOT}/results/grades.csv", encoding="ascii", newline="") as file:
            table = {row["file"]: row for row in csv.DictReader(file)}
        right = 0
        for name, (kind, lost, reason) in expected.items():
            with self.subTest(kind=kind):
                report, row = found[name], table[name]
                self.assertEqual({part for part in ALL if row[part] == "0"}, set(lost), report)
                self.assertIn(reason, report)
                if lost != ALL:  # the reason stands below a part that it is the reason of
                    why = re.search(r"\n== (\w+) == [^O](?:(?!\n==).)*" + re.escape(reason),
                                    report, re.S)
                    self.assertIn(why[1], lost if lost != CHOSEN else SAMPLES[4:])
                self.assertEqual(int(row["score"]),
                                 sum(int(row[part]) for part in ALL), report)
                right += 1
        print(f"ok - grading: {full} good hand-ins with full marks")
        print(f"ok - grading: {right} bad hand-ins lose the right points for the right reason, "
              f"all {full + right} in {seconds:.1f} s", flush=True)
        self.assertEqual((full, right), (GOOD, len(BAD)))
        self.assertGreaterEqual(full + right, 50)

    def test_copied(self):
        """Another's transcripts under one's own ID: the digests tell; the owner loses
        nothing."""
        students = list(folder["good"])
        text = folder["good"][students[1]]
        write(f"{self.dir}/handin-{students[1]}.txt", text)
        write(f"{self.dir}/handin-777.txt", text.replace("student=" + students[1], "student=777"))
        found = reports(self.grade())
        self.assertIn("Score: 100/100", found[f"handin-{students[1]}.txt"])
        self.assertIn("Score: 6/100", found["handin-777.txt"])
        self.assertIn(f"is from the same run as in handin-{students[1]}.txt",
                      found["handin-777.txt"])

    def test_copied_and_edited(self):
        """With the digests put right, the addresses and figures still tell that two hand-ins
        are one run; not whose."""
        a, b = list(folder["good"])[1:7:3]  # of the same lab
        texts = folder["good"]
        stolen = section(texts[a], "measured")
        stolen = re.sub("LAYOUT.*", layout_line(b), stolen.replace(a, b))
        stolen = re.sub("digest=.*", "digest=" + bench_digest(b), stolen)
        address = [re.search("0x[0-9a-f]*, rkey 0x[0-9a-f]*", section(texts[s], "03_read"))[0]
                   for s in (a, b)]
        for name, text in {
                "measured": texts[b].replace(section(texts[b], "measured"), stolen),
                "03_read": texts[b].replace(address[1], address[0])}.items():
            with self.subTest(part=name):
                write(f"{self.dir}/handin-{a}.txt", texts[a])
                write(f"{self.dir}/handin-{b}.txt", text)
                found = reports(self.grade())
                for one, other in ((a, b), (b, a)):
                    self.assertIn("Score: 90/100", found[f"handin-{one}.txt"])
                    self.assertIn(f"{name} is from the same run as in handin-{other}.txt",
                                  found[f"handin-{one}.txt"])

    def test_formats(self):
        write(f"{self.dir}/handin-{TEMPLATE}.txt",
              within("03_read", "digest=....", "digest=0bad")(folder["good"][TEMPLATE]))
        scores = json.loads(self.grade("FORMAT=autolab").splitlines()[-1])["scores"]
        self.assertEqual((scores["03_read"], scores["measured"]), (0, 20))
        self.grade("FORMAT=gradescope")
        with open(f"{ROOT}/results/results.json", encoding="ascii") as file:
            tests = {test["name"]: test for test in json.load(file)["tests"]}
        self.assertEqual(set(tests), ALL | {*SAMPLES[4:], "answers"})
        self.assertEqual((tests["03_read"]["score"], tests["03_read"]["max_score"]), (0, 6))
        self.assertIn("digest", tests["03_read"]["output"])

    def test_rubric(self):
        """Points, parts and what needs what are the instructor's."""
        write(f"{self.dir}/handin-{TEMPLATE}.txt",
              within("03_read", "digest=....", "digest=0bad")(folder["good"][TEMPLATE]))
        rubric = tempfile.NamedTemporaryFile("w", suffix=".txt")
        rubric.write("04_atomic 7 needs=03_read\n03_read 1\nown 3\nsizes 4K,16K,64K,256K\n")
        rubric.flush()
        grade = ["grading/grade", "--rubric", rubric.name, self.dir]
        out = command(*grade).stdout
        self.assertIn("Score: 3/11", out)
        self.assertIn("== 04_atomic == FAIL (0/7)\n     it needs 03_read, which", out)
        for line in ("nothing 5", "own", "own -1", "own 3\nown 4", "own 1 needs=x"):
            with self.subTest(line=line):
                rubric.seek(0)
                rubric.truncate()
                rubric.write(line + "\nsizes 4K\n")
                rubric.flush()
                self.assertEqual(command(*grade).returncode, 2)


if __name__ == "__main__":
    main()
