"""Datasets of a run as files: on the hosts of a cluster, given by name or published there, or on this machine."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dask.base import compute, is_dask_collection
from distributed import Client, Future

from singa_dask.conf import JobConf
from singa_dask.data.fs.host_files import SCHEME, Catalog
from singa_dask.data.fs.locks import create_locked, delete_unlocked
from singa_dask.errors import ConfigError, DataError
from singa_dask.jobs.datasets.binding import fit_to_data, readers, with_urls
from singa_dask.jobs.datasets.dataset import Dataset
from singa_dask.jobs.datasets.making import as_dataset
from singa_dask.runtime import JobRun, check_room, plan_processes
from singa_dask.runtime.job.placing_parts import drop_from_hosts, place_on_hosts

PREFIX, LOCK = "singa-dask-data-", "lock"


@contextlib.contextmanager
def placed(
    run: JobRun, client: Client, datasets: Mapping[str, Dataset] | None = None, leave: bool = False
) -> Iterator[JobRun]:
    """Write the datasets that a run reads, ``path: dask://NAME``, on the hosts of Dask workers.

    Yields the run with the paths of the files, which are deleted at the end.

    Parameters
    ----------
    run : JobRun
    client : distributed.Client
    datasets : mapping of str to Dataset, optional
        By name; others are looked up among those that are published on the cluster.
    leave : bool
        The job is detached: its end deletes the files.

    Raises
    ------
    ClusterError
        There is no room for the job.
    ConfigError
        A dataset is not there.
    DataError
        It cannot be written.
    """
    job = JobConf.model_validate_json(run.job)
    if readers(job) and not run.queue and not run.cluster.elastic.max_processes:
        check_room(client, plan_processes(run.cluster))
    with placed_job(job, client, datasets, leave) as (job, messages):
        yield replace(run, job=job.model_dump_json(), datasets=messages) if messages else run


@contextlib.contextmanager
def placed_job(
    job: JobConf, client: Client, datasets: Mapping[str, Dataset] | None = None, leave: bool = False
) -> Iterator[tuple[JobConf, list[list[Any]]]]:
    """Write the datasets that a job reads, see `placed`; yield the job with the paths of the files, and their catalogs.

    The catalogs are plain values.
    """
    catalogs: list[Catalog] = []
    try:
        found: dict[str, Dataset] = {}
        for name in sorted(set(readers(job).values())):
            found[name] = (datasets or {}).get(name) or published(name, client)
        job, found = fit_to_data(job, found)
        for dataset in found.values():
            catalogs.append(place_on_hosts(dataset, client))
        urls = {catalog.dataset: catalog.url for catalog in catalogs}
        yield with_urls(job, urls), [catalog.message() for catalog in catalogs]
    except BaseException:
        drop_from_hosts(client, catalogs)
        raise
    if not leave:
        drop_from_hosts(client, catalogs)


def published(name: str, client: Client) -> Dataset:
    """Return the dataset that is published on a cluster under a name.

    Raises
    ------
    ConfigError
        There is none.
    DataError
        It cannot be records.
    """
    try:
        value = client.get_dataset(name)
    except KeyError:
        known = ", ".join(sorted(map(str, client.list_datasets()))) or "none"
        raise ConfigError(
            f"{SCHEME}{name}: no data of this name was given, and no dataset of this name is published on the "
            f"cluster. Published there: {known}. Say client.publish_dataset(..., name={name!r})."
        ) from None
    # client.persist makes lists of pairs
    return as_dataset(name, tuple(value) if isinstance(value, list) else value, client)


# -- on this machine ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def local_parts(datasets: Mapping[str, Dataset]) -> Iterator[dict[str, str]]:
    """Write datasets to files of this machine, a partition at a time; yield the pattern of the files of each by name.

    The files are deleted at the end.

    Raises
    ------
    DataError
        A partition cannot be computed, be records, or be written; names dataset and partition.
    """
    if not datasets:
        yield {}
        return
    _sweep()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        root = Path(name)
        # as long as it is locked, it is not deleted by other processes
        with create_locked(root / LOCK):
            yield {name: _write(dataset, root) for name, dataset in datasets.items()}


def _sweep() -> None:
    """Delete the directories of processes that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        # other users' cannot be opened
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
            n += dataset.write_part(value, str(folder / dataset.file_name(index)), index).n
            # before the next one is there
            del value
    except DataError:
        raise
    except OSError as error:
        raise DataError(
            f"dataset {dataset.name!r}: cannot be written to {root}: {error.strerror or error}. To write to another "
            "disk, set TMPDIR."
        ) from error
    if not n:
        raise DataError(f"dataset {dataset.name!r}: no records.")
    return str(folder / dataset.pattern)


def _computed(dataset: Dataset, index: int, part: Any) -> Any:
    try:
        if isinstance(part, Future):
            return part.result()
        return compute(part)[0] if is_dask_collection(part) else part  # type: ignore[no-untyped-call]
    except Exception as error:
        raise DataError(
            f"dataset {dataset.name!r}, partition {index}: cannot be computed: {type(error).__name__}: {error}"
        ) from error
