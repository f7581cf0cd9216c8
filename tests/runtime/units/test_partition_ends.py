"""How partitioned jobs end: faults, stops, checkpoints on the way; as jobs of whole nets do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.cli import job as job_file
from singa_dask.comm.message import Message
from singa_dask.conf import JobConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS
from singa_dask.layers.bridge import IN_FLIGHT
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.lookup import find, load_values
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.units.lockstep import disconnected_workers
from singa_dask.runtime.units.mailbox import Mailbox
from singa_dask.runtime.units.pending_checkpoints import merge_positions
from singa_dask.runtime.units.trainer import Trainer
from tests.converting import convert
from tests.runtime import parts
from tests.runtime.harness import Outcome, mlp
from tests.runtime.processes import ROOT, Driven, kill_worker
from tests.runtime.units.test_ends import MANY, states, stop_at
from tests.selection import circles

Run = Callable[..., Outcome]

PLACES: dict[str, list[dict[str, Any]]] = {
    "features": [{"partition_dim": 1}] * 7,
    "pipeline": [{"location": 0}] * 4 + [{"location": 1}] * 3,
    "backwards": [{"location": 1}] * 4 + [{"location": 0}] * 3,
    "whole": [{"partition_dim": -1}] * 7,
    "elsewhere": [{"location": 1}, {}, {"partition_dim": 1}, {"location": 1}, {}, {"partition_dim": 1}, {}],
}
PROCESSES = {
    1: {"nworkers_per_group": 2, "nworkers_per_procs": 2, "nservers_per_group": 2, "nservers_per_procs": 2},
    2: {"nworkers_per_group": 2, "nservers_per_group": 2},
}
ONE = {"nworkers_per_group": 1, "nservers_per_group": 1}


def job(places: list[dict[str, Any]], cluster: dict[str, Any], how: dict[str, Any], **changes: Any) -> JobConf:
    """Return the small job with a `parts.Trap` in the place of its third layer, and another one before the loss."""
    layers = mlp().model_dump(exclude_unset=True)["neuralnet"]["layer"]
    trap = {"type": parts.Trap.__name__, "user_conf": how}
    layers[3:4] = [{**trap, "name": "trap", "srclayers": ["act1"]}]
    layers[4]["srclayers"] = ["trap"]
    layers.insert(5, {**trap, "name": "late", "srclayers": ["fc2"]})
    layers[6]["srclayers"] = ["late", "data"]
    layers = [{**layer, **where} for layer, where in zip(layers, places, strict=True)]
    return mlp(cluster=cluster, neuralnet={"layer": layers}, precision="float64", **changes)


FAULTS = [(how, name, worker) for how in ("raise", "raise-in-gradient", "nan") for name in PLACES for worker in (0, 1)]
# first each way of a fault, in each net, on each worker
FAULTS = FAULTS[::3] + FAULTS[1::3] + FAULTS[2::3]


@pytest.mark.parametrize(("how", "name", "worker"), circles(FAULTS, plain=2, long=8))
def test_a_fault_on_one_worker_frees_the_others_from_their_bridges(
    run_job: Run, how: str, name: str, worker: int
) -> None:
    processes = 1 if (how == "nan") == worker else 2
    trap = {"how": how, "step": 3, "worker": worker}
    outcome = run_job(job(PLACES[name], PROCESSES[processes], trap, train_steps=MANY if name != "whole" else 12))
    failed = [report for report in outcome.reports.values() if report["state"] == "failed"]
    if name == "whole" and worker == 1:
        assert not failed  # it has no layers, so no trap
        return
    assert set(states(outcome).values()) <= {"failed", "aborted"}
    # a number that is none reaches the loss, wherever that is
    unit, wanted = (
        ("worker-0-", "loss is not finite") if how == "nan" else (f"worker-0-{worker}", "a mistake of the user")
    )
    for report in failed:
        assert report["reason"].startswith(unit)
        assert ", step 3, layer " in report["reason"]
        assert wanted in report["reason"]
    assert {report["exit_code"] for report in failed} == {5 if how == "nan" else 1}


@pytest.mark.parametrize("name", circles(["pipeline", "features", "elsewhere", "backwards", "whole"], long=2))
def test_a_stopped_run_goes_on_as_the_same_run(run_job: Run, run_once: Run, name: str) -> None:
    topology = PROCESSES[2]
    tests = {"test_freq": 4, "test_steps": 1}
    stopped = run_job(job(PLACES[name], topology, {"how": ""}, train_steps=MANY, **tests), on_event=stop_at(5))
    assert set(states(stopped).values()) == {"done"}, stopped.reports
    reports = [report for unit, report in stopped.reports.items() if unit.startswith("worker")]
    (step,) = {report["step"] for report in reports}
    assert 6 < step < 20
    whole = run_once(job([{}] * 7, ONE, {"how": ""}, train_steps=20, **tests))
    rest = run_job(
        job(PLACES[name], topology, {"how": ""}, train_steps=20, **tests),
        resume=f"{stopped.url}/checkpoint/step-{step}",
    )
    assert rest.losses() == pytest.approx({s: loss for s, loss in whole.losses().items() if s >= step}, rel=1e-9)
    assert rest.losses("test") == pytest.approx({s: loss for s, loss in whole.losses("test").items() if s >= step})


@pytest.mark.parametrize(
    ("name", "processes"),
    circles([("pipeline", 2), ("features", 1), ("elsewhere", 2), ("backwards", 1), ("whole", 2)], long=2),
)
def test_checkpoints_on_the_way_are_those_of_the_whole_net(
    run_job: Run, run_once: Run, name: str, processes: int
) -> None:
    each = {"checkpoint_freq": 3, "train_steps": 10, "test_freq": 2, "test_steps": 1}
    each |= {"validate_freq": 5, "validate_steps": 1}
    whole = run_once(job([{}] * 7, ONE, {"how": ""}, **each))
    other = run_job(job(PLACES[name], PROCESSES[processes], {"how": ""}, **each))
    steps = [event["step"] for event in other.events if event["event"] == "checkpoint"]
    assert steps == [3, 6, 9, 10]
    for step in steps:
        mine, wanted = (load_values(f"{run.url}/checkpoint/step-{step}") for run in (other, whole))
        for key, stored in wanted.items():
            np.testing.assert_allclose(mine[key].values, stored.values, rtol=1e-9, atol=1e-12)
            assert mine[key].version == stored.version


# -- workers that are not held together by their layers ---------------------------------------------------


def test_who_is_apart() -> None:
    assert disconnected_workers(1, []) == []
    assert disconnected_workers(4, [(0, 1), (1, 2), (3, 2)]) == []
    assert disconnected_workers(4, [(2, 3), (3, 2)]) == [1, 2]
    assert disconnected_workers(3, []) == [1, 2]


def twins() -> JobConf:
    """Return a job of two nets that have nothing in common, each on a worker of its own."""
    layers = mlp().model_dump(exclude_unset=True)["neuralnet"]["layer"]
    both = []
    for worker in (0, 1):
        for layer in layers:
            made = {**layer, "name": f"{layer['name']}{worker}", "location": worker}
            made["srclayers"] = [f"{name}{worker}" for name in layer.get("srclayers", [])]
            made["param"] = [{**param, "name": f"{param['name']}{worker}"} for param in layer.get("param", [])]
            both.append(made)
    return mlp(neuralnet={"layer": both}, train_steps=MANY, cluster=PROCESSES[2])


def test_workers_without_bridges_stop_together(run_job: Run) -> None:
    stopped = run_job(twins(), on_event=stop_at(5))
    assert set(states(stopped).values()) == {"done"}, stopped.reports
    assert len({report["step"] for unit, report in stopped.reports.items() if unit.startswith("worker")}) == 1


@pytest.mark.parametrize(
    ("how", "slow"),
    circles([("backwards", 0), ("twins", 1), ("whole", 0), ("pipeline", 1), ("elsewhere", 1)], long=2),
)
def test_little_waits_for_a_slow_worker(run_job: Run, monkeypatch: Any, how: str, slow: int) -> None:
    longest: Counter[str] = Counter()
    real, work = Mailbox.put, np.ones((64, 64))

    def counted(self: Mailbox, message: Message) -> None:
        real(self, message)
        for key, queue in self._arrived.items():
            longest[key] = max(longest[key], len(queue))

    def slowed(self: Trainer, step: int) -> None:
        if self.address.id == slow:
            for _ in range(200):
                work @ work
        train(self, step)

    train = Trainer.train
    monkeypatch.setattr(Mailbox, "put", counted)
    monkeypatch.setattr(Trainer, "train", slowed)
    made = twins() if how == "twins" else job(PLACES[how], PROCESSES[2], {"how": ""})
    outcome = run_job(made.model_copy(update={"train_steps": 40}))
    assert set(states(outcome).values()) == {"done"}, outcome.reports
    arrays = [n for key, n in longest.items() if " data " in key or " grad " in key]
    assert max(arrays, default=0) <= IN_FLIGHT
    # words that a step has begun are sent before those of the others are waited for
    assert 0 < max(longest.values()) <= 2 * IN_FLIGHT + 2


# -- two groups --------------------------------------------------------------------------------------------

GROUPS = {
    "downpour": {"nworker_groups": 2, "nservers_per_procs": 1},
    "hogwild": {"nworker_groups": 2, "nserver_groups": 2, "sync_freq": 2, "nservers_per_procs": 1},
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("framework", "workers_per_process", "share_memory"),
    circles(
        [
            ("downpour", 1, True), ("hogwild", 2, False), ("downpour", 2, True),
            ("downpour", 2, False), ("hogwild", 1, True), ("hogwild", 2, True),
        ],
        plain=2,
    ),
)  # fmt: skip
def test_a_second_group_goes_on_where_its_records_are_read(
    run_job: Run, framework: str, workers_per_process: int, share_memory: bool
) -> None:
    topology = {"nworkers_per_group": 2, "nservers_per_group": 2, "share_memory": share_memory, **GROUPS[framework]}
    topology |= {"nworkers_per_procs": workers_per_process}
    if framework == "hogwild":
        topology["nservers_per_procs"] = workers_per_process
    first = run_job(job(PLACES["backwards"], topology, {"how": ""}, train_steps=8))
    assert set(states(first).values()) == {"done"}, first.reports
    step = Checkpoint(find(first.url))
    for facts in step.groups.values():
        data = facts["cursors"]["train"]["data"]
        assert facts["step"] == 0 or data
    assert set(step.groups) == {0, 1}
    rest = run_job(job(PLACES["backwards"], topology, {"how": ""}, train_steps=12), resume=step.url)
    assert set(states(rest).values()) == {"done"}, rest.reports


def test_positions_of_workers_are_merged_only_at_the_same_step() -> None:
    def position(worker: int, step: int) -> dict[str, Any]:
        return {"step": step, "cursors": {"train": {f"data{worker}": {"at": step}}}}

    same = {f"data{worker}": {"at": 7} for worker in (0, 1)}
    assert merge_positions([position(0, 7), position(1, 7)]) == {"step": 7, "cursors": {"train": same}}
    assert merge_positions([position(0, 7), position(1, 6)]) == {"step": 6, "cursors": {}}


# -- parts of the user's own --------------------------------------------------------------------------------


def same(one: Outcome, other: Outcome) -> None:
    assert set(states(other).values()) == {"done"}, other.reports
    assert other.losses() == pytest.approx(one.losses(), rel=1e-9)
    wanted, params = one.params(), other.params()
    assert params.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(params[name], values, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("processes", circles([1, 2], long=1))
def test_a_layer_of_the_users_own_is_cut_by_records(run_job: Run, processes: int) -> None:
    modules.load(modules.read([str(ROOT / "examples/parts/swish.py")]), REGISTRIES.values())
    layers = mlp().model_dump(exclude_unset=True)["neuralnet"]["layer"]
    layers[2]["type"] = "swish.Swish"
    outcomes = []
    for dim, topology in ((0, ONE), (1, PROCESSES[processes])):
        net = {"layer": layers, "partition_dim": dim}
        outcomes.append(run_job(mlp(neuralnet=net, cluster=topology, precision="float64")))
    same(*outcomes)


PARTS = {
    "records": [{"partition_dim": 0}] * 4,
    "features": [{"partition_dim": 1}] * 4,
    "located": [{"location": 0}, {"location": 1}, {}, {"location": 1}],
    "loss": [{"location": 1}, {}, {"location": 0}, {"partition_dim": 0}],
}


@pytest.mark.parametrize("name", circles(["located", "loss", "features", "records"], long=2))
def test_a_loss_with_params_learns_from_its_share_of_the_batch(run_job: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "text.txt").write_text("a b c d e\na b\nc a d b e a\nb b c\n")
    reading = {"vocabulary": str(tmp_path / "words.txt"), "class_size": 2}
    convert("words", [str(tmp_path / "text.txt")], str(tmp_path / "words.arrow"), reading=reading)
    sets = ("train_steps=6", "disp_freq=1", "test_freq=0", "precision=float64", "checkpoint_freq=0")
    made = job_file.read(str(ROOT / "configs/rnnlm/rnnlm.yaml"), sets, None).job.model_dump(exclude_unset=True)
    layers = [layer for layer in made["neuralnet"]["layer"] if layer.get("include") != ["test"]]
    layers[0]["store_conf"] = {"path": str(tmp_path / "words.arrow"), "batchsize": 4}
    for layer in layers[1:]:
        layer["user_conf"] = {**layer.get("user_conf", {}), "vocab_size": 6, "n_classes": 3}
    outcomes = []
    for places, topology in (([{}] * 4, ONE), (PARTS[name], PROCESSES[2])):
        placed = [{**layer, **where} for layer, where in zip(layers, places, strict=True)]
        net = {"layer": placed}
        outcomes.append(run_job(JobConf.model_validate({**made, "neuralnet": net, "cluster": topology})))
    same(*outcomes)


# -- what a job may not say ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["BridgeSrc", "BridgeDst"])
def test_bridges_are_put_in_by_the_system(kind: str) -> None:
    layers = job(PLACES["pipeline"], PROCESSES[2], {"how": ""}).model_dump(exclude_unset=True)["neuralnet"]["layer"]
    layers[2]["type"] = kind
    with pytest.raises(ConfigError, match=f"{kind} is inserted for edges to another worker") as caught:
        JobPlan.make(mlp(cluster=PROCESSES[2], neuralnet={"layer": layers}))
    assert [problem.path for problem in caught.value.problems] == [("neuralnet", "layer", 2, "type")]
    assert kind not in LAYERS.names()


@pytest.mark.parametrize("name", PLACES)
def test_every_worker_works_out_the_same_plan(name: str) -> None:
    made = job(PLACES[name], PROCESSES[2], {"how": ""})
    plans = [JobPlan.make(made, build_nets(made, worker=worker)[Phase.TRAIN]) for worker in (0, 1)]
    for field in ("names", "owners", "shards", "scales", "n_sharers", "gradient_divisors", "slices"):
        assert getattr(plans[0], field) == getattr(plans[1], field), field


@pytest.mark.parametrize("worker", [0, 1])
def test_a_test_net_has_its_params_where_the_training_net_has_them(worker: int) -> None:
    layers = job(PLACES["pipeline"], PROCESSES[2], {"how": ""}).model_dump(exclude_unset=True)["neuralnet"]["layer"]
    elsewhere = {**layers[1], "location": 1, "include": ["test"]}
    layers[1]["include"] = ["train"]
    made = mlp(cluster=PROCESSES[2], neuralnet={"layer": [*layers, elsewhere]}, test_freq=1, test_steps=1)
    with pytest.raises(ConfigError, match=r"the training net has 'fc1\.w' on another worker\.") as caught:
        build_nets(made, worker=worker)
    assert caught.value.problems[0].path == ("neuralnet", "layer", len(layers), "param", 0, "name")


@pytest.mark.cluster
@pytest.mark.soak
@pytest.mark.parametrize(("name", "place"), [("features", 0), ("pipeline", -1)])
def test_a_killed_process_ends_a_job_without_restarts(client: Client, tmp_path: Path, name: str, place: int) -> None:
    made = job(PLACES[name], {**PROCESSES[2], "max_restarts": 0}, {"how": ""}, train_steps=1_000_000)
    result = Driven(made, client, tmp_path, kill_worker(place)).result
    assert (result.state, result.exit_code, result.error) == ("failed", 4, ""), result
    assert f"Lost: {', '.join(result.topology['processes'][place])}." in result.reason


@pytest.mark.cluster
@pytest.mark.long
def test_a_signal_stops_a_pipeline_with_a_checkpoint(client: Client, tmp_path: Path) -> None:
    made = job(PLACES["pipeline"], PROCESSES[2], {"how": ""}, train_steps=1_000_000)
    stopped = Driven(made, client, tmp_path, lambda driven, event: driven.driver.stop("SIGINT"))
    assert (stopped.result.state, stopped.result.exit_code) == ("stopped", 130), stopped.result
    (step,) = stopped.checkpoints()
    made = job(PLACES["pipeline"], PROCESSES[2], {"how": ""}, train_steps=step + 2)
    rest = Driven(made, client, tmp_path, resume=f"{stopped.url}/checkpoint/step-{step}")
    assert (rest.result.state, rest.result.steps) == ("done", step + 2), rest.result
