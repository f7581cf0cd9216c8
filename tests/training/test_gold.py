"""Runs of SINGA 0.3 itself, repeated from its checkpoints on its records: every line it printed, every param."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf, Phase, load
from singa_dask.data.codecs.singa_blobs import plain_param_name, read_blobprotos
from singa_dask.inputs import InputContext
from singa_dask.net import make_net
from singa_dask.ops import NumpyOps
from singa_dask.training import ALGORITHMS, UPDATERS
from tests.backends import backend

GOLD = Path(__file__).parents[1] / "gold"
RUNS = [
    *((name, "numpy") for name in ("mlp_sgd", "mlp_sgd_mom_step", "mlp_nesterov_inverse", "mlp_rmsprop_linear")),
    ("csv_net", "numpy"),
    ("conv_c", "numpy"),
    ("conv_c", "onednn"),
]
LOSS_WITHIN, PARAM_WITHIN = 3e-6, 2e-6
TESTED = {"test": Phase.TEST, "validation": Phase.VALIDATION}


def stored(path: Path) -> dict[str, Any]:
    found = read_blobprotos(path.read_bytes(), str(path))
    return {plain_param_name(name): param.values for name, param in found.items()}


class Run:
    """A job in one thread, without servers: what each of them does, done here."""

    def __init__(self, job: JobConf, ops: NumpyOps) -> None:
        self.job = job
        self.nets = {"train": make_net(job, InputContext(), ops)}
        train = self.nets["train"]
        for name, steps in (("test", job.test_steps), ("validation", job.validate_steps)):
            if steps:
                self.nets[name] = make_net(job, InputContext(TESTED[name]), ops, share_from=train)
        for net in self.nets.values():
            net.allocate()
        train.allocate_params()
        for name, values in stored(Path(job.checkpoint_path[0])).items():
            train.param(name).data[...] = values
        self.updater = UPDATERS.find(job.updater.type)(job.updater)
        states = self.updater.state_names
        self.states = {p.name: {s: np.zeros(p.size, np.float32) for s in states} for p in train.owners}

    def update(self, step: int, param: Any) -> None:
        scales = {"lr_scale": param.conf.lr_scale, "wd_scale": param.conf.wd_scale}
        value, grad = param.data.reshape(-1), param.grad.reshape(-1)
        self.updater.update(step, step, value, grad, self.states[param.name], **scales)

    def lines(self, after_20: Callable[[], None]) -> list[dict[str, Any]]:
        """Train, and return what SINGA prints."""
        job, found = self.job, []
        tests = {
            "validation": (job.validate_freq, job.validate_after, job.validate_steps),
            "test": (job.test_freq, job.test_after, job.test_steps),
        }
        algorithms = {name: ALGORITHMS.find(job.train_one_batch.alg)(net) for name, net in self.nets.items()}
        algorithms["train"].update = self.update
        for step in range(job.train_steps):
            for name, (freq, after, steps) in tests.items():
                if freq and step >= after and (step - after) % freq == 0:
                    for _ in range(steps):
                        algorithms[name].test_one_batch(TESTED[name])
                    found.append(self.line(name, step))
            if step == 20:
                after_20()
            algorithms["train"].train_one_batch(step)
            found.append(self.line("train", step))
        return found

    def line(self, phase: str, step: int) -> dict[str, Any]:
        figures = self.nets[phase].take_metrics()
        return {"phase": phase, "step": step, **{name: total / count for name, (total, count) in figures.items()}}


def check(run: Run, name: str) -> None:
    """Compare what a run prints, and its params after 20 updates, with SINGA's up to a step."""
    train, wanted_params = run.nets["train"], stored(GOLD / "end" / f"{name}.bin")

    def check_params() -> None:
        assert set(wanted_params) == {param.name for param in train.owners}
        for param in train.owners:
            np.testing.assert_allclose(param.data, wanted_params[param.name], rtol=0, atol=PARAM_WITHIN)

    try:
        lines = run.lines(check_params)
    finally:
        for net in run.nets.values():
            net.close()
    wanted = json.loads((GOLD / "lines" / f"{name}.json").read_text())
    assert [(line["phase"], line["step"]) for line in lines] == [(line["phase"], line["step"]) for line in wanted]
    for line, singas in zip(lines, wanted, strict=True):
        assert line["loss"] == pytest.approx(singas["loss"], abs=LOSS_WITHIN, rel=0), line
        assert line["accuracy"] == pytest.approx(singas["accuracy"], abs=1e-6), line


@pytest.mark.parametrize(("name", "ops"), RUNS)
def test_the_same_run_as_singas(name: str, ops: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLD)
    check(Run(load(f"{name}.yaml").job, backend(ops)), name)
