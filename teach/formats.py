# SPDX-License-Identifier: BSD-2-Clause
"""One student's result as learning platforms take it. Described in: Autolab's Guide for Lab Authors; Gradescope's
Autograder Specifications."""
import json

from rubric import Part


def scaled(h, shares):
    """The parts with their shares of 100. You give the answers' share. Runs count only beside a program."""
    parts = h.parts
    if not h.row:
        why = "the runs count only beside a program that was graded"
        parts = [part._replace(got=0, why=part.why or why) for part in h.parts]
        parts.append(Part("program", "builds", 0, 1, "no program was graded"))
    for group, name, got, most, why in parts:
        if most:
            one = shares[group] / sum(p.most for p in parts if p.group == group)
            yield Part(group, f"{group}: {name}", round(got * one, 3), round(most * one, 3), why)


def autolab(tests, _):
    """The last lines of what is printed. Its problems are text and program."""
    marks = {t.name: {"passed": False, "hint": t.why} if t.why else {"passed": True} for t in tests}
    groups = {t.group for t in tests}
    scores = {group: round(sum(t.got for t in tests if t.group == group), 2) for group in groups}
    shown = {"_presentation": "semantic", "stages": ["parts"], "parts": marks}
    return f"{json.dumps(shown)}\n{json.dumps({'scores': scores})}"


def gradescope(tests, h):
    cases = [
        {"name": t.name, "score": t.got, "max_score": t.most, "output": t.why}
        | {"status": "failed" if t.why else "passed"}
        for t in tests
    ]
    words = [f"student {h.student or 'unknown'}", h.refused, *h.remarks]
    if h.row:
        words.append(f"SEED={h.row['seed']}")
    return json.dumps({"output": "\n".join(filter(None, words)), "tests": cases})


FORMATS = {form.__name__: form for form in (autolab, gradescope)}
