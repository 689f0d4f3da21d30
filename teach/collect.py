# SPDX-License-Identifier: BSD-2-Clause
"""Finds what students handed in, in whatever shape a learning platform delivers it: a folder or an
archive for each student, nested, or one flat folder with names in front. Archives come from strangers:
only short regular files are taken out, into a place of their own."""
import email.header
import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
import time
import zipfile
from contextlib import suppress
from pathlib import Path, PurePosixPath

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_FILES, MOST_BYTES = 500, 8 << 20  # of one submission
ARCHIVE = re.compile(
    r"(?i)\.(zip|eml|mht|mhtml|tar|tgz|tar\.(gz|xz|bz2))(\.txt)?$"
)  # a saved mail or page, too
SOURCE = re.compile(
    r"(?i)\.[ch](\.txt)?$|^(GNU)?makefile(\.txt)?$|\.mk$"
)  # Windows may have added .txt
UNREAD = re.compile(r"(?i)\.(docx?|odt|rtf|ipynb|pdf|pages|rar|7z)$")
# What stands in front of a file's own name, by platform, then a hand-in's text, then a word: Canvas
# (name_user_file_), Moodle, Blackboard.
PLATFORM = [
    re.compile(pattern)
    for pattern in (
        r"(.+?_(?:LATE_)?\d+)_\d+_(.+)$",
        r"(.+?_\d+)_assignsubmission_[a-z]+_?(.*)$",
        r"(.+?)_[^\W\d_]+_\d{4}-[\d-]+(?:_|(?=\.txt$))(.+)$",
    )
]
FLAT = [
    *PLATFORM,
    *map(re.compile, (r"(.*?)[-_. ]*(handin-.+)$", r"([^-_ ]+)[-_ ](.+\..+|Makefile)$")),
]
SUITE = {"common", "blocks", "tests", "testenv", "witness", "bench", "grading", "learn", "build"}


class Submission:
    """One student's, of one time. text: of make handin, or None; program: a directory, or None."""

    def __init__(self, name):
        self.name, self.text, self.program = name, None, None
        self.student, self.lab = "", ""  # as its text says, or its name
        self.when, self.refused, self.remarks = 0.0, "", []

    def digest(self):
        """Of the program's sources, by which an earlier result is found again."""
        sources = [f for f in files_of(self.program) if SOURCE.search(os.path.basename(f))]
        return hashlib.sha256(
            b"".join(
                hashlib.sha256(os.path.relpath(f, self.program).encode("utf-8", "replace")).digest()
                + hashlib.sha256(begins(f, MOST_BYTES)).digest()
                for f in sources
            )
        ).hexdigest()


def begins(path, size):
    with suppress(OSError), open(path, "rb") as file:
        return file.read(size)
    return b""


def regular(path):
    return os.path.isfile(path) and not os.path.islink(path)


def really_folder(path):
    return os.path.isdir(path) and not os.path.islink(path)


def small(path):
    return regular(path) and os.path.getsize(path) <= MOST_BYTES


def said(path):
    """Whose a text is, and of which lab, by its own words."""
    words = begins(path, 1 << 16).translate(None, b"\0\\").decode("latin-1")  # UTF-16, Markdown
    header = (re.findall(r"(?m)HANDIN[ \t].*?\bversion=1\b.*", words) or [""])[0]
    student, lab = (
        (re.findall(pattern, header) or [""])[0]
        for pattern in (r"(?a:\bstudent=([\w-]+|[^ -~\s]))", r"\blab=(0[567])\b")
    )
    return (
        (student, lab) if student.isascii() and student.isprintable() else ("?", lab)
    )  # full-width digits, say


def is_text(path):
    """Of make handin: no source, and nothing that is not read as text."""
    return (
        regular(path)
        and begins(path, 2) != b"PK"
        and not any(p.search(path) for p in (SOURCE, ARCHIVE, UNREAD))
        and said(path)[0] != ""
    )


def complete(path):
    return bool(
        re.search(b"=== end (runs )?complete", begins(path, MOST_BYTES).replace(b"\0", b""))
    )


def has_main(path):
    return path.endswith((".c", ".C", ".c.txt")) and re.search(
        rb"\bmain\s*\(", begins(path, MOST_BYTES)
    )


def members(path):
    """Of the regular files in an archive: name, size, time, and what it can be read from."""
    if zipfile.is_zipfile(path):  # whatever its name says
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                name = info.filename
                if (
                    not info.flag_bits & 0x800 and not name.isascii()
                ):  # of Chinese Windows: see PKWARE's appendix D
                    with suppress(UnicodeError):
                        name = name.encode("cp437").decode("gb18030")
                info.filename = name.replace("\\", "/")  # as old Windows' programs write it
                if info.filename[-1:] != "/" and stat.S_IFMT(info.external_attr >> 16) in (
                    0,
                    stat.S_IFREG,
                ):
                    yield info.filename, info.file_size, time.mktime(
                        (*info.date_time, 0, 0, -1)
                    ), archive.open(info)
    elif re.search(r"(?i)\.(eml|mht|mhtml)(\.txt)?$", path):
        mail = begins(path, MOST_BYTES)
        if re.search(
            rb"[^\n]{2000}|(\n[ \t][^\n]*){100}", mail
        ):  # with a header so long, parsing may take hours
            raise ValueError
        for n, part in enumerate(email.message_from_bytes(mail).walk()):
            if not part.is_multipart():
                name = email.header.decode_header(part.get_filename() or f"mail{n}.txt")
                data = part.get_payload(decode=True) or b""
                yield str(email.header.make_header(name)), len(data), os.path.getmtime(
                    path
                ), io.BytesIO(data)
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
        yield from (
            os.path.join(at, name)
            for name in sorted(names)
            if name[0] != "." and regular(os.path.join(at, name))
        )


def program_in(home, files, lab, remarks):
    """The directory of the program among these files below home: with its own Makefile, or all its C
    files. Of several programs the one called like the lab, or else the last that was written."""
    own = {f: os.path.relpath(f, home) for f in files if SOURCE.search(os.path.basename(f))}
    files = [f for f in own if not SUITE & set(own[f].split("/"))]
    folders = sorted(
        sorted({os.path.dirname(f) for f in files if has_main(f)}),
        key=lambda at: (
            f"my{lab}" in (name := os.path.relpath(at, home)),
            "program" in name,
            os.path.basename(at)[:2] == lab,
            max(os.path.getmtime(f) for f in files if f.startswith(at + "/")),
        ),
    )
    if not folders:
        return None
    if len(folders) > 1:
        remarks.append(f"of {len(folders)} programs that in {os.path.basename(folders[-1])} counts")
        files = [f for f in files if f.startswith(folders[-1] + "/")]
    root = os.path.commonpath([folders[-1], *(os.path.dirname(f) for f in files)])
    made = [
        at
        for at, name in map(os.path.split, files)
        if "akefile" in name and f"{folders[-1]}/".startswith(at + "/")
    ]
    return max(made, key=len) if made else root


def look_into(submission, folder, lab, scratch, ordered):
    """Finds text and program in a folder; the archives in it, and those in them, count as folders. ordered:
    of several texts the last counts by its name, not by its time."""
    files, bad = list(files_of(folder)), ""
    os.makedirs(scratch, exist_ok=True)
    for n, path in enumerate(archives := [f for f in files if ARCHIVE.search(f)]):
        os.mkdir(into := os.path.join(scratch, f"{n:03}"))
        bad = bad or unpack(path, into)
        files += (inside := list(files_of(into)))
        archives += [f for f in inside if ARCHIVE.search(f)][: 9 - len(archives)]
    if len(files) > 4 * MOST_FILES:
        submission.refused = f"it holds more than {4 * MOST_FILES} files"
        return
    texts = [f for f in files if is_text(f)]
    texts.sort(
        key=lambda f: (complete(f), 0 if ordered else os.path.getmtime(f))
    )  # the last counts: complete, if there is one
    parts = [
        f
        for f in files
        if texts and os.path.dirname(f) == os.path.dirname(texts[-1]) and f[-4:].lower() == ".txt"
    ]
    if any(map(complete, parts)) and not complete(texts[-1]):  # it is in several files
        files.append(os.path.join(scratch, "parts"))
        Path(files[-1]).write_bytes(
            b"\n".join(
                sorted(
                    (begins(f, MOST_BYTES) for f in parts),
                    key=lambda text: (b"HANDIN" not in text, b"=== answers" in text),
                )
            )
        )
        texts[-1:] = files[-1:]
    submission.remarks, submission.refused = ([bad] * bool(bad), "") if texts else ([], bad)
    submission.remarks += ["its text is in several files"] * (texts[-1:] == [f"{scratch}/parts"])
    if len({said(f)[0] for f in texts} - {""}) > 1:
        submission.refused = "it holds the texts of several students"
    submission.remarks += [f"of {len(texts)} texts the latest complete one counts"] * (
        len(texts) > 1
    )
    texts = texts or [f for f in files if re.search(r"(?i)handin.*\.txt$", f)][:1]
    submission.text = texts[-1] if texts else None
    submission.student, submission.lab = said(submission.text) if texts else ("", "")
    mains = b"".join(begins(f, MOST_BYTES) for f in files if has_main(f)).decode("latin-1")
    submission.lab = submission.lab or (re.findall('"(0[567])_[a-z]+_?[a-z]*"', mains) or [lab])[0]
    # The program that came with the text, in the same archive, before any other.
    home = next(
        (
            at
            for n in range(len(archives))
            if (submission.text or "").startswith((at := os.path.join(scratch, f"{n:03}")) + "/")
        ),
        folder,
    )
    submission.program = next(
        filter(
            None,
            (
                program_in(
                    at,
                    [f for f in files if f.startswith(at + "/")],
                    submission.lab,
                    submission.remarks,
                )
                for at in (home, folder, scratch)
            ),
        ),
        None,
    )
    submission.remarks += [f"not read: {os.path.basename(f)}" for f in files if UNREAD.search(f)][
        :3
    ]
    mine = [
        f
        for f in files
        if f == submission.text or (submission.program and f.startswith(submission.program))
    ]
    submission.when = max(map(os.path.getmtime, mine), default=0)
    for path in (f for f in files if os.path.basename(f) == "MANIFEST"):
        for digest, name in re.findall(
            r"(?m)^([0-9a-f]{64})  (.+)$", begins(path, 1 << 16).decode("utf-8", "replace")
        ):
            there = os.path.join(os.path.dirname(path), name)
            if hashlib.sha256(begins(there, MOST_BYTES)).hexdigest() != digest:
                submission.remarks.append(f"{name} isn't as make handin packed it")


def split(name, patterns):
    """A name: what stands in front of a file's own, and that. All of it, if nothing is known to."""
    return next((m.groups() for m in (p.match(name) for p in patterns) if m), (name, name))


def entries(folder, names, scratch):
    """The submissions in a folder, as name, directory, and the file if it is but one: each entry, or what
    lies side by side and has the same name in front."""
    groups = {}
    for name in names:
        own = split(name, PLATFORM if really_folder(os.path.join(folder, name)) else FLAT)
        groups.setdefault(own[0], []).append((own[1], name))
    for front, files in list(groups.items()):
        platform = split(files[0][1], PLATFORM)[0] == front
        if not front or (not platform and sum("handin-" in own for own, _ in files) > 1):
            for own, name in groups.pop(
                front
            ):  # of several students, or nothing that could name one
                groups.setdefault(name, []).append((own, name))
    for n, (front, files) in enumerate(sorted(groups.items())):
        alone = os.path.join(folder, files[0][1])
        if len(files) == 1 and really_folder(alone):
            yield front, alone, None
            continue
        place = os.path.join(scratch, f"side{n}")
        os.makedirs(place)
        for i, (own, name) in enumerate(files):
            path, to = os.path.join(folder, name), os.path.join(place, own or "x")
            if os.path.exists(to) or ARCHIVE.search(
                name
            ):  # maybe handed in twice: in the platform's order
                to = os.path.join(place, f"{i:03}", own or "x")
                os.makedirs(os.path.dirname(to))
            if really_folder(path):
                shutil.copytree(
                    path,
                    to,
                    symlinks=True,
                    ignore=lambda at, inside: [
                        one
                        for one in inside
                        if not really_folder(f"{at}/{one}") and not small(f"{at}/{one}")
                    ],
                )
            elif small(path):
                shutil.copy2(path, to)
        single = len(files) == 1
        yield files[0][1] if single and front != split(files[0][1], PLATFORM)[
            0
        ] else front, place, alone if single else None


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
    one = (one or "MANIFEST" in names) and not (
        len(paths) == 1 and regular(paths[0])
    )  # make handin's archive
    if one or (
        sum(bool(has_main(path)) for path in paths) == 1
        and sum(map(is_text, paths)) <= 1
        and not any(ARCHIVE.search(name) or split(name, PLATFORM)[0] != name for name in names)
    ):
        found = [(os.path.basename(os.path.abspath(folder)), folder, None)]  # one student's
    elif (
        len(names) == 1
        and really_folder(paths[0])
        and not any(entry.is_file() and entry.name[0] != "." for entry in os.scandir(paths[0]))
    ):
        return collect(paths[0], lab, scratch)  # a folder around the class
    else:
        found = entries(folder, names, scratch)
    hand_ins = []
    for n, (name, place, alone) in enumerate(found):
        inside = os.path.join(scratch, f"unpacked{n}")
        if (
            not (one or alone)
            and len({said(f)[0] for f in files_of(place) if is_text(f)} - {""}) > 1
        ):
            os.makedirs(inside)
            hand_ins += collect(place, lab, inside)  # a group's folder
            continue
        submission = Submission(name)
        look_into(submission, place, lab, inside, os.path.dirname(place) == scratch)
        if alone and not submission.program and not ARCHIVE.search(alone):
            submission.text = alone  # whatever it is
        submission.remarks += ["marked LATE by the platform"] * ("_LATE_" in name)
        hand_ins.append(submission)
    return joined(hand_ins)


def joined(found):
    """A program by itself belongs to the text by itself of the student that it is named after."""
    for text in [s for s in found if s.text and s.student and not s.program]:
        named = re.compile(f"(?<![A-Za-z0-9]){re.escape(text.student)}(?![A-Za-z0-9])")
        programs = [s for s in found if s.program and not s.text and named.search(s.name)]
        if len(programs) == 1:
            text.program, text.when = programs[0].program, max(text.when, programs[0].when)
            found.remove(programs[0])
    return found
