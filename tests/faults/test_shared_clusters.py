"""Several jobs on one cluster."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from singa_dask.errors import ClusterError
from tests.faults.jobs import job
from tests.faults.machines import Machines
from tests.faults.runs import Run, at_step, check_same, killed
from tests.selection import mostly_soak

pytestmark = pytest.mark.cluster


@pytest.mark.long
@pytest.mark.parametrize("n", mostly_soak([1, 5], 2))
def test_two_jobs_at_once_on_a_cluster_that_fits_one(bare: Machines, tmp_path: Path, n: int) -> None:
    """Each is done or refused; neither waits for threads that the other holds."""
    for i in range(n):
        ends = start_together(bare, tmp_path / str(i), job("allreduce", 200))
        assert "done" in ends, ends
        assert all(end == "done" or "does not fit" in end for end in ends), ends


def start_together(there: Machines, directory: Path, made: Any) -> list[str]:
    """Start two jobs at once; return how each ended."""
    ends = ["", ""]
    barrier = threading.Barrier(2)

    def start(i: int) -> None:
        barrier.wait()
        try:
            ends[i] = Run(made, there, directory / str(i)).result.state
        except ClusterError as error:
            ends[i] = str(error)

    directory.mkdir()
    threads = [threading.Thread(target=start, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


@pytest.mark.soak
def test_a_loss_of_one_job_is_not_one_of_another(nannies: Machines, tmp_path: Path, calm: Any) -> None:
    others: list[Run] = []
    made = job("single", 400)

    def strike(run: Run) -> None:
        others.append(Run(made, nannies, tmp_path / "others", (at_step(40), killed("worker-0-0"))))
        run.driver.stop()

    first = Run(job("single", 1_000_000), nannies, tmp_path / "runs", (at_step(5), strike))
    check_same(others[0], calm(made))
    assert (first.result.state, first.result.restarts) == ("stopped", 0), first.result
