"""Runs of SINGA 0.3 itself, repeated from its own job files as they are.

That of gru_sgd had the two errors in SINGA's gradients of a GRU mended; SINGA prints the sums over its six time steps,
the lines kept here are means.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from singa_dask.conf import load
from tests.backends import backend
from tests.training.test_gold import GOLD, RUNS, Run, check


@pytest.mark.parametrize(
    ("name", "ops"), [*RUNS, ("mp1_same_net", "numpy"), ("gru_sgd", "numpy"), ("gru_sgd", "onednn")]
)
def test_the_same_run_as_singas(name: str, ops: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paths of a job file start in the directory that the program was started in."""
    for there, here in {"data": "data", "ckpt": "start"}.items():
        (tmp_path / there).symlink_to(GOLD / here)
    monkeypatch.chdir(tmp_path)
    check(Run(load(GOLD / "confs" / f"{name}.conf").job, backend(ops)), name)
