"""Whole jobs, in threads: determinism, resume, frameworks, ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.runtime.harness import ALLREDUCE, FRAMEWORKS, SANDBLASTER_1, SANDBLASTER_2, SINGLE, Outcome, mlp

Run = Callable[..., Outcome]


def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_framework_trains_to_its_end(run_job: Run, name: str) -> None:
    outcome = run_job(mlp(cluster=FRAMEWORKS[name]))
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports
    losses = list(outcome.losses().values())
    assert len(losses) == 10
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("cluster", [ALLREDUCE, SANDBLASTER_1, SANDBLASTER_2])
def test_two_workers_give_the_same_bits_in_every_synchronous_framework(run_job: Run, cluster: dict[str, Any]) -> None:
    first, second = run_job(mlp(cluster=ALLREDUCE)), run_job(mlp(cluster=cluster))
    assert equal(first.params(), second.params())
    assert first.losses() == second.losses()


def test_two_workers_agree_with_one(run_job: Run) -> None:
    one, two = (run_job(mlp(train_steps=100, cluster=cluster)).params() for cluster in (SINGLE, ALLREDUCE))
    for name, values in one.items():
        assert np.abs(values - two[name]).max() <= 1e-5 * np.abs(values).max()


@pytest.mark.parametrize("cluster", [SINGLE, ALLREDUCE, SANDBLASTER_1])
def test_a_resumed_run_is_the_same_run(run_job: Run, cluster: dict[str, Any]) -> None:
    whole = run_job(mlp(train_steps=20, cluster=ALLREDUCE if cluster else SINGLE))
    half = run_job(mlp(train_steps=10, cluster=ALLREDUCE if cluster else SINGLE))
    rest = run_job(mlp(train_steps=20, cluster=cluster), resume=half.url + "/checkpoint/step-10")
    assert equal(whole.params(), rest.params())
    assert {**half.losses(), **rest.losses()} == whole.losses()
