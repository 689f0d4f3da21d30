# SPDX-License-Identifier: BSD-2-Clause
"""Reads what the parts of a hand-in are worth (rubric.txt), and what grade-program found of its program."""
import json
import os
from collections import namedtuple
from contextlib import suppress

from collect import ROOT, begins
from expected import SAMPLES, plan

RESULTS = os.environ.get("RESULTS", f"{ROOT}/results/programs.jsonl")
PARTS = {
    "text": (*SAMPLES, "measured", "complete", "figures", "chosen", "own"),
    "program": ("builds", "sgl", "copy", "each", "itself", "verifies", "careful"),
}
# Of the runs (text) or the program: points of how many, and why there are not all.
Part = namedtuple("Part", "group name got most why")
# text, program: the points of each part; shares: of text, program and answers in the total.
Rubric = namedtuple("Rubric", "text program shares sizes")


def read_rubric(path=f"{ROOT}/teach/rubric.txt"):
    points, shares, sizes = {"text": {}, "program": {}}, {}, ""
    with open(path, encoding="utf-8") as file:
        lines = [line.split() for line in file if line.strip() and line[0] != "#"]
    for name, *values in lines:
        if name == "total":
            shares = {group: int(share) for group, share in (value.split("=") for value in values)}
            continue
        (value,) = values
        if name == "sizes":
            sizes = value
            plan(sizes, 17)  # or they can't be measured
            continue
        group = next((group for group in PARTS if name in PARTS[group]), None)
        if not group:
            raise ValueError(f"{path}: there is no part {name}")
        points[group][name] = int(value)
    return Rubric(*points.values(), shares, sizes)


def known():
    """The rows of earlier runs, in their order; what was written half is left out."""
    rows = []
    for line in begins(RESULTS, 1 << 28).decode("utf-8", "replace").splitlines():
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows
