# SPDX-License-Identifier: BSD-2-Clause
"""One student's result as learning platforms take it. Described in: Autolab's Guide for Lab Authors; Gradescope's
Autograder Specifications; PrairieLearn's External Grading; Classroom 50's schemas/result-v1.schema.json."""
import json
import os
import time

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


def words_of(h):
    words = [f"student {h.student or 'unknown'}", h.refused, *h.remarks]
    if h.row:
        words.append(f"SEED={h.row['seed']}")
    return "\n".join(filter(None, words))


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
    return json.dumps({"output": words_of(h), "tests": cases})


def prairielearn(tests, h):
    cases = [dict(zip(("name", "points", "max_points", "output"), t[1:])) for t in tests]
    score = round(sum(t.got for t in tests) / max(sum(t.most for t in tests), 1), 6)
    return json.dumps({"score": score, "message": words_of(h), "tests": cases})


def classroom50(tests, _):
    """It takes whole numbers only, so tenths of a point. Its runner knows who and what is graded."""
    said = {"schema": "classroom50/result/v1", "score": 0, "max-score": 0, "tests": []}
    said["datetime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for t in tests:
        points = {"score": round(10 * t.got), "max-score": round(10 * t.most)}
        said["tests"].append({"test-name": t.name, "output": t.why, "passed": not t.why, **points})
        for name, value in points.items():
            said[name] += value
    for name in ("classroom", "assignment", "assignment_type", "owner"):
        said[name] = os.environ.get(name.upper(), "")
    for name in ("SUBMISSION_TAG", "COMMIT_URL", "RELEASE_URL", "REVIEW_URL"):
        said[name.lower().split("_")[0]] = os.environ.get(name, "")
    return json.dumps(said)


FORMATS = {form.__name__: form for form in (autolab, gradescope, classroom50, prairielearn)}
