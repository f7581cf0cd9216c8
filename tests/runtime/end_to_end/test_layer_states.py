"""Layers that keep something from one batch to the next: a run with a break has the same bits as one without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.layers import LAYERS
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.layer_states import read_states
from singa_dask.runtime.checkpoints.lookup import find
from singa_dask.runtime.units import initial_state
from tests.runtime import parts
from tests.runtime.end_to_end import test_rbm as of_rbm
from tests.runtime.end_to_end import test_text as of_text
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, SANDBLASTER_2, SINGLE, Outcome, mlp
from tests.selection import circles

Run = Callable[..., Outcome]
N_STEPS = 8
TESTS: dict[str, Any] = {"test_freq": 3, "test_steps": 2}
GATES = {"GRU": 9, "LSTM": 12, "RNN": 3}


def recurrent(kind: str, cluster: dict[str, Any], **changes: Any) -> JobConf:
    given = of_text.job(cluster, True, **{**TESTS, **changes}).model_dump(exclude_unset=True)
    (layer,) = [layer for layer in given["neuralnet"]["layer"] if layer["type"] == "GRU"]
    conf = layer.pop("gru_conf")
    layer |= {"type": kind, f"{kind.lower()}_conf": conf, "param": [{"init": of_text.UNIFORM}] * GATES[kind]}
    return JobConf.model_validate(given)


def rbm(cluster: dict[str, Any], **changes: Any) -> JobConf:
    layers = [of_rbm.records(), *of_rbm.rbm(1, "data", 20)]
    return of_rbm.job(layers, {"persistent": True, "cd_k": 2}, cluster=cluster, **changes)


def own(cluster: dict[str, Any], **changes: Any) -> JobConf:
    layers = mlp().model_dump(exclude_unset=True)["neuralnet"]["layer"]
    layers[2] = {"name": "act1", "type": parts.Remembers.__name__, "srclayers": ["fc1"]}
    return mlp(neuralnet={"layer": layers}, cluster=cluster, **{**TESTS, **changes})


JOBS: dict[str, Callable[..., JobConf]] = {
    **{kind: lambda cluster, kind=kind, **changes: recurrent(kind, cluster, **changes) for kind in GATES},
    "RBMHid": rbm,
    "own": own,
}
CLUSTERS = {"single": SINGLE, "allreduce": ALLREDUCE, "sandblaster": SANDBLASTER_2}


def test_every_layer_that_can_carry_its_state_in_training_is_here() -> None:
    options = {name: LAYERS.find(name).options_class for name in LAYERS.names()}
    carrying = {name for name, each in options.items() if each and "carry_state" in each.model_fields}
    # of these, only nets that are not trained carry states
    assert carrying - {"MultiHeadAttention", "PositionalEmbedding"} == set(GATES)


def same(whole: Outcome, rest: Outcome, n_workers: int = 1, n_groups: int = 1) -> None:
    """Check that a continued run has left the bits of one without a break: params, updater state, layer states."""
    one, other = Checkpoint(find(whole.url)), Checkpoint(find(rest.url))
    assert one.step == other.step
    for part in one.manifest["parts"]:
        for key, values in one.tensors(part["file"]).items():
            assert values.tobytes() == other.tensors(part["file"])[key].tobytes(), key
    found = 0
    for group in range(n_groups):
        for worker in range(n_workers):
            states = read_states(one, group, worker)
            for mine, theirs in zip(states, read_states(other, group, worker), strict=True):
                assert (mine.phase, mine.layer, mine.outputs) == (theirs.phase, theirs.layer, theirs.outputs)
                for array, again in zip(mine.arrays, theirs.arrays, strict=True):
                    assert (array.dtype, array.shape, array.tobytes()) == (again.dtype, again.shape, again.tobytes())
            found += len(states)
    assert found


SOME = [("GRU", "single"), ("RBMHid", "allreduce"), ("own", "sandblaster"), ("LSTM", "allreduce"), ("RNN", "single")]
REST = [(kind, cluster) for kind in JOBS for cluster in CLUSTERS if (kind, cluster) not in SOME]


@pytest.mark.parametrize(("kind", "cluster"), circles([*SOME, *REST], long=4))
def test_a_run_with_breaks_has_the_bits_of_one_without(run_job: Run, kind: str, cluster: str) -> None:
    topology = CLUSTERS[cluster]
    make, n_workers = JOBS[kind], topology.get("nworkers_per_group", 1)
    whole = run_job(make(topology, train_steps=N_STEPS))
    first, second = sorted(Random(f"{kind} {cluster}").sample(range(1, N_STEPS), 2))
    begun = run_job(make(topology, train_steps=N_STEPS, checkpoint_freq=first))
    more = run_job(make(topology, train_steps=second), resume=f"{begun.url}/checkpoint/step-{first}")
    rest = run_job(make(topology, train_steps=N_STEPS), resume=find(more.url))
    same(whole, begun, n_workers)
    same(whole, rest, n_workers)
    metric = "squared_error" if kind == "RBMHid" else "loss"
    for phase in ("train", "test"):
        wanted = whole.metric(metric, phase)
        for part in (more, rest):
            found = part.metric(metric, phase)
            found = {step: value for step, value in found.items() if step in wanted}  # a run tests once more at its end
            assert found.items() <= wanted.items()
            assert found or phase == "test"


PLACES = {
    "records": {"gru": {"partition_dim": 0}, "ip": {"partition_dim": 0}},
    "pipeline": {"gru": {"location": 1}, "ip": {"location": 1}, "loss": {"location": 0}},
}


def placed(name: str, **changes: Any) -> JobConf:
    given = of_text.job(ALLREDUCE, True, **{**TESTS, "train_steps": 9, **changes}).model_dump(exclude_unset=True)
    net = given["neuralnet"]
    net["layer"] = [{**layer, **PLACES[name].get(layer["name"], {})} for layer in net["layer"]]
    return JobConf.model_validate(given)


@pytest.mark.parametrize("name", circles(PLACES, long=1))
def test_a_partitioned_net_goes_on_with_its_states(run_job: Run, name: str) -> None:
    whole = run_job(placed(name))
    begun = run_job(placed(name, checkpoint_freq=4))
    same(whole, run_job(placed(name), resume=f"{begun.url}/checkpoint/step-4"), n_workers=2)


@pytest.mark.long
@pytest.mark.parametrize("n_workers", circles([1, 2]))
def test_the_states_of_other_groups_are_of_their_own_step(run_job: Run, n_workers: int) -> None:
    """Without learning, the states of a group depend on its step alone."""
    still = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.0}}
    topology = {**DOWNPOUR, "nworkers_per_group": n_workers}

    def job(**changes: Any) -> JobConf:
        return recurrent("GRU", topology, updater=still, **{"test_freq": 0, **changes})

    begun = run_job(job(train_steps=20, checkpoint_freq=7))
    places = [Checkpoint(event["url"]) for event in begun.events if event["event"] == "checkpoint"]
    assert len(places) > 1
    for place in places:
        step = place.groups[1]["step"]
        alone = run_job(job(train_steps=step))
        wanted = Checkpoint(find(alone.url))
        if wanted.groups[1]["step"] != step:  # the other group was slower, and was asked before its last step
            continue
        for worker in range(n_workers):
            for mine, theirs in zip(read_states(place, 1, worker), read_states(wanted, 1, worker), strict=True):
                assert mine.arrays[0].tobytes() == theirs.arrays[0].tobytes()
        assert place.groups[1]["cursors"] == wanted.groups[1]["cursors"]
    rest = run_job(job(train_steps=25), resume=places[-1].url)
    assert {report["state"] for report in rest.reports.values()} == {"done"}


@pytest.mark.long
def test_other_workers_or_other_shapes_start_states_anew(run_job: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(initial_state.logger, "warning", lambda text, *values: said.append(text % values))
    begun = run_job(recurrent("GRU", SINGLE, train_steps=4))
    more = run_job(recurrent("GRU", ALLREDUCE, train_steps=6), resume=find(begun.url))
    assert {report["state"] for report in more.reports.values()} == {"done"}
    assert "a group had 1 workers, but has 2 in the job: the states of gru are reset" in "".join(said)
    begun = run_job(placed("pipeline"))
    more = run_job(recurrent("GRU", ALLREDUCE, train_steps=12), resume=find(begun.url))
    assert {report["state"] for report in more.reports.values()} == {"done"}, more.reports
    assert "the checkpoint has other shapes, or another partition: the states of gru are reset" in "".join(said)


def test_a_state_of_objects_is_refused(run_job: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(self: parts.Remembers, phase: Any) -> None:
        np.copyto(self.features[0].data, self.sources[0].data)
        self.state = (np.array([{}]),)

    monkeypatch.setattr(parts.Remembers, "forward", forward)
    outcome = run_job(own(SINGLE))
    assert outcome.reports["worker-0-0"]["reason"].endswith(
        "layer act1: its state has Python objects. Expected arrays of numbers."
    )


def test_files_of_states_are_named_by_worker(run_job: Run) -> None:
    url = Path(find(run_job(rbm(ALLREDUCE, train_steps=2)).url))
    assert sorted(path.name for path in url.glob("states-*")) == [
        "states-0-0.safetensors", "states-0-1.safetensors",
    ]  # fmt: skip
    assert not list(Path(find(run_job(mlp(train_steps=2)).url)).glob("states-*"))
