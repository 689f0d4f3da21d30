# SPDX-License-Identifier: BSD-2-Clause
"""Labs 05 to 07, whose TODOs are functions: programs in which one of them is the student's and the others are the
sample's. So each is judged alone, by what it does with a device, in whatever order they are written."""
import glob
import os
import re
import subprocess

import starter

# If it fails, it stays for a moment before it ends, so that its queues can be looked at. (seen.py: "meanwhile")
STAY = """
static void stay(int status, void *_) { extern int usleep(unsigned); if (status) usleep(1000000); }
__attribute__((constructor)) static void stays(void) { extern int on_exit(void (*)(int, void *), void *); on_exit(stay, 0); }
"""
HEAD = r"(?m)^static ([^;{{]*?\b{name}\([^)]*\))(?=\s*\{{)"  # where such a function begins


def functions(lab):
    """The names of those that are TODOs, by number; read from the starter, for a release has no others."""
    text = starter.starter_of(lab)
    return {
        int(number): name
        for name, number in re.findall(
            re.escape('die(0, "') + r"(\w+) " + re.escape(starter.UNWRITTEN) + r"(\d+)", text
        )
    }


def side(text):
    """What the functions share, without its comments and blanks."""
    found = re.search(r"(?s)struct side \{.*?\n\};", text)
    return re.sub(r"/\*(?s:.*?)\*/|\s+", "", found[0]) if found else ""


def sample_object(lab, out):
    """The sample, in which each of these functions gives way to another one of the same name."""
    text = re.sub(r"(?m)^int main\(", "int sample_main(", starter.read(starter.sample_of(lab)))
    for name in functions(lab).values():
        text = re.sub(HEAD.format(name=name), r"__attribute__((weak)) \1", text)
    subprocess.run(
        ["gcc", "-O1", "-w", "-std=gnu11", "-Icommon", "-Iblocks", "-xc", "-c", "-o", out, "-"],
        input=text,
        text=True,
        check=True,
        cwd=starter.ROOT,
    )


def objects(scratch):
    """Those of common/ and blocks/, with less for --bench to measure."""
    short = {name: f"{scratch}/short.{name}.o" for name in ("blocks", "measure")}
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
    return [
        path
        for path in glob.glob(f"{starter.ROOT}/build/objects/*.o")
        if os.path.basename(path)[:-2] not in short
    ] + list(short.values())


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
    names, found = functions(lab), {}
    file = next((path for path in paths if "int main(" in starter.read(path)), "")
    text = starter.read(file) if file else ""
    if side(text) != side(starter.starter_of(lab)):
        return {}
    (
        whole,
        sample,
    ) = f"{starter.ROOT}/learn/reference/{os.uname().machine}/{lab}.o", starter.sample_of(lab)
    if not os.path.exists(whole):  # it is no release
        whole = f"{scratch}/{lab}.o"
        if not os.path.exists(whole) or os.path.getmtime(whole) < os.path.getmtime(sample):
            sample_object(lab, whole)
    linked = [whole, *objects(scratch)]
    for number, name in names.items():
        own, out = (
            alone(text, names.values(), name),
            f"{scratch}/{os.path.basename(os.path.dirname(file))}.{number}",
        )
        others = [path for path in paths if path != file]
        if (
            f"{starter.UNWRITTEN}{number})" not in text
            and own
            and compiled(file, others, own, out, flags, linked)
        ):
            found[number] = out
    return found
