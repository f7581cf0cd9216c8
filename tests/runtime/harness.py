"""Jobs run without Dask: the hosts and units of a job as threads of the test, messages over real TCP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.comm.transport import Transport
from singa_dask.conf import JobConf
from singa_dask.runtime import JobEnd, plan_processes
from singa_dask.runtime.checkpoints import lookup
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.job.job_end import Failure
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.units.run_unit import run_unit
from singa_dask.runtime.units.unit_host import UnitHost
from tests.runtime.ahead import read_little_ahead

TIMEOUT_S = 240


@dataclass
class Outcome:
    """What a job left: reports of its units, events, checkpoints."""

    url: str
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)

    def params(self) -> dict[str, np.ndarray]:
        """Return the params of the last checkpoint."""
        return {name: stored.values for name, stored in lookup.load_values(self.url).items()}

    def losses(self, phase: str = "train", group: int = 0) -> dict[int, float]:
        """Return the loss of each step of a group that was shown, averaged over its workers."""
        return self.metric("loss", phase, group)

    def metric(self, name: str, phase: str = "train", group: int = 0) -> dict[int, float]:
        """Return a metric as `losses` does."""
        told: dict[int, list[list[float]]] = {}
        for event in self.events:
            if event["event"] == "metrics" and (event["phase"], event["group"]) == (phase, group):
                # of the layers of a partitioned net each worker has some
                told.setdefault(event["step"], []).append(event["metrics"].get(name, [0.0, 0.0]))
        return {step: float(np.divide(*np.sum(pairs, axis=0))) for step, pairs in sorted(told.items())}


def start_hosts(
    job: JobConf,
    emit: Callable[[dict[str, Any]], None],
    assignments: Mapping[str, Sequence[int]] | None = None,
    layout: Layout | None = None,
    **given: Any,
) -> list[UnitHost]:
    """Start one host for each process of a job; for ``given`` see `UnitHost`."""
    layout = layout or plan_processes(job.cluster)
    several = len(layout.processes) > 1
    transport = partial(Transport, "tcp://127.0.0.1", incarnation=0, token="of the test") if several else None
    hosts = [
        UnitHost("test", process, job, transport, emit, assignments, layout=layout, **given)
        for process in range(len(layout.processes))
    ]
    for host in hosts:
        host.router.connect([each.address for each in hosts])
    return hosts


def run_to_its_end(
    job: JobConf,
    url: str,
    resume: str | Checkpoint | None = None,
    init_from: Sequence[str] = (),
    on_event: Callable[[list[UnitHost], dict[str, Any]], Future[None] | None] | None = None,
    assignments: Mapping[str, Sequence[int]] | None = None,
    layout: Layout | None = None,
    **given: Any,
) -> Outcome:
    """Run a job with its run directory at ``url``.

    ``layout``, if its units are not where the job file puts them; for ``given`` see `UnitHost`.
    """
    outcome = Outcome(url)
    hosts: list[UnitHost] = []

    def emit(event: dict[str, Any]) -> Future[None] | None:
        outcome.events.append(event)
        return on_event(hosts, event) if on_event else None

    def run_one(host: UnitHost, unit: Any) -> None:
        outcome.reports[str(unit)] = run_unit(host, unit, resume, init_from)

    hosts += start_hosts(job, emit, assignments, layout, checkpoint_url=fs.join(url, "checkpoint"), **given)
    threads = [
        threading.Thread(target=run_one, args=(host, unit), daemon=True) for host in hosts for unit in host.local
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S + job.train_steps / 10)
            assert not thread.is_alive(), f"a unit hangs; reports so far: {outcome.reports}"
    finally:
        for host in hosts:
            host.close()
    return outcome


@pytest.fixture
def run_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Return a function that runs a job to its end: (job, ...), as `run_to_its_end` but for the place.

    ``on_event`` takes the hosts and each event, in the thread of the unit that tells it.
    """
    read_little_ahead(monkeypatch.setattr)
    counter = iter(range(1000))

    def run(job: JobConf, *args: Any, url: str | None = None, **given: Any) -> Outcome:
        return run_to_its_end(job, url or str(tmp_path / f"run{next(counter)}"), *args, **given)

    return run


@pytest.fixture(scope="session")
def known() -> dict[str, Outcome]:
    """Keep what jobs have left that others are compared with."""
    return {}


@pytest.fixture
def run_once(
    run_job: Callable[..., Outcome], known: dict[str, Outcome], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[JobConf], Outcome]:
    """Return a function that runs a synchronous job, which always ends alike, once for all tests that ask for it."""

    def run(job: JobConf) -> Outcome:
        text = job.to_json()
        if text not in known:
            known[text] = run_to_its_end(job, str(tmp_path_factory.mktemp("known") / "run"))
        return known[text]

    return run


def mlp(**changes: Any) -> JobConf:
    """Return a small job on the digits that are checked in; ``changes`` replace keys at the top."""
    layers = [
        {
            "name": "data",
            "type": "RecordInput",
            "store_conf": {
                "path": "data/digits/test.arrow",
                "backend": "arrow",
                "shape": [28, 28],
                "batchsize": 48,
                "std_value": 255,
                "shuffle": "block",
            },
        },
        dense("fc1", "data", 32),
        {"name": "act1", "type": "STanh", "srclayers": ["fc1"]},
        {"name": "drop1", "type": "Dropout", "srclayers": ["act1"], "dropout_conf": {"dropout_ratio": 0.25}},
        dense("fc2", "drop1", 10),
        {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["fc2", "data"]},
    ]
    job = {
        "name": "mlp",
        "train_steps": 10,
        "disp_freq": 1,
        "train_one_batch": {"alg": "BP"},
        "updater": {"type": "SGD", "momentum": 0.9, "learning_rate": {"type": "Fixed", "base_lr": 0.05}},
        "neuralnet": {"layer": layers},
    }
    return JobConf.model_validate({**job, **changes})


def dense(name: str, source: str, n: int) -> dict[str, Any]:
    """Describe an InnerProduct layer with seeded params."""
    return {
        "name": name,
        "type": "InnerProduct",
        "srclayers": [source],
        "innerproduct_conf": {"num_output": n},
        "param": [
            {"name": f"{name}.w", "init": {"type": "UniformSqrtFanIn"}},
            {"name": f"{name}.b", "init": {"type": "Constant", "value": 0}},
        ],
    }


SINGLE: dict[str, Any] = {}
ALLREDUCE = {"nworkers_per_group": 2, "nservers_per_group": 2}
SANDBLASTER_1 = {"nworkers_per_group": 2, "nworkers_per_procs": 2, "server_worker_separate": True}
SANDBLASTER_2 = {**SANDBLASTER_1, "nservers_per_group": 2, "nservers_per_procs": 2}
DOWNPOUR = {"nworker_groups": 2}
HOGWILD = {"nworker_groups": 2, "nserver_groups": 2}
HYBRID = {
    "nworker_groups": 2, "nworkers_per_group": 2, "nserver_groups": 2, "nservers_per_group": 2,
    "nworkers_per_procs": 2, "nservers_per_procs": 2,
}  # fmt: skip
FRAMEWORKS = {
    "single": SINGLE,
    "allreduce": ALLREDUCE,
    "sandblaster-1": SANDBLASTER_1,
    "sandblaster-2": SANDBLASTER_2,
    "downpour": DOWNPOUR,
    "hogwild": HOGWILD,
    "hybrid": HYBRID,
}


def last_event(layout: Layout, reports: Mapping[str, Any], failure: Mapping[str, Any] | None = None) -> JobEnd:
    """Return how a job has ended that was never restarted."""
    processes = layout.describe()["processes"]
    return JobEnd(reports=reports, failure=Failure.of(failure) if failure else None, processes=processes, seconds=1.0)
