# SPDX-License-Identifier: BSD-2-Clause
"""make cheatsheet prints what libibverbs' header and manual pages say."""
import gzip
import importlib
import os
import re
import unittest

import api
from samples import PROGRAM, ROOT, ran, unwritten
from texts import handout

words = importlib.import_module("words")  # of learn/

MAN = "/usr/share/man/man3/{}.3.gz"
TYPES = ("RC", "UC", "UD")


def printed(language="en"):
    return ran(["make", "-s", "cheatsheet", f"LAB_LANG={language}"], cwd=ROOT, check=True).stdout


def table(heading):
    """The rows of the table below the line that begins with heading: lists of cells."""
    lines = printed().split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith(heading))
    first += next(i for i, line in enumerate(lines[first:]) if line.startswith("|"))
    rows = []
    for line in lines[first + 1 :]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line[1:-1].split("|")])
    raise ValueError(heading)


def header():
    with open("/usr/include/infiniband/verbs.h", encoding="utf-8") as file:
        return file.read()


def manual(page):
    with gzip.open(MAN.format(page), "rt", encoding="utf-8") as file:
        return re.sub(r"\\fB|\\fR|\\s-?1|\\", "", file.read())


@unittest.skipUnless(os.path.exists(MAN.format("ibv_modify_qp")), "the manual pages are not here")
class Sheet(unittest.TestCase):
    def test_statuses(self):
        names = re.findall(
            r"\bIBV_WC_(\w+),",
            re.search(r"enum ibv_wc_status {(.*?)}", header(), re.DOTALL).group(1),
        )
        rows = table("Completion statuses")
        for number, name, *_ in rows:
            self.assertEqual(names[int(number)], name)
        seen = {
            number
            for step in handout.steps("en").values()
            for number in re.findall(r"\(status (\d+)\)", step.outcome)
        }
        self.assertGreater(len(seen), 7)
        self.assertLessEqual(seen, {row[0] for row in rows})

    def test_transitions(self):
        text = manual("ibv_modify_qp")
        for kind in TYPES:
            part = text[text.index(f"For QP Transport Service Type  IBV_QPT_{kind}") :]
            part = part[: part.index(".PP")]
            state, theirs, ours = None, {}, {}
            for begins, name in re.findall(r"(?m)^(Init|RTR|RTS)|IBV_QP_(\w+)", part):
                state = begins.upper() or state
                theirs.setdefault(state, set()).update([name] if name else [])
            for to, types, mask in table("State transitions"):
                state = to or state
                if types == "all" or kind in types.split(", "):
                    ours.setdefault(state, set()).update(mask.split(", "))
            self.assertEqual(ours, theirs, kind)

    def test_operations(self):
        text = manual("ibv_post_send")
        columns = re.findall(r"IBV_QPT_(\w+)", re.search(r"OPCODE.*", text).group(0))
        newer = ("ATOMIC_WRITE", "FLUSH")  # ibv_wr_post(3) has them, this page not
        names = [row for row in table("Operations") if row[0].isupper() and row[0] not in newer]
        self.assertEqual(len(names), 6)
        for operation, *ours in names:
            for name in operation.split(", "):
                cells = re.search(rf"(?m)^IBV_WR_{name} *\|(.*)", text).group(1).split("|")
                theirs = {kind: "X" in cell for kind, cell in zip(columns, cells)}
                self.assertEqual(
                    [bool(cell) for cell in ours[:3]], [theirs[kind] for kind in TYPES], name
                )

    def test_limits_and_rights(self):
        limits = re.findall(r"\b(?:max|active|path|device)_\w+", str(table("Limits")))
        rights = re.findall(r"\b(?:LOCAL|REMOTE)_\w+", str(table("Rights")))
        self.assertTrue(limits and rights)
        for name in (*limits, *(f"IBV_ACCESS_{right}" for right in rights)):
            self.assertRegex(header(), rf"\b{name}\b")

    def test_print(self):
        """It lines up in a terminal, where a Chinese character takes two columns."""
        for language in ("en", "zh"):
            sheet = printed(language)
            first = sheet.lstrip().partition("\n")[0]
            self.assertEqual(bool(re.search("[\u4e00-\u9fff]", first)), language == "zh")
            self.assertNotRegex(sheet, r"[`*\[#]|^\|-")
            tables = re.findall(r"(?m)(?:^\|.*\n)+", sheet)
            self.assertEqual(len(tables), 5)
            for table_of_it in tables:
                widths = set(map(words.columns, table_of_it.splitlines()))
                self.assertEqual(len(widths), 1, table_of_it)
                self.assertLessEqual(max(widths), 112)


@unittest.skipIf(
    any(map(unwritten, PROGRAM)),
    "the page is drawn from the samples, some of which are starters here",
)
class OnePage(unittest.TestCase):
    """The API on one page is as the sources have it: tests/api.py write."""

    def test_tables(self):
        for ending in api.HEADS:
            self.assertEqual(
                api.parts(f"{ROOT}/reference{ending}")[1].strip(), api.table(ending).strip()
            )
