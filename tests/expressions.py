# SPDX-License-Identifier: BSD-2-Clause
"""A small reader of C for shape.py: expressions that do more than one sees. It knows tokens, brackets
and statements, not types; it is meant for code that clang-format has formatted."""

import re

TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*|\d[\w.]*|->|\+\+|--|<<=|>>=|[-+*/%&|^!=<>]=|&&|\|\||\S'
)
OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
CONTROL = {"if", "while", "for", "switch", "return", "sizeof", "do", "else", "case"}
SPECIFIERS = (
    "const static extern unsigned signed struct enum union int char long bool double void".split()
)


def blank(found):
    return "\n" * found[0].count("\n")


def tokens(text):
    """Pairs of line number and token, without comments and the preprocessor's lines."""
    text = re.sub(r"/\*.*?\*/", blank, text, flags=re.S)
    text = re.sub(r"(?m)^#(?:.*\\\n)*.*$", blank, text)
    return [(text.count("\n", 0, found.start()) + 1, found[0]) for found in TOKEN.finditer(text)]


def closing(words, start):
    """Where the bracket at start is closed."""
    depth = 0
    for i in range(start, len(words)):
        depth += (words[i][1] in OPEN) - (words[i][1] in CLOSE)
        if depth == 0:
            return i
    return len(words) - 1


def split(words, at):
    """Parts of words between tokens "at" that are in no bracket."""
    parts, i = [[]], 0
    while i < len(words):
        if words[i][1] == at:
            parts.append([])
            i += 1
            continue
        end = closing(words, i) if words[i][1] in OPEN else i
        parts[-1] += words[i : end + 1]
        i = end + 1
    return parts


def is_declaration(words):
    """Begins with a type, or with a name and then another name, or stars and a name."""
    texts = [text for _, text in words]
    if texts and texts[0] in SPECIFIERS:
        return True
    return bool(re.match(r"[A-Za-z_]\w* (?:\* )*[A-Za-z_]\w*(?: |$)", " ".join(texts[:6])))


def has_effect(words):
    """Assigns, counts, or calls a function."""
    for i, (_, text) in enumerate(words):
        called = text == "(" and i > 0 and re.match(r"[A-Za-z_]", words[i - 1][1])
        if text in ASSIGN | {"++", "--"} or (called and words[i - 1][1] not in CONTROL):
            return True
    return False


def outside(words):
    """What is in no bracket."""
    kept, i = [], 0
    while i < len(words):
        kept.append(words[i])
        i = closing(words, i) + 1 if words[i][1] in OPEN else i + 1
    return kept


def statements(words):
    """Of a function's body: each statement, and each part of a for's head, as lists of tokens."""
    current, i = [], 0
    while i < len(words):
        _, text = words[i]
        if text == "for" and words[i + 1][1] == "(":
            end = closing(words, i + 1)
            yield from split(words[i + 2 : end], ";")
            i, current = end, []
        elif text in ("if", "while", "switch") and words[i + 1][1] == "(":
            end = closing(words, i + 1)
            yield words[i + 2 : end]
            i, current = end, []
        elif text == "{" and current and any(word == "enum" for _, word in current[-2:]):
            i = closing(words, i)
        elif (
            text == "{"
            and current
            and current[-1][1] in ASSIGN | {")", ",", "return"}
            and not body(current)
        ):
            end = closing(words, i)  # an initializer
            current += words[i : end + 1]
            i = end
        elif text in "{};" or text in ("else", "do"):
            yield current
            current = []
        else:
            current.append(words[i])
            if text in ("(", "["):
                end = closing(words, i)
                current += words[i + 1 : end + 1]
                i = end
        i += 1


def body(words):
    """Is what follows these tokens a function's body, not an initializer?"""
    return words[-1][1] == ")" and not any(
        text in ASSIGN | {"return"} for _, text in outside(words)
    )


def joined(statement):
    """Line and reason of each comma that joins what one would not expect in one statement."""
    parts = split(statement, ",")
    if len(parts) < 2:
        return
    line = statement[0][0]
    if not is_declaration(statement):
        yield line, "a comma joins expressions"
    elif sum(has_effect(initial(part)) for part in parts) > 1:
        yield line, "more than one declarator has a side effect"


def initial(declarator):
    """What it is initialised with."""
    at = [i for i, (_, text) in enumerate(declarator) if text == "="]
    return declarator[at[0] + 1 :] if at else []


def hidden(words):
    """Line and reason of each choice of a function to call, and of each ++ in an index or argument."""
    stack = []
    for i, (line, text) in enumerate(words):
        if text in OPEN:
            stack.append(i)
        elif text in CLOSE:
            begin = stack.pop() if stack else i
            named = begin > 0 and re.match(r"[A-Za-z_]", words[begin - 1][1])
            chosen = any(word == "?" for _, word in outside(words[begin + 1 : i]))
            if (
                text == ")"
                and words[i + 1 : i + 2]
                and words[i + 1][1] == "("
                and chosen
                and not named
            ):
                yield line, "a function is chosen and called in one expression"
        elif text in ("++", "--") and stack:
            begin = stack[-1]
            before = words[begin - 1][1] if begin else ""
            call = (
                words[begin][1] == "(" and re.match(r"[A-Za-z_]", before) and before not in CONTROL
            )
            if words[begin][1] == "[" or call:
                yield line, f"{text} within an index or an argument"


def surprises(text):
    """Lines and reasons, sorted."""
    words = tokens(text)
    found = set(hidden(words))
    for statement in statements(words):
        found |= set(joined(statement)) if statement else set()
    return sorted(found)
