"""Memory: once warm, a step through worker, stub and server allocates nothing of batch size; nets go with their job."""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf, Phase, load
from singa_dask.net import NeuralNet
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.units import run_unit
from singa_dask.runtime.units.unit_host import UnitHost
from tests.converting import convert
from tests.runtime.harness import ALLREDUCE, SINGLE, Outcome, mlp
from tests.selection import circles

ROOT = Path(__file__).parents[3]
WARM = 3  # steps after which everything has been made


def job_on_noise(config: str, batch: int, folder: Path, **changes: Any) -> JobConf:
    """Return the training net of a job file on a few made-up records."""
    job = load(ROOT / "configs" / config).job.model_dump(mode="json", exclude_none=True)
    layers = [layer for layer in job["neuralnet"]["layer"] if layer.get("include") != ["test"]]
    store = layers[0]["store_conf"]
    random = np.random.default_rng(0)
    n = 2 * batch  # so that the loader has read all of them before the step that is measured first
    images = random.integers(0, 256, (n, *store["shape"]), np.uint8)
    np.savez(folder / "noise.npz", images=images, labels=random.integers(0, 10, n).astype(np.uint8))
    convert("npz", [str(folder / "noise.npz")], str(folder / "noise.arrow"))
    store.update(path=str(folder / "noise.arrow"), mean_file="", mean_value=127.5, batchsize=[batch])
    never = {"test_freq": 0, "validate_freq": 0, "checkpoint_freq": 0}
    job.update(neuralnet={"layer": layers}, train_steps=WARM + 3, disp_freq=1, **never, **changes)
    return JobConf.model_validate(job)


@pytest.mark.parametrize(
    ("config", "batch", "ops", "bound"),
    circles(
        [
            ("mnist/lenet.yaml", 64, "auto", 150_000),
            ("mnist/mlp.yaml", 64, "auto", 100_000),
            ("mnist/lenet.yaml", 64, "numpy", 150_000),
            ("cifar10/convnet_bn.yaml", 20, "auto", 200_000),
            ("cifar10/convnet.yaml", 20, "auto", 200_000),
            ("cifar10/resnet20.yaml", 20, "auto", 200_000),
        ],
        long=3,
    ),
)
def test_a_step_allocates_nothing_of_batch_size(
    run_job: Callable[..., Outcome], tmp_path: Path, config: str, batch: int, ops: str, bound: int
) -> None:
    """``bound`` is well below the least feature of a batch but for a few records and the last layers."""
    sizes: list[tuple[int, int]] = []

    def measure(hosts: list[UnitHost], event: dict[str, Any]) -> None:
        if event["event"] == "metrics" and event["step"] >= WARM - 1:
            tracemalloc.start()  # it makes all slower; where it traces already, nothing happens
            sizes.append(tracemalloc.get_traced_memory())
            tracemalloc.reset_peak()

    try:
        outcome = run_job(job_on_noise(config, batch, tmp_path, ops=ops), on_event=measure)
    finally:
        tracemalloc.stop()
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports
    assert len(sizes) == 4
    grown = [peak - before for (before, _), (_, peak) in pairwise(sizes)]
    # other threads may allocate something meanwhile; what a step itself takes it takes in each
    assert min(grown) < bound, grown


@pytest.mark.parametrize("cluster", circles([SINGLE, ALLREDUCE], long=1), ids=["single", "allreduce"])
def test_the_nets_of_a_job_go_when_it_ends(
    run_job: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, cluster: dict[str, Any]
) -> None:
    nets: list[weakref.ref[NeuralNet]] = []

    def build(*args: Any, **others: Any) -> dict[Phase, NeuralNet]:
        made = build_nets(*args, **others)
        nets.extend(map(weakref.ref, made.values()))
        return made

    monkeypatch.setattr(run_unit, "build_nets", build)
    run_job(mlp(cluster=cluster))
    assert nets
    assert not any(net() for net in nets)
