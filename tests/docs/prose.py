"""Find prose that is hard to read: long sentences, paragraphs and table cells, and phrases that this project avoids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["AVOIDED", "Passage", "find_faults", "read_passages"]

MAX_SENTENCE_WORDS = 30
MAX_CELL_WORDS = 20
# six lines of 150 characters
MAX_PARAGRAPH_CHARACTERS = 900
PARAGRAPH, CELL = "paragraph", "cell"

# Phrases that name no thing, or no action: say which thing, and use the verb of the field.
AVOIDED = re.compile(
    r"\b(?:(?:that|those|the ones?) of|of which|by which|those that|(?:is|are|was|were|be) told|the others go on"
    r"|by hand|limits of time|take note|come to the same|the house|the face of|a verb|in line|a room|what to say)\b"
    r"|(?:^|[.:] )Say (?!\")",
    re.IGNORECASE,
)
ITEM = re.compile(r" *(?:[-*]|\d+\.) +")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+).+?\1", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
SENTENCE_END = re.compile(r"(?<=[.?!])[*)\"]*\s+(?=[A-Z(*\"])|(?<=:)\s+(?=[A-Z][a-z]+ )")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|et al|vs)\.")
WORD = re.compile(r"\w[\w'’/.,-]*")


@dataclass(frozen=True)
class Passage:
    """A paragraph, an item of a list, or a cell of a table, without code, addresses and emphasis."""

    line: int
    kind: str
    text: str

    def sentences(self) -> list[str]:
        """Return its sentences; a lead-in that ends with a colon is one too."""
        return SENTENCE_END.split(ABBREVIATION.sub(lambda match: match[1].replace(".", ""), self.text))


def plain(text: str) -> str:
    """Return Markdown as text in which each piece of code is one word."""
    return LINK.sub(r"\1", CODE.sub("Code", text)).replace("**", "").strip()


def read_passages(path: Path) -> Iterator[Passage]:
    """Yield the prose of a Markdown file; blocks of code and headings are left out."""
    text = FENCE.sub(lambda match: "\n" * match[0].count("\n"), path.read_text())
    lines, start, in_list = [], 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        ends = not line.strip() or line.startswith(("#", "|", ">", "![")) or ITEM.match(line)
        if ends and lines:
            yield Passage(start, PARAGRAPH, plain(" ".join(lines)))
            lines = []
        if line.startswith(("|", "#")):
            in_list = False
        if line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                yield Passage(number, CELL, plain(cell))
        elif ITEM.match(line):
            lines, start, in_list = [ITEM.sub("", line, count=1)], number, True
        elif line.strip() and not ends:
            if not lines:
                in_list = in_list and line.startswith(" ")
                if line.startswith("    ") and not in_list:
                    continue
                start = number
            lines.append(line.strip())


def find_faults(path: Path) -> Iterator[str]:
    """Yield each fault of a page as ``line: what is wrong: the passage``."""
    for passage in read_passages(path):
        if passage.kind == CELL:
            n = len(WORD.findall(passage.text))
            if n > MAX_CELL_WORDS:
                yield f"{passage.line}: a cell of {n} words: {passage.text}"
        elif len(passage.text) > MAX_PARAGRAPH_CHARACTERS:
            yield f"{passage.line}: a paragraph of {len(passage.text)} characters: {passage.text[:60]} ..."
        for sentence in passage.sentences() if passage.kind == PARAGRAPH else ():
            n = len(WORD.findall(sentence))
            if n > MAX_SENTENCE_WORDS:
                yield f"{passage.line}: a sentence of {n} words: {sentence}"
        for avoided in AVOIDED.finditer(passage.text):
            yield f"{passage.line}: {avoided[0]!r}: {passage.text[max(0, avoided.start() - 60) : avoided.end() + 60]}"
