# SPDX-License-Identifier: BSD-2-Clause
"""Labs 05 to 07, whose TODOs are functions: a program that has the student's and the sample's of each, built so that errors
with memory show. With HV_TODO=N the N-th is the student's and the others are the sample's, so each is judged alone, in
whatever order they are written. Without it all are the student's."""
import glob
import os
import re
import subprocess

import starter

SANITIZE = "-std=gnu11 -O1 -g -w -fsanitize=address,undefined -fno-sanitize-recover=all".split()
SHORT = "-DSWEEP_BYTES=0 -DROUND_BYTES=16384".split()  # --bench has less to measure
# If one alone fails, it stays for a moment before it ends, so that its queues can be looked at. (run.py: "meanwhile")
BEGIN = """
#line 1 "judge"
#include <stdlib.h>
#include <unistd.h>
static int hv_todo;
static void hv_stay(int status, void *_) { if (status && hv_todo) usleep(1000000); }
__attribute__((constructor)) static void hv_begin(void) {
    hv_todo = getenv("HV_TODO") ? atoi(getenv("HV_TODO")) : 0;
    on_exit(hv_stay, 0);
}
"""
MESSAGE = ("post_chain", "post_message", "transfer")
TODOS = {  # as learn/places.txt has them, where it is not a release
    "05": ("build_gather_list", *MESSAGE),
    "06": ("build_scatter_list", *MESSAGE),
    "07": ("build_list", "post_sends", "post_receives", "post_ahead"),
}
HEAD = r"(?m)^static ([^;{{]*?\b){name}(\([^)]*\))(?=\s*\{{)"  # where such a function begins


def side(text):
    """What the functions share, without its comments and blanks."""
    found = re.search(r"(?s)struct side \{.*?\n\};", text)
    return re.sub(r"/\*(?s:.*?)\*/|\s+", "", found[0]) if found else ""


def renamed(text, name, prefix):
    """Where the function is called, it is one of another file, or the one below."""
    return re.sub(HEAD.format(name=name), rf"\1{name}\2; \1{prefix}_{name}\2", text)


def compiled(text, out, *words):
    """Whether the compiler takes this text, and these words."""
    command = ["gcc", "-o", out, "-Icommon", "-Iblocks", "-xc", "-", *words]
    made = subprocess.run(
        command, input=text, text=True, capture_output=True, check=False, cwd=starter.ROOT
    )
    return made.returncode == 0


def made(path, out, text, *words):
    """The object file of this text, if that is not there yet."""
    if not os.path.exists(out) or os.path.getmtime(out) < os.path.getmtime(path):
        assert compiled(text, out, "-O1", "-w", "-std=gnu11", "-c", *words), path
    return out


def sample_object(lab, out):
    """The sample's functions."""
    path = starter.sample_of(lab)
    text = re.sub(r"(?m)^int main\(", "int sample_main(", starter.read(path))
    for name in TODOS[lab]:
        text = renamed(text, name, "sample")
    return made(path, out, text)


def suite_objects():
    """Of the C files that common/ and blocks/ have now: build/ may hold those of files that are gone."""
    files = glob.glob(f"{starter.ROOT}/common/*.c") + glob.glob(f"{starter.ROOT}/blocks/*.c")
    return [f"{starter.ROOT}/build/objects/{os.path.basename(file)[:-2]}.o" for file in files]


def objects(scratch):
    """Those of common/ and blocks/, with less for --bench to measure."""
    short = {}
    for name in "work", "measure":
        path = f"{starter.ROOT}/blocks/{name}.c"
        short[name] = made(path, f"{scratch}/short.{name}.o", starter.read(path), *SHORT)
    return [short.get(os.path.basename(path)[:-2], path) for path in suite_objects()]


def with_both(text, lab):
    """The student's file, in which each function takes the student's or the sample's; "" if it has others."""
    sample = starter.read(starter.sample_of(lab))
    heads = [re.search(HEAD.format(name=name), text) for name in TODOS[lab]]
    if side(text) != side(sample) or not all(heads):
        return ""
    text += BEGIN
    for number, (name, head) in enumerate(zip(TODOS[lab], heads), 1):
        returns, parameters = head.groups()
        values = "(" + ", ".join(re.findall(r"(\w+)(?:\[\w*\])?(?=,|\))", parameters)) + ")"
        text = renamed(text, name, "own") + (
            f"{returns}sample_{name}{parameters};\n{returns}{name}{parameters} {{\n"
            f"    return !hv_todo || hv_todo == {number} ? own_{name}{values} : sample_{name}{values};\n}}\n"
        )
    return text


def build(lab, files, out):
    """files: the student's C files. Returns the program ("" if it can't be built), and whether it has both of each."""
    main = next((path for path in files if "int main(" in starter.read(path)), "")
    if not main:
        return "", False
    scratch, text = os.path.dirname(out), starter.read(main)
    packed = f"{starter.ROOT}/learn/reference/{os.uname().machine}/{lab}.o"  # in a release
    both = with_both(text, lab)
    linked = [path for path in files if path != main] + objects(scratch) + ["-libverbs", "-lm"]
    words = [*SANITIZE, f"-I{os.path.dirname(main)}"]
    first = f'#line 1 "{os.path.basename(main)}"\n'  # the compiler's and the sanitizers' words name the student's lines
    if both:
        sample = (
            packed if os.path.exists(packed) else sample_object(lab, f"{scratch}/sample.{lab}.o")
        )
        if compiled(first + both, out, *words, "-xnone", sample, *linked):
            return out, True
    return (out, False) if compiled(first + text, out, *words, "-xnone", *linked) else ("", False)
