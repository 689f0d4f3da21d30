#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The student's answers: a text file with a mark above each, which make handin takes along.

    answers.py [FILE]      makes the file (answers.txt), or says which answers it lacks
    answers.py count FILE  prints how many of the answers it has

A mark is a line such as "## step 7" or "## question 02.1". Lines that begin with ">" repeat what is
asked."""
import os
import re
import sys
from functools import lru_cache

import handout
from words import TABLES, language, say, wrapped, writing

FILE = "answers.txt"
MARK = re.compile(r"(?m)^## (step \d+|question \d+\.\d+|explain \d+)\b.*$")
FIELD = re.compile(r"(?m)^(prediction|seen|reason|answer)\b[^:：\n]*[:：]")
ASKED = re.compile(r"(?m)^>.*$")


def read(path):
    """The text; nothing if there is no such file."""
    if not os.path.exists(path):
        return ""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except UnicodeDecodeError:
        return sys.exit(say("not utf-8", path=path))


def write(path, text):
    """All of it or nothing."""
    path = os.path.realpath(path)  # the file that a link names
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def entries(text):
    """{mark: the text behind it, up to the next one}"""
    parts = MARK.split(text)
    return dict(zip(parts[1::2], parts[2::2]))


def is_answered(entry):
    """Every field is filled in, or there is something where all of them were."""
    fields = FIELD.split(ASKED.sub("", entry))
    return all(map(str.strip, fields[2::2] or fields))


@lru_cache(None)
def wanted():
    """The marks of what is handed in."""
    return [f"step {n}" for n in handout.steps("en") if n in handout.ASKED] + [
        mark for mark, _ in handout.questions("en")
    ]


def unanswered(text):
    """The marks of the answers that are missing, and how many are wanted."""
    found, marks = entries(text), wanted()
    return [mark for mark in marks if not is_answered(found.get(mark, ""))], len(marks)


def remark(text, chosen="en"):
    """What is missing, if anything is: to a grader in English, to a student in the chosen language."""
    missing, most = unanswered(text)
    given = {"number": most - len(missing), "most": most, "which": ", ".join(missing)}
    return TABLES[chosen]["unanswered"].format(**given) if missing else ""


def step_entry(step, prediction="", seen="", reason=""):
    fields = (("prediction", prediction), ("seen", seen), ("reason", reason))
    question = wrapped(step.question[0].upper() + step.question[1:], "> ")
    return f"## step {step.number}: {step.name}\n{question}\n" + "".join(
        f"{say(f'field {name}')} {text}".rstrip() + "\n" for name, text in fields
    )


def template():
    steps = [step for number, step in handout.steps().items() if number in handout.ASKED]
    entries_of = [step_entry(step) for step in steps] + [
        f"## {mark}\n{wrapped(words, '> ')}\n{say('field answer')}\n"
        for mark, words in handout.questions()
    ]
    return "\n".join([say("answers head") + "\n", *entries_of])


def record(path, step, prediction, seen, reason):
    """Writes a step's answer. Returns whether there was one before."""
    text = read(path) or template()
    new = step_entry(step, prediction, seen, reason) + "\n"
    old = re.search(rf"(?ms)^## step {step.number}\b.*?(?=^## |\Z)", text)
    if not old:
        write(path, text.rstrip("\n") + "\n\n" + new)
        return False
    write(path, text[: old.start()] + new + text[old.end() :])
    return any(map(str.strip, FIELD.split(ASKED.sub("", old[0]))[2::2]))


def main(arguments):
    path = arguments[-1] if arguments else FILE
    if arguments[:1] == ["count"]:
        missing, most = unanswered(read(path))
        print(f"{most - len(missing)} of {most} answers given")
        return
    if not os.path.exists(path):
        write(path, template())
        print(say("answers made", path=path))
    text = read(path)
    missing = remark(text, language()) or say("answers complete", most=unanswered(text)[1])
    print(f"{path}: {missing}")


if __name__ == "__main__":
    writing(main, sys.argv[1:])
