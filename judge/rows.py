# SPDX-License-Identifier: BSD-2-Clause
"""A line of what make check says: of one part, whether it is right, and why it is not."""
from check_words import say
from memory import Wrong
from pair import undisturbed
from parts import LAST


def row_of(part, todo, why, says="", options="", memory=False):
    """says: what the program said; options: of the run that shows it; memory: it is an error with memory."""
    return {
        "part": part,
        "todo": todo,
        "right": not why,
        "why": why,
        "says": says,
        "options": options,
        "memory": memory,
    }


def why_unseen(unwritten, todo, wrong=""):
    """Why a part is not looked at; wrong: the part before it that is not right, if it needs that."""
    if str(todo) in unwritten:
        return say("not written", number=todo, what=unwritten[str(todo)])
    if todo == LAST and unwritten:
        return say("not reached", number=min(unwritten, key=int))
    return say("not after", part=wrong) if wrong else ""


def reason(rule, *arguments):
    """What it says is wrong."""
    try:
        return undisturbed(rule, *arguments) or ""
    except (IndexError, KeyError, OSError) as why:  # the program did less than anybody thought of
        return say("nothing seen", reason=repr(why))
    except Wrong as why:
        return str(why)
