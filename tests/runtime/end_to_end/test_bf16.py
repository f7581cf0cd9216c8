"""Jobs with ``precision: bf16``: they train as in float32, what they keep is float32, and runs repeat to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError
from singa_dask.ops import get_ops
from singa_dask.ops.onednn import library
from singa_dask.runtime.planning.nets import build_nets
from tests.runtime.harness import ALLREDUCE, SINGLE, Outcome, dense, mlp
from tests.selection import circles

Run = Callable[..., Outcome]
N_STEPS = 20


@pytest.fixture(autouse=True)
def bf16_here() -> None:
    try:
        get_ops("onednn", "bf16")
    except ConfigError as error:
        pytest.skip(str(error))


def window(kind: str, name: str, source: str, **block: Any) -> dict[str, Any]:
    """Describe a layer with a window of 3."""
    key = {"Convolution": "convolution_conf", "Pooling": "pooling_conf"}[kind]
    param = [
        {"name": f"{name}.w", "init": {"type": "UniformSqrtFanIn"}},
        {"name": f"{name}.b", "init": {"type": "Constant", "value": 0}},
    ]
    made = {"name": name, "type": kind, "srclayers": [source], key: {"kernel": 3, **block}}
    return {**made, "param": param} if kind == "Convolution" else made


def convnet(**changes: Any) -> JobConf:
    """Return a job with every kind of layer of a convolutional net, on the digits that are checked in."""
    store = {**mlp().model_dump(mode="json")["neuralnet"]["layer"][0]["store_conf"], "shape": [1, 28, 28]}
    layers = [
        {"name": "data", "type": "RecordInput", "store_conf": store},
        window("Convolution", "conv1", "data", num_filters=16, pad=1),
        window("Pooling", "pool1", "conv1", pool="MAX", stride=2),
        {"name": "relu1", "type": "ReLU", "srclayers": ["pool1"]},
        {"name": "norm1", "type": "LRN", "srclayers": ["relu1"], "lrn_conf": {"local_size": 3}},
        window("Convolution", "conv2", "norm1", num_filters=16),
        {"name": "bn", "type": "BatchNorm", "srclayers": ["conv2"]},
        {"name": "relu2", "type": "ReLU", "srclayers": ["bn"]},
        window("Pooling", "pool2", "relu2", pool="AVG", stride=2),
        {"name": "drop", "type": "Dropout", "srclayers": ["pool2"], "dropout_conf": {"dropout_ratio": 0.3}},
        dense("ip", "drop", 10),
        {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["ip", "data"]},
    ]
    return mlp(**{"neuralnet": {"layer": layers}, "train_steps": N_STEPS, **changes})


JOBS = {"mlp": mlp, "convnet": convnet}


@pytest.mark.parametrize("name", circles(JOBS, long=1))
def test_a_job_trains_as_in_float32(run_job: Run, name: str) -> None:
    how = {"train_steps": N_STEPS, "ops": "onednn"}
    exact, coarse = (run_job(JOBS[name](precision=precision, **how)) for precision in ("float32", "bf16"))
    wanted, losses = list(exact.losses().values()), list(coarse.losses().values())
    assert np.mean(losses[-5:]) < 0.7 * losses[0]
    assert losses != wanted
    np.testing.assert_allclose(losses, wanted, rtol=0.05)
    assert {values.dtype for values in coarse.params().values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("name", circles(JOBS))
@pytest.mark.parametrize("cluster", circles([SINGLE, ALLREDUCE], long=1), ids=["single", "allreduce"])
def test_runs_repeat_and_resume_to_the_bit(run_job: Run, name: str, cluster: dict[str, Any]) -> None:
    def run(n_steps: int, **how: Any) -> tuple[Outcome, dict[str, bytes]]:
        outcome = run_job(JOBS[name](precision="bf16", ops="onednn", cluster=cluster, train_steps=n_steps), **how)
        return outcome, {name: values.tobytes() for name, values in outcome.params().items()}

    (whole, wanted), (again, same) = run(8), run(8)
    assert same == wanted
    assert again.losses() == whole.losses()
    half, _ = run(4)
    rest, resumed = run(8, resume=f"{half.url}/checkpoint/step-4")
    assert resumed == wanted
    assert {**half.losses(), **rest.losses()} == whole.losses()


@pytest.mark.long
def test_a_job_tests_in_it_too(run_job: Run) -> None:
    outcome = run_job(convnet(precision="bf16", ops="onednn", test_freq=10, test_steps=2, cluster=ALLREDUCE))
    losses = outcome.losses("test")
    assert list(losses) == [0, 10, 20]
    assert losses[20] < 0.7 * losses[0]


def test_a_processor_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "AVX512_CORE", 1 << 30)  # instructions that no CPU has
    with pytest.raises(ConfigError, match="AVX-512") as caught:
        build_nets(mlp(precision="bf16"))
    assert [problem.path for problem in caught.value.problems] == [("precision",)]


def test_a_processor_that_is_slow_in_it_has_to_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "AVX512_CORE_BF16", 1 << 30)  # instructions that no CPU has
    with pytest.raises(ConfigError, match="three times slower than float32 on this CPU") as caught:
        build_nets(mlp(precision="bf16"))
    assert [problem.path for problem in caught.value.problems] == [("precision",)]
    build_nets(mlp(precision="bf16", ops="onednn"))
