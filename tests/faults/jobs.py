"""Small jobs for faults, and what they do when nobody disturbs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from singa_dask.conf import JobConf
from singa_dask.runtime import plan_processes
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, HOGWILD, SANDBLASTER_2, SINGLE, mlp

# Topologies whose jobs end with the same bits each time, and the units that a fault takes with it.
SYNCHRONOUS: dict[str, dict[str, Any]] = {
    "single": SINGLE,
    "sandblaster": SANDBLASTER_2,
    "allreduce": ALLREDUCE,
    "partitioned": ALLREDUCE,
}
ASYNCHRONOUS: dict[str, dict[str, Any]] = {"downpour": {**DOWNPOUR, "server_worker_separate": True}, "hogwild": HOGWILD}
EIGHT = {"nworkers_per_group": 8, "nservers_per_group": 8}
STEPS = 160
SNAPSHOT_FREQ = 10


def job(topology: str, steps: int = STEPS, cluster: dict[str, Any] | None = None, **changes: Any) -> JobConf:
    """Return a job that shows each step; its layers are shared by features if it is ``partitioned``.

    One thread computes for each unit, wherever it runs: on some processors sums depend on the number of threads.
    """
    changes = {"threads": 1, **changes}
    chosen = {**SYNCHRONOUS, **ASYNCHRONOUS, "eight": EIGHT}[topology]
    keys = {"snapshot_freq": SNAPSHOT_FREQ, **chosen, **(cluster or {})}
    made = mlp(train_steps=steps, cluster=keys, **changes)
    if topology != "partitioned":
        return made
    net = made.model_dump(mode="json")["neuralnet"]
    for layer in net["layer"]:
        if layer["type"] == "InnerProduct":
            layer["partition_dim"] = 1
    return mlp(train_steps=steps, cluster=keys, **{**changes, "neuralnet": net})


def fatal(how: str, once: Path | None, step: int = 40, **where: int) -> dict[str, Any]:
    """Return the net of `job` with a layer that harms its process at a step, each time if not ``once``, by a file."""
    net = mlp().model_dump(mode="json")["neuralnet"]
    before, after = net["layer"][:3], net["layer"][3:]
    conf: dict[str, Any] = {"how": how, "step": step, **where}
    if once is not None:
        once.touch()
        conf["once"] = str(once)
    trap = {"name": "fatal", "type": "Fatal", "srclayers": [before[-1]["name"]], "user_conf": conf}
    after[0]["srclayers"] = ["fatal"]
    return {**net, "layer": [*before, trap, *after]}


def units_by_process(made: JobConf) -> list[list[str]]:
    """Return the units of each process that a job asks for."""
    return [[str(unit) for unit in units] for units in plan_processes(made.cluster).processes]


def first_unit(made: JobConf, process: int) -> str:
    """Return a unit of a process."""
    return units_by_process(made)[process][0]
