# SPDX-License-Identifier: BSD-2-Clause
"""Finds the hand-ins in what a learning platform delivers: folders in folders, names in front of a file's own, or one
zip of all. A hand-in is the zip that make handin wrote, packed or not: what holds its manifest. Archives come
from strangers: only short regular files are taken out, into a place of their own."""
import hashlib
import os
import re
import stat
import tempfile
import time
import zipfile
from contextlib import suppress
from pathlib import PurePosixPath

from expected import VALID_ID

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_FILES, MOST_BYTES, DEEPEST = 500, 8 << 20, 20  # of one archive; folders in folders
ARCHIVES = 2  # one in the other: a class's, and a hand-in's
SOURCE = re.compile(r"(\.[ch]|^(GNU)?[Mm]akefile|\.mk)$")
RECEIPT = re.compile(r"_attempt_[\d-]+\.txt$")  # Blackboard's own
FIRST = re.compile(r"HANDIN version=2 student=(\S+) lab=(0[567]) sizes=\S+")
AGAIN = "run make handin again and hand in its zip"


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
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(filter(shown, folders))
        paths = (os.path.join(at, name) for name in sorted(names) if shown(name))
        yield from filter(regular, paths)


class Submission:
    """What was handed in as one thing. folder: of a manifest, or a program alone; program: a folder, or None."""

    def __init__(self, name, folder, lab, why=""):
        self.name, self.folder, self.lab, self.student, self.end = name, folder, lab, "", ""
        self.when, self.digests, self.program = 0.0, {}, None
        self.remarks = ["marked LATE by the platform"] * ("_LATE_" in name)
        if folder and os.path.lexists(f"{folder}/manifest"):
            why = self.read_manifest()
        elif folder:
            self.program, why = folder, "it is a program without make handin's manifest"
        self.refused = f"{why}: {AGAIN}" if why else ""

    def read_manifest(self):
        """Returns why it is none, or nothing."""
        lines = self.read("manifest").splitlines()
        first = FIRST.fullmatch(lines[0] if lines else "")
        if not first or not VALID_ID.fullmatch(first[1]):
            return "its manifest names no student and lab"
        self.student, self.lab = first.groups()
        self.digests = {line[66:]: line[:64] for line in lines[1:-1]}
        self.end = lines[-1].removeprefix("end ")
        self.when = os.path.getmtime(f"{self.folder}/manifest")
        own = f"{self.folder}/program"
        if not os.path.islink(own) and any(SOURCE.search(f) for f in files_of(own)):
            self.program = own
        there = {os.path.relpath(f, self.folder) for f in files_of(own)}
        there |= {name for name in self.digests if not name.startswith("runs/")}
        self.remarks += filter(None, map(self.edited, sorted(there)))
        return ""

    def edited(self, name):
        """Why this file of it is not what make handin packed, or nothing."""
        data = begins(f"{self.folder}/{name}", MOST_BYTES)
        good = hashlib.sha256(data).hexdigest() == self.digests.get(name)
        return "" if good else f"{name} isn't as make handin packed it: the manifest says so"

    def read(self, name):
        return begins(f"{self.folder}/{name}", MOST_BYTES).decode("utf-8", "replace")

    def digest(self):
        """Of the program's sources, by which an earlier result is found again."""
        whole = hashlib.sha256()
        for path in files_of(self.program):
            if SOURCE.search(os.path.basename(path)):
                name = os.path.relpath(path, self.program).encode("utf-8", "replace")
                whole.update(hashlib.sha256(name).digest())
                whole.update(hashlib.sha256(begins(path, MOST_BYTES)).digest())
        return whole.hexdigest()


def unpack(path, into):
    """Returns why it can't be, or nothing."""
    files, left = 0, MOST_BYTES
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                name = info.filename.replace("\\", "/")  # as old Windows' programs write it
                place = PurePosixPath(name)
                if place.is_absolute() or ".." in place.parts or "\0" in name:
                    return "an archive with a name that leads out of it"
                regular_file = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
                if name[-1:] == "/" or not regular_file or not all(map(shown, place.parts)):
                    continue
                files, left = files + 1, left - info.file_size
                if left < 0 or files > MOST_FILES or len(place.parts) > DEEPEST:
                    return (
                        f"an archive of more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB, "
                        f"or of more than {DEEPEST} folders in each other"
                    )
                target = os.path.join(into, *place.parts)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with archive.open(info) as source, open(target, "xb") as file:
                    file.write(source.read(info.file_size))  # no more, whatever comes
                os.utime(target, (time.mktime((*info.date_time, 0, 0, -1)),) * 2)
    except Exception as error:  # pylint: disable=broad-exception-caught # zipfile raises anything
        return f"an archive that can't be read ({type(error).__name__})"
    return ""


def is_one(folder, names):
    """Has it a manifest, or is it a program alone?"""
    return "manifest" in names or (
        any(SOURCE.search(name) for name in names)
        and not any(f.endswith("/manifest") or begins(f, 2) == b"PK" for f in files_of(folder))
    )


def look(path, name, lab, scratch, archives=0):
    """The submissions in a folder or a file; where there is none, one with the reason."""
    if os.path.isdir(path) and not os.path.islink(path):
        names = sorted(filter(shown, os.listdir(path)))
        if is_one(path, names):
            return [Submission(name or os.path.basename(os.path.abspath(path)), path, lab)]
        more = ((f"{path}/{own}", f"{name}/{own}".lstrip("/")) for own in names)
        return [s for at, own in more for s in look(at, own, lab, scratch, archives)]
    if RECEIPT.search(name):
        return []
    if not regular(path):
        why = "a link or a device"
    elif begins(path, 2) != b"PK":
        why = f"a {os.path.splitext(path)[1]} file, no zip"
    elif archives == ARCHIVES:
        why = "an archive in an archive in another"
    elif not (why := unpack(path, into := tempfile.mkdtemp(dir=scratch))):
        found = look(into, name, lab, scratch, archives + 1)
        if any(s.folder for s in found):
            return found
        why = "a zip without the manifest of make handin"
    return [Submission(name, "", lab, f"it is {why}")]


def collect(folder, lab, scratch, one=False):
    """All submissions in a folder or a zip. lab: of programs alone; scratch: an empty directory; one: all of
    it is one student's, of whom a whole hand-in counts before all else."""
    os.stat(folder)  # or it is said that there is none
    found = look(folder, "" if os.path.isdir(folder) else os.path.basename(folder), lab, scratch)
    return sorted(found, key=lambda s: bool(s.refused))[:1] if one else found
