"""A worker that is the only one of its server updates params in its own thread: as by messages, to the bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.comm.message import Address, Message
from singa_dask.comm.slices import slice_table
from singa_dask.conf import ClusterConf, UpdaterConf
from singa_dask.ops import NumpyOps
from singa_dask.runtime.units import run_unit, unit_host
from singa_dask.runtime.units.router import Router
from singa_dask.runtime.units.server import Server
from tests.backends import need_gpus
from tests.runtime.harness import ALLREDUCE, SINGLE, Outcome, dense, mlp, run_job
from tests.selection import circles

__all__ = ["run_job"]

Run = Callable[..., Outcome]
STEPS = 6


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the messages of each kind, those in packs too."""
    counted: Counter[str] = Counter()
    real = Router.post

    def post(router: Router, message: Message) -> None:
        counted.update(part.kind for part in (message.parts or (message,)))
        real(router, message)

    monkeypatch.setattr(Router, "post", post)
    return counted


def job(**more: Any) -> Any:
    """Return a job with running statistics, params of two scales, and weights that two layers share."""
    layers = mlp().model_dump(mode="json", exclude_unset=True)["neuralnet"]["layer"]
    layers[2] = {"name": "act1", "type": "BatchNorm", "srclayers": ["fc1"]}
    layers[4:5] = [dense("fc2", "drop1", 32), dense("fc3", "fc2", 32), dense("fc4", "fc3", 10)]
    layers[4]["param"][1].update(lr_scale=2.0, wd_scale=0.0)
    layers[5]["param"][0] = {"name": "fc3.w", "share_from": "fc2.w"}
    layers[-1]["srclayers"] = ["fc4", "data"]
    updater = {"type": "Adam", "weight_decay": 0.01, "learning_rate": {"type": "Fixed", "base_lr": 0.01}}
    return mlp(neuralnet={"layer": layers}, updater=updater, train_steps=STEPS, **more)


@pytest.mark.parametrize("how", circles([{"ops": "numpy"}, {"gpu": [0]}], long=1), ids=["cpu", "gpu"])
def test_params_and_counts_are_those_by_messages(
    run_job: Run, monkeypatch: pytest.MonkeyPatch, posted: Counter[str], how: dict[str, Any]
) -> None:
    if "gpu" in how:
        need_gpus(1)
    own = run_job(job(**how))
    n_own = posted["update"]
    posted.clear()
    monkeypatch.setattr(run_unit, "calls_server", lambda *_: False)
    by_messages = run_job(job(**how))
    # the first steps may come before the server has the initial values
    assert n_own < posted["update"]
    assert {report["state"] for report in own.reports.values()} == {"done"}, own.reports
    wanted = by_messages.params()
    for name, values in own.params().items():
        np.testing.assert_array_equal(values, wanted[name])
    assert own.losses() == by_messages.losses()
    assert own.reports["server-0-0"]["updates"] == by_messages.reports["server-0-0"]["updates"]


def test_a_run_that_goes_on_is_the_run_in_one(run_job: Run) -> None:
    whole = run_job(job(checkpoint_freq=3))
    rest = run_job(job(), f"{whole.url}/checkpoint/step-3")
    wanted = whole.params()
    for name, values in rest.params().items():
        np.testing.assert_array_equal(values, wanted[name])


@pytest.mark.parametrize(
    "cluster",
    circles([{"nworkers_per_group": 2, "nworkers_per_procs": 2}, {**SINGLE, "share_memory": False}, ALLREDUCE], long=2),
    ids=["two workers", "memory apart", "two processes"],
)
def test_other_servers_get_messages(run_job: Run, posted: Counter[str], cluster: dict[str, Any]) -> None:
    done = run_job(job(cluster=cluster, ops="numpy"))
    assert {report["state"] for report in done.reports.values()} == {"done"}, done.reports
    assert posted["update"] >= STEPS


def test_large_params_of_a_cpu_are_updated_by_the_server_beside_the_worker(
    run_job: Run, monkeypatch: pytest.MonkeyPatch, posted: Counter[str]
) -> None:
    monkeypatch.setattr(unit_host, "MAX_OWN_VALUES", 100)
    run_job(job(ops="numpy"))
    assert posted["update"] >= STEPS


def test_an_error_of_a_rule_is_the_server_s(run_job: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real, steps = Server.update, []

    def fails(server: Server, step: int, gradients: Any) -> Any:
        steps.append(step)
        if step == 4:
            raise ZeroDivisionError("a rule")
        return real(server, step, gradients)

    monkeypatch.setattr(Server, "update", fails)
    reports = run_job(job(ops="numpy")).reports
    assert (reports["server-0-0"]["state"], reports["worker-0-0"]["state"]) == ("failed", "aborted")
    assert {report["reason"] for report in reports.values()} == {"server-0-0: ZeroDivisionError: a rule"}
    assert "in fails" in reports["server-0-0"]["error"]
    assert steps[-1] == 4


def test_an_update_that_comes_again_is_not_applied_again() -> None:
    values = np.zeros(6, np.float32)
    conf = UpdaterConf.model_validate({"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 1.0}})
    address, slices = Address.server(0, 0), slice_table([6], 1, 1)
    server = Server(address, slices, lambda _: values, [(1.0, 1.0)], [1], conf, ClusterConf(), NumpyOps())
    info = {"in_place": True, "group": 0}
    put = Message("put", Address.stub(0), address, slice=0, version=5, info=info, arrays=(values,))
    assert not server.has_values
    server.handle(put)
    assert server.has_values
    grad = np.ones(6, np.float32)
    for step in (5, 5, 6):
        server.update(step, [(0, grad)])
    assert values.tolist() == [-2.0] * 6
    assert (server.duplicates, server.applied(0)) == (1, 6)
    assert server.counts.report() == {"applied": 2, "staleness": {"0": 2}, "staleness_sum": 0}
