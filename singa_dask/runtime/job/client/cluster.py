"""Connect to a Dask cluster, or start one on this machine; keep Dask's log messages off stderr."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster
from distributed import core as distributed_core
from distributed.versions import VersionMismatchWarning, scheduler_relevant_packages

from singa_dask.comm.dask_servers import server_type
from singa_dask.errors import ClusterError, CommError
from singa_dask.runtime.job.calls import present_workers
from singa_dask.runtime.job.limits import check_limits, limit
from singa_dask.runtime.job.patience import AT_ONCE, Patience


@contextmanager
def _silent_logs() -> Iterator[None]:
    """Silence Dask's log messages on stderr; several threads may use this at once."""

    def is_critical(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.CRITICAL

    # handlers of other types, such as files, that users have added continue to get all messages
    handlers = [
        handler for handler in logging.getLogger("distributed").handlers if type(handler) is logging.StreamHandler
    ]
    for handler in handlers:
        handler.addFilter(is_critical)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_critical)


def _start_client(address: str, timeout: float, say: Callable[[str], None]) -> Client:
    """Return a client that waits up to ``timeout`` seconds to connect, and later to reconnect.

    Calls ``say`` if package versions on the cluster differ from the versions here.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", VersionMismatchWarning)
        client = Client(address, timeout=timeout, set_as_default=False)
    for warning in caught:
        if not issubclass(warning.category, VersionMismatchWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if any(issubclass(warning.category, VersionMismatchWarning) for warning in caught):
        differences = version_differences(client.get_versions())
        say(f"{address}: package versions differ: {differences}. Install the same versions on both sides.")
    return client


def version_differences(versions: Any) -> str:
    """Describe differences in `Client.get_versions`, e.g. ``numpy 1.26.4 there, 2.4.6 here``."""
    here = versions["client"]["packages"]
    scheduler = versions["scheduler"]["packages"]
    there = [worker["packages"] for worker in versions["workers"].values() if worker]
    there.append({name: scheduler.get(name) for name in scheduler_relevant_packages})
    differences = []
    for name in sorted(here):
        others = {packages[name] for packages in there if name in packages} - {here[name]}
        if others:
            differences.append(
                f"{name} {', '.join(str(other or 'missing') for other in sorted(others, key=str))} there, "
                f"{here[name] or 'missing'} here"
            )
    return "; ".join(differences) or "unknown packages"


@contextmanager
def connect(
    address: str | None = None, scheduler_file: str | None = None, patience: Patience = AT_ONCE
) -> Iterator[Client]:
    """Connect to a running scheduler, given its scheduler file or its address.

    Raises
    ------
    ClusterError
        No scheduler answers, or this process was forked from a process that has used Dask.
    ConfigError
        A timeout in Dask's configuration is wrong.
    """
    _refuse_fork()
    check_limits("this process")
    with _silent_logs(), warnings.catch_warnings():
        # `_start_client` shows the warning about other versions once; do not repeat it after each reconnection
        warnings.simplefilter("ignore", VersionMismatchWarning)
        client = patience.until(lambda: _connected(address, scheduler_file, patience.say))
        try:
            yield client
        finally:
            client.close(limit("close"))


def _connected(address: str | None, scheduler_file: str | None, say: Callable[[str], None]) -> Client:
    address = address_in(scheduler_file) if scheduler_file else str(address)
    where = f"{scheduler_file}: {address}" if scheduler_file else address
    try:
        kind = server_type(address, limit("connect"))
        if kind == "Scheduler":
            return _start_client(address, limit("client"), say)
        why = f"a Dask {kind.lower()} does"
    except (CommError, OSError, ValueError) as error:
        why = str(error)
    stale = " The file may be of a scheduler that has ended." if scheduler_file else ""
    raise ClusterError(
        f"{where}: no Dask scheduler answers there ({why}).{stale} Start one with dask-scheduler, "
        "or leave the address out to use this machine alone."
    )


_USED_BY: dict[str, int] = {}


def _refuse_fork() -> None:
    """Raise `ClusterError` if this process was forked from a process that has used Dask.

    Such a process lacks Dask's threads, so calls would hang.
    """
    if _USED_BY.setdefault("pid", os.getpid()) != os.getpid():
        text = "Dask was used before this process was forked. Start processes by spawn or forkserver instead."
        raise ClusterError(text)


def address_in(scheduler_file: str) -> str:
    """Return the address in a scheduler file.

    Raises
    ------
    ClusterError
        The file cannot be read, or has no address.
    """
    try:
        return str(json.loads(Path(scheduler_file).read_bytes())["address"])
    except OSError as error:
        why = error.strerror or str(error)
    except (ValueError, KeyError, TypeError):
        why = "the file has no address of a scheduler"
    raise ClusterError(
        f"{scheduler_file}: {why}. Expected the file that dask-scheduler --scheduler-file {scheduler_file} writes."
    )


def threads_by_host(client: Client) -> Counter[str]:
    """Return the total number of threads of the Dask workers on each host.

    Raises
    ------
    ClusterError
        The cluster has no Dask workers.
    """
    threads = Counter[str]()
    for facts in present_workers(client).values():
        threads[facts["host"]] += facts["nthreads"]
    if not threads:
        raise ClusterError("the cluster has no workers. Start some: dask-worker ADDRESS.")
    return threads


QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"}
"""Dask settings for local clusters, which have no dashboard. By default each process would sample itself some 150 times
a second."""


def check_processes() -> None:
    """Check that this process can start the processes of a cluster.

    Raises
    ------
    ClusterError
        This process is a daemon, which cannot start processes.
    SystemExit
        This process belongs to a cluster and is importing the script that started the cluster: the script lacks a
        ``__main__`` guard. The process that runs the script reports the error.
    """
    process = multiprocessing.current_process()
    if getattr(process, "_inheriting", False):
        raise SystemExit(1)
    if process.daemon:
        raise ClusterError(
            "this process is a daemon, which cannot start the processes of a cluster. In a task of Dask pass "
            "client=distributed.get_client(). In place of multiprocessing.Pool use a ProcessPoolExecutor."
        )


@contextmanager
def _main_for_children() -> Iterator[None]:
    """Hide the path of the main module during the context if the file does not exist.

    Otherwise, new processes would try to import the file. The file does not exist, for example, for a script from
    stdin.
    """
    main: Any = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None or os.path.exists(file):
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = file


def _missing_guard() -> str:
    """Return advice to add a ``__main__`` guard to the running script; empty if the script has one."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    try:
        text = Path(script).read_text(errors="replace") if script else ""
    except OSError:
        text = ""
    if not text or re.search(r"__name__\s*==\s*['\"]__main__['\"]", text):
        return ""
    return f' Its processes import {script}. Put the calls there below if __name__ == "__main__":, or pass a client.'


def _start(n_workers: int, n_threads: int, processes: bool) -> LocalCluster:
    """Start a cluster on this machine; see `local_cluster`.

    Raises
    ------
    ClusterError
        The processes of the cluster do not start.
    """
    if processes:
        check_processes()
    try:
        return LocalCluster(
            n_workers=n_workers,
            threads_per_worker=n_threads,
            processes=processes,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},  # loading bokeh for the dashboard takes a second
            memory_limit=None,
            silence_logs=logging.CRITICAL,  # this package reports errors of workers itself
        )
    except RuntimeError as error:
        raise ClusterError(f"the cluster has not started: {error.__cause__ or error}.{_missing_guard()}") from None


@contextmanager
def local_cluster(n_workers: int, n_threads: int = 1, processes: bool = True) -> Iterator[Client]:
    """Provide a client of a new cluster on this machine, and close the cluster at the end of the context.

    Parameters
    ----------
    n_workers, n_threads : int
        Number of Dask workers, and number of threads of each Dask worker.
    processes : bool
        Whether each Dask worker is a process. If False, all Dask workers run in this process.

    Raises
    ------
    ClusterError
        This process cannot start processes (see `check_processes`), the processes do not start, or this process was
        forked from a process that has used Dask.
    """
    _refuse_fork()
    before = set(multiprocessing.active_children())
    try:
        with (
            _silent_logs(),
            dask.config.set(QUIET),
            _main_for_children(),
            _start(n_workers, n_threads, processes) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client
    finally:
        # processes remain if the start was interrupted, or if a Dask worker did not end in time
        for process in set(multiprocessing.active_children()) - before if processes else ():
            process.kill()
            process.join()
        _release_handlers()


def _release_handlers() -> None:
    """Clear a cache of `distributed` that would keep closed schedulers and workers in memory."""
    cached: Any = getattr(distributed_core, "_expects_comm", None)
    if hasattr(cached, "cache_clear"):
        cached.cache_clear()
