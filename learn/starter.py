#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The assignment's samples without the functions that the student has to write.

    starter.py make LAB [DIR]   writes the starter of a lab (05, 06, 07) into the new directory
                                DIR (default: my05, ...) beside the samples
    starter.py release          packs the suite without the solutions: results/hello-verbs.tar.gz

The comment above a function stays: it is the specification. The body becomes a TODO.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

# Of each lab: the functions that are left out, and what the TODO says.
PLACES = {
    "05": (("build_gather_list", "fill s->sge and s->wr, each from index 0"),
           ("post_chain", "the signalled request's wr_id is s->posted: see wait_until_done"),
           ("post_message", "build the list that the method needs, then post it")),
    "06": (("build_scatter_list", "fill s->sge and s->wr, each from index 0"),
           ("post_chain", "the signalled request's wr_id is s->posted: see wait_until_done"),
           ("post_message", "into staging for METHOD_COPY and METHOD_CONTIG, else the blocks")),
    "07": (("build_list", "fill sge from index 0, with at most per_wr elements"),
           ("post_sends", "use a row of s->max_sge SGEs in s->sge for each; add n to s->posted"),
           ("post_receives", "wr_id counts on from s->expected, the number of those posted"),
           ("post_ahead", "continue at s->next_wr of s->next_message, PART receives at a time")),
}
TODO = """{{
    /* TODO {number}: {text}. */
    {uses};
    die(0, "{name} is not written yet (TODO {number}): "
           "{text}");
}}
"""


def starter(source, places):
    """The program with a TODO for each of these functions."""
    written = []
    for number, (name, text) in enumerate(places, 1):
        function = re.compile(r"(?m)^(static [\w ]*?\*?%s\(([^)]*)\) )(\{\n(?:.*\n)*?\}\n)" % name)
        _, parameters, body = function.search(source).groups()
        # What only this body uses would be unused without it, which is a warning.
        used = [re.search(r"\w+$", parameter)[0] for parameter in parameters.split(",")]
        used += [other for other in written if other + "(" in body]
        todo = TODO.format(number=number, text=text, name=name,
                           uses=", ".join(f"(void){name}" for name in used))
        source = function.sub(lambda found: found[1] + todo, source)
        written.append(name)
    return source


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def is_starter(source):
    return "(TODO 1)" in source


def make(lab, directory):
    if lab not in PLACES:
        sys.exit(f"starter: there is no lab '{lab}'; 05, 06 and 07 have starters")
    directory = directory or "my" + lab
    if "/" in directory:
        sys.exit("starter: DIR is a new directory beside the samples, such as my" + lab)
    if os.path.exists(directory):
        sys.exit(f"starter: {directory} exists already, and is not changed")
    path, = glob.glob(f"{lab}_*/*.c")
    text = read(path)
    if not is_starter(text):  # in what release packs, the samples are starters already
        text = starter(text, PLACES[lab])
    os.mkdir(directory)
    mine = os.path.join(directory, os.path.basename(path))
    with open(mine, "w", encoding="utf-8") as file:
        file.write(text)
    with open(os.path.join(directory, "Makefile"), "w", encoding="utf-8") as file:
        file.write(read(os.path.join(os.path.dirname(path), "Makefile")))
    print(f"{mine} is yours to complete:")
    for number, line in enumerate(text.splitlines(), 1):
        if "/* TODO " in line:
            print(f"{number}: {line.strip()}")


def release():
    os.makedirs("results", exist_ok=True)
    with tempfile.TemporaryDirectory() as tree:
        root = os.path.join(tree, "hello-verbs")
        os.mkdir(root)
        archive = subprocess.run(["git", "archive", "HEAD"], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", root], check=True, input=archive.stdout)
        for lab, places in PLACES.items():
            path, = glob.glob(f"{root}/{lab}_*/*.c")
            text = starter(read(path), places)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            # A patch shows the lines around its change.
            for patch in glob.glob(f"{root}/tests/breakit/*.patch"):
                if read(patch).startswith(f"sample: {lab}_"):
                    os.remove(patch)
        subprocess.run(["tar", "-C", tree, "-czf", "results/hello-verbs.tar.gz", "hello-verbs"],
                       check=True)
    print("results/hello-verbs.tar.gz holds the suite with starters for 05 to 07")


def main(arguments):
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    if arguments[:1] == ["make"] and len(arguments) in (2, 3):
        make(arguments[1], "".join(arguments[2:]))
    elif arguments == ["release"]:
        release()
    else:
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
