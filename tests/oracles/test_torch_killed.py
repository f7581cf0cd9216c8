"""``kill -9`` of a process of a job with a module of PyTorch: done, with the bits of a run that nobody disturbed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from singa_dask.exports.exporting import export_job
from tests.faults.jobs import STEPS, first_unit, job
from tests.faults.machines import BARE, machines
from tests.faults.runs import Run, at_step, check_same, killed
from tests.runtime.harness import mlp, run_to_its_end

torch: Any = pytest.importorskip("torch")


@pytest.mark.cluster
def test_dropout_and_batchnorm_go_on_as_they_were(tmp_path: Path) -> None:
    net: dict[str, Any] = mlp().model_dump(mode="json")["neuralnet"]
    data, loss = net["layer"][0], net["layer"][-1]
    module = {"module": "tests.oracles.torch_models:Dense", "args": {"inputs": 28 * 28, "outputs": 10}}
    made = job("allreduce", neuralnet={"layer": [
        data,
        {"name": "net", "type": "TorchModule", "srclayers": ["data"], "torchmodule_conf": module},
        {**loss, "srclayers": ["net", "data"]},
    ]})  # fmt: skip
    with machines(tmp_path, *BARE) as there:
        run = Run(made, there, tmp_path / "runs", (at_step(40), killed(first_unit(made, 1))))
    check_same(run, run_to_its_end(made, str(tmp_path / "calm")))
    export_job(made, run.url, str(tmp_path / "net.pt"))
    assert torch.load(tmp_path / "net.pt", weights_only=True)["norm.num_batches_tracked"] == STEPS
