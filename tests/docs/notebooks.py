"""The notebooks of docs/, and how tests execute them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat

from tests.snippets import ROOT, copy_repository

__all__ = ["CHECKS", "NOTEBOOKS", "ON_HDFS", "execute", "read"]

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
ON_HDFS = ("hdfs",)
WITHIN_S = 1200
EXECUTE = "from nbclient.cli import main; main()"

CHECKS = {
    "dataframe": "assert (model.predict(penguins) == penguins.species).mean() > 0.9",
    "estimators": "assert best.score(test[features], test.species) > 0.9",
    "first-net": "assert run.metrics['test']['accuracy'] > 0.9\n"
    "assert slow.metrics['test']['loss'] > run.metrics['test']['loss']",
    "frameworks": "assert [run.metrics['test']['accuracy'] > 0.8 for run in runs.values()] == [True] * 4",
    "own-layer": "assert [run.metrics['train']['accuracy'] > 0.85 for run in (swish, relu)] == [True] * 2",
    "pictures": "assert run.metrics['test']['accuracy'] > 0.7",
}
"""What is true after the last cell of a notebook: its text says so, too."""


def read(path: Path) -> Any:
    """Read a notebook, and check that it is valid."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def execute(
    name: str, folder: Path, check: str, substitutions: Mapping[str, str] | None = None, path: str = ""
) -> dict[str, list[str]]:
    """Execute a notebook in a reader's copy of the repository, by a kernel of its own.

    Parameters
    ----------
    name : str
    folder : Path
        Where the copy is made.
    check : str
        A last cell.
    substitutions : mapping, optional
        Text of the notebook -> what runs in its place; all of it is there.
    path : str
        Directory of programs that come first.

    Returns
    -------
    dict of str to list of str
        What its cells show, by mime type; ``stderr`` is what they write there.
    """
    copy = copy_repository(folder / "copy")
    place = copy / "docs" / "notebooks" / f"{name}.ipynb"
    place.parent.mkdir(parents=True)
    shutil.copy(FOLDER / place.name, place)
    notebook = read(place)
    text = "\n".join(cell["source"] for cell in notebook["cells"])
    for old, new in (substitutions or {}).items():
        assert old in text, f"{name}: {old!r} is not there any more"
        for cell in notebook["cells"]:
            cell["source"] = cell["source"].replace(old, new)
    notebook["cells"].append(nbformat.v4.new_code_cell(check))
    nbformat.write(notebook, place)
    command = [sys.executable, "-c", EXECUTE, "--inplace", f"--startup_timeout={WITHIN_S}", str(place)]
    done = subprocess.run(
        command, cwd=place.parent, env=_environ(folder, path), capture_output=True, text=True, timeout=WITHIN_S
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return _outputs(read(place))


def _environ(folder: Path, path: str) -> dict[str, str]:
    """Return an environment in which nothing is read from or written to the user's home."""
    own = {name: str(folder / name.lower()) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
    first = [path] if path else []
    own["PATH"] = os.pathsep.join([*first, str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    mine = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "DASK_SCHEDULER_ADDRESS")}
    return {**mine, **own, "SINGA_DASK_CACHE": str(folder / "cache")}


def _outputs(notebook: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                found.setdefault("stderr", []).append(output["text"])
            for kind, content in output.get("data", {}).items():
                found.setdefault(kind, []).append(content)
    return found
