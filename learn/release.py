#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Packs the suite without the solutions of some labs, as results/hello-verbs.tar.gz.

    release.py LAB...       05 06 07, or all

In there these labs' samples are starters. What would give their solutions away is left out: places.txt,
and the break-it patches of these labs, since a patch shows the lines around its change.
"""
import glob
import os
import subprocess
import sys
import tempfile

import starter


def reference(lab, directory):
    """The sample as a program, without its source: what make check runs a student's program against."""
    directory_of = os.path.dirname(starter.sample_of(lab))
    os.makedirs(directory, exist_ok=True)
    subprocess.run(["make", "-s", "-C", directory_of], check=True)
    subprocess.run(["strip", "-s", "-o", f"{directory}/{lab}", starter.sample_of(lab)[:-2]], check=True)


def release(labs):
    os.makedirs("results", exist_ok=True)
    listed = starter.places()
    if not listed or not set(labs) <= set(listed):
        sys.exit(f"release: LABS='{' '.join(labs)}' are not all among {' '.join(listed) or 'none'}")
    with tempfile.TemporaryDirectory() as tree:
        root = os.path.join(tree, "hello-verbs")
        os.mkdir(root)
        archive = subprocess.run(["git", "archive", "HEAD"], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", root], check=True, input=archive.stdout)
        for name in ("learn/places.txt", "tests/mutants.txt"):  # they show lines of the solutions
            os.remove(f"{root}/{name}")
        for lab in labs:
            reference(lab, f"{root}/learn/reference/{os.uname().machine}")
            path, = glob.glob(f"{root}/{lab}_*/*.c")
            text = starter.starter(starter.read(path), listed[lab])
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            for patch in glob.glob(f"{root}/tests/breakit/*.patch"):
                if starter.read(patch).startswith(f"sample: {lab}_"):
                    os.remove(patch)
        subprocess.run(["tar", "-C", tree, "-czf", "results/hello-verbs.tar.gz", "hello-verbs"],
                       check=True)
    print(f"results/hello-verbs.tar.gz holds the suite with starters for {', '.join(labs)}")


def main(arguments):
    os.chdir(starter.ROOT)
    labs = sorted(starter.places()) if arguments == ["all"] else arguments
    if not labs:
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    release(labs)


if __name__ == "__main__":
    main(sys.argv[1:])
