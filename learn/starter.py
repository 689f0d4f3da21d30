#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The samples without the lines that the student has to write.

    starter.py make LAB [DIR]    writes the starter of a lab (01 to 18) into the new directory DIR
                                 (default: my01, ...) beside the samples

places.txt says what is left out, places.zh.txt the same in Chinese. The comments in there stay: they are the
specification.
"""
import glob
import os
import re
import shutil
import sys

from words import folded, language, say, writing

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
# What a starter's program says of a TODO, in either language; testenv/demo.sh and others look for it, too.
UNWRITTEN = r"(?:is not written yet|尚未编写) \(TODO (\d+)\)"
WIDTH = 100  # as .clang-format has it


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def places():
    """{lab: its places, in the order in which the program reaches them}, from places.txt. A place has
    its number, and is a region of lines or a function. A release of the suite has those of whole samples alone.
    """
    found = listed("places.txt")
    if language() == "zh":
        for lab, chinese in listed("places.zh.txt").items():
            for place, words in zip(found[lab], chinese):
                place["called"] = words.get("called", place["name"] + " ")
                place.update({key: words[key] for key in ("what", "right", "see") if key in words})
    return found


def listed(name):
    """The same, as such a file has them."""
    found, lab, place = {}, None, None
    for line in read(f"{HERE}/{name}").splitlines():
        if line.startswith("== "):
            lab = found[line[3:]] = []
        elif line.startswith(("-- ", "++ ")):  # ++: the TODO before goes on here
            number = (lab[-1]["number"] if lab else 0) + line.startswith("--")
            place = {"number": number, "name": line[3:], "stub": []}
            lab.append(place)
        elif line and not line.startswith("#"):
            key, value = line.split(": ", 1)
            place[key] = [*place["stub"], value] if key == "stub" else value
    return found


def line_with(lines, text, name):
    at = [number for number, line in enumerate(lines) if text in line]
    if len(at) != 1:
        sys.exit(f"starter: {name}: {len(at)} lines, not one, have {text}")
    return at[0]


def function(source, name):
    """The match of a function: its head, and its body as group 1."""
    head = r"(?m)^static [^;{]*?\b%s\([^)]*\) \{\n(?=((?:.*\n)*?)\}\n)"
    functions = list(re.finditer(head % name, source))
    if len(functions) != 1:
        sys.exit(f"starter: {len(functions)} functions, not one, are named {name}")
    return functions[0]


def region(lines, place):
    """Number of the first line of a place, and of the line behind it."""
    name = place["name"]
    if "from" not in place:
        found = function("\n".join(lines) + "\n", name)
        first = found.string.count("\n", 0, found.end())
        return first, first + found[1].count("\n")
    first = line_with(lines, place["from"], name)
    end = (
        line_with(lines, place["to"], name) + 1
        if "to" in place
        else line_with(lines, place["before"], name)
    )
    while not lines[end - 1]:
        end -= 1
    return first, end


def names_in(lines, place):
    """What only a function's body may use: without it, that is a warning."""
    found = function("\n".join(lines) + "\n", place["name"])
    parameters = found[0].partition("(")[2].rpartition(")")[0]
    used = [re.search(r"\w+$", parameter)[0] for parameter in parameters.split(",")]
    others = re.findall(r"(?m)^static [^;{=]*?(\w+)\(", found.string[: found.start()])
    return used + [other for other in others if re.search(rf"\b{other}\(", found[1])]


def comments(lines, indent):
    """The comments that have lines of their own."""
    kept, within = [], False
    for line in lines:
        if within or line.lstrip().startswith("/*"):
            text = line.strip()
            kept.append(" " * indent + (" " if within else "") + text)
            within = "*/" not in line
    return kept


def stub(lines, place, first, end):
    """What stands in the place until it is written."""
    indent = len(lines[first]) - len(lines[first].lstrip())
    pad, number = " " * indent, place["number"]
    declared = list(place["stub"])
    if "from" not in place:
        declared.append(", ".join(f"(void){name}" for name in names_in(lines, place)) + ";")
    text = say("todo comment", number=number, what=place["what"])
    text += "".join(say(f"todo {key}", **place) for key in ("right", "see") if key in place)
    text = [line.rstrip() for line in folded(f"/* {text} */", WIDTH - indent - 3)]
    name = place.get("called", place["name"])
    message = folded(place["what"].replace('"', '\\"'), WIDTH - indent - 12)
    message = "\n".join(f'{pad}       "{part}"' for part in message)
    return [
        *(pad + part.rstrip() for line in declared for part in folded(line, WIDTH - indent)),
        pad + text[0],
        *(f"{pad} * {line}" for line in text[1:]),
        f"{pad}die(0, \"{say('todo stub', name=name, number=number)}\"\n{message});",
        *comments(lines[first:end], indent),
    ]


def starter(source, listed, written=0):
    """The program with a stub in each place whose number is above "written"."""
    lines = source.split("\n")
    found = [(*region(lines, place), place) for place in listed]
    for first, end, place in sorted(found, key=lambda each: each[:2], reverse=True):
        if place["number"] > written:
            lines[first:end] = stub(source.split("\n"), place, first, end)
    return "\n".join(lines)


def unwritten(source):
    """The number of the first TODO that is not written in a program, or 0."""
    return min(map(int, re.findall(UNWRITTEN, source)), default=0)


def stubs(source):
    """Of each TODO that is not written in a program: its line, its number, and what its program says is to write."""
    for found in re.finditer(UNWRITTEN + r"(?:: |：)((?:[^;]|;(?!\n))*)", source):
        begin = source.rfind("/* TODO ", 0, found.start())
        words = re.findall(r'"([^"]*)"', '"' + found[2])
        yield source.count("\n", 0, begin) + 1, found[1], "".join(words)


def sample_of(lab):
    """The sample's C file."""
    paths = glob.glob(f"{ROOT}/{lab}_*/*.c") if re.fullmatch(r"\d\d", lab) else []
    if len(paths) != 1:
        sys.exit(say("no sample", lab=lab))
    return paths[0]


def write(lab, text, directory):
    """A directory like a sample's."""
    if "/" in directory:
        sys.exit(say("not beside", lab=lab))
    if os.path.exists(f"{ROOT}/{directory}"):
        sys.exit(say("exists", directory=directory))
    path = sample_of(lab)
    name, place = os.path.basename(path), f"{ROOT}/{directory}"
    os.mkdir(place)
    shutil.copy(f"{os.path.dirname(path)}/Makefile", place)
    with open(f"{place}/{name}", "w", encoding="utf-8") as file:
        file.write(text)
    return f"{directory}/{name}"


def starter_of(lab):
    """The text of a lab's starter. In what release.py packs, it stands in the sample's place."""
    text, listed = read(sample_of(lab)), places()
    if lab in listed:
        return starter(text, listed[lab])
    if not unwritten(text):
        sys.exit(say("was the sample", lab=lab))
    return text


def make(lab, directory):
    text = starter_of(lab)
    print(say("starter made", path=write(lab, text, directory or "my" + lab)))
    for line, number, what in stubs(text):
        print(say("starter todo", line=line, number=number, what=what))


def main(arguments):
    if arguments[:1] == ["make"] and len(arguments) in (2, 3):
        make(arguments[1], "".join(arguments[2:]))
    else:
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    writing(main, sys.argv[1:])
