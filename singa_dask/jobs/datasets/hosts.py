"""Files of datasets for a run, on the hosts of a cluster or on this machine."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from dask.base import compute, is_dask_collection
from dask.delayed import delayed
from distributed import Client, Future, Worker, get_worker
from distributed.comm.addressing import get_address_host

from singa_dask.comm.remote_import import Guarded
from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError, DataError
from singa_dask.fs.host_files import SCHEME, Catalog, PartFile
from singa_dask.fs.locks import create_locked, delete_unlocked
from singa_dask.jobs.datasets.binding import fit_to_data, readers, with_urls
from singa_dask.jobs.datasets.making import as_dataset
from singa_dask.jobs.datasets.records import Dataset, WritePart
from singa_dask.runtime import JobRun, plan_processes, wait_for_room
from singa_dask.runtime.job.calls import ask_jobs, present_workers
from singa_dask.runtime.job.client.job_cluster import install_jobs
from singa_dask.runtime.job.dask_tasks import next_ended, result_of
from singa_dask.runtime.job.dask_worker.part_files import part_folders
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import Op

# maximum number of in-memory partitions that are sent to the cluster at the same time
SENT_AT_ONCE = 4
PREFIX, LOCK = "singa-dask-data-", "lock"


@contextlib.contextmanager
def with_data_files(
    run: JobRun, client: Client, datasets: Mapping[str, Dataset] | None = None, leave: bool = False
) -> Iterator[JobRun]:
    """Return a context that writes the datasets of a run to the hosts of Dask workers.

    The value of the context is the run with the paths of the files.

    Parameters
    ----------
    run : JobRun
    client : distributed.Client
    datasets : mapping of str to Dataset, optional
        Datasets by name. Datasets that are missing here must be published on the cluster.
    leave : bool
        Whether to keep the files after the context, for a detached job. They are then deleted when the job ends. By
        default, they are deleted at the end of the context.

    Raises
    ------
    ClusterError
        The cluster has no room for the job.
    ConfigError
        A dataset does not exist.
    DataError
        A dataset cannot be written.
    """
    if readers(run.conf) and not run.queue:
        wait_for_room(client, plan_processes(run.conf.cluster), beside_tasks=False)
    with job_with_data_files(run.conf, client, datasets, leave) as (job, messages):
        yield replace(run, job=job.to_json(), datasets=messages) if messages else run


@contextlib.contextmanager
def job_with_data_files(
    job: JobConf, client: Client, datasets: Mapping[str, Dataset] | None = None, leave: bool = False
) -> Iterator[tuple[JobConf, list[list[Any]]]]:
    """Write the datasets of a job to the hosts of Dask workers; see `with_data_files`.

    The value of the context is the job with the paths of the files, and the messages that list the files.
    """
    catalogs: list[Catalog] = []
    try:
        needed: dict[str, Dataset] = {}
        for name in sorted(set(readers(job).values())):
            needed[name] = (datasets or {}).get(name) or published(name, client)
        job, needed = fit_to_data(job, needed)
        for dataset in needed.values():
            catalogs.append(write_on_hosts(dataset, client))
        urls = {catalog.dataset: catalog.url for catalog in catalogs}
        yield with_urls(job, urls), [catalog.message() for catalog in catalogs]
    except BaseException:
        drop_from_hosts(client, catalogs)
        raise
    if not leave:
        drop_from_hosts(client, catalogs)


def published(name: str, client: Client) -> Dataset:
    """Return the dataset that is published on a cluster as ``name``.

    Raises
    ------
    ConfigError
        There is no such dataset.
    DataError
        The published value cannot be converted to records.
    """
    try:
        value = client.get_dataset(name)
    except KeyError:
        known = ", ".join(sorted(map(str, client.list_datasets()))) or "none"
        raise ConfigError(
            f"{SCHEME}{name}: no data of this name was passed, and no dataset of this name is published on the "
            f"cluster. Published there: {known}. Call client.publish_dataset(..., name={name!r})."
        ) from None
    # client.persist converts tuples to lists
    return as_dataset(name, tuple(value) if isinstance(value, list) else value, client)


# -- on the hosts of Dask workers ---------------------------------------------------------------------------------


def write_on_hosts(dataset: Dataset, client: Client) -> Catalog:
    """Write each partition of a dataset to a file, on the host that stores or computes the partition.

    The files exist until `drop_from_hosts` is called, or until the job that reads them ends.

    Raises
    ------
    DataError
        A partition cannot be written, or there are no records.
    LostUnitError
        No Dask worker is left, or Dask workers were lost repeatedly.
    """
    install_jobs(client)
    token = f"{re.sub(r'[^0-9A-Za-z_]+', '-', dataset.name).strip('-')[:40] or 'data'}-{secrets.token_hex(6)}"
    try:
        written = _Placing(dataset, client, token, ask_jobs(client, Op.TOKENS)).run()
        files = tuple(sorted((file for file in written if file.n), key=lambda file: file.name))
        if not files:
            raise DataError(f"dataset {dataset.name!r}: there are no records.")
        return Catalog(dataset.name, token, files)
    except BaseException:
        # remove all files, because it is not known which files a failed task has written
        _drop(client, [token])
        raise


def drop_from_hosts(client: Client, catalogs: Iterable[Catalog]) -> None:
    """Delete the files of catalogs, and the caches of these files, on all hosts that answer."""
    tokens = [catalog.token for catalog in catalogs]
    if tokens:
        _drop(client, tokens)


def _drop(client: Client, tokens: Sequence[str]) -> None:
    with contextlib.suppress(Exception):  # if this fails, writing the next dataset on the host deletes them
        client.run(_drop_on_host, list(tokens), on_error="ignore", callback_timeout=limit("question"))


class _Placing:
    """The tasks that write the partitions of a dataset.

    ``live`` has the tokens of all jobs on the cluster. Files with these tokens must not be deleted.
    """

    def __init__(self, dataset: Dataset, client: Client, token: str, live: Collection[str]) -> None:
        self._dataset, self._client, self._token, self._live = dataset, client, token, list(live)
        self._done: SimpleQueue[Future[list[Any]]] = SimpleQueue()
        # task -> index of its partition, and the Dask workers that the task is pinned to
        self._tasks: dict[Future[list[Any]], tuple[int, list[str]]] = {}

    def run(self) -> list[PartFile]:
        """Write all partitions; return the files."""
        parts = self._dataset.parts
        lazy = [i for i, part in enumerate(parts) if is_dask_collection(part) or isinstance(part, Future)]
        values = sorted(set(range(len(parts))) - set(lazy))
        files: list[PartFile] = []
        try:
            self._submit(lazy)
            while self._tasks or values:
                while values and len(self._tasks) < SENT_AT_ONCE:
                    self._submit([values.pop(0)])
                future = next_ended(self._client, self._done, self._start_lost)
                if self._tasks.pop(future, None) is not None:
                    files.append(PartFile(*result_of(future)))
        finally:
            self._client.cancel(list(self._tasks), force=True)
        return files

    def _submit(self, indices: Sequence[int], pinned: bool = True) -> None:
        """Start the tasks of some partitions.

        If ``pinned``, each task runs on a Dask worker that stores most of the partition's data.
        """
        groups: dict[tuple[str, ...], list[int]] = {}
        holders = self._holders(indices) if pinned else {}
        for i in indices:
            groups.setdefault(holders.get(i, ()), []).append(i)
        for workers, members in groups.items():
            tasks = [self._task(i) for i in members]
            pins = {"workers": list(workers), "allow_other_workers": False} if workers else {}
            for i, future in zip(members, self._client.compute(tasks, **pins), strict=True):
                self._tasks[future] = i, list(workers)
                future.add_done_callback(self._done.put)

    def _task(self, index: int) -> Any:
        dataset, token = self._dataset, self._token
        part = dataset.parts[index]
        if not is_dask_collection(part) and not isinstance(part, Future):
            part = self._client.scatter(part, hash=False)
        write = partial(
            _write_on_host,
            dataset.write_part,
            dataset=dataset.name,
            token=token,
            name=dataset.file_name(index),
            index=index,
            live=self._live,
        )
        key = f"singa-dask-part-{token}-{index}-{secrets.token_hex(4)}"
        return delayed(Guarded(write), pure=False)(value=part, dask_key_name=key)

    def _holders(self, indices: Sequence[int]) -> Mapping[int, tuple[str, ...]]:
        """Return the Dask workers that store most bytes of each partition.

        Partitions without data on any worker are left out.
        """
        needed = {i: _keys_needed(self._dataset.parts[i]) for i in indices}
        keys = sorted(set[Any]().union(*needed.values()), key=str)
        if not keys:
            return {}
        scheduler: Any = self._client.scheduler
        known = self._client.sync(scheduler.who_has, keys=keys)
        sizes = self._client.sync(scheduler.nbytes, keys=keys, summary=False)
        holders = {}
        for i, keys_of_part in needed.items():
            held: dict[str, int] = {}
            for key in keys_of_part:
                for worker in known.get(key, ()):
                    held[worker] = held.get(worker, 0) + sizes.get(key, 0)
            if held:
                most = max(held.values())
                holders[i] = tuple(sorted(worker for worker, size in held.items() if size == most))
        return holders

    def _start_lost(self) -> None:
        """Restart the tasks of Dask workers that are lost."""
        workers = present_workers(self._client)
        lost = {future: i for future, (i, pins) in self._tasks.items() if pins and not workers.keys() & set(pins)}
        for future in lost:
            del self._tasks[future]
        if lost:
            self._client.cancel(list(lost), force=True)
            self._submit(sorted(lost.values()), pinned=False)


def _keys_needed(part: Any) -> set[Any]:
    """Return the keys of a partition's tasks whose results are already on the cluster."""
    if isinstance(part, Future):
        return {part.key}
    if not is_dask_collection(part):
        return set()
    graph, needed = part.__dask_graph__(), set()
    wanted, seen = list(part.__dask_keys__()), set[Any]()
    while wanted:
        key = wanted.pop()
        if key in seen:
            continue
        seen.add(key)
        task = graph.get(key)
        if task is None or isinstance(task, Future):
            # the graph of a persisted array contains only the key
            needed.add(key if task is None else task.key)
        else:
            wanted += getattr(task, "dependencies", ())
    return needed


def _write_on_host(
    write: WritePart, value: Any, dataset: str, token: str, name: str, index: int, live: Collection[str]
) -> list[Any]:
    """Write a partition on the host of this Dask worker; return the fields of its `PartFile`.

    The function runs as a Dask task. It also deletes the files of every token that no process holds and ``live`` does
    not contain.
    """
    worker = get_worker()
    folders = part_folders(worker)
    host = get_address_host(worker.address)
    try:
        if folders.hold(token):
            folders.sweep({token, *live})
        path, n = folders.write(token, name, lambda path: write(value, str(path), index))
        size = path.stat().st_size if n else 0
    except DataError:
        raise
    except OSError as error:
        raise DataError(
            f"dataset {dataset!r}, partition {index}: the records cannot be written to {folders.root} on {host} "
            f"({worker.address}): {error.strerror or error}. To write to another disk, start Dask workers with "
            "--local-directory, or set temporary-directory in Dask's configuration."
        ) from error
    return list(PartFile(name, host, worker.address, str(path), size, n))


def _drop_on_host(tokens: Sequence[str], dask_worker: Worker) -> None:
    """Delete the part files of some tokens on the host of a Dask worker. ``Client.run`` calls this."""
    for token in tokens:
        part_folders(dask_worker).drop(token)


# -- on this machine ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def local_parts(datasets: Mapping[str, Dataset]) -> Iterator[dict[str, str]]:
    """Return a context with datasets in temporary files here; its value maps names to file patterns.

    One partition is computed at a time.

    Raises
    ------
    DataError
        A partition cannot be computed, converted to records, or written. The message names dataset and partition.
    """
    if not datasets:
        yield {}
        return
    _sweep()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        root = Path(name)
        # hold a lock, because other processes delete unlocked directories
        with create_locked(root / LOCK):
            yield {name: _write(dataset, root) for name, dataset in datasets.items()}


def _sweep() -> None:
    """Delete the temporary directories that killed processes have left."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        # ignore files of other users, which cannot be opened
        with contextlib.suppress(OSError):
            delete_unlocked([path], lambda lock: shutil.rmtree(lock.parent, ignore_errors=True))


def _write(dataset: Dataset, root: Path) -> str:
    folder = root / (re.sub(r"[^\w-]", "-", dataset.name))
    while folder.exists():
        folder = folder.with_name(f"{folder.name}-")
    n = 0
    try:
        folder.mkdir()
        for index, part in enumerate(dataset.parts):
            value = _computed(dataset, index, part)
            n += dataset.write_part(value, str(folder / dataset.file_name(index)), index)
            # free the memory of this partition before the next one is computed
            del value
    except DataError:
        raise
    except OSError as error:
        raise DataError(
            f"dataset {dataset.name!r}: the records cannot be written to {root}: {error.strerror or error}. To write "
            f"to another "
            "disk, set TMPDIR."
        ) from error
    if not n:
        raise DataError(f"dataset {dataset.name!r}: there are no records.")
    return str(folder / dataset.pattern)


def _computed(dataset: Dataset, index: int, part: Any) -> Any:
    try:
        if isinstance(part, Future):
            return part.result()
        return compute(part)[0] if is_dask_collection(part) else part  # type: ignore[no-untyped-call]
    except Exception as error:
        raise DataError(
            f"dataset {dataset.name!r}, partition {index}: the records cannot be computed: {type(error).__name__}: "
            f"{error}"
        ) from error
