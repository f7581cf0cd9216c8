"""Losses over the rows that count: a mean over the batch of the whole worker group, however it is divided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from singa_dask.conf import JobConf
from tests.runtime.end_to_end.test_clipping import PLACES
from tests.runtime.end_to_end.test_unequal_batches import CASES, TEST, agree
from tests.runtime.end_to_end.test_unequal_batches import job as plain
from tests.runtime.harness import ALLREDUCE, Outcome
from tests.selection import circles

Run = Callable[..., Outcome]
LOSS = {"ignore_index": 3, "class_weights": [1, 2, 0.5, 9, 1, 1, 3, 0, 1, 1]}


def job(sizes: list[int], place: dict[str, Any] | None = None, **changes: Any) -> JobConf:
    """Return a job that ignores one class, and gives others weights."""
    conf = plain(sizes, **TEST, **changes)
    layers = conf.model_dump(mode="json", exclude_unset=True)["neuralnet"]["layer"]
    layers[-1] |= {"softmaxloss_conf": LOSS}
    layers[2] |= place or {}
    return plain(sizes, neuralnet={"layer": layers}, **TEST, **changes)


@pytest.mark.parametrize("case", circles(reversed(CASES), long=4))
def test_workers_agree_with_one(run_job: Run, run_once: Run, case: str) -> None:
    sizes, cluster = CASES[case]
    agree(run_once(job([48])), run_job(job(sizes, cluster=cluster)))


@pytest.mark.parametrize("place", circles(PLACES, long=2))
def test_partitioned_nets_agree_with_one_worker(run_job: Run, run_once: Run, place: str) -> None:
    agree(run_once(job([48])), run_job(job([48], PLACES[place], cluster=ALLREDUCE)))


def test_the_rows_matter(run_once: Run) -> None:
    counted, all_rows = (run_once(conf).losses() for conf in (job([48]), plain([48], **TEST)))
    assert counted[0] != pytest.approx(all_rows[0], rel=1e-3)
