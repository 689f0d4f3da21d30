# SPDX-License-Identifier: BSD-2-Clause
"""make show: what its page says is what the capture and the two programs say, and one can step
through it. In a copy of the project; a headless Chromium opens the pages."""
import html
import json
import os
import re
import shutil
import sys
import unittest

from places import copy_project
from samples import EVERYWHERE, ROOT, ran, read, some, write

sys.path.insert(0, f"{ROOT}/judge")
from ladder import packets  # noqa: E402

COPY = f"{ROOT}/build/show-{os.getpid()}"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
MOST = 300_000  # bytes of a page
ENV = {"TESTENV": "vm", "LAB_LANG": "en"}
SHOWN = sorted({"05", *(name[:2] for name in some(EVERYWHERE, 4))})
BLOCKS = "--block-size 100 --block-num 5 --stride 300".split()  # as make show runs 05
CLIENT = "10.0.1.2"
SIDES = ("client", "server")
# Steps of Break it: the client's arguments; what the page says in the end, of the meaning and the error; whether a
# packet or this side's own NIC refuses.
BROKEN = {
    "01-mr-without-right": ("", "the peer's NIC looked at the memory region", "(status 10)", "NAK"),
    "05-past-the-end-here": ("", "this side's own NIC refused", "(status 4)", "own"),
    "08-psn-behind": ("", "found something wrong", "memory does not hold the text", ""),
    "09-gid-index-0": ("", "The call itself refused", "to RTR: errno 22", ""),
    "16-not-signalled": ("--timeout 3", "did not come", "no completion of the RDMA READ", ""),
}
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
# Before the page's own script, and behind it: what a reader sees who steps through, and what is wrong.
BEFORE = """<script>
const wrong = [];
for (const kind of ["error", "securitypolicyviolation"]) addEventListener(kind, e => wrong.push(e.message || e.blockedURI));
console.error = console.warn = text => wrong.push(text);
</script>"""
BEHIND = """<script>
const all = selector => [...document.querySelectorAll(selector)], text = id => $(id)?.textContent ?? "";
const texts = selector => all(selector).map(each => each.textContent);
const must = (holds, what) => holds || wrong.push(what);
const press = key => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const seen = () => [step, document.querySelector("main").innerHTML.replace(/ (class="(later)?|hidden=")"/g, ""), $("now").innerHTML].join();
must(!all("pre > div, tbody tr").some(each => each.getClientRects().length), "output is shown at the first step");
must(!/PASS|FAIL|RESULT|exit status|退出状态|✘|NAK|\\(status/.test(document.body.innerText), "the outcome is told at the first step");
const forward = [seen()], most = Math.min(N, 300);
while (forward.length <= most) { press("ArrowRight"); forward.push(seen()); }
must(new Set(forward).size === most + 1, "a step shows nothing new");
for (const page of forward.toReversed()) { must(page === seen(), "the way back is another"); press("ArrowLeft"); }
$("forward").click();
must(seen() === forward[1], "the button does something else");
press("End");
must(!/undefined|null|NaN|\\[object|\\{\\w+\\}/.test(document.body.innerText), "a value is missing in a sentence");
const found = {rows: texts("tbody td:last-child"), kinds: R.events.map(e => e.k), lang: document.documentElement.lang};
for (const id of ["explained", "notes", "packets"]) found[id] = text(id);
for (const side of SIDES) found[side] = {
  badge: texts(`#${side} .badge`)[0], nic: text(side + "-nic"), status: text(side + "-status"), sq: text(side + "-sq"),
  printed: texts(`#printed-${side} > div`) };
document.querySelector("[data-x=cq]").dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
must(text("explained").includes("ibv_poll_cq"), "what is pointed at is not explained");
document.body.innerHTML = "<pre id=found></pre>";
$("found").textContent = JSON.stringify({...found, wrong});
</script>"""


def run_all(**runs):
    """By name: the program's directory ("": the sample's) and arguments. Returns status and what was printed."""
    command = [sys.executable, "-c", ALL, f"{COPY}/learn/show", json.dumps(runs)]
    ended = ran(command, cwd=COPY, env={**ENV, "TESTENV_HOSTS": "2"}, timeout=None)
    found = re.findall(r"(?ms)^== (\S+) (\d+)\n(.*?)(?=^== |\Z)", ended.stdout)
    return {name: (int(status), printed) for name, status, printed in found}


def by_side(printed):
    sides = re.split(r"(?m)^--- (?:server|client).*\n", printed)
    return dict(zip(("server", "client"), sides[-2:]))


def sentence(packet):
    size = f", {packet.payload} bytes" if packet.payload else ""
    carries = f"; {packet.carries}" if packet.carries else ""
    return f"{packet.name}, PSN {packet.psn}{size}{carries}"


def changed(name, sample, change):
    """The directory of a sample that a command has changed."""
    place = f"{COPY}/{name}"
    shutil.copytree(f"{COPY}/{sample}", place)
    ran(
        change, cwd=place, check=True, env={"GIT_CEILING_DIRECTORIES": COPY}
    )  # it is in no repository
    return place


def broken(step):
    patch = f"{ROOT}/tests/mistakes/{step}.patch"
    sample = re.match("sample: (.*)", read(patch))[1]
    return changed(f"{step}-{sample}", sample, ["git", "apply", "-p2", patch])


@unittest.skipUnless(CHROMIUM, "no Chromium: apt install chromium")
class Show(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        copy_project(COPY)
        cls.addClassCleanup(shutil.rmtree, COPY)
        # 16 and 18 as they are have more events than a page shows.
        runs = {lab: ["", "-n", "4"] if lab in ("16", "18") else [""] for lab in SHOWN}
        runs |= {step: [broken(step), *how[0].split()] for step, how in BROKEN.items()}
        # as Ubuntu's compiler builds it: printf is another function
        fortify = ["env", "CFLAGS=-O2 -D_FORTIFY_SOURCE=2", "make", "-sB"]
        runs["chinese"] = [changed("fortified", "01_hello_write", fortify)]
        cls.ended = run_all(**runs)

    def page(self, lab, language="en"):
        """What its page says at the end. Before one has stepped there, it tells nothing: it is to be predicted."""
        path = f"{COPY}/results/show/{lab}.html"
        self.assertLess(os.path.getsize(path), MOST)
        text = read(path).replace("<head>", "<head>" + BEFORE).replace("</body>", BEHIND)
        write(path + ".html", text)
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
        dumped = ran([*command, f"file://{path}.html"], check=True).stdout
        found = json.loads(html.unescape(re.search('(?s)<pre id="found">(.*)</pre>', dumped)[1]))
        self.assertEqual(found["wrong"], [])
        self.assertEqual(found["lang"], language)
        return found

    def run_of(self, name, status=0, **more):
        """Its page, and what each side has printed."""
        ended, printed = self.ended[name]
        self.assertEqual(ended, status, printed)
        return self.page(name, **more), by_side(printed)

    def says_what_was(self, lab, page, printed):
        """The page against capture and programs."""
        wire = packets(f"{COPY}/results/show/{lab}/packets.pcap")
        self.assertIn(f"so far: {len(wire)} of {len(wire)}", page["packets"])
        refusals = [row for row in page["rows"] if "sends" in row and "This is a refusal" in row]
        self.assertEqual(len(refusals), sum("NAK" in packet.carries for packet in wire))
        for side in SIDES:
            about = rf"^(✘ )?The {side}'s NIC sends: | ✘ This is a refusal.*"
            rows = [row for row in page["rows"] if re.match(about, row)]
            sent = [each for each in wire if (each.src == CLIENT) == (side == "client")]
            told = [re.sub(about, "", row).rstrip(".") for row in rows]
            self.assertEqual(told, list(map(sentence, sent)))
            lines, shown = printed[side].strip("\n").split("\n"), page[side]["printed"]
            result = re.search(r"(?m)^RESULT .*status=(\w+)", printed[side])
            if not result:  # pair.sh has ended it; its own host alone may know what it said last
                shown = shown[: len(lines)]
            self.assertEqual(sorted(shown), sorted(lines))
            badge = result[1] if result else "no RESULT line|FAIL"
            self.assertRegex(page[side]["badge"], badge)

    def test_samples(self):
        for lab in SHOWN:
            with self.subTest(lab=lab):
                self.says_what_was(lab, *self.run_of(lab))

    def test_failing_runs(self):
        """Each page says at which step it failed, what that means, who refused, and what the program said."""
        for step, (_, told, error, refused) in BROKEN.items():
            with self.subTest(step=step):
                page, printed = self.run_of(step, 1)
                self.tells_why(page, told, error)
                if "status" not in error:
                    continue
                self.says_what_was(step, page, printed)
                self.assertIn(error, page["client"]["status"])
                self.assertEqual("This is a refusal" in page["explained"], refused == "NAK")
                self.assertEqual("and refuses" in page["explained"], refused == "own")

    def tells_why(self, page, *words):
        shown = page["explained"]
        at = int(re.match(r"Why the run failed:Step (\d+): ", shown)[1])
        for each in (*words, "1: failed", page["rows"][at - 1].removeprefix("✘ ")):
            self.assertIn(each, shown)
        self.assertIn("✘", page["client"]["badge"])

    def test_chinese(self):
        with open(f"{COPY}/fortified/hello_write", "rb") as file:
            self.assertIn(b"__dprintf_chk", file.read())
        page, _ = self.run_of("chinese", language="zh")
        # Of both sides: hello, ready, done, verdict.
        self.assertEqual(page["kinds"].count("tcp_out"), 8)
        for row in page["rows"]:
            self.assertRegex(row, "[\u4e00-\u9fff]")

    def make(self, *command, **env):
        ended = ran(command, cwd=COPY, env={**ENV, **env})
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertNotRegex(ended.stdout, "PASS|FAIL")
        return ended.stdout

    def test_newer_kernel(self):
        package = "linux-image-6.12-amd64"
        if ran(["apt-cache", "show", package]).returncode:
            self.skipTest(f"no package {package} here")
        command = ["learn/show/show.py", "newer", "05_gather_write", *BLOCKS]
        self.assertIn("in a browser", self.make(*command, KERNEL=package))
        page = self.page("newer")
        self.says_what_was("newer", page, by_side(read(f"{COPY}/results/show/newer/printed.txt")))
        self.assertNotIn("Not seen", page["notes"])

    def test_one_host(self):
        """On a machine that has an RDMA device, which a VM is here: as an ordinary user, and as root; no probe is left."""
        for name, sample in (("user", "03_read"), ("root", "05_gather_write")):  # slow in there
            self.make("make", "-s", "-C", sample)
            os.makedirs(f"{COPY}/results/show/{name}", exist_ok=True)
        self.make("chmod", "-R", "a+w", "results")
        show = "env TESTENV=native HOSTS=1 {}python3 -B learn/show/show.py"
        user = show.format("setpriv --reuid=65534 --regid=65534 --clear-groups ") + " user 03_read"
        root = " ".join([show.format(""), "root", "05_gather_write", *BLOCKS])
        left = "cd /sys/kernel/tracing && cat kprobe_events && ls instances && echo nothing more"
        inside = ["bash", "-c", f"{user} && {root} && {left}"]
        said = self.make("testenv/testenv.sh", "run", *inside)
        self.assertRegex(said, r"printed: \S+\nnothing more\n")
        page = self.page("user")
        self.assertIn("The packets were not seen", page["packets"])
        self.assertIn("1 posted, 0 outstanding, 1 completed", page["client"]["sq"])
        for side in SIDES:
            self.assertIn(f"Not seen at the {side}", page["notes"])
            self.assertIn("was not seen", page[side]["nic"])
            self.assertIn("PASS", page[side]["badge"])
        page = self.page("root")
        self.assertIn("one host with one clock", page["notes"])
        self.assertIn("has read 500 bytes", page["client"]["nic"])
        self.assertIn("written 500.", page["server"]["nic"])
        sends = [row for row in page["rows"] if "sends: " in row]
        self.assertEqual(len(sends), 2)
