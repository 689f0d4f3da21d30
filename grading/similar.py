#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How alike are programs that were handed in?   similar.py LAB FOLDER [LEAST]
sim_c (package similarity-tester) compares tokens, whatever names, comments and layout are. Lines that
stand in the starter or in the sample are left out; how much of the sample's solution a program has is
told beside. Prints pairs from LEAST per cent on (30). What they mean is the instructor's to judge."""
import glob
import re
import shutil
import subprocess
import sys
import tempfile

import collect
from handin import printable

# pylint: disable=wrong-import-position
sys.path.append(f"{collect.ROOT}/learn")
import starter


def lines_of(text):
    """Without comments and blanks; a brace alone says nothing."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    return [line for line in (re.sub(r"\s+", " ", line).strip() for line in text.split("\n"))
            if re.search(r"\w.*\w", line)]


def main(lab, folder, least="30"):
    sys.stdout.reconfigure(errors="replace")  # where Chinese can't be printed
    sample = starter.read(glob.glob(f"{collect.ROOT}/{lab}_*/*.c")[0])
    given = lines_of(sample if starter.unwritten(sample) else starter.starter_of(lab))
    solution = set(lines_of(sample)) - set(given)
    known, names = {*given, *solution}, {}
    if not shutil.which("sim_c"):
        sys.exit("similar: install the package similarity-tester, which brings sim_c")
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as own:
        for s in collect.collect(folder, lab, scratch):
            if s.program and s.lab == lab:
                text = lines_of("\n".join(collect.begins(f, 1 << 20).decode("utf-8", "replace") for f in
                                          collect.files_of(s.program) if f.endswith((".c", ".h", ".c.txt", ".h.txt"))))
                mine = [line for line in text if line not in known]
                path = f"{own}/{len(names)}.c"
                copied = 100 * len(solution & set(text)) // max(len(solution), 1)
                names[path] = f"{printable(s.name, 60)} ({len(mine)} lines of its own, {copied} % of the sample's)"
                with open(path, "w", encoding="utf-8") as file:
                    file.write("\n".join(mine) + "\n")
        found = subprocess.run(["sim_c", "-e", "-p", "-T", "-t", least, "-r", "16", *names], check=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    for a, percent, b in re.findall(r"(\S+) consists for (\d+) % of (\S+) material", found):
        print(f"{percent:>3} %  {names[a]}  of  {names[b]}")
    print(f"# {len(names)} programs")


if __name__ == "__main__":
    main(*sys.argv[1:])
