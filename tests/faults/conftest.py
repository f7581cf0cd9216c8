"""Clusters to do harm to, and what a job does without any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from singa_dask.conf import JobConf
from tests.faults import parts  # noqa: F401  registers its layer
from tests.faults.jobs import job
from tests.faults.machines import BARE, NANNY, Machines, check_left, machines
from tests.faults.runs import Run
from tests.runtime.harness import Outcome, known, run_job, run_once
from tests.runtime.processes import residue

__all__ = ["known", "run_job", "run_once"]


@pytest.fixture(scope="package")
def _bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("bare"), *BARE) as made:
        yield made


@pytest.fixture(scope="package")
def _nannies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("nannies"), *NANNY) as made:
        yield made


@pytest.fixture
def bare(_bare: Machines, tmp_path: Path) -> Iterator[Machines]:
    """Give two workers that stay lost; see that nothing of a job is left."""
    yield from whole(_bare, tmp_path)


@pytest.fixture
def nannies(_nannies: Machines, tmp_path: Path) -> Iterator[Machines]:
    """Give two workers that are started again; see that nothing of a job is left."""
    yield from whole(_nannies, tmp_path)


def whole(made: Machines, directory: Path) -> Iterator[Machines]:
    made.settle(2)
    # what stays of a first job may stay of all
    assert Run(job("allreduce", 1), made, directory / "first").result.state == "done"
    before = residue(made.client)
    yield made
    made.settle(2)
    check_left(made.client, before)


@pytest.fixture
def calm(run_once: Callable[[JobConf], Outcome]) -> Callable[[JobConf], Outcome]:
    """Return a function that runs a synchronous job in threads of this process, once for all tests."""
    return run_once
