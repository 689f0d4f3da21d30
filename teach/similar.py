#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How alike are programs that were handed in?   similar.py LAB FOLDER
sim_c (package similarity-tester) compares tokens, whatever names and layout are, without lines of the starter. Prints
pairs from 30 per cent on, and who has as much of the sample."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import collect
import expected

sys.path.append(f"{expected.ROOT}/learn")
import starter  # pylint: disable=wrong-import-position


def lines_of(text, without=()):
    """Without comments and blanks; a brace alone says nothing."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.split("\n"))
    return [line for line in lines if re.search(r"\w.*\w", line) and line not in without]


def main(lab, folder):
    sys.stdout.reconfigure(errors="replace")  # where Chinese can't be printed
    if not shutil.which("sim_c"):
        sys.exit("similar: install the package similarity-tester, which brings sim_c")
    given = set(lines_of(starter.starter_of(lab)))
    solution = lines_of(starter.read(starter.sample_of(lab)), given)
    programs = []
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as own:
        for h in collect.programs(folder, scratch, lab):
            sources = [f for f in h.program if f.endswith((".c", ".h"))]
            text = b"\n".join(collect.begins(f, 1 << 20) for f in sources)
            lines = lines_of(text.decode("utf-8", "replace"), given)
            programs.append((f"{h.name[:60]} ({len(lines)} lines beside the starter)", lines))
        names = {}
        for name, lines in [*programs, ("the sample's solution", solution)]:
            path = pathlib.Path(own, f"{len(names)}.c")
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            names[str(path)] = name
        command = ["sim_c", "-e", "-p", "-T", "-t", "30", "-r", "16", *names]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for a, percent, b in re.findall(r"(\S+) consists for (\d+) % of (\S+) material", found):
        print(f"{percent:>3} %  {names[a]}  of  {names[b]}")
    print(f"# {len(programs)} programs")


if __name__ == "__main__":
    main(*sys.argv[1:])
