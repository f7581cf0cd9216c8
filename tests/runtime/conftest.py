"""Fixtures of the run time's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import Client

from singa_dask.runtime.job.calls import present_workers
from tests.runtime.harness import known, run_job, run_once
from tests.runtime.processes import check_gone, cluster, residue, wait_until

__all__ = ["known", "run_job", "run_once"]


@pytest.fixture(scope="package")
def nannies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Start a cluster whose workers are started again when they are lost."""
    with cluster(tmp_path_factory.mktemp("cluster")) as (_, client):
        yield client


@pytest.fixture
def client(nannies: Client) -> Iterator[Client]:
    """Give the cluster to a test, all of it, and see that nothing of a job is left on it."""
    wait_until(lambda: len(present_workers(nannies)) == 2, "both workers are there")
    before = residue(nannies)
    yield nannies
    wait_until(lambda: len(present_workers(nannies)) == 2, "both workers are there again")
    check_gone(nannies, before)
