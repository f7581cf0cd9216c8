"""Jobs go where their part files are: processes to the hosts, and parts to the workers there."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.data.loading import host_names
from singa_dask.data.stores.arrow.arrow import ArrowStore
from singa_dask.fs.host_files import Catalog, PartFile, mounted
from singa_dask.runtime import plan_processes
from singa_dask.runtime.job.driver.locality import Locality, reads_remote_stores, survey
from singa_dask.runtime.planning.worker_choice import WorkerFacts, place
from tests.runtime.harness import mlp

WORKERS = {f"tcp://10.0.0.{i}:1": WorkerFacts(2, 0, "", name) for i, name in enumerate("xyz")}
HOSTS = [urllib.parse.urlsplit(address).hostname or "" for address in WORKERS]
NAMES = {address: host_names(host) for address, host in zip(WORKERS, HOSTS, strict=True)}


def catalog(folder: Path, hosts: str) -> Catalog:
    """Return the catalog of parts on these of `HOSTS`; the files are on this one."""
    files = []
    for i, host in enumerate(hosts):
        path = folder / f"part-{i:05d}.arrow"
        records = {"data": np.zeros((48, 784), np.float32), "label": np.zeros(48, np.int32)}
        ArrowStore.write(str(path), [records])
        files.append(PartFile(path.name, HOSTS[int(host)], "tcp://w", str(path), path.stat().st_size, 48))
    return Catalog("train", "train-1", tuple(files))


@pytest.mark.parametrize("cluster", [{"nworkers_per_group": 2}, {"nworker_groups": 2}], ids=["allreduce", "downpour"])
def test_workers_read_the_parts_of_their_host_first(tmp_path: Path, cluster: dict[str, int]) -> None:
    placed = catalog(tmp_path, "1221")
    made = mlp(cluster=cluster).model_dump(mode="json")
    made["neuralnet"]["layer"][0]["store_conf"]["path"] = placed.url
    job = JobConf.model_validate(made)
    assert reads_remote_stores(job)
    with mounted([placed], lambda *_: b""):
        surveyed = survey(job.to_json(), None, 60)
    assert surveyed.stores["data"].hosts == [(HOSTS[int(host)],) for host in "1221"]
    near = Locality(job, plan_processes(job.cluster), surveyed, NAMES, fresh=True)
    workers = place(plan_processes(job.cluster), WORKERS, near.gain)
    assert sorted(WORKERS[address].name for address in workers) == ["y", "z"]
    (order,) = near.assignments(workers).values()
    chosen = [HOSTS[int("1221"[block])] for block in order]
    assert chosen == [urllib.parse.urlsplit(workers[i]).hostname for i in (0, 0, 1, 1)]
