#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Measures the tree: how large each part may be, and what may include what. Prints a table and
what is wrong with it; exit status 1 if anything is."""
import glob
import os
import re
import subprocess
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
LIMITS = {"common": 900, "blocks": 600, "testenv": 1400, "grading": 1600, "witness": 1819, "learn": 950,
          "learn/check": 1461, "learn/show": 1150}
LARGER = {"05": 280, "06": 300, "07": 400}  # the other samples: 200
FILE, ALL_OF_IT = 500, ("labs.md", "labs.zh.md")
wrong = []


def lines(path):
    with open(path, encoding="utf-8") as file:
        return file.read().count("\n")


def is_code(path, part):
    """C for what is made of C, or else all but data and words."""
    return path.endswith((".c", ".h")) if part in ("common", "blocks") \
        else not path.endswith((".txt", ".md", ".json"))


def check_sizes(tracked):
    def home(path):
        return max((part for part in LIMITS if path.startswith(part + "/")), key=len, default="")
    parts = {part: (most, [p for p in tracked if home(p) == part and is_code(p, part)])
             for part, most in LIMITS.items()}
    for sample in sorted(glob.glob("[0-9][0-9]_*")):
        parts[sample] = LARGER.get(sample[:2], 200), glob.glob(sample + "/*.[ch]")
    print(f"{'part':<18}{'lines':>6}{'at most':>9}")
    for part, (most, paths) in parts.items():
        total = sum(map(lines, paths))
        print(f"{part:<18}{total:>6}{most:>9}")
        if not 0 < total <= most:
            wrong.append(f"{part} has {total} lines; at most {most}")
    longest = max((p for p in tracked if p not in ALL_OF_IT), key=lines)
    print(f"{longest:<18}{lines(longest):>6}{FILE:>9}")
    if lines(longest) > FILE:
        wrong.append(f"{longest} has {lines(longest)} lines; a file, at most {FILE}")


def included(path):
    with open(path, encoding="utf-8") as file:
        return re.findall(r'(?m)^#include "([\w.]+)"', file.read())


def check_arrows():
    """A sample may include blocks (05 to 07) and common, blocks may include common, and no two
    modules (a .c and its .h) each other, by whatever way round."""
    home = {os.path.basename(path): os.path.dirname(path)
            for path in glob.glob("common/*.h") + glob.glob("blocks/*.h")}
    uses = {}
    for path in glob.glob("common/*.[ch]") + glob.glob("blocks/*.[ch]") + glob.glob("[0-9][0-9]_*/*.c"):
        part = os.path.dirname(path)
        allowed = {"common": {"common"}, "blocks": {"blocks", "common"}}.get(
            part, {"blocks", "common"} if part[:2] in LARGER else {"common"})
        for header in included(path):
            if home.get(header) not in allowed:
                wrong.append(f"{path} includes {header}")
            uses.setdefault(os.path.basename(path)[:-2], set()).add(header[:-2])

    def visit(module, way):
        if module in way:
            wrong.append("a circle: " + " -> ".join([*way[way.index(module):], module]))
            return
        for other in uses.get(module, set()) - {module}:
            visit(other, [*way, module])

    for module in uses:
        visit(module, [])


def check_gcc_lines():
    """The command in a sample's head comment compiles the sample and what it uses, no more."""
    for path in glob.glob("[0-9][0-9]_*/*.c"):
        with open(path, encoding="utf-8") as file:
            line = re.search(r"(?m)^ \*   gcc (.*)$", file.read())[1]
        parts = sorted(set(re.findall(r"common|blocks", line)))
        used = sorted({"common"} | ({"blocks"} if path[:2] in LARGER else set()))
        if parts != used or os.path.basename(path) not in line:
            wrong.append(f"{path}: the gcc line compiles {parts} instead of {used}: {line}")


def check_licences(tracked):
    for path in tracked:
        if path.endswith((".c", ".h", ".py", ".sh", ".mk", ".gp", "Makefile", "init", ".ci/run")):
            with open(path, encoding="utf-8") as file:
                if "SPDX-License-Identifier: BSD-2-Clause" not in "".join(file.readlines()[:3]):
                    wrong.append(f"{path} has no SPDX line")


def main():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, text=True, check=True).stdout.splitlines()
    tracked = [path for path in listed if os.path.isfile(path)]
    check_sizes(tracked)
    check_arrows()
    check_gcc_lines()
    check_licences(tracked)
    for text in wrong:
        print(text, file=sys.stderr)
    sys.exit(bool(wrong))


main()
