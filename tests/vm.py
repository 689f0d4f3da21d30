# SPDX-License-Identifier: BSD-2-Clause
"""Runs many scripts in one VM. In there this file is the program: it reads them from results/ in a copy of the
project, and writes what they showed to there."""
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from samples import FIXED, ROOT

# A copy isn't in the repository that it was copied from.
ENV = {**os.environ, "GIT_CEILING_DIRECTORIES": os.path.join(ROOT, "build")}
LIMIT = 600  # seconds for one script


def on_terminal(script, cwd, may_start, has_begun):
    """What bash shows when it runs script, as on a terminal, and its exit status."""
    may_start.wait(LIMIT)
    process = subprocess.Popen(
        ["timeout", str(LIMIT), "script", "-qec", script, "/dev/null"],
        cwd=cwd,
        env={**ENV, "SHELL": "/bin/bash"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    seen = process.stdout.read1()
    has_begun.set()
    seen += process.stdout.read()
    return seen.decode(errors="replace").replace("\r\n", "\n"), process.wait()


def run_together(scripts, cwd, tries=1):
    """Each on a terminal of its own, each begun when the one before has printed something: so a server that says that
    it waits is there before its client. tries: until one fails."""
    events = [threading.Event() for _ in range(len(scripts) + 1)]
    events[0].set()
    with ThreadPoolExecutor(len(scripts)) as pool:
        shown = list(pool.map(on_terminal, scripts, [cwd] * len(scripts), events, events[1:]))
    if tries > 1 and not any(status for _, status in shown):
        return run_together(scripts, cwd, tries - 1)
    return shown


def in_vm(copy, jobs, at_a_time=1):
    """jobs: (scripts, tries) each. For each the (output, exit status) of each script."""
    with open(f"{copy}/results/jobs.json", "w", encoding="utf-8") as file:
        json.dump(jobs, file)
    subprocess.run(
        [f"{copy}/testenv/testenv.sh", "run", *FIXED, "python3", "tests/vm.py", str(at_a_time)],
        cwd=copy,
        stdin=subprocess.DEVNULL,
        env={"TESTENV_LIMIT": "3000", **ENV},
        check=True,
    )
    with open(f"{copy}/results/shown.json", encoding="utf-8") as file:
        return json.load(file)


def main(at_a_time):
    with open("results/jobs.json", encoding="utf-8") as file:
        jobs = json.load(file)
    with ThreadPoolExecutor(at_a_time) as pool:
        shown = list(pool.map(lambda job: run_together(job[0], os.getcwd(), job[1]), jobs))
    with open("results/shown.json", "w", encoding="utf-8") as file:
        json.dump(shown, file)


if __name__ == "__main__":
    main(int(sys.argv[1]))
