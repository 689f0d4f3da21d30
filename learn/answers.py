#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The student's answers: a file of text with a mark above each, which make handin takes along.

    answers.py [FILE]        makes the file (answers.txt), or says which answers it lacks
    answers.py plain FILE    prints it as UTF-8, whatever an editor has made of it
    answers.py count [FILE]  prints how many of the answers it has; exits with 1 if not all of them

A mark is a line such as "## step 7" or "## question 02.1". Lines that begin with ">" repeat what is
asked. Who has written the answers without marks loses nothing: a person reads them."""
import os
import re
import sys
import tempfile
from functools import lru_cache

import handout
from words import TABLES, language, say, wrapped, writing

FILE = "answers.txt"
MARK = re.compile(
    r"(?im)^[ \t]*[#＃]+[ \t]*(step|question|explain)[ \t]*(\d{1,2})(?:[.．](\d{1,2}))?(?!\d).*$"
)
FIELD = re.compile(r"(?im)^[ \t]*(prediction|seen|reason|answer)\b[^:：\n]{0,20}[:：]")


def decoded(data):
    """Bytes of an editor as text: UTF-8, UTF-16 with its mark, or what Chinese Windows writes (GBK, GB18030)."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            pass
    return data.decode("utf-8", "replace")


def read(path):
    """The text with \\n alone; nothing if there is no such file."""
    if not os.path.exists(path):
        return ""
    with open(path, "rb") as file:
        return decoded(file.read()).replace("\r\n", "\n").replace("\r", "\n")


def write(path, text):
    """All of it or nothing, whatever ends this program."""
    path = os.path.realpath(path)
    number, new = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".answers")
    try:
        with os.fdopen(number, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.chmod(new, os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o644)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def mark_of(found):
    """step 7, question 02.1, explain 3: however it was written."""
    word, number, part = found[1].lower(), int(found[2]), found[3]
    return f"{word} {number:02}.{int(part)}" if part else f"{word} {number}"


def entries(text):
    """{mark: the text behind it, up to the next one}; of two alike both texts."""
    found, marks = {}, list(MARK.finditer(text))
    for here, after in zip(marks, marks[1:] + [None]):
        name = mark_of(here)
        found[name] = found.get(name, "") + text[here.end() : after.start() if after else len(text)]
    return found


def is_answered(entry):
    """Every field is filled in. Who has removed all of them has written something; who has removed one of
    prediction, seen and reason has not answered that."""
    said = re.sub(r"(?m)^[ \t]*[>＞].*$", "", entry)
    fields = FIELD.split(said)
    if len(fields) == 1:
        return bool(said.strip())
    there = {name.lower(): text.strip() for name, text in zip(fields[1::2], fields[2::2])}
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
    given = {"number": most - len(missing), "most": most, "which": listed(missing)}
    return TABLES[chosen]["unanswered"].format(**given) if missing else ""


def listed(marks):
    """step 1-3, 7; lab 02 question 2; explain 4"""
    groups = {}  # by what stands before the number: lists of numbers that follow each other
    for mark in marks:
        kind, number = re.fullmatch(
            r"(.*\D)(\d+)", re.sub(r"question (\d+)\.", r"lab \1 question ", mark)
        ).groups()
        runs = groups.setdefault(kind, [])
        if runs and runs[-1][-1] == int(number) - 1:
            runs[-1].append(int(number))
        else:
            runs.append([int(number)])
    return "; ".join(
        kind + ", ".join(f"{run[0]}-{run[-1]}" if run[1:] else f"{run[0]}" for run in runs)
        for kind, runs in groups.items()
    )


def step_entry(step, prediction="", seen="", reason=""):
    fields = (
        (say("field prediction"), prediction),
        (say("field seen"), seen),
        (say("field reason"), reason),
    )
    question = step.question[0].upper() + step.question[1:]
    return "\n".join(
        [
            f"## step {step.number}: {step.name}",
            wrapped(question, "> "),
            *(f"{name} {text}".rstrip() for name, text in fields),
            "",
            "",
        ]
    )


def template():
    parts = [say("answers head") + "\n\n"]
    parts += [
        step_entry(step) for number, step in handout.steps().items() if number in handout.ASKED
    ]
    parts += [
        f"## {mark}\n{wrapped(words, '> ')}\n{say('field answer')}\n\n"
        for mark, words in handout.questions()
    ]
    return "".join(parts)


def record(path, step, prediction, seen, reason):
    """Writes a step's answer. Returns whether there was one before."""
    text = read(path) or template()
    entry = step_entry(step, prediction, seen, reason)
    for here in MARK.finditer(text):
        if mark_of(here) == f"step {step.number}":
            after = MARK.search(text, here.end())
            end = after.start() if after else len(text)
            old = re.sub(r"(?m)^[ \t]*[>＞].*$", "", text[here.end() : end])
            write(path, text[: here.start()] + entry + text[end:])
            return any(part.strip() for part in FIELD.split(old)[2::2])
    write(path, text.rstrip("\n") + "\n\n" + entry)
    return False


def main(arguments):
    if arguments[:1] == ["plain"] and len(arguments) == 2:
        sys.stdout.buffer.write((read(arguments[1]).rstrip("\n") + "\n").encode("utf-8", "replace"))
        return 0
    if arguments[:1] == ["count"] and len(arguments) <= 2:
        words, whole = count(read((arguments[1:] + [FILE])[0]))
        print(words)
        return 0 if whole else 1
    if len(arguments) > 1:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    path = (arguments + [FILE])[0]
    if not os.path.exists(path):
        write(path, template())
        print(say("answers made", path=path))
    text = read(path)
    print(
        f"{path}: {remark(text, language()) or say('answers complete', most=unanswered(text)[1])}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(writing(main, sys.argv[1:]))
