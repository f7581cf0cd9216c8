"""Jobs with ``precision: auto``: bf16 where it is faster and possible, else float32; as accurate as in float32."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import singa_dask as sd
from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError
from singa_dask.ops import get_ops
from singa_dask.runtime.checkpoints import lookup
from singa_dask.runtime.job import precision
from singa_dask.runtime.planning import loop
from tests.runtime.end_to_end.test_bf16 import convnet
from tests.runtime.harness import ALLREDUCE, mlp
from tests.selection import mostly_long, mostly_soak

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def bf16_here() -> None:
    try:
        get_ops("auto", "bf16")
    except ConfigError as error:
        pytest.skip(str(error))


def train(job: JobConf, run_dir: Path, **how: Any) -> sd.Run:
    keys = job.model_dump(mode="json", exclude_unset=True)
    return sd.train(sd.Job(keys.pop("neuralnet"), **keys), run_dir=str(run_dir), progress=False, **how)


def params(run: sd.Run) -> dict[str, bytes]:
    return {name: stored.values.tobytes() for name, stored in lookup.load_values(run.url).items()}


def chosen(run: sd.Run) -> tuple[str, str]:
    """Return the precision of a run, and what it says of it."""
    (line,) = [line for line in run.logs("driver").splitlines() if "precision: " in line]
    return run.summary["precision"], line.partition("precision: ")[2]


@pytest.mark.usefixtures("bf16_here")
@pytest.mark.parametrize(("gain", "wanted"), mostly_long([(1.3, "bf16"), (1.05, "float32")], 2))
def test_what_is_measured_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gain: float, wanted: str) -> None:
    monkeypatch.setattr(precision, "measure_gain", lambda job, threads: gain)
    run = train(mlp(precision="auto", train_steps=4), tmp_path / "auto")
    assert chosen(run) == (wanted, f"{wanted}, as bf16 is {gain:.2f} times as fast as float32")
    named = train(mlp(precision=wanted, train_steps=4), tmp_path / "named")
    assert params(run) == params(named)


@pytest.mark.usefixtures("bf16_here")
def test_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SECONDS", 0.0)
    for job in (mlp(precision="auto"), convnet(precision="auto", cluster=ALLREDUCE)):
        gain = precision.measure_gain(job, 1)
        assert math.isfinite(gain) and gain > 0


@pytest.mark.long
@pytest.mark.usefixtures("bf16_here")
def test_a_run_that_goes_on_keeps_its_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "measure_gain", lambda job, threads: 2.0)
    half = train(mlp(precision="auto", train_steps=4), tmp_path)
    monkeypatch.setattr(precision, "measure_gain", lambda job, threads: 0.5)
    rest = train(mlp(precision="auto", train_steps=8), tmp_path / "rest", resume=half.url)
    assert chosen(rest) == ("bf16", "bf16, as before")


def test_a_machine_that_is_slow_in_bf16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_is_fast", lambda: False)
    found, reason = chosen(train(mlp(precision="auto", train_steps=4), tmp_path))
    assert found == "float32" and reason.endswith(" has no instructions for bf16")


def test_kernels_without_bf16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_is_fast", lambda: True)
    found, reason = chosen(train(mlp(precision="auto", ops="numpy", train_steps=4), tmp_path))
    assert found == "float32" and "bf16 is for ops onednn and cupy, not numpy" in reason


def test_gpus_have_to_be_told() -> None:
    keys = mlp().model_dump(mode="json", exclude_unset=True)
    net = keys.pop("neuralnet")
    for where in ({"gpu": [0]}, {"ops": "cupy"}):
        with pytest.raises(ConfigError, match=r"auto is for CPUs\. On GPUs say float32, tf32 or bf16\."):
            sd.Job(net, **keys, precision="auto", **where)


@pytest.mark.soak
@pytest.mark.usefixtures("bf16_here")
@pytest.mark.parametrize("config", mostly_soak(["digits/mlp.yaml", "digits/mobilenet.yaml", "penguins/mlp.yaml"], 3))
def test_bf16_is_as_accurate(config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CONFIGS.parent)
    found = []
    for name in ("float32", "bf16"):
        job = sd.load(str(CONFIGS / config)).replace({"precision": name, "ops": "onednn"})
        run = sd.train(job, run_dir=str(tmp_path / name), progress=False)
        found.append(run.summary["test"]["accuracy"])
    assert found[1] == pytest.approx(found[0], abs=0.015)
