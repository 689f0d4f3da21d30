# SPDX-License-Identifier: BSD-2-Clause
"""What make check, hint, watch and progress say, from check_words.LANGUAGE.txt; en has all of it. "value X"
is what X is called in a sentence. What machines read (ok, not ok) never changes."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(HERE), "learn"))
from words import language  # noqa: E402  pylint: disable=wrong-import-position


def table(wanted):
    with open(f"{HERE}/check_words.{wanted}.txt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").partition(" = ") for line in file if not line.startswith("#")]
    return {key: text for key, found, text in lines if found}


def say(key, **values):
    return tables()[key].format(**{name: called(value) for name, value in values.items()})


def called(value):
    """What a sentence calls it: a role, an object, a part of a program."""
    return tables().get(f"value {value}", value)


def tables():
    if not TABLES:
        TABLES.update(table("en") | table(language()))
    return TABLES


TABLES = {}
