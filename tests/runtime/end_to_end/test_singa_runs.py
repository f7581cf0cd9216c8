"""Runs of SINGA 0.3 itself, repeated by whole jobs: from its checkpoints, on its records, to its figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from singa_dask.conf import JobConf, load
from singa_dask.runtime.checkpoints.lookup import load_values
from tests.backends import backend
from tests.runtime.harness import ALLREDUCE, SANDBLASTER_1, SINGLE, Outcome
from tests.selection import circles

GOLD = Path(__file__).parents[2] / "gold"
CLUSTERS = {"single": SINGLE, "allreduce": ALLREDUCE, "sandblaster": SANDBLASTER_1}
RUNS = [
    ("mlp_sgd_mom_step", "numpy", "allreduce"),
    ("conv_c", "onednn", "single"),
    ("csv_net", "numpy", "sandblaster"),
    ("mlp_sgd", "numpy", "allreduce"),
    ("mlp_nesterov_inverse", "numpy", "single"),
    ("mlp_rmsprop_linear", "numpy", "sandblaster"),
    ("conv_c", "numpy", "allreduce"),
]
REST = [(name, ops, cluster) for name, ops, known in RUNS for cluster in CLUSTERS if cluster != known]
LOSS_WITHIN, PARAM_WITHIN = 3e-6, 2e-6


@pytest.mark.parametrize(("name", "ops", "cluster"), circles([*RUNS, *REST], plain=3, long=4))
def test_a_job_repeats_singas_run(
    run_job: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, name: str, ops: str, cluster: str
) -> None:
    monkeypatch.chdir(GOLD)
    backend(ops)
    job = load(f"{name}.yaml").job
    topology = CLUSTERS[cluster]
    outcome = run_job(JobConf.model_validate({**job.model_dump(mode="json"), "cluster": topology, "ops": ops}))
    lines = json.loads((GOLD / "lines" / f"{name}.json").read_text())
    for phase in ("train", "test", "validation"):
        wanted = {line["step"]: line["loss"] for line in lines if line["phase"] == phase}
        losses = outcome.losses(phase)
        assert {step: losses[step] for step in wanted} == pytest.approx(wanted, abs=LOSS_WITHIN, rel=0), phase
    stored = load_values(f"{outcome.url}/checkpoint/step-20")
    for param, singas in load_values(f"end/{name}.bin").items():
        np.testing.assert_allclose(stored[param].values, singas.values, rtol=0, atol=PARAM_WITHIN)
