"""Datasets of a run on a cluster: given by name or published there, and written on the hosts of its workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from distributed import Client

from singa_dask.conf import JobConf
from singa_dask.data.fs.host_files import SCHEME, Catalog
from singa_dask.errors import ConfigError
from singa_dask.jobs.datasets.binding import readers, with_defaults, with_urls, without_unread
from singa_dask.jobs.datasets.columns import find_wrong_columns
from singa_dask.jobs.datasets.dataset import Dataset
from singa_dask.jobs.datasets.making import as_dataset
from singa_dask.runtime import JobRun, check_room, plan_processes
from singa_dask.runtime.job.placing_parts import drop_from_hosts, place_on_hosts

__all__ = ["placed", "placed_job", "published"]


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
        found = without_unread(job, found)
        if wrong := find_wrong_columns(with_defaults(job, found), found):
            raise ConfigError(wrong)
        for dataset in found.values():
            catalogs.append(place_on_hosts(dataset, client))
        urls = {catalog.dataset: catalog.url for catalog in catalogs}
        yield with_urls(with_defaults(job, found), urls), [catalog.message() for catalog in catalogs]
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
