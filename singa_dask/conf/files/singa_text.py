"""Parser of protobuf's text format, used by SINGA's job files: converts text to a tree with places.

A message becomes a mapping of lists, as only `singa_job` knows which keys may be repeated. The key of an extension
includes its brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from singa_dask.conf.files.tree import Items, Scalar, Tree, TreeEntry, TreeMap, items
from singa_dask.errors import ConfigError, Mark, Problem

TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<number>(?:0[xX][0-9a-fA-F]+ | (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?[fF]?)(?![\w.]))
    | (?P<text>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
    | (?P<mark>[][{}<>:;,.\-/])""",
    re.VERBOSE | re.ASCII,
)
ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
ESCAPES = dict(zip("abfnrtv\\'\"?", "\a\b\f\n\r\t\v\\'\"?", strict=True))
CLOSING = {"{": "}", "<": ">"}
# matches a block without a colon, which no YAML job has
BLOCK = re.compile(r"^[ \t]*[A-Za-z_]\w*[ \t]*[{<]", re.MULTILINE)


class Word(str):
    """A text without quotes, e.g. the name of an enumeration's member."""


@dataclass
class Token:
    """A token with its kind (``end`` for the last one) and its place."""

    kind: str
    text: str
    place: Mark

    def __str__(self) -> str:
        return "the end of the file" if self.kind == "end" else repr(self.text)


def is_singa_text(text: str) -> bool:
    """Return whether a text looks like a job in SINGA's format rather than in YAML."""
    return BLOCK.search(text) is not None


def parse(text: str, file: str) -> TreeMap:
    """Parse protobuf's text format; ``file`` is the name of the text in places.

    Raises
    ------
    ConfigError
        The text is not in this format. The error describes the first mistake and its place.
    """
    try:
        return _Parser(text, file).whole()
    except RecursionError:
        raise ConfigError(Problem((), "nested too deeply.", Mark(file))) from None


def end_of_scalar(text: str, start: int) -> int:
    """Return where the scalar ends that starts at ``start``.

    A scalar is one or several strings, or a number or word with its sign.
    """
    at = end = start
    kind = None
    while token := TOKEN.match(text, at):
        at = token.end()
        if token.lastgroup == "text":
            kind, end = "text", at
        elif token.lastgroup != "space":
            if kind == "text":  # the strings have ended
                break
            end = at
            if token[0] != "-":
                break
    return end


def _fail(place: Mark, message: str) -> NoReturn:
    raise ConfigError(Problem((), message, place))


def _tokens(text: str, file: str) -> Iterator[Token]:
    """Yield the tokens of a text, without spaces and comments."""
    at, line, start = 0, 1, 0
    while at < len(text):
        place = Mark(file, line, at - start + 1)
        match = TOKEN.match(text, at)
        if match is None:
            _fail(place, _stray(text, at))
        if match.lastgroup == "space":
            line += match[0].count("\n")
            start = max(start, at + match[0].rfind("\n") + 1) if "\n" in match[0] else start
        else:
            yield Token(str(match.lastgroup), match[0], place)
        at = match.end()
    yield Token("end", "", Mark(file, line, at - start + 1))


def _stray(text: str, at: int) -> str:
    """Return why no token starts here."""
    if text[at] in "\"'":
        return f"this text has no closing {text[at]} in its line."
    if text[at].isdigit() or text[at] == ".":
        word = re.match(r"[\w.]+", text[at:])
        return f"expected a number, got {word[0] if word else text[at]!r}."
    return f"expected a key or a value, got {text[at]!r}."


class _Parser:
    """A recursive descent parser with one token of look-ahead."""

    def __init__(self, text: str, file: str) -> None:
        self.tokens = _tokens(text, file)
        self.file = file
        self.next = next(self.tokens)

    def take(self) -> Token:
        """Return the next token and advance."""
        token = self.next
        if token.kind != "end":
            self.next = next(self.tokens)
        return token

    def skip(self, *marks: str) -> bool:
        """Skip the next token if it is one of these marks."""
        matches = self.next.kind == "mark" and self.next.text in marks
        if matches:
            self.take()
        return matches

    def want(self, text: str, what: str) -> None:
        if not self.skip(text):
            _fail(self.next.place, f"expected {text!r} {what}, got {self.next}.")

    def whole(self) -> TreeMap:
        """Read the file."""
        message = TreeMap(Mark(self.file, 1, 1), {})
        while self.next.kind != "end":
            self.field(message)
        return message

    def field(self, message: TreeMap) -> None:
        """Read a key and its value or values."""
        place = self.next.place
        key = self.key()
        colon = self.skip(":")
        if self.next.kind == "mark" and self.next.text in "[{<":
            values = self.values(colon)
        elif colon:
            values = [self.scalar()]
        else:
            _fail(self.next.place, f"expected ':' or '{{' after {key}, got {self.next}.")
        entry = message.entries.setdefault(key, TreeEntry(place, Items(place, [])))
        items(entry.node).extend(values)
        self.skip(";", ",")

    def key(self) -> str:
        """Read a key, or the name of an extension in its brackets."""
        if self.next.kind == "word":
            return self.take().text
        if not self.skip("["):
            _fail(self.next.place, f"expected a key, got {self.next}.")
        name = ""
        while self.next.kind == "word" or (self.next.kind == "mark" and self.next.text in "./-"):
            name += self.take().text
        if not name:
            _fail(self.next.place, f"expected the name of an extension, got {self.next}.")
        self.want("]", f"after the extension's name {name}")
        return f"[{name}]"

    def values(self, colon: bool) -> list[Tree]:
        """Read a message, or a list in brackets."""
        if self.next.text != "[":
            return [self.message()]
        place = self.take().place
        values: list[Tree] = []
        while not self.skip("]"):
            if values:
                self.want(",", f"or ']' in the list that starts at line {place.line}")
            block = self.next.kind == "mark" and self.next.text in CLOSING
            if not block and not colon:
                _fail(place, "expected ':' before a list of values.")
            values.append(self.message() if block else self.scalar())
        return values

    def message(self) -> TreeMap:
        """Read a message with its braces."""
        opened = self.take()
        closing = CLOSING[opened.text]
        message = TreeMap(opened.place, {})
        while not self.skip(closing):
            if self.next.kind == "end":
                _fail(opened.place, f"this {opened.text!r} has no {closing!r}: expected one before the file ends.")
            if self.next.kind not in ("word", "mark") or self.next.text in "}>])":
                what = f"for the {opened.text!r} of line {opened.place.line}"
                _fail(self.next.place, f"expected a key, or {closing!r} {what}, got {self.next}.")
            self.field(message)
        return message

    def scalar(self) -> Scalar:
        """Read a text (one or several strings), a number or a word."""
        token = self.take()
        if token.kind == "text":
            value = _unquoted(token)
            while self.next.kind == "text":
                value += _unquoted(self.take())
            return Scalar(token.place, value)
        if token.kind == "mark" and token.text == "-":
            return Scalar(token.place, self.negative())
        if token.kind == "number":
            return Scalar(token.place, _number(token))
        if token.kind == "word" and self.next.text == ":":
            _fail(token.place, f"expected a value, got the key {token.text}.")
        if token.kind == "word":
            return Scalar(token.place, Word(token.text))
        _fail(token.place, f"expected a value, got {token}.")

    def negative(self) -> int | float:
        """Read the number after a minus."""
        token = self.take()
        if token.kind == "number":
            return -_number(token)
        if token.kind == "word" and token.text.lower() in ("inf", "infinity", "nan"):
            return -float(token.text)
        _fail(token.place, f"expected a number after '-', got {token}.")


def _number(token: Token) -> int | float:
    text = token.text.lower()
    if text.startswith("0x"):
        return int(text, 16)
    if not text.isdigit():
        return float(text.removesuffix("f"))
    if text.startswith("0") and not set(text) <= set("01234567"):
        _fail(token.place, f"a number that starts with 0 is octal: expected digits up to 7, got {token.text}.")
    return int(text, 8 if text.startswith("0") else 10)


def _unquoted(token: Token) -> str:
    r"""Return the text of a string; ``\101`` and ``\x41`` are bytes of UTF-8."""

    def escaped(match: re.Match[str]) -> str:
        octal, byte, *points, letter = match.groups()
        code = int(octal, 8) if octal else int(byte or points[0] or points[1] or "0", 16)
        if letter and letter not in ESCAPES:
            _fail(token.place, f"unknown escape {match[0]}. Known: {' '.join(ESCAPES)}, octal, x, u and U.")
        if not letter and code > (0xFF if octal or byte else 0x10FFFF):
            _fail(token.place, f"no character has the number of {match[0]}.")
        if octal or byte:
            return bytes([code]).decode("utf-8", "surrogateescape")
        return ESCAPES[letter] if letter else chr(code)

    text = ESCAPE.sub(escaped, token.text[1:-1])
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        _fail(token.place, "the bytes of this text are not UTF-8. Write UTF-8 text.")
