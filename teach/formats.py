# SPDX-License-Identifier: BSD-2-Clause
"""One student's result as learning platforms take it. Described in: Autolab's Guide for Lab Authors; Gradescope's
Autograder Specifications; PrairieLearn's External Grading; Classroom 50's schemas/result-v1.schema.json."""
import json
import os
import pathlib
import time

from reader import Part


def scaled(h, shares):
    """The parts with their shares of 100. You give the answers' share. Runs count only beside a program."""
    parts = h.parts
    if not h.row:
        why = "the runs count only beside a program that was graded"
        parts = [part._replace(why=part.why or why) for part in h.parts]
        parts.append(Part("program", "builds", 0, 1, "no program was graded"))
    for group, name, _, most, why in parts:
        points = shares[group] * most / max(sum(p.most for p in parts if p.group == group), 1)
        got = 0 if why else points
        if most:
            yield Part(group, f"{group}: {name}", round(got, 3), round(points, 3), why)


def words_of(h, metadata="/autograder/submission_metadata.json"):
    """metadata: where Gradescope says who handed it in, and when."""
    seed = h.row["seed"] if h.row else "none"
    words = [f"student {h.student or 'unknown'}, SEED={seed}", h.refused, *h.remarks]
    if os.path.exists(metadata):
        known = json.loads(pathlib.Path(metadata).read_text(encoding="utf-8"))
        users = ", ".join(user["name"] for user in known["users"])
        words.append(f"handed in at {known['created_at']} by {users}")
    return "\n".join(filter(None, words))


def autolab(tests, _):
    """Its problems are text and program."""
    marks = {t.name: {"passed": False, "hint": t.why} if t.why else {"passed": True} for t in tests}
    groups = {t.group for t in tests}
    scores = {group: round(sum(t.got for t in tests if t.group == group), 2) for group in groups}
    shown = {"_presentation": "semantic", "stages": ["parts"], "parts": marks}
    return f"{json.dumps(shown)}\n{json.dumps({'scores': scores})}"


def gradescope(tests, h):
    cases = [dict(zip(("name", "score", "max_score", "output"), t[1:])) for t in tests]
    for case in cases:
        case["status"] = "failed" if case["output"] else "passed"
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
        case = {"test-name": t.name, "output": t.why, "passed": not t.why}
        said["tests"].append({**case, **points})
        for name, value in points.items():
            said[name] += value
    for name in ("classroom", "assignment", "assignment_type", "owner"):
        said[name] = os.environ.get(name.upper(), "")
    for name in ("SUBMISSION_TAG", "COMMIT_URL", "RELEASE_URL", "REVIEW_URL"):
        said[name.lower().split("_")[0]] = os.environ.get(name, "")
    return json.dumps(said)


FORMATS = {form.__name__: form for form in (autolab, gradescope, classroom50, prairielearn)}


def result(form, shares, h):
    return FORMATS[form](list(scaled(h, shares)), h)
