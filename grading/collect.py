# SPDX-License-Identifier: BSD-2-Clause
"""Finds what students handed in, in whatever shape a learning platform delivers it: a folder or an
archive for each student, nested, or one flat folder with names in front. Archives come from strangers:
only short regular files are taken out, into a place of their own."""
import hashlib
import os
import re
import shutil
import stat
import tarfile
import time
import zipfile
from contextlib import suppress
from pathlib import PurePosixPath

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_FILES, MOST_BYTES = 500, 8 << 20  # of one submission
ARCHIVE = re.compile(r"(?i)\.(zip|tar|tgz|tar\.(gz|xz|bz2))$")
SOURCE = re.compile(r"(?i)\.[ch]$|^(GNU)?makefile$|\.mk$")
HEADER = [b"HANDIN version=", *("HANDIN version=".encode(code) for code in ("utf-16-le", "utf-16-be"))]
# What stands in front of a file's own name: Canvas, Moodle, Blackboard, a hand-in's text, a word.
FLAT = [re.compile(pattern) for pattern in (
    r"(.+?_(?:LATE_)?\d+_\d+)_(.+)$", r"(.+?_\d+)_assignsubmission_[a-z]+_(.+)$",
    r"(.+?_attempt_\d{4}-[\d-]+)_(.+)$", r"(.*?)[-_. ]*(handin-.+)$", r"([^-_ ]+)[-_ ](.+\..+|Makefile)$")]
SUITE = {"common", "blocks", "tests", "testenv", "witness", "bench", "grading", "build"}


class Submission:
    """One student's, of one time. text: of make handin, or None; program: a directory, or None."""
    def __init__(self, name):
        self.name, self.text, self.program = name, None, None
        self.student, self.lab = "", ""  # as its text says, or its name
        self.when, self.refused, self.remarks = 0.0, "", []

    def digest(self):
        """Of the program's sources, by which an earlier result is found again."""
        sources = [f for f in files_of(self.program) if SOURCE.search(os.path.basename(f))]
        return hashlib.sha256(b"".join(
            hashlib.sha256(os.path.relpath(f, self.program).encode("utf-8", "replace")).digest()
            + hashlib.sha256(begins(f, MOST_BYTES)).digest() for f in sources)).hexdigest()

    def handed_in(self):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.when)) if self.when else ""


def begins(path, size):
    with suppress(OSError), open(path, "rb") as file:
        return file.read(size)
    return b""


def regular(path):
    with suppress(OSError):
        return stat.S_ISREG(os.lstat(path).st_mode)
    return False


def is_text(path):
    """Of make handin: no source, and no archive (a .docx is one)."""
    return regular(path) and not SOURCE.search(path) and begins(path, 2) != b"PK" and any(word in begins(path, 1 << 16) for word in HEADER)


def has_main(path):
    return path.endswith((".c", ".C")) and re.search(rb"\bmain\s*\(", begins(path, MOST_BYTES))


def members(path):
    """Of the regular files in an archive: name, size, time, and what it can be read from."""
    if zipfile.is_zipfile(path):  # whatever its name says
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.is_dir() and stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG):
                    yield (info.filename, info.file_size, time.mktime((*info.date_time, 0, 0, -1)),
                           archive.open(info))
    else:
        with tarfile.open(path) as archive:
            for info in archive:
                if info.isreg():
                    yield info.name, info.size, info.mtime, archive.extractfile(info)


def unpack(path, into):
    """Returns why it can't be, or nothing."""
    files, left = 0, MOST_BYTES
    try:
        for name, size, when, source in members(path):
            place = PurePosixPath(name.replace("\\", "/"))
            if place.is_absolute() or ".." in place.parts or "\0" in name:
                return "an archive holds a name that leads out of it"
            if any(part[0] == "." or part == "__MACOSX" for part in place.parts):
                continue
            files, left = files + 1, left - size
            if left < 0 or files > MOST_FILES:
                return f"an archive holds more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB"
            target = os.path.join(into, *place.parts)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "xb") as file:
                file.write(source.read(size))  # no more, whatever comes
            os.utime(target, (when, when))
    except Exception as error:  # pylint: disable=broad-exception-caught # these two raise anything
        return f"an archive can't be read: {type(error).__name__}"
    return ""


def files_of(folder):
    """All regular files below it that aren't hidden, without following links."""
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f[0] != "." and f != "__MACOSX")
        yield from (os.path.join(at, name) for name in sorted(names)
                    if name[0] != "." and regular(os.path.join(at, name)))


def program_in(files, lab, remarks):
    """The directory of the program among these files: with its own Makefile, or all its C files.
    Of several programs the one called like the lab, or else the last that was written."""
    files = [f for f in files if SOURCE.search(os.path.basename(f)) and not SUITE & set(f.split("/"))]
    folders = sorted({os.path.dirname(f) for f in files if has_main(f)}, key=lambda f: (
        f"my{lab}" in f, "program" in f, os.path.basename(f)[:2] == lab,
        max(os.path.getmtime(path) for path in files if path.startswith(f))))
    if not folders:
        return None
    if len(folders) > 1:
        remarks.append(f"of {len(folders)} programs that in {os.path.basename(folders[-1])} counts")
        files = [f for f in files if f.startswith(folders[-1] + "/")]
    root = os.path.commonpath([folders[-1], *(os.path.dirname(f) for f in files)])
    made = [os.path.dirname(f) for f in files if "akefile" in f and folders[-1].startswith(os.path.dirname(f))]
    return max(made, key=len) if made else root


def look_into(submission, folder, lab, scratch, inner=True):
    """Finds text and program in a folder; the archives in it count as folders."""
    files = list(files_of(folder))
    if len(files) > 4 * MOST_FILES:
        submission.refused = f"it holds more than {4 * MOST_FILES} files"
        return
    for n, path in enumerate([f for f in files if ARCHIVE.search(f)] if inner else ()):
        into = os.path.join(scratch, f"{n}")
        os.makedirs(into)
        submission.refused = submission.refused or unpack(path, into)
        files += files_of(into)
    texts = sorted((f for f in files if is_text(f)), key=os.path.getmtime) or \
        [f for f in files if re.search(r"(?i)handin.*\.txt$", f)][:1]
    submission.text = texts[-1] if texts else None
    if len(texts) > 1:
        submission.remarks.append(f"of {len(texts)} texts the latest counts")
    said = begins(submission.text or "", 1 << 16).replace(b"\0", b"").decode("latin-1")
    mains = b"".join(begins(f, MOST_BYTES) for f in files if has_main(f)).decode("latin-1")
    submission.lab = (re.findall(r"HANDIN .*?\blab=(0[567])\b", said) or re.findall('"(0[567])_[a-z]+_?[a-z]*"', mains)
                      or [lab])[0]
    submission.student = (re.findall(r"HANDIN .*?\bstudent=([\w-]+)", said, re.A) or [""])[0]
    submission.program = program_in(files, submission.lab, submission.remarks)
    unread = [os.path.basename(f) for f in files if re.search(r"(?i)\.(docx?|odt|pdf|pages|rar|7z)$", f)]
    submission.remarks += [f"not read: {name}" for name in unread[:3]]
    mine = [f for f in files if f == submission.text
            or (submission.program and f.startswith(submission.program))]
    submission.when = max(map(os.path.getmtime, mine), default=0)
    for path in (f for f in files if os.path.basename(f) == "MANIFEST"):
        for digest, name in re.findall(r"(?m)^([0-9a-f]{64})  (.+)$", begins(path, 1 << 16).decode("ascii", "replace")):
            there = os.path.join(os.path.dirname(path), name)
            if hashlib.sha256(begins(there, MOST_BYTES)).hexdigest() != digest:
                submission.remarks.append(f"{name} isn't as make handin packed it")


def flat(folder, names, scratch):
    """Files side by side, with names in front: returns folders of links to them, by that name."""
    groups = {}
    for name in names:
        found = next((m for m in (p.match(name) for p in FLAT) if m), None)
        front, own = found.groups() if found else (name, name)
        groups.setdefault(front, []).append((own, name))
    for front, files in list(groups.items()):
        texts = [entry for entry in files if "handin-" in entry[0]]
        if len(texts) > 1 or not front:  # of several students, or nothing that could name one
            for own, name in groups.pop(front):
                groups.setdefault(name, []).append((own, name))
    for n, (front, files) in enumerate(sorted(groups.items())):
        alone = files[0][1] if len(files) == 1 else None
        place = os.path.join(scratch, f"flat{n}")
        os.makedirs(place)
        for own, name in files:
            if regular(os.path.join(folder, name)) and os.path.getsize(os.path.join(folder, name)) <= MOST_BYTES:
                shutil.copy2(os.path.join(folder, name), os.path.join(place, own))
        yield alone or front, place, alone


def collect(folder, lab, scratch, one=False):
    """All submissions in a folder or an archive. lab: "05", where no text says which; scratch: an empty
    directory; one: all of it is one student's."""
    if os.path.isfile(folder):
        into = os.path.join(scratch, "all")
        os.makedirs(into)
        if why := unpack(folder, into):
            raise ValueError(f"{folder}: {why}")
        folder = into
    names = sorted(name for name in os.listdir(folder) if name[0] != "." and name != "__MACOSX")
    paths = [os.path.join(folder, name) for name in names]
    one = one and not (len(paths) == 1 and regular(paths[0]))
    if one or (sum(bool(has_main(path)) for path in paths) == 1 and sum(map(is_text, paths)) <= 1):
        units = [(os.path.basename(os.path.abspath(folder)), folder, None)]  # one student's
    elif len(names) == 1 and os.path.isdir(paths[0]) and not os.path.islink(paths[0]) and sum(
            any(is_text(path) or has_main(path) for path in files_of(child.path)) or bool(ARCHIVE.search(child.name))
            for child in os.scandir(paths[0])) > 1:
        return collect(paths[0], lab, scratch)  # a folder around the class
    else:
        real = {name for name, path in zip(names, paths) if os.path.isdir(path) and not os.path.islink(path)}
        units = [(name, os.path.join(folder, name), None) for name in names if name in real]
        units += flat(folder, [name for name in names if name not in real], scratch)
    found = []
    for n, (name, place, alone) in enumerate(sorted(units)):
        submission = Submission(name)
        look_into(submission, place, lab, os.path.join(scratch, f"unpacked{n}"))
        if alone and not submission.program and not ARCHIVE.search(alone):
            submission.text = os.path.join(folder, alone)  # whatever it is
        if "_LATE_" in name:
            submission.remarks.append("marked LATE by the platform")
        found.append(submission)
    return joined(found)


def joined(found):
    """A program by itself belongs to the text by itself of the student that it is named after."""
    for text in [s for s in found if s.text and s.student and not s.program]:
        named = re.compile(f"(?<![A-Za-z0-9]){re.escape(text.student)}(?![A-Za-z0-9])")
        programs = [s for s in found if s.program and not s.text and named.search(s.name)]
        if len(programs) == 1:
            text.program, text.when = programs[0].program, max(text.when, programs[0].when)
            found.remove(programs[0])
    return found
