"""A real HDFS for a whole test run, another one for faults; skipped where it cannot be had, unless CI asks for it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from distributed import Client

from singa_dask import fs
from tests.hdfs.cluster import HOSTS, READY_WITHIN_S, MiniHdfs
from tests.hdfs.jars import Missing
from tests.runtime.processes import cluster, wait_until

DEMANDED = os.environ.get("CI") == "true" or os.environ.get("SINGA_DASK_REQUIRE_HDFS") == "1"

Made = TypeVar("Made")


def start_or_skip(make: Callable[[], Made]) -> Made:
    """Make an HDFS, or what it needs; the test is skipped where it cannot be had."""
    try:
        return make()
    except Missing as reason:
        if DEMANDED:
            pytest.fail(f"a real HDFS is demanded, but: {reason}")
        pytest.skip(f"no real HDFS: {reason}")


def _start(factory: pytest.TempPathFactory) -> MiniHdfs:
    return start_or_skip(lambda: MiniHdfs(factory.mktemp("hdfs") / "cluster"))


@pytest.fixture(scope="package")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    """Start an HDFS that the tests leave whole."""
    with _start(tmp_path_factory) as mini:
        yield mini


@pytest.fixture(scope="package")
def root(request: pytest.FixtureRequest) -> str:
    """Return the URL of the user's HDFS (SINGA_DASK_TEST_HDFS), or of ours."""
    return os.environ.get("SINGA_DASK_TEST_HDFS", "").rstrip("/") or str(request.getfixturevalue("mini").url)


@pytest.fixture
def folder(root: str) -> Iterator[str]:
    """Make a directory for a test."""
    url = fs.join(root, "tmp", f"singa-dask-{secrets.token_hex(4)}")
    fs.makedirs(url)
    yield url
    fs.remove_tree(url)


@pytest.fixture(scope="package")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Start Dask workers that say they are on the hosts of the DataNodes."""
    with cluster(tmp_path_factory.mktemp("dask"), "--no-nanny", names=HOSTS) as (_, client):
        yield client


@pytest.fixture(scope="package")
def breakable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    with _start(tmp_path_factory) as mini:
        yield mini


@pytest.fixture
def faulty(breakable: MiniHdfs) -> Iterator[MiniHdfs]:
    """Give an HDFS whose servers a test may kill."""
    yield breakable
    breakable.restart_killed()
    wait_until(breakable.is_ready, "what the test killed is there again", READY_WITHIN_S)
