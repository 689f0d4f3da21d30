#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs a pair and makes a page of it, results/show/LAB.html, on which one steps through the run.
    show.py LAB [DIR] [client's arguments]     DIR: your own program instead of the sample ("": none)
Two small VMs run the pair (HOSTS=1: one host, this machine if it has an RDMA device). What each side
did is in results/show/LAB/: trace.py says in which files, and timeline.py puts it into one order."""
import html
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.realpath(f"{HERE}/../..")
sys.path[:0] = [f"{ROOT}/learn"]
from starter import read, sample_of  # noqa: E402
from timeline import Run  # noqa: E402
from words import language, say, writing  # noqa: E402

HOSTS = 1 if os.environ.get("HOSTS") == "1" else 2
BLOCKS = "--block-size 100 --block-num 5 --stride 300"
# Where the default is long.
SMALL = {
    "04": "-n 3",
    "05": BLOCKS,
    "06": BLOCKS,
    "07": BLOCKS,
    "08": "-n 1 -s 1500",
    "09": "-n 3 -s 100",
    "10": "-n 9",
    "13": "-n 1",
    "14": "-n 4 -s 100 --break 0",
    "16": "-n 4 -s 100 --batch 2 --api post",  # of the new way trace.c sees nothing
}


def write_page(lab, title, command):
    run = Run(f"{ROOT}/results/show/{lab}", HOSTS).page(title, command)
    page = read(f"{HERE}/show.html")
    for mark, value in (("RUN", run), ("WORDS", json.loads(read(f"{HERE}/words.json")))):
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
        page = page.replace(f"@{mark}@", text)
    page = page.replace("@LANG@", language()).replace("@TITLE@", html.escape(title))
    with open(f"{ROOT}/results/show/{lab}.html", "w", encoding="utf-8") as file:
        file.write(page)


def prepared(lab, own, *arguments):
    """Builds the program and empties the run's folder. What testenv.sh is to run, and the page's title; None: it
    doesn't build."""
    where = own or os.path.dirname(sample_of(lab))
    if not os.path.exists(f"{where}/Makefile"):
        sys.exit(say("show what", directory=own))
    program = re.search(r"(?m)^SAMPLE *= *(\S+)", read(f"{where}/Makefile"))[1]
    arguments = arguments or SMALL.get(lab, "").split()
    folder = f"{ROOT}/results/show/{lab}"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    preloaded = "gcc -O2 -U_FORTIFY_SOURCE -fPIC -shared -o".split()
    for build in (
        ["make", "-s", "--no-print-directory", "-C", where],
        [*preloaded, f"{folder}/trace.so", f"{HERE}/trace.c"],
    ):
        if subprocess.run(build, check=False).returncode:
            return None
    wrapper = f"{folder}/{program}"  # as pair.sh wants it: one file with the program's name
    traced = [f"{HERE}/trace.py", folder, str(HOSTS), os.path.abspath(f"{where}/{program}")]
    with open(wrapper, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec python3 -B {shlex.join(traced)} "$@"\n')
    os.chmod(wrapper, 0o755)
    capture = [f"{ROOT}/testenv/capture.sh", f"{folder}/packets.pcap"] if HOSTS == 2 else []
    title = f"{os.path.basename(os.path.abspath(where))}: {program}"
    command = [*capture, f"{ROOT}/testenv/pair.sh", wrapper, *arguments]
    return command, (title, shlex.join([program, *arguments]))


def main(lab="", own="", *arguments):
    if not (run := prepared(lab, own, *arguments)):
        return 1
    command, title = run
    said = f"results/show/{lab}/printed.txt"  # not here: whoever predicts has not seen it yet
    print(say("running"), flush=True)
    with open(f"{ROOT}/{said}", "wb") as printed:
        status = subprocess.run(
            [f"{ROOT}/testenv/testenv.sh", "run", *command],
            check=False,
            stdout=printed,
            env={**os.environ, "TESTENV_HOSTS": str(HOSTS)},
        ).returncode
    if not os.path.exists(f"{ROOT}/results/show/{lab}/client.said"):
        subprocess.run(["cat", f"{ROOT}/{said}"], check=False)
        print(say("show failed"), file=sys.stderr)
        return status or 1
    write_page(lab, *title)
    print(say("show made", page=f"results/show/{lab}.html", printed=said))
    return status and int(os.environ.get("NOT_YET", 1))


if __name__ == "__main__":
    sys.exit(writing(main, *sys.argv[1:]))
