# SPDX-License-Identifier: BSD-2-Clause
"""The Chinese handout says what the English one says, page by page: the same headings, commands, outputs, drawings, steps, questions,
tables, links, numbers and inline code words, section by section. What is taken out of either is missed.
Its Chinese is set evenly, and both have one glossary."""
import json
import os
import re
import subprocess
import sys
import unicodedata
import unittest
from collections import Counter, namedtuple
from functools import lru_cache

from samples import ROOT, ran

sys.path += [os.path.join(ROOT, "learn"), os.path.join(ROOT, "judge")]
import check_words  # pylint: disable=wrong-import-position
import handout  # pylint: disable=wrong-import-position
import starter  # pylint: disable=wrong-import-position
import words  # pylint: disable=wrong-import-position

# Fenced, or indented behind a blank line.
BLOCK = re.compile(r"(?m)^( *)```(.*)\n((?:.*\n)*?) *```$|(?<=\n\n)((?:    .*\n)+)(?=\n|\Z)")
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)]+)\)")
ITEM = re.compile(r"(?m)^(\d+\.|-) (?:`(\d\d-[a-z0-9-]+)`)?")
NUMBER = re.compile(r"(?<![A-Za-z0-9_.])\d+(?:\.\d+)*")
# What a table row has in both: code words, names like IBV_WR, numbers.
FIXED = re.compile(
    r"`[^`]+`|[A-Za-z0-9.]*_[A-Za-z0-9_.]+|(?<![A-Za-z0-9_.])\d+(?:\.\d+)*(?![A-Za-z0-9_])"
)
# A section: its heading, the line of that, all of it; lists of (line, what is there).
Section = namedtuple("Section", "title line text blocks items rows codes numbers links")
PLACE = re.compile(r"{[^}]*}")
KEPT = {"from", "to", "before"}  # of a place: how it is found
HAN = "[\u4e00-\u9fff]"
FULL = "[\uff0c\u3002\uff1b\uff1a\uff1f\uff01\uff08\uff09\u3001]"  # punctuation of full width
UNEVEN = {
    "half-width punctuation": f"{HAN}[,;:!?()]|[,;!?()]{HAN}|{FULL}[,;:!?]|[,;:!?]{FULL}",
    "no blank between Chinese and other words": f"{HAN}[A-Za-z0-9`]|[A-Za-z0-9`]{HAN}",
    "a blank too many": f"{HAN} {HAN}|[^| ] {FULL}|{FULL} (?! *\\|)",
}


def pages():
    """The handout's pages, without .md or .zh.md: labs, 01_hello_write/README …, reference."""
    return [
        "labs",
        *(os.path.relpath(path, ROOT)[:-3] for _, path in handout.labs("en")),
        "reference",
    ]


def translated(page):
    """The sections of a page in both languages."""
    return sections(read(f"{page}.md")), sections(read(f"{page}.zh.md"))


def whole(ending):
    """All pages of a language."""
    return "\n".join(read(page + ending) for page in pages())


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def without_blocks(text):
    return BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text)


def spread(pattern, text):
    """What the pattern finds, each with its line, counted from 0."""
    return [
        (
            text.count("\n", 0, found.start()),
            " ".join(" ".join(filter(None, found.groups())).split()),
        )
        for found in pattern.finditer(text)
    ]


@lru_cache(maxsize=None)
def section(text):
    """One section. Its lines count from 0."""
    blocks = [(text.count("\n", 0, f.start()), (f[2], f[3] or f[4])) for f in BLOCK.finditer(text)]
    prose = without_blocks(text)
    rows = [
        (
            n,
            (
                line.count("|"),
                CODE.findall(line.split("|")[1]),
                sorted(FIXED.findall(LINK.sub("", line.replace("_Keys", "_Key")))),
            ),
        )
        for n, line in enumerate(prose.split("\n"))
        if line.startswith("|")
    ]
    numbers = [
        (n, number)
        for n, line in enumerate(CODE.sub("", LINK.sub("", prose)).split("\n"))
        for number in NUMBER.findall(ITEM.sub("", line))
    ]
    return Section(
        prose.split("\n", 1)[0],
        0,
        text,
        blocks,
        spread(ITEM, prose),
        rows,
        spread(CODE, prose),
        numbers,
        spread(LINK, prose),
    )


def sections(text):
    """The text, cut at its headings. A # in a block is none."""
    masked = BLOCK.sub(lambda found: found[0].replace("\n#", "\nx"), text)
    cuts = [found.start() for found in re.finditer("(?m)^#+ ", masked)] + [len(text)]
    return [
        section(text[a:b])._replace(line=text.count("\n", 0, a) + 1) for a, b in zip(cuts, cuts[1:])
    ]


def anchor(title):
    """What GitHub calls a heading in a link."""
    return re.sub(r"[^\w -]", "", re.sub("^#+ ", "", title).lower()).replace(" ", "-")


def target(link, names):
    """Where a link goes, the same for both languages: of a heading here its number."""
    file, _, name = link.replace(".zh.md", ".md").partition("#")
    return file or (names.index(name) if name in names else "no such heading")


@lru_cache(maxsize=None)
def doctors(block):
    """What doctor.sh prints, as it says it in Chinese."""
    command = ["sed", "-Ef", os.path.join(ROOT, "testenv", "doctor.zh.sed")]
    return subprocess.run(
        command, input=block, check=True, capture_output=True, text=True
    ).stdout.split("\n")


def stub_says(english, chinese):
    """Whether these lines are what the stub of one TODO prints in both languages, each broken off."""
    found = re.match(r"(\d\d)(\w+ client: )(.+) is not written yet \(TODO (\d+)\): .*…$", english)
    for place in starter.listed("places.zh.txt")[found[1]] if found else ():
        if place["name"] == found[3] and str(place["number"]) == found[4]:
            says = words.CHINESE["todo stub"].format(
                name=place.get("called", place["name"] + " "), number=place["number"]
            )
            whole_line = f"{found[1]}{found[2]}{says}{place['what']}"
            return (
                chinese.endswith("…") and whole_line.startswith(chinese[:-1]) and len(chinese) > 30
            )
    return False


def same_block(english, chinese):
    """Word for word the same; but what students' tools print is what they print in Chinese."""
    if english == chinese or english[0] != chinese[0] or english[0] != "text":
        return english == chinese
    ours, theirs = english[1].split("\n"), chinese[1].split("\n")
    made = words.ENGLISH["starter made"].partition("}")[2]
    return len(ours) == len(theirs) and all(
        their in (our, doctor, our.replace(made, words.CHINESE["starter made"].partition("}")[2]))
        or stub_says(our, their)
        for our, their, doctor in zip(ours, theirs, doctors(english[1]))
    )


def behind(part, line):
    """How many blocks, items and rows stand in front of a line."""
    return tuple(sum(n <= line for n, _ in found) for found in (part.blocks, part.items, part.rows))


def parting(english, chinese, page="labs"):
    """Where these sections of a page part first: both places and what differs there. None, if they don't."""
    both = english, chinese
    names = [[anchor(part.title) for part in parts] for parts in both]
    for a, b in zip(*both):

        def say(n, m, what, a=a, b=b):
            return f"{page}.md:{a.line + n}, {page}.zh.md:{b.line + m} ({a.title}): {what}"

        if re.match("#+ ([01][0-9] )?", a.title)[0] != re.match("#+ ([01][0-9] )?", b.title)[0]:
            return say(0, 0, f"another heading, {b.title}")
        links = [
            [(n, target(link, known)) for n, link in part.links]
            for part, known in zip((a, b), names)
        ]
        for what, one, other in (
            ("block", a.blocks, b.blocks),
            ("item", a.items, b.items),
            ("row", a.rows, b.rows),
            ("link", *links),
        ):
            for (n, x), (m, y) in zip(one, other):
                if not (same_block(x, y) if what == "block" else x == y):
                    return say(n, m, f"another {what}: {x} and {y}")
            if len(one) != len(other):
                n, m = (
                    found[min(len(one), len(other))][0]
                    if len(found) > min(len(one), len(other))
                    else 0
                    for found in (one, other)
                )
                return say(n, m, f"{len(one)} and {len(other)} {what}s")
        for what, one, other in (("code word", a.codes, b.codes), ("number", a.numbers, b.numbers)):
            counts = [Counter(word for _, word in found) for found in (one, other)]
            if what == "code word" and counts[0] == counts[1]:  # the same, but in the same places?
                counts = [
                    Counter((behind(part, n), word) for n, word in part.codes) for part in (a, b)
                ]
            less, more = counts[0] - counts[1], counts[1] - counts[0]
            if less or (more and what == "code word"):  # Chinese may write two as 2
                word = next(iter(less or more))
                bare = word[1] if isinstance(word, tuple) else word
                n, m = (
                    next((n for n, other in found if other == bare), 0) for found in (one, other)
                )
                where = f" behind blocks, items and rows {word[0]}" if bare != word else ""
                return say(
                    n,
                    m,
                    f"the {what} {bare} is there {counts[0][word]} and {counts[1][word]} times{where}",
                )
    if len(both[0]) != len(both[1]):
        return f"{page}.md has {len(both[0])} headings, {page}.zh.md {len(both[1])}"
    return None


def cuts(text):
    """Copies of the text, each without something that may not be missing: (what, line, copy)."""

    def copy(what, start, end):
        return what, text.count("\n", 0, start) + 1, text[:start] + text[end:]

    prose = BLOCK.sub(lambda found: re.sub("[^\n]", " ", found[0]), text)  # each at its place
    for found in BLOCK.finditer(text):
        yield copy("block", *found.span())
        yield copy(
            "block's line", found.start(3 if found[3] else 4), text.index("\n", found.start(3)) + 1
        )
    for what, pattern in (
        ("heading", "(?m)^#+ .*\n"),
        ("item", r"(?m)^(?:\d+\.|-) .*\n(?:  +\S.*\n)*"),
        ("patch's name", r"(?m)(?<=\d\. )`[0-9][^`]*`"),
        ("row", r"(?m)^\|.*\n"),
        ("cell", r"(?m)\|[^|\n]*(?=\|$)"),
        ("code word", CODE),
        ("link", LINK),
    ):
        for found in re.finditer(pattern, prose):
            yield copy(what, *found.span())


class TakenOut(unittest.TestCase):
    def test_what_is_taken_out_is_missed(self):
        """Of either, each block, heading, step, question, table row, link and code word in turn."""
        missed, tried = [], Counter()
        for page in pages():
            both = translated(page)
            for side, i in ((side, i) for side in (0, 1) for i in range(len(both[side]))):
                part = both[side][i]
                for what, line, changed in cuts(part.text):
                    tried[what] += 1
                    parts = list(both)
                    parts[side] = [*both[side][:i], *sections(changed), *both[side][i + 1 :]]
                    if not re.match(
                        rf"{page}\.md(:\d+, {page}\.zh\.md:\d+ | has )", parting(*parts, page) or ""
                    ):
                        missed.append(
                            f"{page}{('.md', '.zh.md')[side]}:{part.line + line - 1}: a {what}"
                        )
        print("# taken out:", ", ".join(f"{n} times a {what}" for what, n in tried.items()))
        self.assertEqual(missed, [])
        self.assertGreater(min(tried.values()), 20)


class Chinese(unittest.TestCase):
    def test_it_says_what_the_english_says(self):
        for page in pages():
            self.assertIsNone(parting(*translated(page), page))

    def test_the_place_is_named(self):
        """The first place where they part, in both."""
        english, chinese = (
            f"# T\n\ntext\n\n## 01 {name}\n\n`p`\n\n```sh\nmake\n```\n\n1. `x` of\n   `z`{end}\n"
            for name, end in (("W", ""), ("\u5199", " 12"))
        )
        self.assertIsNone(parting(sections(english), sections(chinese)))
        for old, new, said in (
            ("`x`", "`y`", "labs.md:13, labs.zh.md:5 .*word x is there 1 and 0"),
            ("make", "make x", "labs.md:9, labs.zh.md:9 .*another block"),
            ("1. ", "2. ", "labs.md:13, labs.zh.md:13 .*another item"),
            ("## 01", "### 01", "labs.md:5, labs.zh.md:5 .*another heading"),
            (" 12", "\n\n| a |\n", "labs.md:5, labs.zh.md:16 .*0 and 1 rows"),
            (
                "`p`\n\n```sh\nmake\n```",
                "```sh\nmake\n```\n\n`p`",
                "labs.md:7, labs.zh.md:11 .*word p .* behind blocks, items and rows",
            ),
        ):
            self.assertRegex(parting(sections(english), sections(chinese.replace(old, new))), said)
        self.assertRegex(
            parting(sections(english + "7\n"), sections(chinese)),
            "labs.md:15, labs.zh.md:5 .*number 7 is there 1 and 0",
        )

    def test_the_tools_read_it(self):
        """make break and make answers find the same steps and questions in both."""
        english, chinese = map(handout.steps, ("en", "zh"))
        for one, other in zip(english.values(), chinese.values()):
            self.assertEqual((one.number, one.name), (other.number, other.name))
            self.assertEqual(one.lab, other.lab)
        self.assertEqual(len(english), len(chinese))
        self.assertGreater(len(english), 40)
        for step in chinese.values():
            self.assertRegex(step.question, HAN)
            self.assertTrue(step.outcome, step.name)
        english, chinese = map(handout.questions, ("en", "zh"))
        self.assertEqual([mark for mark, _ in english], [mark for mark, _ in chinese])
        self.assertGreater(len(english), 15)

    def test_set_evenly(self):
        """Punctuation of full width in Chinese, and one blank between Chinese and other words."""
        for name in ("README.zh.md", "bench/README.zh.md", *(f"{page}.zh.md" for page in pages())):
            for n, line in enumerate(without_blocks(read(name)).split("\n"), 1):
                bare = re.sub(r"\*+(?! )", "", CODE.sub("`x`", LINK.sub("]", line)))
                for what, pattern in UNEVEN.items():
                    bad = re.search(pattern, bare)
                    self.assertIsNone(bad, f"{name}:{n}: {what}")

    def test_the_cheat_sheet_lines_up(self):
        """In a terminal, where a Chinese character takes two columns; and make cheatsheet prints the one asked for."""
        for language, title in (("en", "Cheat sheet"), ("zh", "\u901f\u67e5\u8868")):
            name = "reference.md" if language == "en" else "reference.zh.md"
            part = next(text for text in read(name).split("\n## ") if text.startswith(title))
            printed = subprocess.run(
                ["make", "-s", "cheatsheet", f"LAB_LANG={language}"],
                cwd=ROOT,
                check=True,
                capture_output=True,
                encoding="utf-8",
            ).stdout
            for text in part, printed:
                tables = [table.split("\n") for table in re.findall(r"(?m)(?:^\|.*\n)+", text)]
                self.assertEqual(len(tables), 5)
                for table in tables:
                    widths = {
                        sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in line)
                        for line in table
                        if line
                    }
                    self.assertEqual(len(widths), 1, f"{name}: {table[0]}")
            self.assertIn("RNR_RETRY_EXC_ERR", printed)
            self.assertNotIn("`", printed)
            self.assertEqual(bool(re.search(HAN, printed.split("RD (")[0])), language == "zh")

    def test_emphasis_is_shown(self):
        """Of stars the first of two must be able to open and the second to close, by CommonMark's rules."""
        for name in ("README.zh.md", "bench/README.zh.md", *(f"{page}.zh.md" for page in pages())):
            for n, line in enumerate(without_blocks(read(name)).split("\n"), 1):
                line = f" {CODE.sub(lambda found: '`' * len(found[0]), LINK.sub(']', line))} "
                for i, found in enumerate(re.finditer(r"\*+", line)):
                    outside, inside = line[found.start() - 1], line[found.end()]
                    if i % 2:
                        outside, inside = inside, outside
                    shown = not inside.isspace() and (
                        inside.isalnum() or outside.isspace() or not outside.isalnum()
                    )
                    self.assertTrue(
                        shown, f"{name}:{n}: {line[max(found.start() - 9, 0):found.end() + 9]}"
                    )


class Readme(unittest.TestCase):
    """README.zh.md is shorter than README.md, here and in bench/, but what it has is the same there."""

    def both(self, end):
        return "\n".join(read(page + end) for page in ("README", "bench/README"))

    def test_commands_and_drawings(self):
        known, ours = (
            [
                line
                for part in sections(self.both(end))
                for _, (_, block) in part.blocks
                for line in block.split("\n")
            ]
            for end in (".md", ".zh.md")
        )
        self.assertGreater(len(ours), 20)
        self.assertEqual([line for line in ours if line not in known], [])

    def test_tables_and_code_words(self):
        """Its tables of samples, of cards and of errors have all rows, with the same words of code."""
        english, chinese = (sections(self.both(end)) for end in (".md", ".zh.md"))
        for title, other in (
            ("The samples", "\u793a\u4f8b"),
            ("Zero-copy", "\u96f6\u62f7\u8d1d"),
            ("When it fails", "\u8fd0\u884c\u5931\u8d25"),
        ):
            a, b = (
                next(part for part in parts if re.match(f"#+ {name}", part.title))
                for parts, name in ((english, title), (chinese, other))
            )
            self.assertEqual([row for _, row in a.rows], [row for _, row in b.rows], title)
            numbers = [Counter(number for _, number in part.numbers) for part in (a, b)]
            self.assertEqual(numbers[1] - numbers[0], Counter(), title)
        known = " ".join(self.both(".md").split())
        words_of_code = (
            word.replace(".zh.md", ".md") for part in chinese for _, word in part.codes
        )
        self.assertEqual([word for word in words_of_code if word not in known], [])

    def test_links(self):
        """What the Chinese texts and the English ones link to is there."""
        names = [
            page + end for page in ("README", "bench/README", *pages()) for end in (".md", ".zh.md")
        ]
        there = {f"{name}#{anchor(part.title)}" for name in names for part in sections(read(name))}
        for name in names:
            for link in LINK.findall(without_blocks(read(name))):
                file, _, mark = link.partition("#")
                if mark and ":" not in link:
                    file = (
                        os.path.normpath(os.path.join(os.path.dirname(name), file))
                        if file
                        else name
                    )
                    self.assertIn(f"{file}#{mark}", there, name)
        for page in ("README", "bench/README", *pages()):
            self.assertIn(f"({os.path.basename(page)}.zh.md)", read(f"{page}.md"))
            self.assertIn(f"({os.path.basename(page)}.md)", read(f"{page}.zh.md"))


class Tools(unittest.TestCase):
    def test_tools_speak_chinese_and_else_english(self):
        for command in (
            ["make", "-s", "help"],
            ["testenv/doctor.sh"],
            [
                "python3",
                "-c",
                "import sys; sys.path.append('learn'); from words import say; "
                "print(say('starter made', path='x'), say('show made', page='y', printed='z'))",
            ],
        ):
            said = {
                language: ran(
                    command, cwd=ROOT, check=True, env={**os.environ, "LAB_LANG": language}
                ).stdout
                for language in ("en", "zh", "de")
            }
            self.assertEqual(said["de"], said["en"])
            self.assertNotRegex(said["en"], HAN)
            self.assertRegex(said["zh"], HAN)
            if "help" in command:
                for line in said["zh"].splitlines():
                    self.assertRegex(line, HAN)


class Words(unittest.TestCase):
    """What the tools for students say: a Chinese text for each English one, with the same places for values."""

    def flat(self, table, at=""):
        for key, value in table.items():
            yield from self.flat(value, f"{at}{key}.") if isinstance(value, dict) else [
                (at + key, value)
            ]

    def check(self, name, key, english, chinese):
        self.assertEqual(
            sorted(PLACE.findall(english)), sorted(PLACE.findall(chinese)), f"{name}: {key}"
        )
        if chinese == english:  # RDMA READ, the text of a status, a name of the protocol
            words = re.sub(
                "compare-and-swap|fetch-and-add|[lr]key|psn|bytes|solicited",
                "",
                PLACE.sub("", english),
            )
            self.assertTrue(
                key.startswith("status.") or not re.search("[a-z]{3}", words),
                f"{name}: {key}: {english}",
            )
            return
        self.assertRegex(chinese, f"{HAN}|{FULL}", f"{name}: {key}")
        bare = CODE.sub("`x`", PLACE.sub("0", chinese)).replace("*", "")
        for what in ("half-width punctuation", "a blank too many"):
            if "  " not in english:  # a table's head
                bad = re.search(UNEVEN[what], bare)
                self.assertIsNone(bad, f"{name}: {key}: {what}: {chinese}")

    def test_show(self):
        tables = json.loads(read("learn/show/words.json"))
        english, chinese = (dict(self.flat(tables[language])) for language in ("en", "zh"))
        self.assertEqual(list(english), list(chinese))
        self.assertGreater(len(english), 150)
        for key, text in english.items():
            self.check("learn/show/words.json", key, text, chinese[key])

    def test_hints(self):
        """The same parts in the same order, three degrees each, which name the same calls and fields."""
        english, chinese = (
            [
                [line for line in part.split("\n") if line and line[0] != "#"]
                for part in read(f"judge/{name}").split("\n== ")[1:]
            ]
            for name in ("hints.txt", "hints.zh.txt")
        )
        self.assertEqual([part[0] for part in english], [part[0] for part in chinese])
        self.assertGreater(len(english), 50)
        for ours, theirs in zip(english, chinese):
            self.assertEqual((len(ours), len(theirs)), (4, 4), ours[0])
            for one, other in zip(ours, theirs):
                names = [
                    set(re.findall(r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+", line))
                    for line in (one, other)
                ]
                self.assertEqual(*names, f"{ours[0]}: {other}")
                self.assertNotRegex(
                    other,
                    f"{UNEVEN['half-width punctuation']}|{HAN}[A-Za-z0-9]|[A-Za-z0-9]{HAN}|[A-Za-z][?]",
                )
            self.assertRegex(theirs[1], HAN)

    def test_starters(self):
        """places.zh.txt has the places of places.txt; their texts name the same calls, fields, options and TODOs. A
        program prints what is to be written: so no per cent sign."""
        english, chinese = (starter.listed(name) for name in ("places.txt", "places.zh.txt"))
        self.assertGreater(len(english), 12)
        self.assertEqual(list(english), list(chinese))
        named = re.compile(
            r"--[a-z]+|\w+->[a-z_]+|TODO \d|[a-z.]+=\w+|[A-Za-z0-9.>-]+(?:_[A-Za-z0-9]+)+(?:\(3\))?"
        )
        for lab, places in english.items():
            self.assertEqual(
                *(
                    [(place["number"], place["name"]) for place in each[lab]]
                    for each in (english, chinese)
                )
            )
            for place, theirs in zip(places, chinese[lab]):
                self.assertEqual(place.keys() - theirs.keys() - {"see"}, place.keys() & KEPT, lab)
                for key in theirs.keys() & {"what", "right", "see"}:
                    self.assertEqual(
                        *(set(named.findall(each[key])) for each in (place, theirs)),
                        f"{lab} {place['name']} {key}",
                    )
                    self.assertNotIn("%", theirs[key])
                    self.check(
                        "places.zh.txt", f"{lab} {place['name']} {key}", place[key], theirs[key]
                    )
                if " " in place["name"]:
                    self.assertRegex(theirs["called"], HAN)

    def test_words(self):
        english, chinese = (
            {
                key: text
                for key, text in check_words.table(language).items()
                if not key.startswith("value ")
            }
            for language in ("en", "zh")
        )
        for name, ours, theirs, least in (
            ("words.py", words.ENGLISH, words.CHINESE, 30),
            ("check_words", english, chinese, 80),
        ):
            self.assertEqual(set(ours), set(theirs))
            self.assertGreater(len(ours), least)
            for key, text in ours.items():
                self.check(name, key, text, theirs[key])


class Glossary(unittest.TestCase):
    def rows(self, ending):
        body, _, table = whole(ending).rpartition("\n## ")
        return (
            body,
            [line.strip("| ").split(" | ") for line in table.split("\n") if line.startswith("| ")][
                1:
            ],
        )

    def test_one_for_both(self):
        (english, ours), (chinese, theirs) = self.rows(".md"), self.rows(".zh.md")
        self.assertEqual([row[:2] for row in ours], [row[:2] for row in theirs])
        self.assertGreater(len(ours), 50)
        english = " ".join(english.replace("*", "").lower().split())
        for (term, word, ours_is), (_, _, theirs_is) in zip(ours, theirs):
            self.assertIn(term.split(" (")[0].lower(), english)
            self.assertIn(word, chinese)
            self.assertRegex(ours_is, "^[ -~]+$")
            self.assertRegex(theirs_is, HAN)

    def test_the_terms_in_the_english_pages_are_those_of_the_chinese(self):
        chinese = whole(".zh.md")
        english = re.sub(r"\[.*?\]\(.*?\)", "", without_blocks(whole(".md")))
        for term in re.findall(f"{HAN}(?:/?{HAN})*", english):
            self.assertIn(term, chinese)
