#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The student's answers: a text file with a mark above each, which make handin takes along.

    answers.py [FILE]        makes the file (answers.txt), or says which answers it lacks
    answers.py plain FILE    prints it
    answers.py count [FILE]  prints how many of the answers it has; exits with 1 if not all of them

A mark is a line such as "## step 7" or "## question 02.1". Lines that begin with ">" repeat what is
asked. Who has written the answers without marks loses nothing: a person reads them."""
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
    """All of it or nothing, whatever ends this program."""
    path = os.path.realpath(path)  # the file that a link names
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def entries(text):
    """{mark: the text behind it, up to the next one}"""
    parts = MARK.split(text)
    return dict(zip(parts[1::2], parts[2::2]))


def is_answered(entry):
    """Every field is filled in. Who has removed all of them has written something; who has removed one of
    prediction, seen and reason has not answered that."""
    fields = FIELD.split(ASKED.sub("", entry))
    if len(fields) == 1:
        return bool(fields[0].strip())
    there = dict(zip(fields[1::2], map(str.strip, fields[2::2])))
    return all(there.values()) and (
        "answer" in there or there.keys() >= {"prediction", "seen", "reason"}
    )


@lru_cache(None)
def wanted():
    """The marks of what is handed in."""
    return [f"step {n}" for n in handout.steps("en") if n in handout.ASKED] + [
        mark for mark, _ in handout.questions("en")
    ]


def unanswered(text):
    """(marks of the answers that are missing, how many are wanted); None for a text without marks."""
    found, marks = entries(text), wanted()
    if text.strip() and not found:
        return None, len(marks)
    return [mark for mark in marks if not is_answered(found.get(mark, ""))], len(marks)


def count(text):
    """(in words for the file that is handed in, whether all are there)"""
    missing, most = unanswered(text)
    if missing is None:
        return "answers without marks: not counted", False
    return f"{most - len(missing)} of {most} answers given", not missing


def remark(text, chosen="en"):
    """What is missing, if anything is: to a grader in English, to a student in the chosen language."""
    missing, most = unanswered(text)
    if missing is None:
        return TABLES[chosen]["no marks"]
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
    marks = [*MARK.finditer(text)]
    for here, after in zip(marks, marks[1:] + [None]):
        if here[1] == f"step {step.number}":
            end = after.start() if after else len(text)
            write(path, text[: here.start()] + new + text[end:])
            old = FIELD.split(ASKED.sub("", text[here.end() : end]))
            return any(part.strip() for part in old[2::2])
    write(path, text.rstrip("\n") + "\n\n" + new)
    return False


def main(arguments):
    command = arguments[0] if arguments[:1] in (["plain"], ["count"]) else ""
    path, *more = arguments[bool(command) :] or [FILE]
    if more:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    if not command and not os.path.exists(path):
        write(path, template())
        print(say("answers made", path=path))
    text = read(path)
    if command == "plain":
        print(text.rstrip("\n"))
        return 0
    if command == "count":
        words, whole = count(text)
        print(words)
        return 0 if whole else 1
    missing = remark(text, language()) or say("answers complete", most=unanswered(text)[1])
    print(f"{path}: {missing}")
    return 0


if __name__ == "__main__":
    sys.exit(writing(main, sys.argv[1:]))
