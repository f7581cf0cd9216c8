"""The cluster that a verb asks for, and the signals that stop a program, hidden from its child processes."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import resource_tracker
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import click

from singa_dask import runtime
from singa_dask.cli.printing import echo

if TYPE_CHECKING:
    from distributed import Client

STOPS = tuple(signal.Signals[name] for name in runtime.STOPS)
"""Ctrl-C, a polite kill, the end of the terminal, and what batch systems send before the end."""
NEVER_IGNORED = (signal.SIGINT, signal.SIGTERM)
"""A shell has commands in the background ignore Ctrl-C."""
AGAIN_S = 0.05
"""Seconds until a signal is delivered again whose exception was lost."""


@contextlib.contextmanager
def hidden_from_children() -> Iterator[None]:
    """Hide `STOPS` from processes that are started meanwhile, and from their children.

    A terminal sends Ctrl-C to every process of the program, and so do ``timeout`` and batch systems with SIGTERM; the
    program alone is to act on it. One that comes meanwhile is seen at the end.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    # it makes some of them visible again: when it starts by itself, on the first process, that would see them
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


class Signals:
    """Handles `STOPS` while a job runs: it calls a function with the name of each signal.

    Before there is one a signal ends the program, after cleaning up, and says that it was ``stopped``. Signals that the
    caller ignores, as ``nohup`` does SIGHUP, and ``trap ''`` of a shell any, stay ignored, unless `NEVER_IGNORED`.
    """

    def __init__(self, stopped: str = "stopped before the job had started") -> None:
        self._stopped = stopped
        self._act: Callable[[str], object] | None = None
        self._before: dict[int, Any] = {}
        self._received = 0
        self._again: threading.Timer | None = None

    def __enter__(self) -> Signals:
        self._on_unraisable, sys.unraisablehook = sys.unraisablehook, self._deliver_again
        for number in STOPS:
            if number in NEVER_IGNORED or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._again is not None:
            self._again.cancel()
        sys.unraisablehook = self._on_unraisable
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._received and not isinstance(error, SystemExit):  # lost, or replaced by an error of a module in C
            raise SystemExit(128 + self._received) from error

    def hand_to(self, act: Callable[[str], object]) -> None:
        """Call a function with each signal from now on, in a signal handler."""
        self._act = act
        # what the handler raises is lost where a destructor or a callback of C runs
        if self._received:
            raise SystemExit(128 + self._received)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._act is not None:
            self._act(name)
            return
        if self._received and name in runtime.NOTICES:
            return  # it ends already
        if not self._received:
            echo(f"{name}: {self._stopped}.", err=True)
        self._received = number
        raise SystemExit(128 + number)

    def _deliver_again(self, lost: sys.UnraisableHookArgs) -> None:
        """Deliver a signal once more whose exception a destructor, or the callback of a weak reference, has lost."""
        if not (self._received and lost.exc_type is SystemExit):
            self._on_unraisable(lost)
            return
        main = threading.main_thread().ident
        assert main is not None
        self._again = threading.Timer(AGAIN_S, signal.pthread_kill, (main, self._received))
        self._again.daemon = True
        self._again.start()


def patience_of(seconds: float, quiet: bool) -> runtime.Patience:
    """Return the time to wait, with messages on stderr about what is missing unless ``quiet``."""
    return runtime.Patience(seconds) if quiet else runtime.Patience(seconds, partial(echo, err=True))


@contextlib.contextmanager
def chosen_cluster(
    workers: int | None, scheduler: str | None, scheduler_file: str | None, wait: float, quiet: bool
) -> Iterator[tuple[Client, runtime.Patience] | None]:
    """Provide so many new processes of this machine, or else the cluster that is named, and how long to wait for it.

    Yields None if none is: then nothing of Dask is loaded.
    """
    if not (workers or scheduler or scheduler_file):
        yield None
        return
    patience = patience_of(wait, quiet)
    with contextlib.ExitStack() as stack:
        if workers:
            with hidden_from_children():
                client = stack.enter_context(runtime.local_cluster(workers))
        else:
            client = stack.enter_context(runtime.connect(scheduler, scheduler_file, patience))
        yield client, patience


@contextlib.contextmanager
def jobs_of(scheduler: str | None, scheduler_file: str | None) -> Iterator[runtime.RemoteJobs]:
    """Connect to the cluster that the options name."""
    if not (scheduler or scheduler_file):
        raise click.UsageError(
            "which cluster? Give --scheduler ADDRESS or --scheduler-file FILE, or set DASK_SCHEDULER_ADDRESS."
        )
    with runtime.connect(scheduler, scheduler_file) as client:
        yield runtime.RemoteJobs(client)
