"""What all tests share: no scheduler from outside, the same examples each run, no thread of ours left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import hypothesis
import pytest

from singa_dask import modules
from singa_dask.api import REGISTRIES

hypothesis.settings.register_profile("house", deadline=None, derandomize=True)
hypothesis.settings.load_profile("house")

OUR_THREADS = ("worker-", "server-", "prefetch-", "stub-", "singa-")
ENDS_WITHIN_S = 10.0


@pytest.fixture(autouse=True)
def no_cluster_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a scheduler of the person who runs the tests: they start what they need."""
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)


@pytest.fixture(autouse=True)
def cache_of_the_tests(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what is read from far out of the cache of the person who runs the tests."""
    monkeypatch.setenv("SINGA_DASK_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(autouse=True)
def no_module_left() -> Iterator[None]:
    """Let go of the modules of a test's jobs: what they register is not known to the next test."""
    yield
    modules.unload(list(modules.loaded()), REGISTRIES.values())


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Fail a test after which a thread of ours goes on."""
    before = set(threading.enumerate())
    yield
    ours = [t for t in threading.enumerate() if t not in before and t.name.startswith(OUR_THREADS)]
    for thread in ours:
        thread.join(ENDS_WITHIN_S)
    assert [thread.name for thread in ours if thread.is_alive()] == []
