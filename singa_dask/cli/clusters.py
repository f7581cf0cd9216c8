"""The cluster of a command, and the signals that stop the command.

Child processes do not get these signals.
"""

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
from singa_dask.shown import plural

if TYPE_CHECKING:
    from distributed import Client

STOPS = tuple(signal.Signals[name] for name in runtime.STOPS)
"""Signals of Ctrl-C, kill, a closed terminal, and batch systems before the time limit."""
NEVER_IGNORED = (signal.SIGINT, signal.SIGTERM)
"""Handled even if ignored by the caller, as a shell ignores Ctrl-C for background commands."""
AGAIN_S = 0.05
"""Seconds after which a signal is delivered again if its exception was lost."""


@contextlib.contextmanager
def hidden_from_children() -> Iterator[None]:
    """Hide the signals `STOPS` from processes that are started in the context, and from their children.

    A terminal sends Ctrl-C to every process of the program; ``timeout`` and batch systems do the same with SIGTERM. But
    only the program itself should react. Signals that arrive during the context are delivered at its end.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    # starting the tracker unblocks some signals, so start it here and not in the first child process
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


class Signals:
    """Handles the signals `STOPS` while a job runs, by calling a function with the name of each signal.

    Until `hand_to` sets the function, a signal prints the message ``stopped`` and ends the program after cleaning up.
    Signals that the caller ignores, as ``nohup`` ignores SIGHUP, stay ignored, except `NEVER_IGNORED`.
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
        # the SystemExit was lost, or a C module replaced it by another error
        if self._received and not isinstance(error, SystemExit):
            raise SystemExit(128 + self._received) from error

    def hand_to(self, act: Callable[[str], object]) -> None:
        """Call a function with each signal from now on, in the signal handler."""
        self._act = act
        # C callbacks and destructors swallow the exception that a signal handler raises
        if self._received:
            raise SystemExit(128 + self._received)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._act is not None:
            self._act(name)
            return
        if self._received and name in runtime.NOTICES:
            return  # the process is already ending
        if not self._received:
            echo(f"{name}: {self._stopped}.", err=True)
        self._received = number
        raise SystemExit(128 + number)

    def _deliver_again(self, lost: sys.UnraisableHookArgs) -> None:
        """Deliver a signal again if a destructor or the callback of a weak reference has lost its exception."""
        if not (self._received and lost.exc_type is SystemExit):
            self._on_unraisable(lost)
            return
        main = threading.main_thread().ident
        assert main is not None
        self._again = threading.Timer(AGAIN_S, signal.pthread_kill, (main, self._received))
        self._again.daemon = True
        self._again.start()


def patience_of(seconds: float, quiet: bool) -> runtime.Patience:
    """Return how long to wait for a cluster; unless ``quiet``, messages on stderr say what is missing."""
    return runtime.Patience(seconds) if quiet else runtime.Patience(seconds, partial(echo, err=True))


def describe_cluster(client: Client) -> str:
    """Return the address of a scheduler, and how many jobs run and wait there."""
    states = [row["state"] for row in runtime.RemoteJobs(client).rows(ended=False)]
    n_queued = states.count("queued")
    queued = f", {n_queued} queued" if n_queued else ""
    n_running = plural(len(states) - n_queued, "other job") if len(states) > n_queued else "no other jobs"
    return f"Dask scheduler: {getattr(client.scheduler, 'address', '')}, {n_running} running{queued}"


@contextlib.contextmanager
def chosen_cluster(
    workers: int | None, scheduler: str | None, scheduler_file: str | None, wait: float, quiet: bool
) -> Iterator[tuple[Client, runtime.Patience] | None]:
    """Provide a cluster of ``workers`` processes, or the named one, and how long to wait for it.

    Yields None, without importing Dask, if the options name neither.
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
            "which cluster? Pass --scheduler ADDRESS or --scheduler-file FILE, or set DASK_SCHEDULER_ADDRESS."
        )
    with runtime.connect(scheduler, scheduler_file) as client:
        yield runtime.RemoteJobs(client)
