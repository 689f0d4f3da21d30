#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How alike are programs that were handed in?   similar.py LAB FOLDER
sim_c (package similarity-tester) compares tokens, whatever names and layout are, without lines of the starter; between
students without the sample's, too. Prints pairs from 30 per cent on, and who has as much of the sample."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import collect

sys.path.append(f"{collect.ROOT}/learn")
import starter  # pylint: disable=wrong-import-position


def lines_of(text, without=()):
    """Without comments and blanks; a brace alone says nothing."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.split("\n"))
    return [line for line in lines if re.search(r"\w.*\w", line) and line not in without]


def compare(names, *arguments):
    command = ["sim_c", "-p", "-T", "-t", "30", "-r", "16", *arguments]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for a, percent, b in re.findall(r"(\S+) consists for (\d+) % of (\S+) material", found):
        print(f"{percent:>3} %  {names[a]}  of  {names[b]}")


def main(lab, folder):
    sys.stdout.reconfigure(errors="replace")  # where Chinese can't be printed
    if not shutil.which("sim_c"):
        sys.exit("similar: install the package similarity-tester, which brings sim_c")
    given = set(lines_of(starter.starter_of(lab)))
    solution = lines_of(starter.read(starter.sample_of(lab)), given)
    names, whole = {}, []
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as own:

        def put(name, lines):
            pathlib.Path(own, name).write_text("\n".join(lines) + "\n", encoding="utf-8")
            return f"{own}/{name}"

        for h in collect.programs(folder, scratch, lab):
            sources = [f for f in h.program if f.endswith((".c", ".h"))]
            text = b"\n".join(collect.begins(f, 1 << 20) for f in sources)
            text = lines_of(text.decode("utf-8", "replace"), given)
            mine = put(f"{len(whole)}.c", [line for line in text if line not in solution])
            whole.append(put(f"{len(whole)}.whole", text))
            what = f"{h.name[:60]} ({len(text)} lines beside the starter)"
            names[mine] = names[whole[-1]] = what
        compare(names, "-e", *(path for path in names if path not in whole))
        names[reference := put("sample.c", solution)] = "the sample's solution"
        compare(names, "-S", *whole, "/", reference)
    print(f"# {len(whole)} programs")


if __name__ == "__main__":
    main(*sys.argv[1:])
