"""Run tasks on a Dask cluster before a job starts: choose its Dask workers, and measure its training records."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from functools import partial, reduce
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from distributed import Client, Future, KilledWorker, Worker, get_worker
from distributed.client import FutureCancelledError
from distributed.protocol.pickle import dumps, loads

from singa_dask import fs, modules
from singa_dask.api import REGISTRIES
from singa_dask.comm.message import Address
from singa_dask.comm.remote_import import Guarded
from singa_dask.conf import JobConf, Phase
from singa_dask.conf.layer import PHASES
from singa_dask.data.codecs.scaling import Moments, Scaling
from singa_dask.data.loading import HostSpan, Survey, assign_by_host, host_names, same_host
from singa_dask.data.loading.bad_records import BadPolicy
from singa_dask.data.loading.reader import BlockReader
from singa_dask.data.order import keep_runs
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import Store
from singa_dask.errors import Aborted, ClusterError, DataError, LostUnitError, UnloadableError
from singa_dask.fs.daemon_threads import DaemonThreads
from singa_dask.fs.patterns import is_pattern, matches
from singa_dask.layers import StoreInput
from singa_dask.layers.store_conf import StoreConf
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.job.cluster import present_workers
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.part_files import reading
from singa_dask.runtime.job.placer import place_first
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.planning.nets import build_nets, store_of
from singa_dask.runtime.planning.placement import WorkerFacts, place
from singa_dask.runtime.planning.whole_pass import KEYS
from singa_dask.runtime.units.initial_state import InitialState

# Standardising input: mean and deviation of the training records of an input layer, and where a net has them from.


NONE = Moments.of(np.empty((0, 1)))
GROUP_BYTES, MAX_GROUPS = 32 << 20, 32
"""Records of about so many bytes are merged in one go, whoever reads them: the results are the same bits. Of more
groups than the maximum, some at equal distances are read: more records would not change what they say."""


class GroupMoments(NamedTuple):
    """Moments of some groups of blocks, from number ``first`` on; names of columns, and whether values were rounded."""

    first: int
    moments: list[Moments]
    names: Sequence[str]
    is_rounded: bool


def measure(layer: StoreInput, index: int, count: int, check: Callable[[], None]) -> GroupMoments:
    """Return the moments of part ``index`` of ``count`` parts of the records of a layer; ``check`` is called often.

    Raises
    ------
    DataError
        Records cannot be read, or a value is not finite.
    """
    conf = layer.store_conf
    with layer.open_checked() as store:
        # blocks begin a new group where their first record is beyond so many bytes
        numbers = store.starts[:-1] * store.record_bytes // GROUP_BYTES
        groups = np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(numbers)) + 1)
        groups = groups[:: -(-len(groups) // MAX_GROUPS)]
        first, stop = (part * len(groups) // count for part in (index, index + 1))
        reader = BlockReader(store, BadPolicy(conf.on_error, labels=conf.labels))
        moments = []
        for blocks in groups[first:stop]:
            moments.append(
                reduce(Moments.merged, (_moments(layer, reader, block, check) for block in blocks.tolist()), NONE)
            )
        field = store.schema.get("data")
        return GroupMoments(first, moments, _names(store), field is not None and field.dtype == np.float32)


def _names(store: Store) -> Sequence[str]:
    return store.table_facts.names if store.table_facts else ()


def _moments(layer: StoreInput, reader: BlockReader, block: int, check: Callable[[], None]) -> Moments:
    check()
    arrays, store = reader.load(block), reader.store
    if bad := reader.bad.get(block):
        arrays = {name: np.delete(array, list(bad), axis=0) for name, array in arrays.items()}
    values = layer.values_of(arrays)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row, *place = np.argwhere(~np.isfinite(values))[0].tolist()
        where = f"{store.url}, record {int(store.starts[block]) + row}{_column(_names(store), *place)}"
        raise DataError(f"{where}: the value {values[(row, *place)]}, which has no mean. Leave it out, or fill it in.")
    return Moments.of(np.moveaxis(values, 1, -1).reshape(-1, values.shape[1]) if values.ndim == 4 else values)


def _column(names: Sequence[str], *place: int) -> str:
    known = repr(names[place[0]]) if len(place) == 1 and place[0] < len(names) else ", ".join(map(str, place))
    return f", column {known}"


def scaling_of(layer: str, parts: Sequence[GroupMoments], warn: Callable[[str], None]) -> Scaling:
    """Return the scaling of a layer, of all parts of its records; warn if it is not exact.

    Raises
    ------
    DataError
        Their values are too large.
    """
    names, ordered = parts[0].names, sorted(parts, key=lambda part: part.first)
    total = reduce(Moments.merged, (moments for part in ordered for moments in part.moments), NONE)
    if not total.n:
        raise DataError(f"layer {layer}: no records to compute mean and standard deviation of.")
    for at in np.flatnonzero(~np.isfinite(total.squares)).tolist():
        raise DataError(
            f"layer {layer}{_column(names, at)}: values from {total.low[at]:g} to {total.high[at]:g}, whose standard "
            "deviation does not fit in 64 bits. Scale the column, or leave it out."
        )
    scaling = Scaling.of(total)
    for at in np.flatnonzero(scaling.needs_digits)[:1].tolist() if parts[0].is_rounded else ():
        warn(
            f"layer {layer}{_column(names, at)}: values of {scaling.mean[at]:g} with a standard deviation of "
            f"{scaling.std[at]:.3g} are stored as 32-bit floats, which hold few digits of their differences. Train "
            "with the table that they are from, or subtract a constant before you convert it."
        )
    return scaling


# Locality: place processes on Dask workers, and assign blocks, so that records are read on the hosts that store them.
#
# A Dask worker finds out which hosts store the records, as the client may not have access to them. This only makes a
# job faster: if the hosts are not known, it is skipped.


class Surveyed(NamedTuple):
    """Hosts of the training records of a job.

    Attributes
    ----------
    stores : dict of str to Survey
        Hosts of blocks by input layer, if the filesystem reports them.
    silent : list of str
        Input layers whose filesystem should report hosts but does not.
    assignments : dict of str to list of int
        Those of the checkpoint that the job continues from.
    """

    stores: dict[str, Survey]
    silent: list[str]
    assignments: dict[str, list[int]]


def reads_remote_stores(job: JobConf) -> bool:
    """Return whether a job may read records that only some hosts store."""
    confs = [layer.given_block(StoreConf) for layer in job.neuralnet.layer]
    return any(conf and conf.path and fs.local_path(conf.path) is None for conf in confs)


def survey(
    job: str,
    resume: str | None,
    timeout_s: float,
    sources: Sequence[modules.Source] = (),
    datasets: Sequence[Sequence[Any]] = (),
) -> Surveyed:
    """Find the hosts that store the training records of a job; runs as a task on a Dask worker.

    Raises
    ------
    TimeoutError
        It takes too long. The task ends nevertheless, as the job needs its thread.
    """

    def run() -> Surveyed:
        modules.load(sources, REGISTRIES.values())
        return _survey_stores(job, resume)

    with reading(datasets):
        answer = DaemonThreads(1, "survey").future(run)
        if not wait([answer], timeout_s).done:
            raise TimeoutError(f"no answer in {timeout_s:g} s")
        return answer.result()


def _survey_stores(job: str, resume: str | None) -> Surveyed:
    net = build_nets(JobConf.from_json(job, REGISTRIES))[Phase.TRAIN]
    surveys = {layer.name: layer.survey() for layer in net.layers if isinstance(layer, StoreInput)}
    asked = {name: survey for name, survey in surveys.items() if survey is not None}
    located = {name: survey for name, survey in asked.items() if any(survey.hosts)}
    assignments = Checkpoint(resume).assignments if resume else {}
    return Surveyed(located, sorted(asked.keys() - located.keys()), assignments)


def host_names_of(dask_worker: Worker) -> frozenset[str]:
    """Return possible names of the host of a Dask worker, including the worker's own name; for ``Client.run``."""
    return host_names(str(dask_worker.name), urllib.parse.urlsplit(dask_worker.address).hostname or "")


class _Blocks:
    """Blocks of one input layer, and the indices of the hosts that store each."""

    def __init__(self, survey: Survey, numbers: Mapping[str, Collection[int]]) -> None:
        self.survey = survey
        self.hosts = [tuple({number for host in hosts for number in numbers[host]}) for hosts in survey.hosts]
        self._pairs = np.array([(i, k) for i, ks in enumerate(self.hosts) for k in ks], np.int64).reshape(-1, 2)
        self._record_bytes = np.asarray(survey.lengths) / np.maximum(survey.sizes, 1)

    def held(self, rows: Any, n_hosts: int, split: bool = False) -> Any:
        """Return the bytes that each host stores of some rows of each block; with ``split`` divided by the copies."""
        blocks, hosts = self._pairs.T
        n_bytes = (self._record_bytes * rows)[blocks]
        copies = np.bincount(blocks, minlength=len(self.hosts))[blocks] if split else 1
        return np.bincount(hosts, n_bytes / copies, n_hosts)


class Locality:
    """Rates Dask workers, and assigns blocks, so that many bytes are read on the host that stores them.

    Parameters
    ----------
    job : JobConf
    layout : Layout
    surveyed : Surveyed
    names : mapping of str to collection of str
        Result of `host_names_of` for each Dask worker, by address.
    fresh : bool
        Whether the job does not continue another run: blocks that are shuffled may be assigned in any order.
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

    # -- where processes go ------------------------------------------------------------------------

    def gain(self, processes: Sequence[int], workers: Sequence[str], chosen: Mapping[int, str]) -> np.ndarray:
        """Return the bytes per epoch that processes would read from their own hosts on Dask workers.

        Parameters
        ----------
        processes : sequence of int
        workers : sequence of str
        chosen : mapping of int to str
            Dask workers of other processes.

        Returns
        -------
        (processes, workers) float64
            0 for a Dask worker on a host that stores no records.
        """
        there = np.zeros(self._n_hosts)
        for other, address in chosen.items():
            if self._host_of.get(address, -1) != -1:
                there[self._host_of[address]] += self._n_workers[other]
        # prefer hosts without other processes; among them copies count too
        most = self._share * np.array([self._n_workers[process] for process in processes])[:, None]
        free, copies = (np.clip(held - there * self._share, 0.0, most) for held in self._held)
        # the last column is that of hosts without records, whose number is -1
        worth = np.pad(self._wanted[processes] + free + copies / 1024, ((0, 0), (0, 1)))
        rated: np.ndarray = worth[:, [self._host_of[address] for address in workers]]
        return rated

    def _count_wanted(self) -> Any:
        """Return the bytes that each process reads of each host, (n_processes, n_hosts), for known orders."""
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
        """Return the bytes of blocks to assign on each host, without and with copies; and the share of a worker."""
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
            orders.append(layer.make_order(blocks.survey.sizes, blocks.survey.fingerprint, blocks.survey.runs))
        return orders

    # -- who reads what ------------------------------------------------------------------------------

    def assignments(self, workers: Sequence[str]) -> dict[str, list[int]]:
        """Return the order in which to assign the blocks of each input layer, if it is free and makes a difference.

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


LOOK_S = 2.0
"""Interval of checks for Dask workers."""

T = TypeVar("T")


class Runner(Protocol):
    """Runs tasks in any order, and yields their results."""

    def __call__(self, tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
        """Run the tasks."""


def run_here(tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
    """Run tasks one after the other in this thread."""
    return (task() for task in tasks)


def on_dask(
    client: Client,
    datasets: Sequence[Sequence[Any]] = (),
    workers: Sequence[str] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Runner:
    """Return a runner on a cluster; when a task fails, those that have not started are cancelled.

    Tasks can read the part files of ``datasets``, catalogs as plain values. They run on ``workers`` while these are
    there. ``check`` is called every few seconds; if it raises an error, the tasks are cancelled.
    """

    def run(tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
        call = Guarded(partial(_call, datasets=datasets))
        where: Any = {"workers": workers, "allow_other_workers": workers is not None}
        futures = client.map(call, list(map(dumps, tasks)), key="singa-dask-task", pure=False, **where)
        done: SimpleQueue[Future[T]] = SimpleQueue()
        for future in futures:
            future.add_done_callback(done.put)
        try:
            for _ in futures:
                yield result_of(next_ended(client, done, check))
        finally:
            client.cancel(futures)

    return run


def on_each_worker(
    client: Client, workers: Sequence[str] | None = None
) -> Callable[[Callable[[], T]], Mapping[str, T]]:
    """Return a function that calls another one on Dask workers, all by default, and returns what they answer.

    Those that do not answer soon are left out.
    """

    def call(function: Callable[[], T]) -> Mapping[str, T]:
        with contextlib.suppress(TimeoutError, OSError):
            where: Any = {"workers": workers, "on_error": "ignore", "callback_timeout": limit("question")}
            answers: Mapping[str, T] = client.run(function, **where)
            return answers
        return {}

    return call


def next_ended(client: Client, done: SimpleQueue[Future[T]], check: Callable[[], None]) -> Future[T]:
    """Wait for a task to end, as long as there are Dask workers or they may come back.

    Parameters
    ----------
    client : distributed.Client
    done : SimpleQueue of Future
        Gets the tasks that have ended.
    check : callable
        Called every few seconds.

    Raises
    ------
    LostUnitError
        There are no Dask workers any more.
    """
    since = time.monotonic()
    while True:
        try:
            return done.get(timeout=LOOK_S)
        except Empty:
            check()
            if present_workers(client):
                since = time.monotonic()
            elif time.monotonic() - since > limit("workers"):
                raise _lost("none is left") from None


def result_of(ended: Future[T]) -> T:
    """Return the result of a task that has ended; `LostUnitError` or `UnloadableError` where it could not run."""
    try:
        return ended.result()
    except ImportError as error:
        raise UnloadableError(str(error)) from error
    except KilledWorker as error:
        raise _lost(str(error)) from error
    except FutureCancelledError as error:
        raise _lost("their scheduler is gone or was restarted") from error


def _lost(why: str) -> LostUnitError:
    return LostUnitError(f"Dask workers were lost: {why}. Give the same command again.")


def _call(task: bytes, datasets: Sequence[Sequence[Any]]) -> Any:
    with reading(datasets):
        return loads(task)()


def check_wanted() -> None:
    """Raise an error if Dask does not need the result of this task any more.

    Raises
    ------
    Aborted
        The task was cancelled.
    """
    try:
        worker = get_worker()
    except ValueError:
        return
    task = worker.state.tasks.get(worker.get_current_task())
    if task is None or task.state != "executing":
        raise Aborted("the task was cancelled")


def files_of(job: JobConf) -> list[str]:
    """Return the paths and URLs of the records that a job reads, in the nets that it has."""
    tested = {phase for phase, (freq, steps) in KEYS.items() if 0 not in (getattr(job, freq), getattr(job, steps))}
    phases = {Phase.TRAIN, *tested} if job.trains else {*PHASES.values()}
    layers = [layer for layer in job.neuralnet.layer if any(map(layer.in_phase, phases))]
    stores = [store for layer in layers if (store := store_of(layer))]
    return [url for each in stores for url in (each.path, each.mean_file, each.std_file) if url]


def check_seen(client: Client, urls: Iterable[str], workers: Collection[str] | None = None) -> None:
    """Check that Dask workers, all by default, see files on disks. Those that do not answer soon are left out.

    Raises
    ------
    DataError
        One does not see a file.
    """
    paths = sorted({url for url in urls if fs.local_path(url) is not None})
    if not paths:
        return
    asked = on_each_worker(client, sorted(set(workers)) if workers else None)(partial(_unseen, paths))
    for address, (host, unseen) in asked.items():
        for path in unseen:
            who = f"{path}: the Dask worker {address} on {host}"
            if _unseen([path])[1]:
                raise DataError(f"{who} sees no such file or directory.")
            raise DataError(
                f"{who} does not see this file, which is on {socket.gethostname()}. Give a URL that all hosts reach, "
                "or a path in a directory that all of them mount."
            )


def _unseen(paths: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of this host, and those of some paths and patterns for which nothing is there."""
    unseen = [path for path in paths if not (fs.exists(path) or (is_pattern(path) and matches(path)))]
    return socket.gethostname(), unseen


class Placed(NamedTuple):
    """Placement of a job.

    Attributes
    ----------
    workers : list of str
        Address of the Dask worker of each process.
    assignments : dict of str to list of int
        By input layer: the order in which its blocks are assigned to workers, if that was chosen.
    notes : list of str
        What is not known, for the log of the run.
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
    datasets: Sequence[Sequence[Any]] = (),
) -> Placed:
    """Choose a Dask worker for each process of a job, on hosts that store its records if they are known.

    Parameters
    ----------
    client : distributed.Client
    job : JobConf
    layout : Layout
    present : mapping of str to WorkerFacts
        Dask workers that the job may use. The scheduler has left out silent ones.
    sources : sequence of Source
        The user's own modules.
    resume : str or None
        URL of the checkpoint that the job continues from.
    datasets : sequence
        Catalogs of the part files that the job reads, as plain values.

    Raises
    ------
    ClusterError
        The job does not fit on the cluster.
    DataError
        A Dask worker that it would run on does not see its records.
    """
    # a job that does not fit fails before any record is looked for
    if job.cluster.elastic.max_processes:
        _, chosen = place_first(layout, present)
        if len(chosen) < len(layout.processes):
            return Placed(list(chosen), {}, [f"{len(layout.processes)} processes are packed on {len(chosen)}"])
    workers = place(layout, present)
    check_seen(client, files_of(job), workers)
    if not reads_remote_stores(job):
        return Placed(workers, {}, [])
    notes: list[str] = []
    try:
        run = on_dask(client, datasets, workers[:1], _give_up_after(2 * limit("answer")))
        (surveyed,) = run([partial(survey, job.to_json(), resume, limit("answer"), sources)])
        notes += [
            f"layer {name}: the filesystem does not report which hosts store the records" for name in surveyed.silent
        ]
        if not surveyed.stores:
            return Placed(workers, {}, notes)
        names = client.run(host_names_of, workers=list(present))
        locality = Locality(job, layout, surveyed, names, fresh=resume is None)
        near = place(layout, present, locality.gain)
        return Placed(near, locality.assignments(near), notes)
    except Exception as error:  # locality only makes a job faster; units report what is wrong
        return Placed(workers, {}, [*notes, f"the hosts that store the records are not known: {error}"])


def _give_up_after(seconds: float) -> Callable[[], None]:
    """Return a check for `on_dask` that raises an error when this time is over."""
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > end:
            raise ClusterError(f"no answer in {seconds:g} s")

    return check


def _measure(
    job: str, sources: Sequence[modules.Source], init_from: Sequence[str], index: int, of: int
) -> list[tuple[str, Scaling | GroupMoments]]:
    """Return for each layer that standardises the moments of part ``index`` of ``of`` parts of its records.

    Or the scaling of a checkpoint that the job begins with.
    """
    modules.load(sources, REGISTRIES.values())
    conf = JobConf.from_json(job, REGISTRIES)
    net = build_nets(conf)[Phase.TRAIN]
    InitialState(conf, None, init_from).give_class_names(net)
    parts: dict[str, Scaling | GroupMoments] = {}
    for layer in net.all_layers:
        if isinstance(layer, StoreInput) and layer.store_conf.standardise and layer.conf_name not in parts:
            inherited = net.context.class_names.inherited_scalings.get(layer.conf_name)
            fits = inherited is not None and inherited.of_shape(layer.features[0].shape[1:]) is not None
            parts[layer.conf_name] = inherited if inherited and fits else measure(layer, index, of, check_wanted)
    return list(parts.items())


def compute_scalings(
    job: JobConf,
    sources: Sequence[modules.Source],
    init_from: Sequence[str],
    run: Runner,
    warn: Callable[[str], None],
) -> dict[str, Mapping[str, Any]]:
    """Return the scaling of each layer of the training net that standardises, see `Scaling.to_dict`.

    It is that of a checkpoint in ``init_from``, whose params were trained on such values, if that has one.

    Parameters
    ----------
    job : JobConf
    sources : sequence of Source
        The user's own modules.
    init_from : sequence of str
        URLs of checkpoints.
    run : Runner
        Of one task a worker. The result does not depend on their number.
    warn : callable
        Takes a warning.

    Raises
    ------
    DataError
        Records cannot be read, or have values that are not finite or too large.
    """
    confs = [layer.given_block(StoreConf) for layer in job.neuralnet.layer]
    if not (job.trains and any(conf is not None and conf.standardise for conf in confs)):
        return {}
    text, n_tasks = job.to_json(), job.cluster.nworker_groups * job.cluster.nworkers_per_group
    tasks = [partial(_measure, text, sources, init_from, i, n_tasks) for i in range(n_tasks)]
    measurements: dict[str, list[Scaling | GroupMoments]] = {}
    for name, part in itertools.chain(*run(tasks)):
        measurements.setdefault(name, []).append(part)
    scalings: dict[str, Mapping[str, Any]] = {}
    for name, parts in measurements.items():
        measured = [part for part in parts if isinstance(part, GroupMoments)]
        inherited = next((part for part in parts if isinstance(part, Scaling)), None)
        scalings[name] = (inherited or scaling_of(name, measured, warn)).to_dict()
    return scalings
