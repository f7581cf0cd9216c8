"""Run tasks on a Dask cluster before a job starts: choose its Dask workers, and measure its training records."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

from distributed import Client, Future, KilledWorker, get_worker
from distributed.client import FutureCancelledError

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.data.codecs.scaling import Scaling
from singa_dask.errors import Aborted, ClusterError, LostUnitError
from singa_dask.layers import StoreInput
from singa_dask.layers.records import StoreConf
from singa_dask.layers.standardise import GroupMoments, measure, scaling_of
from singa_dask.runtime.job.cluster import Patience, present_workers
from singa_dask.runtime.job.events import WorkerFacts
from singa_dask.runtime.job.locality import Locality, host_names_of, reads_remote_stores, survey
from singa_dask.runtime.job.names import is_units_key
from singa_dask.runtime.job.part_files import reading
from singa_dask.runtime.job.placer import limits_of, place_again
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.planning.placement import Layout, place
from singa_dask.runtime.units.initial_state import InitialState

# interval of checks for workers, and how long they may take to come back
LOOK_S = 2.0
WORKERS_BACK_S = 20.0
# how long workers may take to answer a call that can be left out
CALL_S = 10.0

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
        call = partial(_call, datasets=datasets)
        futures = client.map(call, tasks, pure=False, workers=workers, allow_other_workers=workers is not None)
        done: SimpleQueue[Future[T]] = SimpleQueue()
        for future in futures:
            future.add_done_callback(done.put)
        try:
            for _ in futures:
                yield _next(client, done, check).result()
        except KilledWorker as error:
            raise _lost(str(error)) from error
        except FutureCancelledError as error:
            raise _lost("their scheduler is gone or was restarted") from error
        finally:
            client.cancel(futures)

    return run


def on_each_worker(client: Client) -> Callable[[Callable[[], None]], None]:
    """Return a function that calls another one on each Dask worker; those that do not answer soon are left out."""

    def call(function: Callable[[], None]) -> None:
        with contextlib.suppress(TimeoutError, OSError):
            client.run(function, on_error="ignore", callback_timeout=CALL_S)

    return call


def _next(client: Client, done: SimpleQueue[Future[T]], check: Callable[[], None]) -> Future[T]:
    """Wait for a task to end, as long as there are workers or they may come back."""
    since = time.monotonic()
    while True:
        try:
            return done.get(timeout=LOOK_S)
        except Empty:
            check()
            if present_workers(client):
                since = time.monotonic()
            elif time.monotonic() - since > WORKERS_BACK_S:
                raise _lost("none is left") from None


def _lost(why: str) -> LostUnitError:
    return LostUnitError(f"Dask workers were lost: {why}. Give the same command again.")


def _call(task: Callable[[], T], datasets: Sequence[Sequence[Any]]) -> T:
    with reading(datasets):
        return task()


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


SURVEY_TIMEOUT_S = 30.0


class Placed(NamedTuple):
    """Placement of a job.

    Attributes
    ----------
    workers : list of str
        Address of the Dask worker of each process.
    deals : dict of str to list of int
        By input layer: the order in which its blocks are dealt, if that was chosen.
    notes : list of str
        What is not known, for the log of the run.
    """

    workers: list[str]
    deals: Mapping[str, Sequence[int]]
    notes: list[str]


def wait_for_room(client: Client, layout: Layout, patience: Patience) -> None:
    """Wait until a job fits on a cluster.

    Raises
    ------
    ClusterError
        It does not fit when the time is over; the message has the numbers.
    """

    def attempt() -> None:
        workers = present_workers(client)
        place(layout, workers, {address: len(keys) for address, keys in client.processing().items()})

    patience.until(attempt)


def check_room(client: Client, layout: Layout) -> None:
    """Check that a job fits on a cluster beside other jobs. Other tasks may be those that compute its data.

    Raises
    ------
    ClusterError
        It does not fit; the message has the numbers.
    """
    busy = {address: sum(map(is_units_key, keys)) for address, keys in client.processing().items()}
    place(layout, present_workers(client), busy)


def place_on_cluster(
    client: Client,
    job: JobConf,
    layout: Layout,
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
    """
    present = present_workers(client)
    busy = {address: len(keys) for address, keys in client.processing().items()}
    # a job that does not fit fails before any record is looked for
    if job.cluster.elastic.max_processes:
        facts = {
            address: WorkerFacts(each["nthreads"], busy.get(address, 0), each["host"], str(each["name"]), False, True)
            for address, each in present.items()
        }
        _, chosen = place_again(layout, facts, (), limits_of(job.cluster, layout), packed=True)
        if len(chosen) < len(layout.processes):
            return Placed(list(chosen), {}, [f"{len(layout.processes)} processes are packed on {len(chosen)}"])
    workers = place(layout, present, busy)
    if not reads_remote_stores(job):
        return Placed(workers, {}, [])
    notes: list[str] = []
    try:
        run = on_dask(client, datasets, workers[:1], _give_up_after(2 * SURVEY_TIMEOUT_S))
        (surveyed,) = run([partial(survey, job.model_dump_json(), resume, SURVEY_TIMEOUT_S, sources)])
        notes += [
            f"layer {name}: the filesystem does not report which hosts store the records" for name in surveyed.silent
        ]
        if not surveyed.stores:
            return Placed(workers, {}, notes)
        names = client.run(host_names_of, workers=list(present))
        locality = Locality(job, layout, surveyed, names, fresh=resume is None)
        near = place(layout, present, busy, locality.gain)
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


_LayerScaling = tuple[str, Scaling | GroupMoments]


def _measure(
    job: str, sources: Sequence[modules.Source], init_from: Sequence[str], index: int, of: int
) -> list[_LayerScaling]:
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
    text, n_tasks = job.model_dump_json(), job.cluster.nworker_groups * job.cluster.nworkers_per_group
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
