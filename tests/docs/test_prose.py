"""The prose of README.md and docs/ can be read once, and so can the first lines of docstrings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.docs.docstrings import PACKAGE, find_docstring_faults, known_faults
from tests.docs.pages import DOCS, README
from tests.docs.prose import find_faults
from tests.snippets import ROOT

PROSE = [README, ROOT / "CONTRIBUTING.md", ROOT / "examples/README.md", *sorted(DOCS.glob("*.md"))]
# Lines that may stay: they repeat texts of the package, which tests/runtime/job/test_limits.py compares.
EXEMPT = {"recovery.md": ("| `silent` |", "| `end` |")}

HARD = """\
# Title

One sentence is short. This other one has a great many words, so many that a reader who learned English as a second
language has to begin again before the end of it, which is what this test wants.

- Values of the first layer are told to those of the second.

| key | means |
|---|---|
| `a` | a b c d e f g h i j k l m n o p q r s t u |

    code is of which no prose
"""


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_can_be_read_once(page: Path) -> None:
    lines = page.read_text().splitlines()
    found = [
        fault
        for fault in find_faults(page)
        if not lines[int(fault.partition(":")[0]) - 1].startswith(EXEMPT.get(page.name, ()) or "\0")
    ]
    assert found == []


@pytest.mark.parametrize("notebook", sorted(DOCS.glob("notebooks/*.ipynb")), ids=lambda notebook: notebook.stem)
def test_a_notebook_can_be_read_once(notebook: Path, tmp_path: Path) -> None:
    cells = json.loads(notebook.read_text())["cells"]
    page = tmp_path / "page.md"
    page.write_text("\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"))
    assert list(find_faults(page)) == []


def test_faults_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(HARD + "\n" + "A word. " * 200)
    found = [fault.split(":")[:2] for fault in find_faults(page)]
    assert found == [
        ["3", " a sentence of 35 words"],
        ["6", " 'are told'"],
        ["6", " 'those of'"],
        ["10", " a cell of 21 words"],
        ["14", " a paragraph of 1599 characters"],
    ]


def test_first_lines_of_docstrings_say_what_a_thing_does() -> None:
    known = known_faults()
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        faults = list(find_docstring_faults(path))
        if len(faults) > known.get(name, 0):
            found[name] = faults
    assert found == {}


def test_faults_of_docstrings_are_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        f'"""What a module is."""\n\ndef f():\n    """Return those of a list."""\n\nclass C:\n    """{"x" * 101}"""\n'
    )
    assert [fault.split(":")[0] + fault.split(":")[1] for fault in find_docstring_faults(module)] == [
        "1 begins with 'What'",
        "3 'those of'",
        "6 101 characters",
    ]


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_says_at_once_for_whom_it_is_and_its_limits_last(page: Path) -> None:
    text = page.read_text()
    assert re.match(r"# .+\n\nThis page is for ", text)
    headings = re.findall(r"^## (.+)", text, re.MULTILINE)
    assert "Limits" not in headings[:-1]


def links(page: Path) -> set[Path]:
    """Return the pages that a page links to."""
    return {page.parent / name for name in re.findall(r"\]\(([\w-]+\.md)(?:#[\w-]+)?\)", page.read_text())}


def test_each_page_is_two_clicks_from_the_first() -> None:
    first = DOCS / "index.md"
    near = links(first)
    reached = {first, *near}.union(*map(links, near))
    assert set(DOCS.glob("*.md")) - reached == set()
