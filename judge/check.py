#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Says within seconds which parts of a lab's program are right, and of the first that is not, why.

    check.py check LAB [DIR]    a line for each part; status 0 only if all are right
    check.py hint LAB [DIR]     a hint for the first part that is not; asked again, a plainer one
    check.py watch LAB [DIR]    checks after each change, until Ctrl-C
    check.py progress           all labs: how many parts were right at the last check

DIR is my05 (for LAB=05) where there is one, else the sample's directory. The program is built here and run in
the VM, against the sample: judge.py. What was found is kept in results/check.json.
"""
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(HERE), "learn"))
# pylint: disable=wrong-import-position
import starter  # noqa: E402
import build  # noqa: E402
from check_words import called, say  # noqa: E402
from assignment import PARTS  # noqa: E402
from blocks import PIECES  # noqa: E402
from labs import LABS  # noqa: E402
from parts import LAST  # noqa: E402
from rows import row_of, why_unseen  # noqa: E402
from trace import BLOCKS, LABS as NUMBERS  # noqa: E402
from words import language, padded, writing  # noqa: E402

ROOT = starter.ROOT
STATE = os.environ.get("CHECK_STATE", f"{ROOT}/results/check.json")
# Python's own modules stand compiled beside their sources, ours in COMPILED: to compile them in the VM takes a second.
PYTHONS = "collections, contextlib, ctypes, json, re, resource, selectors, shutil, socket, struct, subprocess, sys"
JUDGE = """
sys.path.insert(0, sys.argv[1])
sys.pycache_prefix = sys.argv[2]
import judge
judge.main(sys.argv[3])
"""
CPU = "max,-erms,-fsrm"  # without rep movsb and stosb, each byte of which is emulated by itself
UNCHECKED = ("17",)  # labs that the VM of Debian 12 and 13 cannot run


# ---- what is kept from one call to the next ----


def load():
    try:
        with open(STATE, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def save(state):
    os.makedirs(os.path.dirname(STATE), exist_ok=True)
    with open(STATE + ".new", "w", encoding="utf-8") as file:
        json.dump(state, file, indent=1)
    os.replace(STATE + ".new", STATE)


def digest(directory):
    """Of the program's sources."""
    found = hashlib.sha256()
    for path in build.sources(directory):
        with open(path, "rb") as file:
            found.update(path.encode() + b"\0" + file.read() + b"\0")
    return found.hexdigest()


# ---- judging ----


def judged(jobs):
    """Of each job the rows of its parts: in one VM."""
    build.helpers()
    env = {
        "TESTENV_LIMIT": str(300 + 60 * len(jobs)),
        "TESTENV_MEMORY": "512",
        "TESTENV": "vm",
        **os.environ,
        "TESTENV_CLOCK": "virtual",
        "TESTENV_CPU": CPU,
        "TESTENV_SEALED": "yes",
        "TESTENV_PROBES": build.WATCHED,
        "TESTENV_PASS": "LAB_LANG LC_ALL LC_MESSAGES LANG",
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(jobs, file)
        file.flush()
        first = PYTHONS + (", random" if any(job["lab"] in BLOCKS for job in jobs) else "")
        words = f"import {first}{JUDGE}", HERE, build.COMPILED, file.name
        ran = subprocess.run(
            [f"{ROOT}/testenv/testenv.sh", "run", "python3", "-ISB", "-c", *words],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            check=False,
            env=env,
        )
    rows = dict(json.loads(line[4:]) for line in ran.stdout.splitlines() if line.startswith("ROW "))
    for line in ran.stdout.splitlines():
        if line.startswith("NOTE "):
            print("# " + line[5:])
    if len(rows) < len(jobs):
        said = [line for line in ran.stdout.splitlines() if not line.startswith("ROW ")]
        print(*said, sep="\n", file=sys.stderr)
        sys.exit(say("no vm", status=ran.returncode))
    return [with_build(each, rows[number]) for number, each in enumerate(jobs)]


def parts_of(lab):
    """Their names, and which TODO each is."""
    if lab in BLOCKS:
        return [(piece.name, number) for number, piece in enumerate(PIECES[lab], 1)] + [
            (name, LAST) for name in PARTS
        ]
    return [(part.name, part.todo) for part in LABS[lab].parts]


def unbegun(each):
    """The rows of a program that is not there, or with nothing written that could be judged: no VM is needed."""
    parts, lacks = parts_of(each["lab"]), each["unwritten"]
    if each["program"] and any(str(todo) not in lacks for _, todo in parts if todo != LAST):
        return None
    rows = [row_of(name, todo, why_unseen(lacks, todo) or say("not built")) for name, todo in parts]
    return with_build(each, rows)


def with_build(each, rows):
    """The part builds before the others, as the grader counts it for 05 to 07."""
    why = ""
    if not each["program"]:
        why = say("no build", first=each["odd"][0])
    elif each["odd"] and each["lab"] in BLOCKS and not each["unwritten"]:  # gcc may dislike a stub
        why = say("warnings", number=len(each["odd"]), first=each["odd"][0])
    return [row_of("builds", 0, why), *rows]


def report(lab, directory, each, rows):
    """Prints a line for each part; returns whether all are right."""
    short = os.path.relpath(directory, ROOT)
    first = next((row for row in rows if not row["right"]), None)
    if each["odd"] and each["program"] and lab not in BLOCKS and not each["unwritten"]:
        print("# " + say("warnings", number=len(each["odd"]), first=each["odd"][0]))
    unseen = {say("not after", part=row["part"]) for row in rows}
    for row in rows:
        mark = "ok" if row["right"] else "--" if row["why"] in unseen else "not ok"
        why = ": " + row["why"] if mark == "--" else ""
        print(f"{mark} - {called(row['part'])}{why}")
        if row is first:
            print("    " + row["why"].replace("\n", "\n    "))
            if row["says"] and row["says"] not in row["why"]:
                print("    " + say("it says", words=row["says"]))
            if row.get("shows"):
                options = f' ARGS="{row["options"]}"' if 0 < len(row["options"]) < 200 else ""
                print("    " + say("see it", command=f"make -C {short} run{options}"))
            elif each["program"] and str(row["todo"]) not in each["unwritten"] and row["todo"]:
                print("    " + say("only check"))
    right = sum(row["right"] for row in rows)
    line = say("count", right=right, all=len(rows))
    if first:
        what = (
            first["part"]
            if not 0 < first["todo"] < LAST
            else say("todo", number=first["todo"], what=first["part"])
        )
        line += say("next", what=what)
    print(line, flush=True)
    return not first


def check(lab, wanted=""):
    """Checks one program, and keeps what was found."""
    if lab not in NUMBERS:
        sys.exit(say("no lab", lab=lab))
    directory = build.place(lab, wanted)
    if directory == build.sample(lab):
        print(say("sample itself", lab=lab, directory=os.path.relpath(directory, ROOT)))
    before = digest(directory)
    program, odd = build.build(directory, lab)
    checked = build.sanitized(lab, directory) if lab in BLOCKS and program else ()
    each = build.job(lab, build.text(directory), program, odd, *checked)
    if not each["reference"]:
        sys.exit(say("no reference", lab=lab))
    rows = unbegun(each) or judged([each])[0]
    right = report(lab, directory, each, rows)
    state = load()
    name = os.path.relpath(directory, ROOT)
    state[name] = {
        "lab": lab,
        "digest": before,
        "rows": rows,
        "hints": state.get(name, {}).get("hints", {}),
    }
    save(state)
    return right


# ---- hints, watching, progress ----


def hints():
    """By lab and part: three degrees. From hints.txt (hints.zh.txt): "== LAB PART", and three lines."""
    found, file = {}, "hints.zh.txt" if language() == "zh" else "hints.txt"
    for piece in starter.read(f"{HERE}/{file}").split("\n== ")[1:]:
        head, *lines = piece.strip().splitlines()
        lab, _, part = head.partition(" ")
        found[lab, part] = [line for line in lines if line and not line.startswith("#")]
    return found


def hint(lab, wanted=""):
    if lab not in NUMBERS:
        sys.exit(say("no lab", lab=lab))
    directory = build.place(lab, wanted)
    name, state = os.path.relpath(directory, ROOT), load()
    if state.get(name, {}).get("digest") != digest(directory):
        check(lab, wanted)
        state = load()
    first = next((row for row in state[name]["rows"] if not row["right"]), None)
    if not first:
        print(say("hint none", lab=lab))
        return True
    of, part = ("*", "memory") if first.get("memory") else (lab, first["part"])
    three = hints().get((of, part)) or hints().get(("*", part))
    if not three:
        print(say("hint missing", part=part, lab=lab))
        return True
    degree = min(state[name]["hints"].get(part, 0), 2)
    state[name]["hints"][part] = degree + 1
    save(state)
    print(say("hint", degree=degree + 1, lab=lab, part=part, text=three[degree]))
    return True


def watch(lab, wanted=""):
    directory, seen = build.place(lab, wanted), None
    print(say("watching", directory=os.path.relpath(directory, ROOT)), flush=True)
    try:
        while True:
            now = {
                path: os.path.getmtime(path)
                for path in build.sources(directory)
                if os.path.exists(path)
            }
            if now != seen:
                seen = now
                print(f"\n---- {time.strftime('%H:%M:%S')}", flush=True)
                try:
                    check(lab, wanted)
                except SystemExit as why:  # one goes on after the next change
                    print(why, flush=True)
            time.sleep(0.3)
    except KeyboardInterrupt:
        return True


def progress():
    state, handed = load(), {}
    for path in glob.glob(f"{ROOT}/results/handin-*/manifest"):
        if found := re.search(r"(?s)\AHANDIN .*? lab=(\d\d).*\nend (.*)\n\Z", starter.read(path)):
            handed[found[1]] = found[2]
    print(say("progress head"))
    for lab in sorted((*NUMBERS, *UNCHECKED)):
        names = [
            name
            for name, kept in state.items()
            if kept["lab"] == lab and os.path.isdir(f"{ROOT}/{name}")
        ]
        if os.path.isdir(f"{ROOT}/my{lab}") and "my" + lab not in names:
            names.append("my" + lab)
        names = [name for name in names if f"{ROOT}/{name}" != build.sample(lab)]
        for name in names or ["-"]:
            key = "not checked" if names else "not started"
            words = say("no check" if unchecked(lab, kernel=False) else key)
            parts, kept = "-", state.get(name)
            if kept:
                parts = say(
                    "count", right=sum(row["right"] for row in kept["rows"]), all=len(kept["rows"])
                )
                words = say(
                    "unchanged" if kept["digest"] == digest(f"{ROOT}/{name}") else "changed"
                )
            print(
                f"{lab:4} {name:17} {padded(parts, 15)} {words}"
                + ("  " + say("handed in", end=handed[lab]) if lab in handed else "")
            )
    return True


def unchecked(lab, kernel=True):
    """Or not here."""
    return lab in UNCHECKED or lab == "15" and build.lacks_flush(kernel)


def without(lab, *_):
    """Says why a lab has none of these, and what to run instead. To check it has failed: nothing is known to be right."""
    pair = os.path.relpath(starter.sample_of(lab)[:-2], ROOT)
    print(say(f"no check {lab}", pair=pair, what=build.lacks_flush() if lab == "15" else ""))
    return sys.argv[1] != "check"


def main(arguments):
    actions = {"check": check, "hint": hint, "watch": watch, "progress": progress}
    action, *rest = arguments or [""]
    rest = [word for word in rest if word]
    if (
        action not in actions
        or not (0 if action == "progress" else 1) <= len(rest) <= (action != "progress") * 2
    ):
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    os.chdir(ROOT)
    act = without if rest and unchecked(rest[0]) else actions[action]
    sys.exit(0 if writing(act, *rest) else int(os.environ.get("NOT_YET", 1)))


if __name__ == "__main__":
    main(sys.argv[1:])
