"""Whole jobs, in threads: determinism, resume, frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from tests.runtime import parts  # noqa: F401 - registers its algorithm
from tests.runtime.harness import ALLREDUCE, FRAMEWORKS, SANDBLASTER_1, SANDBLASTER_2, SINGLE, Outcome, mlp
from tests.selection import circles

Run = Callable[..., Outcome]

TWO_WORKERS = {"sandblaster-2": SANDBLASTER_2, "sandblaster-1": SANDBLASTER_1, "allreduce": ALLREDUCE}
SYNCHRONOUS = [ALLREDUCE, SANDBLASTER_2, SINGLE]
ADAM = {
    "type": "Adam",
    "adam_conf": {"beta1": 0.9, "beta2": 0.999},
    "learning_rate": {"type": "Fixed", "base_lr": 1e-3},
}


def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def close(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.abs(a[name] - b[name]).max() <= 1e-5 * np.abs(a[name]).max() for name in a)


def shuffled(**changes: Any) -> JobConf:
    """Return the small job with another order of all records in each epoch."""
    layers = mlp().model_dump(mode="json")["neuralnet"]["layer"]
    layers[0]["store_conf"]["shuffle"] = "full"
    return mlp(neuralnet={"layer": layers}, **changes)


@pytest.mark.parametrize(
    "name",
    circles(["allreduce", "hybrid", "downpour", "sandblaster-2", "hogwild", "single", "sandblaster-1"], 3, 4),
)
def test_every_framework_trains_to_its_end(run_once: Run, name: str) -> None:
    outcome = run_once(mlp(cluster=FRAMEWORKS[name]))
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports
    losses = list(outcome.losses().values())
    assert len(losses) == 10
    assert losses[-1] < losses[0]


def test_metrics_say_epoch_and_learning_rate(run_once: Run) -> None:
    rate = {"type": "Step", "base_lr": 0.1, "step_conf": {"gamma": 0.5, "change_freq": 4}}
    tests = {"test_freq": 5, "test_steps": 1}
    outcome = run_once(mlp(updater={"type": "SGD", "learning_rate": rate}, **tests))
    told = {(event["phase"], event["step"]): event for event in outcome.events if event["event"] == "metrics"}
    batches = {step: told["train", step]["epoch"] * 2000 / 48 for step in range(10)}
    assert batches == pytest.approx({step: step + 1 for step in range(10)})
    assert [told["train", step]["lr"] for step in (0, 3, 4, 9)] == [0.1, 0.1, 0.05, 0.025]
    # a test before step 5, and one after the last step
    assert told["test", 5]["epoch"] * 2000 / 48 == pytest.approx(5)
    assert (told["test", 5]["lr"], told["test", 10]["lr"]) == (0.05, 0.025)


@pytest.mark.parametrize("name", circles(TWO_WORKERS, long=2))
def test_two_workers_give_the_same_bits_in_every_synchronous_framework(run_job: Run, run_once: Run, name: str) -> None:
    first, second = run_once(mlp(cluster=ALLREDUCE)), run_job(mlp(cluster=TWO_WORKERS[name]))
    assert equal(first.params(), second.params())
    assert first.losses() == second.losses()


@pytest.mark.parametrize("cluster", circles(SYNCHRONOUS, long=2), ids=["allreduce", "sandblaster", "single"])
def test_memory_that_is_not_shared_gives_the_same_bits(run_once: Run, cluster: dict[str, Any]) -> None:
    shared, apart = (run_once(mlp(cluster={**cluster, **share})) for share in ({}, {"share_memory": False}))
    assert equal(shared.params(), apart.params())
    assert shared.losses() == apart.losses()


def test_two_workers_agree_with_one(run_job: Run) -> None:
    one, two = (run_job(mlp(train_steps=25, disp_freq=0, cluster=cluster)).params() for cluster in (SINGLE, ALLREDUCE))
    assert close(one, two)


@pytest.mark.parametrize("cluster", circles(SYNCHRONOUS, long=2), ids=["allreduce", "sandblaster", "single"])
def test_an_algorithm_may_wait_for_an_update_at_any_time(run_once: Run, cluster: dict[str, Any]) -> None:
    whole, waiting = (run_once(mlp(cluster=cluster, train_one_batch={"alg": alg})) for alg in ("BP", "Impatient"))
    assert equal(whole.params(), waiting.params())
    assert whole.losses() == waiting.losses()


def test_workers_share_the_records_of_a_test(run_job: Run) -> None:
    freqs = {"test_freq": 5, "test_steps": 3, "validate_freq": 4, "validate_steps": 2, "train_steps": 5}
    one, two = (run_job(mlp(cluster=cluster, **freqs)) for cluster in (SINGLE, ALLREDUCE))
    assert list(one.losses("test")) == list(two.losses("test")) == [0, 5]
    assert list(one.losses("validation")) == list(two.losses("validation")) == [0, 4, 5]
    for phase in ("test", "validation"):
        assert two.losses(phase) == pytest.approx(one.losses(phase), rel=1e-6)
        first = {event["step"]: event["metrics"] for event in one.events if event.get("phase") == phase}
        halves = [event for event in two.events if event.get("phase") == phase and event["step"] == 0]
        assert [event["worker"] for event in sorted(halves, key=lambda event: event["worker"])] == [0, 1]
        accuracy = np.divide(*np.sum([event["metrics"]["accuracy"] for event in halves], axis=0))
        assert accuracy == pytest.approx(np.divide(*first[0]["accuracy"]), rel=1e-6)


# -- resume ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    circles(
        [
            (ALLREDUCE, SANDBLASTER_1),
            (SANDBLASTER_1, SANDBLASTER_2),
            (SANDBLASTER_2, ALLREDUCE),
            (SINGLE, SINGLE),
            (ALLREDUCE, ALLREDUCE),
        ],
        long=3,
    ),
)
@pytest.mark.parametrize("updater", circles([None, ADAM]), ids=["momentum", "adam"])
def test_a_resumed_run_is_the_same_run(
    run_job: Run, run_once: Run, before: dict[str, Any], after: dict[str, Any], updater: dict[str, Any] | None
) -> None:
    more = {"updater": updater} if updater else {}
    whole = run_once(shuffled(train_steps=10, cluster=before, **more))
    half = run_once(shuffled(train_steps=5, cluster=before, **more))
    rest = run_job(shuffled(train_steps=10, cluster=after, **more), resume=half.url + "/checkpoint/step-5")
    assert equal(whole.params(), rest.params())
    assert {**half.losses(), **rest.losses()} == whole.losses()


def test_a_checkpoint_in_mid_run_is_as_good_as_the_last(run_job: Run) -> None:
    whole = run_job(shuffled(train_steps=12, cluster=ALLREDUCE, checkpoint_freq=5))
    assert [event["step"] for event in whole.events if event["event"] == "checkpoint"] == [5, 10, 12]
    for step in (5, 10):
        rest = run_job(shuffled(train_steps=12, cluster=SANDBLASTER_1), resume=f"{whole.url}/checkpoint/step-{step}")
        assert min(rest.losses()) == step
        assert equal(whole.params(), rest.params())


def test_tests_of_a_resumed_run_see_the_records_that_were_next(run_job: Run) -> None:
    freqs = {"test_freq": 5, "test_steps": 3}
    whole = run_job(mlp(train_steps=15, **freqs))
    half = run_job(mlp(train_steps=15, checkpoint_freq=8, **freqs))
    rest = run_job(mlp(train_steps=15, **freqs), resume=half.url + "/checkpoint/step-8")
    assert rest.losses("test") == {step: loss for step, loss in whole.losses("test").items() if step >= 8}


@pytest.mark.parametrize("name", circles(["downpour", "hybrid", "hogwild"], long=1))
def test_groups_go_on_at_the_steps_where_they_stood(run_job: Run, name: str) -> None:
    half = run_job(mlp(train_steps=6, cluster=FRAMEWORKS[name]))
    rest = run_job(mlp(train_steps=12, cluster=FRAMEWORKS[name]), resume=half.url + "/checkpoint/step-6")
    assert {report["state"] for report in rest.reports.values()} == {"done"}, rest.reports
    assert list(rest.losses()) == list(range(6, 12))
    assert max(rest.losses(group=1)) == 11
