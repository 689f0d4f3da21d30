# SPDX-License-Identifier: BSD-2-Clause
"""Labs 05 to 07, whose TODOs are functions: programs in which one of them is the student's and the others are the
sample's. So each is judged alone, by what it does with a device, in whatever order they are written."""
import glob
import os
import re
import subprocess

import starter

# If it fails, it stays for a moment before it ends, so that its queues can be looked at. (run.py: "meanwhile")
STAY = """
static void stay(int status, void *_) { extern int usleep(unsigned); if (status) usleep(1000000); }
__attribute__((constructor)) static void stays(void) { extern int on_exit(void (*)(int, void *), void *); on_exit(stay, 0); }
"""
MESSAGE = ("post_chain", "post_message", "transfer")
TODOS = {  # as learn/places.txt has them, where it is not a release
    "05": ("build_gather_list", *MESSAGE),
    "06": ("build_scatter_list", *MESSAGE),
    "07": ("build_list", "post_sends", "post_receives", "post_ahead"),
}
HEAD = r"(?m)^static ([^;{{]*?\b{name}\([^)]*\))(?=\s*\{{)"  # where such a function begins


def side(text):
    """What the functions share, without its comments and blanks."""
    found = re.search(r"(?s)struct side \{.*?\n\};", text)
    return re.sub(r"/\*(?s:.*?)\*/|\s+", "", found[0]) if found else ""


def sample_object(lab, out):
    """The sample, in which each of these functions gives way to another one of the same name."""
    text = re.sub(r"(?m)^int main\(", "int sample_main(", starter.read(starter.sample_of(lab)))
    for name in TODOS[lab]:
        text = re.sub(HEAD.format(name=name), r"__attribute__((weak)) \1", text)
    subprocess.run(
        ["gcc", "-O1", "-w", "-std=gnu11", "-Icommon", "-Iblocks", "-xc", "-c", "-o", out, "-"],
        input=text,
        text=True,
        check=True,
        cwd=starter.ROOT,
    )


def suite_objects():
    """Of the C files that common/ and blocks/ have now: build/ may hold those of files that are gone."""
    files = glob.glob(f"{starter.ROOT}/common/*.c") + glob.glob(f"{starter.ROOT}/blocks/*.c")
    return [f"{starter.ROOT}/build/objects/{os.path.basename(file)[:-2]}.o" for file in files]


def objects(scratch):
    """Those of common/ and blocks/, with less for --bench to measure."""
    short = {name: f"{scratch}/short.{name}.o" for name in ("work", "measure")}
    for name, out in short.items():
        source = f"{starter.ROOT}/blocks/{name}.c"
        if not os.path.exists(out) or os.path.getmtime(out) < os.path.getmtime(source):
            subprocess.run(
                [
                    "gcc",
                    "-O1",
                    "-w",
                    "-DSWEEP_BYTES=0",
                    "-DROUND_BYTES=16384",
                    "-Icommon",
                    "-c",
                    "-o",
                    out,
                    source,
                ],
                check=True,
                cwd=starter.ROOT,
            )
    return [short.get(os.path.basename(path)[:-2], path) for path in suite_objects()]


def alone(text, names, own):
    """A program with one function of its own; the others are declared, and the sample's take their places."""
    for name in names:
        head = HEAD.format(name=name)
        if not re.search(head, text):
            return ""
        text = re.sub(
            head,
            lambda found, name=name: found[1]
            if name == own
            else (f"{found[1]}; static " + re.sub(rf"\b{name}\(", f"without_{name}(", found[1])),
            text,
        )
    return text + STAY


def compiled(file, others, own, out, flags, linked):
    """Whether it could be built. own: the source, in which the compiler's and sanitizers' words name the student's lines."""
    includes = [f"-I{d}" for d in ("common", "blocks", os.path.dirname(file))]
    return (
        subprocess.run(
            [
                "gcc",
                *flags,
                "-o",
                out,
                *includes,
                "-xc",
                "-",
                "-xnone",
                *others,
                *linked,
                "-libverbs",
                "-lm",
            ],
            input=f'#line 1 "{os.path.basename(file)}"\n{own}',
            text=True,
            capture_output=True,
            check=False,
            cwd=starter.ROOT,
        ).returncode
        == 0
    )


def build(lab, paths, flags, scratch):
    """paths: the student's C files. By number of a TODO: the program; none where that is not to be had alone."""
    found, sample = {}, starter.sample_of(lab)
    file = next((path for path in paths if "int main(" in starter.read(path)), "")
    text = starter.read(file) if file else ""
    if side(text) != side(starter.read(sample)):
        return {}
    whole = f"{starter.ROOT}/learn/reference/{os.uname().machine}/{lab}.o"
    if not os.path.exists(whole):  # it is no release
        whole = f"{scratch}/{lab}.o"
        if not os.path.exists(whole) or os.path.getmtime(whole) < os.path.getmtime(sample):
            sample_object(lab, whole)
    linked, others = [whole, *objects(scratch)], [path for path in paths if path != file]
    for number, name in enumerate(TODOS[lab], 1):
        out = f"{scratch}/{os.path.basename(os.path.dirname(file))}.{number}"
        own = alone(text, TODOS[lab], name)
        written = own and str(number) not in re.findall(starter.UNWRITTEN, text)
        if written and compiled(file, others, own, out, flags, linked):
            found[number] = out
    return found
