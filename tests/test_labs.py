#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The handout keeps its promises: the commands of README.md, labs.md, the labs and reference.md do what
the text says, and each break-it patch shows the messages that its lab gives for it.

All pairs run in one VM. In there this file runs as "test_labs.py guest" and does what the
tests out here ask for by files under results/, which both see."""
import glob
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from places import copy_project
from samples import FIXED, PROGRAM, ROOT, SAMPLES, main, patient, ran

sys.path.append(os.path.join(ROOT, "learn"))
import handout  # noqa: E402, pylint: disable=wrong-import-position

# What the patches' heads know: Linux 6.1, and what differs in 6.12 and, so far, all later ones.
KERNEL = "6.12" if re.search(r"6\.12|image-[7-9]", os.environ.get("KERNEL", "")) else "6.1"
WORK = os.path.join(ROOT, "build", os.environ.get("KERNEL", "handout"))
COPY = os.path.join(WORK, "rdma")  # where the handout's commands are run
PATCHES = os.path.join(ROOT, "tests", "breakit")
# A copy isn't in the repository that it was copied from.
ENV = {**os.environ, "GIT_CEILING_DIRECTORIES": os.path.join(ROOT, "build")}
LIMIT = 600  # seconds for one block of commands
ANSWER = 300  # for all that the VM is asked at a time, on an idle machine
counts = dict.fromkeys(
    (
        "blocks run",
        "blocks left out",
        "outputs compared",
        "break-it patches run",
        "references followed",
    ),
    0,
)

# Command blocks that aren't run here, by what stands in them, and why.
NOT_RUN = {
    "make demo": "is run by test_testenv.py, and make test is what runs this",
    "make bench": "takes minutes; test_pairs.py runs what it runs",
    "--bench": "takes a minute; test_pairs.py runs it",
    "bench/model.py": "reads what --bench wrote; test_figures.py runs it",
    "make shell": "needs a terminal; test_testenv.py types in one",
    "make rxe-up": "needs a kernel with rdma_rxe, and root",
    "sudo apt install": "changes this machine",
    "sudo dnf install": "is for another distribution",
    "15_flush/flush": "takes a newer kernel and libibverbs; test_15.py runs it",
    "tests/debian13.sh": "downloads Debian 13's libraries; part newer does it",
    "make handin": "takes minutes; test_handin.py runs it",
    "make grade": "needs hand-ins; test_grading.py and test_programs.py have some",
    "make similar": "needs hand-ins; test_collect.py has some",
    "make bundle": "is run by test_bundles.py",
}


def run_on_terminal(script, cwd, may_start, has_begun):
    """What bash shows when it runs script, as on a terminal, and its exit status."""
    may_start.wait(LIMIT)
    ours, theirs = pty.openpty()
    bash = subprocess.Popen(
        ["timeout", str(LIMIT), "bash", "-c", script],
        cwd=cwd,
        env=ENV,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # EIO: nobody has the terminal open any more
            piece = b""
        has_begun.set()
        if not piece:
            break
        seen += piece
    os.close(ours)
    return seen.decode(errors="replace").replace("\r\n", "\n"), bash.wait()


def run_together(scripts, cwd):
    """Each on a terminal of its own, each begun when the one before has printed something:
    so a server that says that it waits is there before its client."""
    events = [threading.Event() for _ in range(len(scripts) + 1)]
    events[0].set()
    with ThreadPoolExecutor(len(scripts)) as pool:
        return list(pool.map(run_on_terminal, scripts, [cwd] * len(scripts), events, events[1:]))


def guest():
    """In the VM: answers requests, each a list of jobs, each a list of scripts that run side
    by side; as many jobs at a time as the request says."""
    number = 0
    while True:
        name = f"results/{number}"
        while not os.path.exists(name + ".request"):
            time.sleep(0.05)
        with open(name + ".request", encoding="utf-8") as file:
            request = json.load(file)
        if not request["jobs"]:
            return
        if os.path.exists("/sys/class/net/dummy0"):  # in the VM: see what was built meanwhile
            with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
                file.write("3")
        with ThreadPoolExecutor(request["at_a_time"]) as pool:
            answer = list(pool.map(lambda job: run_together(job, os.getcwd()), request["jobs"]))
        with open(name + ".new", "w", encoding="utf-8") as file:
            json.dump(answer, file)
        os.rename(name + ".new", name + ".answer")
        number += 1


class Vm:
    """Where the RDMA device is."""

    def __init__(self, copy):
        self.number, self.copy = 0, copy
        self.process = subprocess.Popen(
            [
                os.path.join(copy, "testenv", "testenv.sh"),
                "run",
                *FIXED,
                "python3",
                "tests/test_labs.py",
                "guest",
            ],
            cwd=copy,
            stdin=subprocess.DEVNULL,
            env={"TESTENV_LIMIT": "3000", **ENV},
        )

    def request(self, jobs, at_a_time=1):
        name = os.path.join(self.copy, "results", str(self.number))
        self.number += 1
        with open(name + ".new", "w", encoding="utf-8") as file:
            json.dump({"jobs": jobs, "at_a_time": at_a_time}, file)
        os.rename(name + ".new", name + ".request")
        return name

    def ask(self, jobs, at_a_time=1):
        """For each job the (output, exit status) of each of its scripts."""
        name = self.request(jobs, at_a_time)
        until = time.monotonic() + patient(ANSWER)
        while not os.path.exists(name + ".answer"):
            if time.monotonic() > until:
                self.process.terminate()  # testenv.sh keeps the log and says where
            if self.process.poll() is not None:
                raise AssertionError(f"the VM has ended, status {self.process.returncode}")
            time.sleep(0.05)
        with open(name + ".answer", encoding="utf-8") as file:
            return json.load(file)

    def end(self):
        self.request([])
        try:
            self.process.wait(ANSWER)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            self.process.wait()


vm = None


def setUpModule():
    global vm
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(os.path.join(COPY, "results"))
    copy_project(COPY)
    vm = Vm(COPY)
    unittest.addModuleCleanup(vm.end)
    # Programs that are built already are newer than the copy: make has nothing to do.
    build = os.environ.get("HV_BUILD")
    for sample in SAMPLES if build else ():
        shutil.copy(os.path.join(build, PROGRAM[sample]), os.path.join(COPY, sample))
    subprocess.run(["make", "-s", "-j2"], cwd=COPY, check=True)


def tearDownModule():
    done = ", ".join(f"{n} {what}" for what, n in counts.items() if n)
    print("ok" if done else "not ok", "- __main__:", done or "nothing ran", flush=True)


def pair(program, port, args="", server_args=""):
    """The two scripts of a pair."""
    host = "10.0.0.1" if program.endswith("rdma_cm") else "127.0.0.1"
    return [f"{program} -p {port} {server_args}", f"{program} -p {port} {args} {host}"]


class Compiler:
    """Compiles samples against common/ and blocks/, which are compiled once."""

    def __init__(self, directory):
        self.directory = directory
        os.makedirs(directory)
        parts = [os.path.join(ROOT, part) for part in ("common", "blocks")]
        self.flags = [
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            *("-I" + part for part in parts),
        ]
        sources = [source for part in parts for source in sorted(glob.glob(part + "/*.c"))]
        subprocess.run(["gcc", *self.flags, "-c", *sources], cwd=directory, check=True)
        self.objects = [os.path.basename(source)[:-1] + "o" for source in sources]

    def compile(self, source, program):
        """What gcc says; nothing if all is well."""
        return ran(
            ["gcc", *self.flags, "-o", program, source, *self.objects, "-lrdmacm", "-libverbs"],
            cwd=self.directory,
        ).stderr


class BreakIt(unittest.TestCase):
    """tests/breakit: each patch's head says what the two sides print, and on which kernel
    one prints something else."""

    def read(self, name):
        with open(os.path.join(PATCHES, name), encoding="utf-8") as file:
            head = file.read().split("\n\n")[0]
        return dict(line.split(": ", 1) for line in head.splitlines())

    def build(self, compiler, name, sample):
        tree = os.path.join(compiler.directory, name)
        source = os.path.join(sample, PROGRAM[sample] + ".c")
        os.makedirs(os.path.join(tree, sample))
        shutil.copy(os.path.join(ROOT, source), os.path.join(tree, source))
        applied = ran(["git", "apply", os.path.join(PATCHES, name)], cwd=tree, env=ENV)
        program = os.path.join(tree, PROGRAM[sample])
        return applied.stderr + compiler.compile(os.path.join(tree, source), program), program

    def test_each_patch_shows_what_the_handout_promises(self):
        names = sorted(os.listdir(PATCHES))
        heads = [self.read(name) for name in names]
        compiler = Compiler(os.path.join(WORK, "breakit"))
        with ThreadPoolExecutor() as pool:
            built = list(
                pool.map(
                    lambda name, head: self.build(compiler, name, head["sample"]), names, heads
                )
            )
        jobs = [
            pair(
                program,
                21000 + i,
                head.get("client's arguments", ""),
                head.get("server's arguments", ""),
            )
            for i, ((_, program), head) in enumerate(zip(built, heads))
        ]
        answers = vm.ask(jobs, at_a_time=4)
        items = {step.name + ".patch": step.outcome for step in handout.steps("en").values()}
        for name, head, (error, _), answer in zip(names, heads, built, answers):
            with self.subTest(patch=name):
                self.assertEqual(error, "")
                for role, (output, status) in zip(("server", "client"), answer):
                    self.assertIn(head.get(f"{role} on {KERNEL}", head[role]), output)
                    self.assertEqual(status, 0 if head[role] == "status=PASS" else 1, output)
                    if head[role] != "status=FAIL" and not head[role].startswith("the peer"):
                        self.assertIn(f"`{head[role]}`", items.get(name, "no word of it"))
                counts["break-it patches run"] += 1
        self.assertEqual(sorted(items), names)


class Block:
    """A block of a page: fenced, or indented by 4 spaces."""

    def __init__(self, file, line, language, lines):
        self.where = f"{file}:{line}"
        self.lines = lines
        self.is_output = language == "text" or lines[0].startswith(("RESULT ", "LAYOUT "))
        self.is_commands = (
            language == "sh"
            or language is None
            and bool(re.match(r"make\b|cd |sudo |git |ibv_|testenv/|TESTENV|\d\d_\w+/\w", lines[0]))
        )

    def is_wire(self):
        """On two hosts, from 08 on: these take a while, and have a test of their own."""
        return any(re.search(r"make wire LAB=(08|09|1\d)|ladder\.py", line) for line in self.lines)

    def why_not_run(self):
        for start, reason in NOT_RUN.items():
            if any(start in line for line in self.lines):
                return reason
        return None

    def scripts(self):
        """{terminal: script}; terminal 0 is this machine, without an RDMA device."""
        scripts = {}
        for line in self.lines:
            if "make watch" in line:  # it doesn't end by itself; test_check.py runs it
                continue
            terminal = re.search(r"# terminal (\d)", line)
            scripts.setdefault(int(terminal[1]) if terminal else 0, []).append(line)
        return {terminal: "\n".join(lines) for terminal, lines in scripts.items()}


def pages(chosen):
    """The handout in a language, in the order in which one reads it."""
    paths = [
        f"labs{handout.ending(chosen)}",
        *(path for _, path in handout.labs(chosen)),
        f"reference{handout.ending(chosen)}",
    ]
    return [os.path.relpath(os.path.join(ROOT, path), ROOT) for path in paths]


PAGES = pages("en")
TEXTS = [
    "README.md",
    "README.zh.md",
    "CONTRIBUTING.md",
    "bench/README.md",
    "bench/README.zh.md",
    "teach/README.md",
    *PAGES,
    *pages("zh"),
]


def linked(file, name):
    """The file that a link in another one names."""
    return os.path.join(ROOT, os.path.dirname(file), name) if name else os.path.join(ROOT, file)


def blocks_of(file):
    with open(os.path.join(ROOT, file), encoding="utf-8") as text:
        lines = text.read().splitlines()
    found, i = [], 0
    while i < len(lines):
        start = i
        if lines[i].lstrip().startswith("```"):
            indent = len(lines[i]) - len(lines[i].lstrip())
            i += 1
            while not lines[i].lstrip().startswith("```"):
                i += 1
            found.append(
                Block(
                    file,
                    start + 1,
                    lines[start].strip()[3:],
                    [line[indent:] for line in lines[start + 1 : i]],
                )
            )
        elif lines[i].startswith("    ") and not (i and lines[i - 1].strip()):
            while i + 1 < len(lines) and (
                lines[i + 1].startswith("    ")
                or (not lines[i + 1] and i + 2 < len(lines) and lines[i + 2].startswith("    "))
            ):
                i += 1
            found.append(Block(file, start + 1, None, [line[4:] for line in lines[start : i + 1]]))
        i += 1
    return found


def as_pattern(lines):
    """What is shown as a pattern: … stands for what varies, alone on a line for lines."""
    return "".join(
        "(?:.*\n)*?" if line == "…" else ".+?".join(map(re.escape, line.split("…"))) + "\n"
        for line in lines
    )


class Prose(unittest.TestCase):
    maxDiff = None

    def commands(self, block):
        """Runs a block; {terminal: (output, status)}."""
        scripts = block.scripts()
        terminals = sorted(scripts)
        if terminals == [0]:
            return {0: run_together([scripts[0]], COPY)[0]}
        self.assertNotIn(0, terminals, f"{block.where}: some lines name no terminal")
        return dict(zip(terminals, vm.ask([[scripts[t] for t in terminals]])[0]))

    def output(self, block, seen):
        """Compares the output that the text shows with what was seen: the last terminal's,
        unless lines "# terminal N" divide it."""
        shown, terminal = {}, max(seen)
        for line in block.lines:
            if heading := re.fullmatch(r"# terminal (\d)", line):
                terminal = int(heading[1])
            else:
                shown.setdefault(terminal, []).append(line)
        for terminal, lines in shown.items():
            printed = seen[terminal][0].rstrip("\n") + "\n"
            # A single line may be shown of many.
            same = re.search if len(lines) == 1 else re.fullmatch
            whole = printed.splitlines(True)  # of packets, a busy machine sends some again
            once = "".join(
                line for i, line in enumerate(whole) if line[:4] != "  | " or line not in whole[:i]
            )
            if not same(as_pattern(lines), printed) and not same(as_pattern(lines), once):
                self.fail(
                    f"{block.where} shows\n"
                    + "\n".join(lines)
                    + f"\nbut terminal {terminal} showed\n{printed}"
                )
        counts["outputs compared"] += 1

    def check(self, file, wires=False):
        blocks = blocks_of(file)
        seen = None
        for block, after in zip(blocks, blocks[1:] + [None]):
            if block.is_commands and block.is_wire() != wires:
                seen = None
            elif block.is_commands and (reason := block.why_not_run()):
                print(f"# {block.where} is not run, it {reason}", flush=True)
                counts["blocks left out"] += 1
                seen = None
            elif block.is_commands:
                with self.subTest(block=block.where):
                    seen = None
                    fails = (
                        after and after.is_output and any("FAIL" in line for line in after.lines)
                    )
                    for _ in range(5):  # a wrong order (12) doesn't show each time
                        seen = self.commands(block)
                        if not fails or any(status for _, status in seen.values()):
                            break
                    counts["blocks run"] += 1
                    for terminal, (output, status) in seen.items():
                        if not fails:
                            self.assertEqual(status, 0, f"terminal {terminal}: {output}")
            elif block.is_output and seen:
                with self.subTest(block=block.where):
                    self.output(block, seen)

    def test_pages(self):
        for file in ("README.md", "bench/README.md", *PAGES):
            self.check(file)


class Wires(Prose):
    def test_pages(self):
        for file in PAGES:
            self.check(file, wires=True)


class References(unittest.TestCase):
    """What the text points to is there."""

    def check(self, file, pattern, is_there):
        with open(os.path.join(ROOT, file), encoding="utf-8") as text:
            found = sorted(set(re.findall(pattern, text.read())))
        counts["references followed"] += len(found)
        self.assertEqual([name for name in found if not is_there(name)], [], file)

    def file_is_there(self, name):
        if name.startswith(
            ("/", "results/", "my0", "learn/reference")
        ):  # not ours, or not there yet
            return True
        places = ("", "common", "tests", *SAMPLES)
        return any(
            glob.glob(os.path.join(ROOT, place, name + what))  # a program need not be built yet
            for place in places
            for what in ("", ".c")
        )

    def test_files(self):
        for file in TEXTS:
            self.check(
                file,
                r"`([\w.*-]*/[\w./*-]+|[\w-]+\.(?:md|c|h|sh|py)|\d\d_\w+)`",
                self.file_is_there,
            )
            self.check(
                file,
                r"\]\(([^#):]+)[#)]",
                lambda name, file=file: os.path.exists(linked(file, name)),
            )

    def heading_is_there(self, file, slug):
        with open(os.path.join(ROOT, file), encoding="utf-8") as text:
            headings = re.findall(r"(?m)^#+ (.*)", text.read())
        return slug in {
            re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
        }

    def test_links_to_headings(self):
        for file in TEXTS:
            self.check(
                file,
                r"\]\(([\w./]*)#([^)]+)\)",
                lambda link, file=file: self.heading_is_there(linked(file, link[0]), link[1]),
            )

    def test_make_targets(self):
        with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as text:
            targets = set(re.findall(r"(?m)^([\w-]+):", text.read())) | {"run"}
        for file in TEXTS:
            self.check(file, r"(?:`|^    |^)make ([a-z][\w-]*)", targets.__contains__)

    def test_manual_pages(self):
        if not shutil.which("dpkg"):
            self.skipTest("dpkg lists the manual pages")
        pages = ran(["dpkg", "-L", "libibverbs-dev"], check=True).stdout
        for file in TEXTS:
            self.check(file, r"(ibv_\w+)\(3\)", lambda name: f"/{name}.3" in pages)


if __name__ == "__main__":
    if sys.argv[1:] == ["guest"]:
        guest()
    else:
        main()
