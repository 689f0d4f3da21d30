# SPDX-License-Identifier: BSD-2-Clause
"""What the handout asks: the steps of Break it, with their answers, and the questions.

They are found by their form, not by English words, so the handout in another language is read as well:
a step is a numbered item that begins with a patch's name. The last section that has steps holds
the answers. A lab's questions are the numbered items behind its last step."""
import os
import re
from collections import namedtuple

from words import language

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
Step = namedtuple("Step", "number name lab question outcome")
ITEM = re.compile(r"(?m)^(\d+)\. (.*(?:\n +\S.*)*)")
STEP = re.compile(r"`(\d\d-[a-z0-9-]+)`[:：]\s*")
LABS = ("01", "02", "03", "04")  # whose answers are handed in, beside the assignment's
LAST = 20  # the last step of these


def path():
    """labs.md, or what there is in the reader's language."""
    translated = os.path.join(ROOT, f"labs.{language()}.md")
    return translated if os.path.exists(translated) else os.path.join(ROOT, "labs.md")


def sections(file):
    """(heading, text) of each section, without the blocks of commands and output."""
    with open(file, encoding="utf-8-sig") as handout:
        text = re.sub(r"(?ms)^```.*?^```$", "", handout.read())
    return [part.partition("\n")[::2] for part in re.split(r"(?m)^## ", text)[1:]]


def items(text):
    """The numbered items of a text: number, words in one line, where it ends."""
    return [(int(found[1]), " ".join(found[2].split()), found.end()) for found in ITEM.finditer(text)]


def steps_in(text):
    """[(name, words, where it ends)]"""
    return [(found[1], words[found.end():], end) for _, words, end in items(text) if (found := STEP.match(words))]


def steps(file=None):
    """{number: Step}"""
    parts = [(heading[:2], steps_in(text)) for heading, text in sections(file or path())]
    *asked, answers = [part for part in parts if part[1]]
    outcome = {name: words for name, words, _ in answers[1]}
    return {int(name[:2]): Step(int(name[:2]), name, lab, words, outcome.get(name, ""))
            for lab, found in asked for name, words, _ in found}


def questions(file=None):
    """Those whose answers are handed in: of labs 01 to 04, and of the assignment's last part."""
    found = []
    for heading, text in sections(file or path()):
        steps_here = steps_in(text)
        if steps_here and heading[:2] in LABS:
            rest = re.split(r"(?m)^###", text[steps_here[-1][2]:])[0]
            found += [(f"question {heading[:2]}.{n}", words) for n, words, _ in items(rest)]
        elif any(name[:2] == "21" for name, _, _ in steps_here) and "\n### " in text:
            found += [(f"explain {n}", words) for n, words, _ in items(text.rpartition("\n### ")[2])]
    return found
