# SPDX-License-Identifier: BSD-2-Clause
"""The handout keeps its promises: the commands of README.md, labs.md, the labs and reference.md do what
the text says, and each break-it patch shows the messages that its lab gives for it."""
import glob
import importlib
import os
import re
import shutil
import unittest
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

from places import copy_project
from samples import PROGRAM, ROOT, SAMPLES, ran, read
from texts import anchors, blocks, handout, pages
from vm import in_vm, run_together

breaking = importlib.import_module("break")
# What the patches' heads know: Linux 6.1, and what differs in 6.12 and, so far, all later ones.
KERNEL = "6.12" if re.search(r"6\.12|image-[7-9]", os.environ.get("KERNEL", "")) else "6.1"
WORK = os.path.join(ROOT, "build", os.environ.get("KERNEL", "handout"))
COPY = os.path.join(WORK, "rdma")  # where the handout's commands are run
# Command blocks that aren't run here, by what stands in them: they need a terminal, root, hand-ins, a newer kernel or
# library, or minutes, or are for another distribution. Most are run by a test of their own.
NOT_RUN = (
    *("make demo", "make bench", "--bench", "bench/model.py", "make shell", "make rxe-up"),
    *("sudo apt install", "sudo dnf install", "15_flush/flush", "17_odp/odp", "tests/unstable.sh"),
    *("tests/debian13.sh", "make handin", "make grade", "make similar", "make bundle"),
)
COMMANDS = re.compile(r"make\b|cd |sudo |git |ibv_|testenv/|TESTENV|\d\d_\w+/\w")
# A block of commands, and (where, lines) of what the text shows of them.
Run = namedtuple("Run", "where lines outputs")


def setUpModule():
    copy_project(COPY)
    # Programs that are built already are newer than the copy: make has nothing to do.
    build = os.environ.get("HV_BUILD")
    for sample in SAMPLES if build else ():
        shutil.copy(os.path.join(build, PROGRAM[sample]), os.path.join(COPY, sample))
    ran(["make", "-s", "-j2"], cwd=COPY, check=True)


class BreakIt(unittest.TestCase):
    """tests/mistakes: each patch's head says what the two sides print, and on which kernel
    one prints something else."""

    def scripts(self, step, about):
        """Builds the program with the change. The two scripts of its pair."""
        program = PROGRAM[about["sample"]]
        address = "10.0.0.1" if program == "rdma_cm" else "127.0.0.1"
        try:
            place = breaking.prepare(step, about)
        except breaking.Stop as stop:
            raise AssertionError(f"{step.name}: {stop}") from None
        run = f"{place}/{program} -p {21000 + step.number}"
        server, client = (about.get(f"{role}'s arguments", "") for role in ("server", "client"))
        return [f"{run} {server}", f"{run} {client} {address}"], 1

    def test_each_patch_shows_what_the_handout_promises(self):
        steps = list(handout.steps("en").values())
        patches = sorted(glob.glob("*.patch", root_dir=f"{ROOT}/tests/mistakes"))
        self.assertEqual([f"{step.name}.patch" for step in steps], patches)
        heads = list(map(breaking.head, steps))
        breaking.COPIES = os.path.join(ROOT, "build", "breakit-" + os.path.basename(WORK))
        with mock.patch.dict(os.environ, CFLAGS="-O1 -Werror"), ThreadPoolExecutor() as pool:
            jobs = list(pool.map(self.scripts, steps, heads))
        for step, about, answer in zip(steps, heads, in_vm(COPY, jobs, at_a_time=4)):
            with self.subTest(step=step.name):
                for role, (output, status) in zip(("server", "client"), answer):
                    said = about[role]
                    self.assertIn(about.get(f"{role} on {KERNEL}", said), output)
                    self.assertEqual(status, 0 if said == "status=PASS" else 1, output)
                    if said != "status=FAIL" and not said.startswith("the peer"):
                        self.assertIn(f"`{said}`", step.outcome)
                self.break_tells(about, *(output for output, _ in answer))

    def break_tells(self, about, server, client):
        """make break judges a prediction by that output, and has something to ask about it."""
        happened = breaking.Run(server + client, server, client, None)
        # Of a client that only fails no reason is promised: it may find that the server has gone (29).
        promised = client if about["client"] != "status=FAIL" else ""
        self.assertIn(breaking.outcome(promised, server), breaking.expected(about))
        _, role, right = breaking.to_see(happened)
        self.assertIn(right, getattr(happened, role))
        self.assertNotIn("?", right + breaking.seen(happened))


def as_pattern(lines):
    """What is shown as a pattern: … stands for what varies, alone on a line for lines."""
    return "".join(
        "(?:.*\n)*?" if line == "…" else ".+?".join(map(re.escape, line.split("…"))) + "\n"
        for line in lines
    )


def runs(page):
    """What is to be run, and to be compared."""
    found = []
    for number, language, lines in blocks(read(page)):
        text, where = "\n".join(lines), f"{page}:{number}"
        if language == "text" or text.startswith(("RESULT ", "LAYOUT ")):
            if found:
                found[-1].outputs.append((where, lines))
        elif language == "sh" or language is None and COMMANDS.match(text):
            found.append(Run(where, lines, []))
    return found


def terminals(run):
    """{terminal: script}; 0 is this machine, which has no RDMA device."""
    found = {}
    for line in run.lines:
        if "make watch" not in line:  # it doesn't end by itself; test_check.py runs it
            terminal = re.search(r"# terminal (\d)", line)
            found.setdefault(int(terminal[1]) if terminal else 0, []).append(line)
    return {terminal: "\n".join(found[terminal]) for terminal in sorted(found)}


def fails(run):
    """By its text."""
    return any("FAIL" in line for _, lines in run.outputs[:1] for line in lines)


class Prose(unittest.TestCase):
    """The blocks of commands are run, and the output that a text shows behind one is compared."""

    maxDiff = None
    wires = False  # those that run on two hosts, from 08 on, take a while: a test of their own

    def chosen(self):
        for run in sum(map(runs, ("README.md", "bench/README.md", *pages("en"))), []):
            text = "\n".join(run.lines)
            on_two_hosts = bool(re.search(r"make wire LAB=(08|09|1\d)|ladder\.py", text))
            if on_two_hosts == self.wires and not any(each in text for each in NOT_RUN):
                yield run

    def test_pages(self):
        waiting, count = [], 0
        for count, run in enumerate(self.chosen(), 1):
            scripts = terminals(run)
            if list(scripts) == [0]:
                if "git apply" in scripts[0]:  # it changes a program that waits
                    self.check_in_vm(waiting)
                    waiting = []
                self.check(run, run_together([scripts[0]], COPY, 5 if fails(run) else 1))
            else:
                self.assertNotIn(0, scripts, f"{run.where}: some lines name no terminal")
                waiting.append(run)
        self.check_in_vm(waiting)
        self.assertGreater(count, 5 if self.wires else 30)

    def check_in_vm(self, waiting):
        # a wrong order (12) doesn't show each time
        jobs = [(list(terminals(run).values()), 5 if fails(run) else 1) for run in waiting]
        for run, shown in zip(waiting, in_vm(COPY, jobs) if jobs else ()):
            self.check(run, shown)

    def check(self, run, shown):
        seen = dict(zip(terminals(run), shown))
        with self.subTest(block=run.where):
            for terminal, (output, status) in seen.items():
                if not fails(run):
                    self.assertEqual(status, 0, f"terminal {terminal}: {output}")
        for where, lines in run.outputs:
            with self.subTest(block=where):
                self.compare(where, lines, seen)

    def compare(self, where, lines, seen):
        """With what the last terminal showed, unless lines "# terminal N" divide it."""
        shown, terminal = {}, max(seen)
        for line in lines:
            if heading := re.fullmatch(r"# terminal (\d)", line):
                terminal = int(heading[1])
            else:
                shown.setdefault(terminal, []).append(line)
        for terminal, wanted in shown.items():
            printed = seen[terminal][0].rstrip("\n") + "\n"
            # A single line may be shown of many.
            same = re.search if len(wanted) == 1 else re.fullmatch
            whole = printed.splitlines(True)  # of packets, a busy machine sends some again
            once = "".join(
                line for i, line in enumerate(whole) if line[:4] != "  | " or line not in whole[:i]
            )
            if not any(same(as_pattern(wanted), text) for text in (printed, once)):
                there = "\n".join(wanted)
                self.fail(f"{where} shows\n{there}\nbut terminal {terminal} showed\n{printed}")


class Wires(Prose):
    wires = True


class References(unittest.TestCase):
    """What the texts point to is there."""

    TEXTS = (
        *(f"{path}README{ending}" for path in ("", "bench/") for ending in (".md", ".zh.md")),
        *("CONTRIBUTING.md", "teach/README.md"),
        *pages("en"),
        *pages("zh"),
    )

    def check(self, pattern, is_there):
        """is_there(page, what the pattern finds)"""
        for page in self.TEXTS:
            found = set(re.findall(pattern, read(page)))
            self.assertEqual([name for name in found if not is_there(page, name)], [], page)

    def file_is_there(self, _, name):
        if re.match("/|results/|my[01]|learn/reference", name):  # not ours, or not yet
            return True
        return any(
            glob.glob(os.path.join(ROOT, place, name + ending))  # a program may not be built yet
            for place in ("", "common", "tests", *SAMPLES)
            for ending in ("", ".c")
        )

    def link_is_there(self, page, link):
        file, _, heading = link.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), file)) if file else page
        if not heading:
            return os.path.exists(os.path.join(ROOT, path))
        return heading in anchors(read(path))

    def test_files(self):
        names = r"`([\w.*-]*/[\w./*-]+|[\w-]+\.(?:md|c|h|sh|py)|\d\d_\w+)`"
        self.check(names, self.file_is_there)

    def test_links(self):
        self.check(r"\]\(([^):]+)\)", self.link_is_there)

    def test_make_targets(self):
        targets = re.findall(r"(?m)^([\w-]+):", read("Makefile")) + ["run"]
        self.check(r"(?:`|^    |^)make ([a-z][\w-]*)", lambda _, name: name in targets)

    def test_manual_pages(self):
        """Also those that a starter's TODO names."""
        if not shutil.which("dpkg"):
            self.skipTest("dpkg lists the manual pages")
        there = ran(["dpkg", "-L", "libibverbs-dev", "librdmacm-dev"], check=True).stdout
        self.TEXTS = (*self.TEXTS, "learn/places.txt")
        self.check(r"((?:ibv|rdma)_\w+)\(3\)", lambda _, name: f"/{name}.3" in there)
