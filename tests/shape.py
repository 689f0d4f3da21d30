#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Measures the tree: how long a C function may be, what may include what, expressions that do more than
one sees, and what the code of each directory weighs. Prints the longest functions and modules, the
weights, and what is wrong; exit status 1 if anything is."""
import ast
import glob
import graphlib
import os
import re
import subprocess
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
SOURCES = glob.glob("[0-9][0-9]_*/*.c") + glob.glob("common/*.c") + glob.glob("blocks/*.c")
LAYOUTS = ("05", "06", "07")  # the samples that use blocks/
FUNCTION, MAIN, WRITTEN_OUT = 60, 150, 170  # lines; 01's main writes everything out
# Code in kB (1000 bytes) around the samples: the aim, and the most that is let through until it is reached.
# The latter grows for a reader alone (bench: what libraries make of the data); whoever makes a directory lighter lowers it.
WEIGHTS = {
    "teach": (50, 54),
    "judge": (115, 223),
    "learn": (65, 65),
    "testenv": (57, 61),
    "bench": (20, 27),
    "fabric": (30, 30),
    "above": (30, 30),
    "tests": (320, 434),
}
CODE = (".py", ".sh", ".c", ".h", ".mk", ".gp", ".js", "Makefile", "init")
# Of C code that clang-format has formatted: a function that is chosen and called; ++ or -- in an index or an argument;
# two steps in a loop's head. (Other commas that join: clang's -Wcomma, builds.py.)
SURPRISES = {
    r"(?<!\w)\([^()]*\?[^()]*:[^()]*\)\(": "a function is chosen and called",
    r"(?:\[|\b(?!(?:if|while|for|switch|return|sizeof)\b)\w+\()(?:[^][();]|\([^();]*\))*?(?:\+\+|--)": "++ or -- is hidden",
    r"for \((?:(?:[^();]|\([^()]*\))*;){2}(?:[^(),;]|\([^()]*\))*,": "a comma joins what has an effect",
}
wrong = []


def functions(path):
    """The functions of a C file that clang-format has formatted: name, lines. A definition begins
    in the first column and ends with the first brace there."""
    begin = name = None
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if head := re.match(r"[a-z].*?(\w+)\(.*[^;]$", line):
                begin, name = number, head[1]
            if line == "}\n" and begin:
                yield name, number - begin + 1
                begin = None


def check_functions():
    found = []
    for path in SOURCES:
        for name, length in functions(path):
            most = FUNCTION if name != "main" else WRITTEN_OUT if path.startswith("01") else MAIN
            found.append((length, path, name, most))
            if length > most:
                wrong.append(f"{path}: {name} has {length} lines; at most {most}")
    if not any(name == "main" for _, _, name, _ in found):
        wrong.append("no function has been found")
    for length, path, name, most in sorted(found, reverse=True)[:20]:
        print(f"{path + ' ' + name:<50}{length:>6}{most:>9}")


def blank(found):
    return "\n" * found[0].count("\n")


def check_expressions():
    """What does more than one sees."""
    for path in SOURCES:
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"(?ms)/\*.*?\*/|//[^\n]*|^#(?:[^\n]*\\\n)*[^\n]*$", blank, file.read())
        text = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', "0", text)
        for pattern, why in SURPRISES.items():
            for found in re.finditer(pattern, text):
                wrong.append(f"{path}:{text.count(chr(10), 0, found.start()) + 1}: {why}")


def included(path):
    with open(path, encoding="utf-8") as file:
        return re.findall(r'(?m)^#include "([\w.]+)"', file.read())


def check_arrows():
    """A sample may include blocks (05 to 07) and common, blocks may include common, and no two
    modules (a .c and its .h) each other, by whatever way round."""
    home = {
        os.path.basename(path): os.path.dirname(path)
        for path in glob.glob("common/*.h") + glob.glob("blocks/*.h")
    }
    uses = {}
    for path in [*SOURCES, *glob.glob("common/*.h"), *glob.glob("blocks/*.h")]:
        part = os.path.dirname(path)
        allowed = {"common": {"common"}, "blocks": {"blocks", "common"}}.get(
            part, {"blocks", "common"} if part[:2] in LAYOUTS else {"common"}
        )
        for header in included(path):
            if home.get(header) not in allowed:
                wrong.append(f"{path} includes {header}")
            uses.setdefault(os.path.basename(path)[:-2], set()).add(header[:-2])

    try:
        graphlib.TopologicalSorter({m: used - {m} for m, used in uses.items()}).prepare()
    except graphlib.CycleError as error:
        wrong.append("a circle: " + " -> ".join(error.args[1]))


def check_licences(tracked):
    for path in tracked:
        if path.endswith((".c", ".h", ".py", ".sh", ".mk", ".gp", "Makefile", "init", ".ci/run")):
            with open(path, encoding="utf-8") as file:
                if "SPDX-License-Identifier: BSD-2-Clause" not in "".join(file.readlines()[:3]):
                    wrong.append(f"{path} has no SPDX line")


def check_weights(tracked):
    """Code alone: texts, data and pages weigh nothing here."""
    print(f"\n{'code in kB':<20}{'is':>6}{'aim':>6}{'most':>6}")
    for part, (aim, most) in WEIGHTS.items():
        code = [path for path in tracked if path.startswith(part + "/") and path.endswith(CODE)]
        weight = sum(map(os.path.getsize, code)) / 1000
        print(f"{part:<20}{weight:>6.0f}{aim:>6}{most:>6}")
        if weight > most:
            wrong.append(f"{part} weighs {weight:.1f} kB; at most {most}")


def longest(tracked):
    """Modules and functions in Python."""
    modules, functions_in = [], []
    for path in tracked:
        if path.endswith(".py"):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            modules.append((text.count("\n"), path))
            functions_in += [
                (node.end_lineno - node.lineno + 1, f"{path} {node.name}")
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.FunctionDef)
            ]
    for wanted, found in (40, functions_in), (400, modules):
        print(f"\nthe longest in Python (lines; at most {wanted} are wanted)")
        for length, name in sorted(found, reverse=True)[:10]:
            print(f"{name:<70}{length:>6}")


def main():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    tracked = sorted({path for path in listed if os.path.isfile(path)})
    check_functions()
    check_expressions()
    check_arrows()
    check_licences(tracked)
    longest(tracked)
    check_weights(tracked)
    for text in wrong:
        print(text, file=sys.stderr)
    sys.exit(bool(wrong))


main()
