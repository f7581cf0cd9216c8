"""Every code block of docs/from-pytorch.md, pasted in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tests.snippets import read_blocks, session

pytest.importorskip("torch")


@pytest.mark.cluster
def test_the_page_for_users_of_pytorch(tmp_path: Path) -> None:
    blocks = read_blocks(DOCS / "from-pytorch.md")
    with session(tmp_path / "copy", {}, {blocks[0].text.strip(): "PyTorch is installed"}) as made:
        for block in blocks:
            made.run(block)
        assert made.unused() == set()
        predicted = (made.directory / "digits.csv").read_text().splitlines()
    assert len(predicted) == 2001
