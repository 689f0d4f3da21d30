# SPDX-License-Identifier: BSD-2-Clause
"""Reads a file that make handin wrote, and checks the pairs in it.

It comes from somebody who may not wish this program well: only a regular file is opened, no more
than MAX_FILE of it is read, and every expression here takes time in proportion to the text. Honest
people's files have been through editors and mail: what that does is remarked and costs nothing."""
import csv
import html
import io
import os
import re
import sys
import unicodedata
from contextlib import suppress

import collect
import expected

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "learn"))
import answers  # pylint: disable=wrong-import-position # of learn/: what make answers writes

MAX_FILE, MAX_LINES, REASONS = (
    1 << 20,
    50000,
    3,
)  # bytes, of which a good one has some 20,000; and reasons kept of each part
PARTS = expected.SAMPLES + ("measured", "complete", "figures", "chosen", "own", "answers")
SECTIONS = PARTS[:8]

MARK = re.compile(
    "=== +([^ ]+)(?: +exit +([0-9]+))?(?: +[^ =\\w][^ ]*)?$"
)  # an editor's mark behind it
SIDE = re.compile("--- (server|client)(?: on [0-9.]+)?: ")
# How the last line says that all runs are there; behind it stands how many answers are.
END = re.compile(r"=== +end +(runs +)?complete( +\([^()]{0,80}\))?$")
# What is shown of strangers' names and lines: ASCII, Latin and Chinese, nothing that a terminal obeys.
HIDDEN = re.compile(
    "[^ -~\u00b7\u00c0-\u024f\u3001-\u3011\u3400-\u9fff\uff01-\uff5e\U00020000-\U000323af]"
)
# What a terminal obeys and does not show (ECMA-48, control sequences; xterm, titles): of what was copied from there.
COLOUR = re.compile("\x1b(\\[[0-?]{0,20}[ -/]{0,2}[@-~]|\\][^\x07\x1b\n]{0,200}(\x07|\x1b\\\\))")
# A line that a mail program broke, but not behind what ends a RESULT, a LAYOUT or a BENCH; a page may end there.
WRAPPED = re.compile(
    "(?m)^[ \t]{0,40}((?:RESULT|BENCH|LAYOUT|HANDIN|ENV|REGISTER|MODEL) (?![^\n]{0,300} (?:digest|seed|repeats)=)"
    "[^\n]{1,300}?) ?\n(?:[^\n=]{0,150}\n){0,5}[ \t]{0,40}(?=[A-Za-z0-9_]{1,20}=)"
)
# What stands before each line: in a mail, a patch, a log with the time, a listing with numbers.
BEFORE = re.compile("(?m)^([^\n]{1,60}?)HANDIN[ \t]+version=1")
UNSEEN = (
    "[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]"  # zero-width, or for the direction of writing
)
# Of word processors: pages, blanks, quotation marks in UTF-8, Windows-1252 and Mac Roman; dashes, arrows, ligatures.
PLAIN = str.maketrans(
    "\f\xa0\u2018\u2019\u201c\u201d\udca0\udc91\udc92\udc93\udc94\udcca\udcd4\udcd5\udcd2\udcd3\udc96\udc97\udcd0\udcd1\u2011\u2013\u2014",
    "  ''\"\" ''\"\" ''\"\"-------",
) | {
    0x2026: "...",
    0xDC85: "...",
    0xDCC9: "...",
    0x2192: "->",
    0xF0E0: "->",
    0xDCE0: "->",
    0xFB00: "ff",
    0xFB01: "fi",
    0xFB02: "fl",
}
CELL = re.compile('HANDIN version=1 [^\n"]{1,300}sizes=[0-9KM,]+')  # a table's, with the first line
FIELD = re.compile(
    "(student|lab|sizes|block_(size|num)|stride|bytes|iters|depth|clock|lat_p[59][09]_us|bw_MBps|copy_us|repeats|seed|role|status|digest)="
)
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# How lines begin that pair.sh or a sample prints, now or formerly.
KNOWN = re.compile(
    r"(ENV|LAYOUT|RESULT|BENCH|REGISTER|MODEL|waiting for|device|\([a-z]+|memory holds|"
    r"found|wrote|sent|received|read|lent|exposed|[0-9]+ x|the word|moved|0[1-7]_[a-z_]+ (server|client):|"
    r"--- (server|client)( on [0-9.]+)?:|  hint:|=== end) "
)
FOOT = re.compile(
    r"(?m)(^(?!{0})[^\n]{{0,200}}\n{{1,3}})?\f\n{{0,3}}(?!{0})[^\n\f=]{{0,200}}$".format(
        "[ \t0-9>|\u2502]{0,20}(===|HANDIN|" + FIELD.pattern + "|" + KNOWN.pattern + ")"
    )
)  # of a page, and the next one's head


class Refused(Exception):
    """Nothing of the file counts, and why."""


def printable(text, width):
    """With ? for what is hidden, cut at width."""
    return HIDDEN.sub("?", text if len(text) <= width else text[: width - 3] + "...")


class Handin:
    """A student's text, and what is found to be wrong with it. It came as this submission (collect)."""

    def __init__(self, submission):
        self.path, self.file, self.from_ = (
            submission.text,
            printable(submission.name, 200),
            submission,
        )
        self.student, self.lab = "", 5  # 5, 6 or 7
        self.lines, self.sections = [], {}  # of a section: its first line, and that behind it
        self.remarks, self.refused = (
            list(submission.remarks),
            "",
        )  # which cost nothing; why nothing counts
        self.reasons, self.why, self.points = {}, {}, {}  # by part: all that is wrong; see settle
        self.row, self.counts = None, True  # what grade-program found; is it the student's latest?

    def wrong(self, part, words, line=None):
        """line shows it. Of more reasons than are kept only the number is."""
        reasons = self.reasons.setdefault(part, [])
        if line is not None and len(reasons) < REASONS:
            words += f"\n     line {line + 1}: {printable(self.lines[line], 99)}"
        reasons.append(words if len(reasons) < REASONS else "")


def wide_id(text):
    """What is wrong with an ID that was typed with full-width digits or letters."""
    narrow = unicodedata.normalize("NFKC", text)
    if text.isascii() or not expected.VALID_ID.fullmatch(narrow):
        return ""
    return (
        f"it has full-width digits or letters instead of {narrow}: type it without the input method"
    )


def fields(line, word):
    """The name=value in a line that begins with word, None for the value of one that is there
    twice. Empty if there are none: a program's extra output may begin like a sample's line."""
    found = {}
    for text in line.split()[1:] if line.startswith(word + " ") else ():
        name, equals, value = text.partition("=")
        if equals:
            found[name] = None if name in found else value
    return found


def whole_number(found, name):
    """None if it is none, or has more than 64 bits."""
    text = found.get(name) or ""
    return (
        int(text)
        if len(text) <= 20 and text.isascii() and text.isdigit() and int(text) < 1 << 64
        else None
    )


def read_header(h):
    """Returns the number of the line that says whose it is: the first but for a human's words."""
    headers = [
        (i, found)
        for i, line in enumerate(h.lines)
        if (found := fields(line, "HANDIN")).get("version") == "1"
    ]
    if not headers:
        raise Refused("its first line is not that of a hand-in")
    at, header = headers[0]
    # Of runs one behind the other in a file the last counts that has an end.
    starts = [
        i for i, found in headers if found == header and any(map(MARK.match, h.lines[i : i + 99]))
    ] + [len(h.lines)]
    runs = [(i, end) for i, end in zip(starts, starts[1:]) if any(map(END.match, h.lines[i:end]))]
    at, end = (runs or [(at, len(h.lines))])[-1]
    del h.lines[end:]
    student = header.get("student") or ""
    if not expected.VALID_ID.fullmatch(student):
        raise Refused(
            f"the student's ID in its first line: {wide}"
            if (wide := wide_id(student))
            else "its first line names no student"
        )
    h.student = student
    # Course servers put other things around the ID in a file's name.
    named = h.file + "/" + os.path.basename(h.path)
    if not re.search(f"(?<![A-Za-z0-9]){student}(?![A-Za-z0-9])", named):
        if "handin-" in named:
            raise Refused(f"it is student {student}'s, by its first line, and not by its name")
        h.remarks.append(f"student {student} by its first line alone: no name says so")
    if header.get("lab") not in ("05", "06", "07"):
        raise Refused("its first line doesn't say lab=05, 06 or 07")
    h.lab = int(header["lab"])
    return at


def find_sections(h, header):
    """Where each lies: === NAME, its lines, === NAME exit STATUS. The answers are the last, and
    may hold anything; or the first, up to a section. Returns the lines that make handin didn't write.
    """
    behind = len(h.lines)
    answers = next(
        (i for i in range(header, behind) if re.fullmatch("=== +answers", h.lines[i])), behind
    )
    begins = [
        i for i in range(header, behind) if (mark := MARK.match(h.lines[i])) and mark[1] in SECTIONS
    ]
    if begins and answers < begins[0]:
        behind = begins[0]
    opened, start, written, strange = None, 0, {}, [i for i in range(header) if h.lines[i]]
    for i in [*range(header + 1, answers), *range(behind, len(h.lines))]:
        line = h.lines[i]
        mark = MARK.match(line)
        name, status = mark.groups() if mark else (None, None)
        if name == opened and status:
            text = list(filter(None, h.lines[start : i + 1]))
            if opened in written:
                h.remarks.append("it came with a section twice, word for word")
            if written.setdefault(opened, text) != text:
                h.wrong(opened, "it is there twice", start)
            h.sections[opened] = [start + 1, i]
            if status.strip("0"):
                h.wrong(opened, "it failed", i)
            opened = None
        elif name in SECTIONS or (not opened and re.match("===(?! +end ) ", line)):
            if opened:
                h.wrong(opened, "it has no end before the next section", i)
            opened, start = name if name in SECTIONS and not status else None, i
            if not opened:
                h.wrong("complete", "no section is called so", i)
            else:
                h.sections.setdefault(name, [i + 1, None])
        elif line and not (line.isascii() and KNOWN.match(line)):
            strange.append(i)
    if opened:
        h.wrong(opened, "it is cut off: it has no end", start)
    h.sections["answers"] = [answers + 1, behind]
    if answers == len(h.lines):
        h.wrong("answers", "there are none")
    if not any(line.startswith("ENV ") for line in h.lines[:answers] + h.lines[behind:]):
        h.wrong("complete", "no line describes the environment")
    last = max(i for i, line in enumerate(h.lines) if i == 0 or line.startswith("==="))
    if END.match(h.lines[last]):
        return strange + [i for i in range(max(last + 1, answers), len(h.lines)) if h.lines[i]]
    h.wrong("complete", 'the last line isn\'t "=== end complete"', len(h.lines) - 1)
    return strange


def check_fields(h, part, i, found, right):
    """right: of each field the value, and what is to be said of another."""
    for name, (value, words) in right.items():
        said = whole_number(found, name) if isinstance(value, int) else found.get(name)
        if said is None:
            words = f"{name}= is missing, double or no number"
        if said != value:
            h.wrong(part, words, i)


def check_side(h, part, first, end, sample, role):
    """One side's transcript: all that it must say, and no error."""
    layout, seed, message = expected.of_student(h.student)
    numbers = {**layout._asdict(), "seed": seed} if part not in expected.SAMPLES[:4] else {}
    other = f"is not what student {h.student} has"
    right_layout = {name: (value, f"{name} {other}") for name, value in numbers.items()}
    right_result = {
        "sample": (sample, f"the {role}'s result is of another sample"),
        "role": (role, f"the {role}'s result is of another role"),
        "status": ("PASS", f"the {role} didn't pass"),
        "bytes": (message[part][0], f"bytes {other}"),
        "digest": (
            f"{message[part][1]:016x}",
            f"the {role}'s digest is not that of student {h.student}'s message",
        ),
    }
    said = {
        i: h.lines[i]
        for i in range(first, end)
        if h.lines[i] and (h.lines[i].isascii() or h.lines[i].startswith(("RESULT ", "LAYOUT ")))
    }
    layouts = {i: found for i, line in said.items() if (found := fields(line, "LAYOUT"))}
    results = {i: found for i, line in said.items() if (found := fields(line, "RESULT"))}
    for i, line in said.items():
        if line.startswith((f"{sample} {role}: ", "  hint: ")):
            h.wrong(part, f"the {role} reports an error", i)
        now = re.search(r"(is now|->) (\d{1,20})$", line) if part == expected.SAMPLES[3] else None
        if (
            now
            and (now[1] == "is now" or "swap" in line or "look" in line)
            and int(now[2]) != ~(seed + 100) & expected.MASK
        ):
            h.wrong(part, "the word is not what 04's operations leave", i)
    for found, right in ((layouts, right_layout), (results, right_result)):
        for i in list(found)[:REASONS]:  # one is right
            check_fields(h, part, i, found[i], right)
    if len(results) != 1:
        h.wrong(part, f"the {role} has {len(results)} RESULT lines, not one", first - 1)
    elif (behind := min(results) + 1) in said:  # what blank lines part from it may be a page's head
        h.wrong(part, f"the {role} says something after its RESULT", behind)
    if len(layouts) != (1 if numbers else 0):
        h.wrong(part, f"the {role} has {len(layouts)} LAYOUT lines", first - 1)


def check_pair(h, part, sample):
    """A section that pair.sh printed: both sides, each behind its --- ROLE: COMMAND."""
    first, end = h.sections.get(part, (0, None))
    if not first:
        h.wrong(part, "it is missing")
    if end is None:
        return  # said already
    for i in range(first, end):
        # An umlaut in Windows-1252 may also stand in a page's footer, which no program has printed.
        if (bad := UNPRINTABLE.search(h.lines[i])) and (
            ord(bad[0]) < 0xA0 or re.match("[a-z]|" + KNOWN.pattern, h.lines[i])
        ):
            h.wrong(part, f"a program prints no byte 0x{ord(bad[0]) & 0xff:02x} here", i)
    sides = [(side[1], i) for i in range(first, end) if (side := SIDE.match(h.lines[i]))]
    roles = [role for role, _ in sides]
    if roles == ["server", "client"]:
        check_side(h, part, sides[0][1] + 1, sides[1][1], sample, "server")
        check_side(h, part, sides[1][1] + 1, end, sample, "client")
    else:
        missing = "server" if "server" not in roles else "client"
        h.wrong(
            part,
            f"there are {len(roles)} sides, not a server and then a client"
            if missing in roles
            else f"the {missing}'s side is missing",
            first - 1,
        )


def whole(lines):
    """As text. What was cut at a column is joined: several lines are as long as any, and no line of ours follows."""
    most = max(60, *map(len, lines))
    cut = [
        len(line) == most
        and bool(after)
        and not re.match("[ >]*(===|HANDIN |" + KNOWN.pattern + ")", after)
        for line, after in zip(lines, [*lines[1:], ""])
    ]
    few = sum(cut) < 3
    return "".join(
        line
        + (
            "\n" if few or not on else " " * bool(FIELD.match(after))
        )  # between fields it was a blank
        for line, on, after in zip(lines, cut, [*lines[1:], ""])
    )[:-1]


def column(text):
    """Of a table, as spreadsheets save it (RFC 4180; also with tabs or ;) or Markdown has it, the cells with the text; or ""."""
    for mark in "\t;,|" if CELL.search(text) else "":
        with suppress(csv.Error):
            rows = list(csv.reader(io.StringIO(text), delimiter=mark))
            at, *first = next(
                (
                    (at, *row[at:])
                    for row in rows
                    for at, cell in enumerate(row)
                    if CELL.fullmatch(cell.strip())
                ),
                (0, ""),
            )
            others = len(first) > 1 and (
                mark in ";|" or any(first[1:])
                if mark != ","
                else not first[-1] or len({len(row) for row in rows if row}) == 1
            )
            if first[0] and (
                others or re.search(f'(?m)(^|{re.escape(mark)})"{re.escape(first[0])}"', text)
            ):
                end = (
                    None if re.fullmatch(" ?[0-9]+[KM]", "".join(first[1:2])) else at + 1
                )  # it is cut at its commas, too
                return "\n".join(",".join(row[at:end]).rstrip(", ") for row in rows)
    return ""


def tidied(data):
    """A text's lines, without what programs make of a text that it goes through, and their names for that."""
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = data.decode("utf-16", "replace") if wide else data.decode("utf-8", "surrogateescape")
    if (
        not wide
        and re.search("[\ud800-\udfff]", text)
        and re.fullmatch(b"([\0-\x7f]|[\x81-\xfe][\x80-\xfe])*", data)
    ):
        text = data.decode(
            "gb18030", "replace"
        )  # Chinese Windows; of Western Europe's letters one stands alone
    page = bool(
        re.match(r"[\ufeff\s]*<(!doctype|html|p|div|pre)\b", text[:200], re.I)
    )  # an online text of Moodle, say
    if page:
        text = (
            text
            if re.search(r"HANDIN [^<]{1,400}\bENV ", text)
            else text.replace("\r", "").replace("\n", " ")
        )  # tags end its lines
        text = re.sub(r"(?i)</?(p|div|pre|br)\b[^<>]{0,200}>", "\n", text)
        text = html.unescape(re.sub("<[^<>]{0,200}>", "", text)).replace("\xa0", " ")
    lines = FOOT.sub(
        "", re.sub(UNSEEN + r"|\x1a\s{0,9}\Z", "", text).replace("\r\n", "\n").replace("\r", "\n")
    )
    if marked := re.search(
        r"(?m)^(HANDIN|LAYOUT|BENCH) .*\\[-=_]", lines
    ):  # Markdown, of a document that was saved so
        lines = re.sub(r"\\([!-/:-@[-`{-~])", r"\1", lines)
    typed, lines = lines, re.sub(
        "(?m)^'(?=---|===)", "", lines.translate(PLAIN).replace("**", "")
    )  # a spreadsheet's; Markdown's
    lines = re.sub(
        "(?m)^([ \t]{0,40})-{1,3} ?(?=(server|client)( on [0-9.]{1,40})?: )", r"\1--- ", lines
    )
    lines = (cells := column(lines)) or lines
    if (quoted := BEFORE.search(lines)) and (before := quoted[1].rstrip()):
        goes_on = re.sub(
            "[0-9]", " ", quoted[1]
        )  # so begin lines that a listing with numbers has cut
        lines = lines.replace("\n" + goes_on, "") if goes_on != quoted[1] else lines
        lines = re.sub(
            "(?m)^"
            + re.sub(
                r"(\\?[ \t])+", r"[ \\t]{0,20}", re.sub("[0-9]+", "[0-9]{1,9}", re.escape(before))
            )
            + "[ \t]?",
            "",
            lines,
        )
    lines = re.sub(
        r"(?m)^\[ {0,6}[0-9]{1,9}\.[0-9]{6}\] [^\n]*\n", "", lines
    )  # the kernel's, on a console
    with_colours = lines.removesuffix("\n").split("\n")
    plain = [line if line.startswith("HANDIN ") else COLOUR.sub("", line) for line in with_colours]
    lines = whole(plain)
    wrapped = WRAPPED.search(lines) or lines != "\n".join(plain)
    for _ in range(5 if wrapped else 0):  # a line may be in as many pieces
        lines = WRAPPED.sub(r"\1 ", lines)
    # What a program prints without an end of line stands in front of the next one.
    lines = re.sub(
        "(?m)^(?!RESULT |BENCH |LAYOUT |HANDIN |=== |--- )([^\n]{1,400}?)(?=(RESULT sample|BENCH method|"
        "LAYOUT block_size)=)",
        "\\1\n",
        lines,
    )
    return lines.split("\n"), [
        words
        for words, there in (
            ("UTF-16", wide),
            ("HTML", page),
            ("a table's cells", cells),
            ("quotation marks or times before its lines", quoted),
            ("Markdown's marks", marked),
            ("wrapped lines", wrapped),
            ("a word processor's blanks or quotation marks", typed.translate(PLAIN) != typed),
            ("a terminal's colours", with_colours != plain),
            ("a byte order mark", "\ufeff" in text),
            ("zero-width marks", re.search(UNSEEN[:-2] + "]", text)),
            ("carriage returns", "\r" in text),
        )
        if there
    ]


def check(h):
    """All but the figures."""
    if h.from_.refused or not h.path:
        raise Refused(
            h.from_.refused or "; ".join(["there is no text of make handin", *h.from_.remarks])
        )
    if not collect.regular(h.path):  # opening a device can do things
        raise Refused("it is no regular file")
    data = collect.begins(h.path, MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise Refused(f"it is larger than {MAX_FILE >> 10} KiB")
    lines, odd = tidied(data)
    if len(lines) > MAX_LINES:
        raise Refused(f"more than {MAX_LINES} lines")
    h.lines = [
        line.rstrip(" ")
        if line.startswith("  hint: ")
        else line.strip(" ")  # a hint is known by its blanks
        for line in (line.replace("\t", " ") for line in lines)
    ]
    header = read_header(h)
    strange = find_sections(h, header)
    end, behind = h.sections["answers"]  # these may look as they like
    if any("\0" in line for line in lines[:end]):
        raise Refused("it is no text: it holds zero bytes")
    odd += [
        words
        for words, there in (
            ("blank lines", "" in h.lines[:end]),
            ("tabs or blanks around its lines", lines[:end] != h.lines[:end]),
        )
        if there
    ]
    h.remarks += ["it came with " + ", ".join(odd)] * bool(odd)
    written = "\n".join(
        line for line in h.lines[end:behind] if not line.startswith("=== end")
    ).replace("\0", "")
    if written.strip() and (words := answers.remark(written)):
        h.remarks.append(words)
    if not written.strip() and "answers" not in h.reasons:
        h.wrong("answers", "there are none")
    if strange:
        h.remarks.append(
            f"make handin didn't write {len(strange)} of its lines, the first of them "
            f"line {strange[0] + 1}: {printable(h.lines[strange[0]], 60)}"
        )
    for part in expected.SAMPLES:
        check_pair(h, part, part)
    check_pair(h, "measured", expected.SAMPLES[h.lab - 1])
