"""Nets trained in bf16 are as accurate as in float32."""

from __future__ import annotations

from pathlib import Path

import pytest

import singa_dask as sd
from singa_dask.errors import ConfigError
from singa_dask.ops import get_ops
from tests.selection import mostly_soak

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.soak
@pytest.mark.parametrize("config", mostly_soak(["digits/mlp.yaml", "digits/mobilenet.yaml", "penguins/mlp.yaml"], 3))
def test_bf16_is_as_accurate(config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        get_ops("auto", "bf16")
    except ConfigError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(CONFIGS.parent)
    found = []
    for name in ("float32", "bf16"):
        job = sd.load(str(CONFIGS / config)).replace({"precision": name, "ops": "onednn"})
        run = sd.train(job, run_dir=str(tmp_path / name), progress=False)
        found.append(run.summary["test"]["accuracy"])
    assert found[1] == pytest.approx(found[0], abs=0.015)
