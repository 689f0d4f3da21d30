# SPDX-License-Identifier: BSD-2-Clause
"""What the tests run, each built once in a session by whoever needs it first: a test of its own
(test_builds.py), or a group. Everything lies in build/."""
import functools
import os
import shutil
import subprocess
import threading

from groups import NEWER_KERNEL, OUT
from samples import PROGRAM, ROOT, ran

CORES = f"-j{os.cpu_count()}"
SANITIZERS = "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
GREEDY = "s/i < opt->iters;/i <= opt->iters;/; s/i % BURST == 0/i == 0/; s/seed + i)/seed + i - (i == opt->iters))/"
COMMON = "common/*.c"
STRICT = "-Wall -Wextra -Werror"
locks = {}


def environment(**more):
    """Without make's own variables, or the makes in here say which directory they enter; nor is ONLY
    meant for what is tested."""
    ours = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "ONLY")
    return {k: v for k, v in {**os.environ, **more}.items() if k not in ours}


def run(command, cwd=ROOT, **more):
    """A command's output; one that fails raises with it."""
    ended = subprocess.run(
        command if isinstance(command, list) else ["bash", "-c", command],
        cwd=cwd,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=900,
        check=False,
    )
    if ended.returncode:
        raise AssertionError(f"{command}: exit status {ended.returncode}\n{ended.stdout}")
    return ended.stdout


def every(flavour, compiler, flags):
    """Every sample, no warning let through."""
    os.makedirs(f"{OUT}/{flavour}", exist_ok=True)
    variables = (f"OUT={OUT}/{flavour}", f"CC={compiler}", f"CFLAGS=-Werror {flags}")
    run(["make", "-s", CORES, *variables, "all"])


def gcc():
    """In the samples' directories, where make and other tests find them; copies in build/gcc."""
    os.makedirs(f"{OUT}/gcc", exist_ok=True)
    run(["make", "-s", "-k", CORES, "CC=gcc", "all"], CFLAGS="-Werror -O2 -g")
    for sample, program in PROGRAM.items():
        shutil.copy(f"{ROOT}/{sample}/{program}", f"{OUT}/gcc")


def greedy():
    """A client of 10 that SENDs a message more than it has a credit for."""
    run(
        f"sed '{GREEDY}' 10_srq/srq.c | gcc -Icommon -o {OUT}/greedy -x c - -x none {COMMON} -libverbs"
    )


def tsan():
    """18 for ThreadSanitizer; and the same without its lock, of which that has to say something."""
    flags = "-O1 -g -fsanitize=thread"
    run(["make", "-s", "-C", "18_threads", f"OUT={OUT}/tsan", f"CFLAGS=-Werror {flags}"])
    unlocked = "sed 's/.shared = users > 1/.shared = false/' 18_threads/threads.c"
    objects = f"{OUT}/tsan/objects/*.o -libverbs -pthread"
    run(f"{unlocked} | gcc {flags} -Icommon -o {OUT}/tsan/unlocked -x c - -x none {objects}")


def vm():
    """The VM starts."""
    run(["testenv/testenv.sh", "run", "true"], TESTENV=os.environ.get("TESTENV", "vm"))


def one(name, flags, sources):
    return functools.partial(run, f"gcc {flags} -o {OUT}/{name} {sources}")


BASE = {
    "vm": vm,
    "gcc": gcc,
    "fail_verbs": one("fail_verbs.so", "-shared -fPIC", "tests/fail_verbs.c"),
    "expected": one("expected.so", f"-O2 {STRICT} -shared -fPIC", "tests/expected.c"),
    "greedy": greedy,
    "tsan": tsan,
    "other_device": one("other_device.so", "-shared -fPIC", "tests/other_device.c -libverbs"),
}
SOURCES = {
    "clang": functools.partial(every, "clang", "clang", "-O2 -g -Wcomma"),
    # Sees across files.
    "lto": functools.partial(every, "lto", "gcc", "-O3 -flto -Wextra"),
}
ASAN = {"asan": functools.partial(every, "asan", "gcc", SANITIZERS)}
DEBIANS = {
    name: functools.partial(run, ["tests/debian13.sh", "build", f"{OUT}/{name}"])
    for name in ("debian13", "sid")
}
ALL = {**BASE, **SOURCES, **ASAN, **DEBIANS}
results = {}


def build(name):
    """What went wrong with it: nothing, if all is well."""
    with locks.setdefault(name, threading.Lock()):
        if name not in results:
            try:
                ALL[name]()
                results[name] = ""
            except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
                results[name] = str(error)
        return results[name]


def needed(group):
    """The builds that a group runs."""
    return [*BASE, *({group.build} - {"gcc"})]


def missing(group):
    """Why a group can't run on this machine, or nothing."""
    wanted = group.env.get("KERNEL")
    lacks = wanted == NEWER_KERNEL and ran(["apt-cache", "show", wanted]).returncode
    return f"no package {wanted} here" if lacks else ""


def begin():
    """A new build/, and in it what all need."""
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    os.makedirs(f"{ROOT}/results/wire", exist_ok=True)
    threads = [threading.Thread(target=build, args=(name,)) for name in BASE]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
