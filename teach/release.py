#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Packs the suite without the solutions of some labs, as results/hello-verbs.tar.gz.

    release.py LAB...       05 06 07, or all

In there these labs' samples are starters, and what would give their solutions away is left out: see README.md.
make check takes the samples as they are built in learn/reference/PROCESSOR."""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

LEARN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "learn")
sys.path += [LEARN, f"{LEARN}/../judge"]
# pylint: disable=wrong-import-position
import pieces
import starter
from words import writing


def build(root, lab, scratch):
    """The sample's program, for make check."""
    directory = os.path.dirname(glob.glob(f"{root}/{lab}_*/*.c")[0])
    subprocess.run(
        ["make", "-s", "-C", directory, f"OUT={scratch}", "CFLAGS=-O2", "LDFLAGS=-s"], check=True
    )
    program = os.path.basename(glob.glob(f"{directory}/*.c")[0])[:-2]
    place = f"{root}/learn/reference/{os.uname().machine}"
    os.makedirs(place, exist_ok=True)
    shutil.copy(f"{scratch}/{program}", f"{place}/{lab}")
    if lab in ("05", "06", "07"):  # what a half-written program lacks
        pieces.sample_object(lab, f"{place}/{lab}.o")


def keep_places(path, labs):
    """Those of the other labs: their starters can still be made."""
    head, *parts = starter.read(path).split("\n== ")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n== ".join([head] + [part for part in parts if part[:2] not in labs]) + "\n")


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
        for path in (f"{root}/teach/answers.md", *glob.glob(f"{root}/tests/mistakes/*.txt")):
            os.remove(path)
        for name in ("places.txt", "places.zh.txt"):
            keep_places(f"{root}/learn/{name}", labs)
        for lab in labs:
            build(root, lab, os.path.join(tree, "built"))
            (path,) = glob.glob(f"{root}/{lab}_*/*.c")
            text = starter.starter(starter.read(path), listed[lab])
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            for patch in glob.glob(f"{root}/tests/mistakes/*.patch"):
                if starter.read(patch).startswith(f"sample: {lab}_"):
                    os.remove(patch)
        shutil.make_archive("results/hello-verbs", "gztar", tree, "hello-verbs")
    print(f"results/hello-verbs.tar.gz holds the suite with starters for {', '.join(labs)}")


def main(arguments):
    os.chdir(starter.ROOT)
    release(sorted(starter.places()) if arguments == ["all"] else arguments)


if __name__ == "__main__":
    writing(main, sys.argv[1:])
