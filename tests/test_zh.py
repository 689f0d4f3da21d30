# SPDX-License-Identifier: BSD-2-Clause
"""The Chinese handout says what the English one says, piece by piece: the same headings, commands, outputs, drawings,
steps, questions, table rows, links, numbers and inline code words. What the tools say is there in both languages."""
import json
import os
import re
import sys
import unittest
from collections import Counter

from samples import ROOT, ran, read
from texts import CODE, LINK, anchors, blocks, pages, without_blocks

sys.path += [os.path.join(ROOT, "learn"), os.path.join(ROOT, "judge")]
import check_words  # pylint: disable=wrong-import-position
import handout  # pylint: disable=wrong-import-position
import starter  # pylint: disable=wrong-import-position
import words  # pylint: disable=wrong-import-position

HAN = "[\u4e00-\u9fff]"
FULL = "[\uff0c\u3002\uff1b\uff1a\uff1f\uff01\uff08\uff09\u3001]"  # punctuation of full width
# What a piece begins with: a heading (of a lab with its number), an item (of a step with its name), a row.
CALL = re.compile(r"{[\w.:!]*}|--[a-z]+|\w+->[a-z_]+|TODO \d|[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+")
START = re.compile(r"(?m)^ *(#+ (?:\d\d )?|(?:-|\d+\.) (?:`\d\d-[a-z0-9-]+`)?|\|)")
NAME = re.compile(r"`[^`]+`|[A-Za-z0-9.]*_[A-Za-z0-9_.]+")
NUMBER = re.compile(r"(?<![A-Za-z0-9_.])\d+(?:\.\d+)*")
ALL_CHINESE = ("README.zh.md", "bench/README.zh.md", *pages("zh"))


def pieces(text):
    """[(line, how it begins, the text up to the next one)], without the blocks."""
    prose, found = without_blocks(text), []
    starts = list(START.finditer(prose))
    for start, after in zip(starts, [*starts[1:], None]):
        line = prose.count("\n", 0, start.start(1)) + 1
        found.append((line, start[1], prose[start.end() : after.start() if after else None]))
    return found


def target(page, link):
    """Where a link goes, the same for both languages: of a heading its number."""
    file, _, heading = link.partition("#")
    path = os.path.normpath(os.path.join(os.path.dirname(page), file)) if file else page
    if ":" in link or not heading or path.startswith("README"):  # README.zh.md has fewer headings
        return file.replace(".zh.md", ".md")
    return path.replace(".zh.md", ".md"), anchors(read(path)).index(heading)


def names(text, what=NAME):
    """The code words, and names like IBV_WR."""
    return sorted(what.findall(LINK.sub("]", " ".join(text.split()).replace("_Keys", "_Key"))))


def facts(page, start, text):
    """What a piece has in both languages; of a row, what each cell has."""
    links = [target(page, link) for link in LINK.findall(text)]
    if start == "|":
        return start, [names(cell) for cell in re.split(r"(?<!\\)\|", text)], links
    return start, names(text, CODE), links


def numbers(text):
    return Counter(NUMBER.findall(CODE.sub("", LINK.sub("", text))))


class Chinese(unittest.TestCase):
    maxDiff = None

    def test_it_says_what_the_english_says(self):
        for page, translated in zip(pages("en"), pages("zh")):
            ours, theirs = pieces(read(page)), pieces(read(translated))
            for (line, *one), (other_line, *other) in zip(ours, theirs):
                where = f"{page}:{line} and {translated}:{other_line}"
                self.assertEqual(facts(page, *one), facts(translated, *other), where)
                # Chinese may write two as 2.
                self.assertEqual(numbers(one[1]) - numbers(other[1]), Counter(), where)
            self.assertEqual(len(ours), len(theirs), page)

    def test_blocks(self):
        """Word for word the same, behind the same piece; but of output what the tools say in Chinese."""
        for page, translated in zip(pages("en"), pages("zh")):
            ours, theirs = self.blocks_of(page), self.blocks_of(translated)
            self.assertEqual(len(ours), len(theirs), page)
            for (line, before, kind, lines), (_, *other, their_lines) in zip(ours, theirs):
                where = f"{page}:{line}"
                self.assertEqual([before, kind, len(lines)], [*other, len(their_lines)], where)
                for our, their in zip(lines, their_lines):
                    if kind != "text" or not re.search(HAN, their):
                        self.assertEqual(our, their, where)

    def blocks_of(self, page):
        """[(line, how many pieces are before it, language, lines)]"""
        lines = [line for line, *_ in pieces(read(page))]
        return [(at, sum(n < at for n in lines), *more) for at, *more in blocks(read(page))]

    def test_the_tools_read_it(self):
        """make break and make answers find the same steps and questions in both."""
        english, chinese = (list(handout.steps(language).values()) for language in ("en", "zh"))
        self.assertEqual([step[:3] for step in english], [step[:3] for step in chinese])
        for step in chinese:
            self.assertRegex(step.question, HAN)
            self.assertRegex(step.outcome, HAN)
        marks = [[mark for mark, _ in handout.questions(language)] for language in ("en", "zh")]
        self.assertEqual(*marks)


class Readme(unittest.TestCase):
    """README.zh.md is shorter than README.md, here and in bench/, but what it has is the same there."""

    def both(self, ending):
        """Without the tree of directories, which is for who reads the sources."""
        texts = read(f"README{ending}"), read(f"bench/README{ending}")
        return "\n".join(text.partition("\n## The tree")[0] for text in texts)

    def test_commands_and_drawings(self):
        known, ours = (
            [line for *_, lines in blocks(self.both(ending)) for line in lines]
            for ending in (".md", ".zh.md")
        )
        self.assertGreater(len(ours), 20)
        self.assertEqual([line for line in ours if line not in known], [])

    def test_each_page_links_to_the_other_language(self):
        for page in ALL_CHINESE:
            name = os.path.basename(page)
            english = page.replace(".zh.md", ".md")
            self.assertIn(f"({name})", read(english))
            self.assertIn(f"({os.path.basename(english)})", read(page))


class Tools(unittest.TestCase):
    """What the tools for students say."""

    def flat(self, table, at=""):
        """{key: text}, the keys of tables within tables joined."""
        found = {}
        for key, value in table.items():
            found.update(
                self.flat(value, f"{at}{key}.") if isinstance(value, dict) else {at + key: value}
            )
        return found

    def hints(self, name):
        """{part and degree: hint}"""
        parts = re.findall(r"(?m)^== (.*)\n((?:[^#=\n].*\n)+)", read(f"judge/{name}"))
        return {
            f"{part} {n}": hint for part, text in parts for n, hint in enumerate(text.splitlines())
        }

    def places(self, name):
        """{place and key: text}"""
        return {
            f"{lab} {place['number']} {place['name']} {key}": place[key]
            for lab, places in starter.listed(name).items()
            for place in places
            for key in ("what", "right", "see")
            if key in place
        }

    def tables(self):
        """(name, English, Chinese)"""
        show = json.loads(read("learn/show/words.json"))
        yield "show", *(self.flat(show[language]) for language in ("en", "zh"))
        yield "words", words.TABLES["en"], words.TABLES["zh"]
        check = [check_words.table(language).items() for language in ("en", "zh")]
        yield "check", *({k: v for k, v in each if not k.startswith("value ")} for each in check)
        yield "hints", self.hints("hints.txt"), self.hints("hints.zh.txt")
        english, chinese = self.places("places.txt"), self.places("places.zh.txt")
        self.assertNotIn("%", "".join(chinese.values()))  # a program prints it
        yield "places", english, {**english, **chinese}  # some have no see of their own

    def test_tables(self):
        """A Chinese text for each English one, with the same places for values, calls, fields, options and TODOs."""
        for name, english, chinese in self.tables():
            self.assertEqual(set(english), set(chinese), name)
            self.assertGreater(len(english), 30)
            for key, text in english.items():
                called = [sorted(set(CALL.findall(each))) for each in (text, chinese[key])]
                self.assertEqual(*called, f"{name} {key}")
                if text != chinese[key]:
                    self.assertRegex(chinese[key], f"{HAN}|{FULL}", key)
                elif not key.startswith("status."):  # RDMA READ, a line of code, a manual page
                    self.assertNotRegex(text, "^[A-Z]?[a-z]{2,} [a-z]{2,} [a-z]{2,} ", key)

    def test_tools_speak_chinese_and_else_english(self):
        say = "import sys; sys.path.append('learn'); from words import say; print(say('running'))"
        for command in (["make", "-s", "help"], ["testenv/doctor.sh"], ["python3", "-c", say]):
            english, chinese, other = (
                ran(command, check=True, env={"LAB_LANG": name}).stdout
                for name in ("en", "zh", "de")
            )
            self.assertEqual(other, english)
            self.assertNotRegex(english, HAN)
            self.assertRegex(chinese, HAN)


class Glossary(unittest.TestCase):
    def test_one_for_both(self):
        """The same terms, each with its Chinese word, which the Chinese pages use."""
        texts = ["\n".join(map(read, pages(language))) for language in ("en", "zh")]
        ours, theirs = (
            re.findall(r"(?m)^\| (.*?) \| (.*?) \| .* \|$", text.rpartition("\n## ")[2])
            for text in texts
        )
        self.assertEqual(ours[1:], theirs[1:])
        self.assertGreater(len(ours), 50)
        for term, word in ours[1:]:
            self.assertIn(word, texts[1].rpartition("\n## ")[0], term)
