# SPDX-License-Identifier: BSD-2-Clause
"""What make break, answers, starter and show say, in the reader's language: the sentences are in words.json.
LAB_LANG=zh, or LANG=zh_…, chooses it."""
import errno
import json
import os
import re
import sys
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
with open(f"{HERE}/words.json", encoding="utf-8") as sentences:
    TABLES = json.load(sentences)
with open(f"{HERE}/show/words.json", encoding="utf-8") as sentences:
    STATUSES = json.load(sentences)["en"]["status"]  # of a completion: what ibv_wc_status_str says


def language():
    """en or zh"""
    names = (os.environ.get(name) for name in ("LAB_LANG", "LC_ALL", "LC_MESSAGES", "LANG"))
    return "zh" if next(filter(None, names), "").lower().startswith("zh") else "en"


def wrapped(text, lead=""):
    """A paragraph in lines, each with lead in front."""
    return "\n".join(lead + line.rstrip() for line in folded(text, 100 - len(lead)))


def columns(text):
    """A Chinese character takes two columns of a terminal."""
    return len(text) + sum(unicodedata.east_asian_width(each) in "WF" for each in text)


def padded(text, width):
    return text + " " * (width - columns(text))


def folded(text, width):
    """In lines of so many columns, which put together are the text. It is broken at blanks, and between Chinese
    characters; no line begins with a full stop or ends with an opening bracket."""
    lines = [""]
    for piece in re.findall("[（“]*(?:[!-~]+|[^!-~（“ ])[，。；：、）”]* *", text):
        if columns((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return lines


def writing(main, *arguments):
    """Calls main. What cannot be written is told in a sentence."""
    try:
        return main(*arguments)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
            raise
        return sys.exit(say("no room", path=error.filename or os.getcwd(), reason=error.strerror))


def say(key, **values):
    """The sentence of that key, with values in it."""
    return TABLES[language()][key].format(**values)
