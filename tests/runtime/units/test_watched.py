"""Checkpoints by time, checkpoints that stay, and training that ends when a metric no longer becomes better."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.errors import CheckpointError
from singa_dask.runtime.checkpoints import lookup
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.lookup import find
from singa_dask.runtime.units.evaluation import MetricWatch
from tests.runtime.harness import ALLREDUCE, FRAMEWORKS, HYBRID, SINGLE, Outcome, mlp
from tests.runtime.units.test_ends import states
from tests.selection import circles

Run = Callable[..., Outcome]
MANY = 100_000
# the loss on the same two batches becomes worse at once when nothing is learned
STUCK = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.0}}
VALIDATION = {"validate_freq": 4, "validate_steps": 2}
NAMES = ["allreduce", "hybrid", "sandblaster-2", "single", "sandblaster-1", "downpour", "hogwild"]


def early(patience: int, **more: Any) -> dict[str, Any]:
    """Return the keys of a job that ends when its loss is as it was."""
    return {
        "updater": STUCK,
        **VALIDATION,
        "early_stopping": {"metric": "validation.loss", "patience": patience, "min_delta": 1e6},
        **more,
    }


def steps_of(outcome: Outcome, event: str = "checkpoint", **wanted: Any) -> list[int]:
    found = [each for each in outcome.events if each["event"] == event]
    return [each["step"] for each in found if all(each[key] == value for key, value in wanted.items())]


def complete(outcome: Outcome) -> list[int]:
    names = [path.parent.name for path in Path(outcome.url).glob("checkpoint/*/manifest.json")]
    assert {path.name for path in (Path(outcome.url) / "checkpoint").iterdir()} == set(names)
    return sorted(int(name.removeprefix("step-")) for name in names)


# -- early stopping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", circles(NAMES, long=2))
def test_all_groups_end_and_the_job_is_done(run_job: Run, name: str) -> None:
    cluster = FRAMEWORKS[name]
    outcome = run_job(mlp(train_steps=MANY, cluster=cluster, **early(3, test_freq=8, test_steps=1)))
    assert set(states(outcome).values()) == {"done"}, outcome.reports
    workers = {unit: report for unit, report in outcome.reports.items() if unit.startswith("worker")}
    assert not any(report["stopped"] for report in workers.values())
    reason = "early stopping: validation.loss has not improved 3 times in a row. Best: "
    assert all(report["ended"].startswith(reason) for report in workers.values())
    # the first value is the best, as nothing is that much better
    assert {report["step"] for unit, report in workers.items() if unit.startswith("worker-0")} == {12}
    assert steps_of(outcome) == [12]
    n = cluster.get("nworkers_per_group", 1)
    assert steps_of(outcome, "metrics", phase="validation", worker=0) == [0, 4, 8, 12]
    # and once more at the end
    assert steps_of(outcome, "metrics", phase="test", worker=n - 1) == [0, 8, 12]


@pytest.mark.parametrize("cluster", circles([SINGLE, ALLREDUCE], long=1), ids=["single", "allreduce"])
def test_a_resumed_job_ends_where_an_uninterrupted_one_does(run_job: Run, cluster: dict[str, Any]) -> None:
    whole = run_job(mlp(train_steps=MANY, cluster=cluster, **early(3)))
    first = run_job(mlp(train_steps=7, cluster=cluster, **early(3)))
    rest = run_job(mlp(train_steps=MANY, cluster=cluster, **early(3)), resume=find(first.url))
    assert steps_of(whole) == steps_of(rest) == [12]
    assert whole.params().keys() == rest.params().keys()
    assert all(np.array_equal(values, rest.params()[name]) for name, values in whole.params().items())
    again = run_job(mlp(train_steps=MANY, cluster=cluster, **early(3)), resume=find(rest.url))
    assert {report["step"] for unit, report in again.reports.items() if unit.startswith("worker")} == {12}
    assert steps_of(again, "metrics", phase="validation") == []
    more = run_job(mlp(train_steps=MANY, cluster=cluster, **early(4)), resume=find(rest.url))
    assert steps_of(more) == [16]


def test_a_job_whose_metric_becomes_better_goes_on(run_job: Run) -> None:
    keys = {**early(2), "early_stopping": {"metric": "validation.loss", "patience": 2}}
    del keys["updater"]
    outcome = run_job(mlp(train_steps=16, **keys))
    assert {report["step"] for unit, report in outcome.reports.items() if unit.startswith("worker")} == {16}
    stored = Checkpoint(find(outcome.url)).manifest
    assert stored["early_stopping"]["n_worse"] < 2
    assert stored["metrics"]["validation.loss"]["value"] > 0


def test_a_pass_in_which_no_row_counts_tells_nothing() -> None:
    watch = MetricWatch(mlp(**early(1)), {})
    for step, measured in enumerate([(6.0, 2.0), (0.0, 0.0), (0.0, 0.0)]):
        watch.add("validation", step, [{"loss": measured}])
    assert not watch.reason
    watch.add("validation", 3, [{"loss": (6.0, 2.0)}])
    assert "Best: 3 at step 0" in watch.reason


def test_a_metric_that_the_net_does_not_have_is_named(run_job: Run) -> None:
    keys = {**early(2), "early_stopping": {"metric": "validation.top5_accuracy"}}
    outcome = run_job(mlp(train_steps=MANY, **keys))
    failed = outcome.reports["worker-0-0"]
    assert (failed["state"], failed["exit_code"]) == ("failed", 2)
    assert "early_stopping.metric: the validation net has no metric 'top5_accuracy'" in failed["reason"]
    assert "Known: accuracy, loss." in failed["reason"]


def watch(*values: float, metric: str = "test.accuracy", **conf: Any) -> str:
    job = mlp(test_freq=1, test_steps=1, early_stopping={"metric": metric, **conf})
    state: dict[str, Any] = {}
    for step, value in enumerate(values):
        # as through a checkpoint each time
        watched = MetricWatch(job, json.loads(json.dumps(state)))
        watched.add("test", step, [{"accuracy": (value, 2.0)}, {"accuracy": (value, 2.0), "loss": (0.0, 1.0)}])
        state = watched.state()
    return MetricWatch(job, state).reason


@pytest.mark.parametrize(
    ("values", "conf", "ends"),
    [
        ((0.1, 0.2, 0.3, 0.4), {"patience": 1}, False),
        ((0.1, 0.2, 0.2), {"patience": 1}, True),
        ((0.4, 0.3, 0.2, 0.5), {"patience": 3}, False),
        ((0.4, 0.3, 0.2, 0.1), {"patience": 3}, True),
        ((0.4, 0.3, 0.2, 0.1), {"patience": 3, "mode": "min"}, False),
        ((0.1, 0.15, 0.2, 0.25), {"patience": 2, "min_delta": 0.1}, False),
        ((0.1, 0.13, 0.15, 0.2), {"patience": 2, "min_delta": 0.1}, True),
        ((float("nan"), float("nan")), {"patience": 2}, True),
    ],
)
def test_what_counts_as_better(values: tuple[float, ...], conf: dict[str, Any], ends: bool) -> None:
    assert bool(watch(*(2 * value for value in values), **conf)) == ends


# -- checkpoints that stay ---------------------------------------------------------------------------


def saving(**keep: Any) -> dict[str, Any]:
    return {"checkpoint_freq": 2, "test_freq": 2, "test_steps": 1, "keep_checkpoints": keep}


@pytest.mark.parametrize("cluster", circles([SINGLE, HYBRID, ALLREDUCE], long=1), ids=["single", "hybrid", "allreduce"])
def test_the_newest_stay(run_job: Run, cluster: dict[str, Any]) -> None:
    outcome = run_job(mlp(train_steps=11, cluster=cluster, **saving(last=2)))
    assert steps_of(outcome) == [2, 4, 6, 8, 10, 11]
    assert complete(outcome) == [10, 11]


@pytest.mark.long
def test_the_best_stay_too_and_those_of_before_a_resume(run_job: Run) -> None:
    job = mlp(train_steps=12, **saving(last=1, best=2, metric="test.accuracy"))
    every = run_job(mlp(train_steps=12, **saving(last=100, best=1, metric="test.accuracy")))
    # that of step 12 comes before the test there
    values = {step: every.metric("accuracy", "test")[step] for step in (2, 4, 6, 8, 10)}
    best = sorted(values, key=lambda step: (-values[step], step))[:2]
    assert complete(run_job(job)) == sorted({*best, 12})
    first = run_job(mlp(train_steps=6, **saving(last=100)))
    (Path(first.url) / "checkpoint" / "step-3").mkdir()  # as a kill leaves it
    rest = run_job(job, resume=find(first.url), url=first.url)
    # what was kept without the metric has no value of it
    assert 12 in complete(rest) and 3 not in complete(rest)
    assert len(complete(rest)) == 3


def test_jobs_without_the_keys_keep_all_and_manifests_say_nothing_more(run_job: Run) -> None:
    outcome = run_job(mlp(train_steps=6, checkpoint_freq=2))
    assert complete(outcome) == [2, 4, 6]
    assert not {"metrics", "early_stopping"} & Checkpoint(find(outcome.url)).manifest.keys()


# -- checkpoints by time -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", circles(["single", *(name for name in NAMES if name != "single")], long=3))
def test_checkpoints_by_time_change_no_bits(run_job: Run, name: str) -> None:
    cluster = FRAMEWORKS[name]
    timed = run_job(mlp(train_steps=20, cluster=cluster, checkpoint_minutes=1e-9))
    assert set(states(timed).values()) == {"done"}
    steps = steps_of(timed)
    assert steps == sorted(steps) and len(steps) > 1 and steps[-1] == 20
    if cluster.get("nworker_groups", 1) == 1:
        calm = run_job(mlp(train_steps=20, cluster=cluster))
        assert timed.losses() == calm.losses()
        rest = run_job(mlp(train_steps=20, cluster=cluster), resume=f"{timed.url}/checkpoint/step-{steps[0]}")
        assert all(np.array_equal(values, rest.params()[key]) for key, values in calm.params().items())


@pytest.mark.parametrize(
    ("cluster", "keep"), circles([(SINGLE, None), (ALLREDUCE, 1), (SINGLE, 1), (ALLREDUCE, None)], long=1)
)
def test_the_best_params_are_restored(run_job: Run, cluster: dict[str, Any], keep: int | None) -> None:
    # by mode: max the first value is the best, as the loss falls
    watched = {"metric": "validation.loss", "mode": "max", "patience": 2, "restore_best": True}
    more = {**VALIDATION, "validate_after": 4, "keep_checkpoints": keep, "cluster": cluster}
    outcome = run_job(mlp(train_steps=MANY, early_stopping=watched, **more))
    assert complete(outcome) == [4, 12]
    assert find(outcome.url).endswith("step-12")  # a run goes on from there
    assert lookup.find_values(outcome.url).endswith("step-4")
    best = run_job(mlp(train_steps=4, cluster=cluster))
    for name, stored in lookup.load_values(outcome.url).items():
        np.testing.assert_array_equal(stored.values, best.params()[name])
    # the test at the end counts, too
    watched = {**watched, "mode": "min"}
    outcome = run_job(mlp(train_steps=10, early_stopping=watched, **more))
    assert lookup.find_values(outcome.url).endswith("step-10")


@pytest.mark.parametrize("cluster", circles([SINGLE, ALLREDUCE], long=1))
def test_a_run_that_goes_on_from_its_end_counts_no_test_twice(run_job: Run, cluster: dict[str, Any]) -> None:
    # by mode: max the first value is the best, as the loss falls
    watched = {"metric": "validation.loss", "mode": "max", "patience": 4, "restore_best": True}
    given = {**VALIDATION, "early_stopping": watched, "cluster": cluster}
    calm = run_job(mlp(train_steps=MANY, **given))
    assert complete(calm) == [0, 16]
    first = run_job(mlp(train_steps=8, **given))
    manifest = Path(first.url, "checkpoint", "step-8", "manifest.json")
    before = manifest.read_bytes()
    run_job(mlp(train_steps=8, **given), resume=str(manifest.parent), url=first.url)
    assert manifest.read_bytes() == before
    rest = run_job(mlp(train_steps=MANY, **given), resume=str(manifest.parent))
    assert complete(rest) == [16]


def test_a_run_without_steps_writes_its_checkpoint_again_if_it_says_more(run_job: Run) -> None:
    first = run_job(mlp(train_steps=8))
    again = run_job(mlp(train_steps=8, **early(3)), resume=find(first.url), url=first.url)
    assert "early_stopping" in Checkpoint(find(again.url)).manifest


def test_the_best_checkpoint_has_to_be_there(run_job: Run) -> None:
    watched = {"metric": "validation.loss", "mode": "max", "patience": 1, "restore_best": True}
    outcome = run_job(mlp(train_steps=MANY, early_stopping=watched, **VALIDATION))
    assert lookup.find_values(outcome.url).endswith("step-0")
    shutil.rmtree(Path(outcome.url) / "checkpoint" / "step-0")
    with pytest.raises(CheckpointError, match="the best checkpoint, of step 0, is not there"):
        lookup.find_values(outcome.url)
