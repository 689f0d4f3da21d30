# SPDX-License-Identifier: BSD-2-Clause
"""How pytest runs these tests. Plain test functions run as everywhere. A class of unittest runs where
groups.py says, once in each group that names it: this file starts a process for each group, which may be
in a VM, reads a line for each test from it (runner.py), and reports that as the outcome of an item here."""
import contextlib
import json
import os
import queue
import random
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

import pytest

import builds
from groups import BUILT, OUT, QUICK, REST
from runner import MARK
from samples import ROOT

AT_A_TIME = 4  # an emulated VM keeps a core busy, but some groups mostly wait
RELEASED = ("layouts", "pairs", "peers", "more", "units", "wire")  # see released()
# What testenv.sh is told, and what draws some of the cases (samples.py).
os.environ.setdefault("TESTENV", "vm")
os.environ.update(BUILT)
os.environ.setdefault("HV_SOME", str(random.randrange(32768)))
RANKS = {id(group): number for number, group in enumerate((*QUICK, *REST), 1)}
PARTS = list(dict.fromkeys(["sources", *(group.part for group in (*QUICK, *REST))]))


def pytest_addoption(parser):
    parser.addoption("--only", default="", help="parts, or an expression as -k takes it")


def pytest_configure(config):
    for name in ("quick: every kind of claim once", "rest: what takes longer", *PARTS):
        config.addinivalue_line("markers", name)
    if only := config.getoption("only"):
        names = only.split()
        if set(names) - {"or"} <= set(PARTS):
            config.option.markexpr = " or ".join(name for name in names if name != "or")
        else:
            config.option.markexpr, config.option.keyword = "", only


def pytest_collection():
    """The tests' modules load this when they are listed."""
    if not os.path.exists(f"{OUT}/expected.so"):
        os.makedirs(OUT, exist_ok=True)
        builds.ALL["expected"]()


def pytest_report_header():
    tiers = (("quick", QUICK), ("rest", REST))
    return [f"{tier}: {' '.join(dict.fromkeys(g.part for g in groups))}" for tier, groups in tiers]


class GroupItem(pytest.Item):
    """A test of a group."""

    def __init__(self, *, group, test, place, **more):
        super().__init__(**more)
        self.group, self.test, self.place = group, test, (RANKS[id(group)], *place)
        self.add_marker(group.part)
        self.add_marker("quick" if group in QUICK else "rest")

    def reportinfo(self):
        return self.path, 0, self.name


class GroupFile(pytest.File):
    """A module of unittest: its tests in each group."""

    def collect(self):
        with modules_forgotten():
            found = list(self.in_groups())
            forgotten = set(listed(self.path.stem)) - {item.test for item in found}
        if forgotten:
            raise self.CollectError(f"in no group (groups.py): {sorted(forgotten)}")
        return found

    def in_groups(self):
        for group in (*QUICK, *REST):
            label = group.part + (f"-{group.name}" if group.name else "")
            for number, name in enumerate(group.tests.split()):
                if name.split(".")[0] == self.path.stem:
                    yield from self.tests(group, label, name, number)

    def tests(self, group, label, name, number):
        for i, test in enumerate(listed(name)):
            title = f"{'::'.join(test.split('.')[1:])}[{label}]"
            yield GroupItem.from_parent(self, name=title, group=group, test=test, place=(number, i))


def listed(name):
    """The tests of a name as unittest takes it."""
    loader = unittest.TestLoader()
    tests = [test.id() for test in flat(loader.loadTestsFromName(name))]
    if loader.errors:
        raise pytest.Collector.CollectError("\n".join(loader.errors))
    return tests


@contextlib.contextmanager
def modules_forgotten():
    """Forgets what is imported of ours: two directories have a formats.py; each group is a process of its own."""
    path, before = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for module in set(sys.modules) - before:
        if (getattr(sys.modules[module], "__file__", "") or "").startswith(ROOT):
            del sys.modules[module]


def flat(suite):
    for test in suite:
        yield from flat(test) if isinstance(test, unittest.TestSuite) else [test]


def pytest_ignore_collect(collection_path):
    """Without solutions, some modules can't even be loaded."""
    wanted = {n.split(".")[0] for g in QUICK if g.part in RELEASED for n in g.tests.split()}
    if released() and re.match("test_.*py$", collection_path.name):
        return collection_path.stem not in wanted | {"test_units"}
    return None


def pytest_pycollect_makemodule(module_path, parent):
    named = {n.split(".")[0] for group in (*QUICK, *REST) for n in group.tests.split()}
    if module_path.stem in named:
        return GroupFile.from_parent(parent, path=module_path)
    return None


def released():
    """What make student-release packs has no git and no solutions: there, the tests of the programs
    that are written."""
    return os.path.exists(os.path.join(ROOT, "learn", "reference"))


def pytest_collection_modifyitems(items):
    if released():
        items[:] = [item for item in items if {m.name for m in item.iter_markers()} & set(RELEASED)]
    items.sort(key=lambda item: item.place if isinstance(item, GroupItem) else (0,))


class Running:
    """A group at work: puts (item, outcome, text, seconds) into reports, one for each of its items."""

    def __init__(self, group, items, reports):
        self.group, self.reports = group, reports
        self.waiting = {item.test: item for item in items}
        self.process, self.said = None, []

    def run(self):
        try:
            wrong = "".join(map(builds.build, builds.needed(self.group)))
            if wrong:
                self.rest("failed", wrong)
            elif why := builds.missing(self.group):
                self.rest("skipped", why)
            else:
                self.start()
        except BaseException as error:  # or nobody would miss this group
            self.rest("failed", repr(error))
            raise

    def start(self):
        self.process = subprocess.Popen(
            self.group.command(list(self.waiting)),
            cwd=ROOT,
            env=builds.environment(**self.group.environment()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        stray = ended = ""
        for line in self.process.stdout:
            if not line.startswith(MARK):
                self.said += [line] if line.strip() else []
                stray += line if line.startswith("not ok") else ""
                continue
            told = json.loads(line[len(MARK) :])
            if told["test"] in self.waiting:
                self.tell(told["test"], told["outcome"], told["text"], told["seconds"])
            else:
                stray += told["text"]
                ended = ended or told["outcome"] == "ended"
        self.close(self.process.wait(), stray, ended)

    def close(self, status, stray, ended):
        """What has not told its outcome failed; what failed outside of the tests, in setting up or clearing
        away, fails the last of them once more."""
        if self.group.unstable and status == 77:
            return self.rest("skipped", "".join(self.said))
        why = stray or f"has not come to its end: exit status {status}"
        left = [test for test in self.waiting if self.waiting[test] is not None]
        self.rest("failed", why + "\n" + self.tail())
        if not left and (stray or not ended):
            self.reports.put((self.last, "failed", why + "\n" + self.tail(), 0))
        return None

    def tail(self):
        return "".join(self.said[-40:])

    def rest(self, outcome, text):
        for test in [t for t in self.waiting if self.waiting[t] is not None]:
            self.tell(test, outcome, text)

    def tell(self, test, outcome, text, seconds=0):
        self.last, self.waiting[test] = self.waiting[test], None
        if outcome == "failed":
            text += "".join(self.said[-10:])
        self.reports.put((self.last, outcome, text, seconds))

    def kill(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)  # testenv.sh ends its VM
            time.sleep(2)
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)


def report(session, item, outcome, text, seconds):
    longrepr = {
        "passed": None,
        "failed": text,
        "skipped": (str(item.path), 0, "Skipped: " + text.strip()),
    }[outcome]
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    hook.pytest_runtest_logreport(
        report=pytest.TestReport(
            item.nodeid, item.location, item.keywords, outcome, longrepr, "call", duration=seconds
        )
    )
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def told_to_end(*_):
    """By CI's time limit: what waits for an outcome then failed. make and timeout both pass the signal on."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def pytest_sessionstart(session):
    signal.signal(signal.SIGTERM, told_to_end)
    session.running, session.notes, session.unreported = [], [], {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    if session.config.option.collectonly or session.testsfailed:
        return None
    session.unreported = {item.nodeid: item for item in session.items}
    builds.begin()
    reports, slots = queue.Queue(), threading.Semaphore(AT_A_TIME)
    groups, plain = {}, []
    for item in session.items:
        if isinstance(item, GroupItem):
            groups.setdefault(id(item.group), []).append(item)
        else:
            plain.append(item)
    session.running = [Running(items[0].group, items, reports) for items in groups.values()]
    if plain:
        slots.acquire()
    starter = threading.Thread(target=start_all, args=(session, slots), daemon=True)
    starter.start()
    for item, after in zip(plain, [*plain[1:], None]):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        session.unreported.pop(item.nodeid, None)
        hand_over(session, reports)
    if plain:
        slots.release()
    while starter.is_alive() or not reports.empty():
        hand_over(session, reports)
    return True


def start_all(session, slots):
    """The groups in their order, so many at a time."""

    def run(running):
        try:
            running.run()
        finally:
            slots.release()

    threads = []
    for running in session.running:
        slots.acquire()
        threads.append(threading.Thread(target=run, args=(running,), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()


def hand_over(session, reports):
    try:
        while True:
            item, *outcome = reports.get(timeout=0.2)
            session.unreported.pop(item.nodeid, None)
            report(session, item, *outcome)
    except queue.Empty:
        pass


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    for running in session.running:
        running.kill()
    for item in session.unreported.values():
        report(session, item, "failed", "has not come to its end", 0)


def pytest_terminal_summary(terminalreporter):
    write = terminalreporter.write_line
    for running in getattr(terminalreporter._session, "running", ()):
        for line in running.said:
            if line.startswith(("# ", "ok - ")):
                write(line.rstrip())
    some = os.environ["HV_SOME"]
    write(f"of much that is alike some, HV_SOME={some}; HV_SOME=all takes all; build/ is {OUT}")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """The last line, which .ci/run reads."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or config.option.collectonly:
        return
    count = {name: len(reports) for name, reports in reporter.stats.items()}
    failed = count.get("failed", 0) + count.get("error", 0)
    line = f"{count.get('passed', 0)} passed, {failed} failed"
    print(line + (f", {count['skipped']} skipped" if count.get("skipped") else ""), flush=True)
