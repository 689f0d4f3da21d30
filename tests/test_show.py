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
# Several runs in one pair of VMs, to start which takes longer than a run: pages, and what the pairs have printed.
ALL = """
import json, shlex, subprocess, sys
sys.path.insert(0, sys.argv[1])
import show
runs = {name: show.prepared(name, *how) for name, how in json.loads(sys.argv[2]).items()}
each = (f"{shlex.join(command)} > /tmp/said; echo == {name} $?; cat /tmp/said" for name, (command, _) in runs.items())
subprocess.run([f"{show.ROOT}/testenv/testenv.sh", "run", "bash", "-c", "; ".join(each)], stdin=subprocess.DEVNULL)
for name, (_, title) in runs.items():
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


@unittest.skipUnless(CHROMIUM, "no Chromium: apt install chromium")
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

    def run_pair(self, lab, arguments="", status=0, **env):
        """What make show does, without looking for packages. Returns what both sides have printed."""
        ended = subprocess.run(
            [f"{COPY}/learn/show/show.py", lab, "", *arguments.split()],
            cwd=COPY,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TESTENV": "vm", "LAB_LANG": "en", **env},
        )
        self.assertEqual(ended.returncode, status, ended.stdout + ended.stderr)
        self.assertNotRegex(ended.stdout, "PASS|FAIL")
        with open(f"{COPY}/results/show/{lab}/printed.txt", encoding="utf-8") as printed:
            return self.opened(lab, printed.read())

    @classmethod
    def run_all(cls, **runs):
        """By name: the program's directory ("": the sample's) and arguments. Returns status and what was printed."""
        ended = subprocess.run(
            [sys.executable, "-c", ALL, f"{COPY}/learn/show", json.dumps(runs)],
            cwd=COPY,
            check=False,
            env={**os.environ, "TESTENV": "vm", "LAB_LANG": "en", "TESTENV_HOSTS": "2"},
            capture_output=True,
            text=True,
        )
        print(ended.stderr, end="", file=sys.stderr)
        return {
            name: (int(status), printed)
            for name, status, printed in re.findall(
                r"(?ms)^== (\S+) (\d+)\n(.*?)(?=^== |\Z)", ended.stdout
            )
        }

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
        rows = self.rows()
        wire = capture(lab)
        for side, sent in zip(("client", "server"), wire):
            shown = [
                re.sub(rf"^(✘ )?The {side}'s NIC sends: | ✘ This is a refusal.*", "", what).rstrip(
                    "."
                )
                for _, _, where, what in rows
                if where == side and " NIC sends: " in what
            ]
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
        self.assertEqual(
            sum("This is a refusal" in what and "sends" in what for *_, what in rows), len(refusals)
        )
        for side in ("client", "server"):
            (read, wrote), _ = copied(side, lab)
            self.assertIn(
                f"has read {read} bytes of this side's memory and written {wrote}.",
                self.text(f"#{side}-nic"),
            )
            shown = self.browser.value(
                f"[...document.querySelectorAll('#printed-{side} > div')].map(d => d.textContent)"
            )
            lines = printed[side].strip("\n").split("\n")
            result = re.search(r"(?m)^RESULT .*status=(\w+)", printed[side])
            if (
                not result
            ):  # pair.sh has ended it; what it said last may have been seen on its own host only
                shown = shown[: len(lines)]
            self.assertEqual(sorted(shown), sorted(lines))
            self.assertRegex(
                self.text(f"#{side} .badge"), result[1] if result else "no RESULT line|FAIL"
            )
        return wire

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


SHOWN = some(EVERYWHERE, 3)


class Samples(ShowTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ended = cls.run_all(**{name[:2]: [""] for name in SHOWN})

    def check(self, lab):
        status, printed = self.ended[lab]
        self.assertEqual(status, 0, printed)
        printed = self.opened(lab, printed)
        self.says_what_was(lab, printed)
        self.steps_both_ways()
        self.is_sound()
        (read, wrote), there = copied("client", lab)[0], copied("server", lab)[0]
        if lab == "05":  # five blocks of 100 bytes: gathered from 1,300, written as one piece
            self.browser.key("End")
            self.assertEqual(([read, wrote], there), ([500, 0], [0, 500]))
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


for number in (name[:2] for name in SHOWN):
    setattr(Samples, f"test_{number}", lambda self, lab=number: self.check(lab))


class One(ShowTest):
    def test_a_long_run_is_cut(self):
        printed = self.run_pair("02", "-n 400 -s 100")
        self.browser.key("End")
        self.assertEqual(self.browser.value("N"), 601)
        self.assertRegex(self.text("tbody"), r"\d+ events are left out here: .*\d+ packets sent")
        count = sum(map(len, capture("02")))
        self.assertGreaterEqual(count, 1600)
        self.assertIn(f"so far: {count} of {count}", self.text("#packets"))
        for side in printed:
            (read, wrote), _ = copied(side, "02")
            self.assertEqual(wrote, 40000)
            self.assertGreaterEqual(read, 40000)  # a message may have been sent again
            self.assertIn(
                f"has read {read} bytes of this side's memory and written {wrote}.",
                self.text(f"#{side}-nic"),
            )
        self.assertIn("400 posted, 0 outstanding, 400 completed", self.text("#client-sq"))
        self.is_sound()


class Broken(ShowTest):
    def test_failing_runs(self):
        runs = {}
        for patch, lab, arguments, *_ in BROKEN + WITHOUT:
            of = next(name for name in PROGRAM if name[:2] == lab)
            shutil.copytree(f"{COPY}/{of}", f"{COPY}/{patch}/{of}")
            subprocess.run(
                ["git", "apply", f"{ROOT}/tests/breakit/{patch}.patch"],
                cwd=f"{COPY}/{patch}",
                check=True,
                env={**os.environ, "GIT_CEILING_DIRECTORIES": f"{ROOT}/build"},
            )  # it is in no repository
            os.rename(f"{COPY}/{patch}/{of}", f"{COPY}/{patch}-{of}")
            runs[patch] = [f"{COPY}/{patch}-{of}", *arguments.split()]
        ended = self.run_all(**runs)
        for patch, *_, told, error in WITHOUT:
            with self.subTest(patch=patch):
                self.opened(patch, ended[patch][1])
                self.tells_why(told, error)
                self.is_sound()
        for patch, _, _, status, nak, refused, told in BROKEN:
            with self.subTest(patch=patch):
                self.assertEqual(ended[patch][0], 1)
                printed = self.opened(patch, ended[patch][1])
                wire = self.says_what_was(patch, printed)
                self.steps_both_ways()
                self.is_sound()
                self.tells_why(told, f"(status {status})")
                self.assertEqual("This is a refusal" in self.text("#explained"), bool(nak))
                self.assertEqual("and refuses" in self.text("#explained"), refused)
                self.assertIn("✘", self.text("#client .badge"))
                self.assertIn(f"(status {status})", self.text("#client-status"))
                rows = [what for *_, what in self.rows()]
                shown = [
                    re.search(r"refusal \(NAK\): (.*)\.$", what)[1]
                    for what in rows
                    if "sends" in what and "refusal" in what
                ]
                refusals = [carries for sent in wire for *_, carries in sent if "NAK" in carries]
                self.assertEqual(
                    set(shown),
                    {
                        "receiver not ready (RNR)"
                        if "RNR" in carries
                        else re.search(r"NAK \((.*)\)", carries)[1]
                        for carries in refusals
                    },
                )
                self.assertTrue(nak in shown if nak else not shown, shown)
                self.assertEqual(any("and refuses" in what for what in rows), refused)
                self.assertEqual(copied("client", patch)[1] > 0, refused)
                self.assertRegex(
                    "\n".join(rows), rf"The client prints an error: .*\(status {status}\)"
                )
                self.assertRegex("\n".join(rows), r"The client prints an error:   hint: ")

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


class Elsewhere(ShowTest):
    """Other kernels, one host, and no rights to look into the kernel."""

    def test_newer_kernel(self):
        if subprocess.run(
            ["apt-cache", "show", "linux-image-6.12-amd64"], capture_output=True, check=False
        ).returncode:
            self.skipTest("no package linux-image-6.12-amd64 here")
        for lab in ("04", "05"):
            printed = self.run_pair(lab, KERNEL="linux-image-6.12-amd64")
            self.says_what_was(lab, printed)
            self.assertNotIn("Not seen", self.text("#notes"))

    def test_chinese(self):
        """And a program that is built as Ubuntu's compiler does it."""
        subprocess.run(
            ["make", "-sB", "-C", f"{COPY}/01_hello_write", "CFLAGS=-O2 -D_FORTIFY_SOURCE=2"],
            check=True,
        )
        with open(f"{COPY}/01_hello_write/hello_write", "rb") as file:
            self.assertTrue(b"__dprintf_chk" in file.read())
        self.run_pair("01", LAB_LANG="zh")
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

    def test_without_root(self):
        """An ordinary user, on a machine that has an RDMA device: a VM is that machine."""
        subprocess.run(
            ["make", "-s", "-C", f"{COPY}/03_read"], check=True
        )  # is slow in there, and not this user's to write
        os.makedirs(f"{COPY}/results/show/03", exist_ok=True)
        for folder, _, files in os.walk(f"{COPY}/results"):
            os.chmod(folder, 0o777)
            for name in files:
                os.remove(f"{folder}/{name}")
        inside = (
            "env TESTENV=native HOSTS=1 LAB_LANG=en setpriv --reuid=65534 --regid=65534 --clear-groups "
            "python3 -B learn/show/show.py 03"
        )
        ended = subprocess.run(
            ["testenv/testenv.sh", "run", "bash", "-c", inside],
            cwd=COPY,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
            env={**os.environ, "TESTENV": "vm"},
        )
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
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

    def test_a_kernel_without_that_function(self):
        """It is said, and the packets stand where tcpdump saw them."""
        path = f"{COPY}/learn/show/trace.py"
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.addCleanup(self.write, path, text)
        self.write(path, text.replace("rxe_xmit_packet", "rxe_no_such_function"))
        self.says_what_was("03", self.run_pair("03"))
        for side in ("client", "server"):
            self.assertRegex(
                self.text("#notes"), rf"Not seen at the {side} \(kernel \S+\): packets sent\."
            )
        self.assertIn("a packet stands where tcpdump", self.text("#notes"))
        self.steps_both_ways()
        self.is_sound()

    @staticmethod
    def write(path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def test_one_host(self):
        """As root on a machine that has a device, which a VM is here; no probe is left behind."""
        subprocess.run(
            ["make", "-s", "-C", f"{COPY}/05_gather_write"], check=True
        )  # is slow in there
        inside = (
            "TESTENV=native HOSTS=1 LAB_LANG=en python3 -B learn/show/show.py 05 && cd /sys/kernel/tracing && "
            "cat kprobe_events && ls instances && echo nothing more"
        )
        ended = subprocess.run(
            ["testenv/testenv.sh", "run", "bash", "-c", inside],
            cwd=COPY,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
            env={**os.environ, "TESTENV": "vm"},
        )
        self.assertRegex(
            ended.stdout + ended.stderr, r"in a browser\)\. What it printed: \S+\nnothing more\n"
        )
        self.browser.open(f"{COPY}/results/show/05.html")
        self.browser.key("End")
        self.assertIn("one host with one clock", self.text("#notes"))
        self.assertIn("The packets were not captured", self.text("#notes"))
        self.assertIn(
            "has read 500 bytes of this side's memory and written 0.", self.text("#client-nic")
        )
        self.assertIn(
            "has read 0 bytes of this side's memory and written 500.", self.text("#server-nic")
        )
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
