"""Choose Dask workers and assign blocks of records so that most reads are local.

First, find the hosts that store the records.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from distributed import Client

from singa_dask import fs, modules
from singa_dask.api import REGISTRIES
from singa_dask.comm.message import Address
from singa_dask.conf import JobConf, Phase
from singa_dask.data.loading import HostSpan, Survey, assign_by_host, same_host
from singa_dask.data.order import keep_runs
from singa_dask.data.sampler import Sampler
from singa_dask.data.tables.shared_scan import TableScan, UnscannedError, forbid_scans
from singa_dask.errors import ClusterError, SingaError
from singa_dask.fs.daemon_threads import DaemonThreads
from singa_dask.inputs import StoreInput
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.job.dask_tasks import on_dask
from singa_dask.runtime.job.dask_worker.host_names import host_names_of
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.planning.job_stores import store_of
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.planning.worker_choice import WorkerFacts, place, place_first

SCANNED_BYTES = 1 << 28
"""Tables of this many bytes or more are scanned once by the cluster. Each host scans a smaller table itself, in about a
second."""
TABLES = ("", "table", "csv", "jsonl")
"""Store backends that may be text tables."""


class Surveyed(NamedTuple):
    """Hosts that store the training records of a job.

    Attributes
    ----------
    stores : dict of str to Survey
        For each input layer whose filesystem reports hosts: the hosts that store each block.
    silent : list of str
        Input layers whose filesystem should report hosts but reports none.
    assignments : dict of str to list of int
        Block assignments of each input layer in the checkpoint that the job continues from.
    unscanned : sequence of TableScan
        Large text tables that must be scanned, before the hosts of their records are known.
    """

    stores: dict[str, Survey]
    silent: list[str]
    assignments: dict[str, list[int]]
    unscanned: Sequence[TableScan] = ()


def reads_remote_stores(job: JobConf) -> bool:
    """Return whether a job reads records from a URL: only some hosts may store such records."""
    confs = [layer.given_block(StoreConf) for layer in job.neuralnet.layer]
    return any(conf and conf.path and fs.local_path(conf.path) is None for conf in confs)


def reads_tables(job: JobConf) -> bool:
    """Return whether a job may read large text tables."""
    stores = [store for layer in job.neuralnet.layer if (store := store_of(layer))]
    return any(store.backend in TABLES for store in stores)


def survey(
    job: str,
    resume: str | None,
    timeout_s: float,
    sources: Sequence[modules.Source] = (),
    scanned_bytes: float = SCANNED_BYTES,
) -> Surveyed:
    """Find the hosts that store the training records of a job. Runs as a task on a Dask worker.

    Parameters
    ----------
    job : str
        The job as JSON.
    resume : str or None
        URL of the checkpoint that the job continues from.
    timeout_s : float
        Maximum duration of the search.
    sources : sequence of Source
        The user's own modules.
    scanned_bytes : float
        Text tables of this many bytes or more are not scanned, but returned as ``unscanned``.

    Raises
    ------
    TimeoutError
        The search takes too long.
    """

    def run() -> Surveyed:
        with modules.using(sources, REGISTRIES.values(), "the start of a job"):
            return _survey_stores(job, resume, scanned_bytes)

    threads = DaemonThreads(1, "survey")
    answer = threads.future(run)
    is_done = wait([answer], timeout_s).done
    threads.close()
    if not is_done:
        raise TimeoutError(f"no answer in {timeout_s:g} s")
    return answer.result()


def _survey_stores(job: str, resume: str | None, scanned_bytes: float) -> Surveyed:
    surveys: dict[str, Survey] = {}
    unscanned: dict[str, TableScan] = {}
    for phase, net in build_nets(JobConf.from_json(job, REGISTRIES)).items():
        for layer in [layer for layer in net.layers if isinstance(layer, StoreInput)]:
            try:
                with forbid_scans(scanned_bytes):
                    found = layer.source.survey() if phase == Phase.TRAIN else None
                    if found is not None:
                        surveys[layer.name] = found
                    elif layer.store_conf.backend in TABLES:
                        with suppress(SingaError, OSError):  # the processes of the job will report the error
                            layer.source.open_checked().close()
            except UnscannedError as error:
                unscanned.setdefault(error.scan.name, error.scan)
    located = {name: survey for name, survey in surveys.items() if any(survey.hosts)}
    assignments = Checkpoint(resume).assignments if resume else {}
    return Surveyed(located, sorted(surveys.keys() - located.keys()), assignments, tuple(unscanned.values()))


class _Blocks:
    """The blocks of one input layer, with the hosts of each block as indices into the list of hosts."""

    def __init__(self, survey: Survey, numbers: Mapping[str, Collection[int]]) -> None:
        self.survey = survey
        self.hosts = [tuple({number for host in hosts for number in numbers[host]}) for hosts in survey.hosts]
        self._pairs = np.array([(i, k) for i, ks in enumerate(self.hosts) for k in ks], np.int64).reshape(-1, 2)
        self._record_bytes = np.asarray(survey.lengths) / np.maximum(survey.sizes, 1)

    def held(self, rows: Any, n_hosts: int, split: bool = False) -> Any:
        """Return how many bytes of the given rows each host stores, (n_hosts,).

        Parameters
        ----------
        rows : (n_blocks,) array_like of int
            For each block, the number of its rows to count.
        n_hosts : int
            Number of hosts.
        split : bool
            Whether the bytes of a block are divided evenly among the hosts that store a copy of it. By default each of
            these hosts counts all bytes.
        """
        blocks, hosts = self._pairs.T
        n_bytes = (self._record_bytes * rows)[blocks]
        copies = np.bincount(blocks, minlength=len(self.hosts))[blocks] if split else 1
        return np.bincount(hosts, n_bytes / copies, n_hosts)


class Locality:
    """Rates Dask workers and assigns blocks, to read as many bytes as possible on their own host.

    Parameters
    ----------
    names : mapping of str to collection of str
        Names of the host of each Dask worker, by address; see `host_names_of`.
    fresh : bool
        True if the job starts from the beginning. Shuffled blocks may then be assigned in any order. False if the job
        continues a run; the assignments of that run stay.
    """

    def __init__(
        self,
        job: JobConf,
        layout: Layout,
        surveyed: Surveyed,
        names: Mapping[str, Collection[str]],
        fresh: bool,
    ) -> None:
        self._job, self._layout = job, layout
        self._net = build_nets(job)[Phase.TRAIN]
        self._net.context.assignments = surveyed.assignments
        layers = {layer.name: layer for layer in self._net.layers if isinstance(layer, StoreInput)}
        storage = sorted({host for store in surveyed.stores.values() for hosts in store.hosts for host in hosts})
        kept_by = {address: frozenset(h for h in storage if same_host(h, names[address])) for address in names}
        hosts = sorted({held for held in kept_by.values() if held}, key=sorted)
        self._n_hosts = len(hosts)
        self._host_of = {address: hosts.index(held) if held else -1 for address, held in kept_by.items()}
        numbers = {host: [k for k, held in enumerate(hosts) if host in held] for host in storage}
        self._layers = {
            name: (layers[name], _Blocks(store, numbers)) for name, store in sorted(surveyed.stores.items())
        }
        self._assigned = [name for name in self._layers if fresh and layers[name].store_conf.shuffle == "block"]
        self._n_workers = [sum(unit.kind == "worker" for unit in units) for units in layout.processes]
        self._wanted = self._count_wanted()
        self._held, self._share = self._count_assigned()

    def gain(self, processes: Sequence[int], workers: Sequence[str], chosen: Mapping[int, str]) -> np.ndarray:
        """Return the bytes per epoch that each process would read locally, for each possible Dask worker.

        Parameters
        ----------
        processes : sequence of int
            Numbers of the processes to place.
        workers : sequence of str
            Dask workers to rate.
        chosen : mapping of int to str
            Dask workers that are already chosen, by number of the process.

        Returns
        -------
        (processes, workers) float64
            The bytes; 0 for a Dask worker on a host that stores no records.
        """
        there = np.zeros(self._n_hosts)
        for other, address in chosen.items():
            if self._host_of.get(address, -1) != -1:
                there[self._host_of[address]] += self._n_workers[other]
        # prefer hosts whose records no chosen process reads; among equal hosts, prefer the one with more copies
        most = self._share * np.array([self._n_workers[process] for process in processes])[:, None]
        free, copies = (np.clip(held - there * self._share, 0.0, most) for held in self._held)
        # Dask workers on hosts without records have index -1, so append a column of zeros for them
        worth = np.pad(self._wanted[processes] + free + copies / 1024, ((0, 0), (0, 1)))
        rated: np.ndarray = worth[:, [self._host_of[address] for address in workers]]
        return rated

    def _count_wanted(self) -> Any:
        """Return the bytes that each process reads from each host, (n_processes, n_hosts).

        Counts only layers whose block assignment is fixed.
        """
        wanted = np.zeros((len(self._layout.processes), self._n_hosts))
        for name, (layer, blocks) in self._layers.items():
            if name in self._assigned:
                continue
            for group, order in enumerate(self._orders(layer, blocks)):
                for i in range(self._job.cluster.nworkers_per_group):
                    rows = order.block_rows(i, self._job.cluster.nworkers_per_group)
                    process = self._layout.process_of[Address.worker(group, i)]
                    wanted[process] += blocks.held(rows, self._n_hosts)
        return wanted

    def _count_assigned(self) -> tuple[Any, float]:
        """Return the bytes of freely assignable blocks by host, and the bytes of such blocks per worker.

        The first result has shape (2, n_hosts). Its first row divides each block among the hosts with a copy; the
        second row counts each copy in full.
        """
        held = np.zeros((2, self._n_hosts))
        n_bytes = 0
        for name in self._assigned:
            _, blocks = self._layers[name]
            sizes = np.asarray(blocks.survey.sizes)
            held += [blocks.held(sizes, self._n_hosts, split=True), blocks.held(sizes, self._n_hosts)]
            n_bytes += sum(blocks.survey.lengths)
        return held, n_bytes / sum(self._n_workers)

    def _orders(self, layer: StoreInput, blocks: _Blocks) -> list[Sampler]:
        """Return the sampler of each worker group."""
        orders = []
        for layer.context.group in range(self._job.cluster.nworker_groups):
            orders.append(layer.plan.order(blocks.survey.sizes, blocks.survey.fingerprint, blocks.survey.runs))
        return orders

    def assignments(self, workers: Sequence[str]) -> dict[str, list[int]]:
        """Return the order in which the blocks of each input layer are assigned to workers.

        Layers whose order is fixed, or has no effect on locality, are left out.

        Parameters
        ----------
        workers : sequence of str
            Dask worker of each process.
        """
        orders: dict[str, list[int]] = {}
        for name in self._assigned:
            layer, blocks = self._layers[name]
            spans = []
            for group, order in enumerate(self._orders(layer, blocks)):
                for reader, _, high in order.spans(self._job.cluster.nworkers_per_group):
                    process = self._layout.process_of[Address.worker(group, reader)]
                    spans.append(HostSpan(high, self._host_of.get(workers[process], -1)))
            if any(span.host != -1 for span in spans):
                orders[name] = assign_by_host(blocks.survey.sizes, blocks.hosts, spans, self._job.seed)
                if blocks.survey.runs is not None:
                    orders[name] = keep_runs(np.asarray(orders[name]), np.asarray(blocks.survey.runs)).tolist()
        return orders


class Placed(NamedTuple):
    """Placement of a job.

    Attributes
    ----------
    workers : list of str
        Address of the Dask worker of each process.
    assignments : dict of str to list of int
        Result of `Locality.assignments`; empty if the hosts of the records are not known.
    notes : list of str
        Notes for the log of the run, e.g. why the hosts of records are not known.
    """

    workers: list[str]
    assignments: Mapping[str, Sequence[int]]
    notes: list[str]


def place_on_cluster(
    client: Client,
    job: JobConf,
    layout: Layout,
    present: Mapping[str, WorkerFacts],
    sources: Sequence[modules.Source],
    resume: str | None,
    datasets: Sequence[Sequence[Any]],
    scan_tables: Callable[[Sequence[str], Sequence[TableScan]], None],
) -> Placed:
    """Choose a Dask worker for each process of a job, if possible on the host of its records.

    Parameters
    ----------
    present : mapping of str to WorkerFacts
        The Dask workers of the cluster.
    sources : sequence of Source
        The user's own modules.
    resume : str or None
        URL of the checkpoint that the job continues from.
    datasets : sequence
        Catalogs, as plain values, of the part files that the job reads.
    scan_tables : callable
        Called with Dask workers that have room for the job, and with the text tables to scan, before their hosts are
        searched.

    Raises
    ------
    ClusterError
        The job does not fit on the cluster.
    """
    # fail before records are read, if the job does not fit
    if job.cluster.elastic.max_processes:
        _, chosen = place_first(layout, present)
        if len(chosen) < len(layout.processes):
            return Placed(list(chosen), {}, [f"{len(layout.processes)} processes are packed on {len(chosen)}"])
    workers = place(layout, present)
    if not reads_remote_stores(job) and not reads_tables(job):
        return Placed(workers, {}, [])
    notes: list[str] = []
    surveyed = Surveyed({}, [], {})

    def look(scanned_bytes: float) -> Surveyed:
        run = on_dask(client, datasets, workers[:1], _give_up_after(limit("survey")))
        (found,) = run([partial(survey, job.to_json(), resume, limit("answer"), sources, scanned_bytes)])
        return found

    with _noting(notes):
        surveyed = look(SCANNED_BYTES)
    if surveyed.unscanned:
        scan_tables(workers, surveyed.unscanned)
        if reads_remote_stores(job):
            with _noting(notes):
                surveyed = look(math.inf)
    for layer in surveyed.silent:
        notes.append(f"layer {layer}: the filesystem does not report which hosts store the records")
    if surveyed.stores:
        with _noting(notes):
            names = client.run(host_names_of, workers=[each for each in present if present[each].usable])
            locality = Locality(job, layout, surveyed, names, fresh=resume is None)
            near = place(layout, present, locality.gain)
            return Placed(near, locality.assignments(near), notes)
    return Placed(workers, {}, notes)


@contextmanager
def _noting(notes: list[str]) -> Iterator[None]:
    """Append an error in the context to ``notes`` instead of raising it: a job can run without locality."""
    try:
        yield
    except Exception as error:
        notes.append(f"the hosts that store the records are not known: {error}")


def _give_up_after(seconds: float) -> Callable[[], None]:
    """Return a ``check`` for `on_dask` that raises `ClusterError` after some seconds."""
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > end:
            raise ClusterError(f"no answer in {seconds:g} s")

    return check
