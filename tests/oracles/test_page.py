"""Every code block of docs/from-pytorch.md, pasted in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

from tests.docs.pages import DOCS
from tests.snippets import read_blocks, session

pytest.importorskip("torch")

MOST_NEW_LINES = 5


@pytest.mark.cluster
def test_the_page_for_users_of_pytorch(tmp_path: Path) -> None:
    blocks = read_blocks(DOCS / "from-pytorch.md")
    options: dict[str, Any] = {
        "n_workers": 2,
        "threads_per_worker": 2,
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
    }
    with LocalCluster(**options) as cluster:
        address = {"tcp://scheduler:8786": cluster.scheduler_address}
        with session(tmp_path / "copy", address, {blocks[0].text.strip(): "PyTorch is installed"}) as made:
            said = [made.run(block) for block in blocks]
            assert made.unused() == set()
            predicted = (made.directory / "digits.csv").read_text().splitlines()
    assert len(predicted) == 2001
    accuracies = [line.split()[1] for text in said for line in text.splitlines() if line.startswith("accuracy ")]
    assert len(accuracies) == 2
    assert min(map(float, accuracies)) > 0.9
    (changes,) = read_blocks(DOCS / "from-pytorch.md", "diff")
    assert (
        sum(line.startswith("+") and not line.startswith("+++") for line in changes.text.splitlines()) <= MOST_NEW_LINES
    )
