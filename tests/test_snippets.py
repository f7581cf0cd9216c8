"""Blocks of a document run in order, in one session, and a wrong one fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.snippets import Session, read_blocks

DOCUMENT = """\
# First

```sh
export NAME=value
mkdir here && cd here     # stays
sleep 300 &
```

## Second

```yaml
# job.yaml
name: tiny
```

```sh
test "$NAME" = value && test "$(basename "$PWD")" = here
echo PLACE
impossible --now
```

```sh
false | true
```
"""


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "some.md"
    path.write_text(DOCUMENT)
    return path


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    (tmp_path / "copy").mkdir()
    made = Session(tmp_path / "copy", {"PLACE": "Rome", "never": "there"}, {"impossible --now": "it is impossible"})
    yield made
    made.close()


def test_blocks_are_found_with_their_sections(document: Path) -> None:
    blocks = read_blocks(document)
    assert [block.language for block in blocks] == ["sh", "yaml", "sh", "sh"]
    assert [block.section for block in blocks] == ["First", "Second", "Second", "Second"]
    assert str(blocks[0]) == "some.md:4"
    assert document.read_text().splitlines()[blocks[2].line - 1] == blocks[2].text.splitlines()[0]
    assert read_blocks(document, "yaml") == [blocks[1]]


def test_a_session_lasts_from_block_to_block(document: Path, session: Session) -> None:
    first, job, second, failing = read_blocks(document)
    session.run(first)
    session.run(job)
    assert (session.directory / "job.yaml").read_text() == job.text
    assert session.run(second) == "Rome\n"
    assert session.unused() == {"never"}
    with pytest.raises(AssertionError, match=r"some\.md:23: exit code 1"):
        session.run(failing)


def test_what_takes_too_long_is_ended(session: Session) -> None:
    with pytest.raises(AssertionError, match="not within"):
        session.shell("sleep 300", timeout_s=0.1)


def test_a_fence_that_is_not_closed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "some.md").write_text("```sh\ntrue\n")
    with pytest.raises(AssertionError, match=r"some\.md:1: the fence"):
        read_blocks(tmp_path / "some.md")
