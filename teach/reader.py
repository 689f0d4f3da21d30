# SPDX-License-Identifier: BSD-2-Clause
"""Reads the runs of a hand-in: what the samples and testenv/pair.sh print, and make handin the line behind it.
All else that a program prints is passed over. What the manifest does not vouch for is not read."""
import re

from expected import SAMPLES, layout_line, of_student

SIDE = re.compile("--- (server|client)(?: on [0-9.]+)?: ")


def read_run(h, part):
    """The lines of both sides, or why they don't count."""
    name = f"runs/{part}.txt"
    if why := "it was not run" if name not in h.digests else h.edited(name):
        h.wrong(part, why)
        return
    *lines, last, _ = ["", *h.read(name).split("\n")]
    heads = [i for i, line in enumerate(lines) if SIDE.match(line)]
    if last != "=== exit 0" or [SIDE.match(lines[i])[1] for i in heads] != ["server", "client"]:
        h.wrong(part, "it failed, or is no run of a server and a client", last)
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
        h.wrong(part, f"the {role}'s result is not that of student {h.student}", results[0])


def check(h):
    """All but the figures."""
    for part in (*SAMPLES, "measured"):
        read_run(h, part)
        for role in h.runs.get(part, ()):
            check_side(h, part, role, h.sample if part == "measured" else part)
    if why := h.edited("runs/machine.txt"):
        h.wrong("complete", why)
    if not h.end.startswith("runs complete ("):
        h.wrong("complete", "make handin was interrupted, or a run failed", h.end)
