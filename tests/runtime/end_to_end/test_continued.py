"""Random nets, continued from a checkpoint and from a snapshot: all that a run without a break has, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from distributed.protocol import dumps, loads

from singa_dask.conf import JobConf
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.layer_states import read_states
from singa_dask.runtime.checkpoints.lookup import find
from tests.runtime import parts
from tests.runtime.end_to_end.test_layer_states import recurrent
from tests.runtime.end_to_end.test_text import UNIFORM
from tests.runtime.harness import ALLREDUCE, SANDBLASTER_2, SINGLE, Outcome, dense, mlp
from tests.runtime.units.test_snapshots import Kept
from tests.selection import circles

Run = Callable[..., Outcome]
N_STEPS = 13
CLUSTERS: list[dict[str, Any]] = [SINGLE, ALLREDUCE, SANDBLASTER_2]
RATE = {"learning_rate": {"type": "Step", "base_lr": 0.02, "step_conf": {"gamma": 0.5, "change_freq": 5}}}
UPDATERS: list[dict[str, Any]] = [
    {"type": "SGD", "momentum": 0.9},
    {"type": "Nesterov", "momentum": 0.8},
    {"type": "Adam"},
    {"type": "RMSProp", "rmsprop_conf": {"rho": 0.9}},
    {"type": "AdaGrad"},
]


def draw(random: Random) -> JobConf:
    """Draw a net of layers that keep something, an updater and a topology."""
    cluster = {**random.choice(CLUSTERS), "snapshot_freq": random.randrange(2, 6)}
    changes: dict[str, Any] = {
        "updater": {**random.choice(UPDATERS), **RATE},
        "disp_freq": random.randrange(1, 7),
        "test_freq": random.choice([0, 3]),
        "test_steps": 2,
        "train_steps": N_STEPS,
        "seed": random.randrange(100),
    }
    if random.random() < 0.5:
        return recurrent(random.choice(["GRU", "LSTM", "RNN"]), cluster, **changes)
    layers: list[dict[str, Any]] = [mlp().model_dump(exclude_unset=True)["neuralnet"]["layer"][0]]
    for number in range(random.randrange(1, 4)):
        source = layers[-1]["name"]
        kind = random.choice(["BatchNorm", "Dropout", "own", "partitioned", "tied"])
        if source == "data" or kind in ("partitioned", "tied"):
            layer = dense(f"fc{number}", source, 24)
            if kind == "partitioned":
                layer["partition_dim"] = 1
            if kind == "tied" and any(each["name"] == "shared" for each in layers):
                layer["param"] = [{"share_from": "shared.w"}, {"share_from": "shared.b"}]
            elif kind == "tied" and source != "data":
                layer = dense("shared", source, 24)
        elif kind == "own":
            layer = {"name": f"own{number}", "type": parts.Remembers.__name__, "srclayers": [source]}
        elif kind == "Dropout":
            conf = {"dropout_ratio": 0.3}
            layer = {"name": f"drop{number}", "type": kind, "srclayers": [source], "dropout_conf": conf}
        else:
            init = [{"init": UNIFORM}, {"init": {"type": "Constant", "value": 0}}]
            layer = {"name": f"bn{number}", "type": kind, "srclayers": [source], "param": init}
        layers.append(layer)
    layers += [
        dense("last", layers[-1]["name"], 10),
        {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["last", "data"]},
    ]
    return mlp(neuralnet={"layer": layers}, cluster=cluster, **changes)


def check_equal(job: JobConf, whole: Outcome, rest: Outcome, step: int) -> None:
    """Check params, updater and layer states at the end, and all metrics that were shown from ``step`` on."""
    one, other = Checkpoint(find(whole.url)), Checkpoint(find(rest.url))
    assert one.step == other.step == N_STEPS
    tensors = {key: values for part in one.manifest["parts"] for key, values in one.tensors(part["file"]).items()}
    for part in other.manifest["parts"]:
        for key, values in other.tensors(part["file"]).items():
            assert values.tobytes() == tensors.pop(key).tobytes(), key
    assert not tensors
    for worker in range(job.cluster.nworkers_per_group):
        kept, again = read_states(one, 0, worker), read_states(other, 0, worker)
        assert [each[:3] for each in kept] == [each[:3] for each in again]
        for mine, theirs in zip(kept, again, strict=True):
            assert [array.tobytes() for array in mine.arrays] == [array.tobytes() for array in theirs.arrays]
    assert rest.losses() == {at: loss for at, loss in whole.losses().items() if at >= step}
    found = rest.losses("test")
    assert found.items() <= whole.losses("test").items()


@pytest.mark.parametrize("seed", circles([18, *range(18), *range(19, 24)], long=3))
def test_a_continued_run_is_the_same_run(run_job: Run, seed: int) -> None:
    random = Random(seed)
    job, kept = draw(random), Kept()
    at = random.randrange(1, N_STEPS)
    whole = run_job(job.model_copy(update={"checkpoint_freq": at}), store_part=kept.keep)
    assert {report["state"] for report in whole.reports.values()} == {"done"}, whole.reports
    check_equal(job, whole, run_job(job, f"{whole.url}/checkpoint/step-{at}"), at)
    taken = [event for event in whole.events if event["event"] == "snapshot"]
    if taken:  # a checkpoint of the same step takes its place
        manifest = loads(dumps(taken[-1]["manifest"]))  # it comes through the scheduler
        resumed = Checkpoint.from_manifest(manifest, kept.read, "the snapshot")
        check_equal(job, whole, run_job(job, resumed, store_part=Kept().keep, incarnation=1), taken[-1]["step"])
