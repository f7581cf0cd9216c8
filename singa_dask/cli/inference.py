"""What test, extract and predict share: find or start workers, compute the parts, clean up."""

from __future__ import annotations

import contextlib
import copy
import functools
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import click
from distributed import Client

from singa_dask import modules, runtime
from singa_dask.cli.signals import hidden_from_children
from singa_dask.cli.tasks import shown
from singa_dask.cli.waiting import patience_of
from singa_dask.conf import JobFile, Phase
from singa_dask.data import fs
from singa_dask.errors import ConfigError, DataError, Problem, SingaError
from singa_dask.jobs.datasets.hosts import placed_job
from singa_dask.runtime.inference.job import inference_job, with_data
from singa_dask.runtime.inference.net import build
from singa_dask.runtime.inference.part import Part, PartResult
from singa_dask.runtime.inference.plan import Facts, inspect_net, plan_parts
from singa_dask.runtime.job.tasks import Runner

__all__ = ["PHASES", "Inference", "Running", "Workers", "ends_at_once", "running"]

PHASES = {"train": Phase.TRAIN, "val": Phase.VALIDATION, "test": Phase.TEST}

T = TypeVar("T")


@dataclass(frozen=True)
class Workers:
    """Where to compute: in this process, in ``n`` processes of this machine, or on an existing cluster."""

    n: int | None
    scheduler: str | None
    scheduler_file: str | None
    wait_s: float = 0.0
    quiet: bool = False


class Inference:
    """An inference of a job.

    Parameters
    ----------
    read : JobFile
    phase : Phase
    init_from : sequence of str
        URLs of checkpoints, in the place of those of the job.
    in_order, opened : bool
        See `inference_job`.
    kept
        Of `Part`: ``layers``, ``labels``, ``topk``, ``folder``.

    Attributes
    ----------
    part : Part
        What all parts have in common.
    net : NeuralNet
        Shapes only.
    checkpoints : list of str
        URLs of the checkpoints that the values come from.

    Raises
    ------
    ConfigError
        The net cannot be built, or there is no checkpoint.
    """

    def __init__(
        self,
        read: JobFile,
        phase: Phase,
        init_from: Sequence[str],
        *,
        in_order: bool = True,
        opened: bool = True,
        **kept: Any,
    ) -> None:
        self._read = read
        self._data: _Data | None = None
        try:
            self._wanted = inference_job(read.job, phase, in_order=in_order, exposed=opened)
        except ConfigError as error:
            raise read.locate(error) from None
        initial = tuple(map(fs.absolute, init_from))
        self.checkpoints = list(initial or self._wanted.job.checkpoint_path)
        if not self.checkpoints:
            raise ConfigError(
                "there is no checkpoint. Give one with --init-from: a run directory, a step of it, or a file of "
                "SINGA's; or as checkpoint_path in the job."
            )
        self.part = Part(
            self._wanted.job.model_dump_json(),
            int(self._wanted.phase),
            initial,
            sources=tuple(modules.read(read.job.modules)),
            **kept,
        )
        with self._located():
            part = self.part
            self.net = build(self._wanted.job, self._wanted.phase, part.layers, part.labels, part.topk)

    def of_records(self, url: str, backend: str | None) -> Inference:
        """Return the inference of these records, read by the only input layer that the wanted values need.

        Raises
        ------
        ConfigError
            There are several, or none, or it reads no store.
        """
        inputs = [layer.conf_name for layer in self.net.layers if layer.traits.is_input]
        if len(inputs) != 1:
            found = ", ".join(inputs) or "none"
            raise ConfigError(f"the net needs the input layers {found}, expected one, to read {url}.")
        other = copy.copy(self)
        job = with_data(self._wanted.job, inputs[0], fs.absolute(url), backend)
        names = [layer.name for layer in job.neuralnet.layer]
        numbered = zip(self._wanted.indices, self._wanted.job.neuralnet.layer, strict=True)
        indices = tuple(i for i, layer in numbered if layer.name in names)
        other._data = _Data(url, names.index(inputs[0]))
        other._wanted = replace(self._wanted, job=job, indices=indices)
        other.part = replace(self.part, job=job.model_dump_json())
        return other

    def run(self, workers: Workers, steps: int, quiet: bool) -> tuple[Facts, list[PartResult]]:
        """Do `compute` with these workers."""
        with running(workers) as cluster:
            return self.compute(cluster, steps, quiet)

    def compute(self, cluster: Running, steps: int, quiet: bool) -> tuple[Facts, list[PartResult]]:
        """Compute so many batches, or all records if ``steps`` is 0; return the parts in order."""
        with self._located(), self._with_datasets(cluster) as (part, run):
            (facts,) = run([functools.partial(inspect_net, part)])
            n_threads = runtime.n_threads(self._wanted.job, cluster.n_beside)
            parts = plan_parts(replace(part, n_threads=n_threads), facts, steps, cluster.n_workers)

            def compute(parts: Sequence[Part]) -> Iterator[PartResult]:
                return run(parts)

            done = list(shown(compute, lambda each: each.part.index, quiet)(parts))
        return facts, sorted(done, key=lambda each: each.part.index)

    @contextlib.contextmanager
    def _with_datasets(self, cluster: Running) -> Iterator[tuple[Part, Runner]]:
        """Place the datasets that the job reads, ``dask://NAME``, if it runs on a cluster where they may be."""
        if cluster.client is None:
            yield self.part, cluster.run
            return
        with placed_job(self._wanted.job, cluster.client) as (job, messages):
            yield replace(self.part, job=job.model_dump_json()), runtime.on_dask(cluster.client, messages)

    @contextlib.contextmanager
    def _located(self) -> Iterator[None]:
        """Locate errors in the job in its file, and errors in the data in the command line."""
        try:
            yield
        except (ConfigError, DataError) as error:
            if self._data is not None and (told := self._data.told(error)) is not None:
                raise told from None
            if isinstance(error, DataError):
                raise
            if not any(problem.path for problem in error.problems):
                raise
            raise self._read.locate(self._wanted.locate(error)) from None


class _Data(NamedTuple):
    """Records given on the command line, and the index of the layer that reads them."""

    url: str
    layer: int

    def told(self, error: ConfigError | DataError) -> SingaError | None:
        """Return an error that names the option, None if the error is in the job or in a checkpoint."""
        url = fs.absolute(self.url)
        if isinstance(error, DataError):
            return DataError(self._named(str(error))) if url in str(error) else None
        place = ("neuralnet", "layer", self.layer, "store_conf")
        if not error.problems or any(problem.path[:4] != place for problem in error.problems):
            return None
        return ConfigError([Problem((), self._named(problem.message)) for problem in error.problems])

    def _named(self, message: str) -> str:
        rest = message.removeprefix(fs.absolute(self.url))
        # a message of text files goes on with ", line 3: "
        return f"--data {self.url}{rest}" if rest != message and rest[:1] in ":," else f"--data {self.url}: {message}"


class Running(NamedTuple):
    """A runner of tasks, how many run at the same time, how many of these on one host, and the client of a cluster."""

    run: Runner
    n_workers: int
    n_beside: int
    client: Client | None = None


@contextlib.contextmanager
def running(workers: Workers) -> Iterator[Running]:
    """Start or find the workers."""
    patience = runtime.Patience()
    with contextlib.ExitStack() as stack:
        if workers.n:
            with hidden_from_children():
                client = stack.enter_context(runtime.local_cluster(workers.n))
        elif workers.scheduler or workers.scheduler_file:
            patience = patience_of(workers.wait_s, workers.quiet)
            address = None if workers.scheduler_file else workers.scheduler
            client = stack.enter_context(runtime.connect(address, workers.scheduler_file, patience))
        else:
            yield Running(_run_here, 1, 1)
            return
        beside = patience.until(lambda: runtime.threads_by_host(client))
        known = None if workers.n else client
        yield Running(runtime.on_dask(client), beside.total(), max(beside.values()), known)


def _run_here(tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
    """Run tasks one after the other in this thread."""
    return (task() for task in tasks)


@contextlib.contextmanager
def ends_at_once() -> Iterator[None]:
    """End the program at SIGINT or SIGTERM, after cleaning up."""

    def end(number: int, frame: FrameType | None) -> None:
        click.echo(f"{signal.Signals(number).name}: stopped.", err=True)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
