#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Predict before you see: one step of the handout's Break it, in a copy of the sample.

    break.py STEP    shows the change, asks for a prediction, runs the pair, asks for one thing that only the
                     output tells and for the reason, and then says what was right

All goes into answers.txt (ANSWERS names another file). WIRE=no: on one host, without packets. Answers may come by a
pipe, a line each."""
import os
import random
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from contextlib import suppress

import answers
import handout
import starter
from starter import read
from words import STATUSES, say, wrapped, writing

ROOT = handout.ROOT
TESTENV = f"{ROOT}/testenv/testenv.sh"
PATCHES = f"{ROOT}/tests/mistakes"
COPIES = f"{ROOT}/build/break"
PACKETS = 14  # lines of the ladder that are shown
TRIES = 3
Run = namedtuple("Run", "output server client pcap")

# What can happen, by a word in what the two sides print. The first one that is found counts;
# before them, a status of a completion or another request's, the client's before the server's.
OUTCOMES = (
    ("refused", r"refused a client"),
    ("modify", r"ibv_modify_qp to"),
    ("register", r"ibv_reg_mr"),
    ("full", r"ibv_post_send.*: Cannot allocate memory"),
    ("post", r"ibv_post_send"),
    ("batch", r"ibv_wr_complete"),
    ("destroy", r"ibv_(destroy|dereg)_\w+: "),
    ("silent", r"no completion of"),
    ("overrun", r"CQ error"),
    ("twice", r"message \d+ came twice"),
    ("lost", r"was to come"),
    ("data", r"memory does not hold|[:,] byte\b|it was not refused|that nobody sent"),
)
# What is asked after a run, by what an error looks like: the first that is found, the client's before the server's.
LOOKS = (
    ("look status", r"\(status (\d+)\)"),
    ("look message", r"message \d+ came.*, (\d+) was to come"),
    ("look errno", r"\((\d+)\)$"),
    ("look byte", r"\bbyte (\d+)\b"),
    ("look what", r"no completion of (?:the |a )?(.+?)(?: in \d+ s)?$"),
    ("look number", r"(?:nobody sent|another request's completion): (\d+)"),
)
# Those that a student may confuse with each other, the likeliest side by side.
ALIKE = (
    ("status 10", "status 9", "status 4", "status 2", "status 12", "status 13", "status 11"),
    ("post", "full", "modify", "destroy", "refused", "register"),
    ("pass", "data", "silent"),
    ("overrun", "lost", "twice"),
)
FAR = ("post", "data", "silent", "pass", "status 10", "status 12")


class Stop(Exception):
    """There is nothing to run, and why. status: of this program."""

    def __init__(self, words, status=2):
        super().__init__(words)
        self.status = status


def head(step):
    """What the patch's head says: sample, arguments, and what each side prints."""
    try:
        lines = read(f"{PATCHES}/{step.name}.patch").split("\n\n")[0].splitlines()
    except FileNotFoundError:  # it would show a solution
        raise Stop(say("not here", step=step.number), 0) from None
    return dict(line.split(": ", 1) for line in lines)


def outcome(client, server):
    """A word for what these two have printed."""
    for side in (client, server):  # who gives up first leaves the other one a status, too
        if found := re.search(r"\(status (\d+)\)|another request's completion", side):
            return f"status {found[1]}" if found[1] else "another"
    for word, pattern in OUTCOMES:
        if re.search(pattern, client + "\n" + server):
            return word
    return "pass" if "status=PASS" in client and "status=PASS" in server else "other"


def expected(about):
    """The outcomes that the patch's head names: first that of Linux 6.1, then of other kernels."""
    kernels = [""] + [found[0] for key in about if (found := re.search(r" on [\d.]+$", key))]
    return [
        outcome(*(about.get(role + kernel, about[role]) for role in ("client", "server")))
        for kernel in kernels
    ]


def choices(step, right):
    """Four outcomes, of which one is right, in an order that is always the same."""
    drawn = random.Random(step.name)
    own = next((group for group in ALIKE if right[0] in group), ALIKE[0])
    at = own.index(right[0]) if right[0] in own else 0
    near = [word for word in own if word not in right]
    near = sorted(near, key=lambda word: abs(own.index(word) - at))[:2]
    far = [word for word in FAR if word not in (*near, *right)]
    offered = [right[0], *near, *drawn.sample(far, 3 - len(near))]
    return drawn.sample(offered, 4)


def told(word):
    """An outcome in words."""
    if word.startswith("status "):
        return say("outcome status", number=word[7:], name=STATUSES.get(word[7:], "?"))
    return say("outcome " + word)


def changed(step, about):
    """A copy of the sample with the change: its directory. The student's files stay as they are."""
    sample, place = f"{ROOT}/{about['sample']}", f"{COPIES}/{step.name}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(sample, place, ignore=lambda _, names: {n for n in names if n[-2:] != ".c"})
    shutil.copy2(f"{sample}/Makefile", place)
    (name,) = (name for name in os.listdir(place) if name.endswith(".c"))
    if starter.unwritten(read(f"{place}/{name}")):
        raise Stop(say("starter", sample=about["sample"], step=step.number), 0)
    try:
        subprocess.run(
            ["git", "apply", "-p2", f"{PATCHES}/{step.name}.patch"],
            cwd=place,
            check=True,
            capture_output=True,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": COPIES},  # it is in no repository
        )
    except subprocess.CalledProcessError:
        raise Stop(say("break changed", file=f"{about['sample']}/{name}"), 1) from None
    return place


def prepare(step, about):
    """Makes the program with the change, and returns its directory."""
    place = changed(step, about)
    with suppress(FileExistsError):
        os.symlink("../../common", f"{COPIES}/common")
    blocks = " ../../../blocks" if "BLOCKS" in read(f"{place}/Makefile") else ""
    objects = ["OBJECTS=../../objects", f"DIRS=../../../common{blocks}"]
    if subprocess.run(["make", "-s", "-C", place, *objects], check=False).returncode:
        raise Stop(say("break not built"), 1)
    return place


def succeeds(*command):
    return not subprocess.run(command, capture_output=True, check=False).returncode


def place_to_run(about):
    """How many hosts, and in which time. Packets are seen only between two, which are VMs; the head of a patch
    that makes thousands of packets, or depends on a tenth of a second, asks for one. Virtual time is as
    long on a busy machine."""
    if os.environ.get("TESTENV") != "vm" and succeeds(TESTENV, "has-device"):
        return 1, ""
    one = about.get("hosts") == "1" or os.environ.get("WIRE") == "no"
    if one or not succeeds(f"{ROOT}/testenv/deps.sh", "--check", "wire"):
        return 1, "virtual"
    return 2, ""


def run(step, about, place, number, clock):
    """Runs the pair. number: of hosts."""
    program = next(name[:-2] for name in os.listdir(place) if name.endswith(".c"))
    arguments = about.get("client's arguments", "").split()
    command = [f"{ROOT}/testenv/pair.sh", f"./{program}", *arguments]
    pcap = f"{ROOT}/results/wire/{step.name}.pcap"
    if number == 2:
        os.makedirs(f"{ROOT}/results/wire", exist_ok=True)
        command = [f"{ROOT}/testenv/capture.sh", pcap, *command]
    env = {
        **os.environ,
        "TESTENV_HOSTS": str(number),
        "PAIR_WAIT": "20",
        "TESTENV_CLOCK": clock,
        "PAIR_SERVER": about.get("server's arguments", ""),
        "TESTENV_PASS": "PAIR_WAIT PAIR_SERVER",
    }
    with subprocess.Popen(  # run() kills it at Ctrl-C, before it has cleaned up
        [TESTENV, "run", *command],
        cwd=place,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        output = process.communicate()[0].decode(errors="replace")
    sides = re.split(r"(?m)^--- (?:server|client).*\n", output)
    if len(sides) != 3:
        raise Stop(output + say("not run"), 1)
    return Run(output, sides[1], sides[2], pcap if number == 2 else None)


def errors(ran):
    """(role, what it says of its failure), the client's first."""
    for role, text in (("client", ran.client), ("server", ran.server)):
        for error in re.findall(rf"(?m)^\d\d_\w+ {role}: (.*)", text):
            yield role, error


def seen(ran):
    """What both sides said in the end, in one line."""
    said = dict(reversed([*errors(ran)]))  # of each the first
    for role, text in (("client", ran.client), ("server", ran.server)):
        status = re.search(r"(?m)^RESULT .*(status=\w+)", text)
        said.setdefault(role, status[1] if status else "?")
    return "; ".join(f"{role}: {said[role]}" for role in ("client", "server"))


def to_see(ran):
    """One thing that only the output tells: the question's key, the side, the right answer."""
    for key, pattern in LOOKS:
        for role, error in errors(ran):
            if found := re.search(pattern, error):
                return key, role, found[1]
    found = re.search(r"(?m)^RESULT .*digest=(\w+)", ran.server)
    return "look digest", "server", found[1] if found else "?"


def is_seen(typed, right):
    """It holds the right answer, or is four characters of it."""
    typed, right = (" ".join(text.lower().split()) for text in (typed, right))
    return bool(re.search(rf"\b{re.escape(right)}\b", typed)) or (
        len(typed) >= 4 and typed in right
    )


def look(ran):
    """What the student has seen, in one line: nothing, if that is not in the output."""
    key, role, right = to_see(ran)
    for _ in range(TRIES):
        if not (typed := ask(say(key, role=say("role " + role)))):
            break
        if is_seen(typed, right):
            return f"{typed} ({seen(ran)})"
        print(say("not seen"))
    return ""


def ask(prompt):
    """One line. None at the end of the input."""
    try:
        return " ".join(input(prompt).split())
    except EOFError:
        return None


def predict(offered):
    """(the outcome that was chosen, or None; the prediction in words)"""
    for number, word in enumerate(offered, 1):
        print(f"  {number}  {told(word)}")
    while (line := ask(say("choose"))) is not None:
        if line.isdecimal() and 1 <= int(line) <= len(offered):
            return offered[int(line) - 1], told(offered[int(line) - 1])
        if line and not line.isdecimal():
            return None, line
        if line:
            print(say("no such choice", last=len(offered)))
    raise Stop("\n" + say("no prediction"))


def judge(chosen, right, happened):
    """Whether the prediction came true. What the handout expects of any kernel is one outcome."""
    if chosen is None:
        verdict = say("own words", outcome=told(happened))
    elif chosen == happened or {chosen, happened} <= set(right):
        verdict = say("came true")
    else:
        verdict = say("not true", outcome=told(happened))
    return verdict if happened in right else verdict + "\n" + say("other device")


def show(step, about):
    """The step: the change, the question, how it is run."""
    print(say("step", number=step.number, name=step.name, sample=about["sample"]) + "\n")
    change = read(f"{PATCHES}/{step.name}.patch").split("\n\n", 1)[1]
    change = re.sub(r"(?m)^@@ -(\d+).*$", lambda at: say("line", number=at[1]), change)
    print(re.sub(r"(?m)^(---|\+\+\+) .*\n", "", change))
    print(wrapped(step.question[0].upper() + step.question[1:]))
    for role in ("client", "server"):
        if arguments := about.get(role + "'s arguments"):
            print(say("arguments " + role, arguments=arguments))
    print()


def show_run(step, ran):
    """What both sides printed, and the packets, if they crossed a wire."""
    print("\n" + ran.output.rstrip())
    if not ran.pcap:
        return
    ladder = subprocess.run(
        [f"{ROOT}/judge/ladder.py", ran.pcap], capture_output=True, text=True, check=False
    )
    packets = ladder.stdout.splitlines()
    print("\n" + "\n".join([say("packets"), *packets[:PACKETS]]))
    more = say("more packets", number=len(packets) - PACKETS) if packets[PACKETS:] else ""
    print(f"{more}wireshark results/wire/{step.name}.pcap")


def do(number):
    """One step, from the question to the answer in the file."""
    steps = handout.steps()
    if number not in steps:
        raise Stop(say("no step", last=max(steps)))
    step = steps[number]
    about = head(step)
    path = os.environ.get("ANSWERS") or f"{ROOT}/{answers.FILE}"
    place = prepare(step, about)
    show(step, about)
    right = expected(about)
    chosen, prediction = predict(choices(step, right))
    print(say("running"), flush=True)
    ran = run(step, about, place, *place_to_run(about))
    show_run(step, ran)
    there = answers.record(path, step, prediction, "", "")  # also if nothing follows
    print()
    looked = look(ran)
    answers.record(path, step, prediction, looked, "")
    print("\n" + judge(chosen, right, outcome(ran.client, ran.server)) + "\n")
    reason = ask(say("reason"))
    answers.record(path, step, prediction, looked, reason or "")
    print("\n" + wrapped(say("the reason", outcome=step.outcome)) + "\n")
    print(say("replaced" if there else "written", file=os.path.basename(path), step=number))
    for field, text in (("seen", looked), ("reason", reason)):
        if not text:
            print(say("lacks", field=say(f"field {field}").rstrip(":：")))


def main(arguments):
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(errors="replace")
    try:
        if len(arguments) != 1 or not arguments[0].isdecimal():
            raise Stop(say("which step"))
        writing(do, int(arguments[0]))
    except Stop as stop:
        print(stop, file=sys.stderr if stop.status else sys.stdout)
        return stop.status
    except KeyboardInterrupt:
        print()
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
