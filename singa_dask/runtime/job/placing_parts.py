"""Write the partitions of a dataset to files on the hosts of Dask workers, where the data are."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from dask.base import is_dask_collection
from dask.delayed import delayed
from distributed import Client, Future
from distributed.client import FutureCancelledError

from singa_dask.data.fs.host_files import Catalog, PartFile
from singa_dask.errors import DataError, LostUnitError
from singa_dask.runtime.job.cluster import present_workers
from singa_dask.runtime.job.driver import install_jobs
from singa_dask.runtime.job.follower import ask_jobs
from singa_dask.runtime.job.names import Op
from singa_dask.runtime.job.part_files import PartWriter, drop_parts, write_part

LOOK_S = 2.0
WORKERS_BACK_S = 20.0
DROP_S = 10.0
# of values in the memory of this process, sent at the same time
SENT_AT_ONCE = 4


class PartsToPlace(Protocol):
    """What `place_on_hosts` needs of a dataset."""

    @property
    def name(self) -> str:
        """Name of the dataset, for errors."""

    @property
    def parts(self) -> Sequence[Any]:
        """The partitions: delayed values, or values."""

    @property
    def write_part(self) -> PartWriter:
        """Writes a partition; picklable, without the data."""

    def file_name(self, index: int) -> str:
        """Return the name of the file of a partition."""


def place_on_hosts(dataset: PartsToPlace, client: Client) -> Catalog:
    """Write each partition of a dataset to a file on the host that has it in memory, or computes it.

    Parameters
    ----------
    dataset : Dataset
    client : distributed.Client
        Not asynchronous.

    Returns
    -------
    Catalog
        The files, which stay until `drop_from_hosts`, or the end of the job that reads them.

    Raises
    ------
    DataError
        A partition cannot be written, or there are no records.
    LostUnitError
        No Dask worker is left.
    """
    install_jobs(client)
    token = f"{re.sub(r'[^0-9A-Za-z_]+', '-', dataset.name).strip('-')[:40] or 'data'}-{secrets.token_hex(6)}"
    written: list[PartFile] = []
    try:
        written += _Placing(dataset, client, token, ask_jobs(client, Op.TOKENS)).run()
        files = tuple(sorted((file for file in written if file.n), key=lambda file: file.name))
        if not files:
            raise DataError(f"dataset {dataset.name!r}: no records.")
        return Catalog(dataset.name, token, files)
    except BaseException:
        # those that were written are not known when a task fails
        _drop(client, [token])
        raise


def drop_from_hosts(client: Client, catalogs: Iterable[Catalog]) -> None:
    """Delete the files of catalogs that no job reads, and what was read of them; hosts that do not answer are left."""
    tokens = [catalog.token for catalog in catalogs]
    if tokens:
        _drop(client, tokens)


def _drop(client: Client, tokens: Sequence[str]) -> None:
    with contextlib.suppress(Exception):  # whoever places data there next deletes them
        client.run(drop_parts, list(tokens), on_error="ignore", callback_timeout=DROP_S)


class _Placing:
    """The tasks that write the partitions of a dataset.

    Parameters
    ----------
    dataset : PartsToPlace
    client : distributed.Client
    token : str
    live : collection of str
        Tokens of jobs on the cluster.
    """

    def __init__(self, dataset: PartsToPlace, client: Client, token: str, live: Collection[str]) -> None:
        self._dataset, self._client, self._token, self._live = dataset, client, token, list(live)
        self._done: SimpleQueue[Future[list[Any]]] = SimpleQueue()
        # partition of each task, and the Dask workers that may run it, if not all
        self._tasks: dict[Future[list[Any]], tuple[int, list[str]]] = {}
        self._alive_at = time.monotonic()

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
                try:
                    future = self._done.get(timeout=LOOK_S)
                except Empty:
                    self._look()
                    continue
                if self._tasks.pop(future, None) is not None:
                    files.append(PartFile(*future.result()))
        except FutureCancelledError as error:
            raise LostUnitError(f"{self._where}: the scheduler is gone, or was restarted.") from error
        finally:
            self._client.cancel(list(self._tasks), force=True)
        return files

    @property
    def _where(self) -> str:
        return f"dataset {self._dataset.name!r}"

    def _submit(self, indices: Sequence[int], pinned: bool = True) -> None:
        """Start the tasks of some partitions, ``pinned`` to Dask workers that have all of their data."""
        groups: dict[tuple[str, ...], list[int]] = {}
        holders = self._holders(indices) if pinned else {}
        for i in indices:
            groups.setdefault(holders.get(i, ()), []).append(i)
        for workers, members in groups.items():
            tasks = [self._task(i) for i in members]
            given = {"workers": list(workers), "allow_other_workers": False} if workers else {}
            for i, future in zip(members, self._client.compute(tasks, **given), strict=True):
                self._tasks[future] = i, list(workers)
                future.add_done_callback(self._done.put)

    def _task(self, index: int) -> Any:
        dataset = self._dataset
        name = dataset.file_name(index)
        facts = {"dataset": dataset.name, "token": self._token, "name": name, "index": index, "live": self._live}
        part = dataset.parts[index]
        if not is_dask_collection(part) and not isinstance(part, Future):
            part = self._client.scatter(part, hash=False)
        write = delayed(partial(_write, dataset.write_part, **facts), pure=False)
        return write(part, dask_key_name=f"singa-dask-part-{self._token}-{index}-{secrets.token_hex(4)}")

    def _holders(self, indices: Sequence[int]) -> Mapping[int, tuple[str, ...]]:
        """Return the Dask workers that have most bytes of a partition in memory, of those that any has."""
        needed = {i: _keys_needed(self._dataset.parts[i]) for i in indices}
        keys = sorted(set[Any]().union(*needed.values()), key=str)
        if not keys:
            return {}
        scheduler: Any = self._client.scheduler
        known = self._client.sync(scheduler.who_has, keys=keys)
        sizes = self._client.sync(scheduler.nbytes, keys=keys, summary=False)
        holders = {}
        for i, found in needed.items():
            held: dict[str, int] = {}
            for key in found:
                for worker in known.get(key, ()):
                    held[worker] = held.get(worker, 0) + sizes.get(key, 0)
            if held:
                most = max(held.values())
                holders[i] = tuple(sorted(worker for worker, size in held.items() if size == most))
        return holders

    def _look(self) -> None:
        """Start tasks again whose Dask workers are gone; give up if there are none."""
        workers = present_workers(self._client)
        if workers:
            self._alive_at = time.monotonic()
        elif time.monotonic() - self._alive_at > WORKERS_BACK_S:
            raise LostUnitError(f"{self._where}: there are no Dask workers any more. Start the job again.")
        lost = {future: i for future, (i, pins) in self._tasks.items() if pins and not workers.keys() & set(pins)}
        for future in lost:
            del self._tasks[future]
        if lost:
            self._client.cancel(list(lost), force=True)
            self._submit(sorted(lost.values()), pinned=False)


def _keys_needed(part: Any) -> set[Any]:
    """Return the keys of the tasks that a partition is computed from and that the cluster has already."""
    if isinstance(part, Future):
        return {part.key}
    if not is_dask_collection(part):
        return set()
    graph, found = part.__dask_graph__(), set()
    wanted, seen = list(part.__dask_keys__()), set[Any]()
    while wanted:
        key = wanted.pop()
        if key in seen:
            continue
        seen.add(key)
        task = graph.get(key)
        if task is None or isinstance(task, Future):
            # of a persisted array the graph has the name alone
            found.add(key if task is None else task.key)
        else:
            wanted += getattr(task, "dependencies", ())
    return found


def _write(write: PartWriter, value: Any, **facts: Any) -> list[Any]:
    """Write a partition; a task."""
    return write_part(write, value, **facts)
