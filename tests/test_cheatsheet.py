# SPDX-License-Identifier: BSD-2-Clause
"""make cheatsheet, and the API on one page."""
import importlib
import re
import unittest

import api
from samples import PROGRAM, ROOT, ran, read, unwritten
from texts import handout

words = importlib.import_module("words")  # of learn/


def printed(language="en"):
    return ran(["make", "-s", "cheatsheet", f"LAB_LANG={language}"], check=True).stdout


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


class Sheet(unittest.TestCase):
    def test_statuses(self):
        header = read("/usr/include/infiniband/verbs.h")
        names = re.findall(
            r"IBV_WC_(\w+),", re.search(r"(?s)enum ibv_wc_status {(.*?)}", header)[1]
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
