# SPDX-License-Identifier: BSD-2-Clause
"""What make check, hint, watch and progress say, from check_words.LANGUAGE.txt; en has all of it. "value X"
is what X is called in a sentence. What machines read (ok, not ok) never changes."""
import os

from words import language

HERE = os.path.dirname(os.path.abspath(__file__))


def table(wanted):
    with open(f"{HERE}/check_words.{wanted}.txt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").partition(" = ") for line in file if not line.startswith("#")]
    return {key: text for key, found, text in lines if found}


def say(key, **values):
    if not TABLES:
        TABLES.update(table("en") | table(language()))
    return TABLES[key].format(
        **{name: TABLES.get(f"value {value}", value) for name, value in values.items()}
    )


TABLES = {}
