# SPDX-License-Identifier: BSD-2-Clause
"""Reads the runs of a hand-in: what the samples and testenv/pair.sh print, and make handin the line behind it.
All else that a program prints is passed over. What the manifest does not vouch for is not read."""
import re
from collections import namedtuple

from expected import SAMPLES, layout_line, of_student

REASONS = 3  # kept of each part
PARTS = (*SAMPLES, "measured", "complete", "figures", "chosen", "own", "answers")
# Of runs (text) or program: points of how many, and why there are not all.
Part = namedtuple("Part", "group name got most why")
SIDE = re.compile("--- (server|client)(?: on [0-9.]+)?: ")
# What is shown of strangers' names and lines: ASCII, Latin and Chinese, nothing that a terminal obeys.
HIDDEN = re.compile(
    "[^ -~\u00b7\u00c0-\u024f\u3001-\u3011\u3400-\u9fff\uff01-\uff5e\U00020000-\U000323af]"
)


def printable(text, width):
    """With ? for what is hidden, cut at width."""
    return HIDDEN.sub("?", text if len(text) <= width else text[: width - 3] + "...")


class Handin:
    """A student's hand-in, and what is found to be wrong with it. It came as this submission (collect)."""

    def __init__(self, submission):
        self.from_, self.file = submission, printable(submission.name, 200)
        self.student, self.lab = submission.student, int(submission.lab)
        self.remarks = [printable(remark, 200) for remark in submission.remarks]
        self.refused, self.runs = submission.refused, {}  # runs, by part: the lines of each side
        self.reasons, self.parts = {}, []  # by part: all that is wrong; see settle in grade.py
        self.row, self.counts = None, True  # what grade-program found; is it the student's latest?

    def wrong(self, part, words, line=None):
        """line shows it. Of more reasons than are kept only the number is."""
        reasons = self.reasons.setdefault(part, [])
        shown = "" if line is None else f"\n     the line: {printable(line, 99)}"
        reasons.append(words + shown if len(reasons) < REASONS else "")

    def lines(self, part):
        return [line for side in self.runs.get(part, {}).values() for line in side]


def read_run(h, part):
    """The lines of both sides, or why they don't count."""
    name = f"runs/{part}.txt"
    if why := "it was not run" if name not in h.from_.digests else h.from_.edited(name):
        h.wrong(part, why)
        return
    *lines, last, _ = ["", *h.from_.read(name).split("\n")]
    if last != "=== exit 0":
        h.wrong(part, "it failed" if last[:9] == "=== exit " else "it has no end", last)
        return
    heads = [i for i, line in enumerate(lines) if SIDE.match(line)]
    if [SIDE.match(lines[i])[1] for i in heads] != ["server", "client"]:
        h.wrong(part, f"there are {len(heads)} sides, not a server and then a client")
        return
    server, client = heads
    h.runs[part] = {"server": lines[server + 1 : client], "client": lines[client + 1 :]}


def check_side(h, part, role, sample):
    """One side's LAYOUT, if it has one, and its RESULT, which is its last line."""
    length, digest = of_student(h.student).message[part]
    right = f"RESULT sample={sample} role={role} status=PASS bytes={length} digest={digest:016x}"
    lines = h.runs[part][role]
    layouts, results = (
        [line for line in lines if re.match(rf"{word} \w+=", line)] for word in ("LAYOUT", "RESULT")
    )
    if part not in SAMPLES[:4] and layouts != [layout_line(h.student)]:
        h.wrong(part, f"the {role}'s layout is not student {h.student}'s", "".join(layouts))
    if len(results) != 1 or lines[-1] != results[0]:
        h.wrong(part, f"the {role} has {len(results)} RESULT lines, not one at its end")
    elif results[0] != right:
        passed = "status=PASS" in results[0]
        words = f"result is not that of student {h.student}" if passed else "part did not pass"
        h.wrong(part, f"the {role}'s {words}", results[0])


def check(h):
    """All but the figures."""
    for part in PARTS[:8]:
        read_run(h, part)
        for role in h.runs.get(part, ()):
            check_side(h, part, role, part if part in SAMPLES else SAMPLES[h.lab - 1])
    if why := h.from_.edited("runs/machine.txt"):
        h.wrong("complete", why)
    if h.from_.end.split(" (")[0] not in ("complete", "runs complete"):
        h.wrong("complete", f"its manifest ends with: {printable(h.from_.end, 60)}")
