"""Workers on GPUs with numbers of records of their own, and clipped gradients: as on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backends import need_gpus
from tests.runtime.end_to_end.test_clipping import updater
from tests.runtime.end_to_end.test_unequal_batches import job
from tests.runtime.harness import ALLREDUCE, Outcome, run_job
from tests.selection import mostly_long

__all__ = ["run_job"]

PAIR = {"nworkers_per_group": 2, "nworkers_per_procs": 2}


@pytest.mark.parametrize(("cluster", "gpus"), mostly_long([(PAIR, [0, 1]), (ALLREDUCE, [0]), (PAIR, [0, 0])], 3))
def test_unequal_batches_with_clipped_gradients(
    run_job: Callable[..., Outcome], cluster: dict[str, Any], gpus: list[int]
) -> None:
    need_gpus(1 + max(gpus))
    one = run_job(job([48], updater=updater()))
    two = run_job(job([16, 32], updater=updater(), cluster=cluster, gpu=gpus))
    assert {report["state"] for report in two.reports.values()} == {"done"}, two.reports
    for name, values in one.params().items():
        np.testing.assert_allclose(two.params()[name], values, rtol=0, atol=1e-5 * np.abs(values).max())
