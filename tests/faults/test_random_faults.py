"""Faults drawn from seeds, in jobs of every topology and of several nets: bits of a calm run, or its count of updates.

``pytest -m soak`` draws one for each topology; set ``FAULT_CASES`` for as many for each. A case is its topology and
number, so one that fails can be run again alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.runtime.checkpoints.lookup import find
from tests.faults.conftest import whole
from tests.faults.jobs import units_by_process
from tests.faults.machines import Machines, machines
from tests.faults.runs import Fault, Moment, Run, after, at, at_step, both, check_params, killed, stopped_for
from tests.runtime.end_to_end import test_text as of_text
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, HOGWILD, HYBRID, SANDBLASTER_2, SINGLE, Outcome, dense, mlp

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

CASES = range(int(os.environ.get("FAULT_CASES", "1")))
STEPS = 240
FREQUENCIES = {"snapshot_freq": 20}

SYNCHRONOUS: dict[str, dict[str, Any]] = {
    "single": SINGLE,
    "sandblaster": SANDBLASTER_2,
    "allreduce": ALLREDUCE,
    "three-processes": {
        "nworkers_per_group": 2,
        "nworkers_per_procs": 2,
        "nservers_per_group": 2,
        "server_worker_separate": True,
    },
}
ASYNCHRONOUS: dict[str, dict[str, Any]] = {
    "downpour": {**DOWNPOUR, "server_worker_separate": True},
    "2x2": {"nworker_groups": 2, "nworkers_per_group": 2, "nservers_per_group": 2, "nworkers_per_procs": 2},
    "hogwild": HOGWILD,
    "hybrid": HYBRID,
}
TOPOLOGIES = {**SYNCHRONOUS, **ASYNCHRONOUS}


def _images(cluster: dict[str, Any], **changes: Any) -> JobConf:
    """Return a job of a net with a convolution, batch normalisation and dropout."""
    given = mlp().model_dump(exclude_unset=True)["neuralnet"]["layer"]
    data = {**given[0], "type": "RecordInput"}
    init = [{"name": "conv.w", "init": {"type": "UniformSqrtFanIn"}}, {"name": "conv.b", "init": {"type": "Constant"}}]
    conv = {"num_filters": 4, "kernel": 5, "stride": 2}
    layers = [
        data,
        {"name": "conv", "type": "Convolution", "srclayers": ["data"], "convolution_conf": conv, "param": init},
        {"name": "bn", "type": "BatchNorm", "srclayers": ["conv"]},
        {"name": "relu", "type": "ReLU", "srclayers": ["bn"]},
        {"name": "drop", "type": "Dropout", "srclayers": ["relu"], "dropout_conf": {"dropout_ratio": 0.25}},
        dense("fc", "drop", 10),
        {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["fc", "data"]},
    ]
    return mlp(neuralnet={"layer": layers}, cluster=cluster, **changes)


def _partitioned(cluster: dict[str, Any], **changes: Any) -> JobConf:
    net = mlp().model_dump(mode="json", exclude_unset=True)["neuralnet"]
    for layer in net["layer"]:
        if layer["type"] == "InnerProduct":
            layer["partition_dim"] = 1
    return mlp(neuralnet=net, cluster=cluster, **changes)


NETS: dict[str, Callable[..., JobConf]] = {
    "mlp": lambda cluster, **changes: mlp(cluster=cluster, **changes),
    "images": _images,
    "gru": lambda cluster, **changes: of_text.job(cluster, True, **changes),
    "partitioned": _partitioned,
}


class Case(NamedTuple):
    """A job, and what happens to it.

    Attributes
    ----------
    job : JobConf
    n_spares : int
        Dask workers that the job does not need.
    script : list of (moment, fault)
    text : str
        In words.
    """

    job: JobConf
    n_spares: int
    script: list[tuple[Moment, Fault]]
    text: str


def draw(topology: str, number: int) -> Case:
    """Draw a case."""
    random = np.random.default_rng([number, list(TOPOLOGIES).index(topology)])
    net = str(random.choice(list(NETS)))
    given = {"checkpoint_freq": 100, "keep_checkpoints": {"last": 1}, "test_freq": STEPS, "test_steps": 16}
    made = NETS[net]({**TOPOLOGIES[topology], **FREQUENCIES}, train_steps=STEPS, **given)
    processes = units_by_process(made)

    def victim() -> str:
        return processes[int(random.integers(len(processes)))][0]

    moments: dict[str, Moment] = {
        "at a step": at_step(int(random.integers(STEPS // 2))),
        "at the start": at("placed"),
        "at a checkpoint": at("checkpoint"),
    }
    moment = str(random.choice(list(moments)))
    seconds = float(random.choice([2.0, 15.0]))
    first, second = victim(), victim()
    scripts: dict[str, list[Fault]] = {
        f"kill {first}": [killed(first)],
        f"kill {first}, then {second}": [killed(first), killed(second)],
        f"stop {first} for {seconds:g} s": [stopped_for(seconds, first)],
        f"kill {first}, stop {second} for {seconds:g} s": [both(killed(first), stopped_for(seconds, second))],
    }
    if len({first, second}) == 1:
        scripts.popitem()
    what = str(random.choice(list(scripts)))
    faults = [_if_alive(fault) for fault in scripts[what]]
    later = at("restart") if random.integers(2) else after(int(random.integers(1, 60)))
    script = list(zip([moments[moment], later], faults, strict=False))
    return Case(made, int(random.integers(2)), script, f"{topology}, {net}: {what}, {moment}")


def _if_alive(fault: Fault) -> Fault:
    """Return a fault that does nothing where a process is dead already: one may come before the last is noticed."""

    def strike(run: Run) -> None:
        with suppress(AssertionError, ProcessLookupError):
            fault(run)

    return strike


def updates(url: str) -> dict[str, Any]:
    """Return the number of updates of each slice in the newest checkpoint, by name and range."""
    manifest = json.loads((Path(find(url)) / "manifest.json").read_text())
    return {
        each["key"]: (each["version"], each.get("applied")) for part in manifest["parts"] for each in part["tensors"]
    }


def check_no_tracebacks(run: Run) -> None:
    """Check that nothing the job says is a traceback."""
    texts = [str(event.get("message", "")) for _, event in run.events] + [run.result.reason]
    assert not [text for text in texts if "Traceback" in text or "This is a bug" in text]


@pytest.fixture(scope="module")
def _roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("roomy"), "--nthreads", "4") as made:
        yield made


@pytest.fixture
def roomy(_roomy: Machines, tmp_path: Path) -> Iterator[Machines]:
    """Give two workers of four threads that are started again; see that nothing of a job is left."""
    yield from whole(_roomy, tmp_path)


@pytest.mark.parametrize("number", CASES)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_fault(
    roomy: Machines, tmp_path: Path, calm: Any, known: dict[str, Outcome], topology: str, number: int
) -> None:
    case = draw(topology, number)
    n = max(len(units_by_process(case.job)), 2) + case.n_spares
    roomy.grow(n - 2)
    roomy.client.wait_for_workers(n, timeout=240)
    run = Run(case.job, roomy, tmp_path / "runs", *case.script, limit_s=300)
    assert not run.hangs, case.text
    quiet = calm(case.job)
    figures = {"restarts": run.result.restarts, "pause": round(run.longest_pause_s(), 1), "test": run.accuracy("test")}
    print(f"{number} {case.text}: {figures}, calm: {quiet.metric('accuracy', 'test')}")
    assert (run.result.state, run.result.exit_code, run.result.reason) == ("done", 0, ""), case.text
    check_no_tracebacks(run)
    assert not list(Path(run.url).rglob("*.tmp")), case.text
    if topology in SYNCHRONOUS:
        check_params(run.url, quiet)
    else:
        assert updates(run.url) == updates(quiet.url), case.text
