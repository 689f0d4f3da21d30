# SPDX-License-Identifier: BSD-2-Clause
"""One student's result as learning platforms take it. Described in: Autolab's Guide for Lab Authors; Gradescope's
Autograder Specifications; PrairieLearn's External Grading; Classroom 50's schemas/result-v1.schema.json."""
import json
import os
import pathlib
import time
from collections import namedtuple

FORMATS = ("autolab", "gradescope", "classroom50", "prairielearn")
Test = namedtuple("Test", "group name got most why")


def tests_of(h, rubric, whole):
    """The text with the rubric's points; or text and program with their shares of 100. You give the answers' share."""
    if not whole:
        return [
            Test(part, part, got, rubric.points[part], "\n".join(h.why[part]))
            for part, got in h.points.items()
        ]
    row = h.row or {
        "of": {"builds": 1},
        "points": {},
        "why": {"builds": "no program was found that can be graded"},
    }
    alone = "" if h.row else "the text counts only beside a program that was graded"
    parts = [
        ("text", part, most, "\n".join(h.why[part]) or alone)
        for part, most in rubric.points.items()
        if most
    ]
    parts += [
        (
            "program",
            part,
            int(most),
            row["why"].get(part)
            or ("" if row["points"].get(part) else "not graded, as it needs builds"),
        )
        for part, most in row["of"].items()
        if int(most)
    ]
    scale = {
        group: rubric.shares[group] / sum(part[2] for part in parts if part[0] == group)
        for group, *_ in parts
    }
    return [
        Test(
            group,
            f"{group}: {part}",
            0 if why else round(most * scale[group], 3),
            round(most * scale[group], 3),
            why,
        )
        for group, part, most, why in parts
    ]


def result(form, tests, h, metadata="/autograder/submission_metadata.json"):
    """The text of such a file. metadata: where Gradescope says who handed it in, and when."""
    words = [
        f"student {h.student or 'unknown'}, SEED={h.row['seed'] if h.row else 'none'}",
        h.refused,
        *h.remarks,
    ]
    if os.path.exists(metadata):
        known = json.loads(pathlib.Path(metadata).read_text(encoding="utf-8"))
        words.append(
            f"handed in at {known['created_at']} by "
            + ", ".join(user["name"] for user in known["users"])
        )
    words = "\n".join(filter(None, words))
    whole = 10 if form == "classroom50" else 1  # it takes whole numbers only, so tenths of a point
    name, got, most = {
        "classroom50": ("test-name", "score", "max-score"),
        "prairielearn": ("name", "points", "max_points"),
    }.get(form, ("name", "score", "max_score"))
    cases = [
        {name: t.name, got: t.got * whole, most: t.most * whole, "output": t.why} for t in tests
    ]
    if form == "autolab":  # its problems: text and program; or the parts, of a text alone
        marks = {
            t.name: {"passed": not t.why, "hint": t.why} if t.why else {"passed": True}
            for t in tests
        }
        scores = {
            t.group: round(sum(other.got for other in tests if other.group == t.group), 2)
            for t in tests
        }
        return (
            json.dumps({"_presentation": "semantic", "stages": ["parts"], "parts": marks})
            + "\n"
            + json.dumps({"scores": scores})
        )
    if form == "gradescope":
        said = {
            "output": words,
            "tests": [
                {**case, "status": "failed" if case["output"] else "passed"} for case in cases
            ],
        }
    elif form == "prairielearn":
        said = {
            "score": round(sum(t.got for t in tests) / max(sum(t.most for t in tests), 1), 6),
            "message": words,
            "tests": cases,
        }
    else:  # the runner knows who and what is graded
        cases = [
            {**case, got: round(case[got]), most: round(case[most]), "passed": not case["output"]}
            for case in cases
        ]
        said = {
            "schema": "classroom50/result/v1",
            "tests": cases,
            "datetime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            got: sum(case[got] for case in cases),
            most: sum(case[most] for case in cases),
        }
        for key in (
            "CLASSROOM",
            "ASSIGNMENT",
            "ASSIGNMENT_TYPE",
            "OWNER",
            "SUBMISSION_TAG",
            "COMMIT_URL",
            "RELEASE_URL",
            "REVIEW_URL",
        ):
            said[key.lower().replace("_tag", "").replace("_url", "")] = os.environ.get(key, "")
    return json.dumps(said)
