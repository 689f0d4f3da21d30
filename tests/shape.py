#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Measures the tree: how long a C function may be, what may include what, expressions that do more than
one sees, and what the code of each directory weighs. Prints the longest functions and modules, the
weights, and what is wrong; exit status 1 if anything is."""
import ast
import glob
import os
import re
import subprocess
import sys

from expressions import surprises

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
LAYOUTS = ("05", "06", "07")  # the samples that use blocks/
FUNCTION, MAIN, WRITTEN_OUT = 60, 150, 170  # lines; 01's main writes everything out
# Code in kB (1000 bytes) around the samples: the aim, and the most that is let through until it is reached.
# The latter grows for a reader alone (bench: what MPI makes of the data); whoever makes a directory lighter lowers it.
WEIGHTS = {
    "teach": (50, 56),
    "judge": (115, 227),
    "learn": (65, 69),
    "testenv": (57, 61),
    "bench": (20, 22),
    "fabric": (30, 30),
    "above": (30, 27),
    "tests": (320, 574),
}
CODE = (".py", ".sh", ".c", ".h", ".mk", ".gp", ".js", "Makefile", "init")
# Not yet written again.
SURPRISING = set()
# What surprises() must find, each once; and what it must not.
WRONG = (
    "a = 1, b = 2;",
    "if (x) a++, b = f(1, 2);",
    "if (x) f(), g();",
    "int a = f(), b = g(1);",
    "(c ? f : g)(1);",
    "a[i++] = 3;",
    "f(a, n--);",
    "for (i = 0, n = 1; i < n; i++) f();",
    "struct s *p = f(), *q = f();",
)
RIGHT = (
    "int a = 1, b = f();",
    "for (int i = 0, n = 2; i < n; i++) f(i, a[i]);",
    "f(a = 1, 2);",
    "x = c ? f(1) : g(2);",
    "struct s a = {.b = 1, .c = f(2)};",
    "if ((n = f()) == 0) return;",
    "enum { A = 1, B, C = 3 };",
    "*p = (struct s){.a = f(), .b = g()};",
    "static const struct { int a; } t[] = {{f(1)}, {2}};",
    "while (i < n && a[i] == b[i]) i++;",
    "if ((a ? b : c) && (d)) f();",
)
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
    for path in glob.glob("[0-9][0-9]_*/*.c") + glob.glob("common/*.c") + glob.glob("blocks/*.c"):
        for name, length in functions(path):
            most = FUNCTION if name != "main" else WRITTEN_OUT if path.startswith("01") else MAIN
            found.append((length, path, name, most))
            if length > most:
                wrong.append(f"{path}: {name} has {length} lines; at most {most}")
    if not any(name == "main" for _, _, name, _ in found):
        wrong.append("no function has been found")
    for length, path, name, most in sorted(found, reverse=True)[:20]:
        print(f"{path + ' ' + name:<50}{length:>6}{most:>9}")


def check_expressions():
    for text in WRONG:
        if len(surprises(f"void h(void) {{\n{text}\n}}\n")) != 1:
            wrong.append(f"the reader of expressions does not find: {text}")
    for text in RIGHT:
        if surprises(f"void h(void) {{\n{text}\n}}\n"):
            wrong.append(f"the reader of expressions takes for wrong: {text}")
    for path in sorted(
        glob.glob("[0-9][0-9]_*/*.c") + glob.glob("common/*.c") + glob.glob("blocks/*.c")
    ):
        with open(path, encoding="utf-8") as file:
            found = [f"{path}:{line}: {why}" for line, why in surprises(file.read())]
        if path not in SURPRISING:
            wrong.extend(found)
        elif not found:
            wrong.append(f"{path}: nothing surprising is left: take it out of SURPRISING")


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
    for path in (
        glob.glob("common/*.[ch]") + glob.glob("blocks/*.[ch]") + glob.glob("[0-9][0-9]_*/*.c")
    ):
        part = os.path.dirname(path)
        allowed = {"common": {"common"}, "blocks": {"blocks", "common"}}.get(
            part, {"blocks", "common"} if part[:2] in LAYOUTS else {"common"}
        )
        for header in included(path):
            if home.get(header) not in allowed:
                wrong.append(f"{path} includes {header}")
            uses.setdefault(os.path.basename(path)[:-2], set()).add(header[:-2])

    def visit(module, way):
        if module in way:
            wrong.append("a circle: " + " -> ".join([*way[way.index(module) :], module]))
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
        used = sorted({"common"} | ({"blocks"} if path[:2] in LAYOUTS else set()))
        if parts != used or os.path.basename(path) not in line:
            wrong.append(f"{path}: the gcc line compiles {parts} instead of {used}: {line}")


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


def longest_modules(tracked):
    print("\nthe longest modules in Python (lines; at most 400 are wanted)")
    lengths = []
    for path in tracked:
        if path.endswith(".py"):
            with open(path, encoding="utf-8") as file:
                lengths.append((len(file.readlines()), path))
    for length, path in sorted(lengths, reverse=True)[:10]:
        print(f"{path:<50}{length:>6}")


def longest_functions(tracked):
    print("\nthe longest functions in Python (lines; at most 40 are wanted)")
    lengths = []
    for path in tracked:
        if path.endswith(".py"):
            with open(path, encoding="utf-8") as file:
                tree = ast.parse(file.read())
            lengths += [
                (node.end_lineno - node.lineno + 1, path, node.name)
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef)
            ]
    for length, path, name in sorted(lengths, reverse=True)[:10]:
        print(f"{path + ' ' + name:<70}{length:>6}")


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
    check_gcc_lines()
    check_licences(tracked)
    longest_functions(tracked)
    longest_modules(tracked)
    check_weights(tracked)
    for text in wrong:
        print(text, file=sys.stderr)
    sys.exit(bool(wrong))


main()
