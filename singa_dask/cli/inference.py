"""What test, extract and predict share: the net and its checkpoint, found or started workers, progress, signals."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType

from singa_dask import runtime
from singa_dask.cli.echo import echo
from singa_dask.cli.signals import hidden_from_children
from singa_dask.cli.tasks import reported, shown
from singa_dask.cli.waiting import patience_of
from singa_dask.conf import JobFile
from singa_dask.errors import ConfigError
from singa_dask.jobs.clusters import find_cluster
from singa_dask.jobs.inference import HERE, Computation, Workers, workers_of
from singa_dask.jobs.stored import StoredNet

__all__ = ["Chosen", "ends_at_once", "stored_net"]


@dataclass(frozen=True)
class Chosen:
    """Where to compute: in this process, in ``n`` processes of this machine, or on an existing cluster."""

    n: int | None
    scheduler: str | None
    scheduler_file: str | None
    wait_s: float = 0.0
    quiet: bool = False

    @contextlib.contextmanager
    def workers(self) -> Iterator[Workers]:
        """Start or find the workers."""
        with contextlib.ExitStack() as stack:
            if self.n:
                with hidden_from_children():
                    client = stack.enter_context(runtime.local_cluster(self.n))
                yield workers_of(client, published=False)
            elif self.scheduler or self.scheduler_file:
                patience = patience_of(self.wait_s, self.quiet)
                client = stack.enter_context(find_cluster(self.scheduler, self.scheduler_file, patience))
                yield workers_of(client, patience)
            else:
                yield HERE


def stored_net(read: JobFile, init_from: Sequence[str], chosen: Chosen) -> StoredNet:
    """Return the net that the options of a verb name.

    Raises
    ------
    ConfigError
        There is no checkpoint.
    """
    if not (init_from or read.job.checkpoint_path):
        raise ConfigError(
            "there is no checkpoint. Give one with --init-from: a run directory, a step of it, or a file of "
            "SINGA's; or as checkpoint_path in the job."
        )

    def show(compute: Computation) -> Computation:
        run_shown = shown(compute, lambda each: each.part.index, chosen.quiet)
        return lambda parts: iter(run_shown(parts))

    written = partial(reported, "written", quiet=chosen.quiet)
    return StoredNet(read, init_from, chosen.workers, show=show, show_written=written)


@contextlib.contextmanager
def ends_at_once() -> Iterator[None]:
    """End the program at SIGINT or SIGTERM, after cleaning up."""

    def end(number: int, frame: FrameType | None) -> None:
        echo(f"{signal.Signals(number).name}: stopped.", err=True)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
