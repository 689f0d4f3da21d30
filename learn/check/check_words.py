# SPDX-License-Identifier: BSD-2-Clause
"""What make check, hint, watch and progress say, from check_words.LANGUAGE.txt; en has all of it. "value X"
is what X is called in a sentence. What machines read (ok, not ok) never changes."""
import os

HERE = os.path.dirname(os.path.abspath(__file__))


def table(language):
    path = f"{HERE}/check_words.{language}.txt"
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n").partition(" = ") for line in file if not line.startswith("#")]
    return {key: text for key, found, text in lines if found}


def say(key, **values):
    names = (os.environ.get(name) for name in ("LAB_LANG", "LC_ALL", "LC_MESSAGES", "LANG"))
    wanted = next(filter(None, names), "en").lower()[:2]
    if "en" not in TABLES:
        TABLES["en"] = table("en")
    if wanted not in TABLES:
        TABLES[wanted] = table(wanted)
    words = TABLES[wanted]
    values = {name: words.get(f"value {value}", value) for name, value in values.items()}
    return (words.get(key) or TABLES["en"][key]).format(**values)


TABLES = {}
