"""What all tests share: no scheduler from outside, the same examples each run, no thread of ours left behind."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.data.warn_once import warn_once
from tests import dealing, selection


def has_gpu() -> bool:
    """Return whether CuPy is installed and there is a GPU for it; CuPy itself takes too long to ask."""
    if "SIMULATED_DEVICES" in os.environ or importlib.util.find_spec("cupy") is None:
        return False
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def use_simulated_gpu() -> None:
    """Let this process, and those that it starts, find the stand-in for CuPy before any other."""
    simulated = str(Path(__file__).parent / "simulated")
    if simulated not in sys.path:
        sys.path.insert(0, simulated)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if simulated not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [simulated, *paths]))


def is_simulated() -> bool:
    """Return whether tests compute on a simulated GPU."""
    return str(Path(__file__).parent / "simulated") in sys.path


if not has_gpu():
    use_simulated_gpu()
# Clusters of the tests are idle for most of the time. What each Dask process then does for the dashboard would take a
# twentieth of a core. Dask reads this when it is imported, here and in all processes that tests start.
os.environ |= {
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
}
# A shell lets what it starts in the background ignore Ctrl-C, and so would all commands that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Let long tests run only where they are asked for, and deal tests that wait for clusters by folders."""
    config.pluginmanager.register(selection)
    config.pluginmanager.register(dealing)


def pytest_collection_finish() -> None:
    """Keep what there is out of garbage collections: tests and modules stay, and each job collects at its end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Keep out what a file of tests has left too, such as modules and reports."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what only a real GPU shows where there is none."""
    if item.get_closest_marker("gpu") and is_simulated():
        pytest.skip("there is no GPU here, or no CuPy")


OUR_THREADS = ("worker-", "server-", "prefetch-", "stub-", "singa-", "checkpoint-", "transport")
ENDS_WITHIN_S = 60.0


@pytest.fixture(autouse=True)
def no_cluster_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a scheduler of the person who runs the tests: they start what they need."""
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)


@pytest.fixture(autouse=True)
def cache_of_the_tests(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what is read from far out of the cache of the person who runs the tests."""
    monkeypatch.setenv("SINGA_DASK_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(autouse=True)
def no_warning_remembered() -> None:
    """Let a test see a warning that another one has had."""
    warn_once.cache_clear()


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


@pytest.fixture(autouse=True)
def no_fault_left_on_a_device() -> Iterator[None]:
    """Fail a test that left work on a simulated GPU which fails when it runs."""
    yield
    simulated = sys.modules.get("cupy._world")
    if simulated is not None:
        simulated.settle()
