"""A way to call the command line in this process, and a job that takes a moment."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from singa_dask.cli import main, tasks
from singa_dask.data.stores import open_store
from singa_dask.data.stores.tables import table_store
from tests.contracts.records import read_all

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "data" / "digits" / "test.arrow"
# of the 2,000 records the last batch then has 50
BATCH = "neuralnet.layer[data].store_conf.batchsize=150"
Call = Callable[..., Result]
Made = Callable[[], set[str]]

TINY = f"""\
name: tiny
seed: 7
train_steps: 6
disp_freq: 2
test_freq: 3
test_steps: 2
train_one_batch: {{alg: BP}}
updater:
  type: SGD
  momentum: 0.9
  learning_rate: {{type: Fixed, base_lr: 0.05}}
neuralnet:
  layer:
    - name: data
      type: RecordInput
      store_conf: {{path: {ROOT}/data/digits/test.arrow, shape: [28, 28], batchsize: 20, std_value: 255, shuffle: full}}
    - name: fc
      type: InnerProduct
      srclayers: data
      innerproduct_conf: {{num_output: 10}}
      param:
        - {{name: w, init: {{type: UniformSqrtFanIn}}}}
        - {{name: b, init: {{type: Constant, value: 0}}}}
    - name: loss
      type: SoftmaxLoss
      srclayers: [fc, data]
"""


def read(url: Path | str, **options: Any) -> dict[str, np.ndarray]:
    """Return all records of a store."""
    with open_store(str(url), **options) as store:
        return read_all(store)


def digits() -> dict[str, np.ndarray]:
    """Return the test digits."""
    return read(DIGITS)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run directory of the tiny job; its tests read all records."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(TINY)
    whole = ["--set", "neuralnet.layer[data].store_conf.shuffle=none", "--set", "test_steps=100"]
    result = CliRunner().invoke(main, ["run", str(folder / "tiny.yaml"), "--run-dir", str(folder / "run"), *whole])
    assert result.exit_code == 0, result.output
    return folder / "run"


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    """Return a function that runs ``singa-dask`` with some arguments in this process; no line tells that it is slow."""
    monkeypatch.setattr(tasks, "LINE_S", math.inf)

    def run(*args: Any) -> Result:
        return CliRunner().invoke(main, [str(arg) for arg in args], prog_name="singa-dask")

    return run


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return a job file of six small steps."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Return a function that lists what was created, changed or deleted since its last call.

    The directories are ``home``, ``cwd`` and ``data``. Indices of short tables are stored, too.
    """
    for name in ("home", "cwd", "data"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SINGA_DASK_CACHE")
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr(table_store, "MIN_INDEXED_BYTES", 1)
    seen: dict[str, int] = {}

    def list_changes() -> set[str]:
        now = {
            str(path.relative_to(tmp_path)): path.stat().st_mtime_ns * path.is_file() for path in tmp_path.rglob("*")
        }
        changes = {name for name in {*seen, *now} if seen.get(name) != now.get(name)}
        seen.clear()
        seen.update(now)
        return changes

    list_changes()
    return list_changes


def noted(said: str) -> list[str]:
    """Return the lines of the table of what ``init`` fills or leaves out, with single blanks."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    first = lines.index("column values found done") if "column values found done" in lines else len(lines)
    return lines[first : next((i for i, line in enumerate(lines) if ": a job with net " in line), len(lines))]
