# SPDX-License-Identifier: BSD-2-Clause
"""What the handout asks: the steps of Break it, with their answers, and the questions.

They are found by their form, not by English words, so the handout in another language is read as well. A
lab is the README of its sample's directory: a step is a numbered item that begins with a patch's name, the
numbered items behind the last step are questions, and what is folded (<details>) holds the answers. The
last numbered list of labs.md are the assignment's questions."""
import glob
import os
import re
from collections import namedtuple

from words import language

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
Step = namedtuple("Step", "number name lab question outcome")
ITEM = re.compile(r"(?m)^(\d+)\. (.*(?:\n +\S.*)*)")
STEP = re.compile(r"`(\d\d-[a-z0-9-]+)`[:：]\s*")
LABS = ("01", "02", "03", "04")  # whose questions are answered, beside the assignment's
ASKED = (1, 3, 5, 8, 9, 14, 16, 18)  # the steps whose answers are handed in


def ending(chosen=None):
    """Of the handout's files (None: in the reader's language)."""
    return ".zh.md" if (chosen or language()) == "zh" else ".md"


def labs(chosen=None):
    """[(number, file)] of the labs."""
    return [
        (os.path.basename(os.path.dirname(path))[:2], path)
        for path in sorted(glob.glob(f"{ROOT}/[0-9][0-9]_*/README{ending(chosen)}"))
    ]


def prose(file):
    """A page without its blocks of commands and output."""
    with open(file, encoding="utf-8-sig") as page:
        return re.sub(r"(?ms)^```.*?^```$", "", page.read())


def items(text):
    """The numbered items of a text: number, words in one line, where it ends."""
    return [
        (int(found[1]), " ".join(found[2].split()), found.end()) for found in ITEM.finditer(text)
    ]


def steps_in(text):
    """[(name, words, where it ends)]"""
    return [
        (found[1], words[found.end() :], end)
        for _, words, end in items(text)
        if (found := STEP.match(words))
    ]


def steps(chosen=None):
    """{number: Step}"""
    found = {}
    for lab, file in labs(chosen):
        asked, _, folded = prose(file).partition("<details>")
        answers = {name: words for name, words, _ in steps_in(folded)}
        for name, words, _ in steps_in(asked):
            found[int(name[:2])] = Step(int(name[:2]), name, lab, words, answers.get(name, ""))
    return dict(sorted(found.items()))


def questions(chosen=None):
    """Those whose answers are handed in: of labs 01 to 04, and the assignment's."""
    found = []
    for lab, file in labs(chosen):
        if lab in LABS:
            asked = prose(file).partition("<details>")[0]
            behind = asked[steps_in(asked)[-1][2] :]
            found += [(f"question {lab}.{n}", words) for n, words, _ in items(behind)]
    listed = items(prose(f"{ROOT}/labs{ending(chosen)}"))
    first = max(i for i, (n, _, _) in enumerate(listed) if n == 1)
    return found + [(f"explain {n}", words) for n, words, _ in listed[first:]]
