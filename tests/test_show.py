#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""make show: what its page says is what the capture, the NIC's trace and the two programs say; one can
step through it, and it asks nobody for anything. In a copy of the project; the browser is Chromium."""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

from browser import CHROMIUM, Browser
from places import copy_project
from samples import EVERYWHERE, PROGRAM, ROOT, main, some

sys.path.insert(0, f"{ROOT}/judge")
from ladder import packets  # noqa: E402

COPY = f"{ROOT}/build/show-{os.getpid()}"
CLIENT = "10.0.1.2"
MOST = 300_000  # bytes of a page
ENV = {**os.environ, "TESTENV": "vm", "LAB_LANG": "en"}
SHOWN = [name[:2] for name in some(EVERYWHERE, 3)]
# Patch, lab, its arguments; status of the client's completion, NAK on the wire, what a NIC refuses itself; what the
# page says of it in the end.
BROKEN = (
    (
        "01-mr-without-right",
        "01",
        "",
        10,
        "remote access error",
        False,
        "the peer's NIC looked at the memory region",
    ),
    ("02-qp-without-right", "01", "", 9, "invalid request", False, "the peer's queue pair refused"),
    ("05-past-the-end-here", "01", "", 4, None, True, "this side's own NIC refused"),
    ("11-server-left-in-init", "01", "", 12, None, False, "no response came"),
    (
        "14-no-receive",
        "02",
        "--timeout 3",
        13,
        "receiver not ready (RNR)",
        False,
        "had no receive posted",
    ),
)
# Which have no completion with a status: what the page says in the end, and the error that it shows.
WITHOUT = (
    ("08-psn-behind", "01", "", "found something wrong", "memory does not hold the text"),
    ("09-gid-index-0", "01", "", "The call itself refused", "to RTR: errno 22"),
    (
        "16-not-signalled",
        "03",
        "--timeout 3",
        "a completion that did not come",
        "no completion of the RDMA READ",
    ),
)
# The page at a step; how many steps to the end, how many of their pages differ, and whether they are the same on the way back.
SEEN = "() => [step, document.querySelector('main').innerHTML.replace(/ (class=\"(later)?|hidden=\")\"/g, ''), now.innerHTML].join()"
STEPS = f"""(() => {{
    const seen = {SEEN}, forward = [seen()];
    const press = key => document.body.dispatchEvent(new KeyboardEvent('keydown', {{key, bubbles: true}}));
    for (; press('ArrowRight'), seen() !== forward.at(-1);) forward.push(seen());
    const back = forward.map((_, i) => i ? (press('ArrowLeft'), seen()) : seen());
    return [forward.length - 1, new Set(forward).size, back.reverse().every((page, i) => page === forward[i])];
}})()"""
# All runs in one pair of VMs, to start which takes longer than a run: pages, and what the pairs have printed.
ALL = """
import json, os, shlex, subprocess, sys
sys.path.insert(0, sys.argv[1])
import show
runs = {name: show.prepared(name, *how) for name, how in json.loads(sys.argv[2]).items()}
each = (f"{shlex.join(command)} > /tmp/said; echo == {name} $?; cat /tmp/said" for name, (command, _) in runs.items())
subprocess.run([f"{show.ROOT}/testenv/testenv.sh", "run", "bash", "-c", "; ".join(each)], stdin=subprocess.DEVNULL)
for name, (_, title) in runs.items():
    os.environ["LAB_LANG"] = "zh" if name == "chinese" else "en"
    show.write_page(name, *title)
"""
EVENT = re.compile(r"(?m)^(.*) \[\d+\] .* (copy|copied): \(.*?\) ?(.*)")


def copied(side, lab):
    """Bytes that the NIC has read and written there, as its trace says; and what it refused."""
    with open(f"{COPY}/results/show/{lab}/{side}.kernel", encoding="utf-8") as file:
        found = EVENT.findall(file.read())
    total, refused, entered = [0, 0], 0, {}
    for thread, kind, values in found:
        if kind == "copy":
            entered.setdefault(thread, []).append(values)
            continue
        copy = entered[thread].pop()
        if values == "error=0":
            total["dir=0" in copy] += int(re.search(r"len=(\d+)", copy)[1])
        else:
            refused += 1
    return total, refused


def capture(lab):
    """Side, name and PSN of each packet, a side after the other."""
    found = packets(f"{COPY}/results/show/{lab}/packets.pcap")
    return [
        [(p.name, p.psn, p.payload, p.carries) for p in found if (p.src == CLIENT) == client]
        for client in (True, False)
    ]


def run_all(**runs):
    """By name: the program's directory ("": the sample's) and arguments. Returns status and what was printed."""
    ended = subprocess.run(
        [sys.executable, "-c", ALL, f"{COPY}/learn/show", json.dumps(runs)],
        cwd=COPY,
        check=False,
        env={**ENV, "TESTENV_HOSTS": "2"},
        capture_output=True,
        text=True,
    )
    print(ended.stderr, end="", file=sys.stderr)
    found = re.findall(r"(?ms)^== (\S+) (\d+)\n(.*?)(?=^== |\Z)", ended.stdout)
    return {name: (int(status), printed) for name, status, printed in found}


def broken(patch, lab):
    """The directory of a sample with the change of a step."""
    of = next(name for name in PROGRAM if name[:2] == lab)
    place = f"{COPY}/{patch}-{of}"
    shutil.copytree(f"{COPY}/{of}", place)
    subprocess.run(
        ["git", "apply", "-p2", f"{ROOT}/tests/breakit/{patch}.patch"],
        cwd=place,
        check=True,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": COPY},  # it is in no repository
    )
    return place


@unittest.skipUnless(CHROMIUM, "no Chromium: apt install chromium")
def fails_late():
    """The directory of a 02 whose client WRITEs message 349 instead of sending it."""
    place = f"{COPY}/late"
    shutil.copytree(f"{COPY}/02_send_recv", place)
    with open(f"{place}/send_recv.c", encoding="utf-8") as file:
        text = file.read()
    changed = text.replace(
        "if (client) {\n            pattern_fill(",
        "if (client) {\n            if (i == 349) send_wr.opcode = IBV_WR_RDMA_WRITE;\n            pattern_fill(",
    )
    assert changed != text
    with open(f"{place}/send_recv.c", "w", encoding="utf-8") as file:
        file.write(changed)
    return place


class ShowTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        os.makedirs(f"{COPY}/results")
        copy_project(COPY)
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        shutil.rmtree(COPY)

    def opened(self, lab, printed):
        """Opens its page."""
        path = f"{COPY}/results/show/{lab}.html"
        self.assertLess(os.path.getsize(path), MOST)
        self.browser.said.clear()
        self.browser.open(path)
        self.tells_nothing_yet()
        sides = re.split(r"(?m)^--- (?:server|client).*\n", printed)
        return dict(zip(("server", "client"), sides[-2:]))

    def tells_nothing_yet(self):
        """What is to be predicted: how the run ends, and all that it does, until one has stepped there."""
        shown = self.browser.value("document.body.innerText")
        self.assertNotRegex(shown, r"PASS|FAIL|RESULT|exit status|退出状态|✘|NAK|\(status \d+\)")
        self.assertEqual(
            self.browser.value(
                "[...document.querySelectorAll('pre > div, tbody tr')]"
                ".filter(each => each.getClientRects().length).length"
            ),
            0,
        )
        self.browser.key("ArrowRight", 3)
        self.browser.key("ArrowLeft")
        self.assertEqual(
            self.browser.value(
                "[...document.querySelectorAll('tbody tr')].map(row => [row.hidden, row.className])"
                ".slice(0, 4)"
            ),
            [[False, ""], [False, ""], [False, "later"], [True, "later"]],
        )
        self.browser.key("Home")

    def text(self, selector):
        return self.browser.value(f"document.querySelector('{selector}')?.textContent ?? ''")

    def rows(self):
        return self.browser.value(
            "[...document.querySelectorAll('tbody tr')]"
            ".map(row => [...row.children].map(cell => cell.textContent))"
        )

    def steps_both_ways(self, nic="NIC"):
        """Forward by key to the end, and back: at each step the page is what it was."""
        self.browser.key("Home")
        steps, different, same = self.browser.value(STEPS)
        self.assertEqual(steps, self.browser.value("N"))
        self.assertEqual(different, steps + 1)
        self.assertTrue(same, "back is not as forward was")
        seen, forward = f"({SEEN})()", {}
        for key in (
            "Home",
            "ArrowRight",
            "ArrowRight",
            "ArrowLeft",
            "Home",
        ):  # now as a hand presses it
            self.browser.key(key)
            self.assertEqual(
                forward.setdefault(self.browser.value("step"), self.browser.value(seen)),
                self.browser.value(seen),
            )
        self.assertEqual(list(forward), [0, 1, 2])
        self.browser.value("document.getElementById('forward').click()")
        self.assertEqual(self.browser.value(seen), forward[1])
        self.browser.key("End")
        self.assertEqual(self.browser.value("step"), steps)
        self.browser.key("PageUp")
        if self.browser.value("R.events.some(e => NIC.includes(e.k))"):
            self.assertIn(nic, self.text("#now"))
        self.browser.key("Home")
        self.assertEqual(self.browser.value(seen), forward[0])

    def says_what_was(self, lab, printed):
        """The page against capture, trace, and programs."""
        rows, wire = self.rows(), capture(lab)
        for side, sent in zip(("client", "server"), wire):
            mine = [what for _, _, where, what in rows if where == side and " NIC sends: " in what]
            about = rf"^(✘ )?The {side}'s NIC sends: | ✘ This is a refusal.*"
            shown = [re.sub(about, "", what).rstrip(".") for what in mine]
            self.assertEqual(
                shown,
                [
                    f"{name}, PSN {psn}"
                    + (f", {count} bytes" if count else "")
                    + (f"; {carries}" if carries else "")
                    for name, psn, count, carries in sent
                ],
            )
        self.browser.key("End")
        count = sum(map(len, wire))
        self.assertIn(f"so far: {count} of {count}", self.text("#packets"))
        refusals = [carries for sent in wire for *_, carries in sent if "NAK" in carries]
        shown = [what for *_, what in rows if "This is a refusal" in what and "sends" in what]
        self.assertEqual(len(shown), len(refusals))
        for side in ("client", "server"):
            self.side_says(side, lab, printed[side])
        return wire

    def side_says(self, side, lab, printed):
        """What its NIC moved, and what it printed."""
        (read, wrote), _ = copied(side, lab)
        moved = f"has read {read} bytes of this side's memory and written {wrote}."
        self.assertIn(moved, self.text(f"#{side}-nic"))
        shown = self.browser.value(
            f"[...document.querySelectorAll('#printed-{side} > div')].map(d => d.textContent)"
        )
        lines = printed.strip("\n").split("\n")
        result = re.search(r"(?m)^RESULT .*status=(\w+)", printed)
        if not result:  # pair.sh has ended it; what it said last may be known to its own host only
            shown = shown[: len(lines)]
        self.assertEqual(sorted(shown), sorted(lines))
        badge = result[1] if result else "no RESULT line|FAIL"
        self.assertRegex(self.text(f"#{side} .badge"), badge)

    def is_sound(self):
        """Nothing asked of the network, no word on the console; what a screen reader needs; no gap in a sentence."""
        self.assertEqual([url for url in self.browser.asked if not url.startswith("file:///")], [])
        self.assertEqual((len(self.browser.asked), self.browser.said), (1, []))
        for what in (
            "[...document.querySelectorAll('svg[role=img]')].every(s => s.querySelector('title').textContent && "
            "s.querySelector('desc').textContent)",
            "document.documentElement.lang === 'en'",
            "document.querySelectorAll('h1').length === 1",
            "document.getElementById('now').getAttribute('aria-live') === 'polite'",
            "[...document.querySelectorAll('button')].every(b => b.textContent.trim().length > 4)",
            "document.querySelectorAll('th[scope=col]').length === 4",
            "[...document.querySelectorAll('[data-x]:not(svg)')].every(n => n.title.length > 40)",
            "document.querySelectorAll('table caption').length === 1",
        ):
            self.assertTrue(self.browser.value(what), what)
        text = self.browser.value("document.body.innerText")
        self.assertIsNone(re.search(r"undefined|null|NaN|\[object|\{\w+\}", text), text)
        self.browser.value("document.querySelector('[data-x=cq]').focus()")
        self.assertIn("ibv_poll_cq", self.text("#explained"))


class Runs(ShowTest):
    """Samples, some that fail, a long run, and a Chinese page of a program that is built as Ubuntu's compiler does it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        runs = {lab: [""] for lab in SHOWN}
        for patch, lab, arguments, *_ in BROKEN + WITHOUT:
            runs[patch] = [broken(patch, lab), *arguments.split()]
        fortified = f"{COPY}/fortified"
        shutil.copytree(f"{COPY}/01_hello_write", fortified)
        flags = "CFLAGS=-O2 -D_FORTIFY_SOURCE=2"
        subprocess.run(["make", "-sB", "-C", fortified, flags], check=True)
        runs["long"] = [f"{COPY}/02_send_recv", "-n", "400", "-s", "100"]
        runs["late"] = [fails_late(), "-n", "400", "-s", "100", "--timeout", "3"]
        cls.ended = run_all(**runs, chinese=[fortified])

    def run_of(self, name, status=0):
        """Opens its page. What both sides have printed."""
        self.assertEqual(self.ended[name][0], status, self.ended[name][1])
        return self.opened(name, self.ended[name][1])

    def test_samples(self):
        for lab in SHOWN:
            with self.subTest(lab=lab):
                self.says_what_was(lab, self.run_of(lab))
                self.steps_both_ways()
                self.is_sound()
                if lab == "05":
                    self.gathers()

    def gathers(self):
        """Five blocks of 100 bytes: gathered from 1,300, written as one piece."""
        self.browser.key("End")
        self.assertEqual(
            (copied("client", "05")[0], copied("server", "05")[0]), ([500, 0], [0, 500])
        )
        told = self.browser.value(
            "[...document.querySelectorAll('#client svg desc')].map(d => d.textContent).join()"
        )
        self.assertIn("The NIC has read 500 of them and written 0.", told)
        self.assertEqual(
            [what for *_, what in self.rows() if "client's NIC reads" in what],
            [
                f"The client's NIC reads 100 bytes of memory: MR 0 + {300 * i}, block {i}."
                for i in range(5)
            ],
        )

    def test_a_long_run_is_cut(self):
        printed = self.run_of("long")
        self.browser.key("End")
        printed_late = self.browser.value("R.events.slice(600).map(e => e.k)")
        self.assertEqual(set(printed_late), {"out", "exit"})
        self.assertRegex(
            self.text("#notes"), r"The run had \d{4} events. The page has the first 600"
        )
        for side in ("client", "server"):
            self.assertIn("RESULT", printed[side])
            self.assertIn("PASS", self.text(f"#{side} .badge"))
        self.is_sound()

    def test_a_long_run_that_fails_late(self):
        """The 350th message of 400 is a WRITE, for which the server's queue pair has given no right."""
        self.run_of("late", 1)
        self.tells_why("the peer's queue pair refused", "(status 9)")
        self.assertTrue(self.browser.value("N > 600 && N <= 680"))
        self.assertIn("invalid request", self.text("#explained"))
        self.is_sound()

    def test_failing_runs(self):
        for patch, *_, told, error in WITHOUT:
            with self.subTest(patch=patch):
                self.run_of(patch, 1)
                self.tells_why(told, error)
                self.is_sound()
        self.tells_of_the_client_whoever_is_first()
        for patch, _, _, status, nak, refused, told in BROKEN:
            with self.subTest(patch=patch):
                wire = self.says_what_was(patch, self.run_of(patch, 1))
                self.steps_both_ways()
                self.is_sound()
                self.tells_why(told, f"(status {status})")
                self.refuses(patch, status, wire, nak, refused)

    def tells_of_the_client_whoever_is_first(self):
        """Of 16, where the server's time may be over first: it only tells that the peer is silent, and a hint."""
        first = "(e => e.k === 'err' && e.s === 'server')"
        self.assertTrue(self.browser.value(f"R.events.some({first})"))
        self.browser.value(f"R.events.sort((a, b) => {first}(b) - {first}(a)).length")
        self.assertIn("no completion of", self.browser.value("failure().why.e.text"))

    def refuses(self, patch, status, wire, nak, refused):
        """Who says no: the peer on the wire, or this side's own NIC."""
        self.assertEqual("This is a refusal" in self.text("#explained"), bool(nak))
        self.assertEqual("and refuses" in self.text("#explained"), refused)
        self.assertIn("✘", self.text("#client .badge"))
        self.assertIn(f"(status {status})", self.text("#client-status"))
        rows = [what for *_, what in self.rows()]
        refusals = [what for what in rows if "sends" in what and "refusal (NAK): " in what]
        shown = {what.partition("refusal (NAK): ")[2].rstrip(".") for what in refusals}
        said = {carries for sent in wire for *_, carries in sent if "NAK" in carries}
        self.assertEqual(
            shown,
            {
                "receiver not ready (RNR)" if "RNR" in x else re.search(r"\((.*)\)", x)[1]
                for x in said
            },
        )
        self.assertTrue(nak in shown if nak else not shown, shown)
        self.assertEqual(any("and refuses" in what for what in rows), refused)
        self.assertEqual(copied("client", patch)[1] > 0, refused)
        rows = "\n".join(rows)
        self.assertRegex(rows, rf"The client prints an error: .*\(status {status}\)")
        self.assertRegex(rows, r"The client prints an error:   hint: ")

    def tells_why(self, told, error):
        """In the end: at which step it failed, what that means, and then what an exit status says."""
        self.browser.key("End")
        shown = self.text("#explained")
        self.assertRegex(shown, r"^Why the run failed:Step \d+: ")
        for words in (told, error, "1: failed"):
            self.assertIn(words, shown)
        step = int(re.search(r"Step (\d+): ", shown)[1])
        self.assertIn(self.rows()[step - 1][3].removeprefix("✘ "), shown)
        self.assertLess(shown.index(told), shown.index("1: failed"))

    def test_chinese(self):
        with open(f"{COPY}/fortified/hello_write", "rb") as file:
            self.assertTrue(b"__dprintf_chk" in file.read())
        self.run_of("chinese")
        for kind in ("tcp_out", "tcp_in"):  # of both sides: hello, ready, done, verdict
            self.assertEqual(
                self.browser.value(f"R.events.filter(e => e.k === '{kind}').length"), 8
            )
        self.assertEqual(self.browser.value("document.documentElement.lang"), "zh")
        for *_, where, what in self.rows():
            self.assertRegex(where + what, "[\u4e00-\u9fff]")
        self.steps_both_ways("网卡")
        self.assertNotRegex(
            self.browser.value("document.body.innerText"), r"undefined|null|NaN|\{\w+\}"
        )
        self.assertEqual(self.browser.said, [])


class Elsewhere(ShowTest):
    """Another kernel; one host; and no rights to look into the kernel."""

    def run_and_check(self, command, said, **env):
        ended = subprocess.run(
            command,
            cwd=COPY,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**ENV, **env},
        )
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertNotRegex(ended.stdout, "PASS|FAIL")
        self.assertRegex(ended.stdout, said)

    def test_newer_kernel(self):
        package = "linux-image-6.12-amd64"
        if subprocess.run(
            ["apt-cache", "show", package], capture_output=True, check=False
        ).returncode:
            self.skipTest(f"no package {package} here")
        for lab in ("04", "05"):
            self.run_and_check(["learn/show/show.py", lab], "in a browser", KERNEL=package)
            with open(f"{COPY}/results/show/{lab}/printed.txt", encoding="utf-8") as printed:
                self.says_what_was(lab, self.opened(lab, printed.read()))
            self.assertNotIn("Not seen", self.text("#notes"))

    def test_one_host(self):
        """On a machine that has an RDMA device, which a VM is here: as an ordinary user, and as root; no probe is left."""
        for lab, name in (("03", "03_read"), ("05", "05_gather_write")):  # slow in there
            subprocess.run(["make", "-s", "-C", f"{COPY}/{name}"], check=True)
            os.makedirs(f"{COPY}/results/show/{lab}", exist_ok=True)
        subprocess.run(["chmod", "-R", "a+w", f"{COPY}/results"], check=True)
        show = "env TESTENV=native HOSTS=1 {} python3 -B learn/show/show.py {}"
        user = "setpriv --reuid=65534 --regid=65534 --clear-groups"
        left = "cd /sys/kernel/tracing && cat kprobe_events && ls instances && echo nothing more"
        inside = f"{show.format(user, '03')} && {show.format('', '05')} && {left}"
        self.run_and_check(
            ["testenv/testenv.sh", "run", "bash", "-c", inside], r"printed: \S+\nnothing more\n"
        )
        self.as_user()
        self.as_root()

    def as_user(self):
        self.browser.open(f"{COPY}/results/show/03.html")
        self.browser.key("End")
        for side in ("client", "server"):
            self.assertIn(f"Not seen at the {side}", self.text("#notes"))
            self.assertIn("was not seen", self.text(f"#{side}-nic"))
            self.assertIn("PASS", self.text(f"#{side} .badge"))
        self.assertIn("The packets were not seen", self.text("#packets"))
        self.assertIn("1 posted, 0 outstanding, 1 completed", self.text("#client-sq"))
        self.steps_both_ways()
        self.is_sound()

    def as_root(self):
        self.browser.open(f"{COPY}/results/show/05.html")
        self.browser.key("End")
        for words in ("one host with one clock", "The packets were not captured"):
            self.assertIn(words, self.text("#notes"))
        for side, moved in (("client", "read 500 bytes"), ("server", "read 0 bytes")):
            self.assertIn(f"has {moved} of this side's memory", self.text(f"#{side}-nic"))
        self.assertIn("written 500.", self.text("#server-nic"))
        self.assertEqual(
            [what for *_, what in self.rows() if "sends: " in what],
            [
                "The client's NIC sends: RDMA WRITE Only, PSN 0.",
                "The server's NIC sends: Acknowledge, PSN 0.",
            ],
        )
        self.is_sound()


if __name__ == "__main__":
    main()
