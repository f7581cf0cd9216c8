"""Find docstrings of the package whose first line is long, or does not say what the thing does.

``python -m tests.docs.docstrings`` writes how many each file has today, to `KNOWN`. Run it after first lines were
rewritten: the numbers should only get smaller.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

from tests.docs.prose import AVOIDED
from tests.snippets import ROOT

__all__ = ["KNOWN", "PACKAGE", "find_docstring_faults", "known_faults"]

PACKAGE = ROOT / "singa_dask"
KNOWN = Path(__file__).with_name("docstrings.txt")
MAX_CHARACTERS = 100
# A first line begins with an imperative verb of the field, or with a noun.
BAD_STARTS = {
    *("After", "As", "By", "For", "How", "If", "Its", "Of", "That", "Those", "What", "When", "Where", "Which", "Why"),
    *("Be", "Become", "Go", "Have", "Let", "Look", "Say", "Tell"),
}


def find_docstring_faults(path: Path) -> Iterator[str]:
    """Yield each fault of a module's docstrings as ``line: what is wrong: the first line``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = (ast.get_docstring(node) or "").partition("\n")[0]
        line = getattr(node, "lineno", 1)
        if len(first) > MAX_CHARACTERS:
            yield f"{line}: {len(first)} characters: {first}"
        word = first.partition(" ")[0].rstrip(",.:;")
        if word in BAD_STARTS:
            yield f"{line}: begins with {word!r}: {first}"
        for avoided in AVOIDED.finditer(first):
            yield f"{line}: {avoided[0]!r}: {first}"


def known_faults() -> dict[str, int]:
    """Return the number of faults of each file when the list was written; other files had none."""
    rows = (line.split() for line in KNOWN.read_text().splitlines())
    return {name: int(number) for number, name in rows}


def main() -> None:
    """Write the number of faults of each file that has some."""
    description, text = (__doc__ or "").split("\n\n", 1)
    argparse.ArgumentParser(prog="python -m tests.docs.docstrings", description=description, epilog=text).parse_args()
    found = {path: len(list(find_docstring_faults(path))) for path in sorted(PACKAGE.rglob("*.py"))}
    KNOWN.write_text("".join(f"{n} {path.relative_to(PACKAGE).as_posix()}\n" for path, n in found.items() if n))


if __name__ == "__main__":
    main()
