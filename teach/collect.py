# SPDX-License-Identifier: BSD-2-Clause
"""Finds the hand-ins in what a learning platform delivers: folders in folders, names in front of a file's own, or one
zip of all. A hand-in is the zip that make handin wrote, packed or not: what holds its manifest; for grade-program
also a folder with C files. Archives come from strangers."""
import hashlib
import os
import re
import tempfile
import time
import zipfile
from contextlib import suppress

from expected import SAMPLES, VALID_ID

ONE = 500, 8 << 20  # files and bytes of a hand-in
CLASS = 50000, 1 << 30  # of the one zip that a platform makes of a class
DEEPEST = 20  # folders in folders
SOURCE = re.compile(r"(\.[ch]|\.mk|(^|/)(GNU)?[Mm]akefile)$")
RECEIPT = re.compile(r"_attempt_[\d-]+\.txt$")  # Blackboard's own
FIRST = re.compile(rf"HANDIN version=2 student=({VALID_ID.pattern}) lab=(0[567]) sizes=\S+")


def printable(text, width):
    """With ? for what a terminal may obey, cut at width."""
    text = text if len(text) <= width else text[: width - 3] + "..."
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def regular(path):
    return os.path.isfile(path) and not os.path.islink(path)


def begins(path, size):
    """Of a regular file: opening another can do things."""
    with suppress(OSError):
        if regular(path):
            with open(path, "rb") as file:
                return file.read(size)
    return b""


def shown(name):
    return name[0] != "." and name != "__MACOSX"


def files_of(folder):
    """All regular files below it that aren't hidden, without following links."""
    if os.path.islink(folder):
        return
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(filter(shown, folders))
        paths = (os.path.join(at, name) for name in sorted(names) if shown(name))
        yield from filter(regular, paths)


class Handin:
    """What was handed in as one thing, and what is found to be wrong with it. Without a folder it is refused."""

    def __init__(self, name, folder, refused=""):
        self.name, self.folder = printable(name, 200), folder
        self.student, self.lab, self.when, self.end = "", "", 0.0, ""
        self.base, self.program = folder, []  # its place and files
        self.digests, self.runs, self.figures = {}, {}, {}  # by file; part and side; point
        self.reasons, self.remarks = {}, []  # by part, why it is wrong; notes
        self.shared = []  # with whom it has a run in common
        self.parts = []  # see settle in grade.py
        self.row, self.counts = None, True  # of grade-program; is it the student's latest?
        if folder and os.path.lexists(f"{folder}/manifest"):
            refused = "" if self.read_manifest() else "its manifest names no student and lab"
        elif folder:
            self.program = list(filter(SOURCE.search, files_of(folder)))
            refused = "it is a program without make handin's manifest"
        self.refused = f"{refused}: run make handin again and hand in its zip" if refused else ""

    def read_manifest(self):
        lines = self.read("manifest").splitlines()
        first = FIRST.fullmatch(lines[0] if lines else "")
        if not first:
            return False
        self.student, self.lab = first.groups()
        self.sample = SAMPLES[int(self.lab) - 1]
        self.digests = {line[66:]: line[:64] for line in lines[1:-1]}
        self.end = lines[-1].removeprefix("end ")
        self.when = os.path.getmtime(f"{self.folder}/manifest")
        self.base = f"{self.folder}/program"
        self.program = list(files_of(self.base))
        there = {os.path.relpath(path, self.folder) for path in self.program}
        there |= {name for name in self.digests if not name.startswith("runs/")}
        for why in filter(None, map(self.edited, sorted(there))):
            self.note(why)
        return True

    def edited(self, name):
        """Why this file of it is not what make handin packed, or nothing."""
        data = begins(f"{self.folder}/{name}", ONE[1])
        good = hashlib.sha256(data).hexdigest() == self.digests.get(name)
        return "" if good else f"{name} isn't as make handin packed it"

    def read(self, name):
        return begins(f"{self.folder}/{name}", ONE[1]).decode("utf-8", "replace")

    def digest(self):
        """Of the program, by which an earlier result is found again."""
        sums = [
            (os.path.relpath(path, self.folder), hashlib.sha256(begins(path, ONE[1])).digest())
            for path in self.program
        ]
        return hashlib.sha256(repr(sums).encode()).hexdigest()

    def note(self, words):
        self.remarks.append(printable(words, 200))

    def wrong(self, part, words, line=None):
        """line shows it."""
        words += f"\n     the line: {printable(line, 99)}" if line else ""
        self.reasons.setdefault(part, []).append(words)

    def lines(self, part):
        return [line for side in self.runs.get(part, {}).values() for line in side]


def unpack(path, into, most):
    """Returns why it can't be, or nothing. What extract makes are regular files within, as long as is said."""
    try:
        with zipfile.ZipFile(path) as archive:
            files = [info for info in archive.infolist() if not info.is_dir()]
            deepest = max((info.filename.count("/") for info in files), default=0)
            size = sum(info.file_size for info in files)
            if len(files) > most[0] or size > most[1] or deepest > DEEPEST:
                limits = f"{most[0]} files, {most[1] >> 20} MiB or {DEEPEST} folders in each other"
                return f"an archive of more than {limits}"
            for info in files:
                when = time.mktime((*info.date_time, 0, 0, -1))
                os.utime(archive.extract(info, into), (when, when))
    except Exception as error:  # pylint: disable=broad-exception-caught # zipfile raises anything
        return f"an archive that can't be read ({type(error).__name__})"
    return ""


def is_one(folder, names):
    """Has it a manifest, or is it a program alone?"""
    return "manifest" in names or (
        any(map(SOURCE.search, names))
        and not any(f.endswith(("/manifest", ".zip")) for f in files_of(folder))
    )


def look(path, name, scratch, *limits):
    """The hand-ins in a folder or a file; where there is none, one with the reason. limits: of an archive, and of one in it."""
    if os.path.isdir(path) and not os.path.islink(path):
        names = sorted(filter(shown, os.listdir(path)))
        if is_one(path, names):
            return [Handin(name or os.path.basename(os.path.abspath(path)), path)]
        more = ((f"{path}/{own}", f"{name}/{own}".lstrip("/")) for own in names)
        return [h for at, own in more for h in look(at, own, scratch, *limits)]
    if RECEIPT.search(name):
        return []
    if not regular(path):
        why = "a link or a device"
    elif begins(path, 2) != b"PK":
        why = f"a {os.path.splitext(path)[1]} file, no zip"
    elif not limits:
        why = "an archive in an archive in another"
    elif not (why := unpack(path, into := tempfile.mkdtemp(dir=scratch), limits[0])):
        found = look(into, name, scratch, *limits[1:])
        if any(h.folder for h in found):
            return found
        why = "a zip without the manifest of make handin"
    return [Handin(name, "", f"it is {why}")]


def collect(folder, scratch):
    """All hand-ins in a folder or a zip, a class's or a student's. scratch: an empty directory."""
    os.stat(folder)  # or it is said that there is none
    whole = "" if os.path.isdir(folder) else os.path.basename(folder)
    return look(folder, whole, scratch, CLASS if whole else ONE, ONE)


def programs(folder, scratch, lab):
    """Those of this lab's hand-ins; where none has a manifest, all that are there."""
    hs = [h for h in collect(folder, scratch) if h.program]
    for h in hs if re.fullmatch("0[567]", lab) and all(h.refused for h in hs) else ():
        h.lab = lab
    return [h for h in hs if h.lab == lab]
