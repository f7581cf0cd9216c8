"""The notebooks of docs/, executed in a kernel as JupyterLab has it; that on HDFS is in tests/hdfs/test_notebook.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.notebooks import CHECKS, NOTEBOOKS, ON_HDFS, execute, read


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    notebook = read(path)
    assert notebook["cells"][0]["source"].startswith("# ")
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)


def test_every_notebook_has_its_check() -> None:
    assert sorted([*CHECKS, *ON_HDFS]) == [path.stem for path in NOTEBOOKS]


@pytest.mark.cluster
@pytest.mark.soak
@pytest.mark.parametrize("name", CHECKS)
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    outputs = execute(name, tmp_path, CHECKS[name])
    if name == "estimators":
        # trained without a job: a line for each epoch
        assert any("epoch 40: loss" in text for text in outputs["stderr"])
        return
    # progress, the checkpoint at the end of a job among it
    assert any("Checkpoint @ step" in text for text in outputs["text/html"])
