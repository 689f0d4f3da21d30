# SPDX-License-Identifier: BSD-2-Clause
"""The texts for students and instructors, and what stands in them; shared by the tests."""
import os
import re
import sys

from samples import ROOT

sys.path.append(os.path.join(ROOT, "learn"))
import handout  # noqa: E402, pylint: disable=wrong-import-position

# Fenced, or indented behind a blank line.
BLOCK = re.compile(
    r"(?m)^( *)```(.*)\n((?:.*\n)*?) *```$|(?<=\n\n)((?:    .*\n|\n(?=    ))+)(?=\n|\Z)"
)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)]+)\)")


def pages(language):
    """The handout, in the order in which one reads it."""
    ending = handout.ending(language)
    labs = [os.path.relpath(path, ROOT) for _, path in handout.labs(language)]
    return [f"labs{ending}", *labs, f"reference{ending}"]


def blocks(text):
    """[(line, language or None, lines)] of the blocks of commands and output."""
    found = []
    for block in BLOCK.finditer(text):
        fenced = block[3] is not None
        indent = len(block[1]) if fenced else 4
        lines = [line[indent:] for line in (block[3] if fenced else block[4]).splitlines()]
        line = text.count("\n", 0, block.start()) + 1
        found.append((line, block[2] if fenced else None, lines))
    return found


def without_blocks(text):
    return BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text)


def anchors(text):
    """What GitHub calls its headings in a link."""
    headings = re.findall(r"(?m)^#+ (.*)", without_blocks(text))
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
