"""An inference of a job: which records go through which net, computed by any number of workers."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from distributed import Client

from singa_dask import modules, runtime
from singa_dask.conf import JobFile, Phase
from singa_dask.data import fs
from singa_dask.errors import ConfigError, DataError, Problem, SingaError
from singa_dask.jobs.clusters import find_cluster
from singa_dask.jobs.datasets.hosts import placed_job
from singa_dask.runtime.inference.job import inference_job, with_data
from singa_dask.runtime.inference.net import build
from singa_dask.runtime.inference.tasks import Facts, Part, PartResult, inspect_net, plan_parts

Computation = Callable[[Sequence[Part]], Iterator[PartResult]]


class Workers(NamedTuple):
    """A runner of tasks, how many run at the same time, how many of these on one host, and the client of a cluster.

    Where there is a client, the datasets that are published on its cluster can be read.
    """

    run: runtime.Runner
    n: int
    n_beside: int
    client: Client | None = None


HERE = Workers(runtime.run_here, 1, 1)
"""This thread."""


def workers_of(client: Client, patience: runtime.Patience | None = None, published: bool = True) -> Workers:
    """Return the workers of a cluster, on which datasets may be ``published``.

    Raises
    ------
    ClusterError
        It has none.
    """
    beside = (patience or runtime.Patience()).until(lambda: runtime.threads_by_host(client))
    return Workers(runtime.on_dask(client), beside.total(), max(beside.values()), client if published else None)


@contextlib.contextmanager
def use_workers(client: Client | str | None) -> Iterator[Workers]:
    """Provide the workers of a cluster, given by its client or the address of its scheduler; or this thread."""
    if client is None:
        yield HERE
        return
    with find_cluster(client) as found:
        yield workers_of(found)


class Records(NamedTuple):
    """Records that a net reads in place of the job's own.

    Attributes
    ----------
    url : str
    backend : str or None
        Their format; detected if None.
    outputs : bool
        Whether labels and targets are read, too.
    named : str
        What errors call the records; the URL if empty.
    """

    url: str
    backend: str | None = None
    outputs: bool = False
    named: str = ""

    def tell(self, error: ConfigError | DataError, layers: Sequence[int]) -> SingaError | None:
        """Return an error that names the records, None if it is about the job or a checkpoint.

        ``layers`` are the indices of those that read the records.
        """
        if isinstance(error, DataError):
            return DataError(self._named(str(error))) if fs.absolute(self.url) in str(error) else None
        places = [("neuralnet", "layer", index, "store_conf") for index in layers]
        if not error.problems or any(problem.path[:4] not in places for problem in error.problems):
            return None
        return ConfigError([Problem((), self._named(problem.message)) for problem in error.problems])

    def _named(self, message: str) -> str:
        what, hint, _ = message.partition(" Set missing:")
        if hint and not self.outputs:
            message = f"{what} Leave the record out, or set missing: in the job to what the value is to be."
        named, rest = self.named or self.url, message.removeprefix(fs.absolute(self.url))
        # a message of text files goes on with ", line 3: "
        return f"{named}{rest}" if rest != message and rest[:1] in ":," else f"{named}: {message}"


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
    sources : sequence of Source, optional
        The user's own modules; by default those that the job names, as they are now.
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
        The net cannot be built.
    """

    def __init__(
        self,
        read: JobFile,
        phase: Phase,
        init_from: Sequence[str],
        *,
        in_order: bool = True,
        opened: bool = True,
        sources: Sequence[modules.Source] | None = None,
        **kept: Any,
    ) -> None:
        self._read = read
        self._records: Records | None = None
        self._readers: tuple[int, ...] = ()
        try:
            self._wanted = inference_job(read.job, phase, in_order=in_order, exposed=opened)
        except ConfigError as error:
            raise read.locate(error) from None
        initial = tuple(map(fs.absolute, init_from))
        self.checkpoints = list(initial or self._wanted.job.checkpoint_path)
        self.part = Part(
            self._wanted.job.model_dump_json(),
            int(self._wanted.phase),
            initial,
            sources=tuple(modules.read(read.job.modules) if sources is None else sources),
            **kept,
        )
        with self._located():
            part = self.part
            self.net = build(self._wanted.job, self._wanted.phase, part.layers, part.labels, part.topk)

    def of_records(self, records: Records) -> Inference:
        """Return the inference of these records, read by the only input layer that the wanted values need.

        If labels and targets are read too, all input layers read these records.

        Raises
        ------
        ConfigError
            There are several input layers, or none, or one reads no store.
        """
        inputs = [layer.conf_name for layer in self.net.layers if layer.traits.is_input]
        if not inputs or (len(inputs) > 1 and not records.outputs):
            found = ", ".join(inputs) or "none"
            raise ConfigError(f"the net needs the input layers {found}, expected one, to read {records.url}.")
        job = with_data(self._wanted.job, inputs, fs.absolute(records.url), records.backend, records.outputs)
        names = [layer.name for layer in job.neuralnet.layer]
        numbered = zip(self._wanted.indices, self._wanted.job.neuralnet.layer, strict=True)
        indices = tuple(i for i, layer in numbered if layer.name in names)
        other = copy.copy(self)
        other._records, other._readers = records, tuple(map(names.index, inputs))
        other._wanted = replace(self._wanted, job=job, indices=indices)
        other.part = replace(self.part, job=job.model_dump_json())
        return other

    def compute(
        self, workers: Workers, steps: int = 0, show: Callable[[Computation], Computation] = lambda compute: compute
    ) -> tuple[Facts, list[PartResult]]:
        """Compute so many batches, or all records if ``steps`` is 0; return the parts in order.

        ``show`` returns a computation that shows its progress.
        """
        with self._located(), self._with_datasets(workers) as (part, run):
            (facts,) = run([functools.partial(inspect_net, part)])
            n_threads = runtime.n_threads(self._wanted.job, workers.n_beside)
            parts = plan_parts(replace(part, n_threads=n_threads), facts, steps, workers.n)

            def compute(parts: Sequence[Part]) -> Iterator[PartResult]:
                return run(parts)

            done = list(show(compute)(parts))
        return facts, sorted(done, key=lambda each: each.part.index)

    @contextlib.contextmanager
    def _with_datasets(self, workers: Workers) -> Iterator[tuple[Part, runtime.Runner]]:
        """Place the datasets that the job reads, ``dask://NAME``, if it runs on a cluster where they may be."""
        if workers.client is None:
            yield self.part, workers.run
            return
        with placed_job(self._wanted.job, workers.client) as (job, messages):
            yield replace(self.part, job=job.model_dump_json()), runtime.on_dask(workers.client, messages)

    @contextlib.contextmanager
    def _located(self) -> Iterator[None]:
        """Locate errors in the job in its file, and those in given records by what they are called."""
        try:
            yield
        except (ConfigError, DataError) as error:
            if self._records is not None and (told := self._records.tell(error, self._readers)) is not None:
                raise told from None
            if isinstance(error, DataError):
                raise
            if not any(problem.path for problem in error.problems):
                raise
            raise self._read.locate(self._wanted.locate(error)) from None
