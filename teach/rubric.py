# SPDX-License-Identifier: BSD-2-Clause
"""Reads what the parts of a hand-in are worth (rubric.txt), and what grade-program found of its program."""
import configparser
import json
import os
from collections import namedtuple
from contextlib import suppress

from collect import begins
from expected import ROOT, SAMPLES, plan

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
    file = configparser.ConfigParser()
    try:
        file.read(path, "utf-8")
        sections = [file[group].items() for group in ("text", "program", "total")]
        sizes = file["measured"]["sizes"]
    except (configparser.Error, KeyError) as error:
        raise ValueError(f"{path}: {error}") from error
    plan(sizes, 17)  # or they can't be measured
    points = [{name: int(value) for name, value in section} for section in sections]
    for group, worth in zip(PARTS, points):
        if odd := worth.keys() - PARTS[group]:
            raise ValueError(f"{path}: there is no part {', '.join(odd)}")
    return Rubric(*points, sizes)


def known():
    """The rows of earlier runs, in their order; what was written half is left out."""
    rows = []
    for line in begins(RESULTS, 1 << 28).decode("utf-8", "replace").splitlines():
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows
