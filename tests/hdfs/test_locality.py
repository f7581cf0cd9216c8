"""Workers beside the DataNodes of a real HDFS read what lies on their own host, and go on elsewhere as they began."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from singa_dask import fs
from singa_dask.conf import JobConf
from singa_dask.data.stores import STORES
from singa_dask.runtime import Result, local_cluster
from singa_dask.runtime.checkpoints.lookup import find
from tests.contracts.records import pixels
from tests.hdfs.cluster import MiniHdfs
from tests.runtime.harness import mlp
from tests.runtime.processes import driver_of

pytestmark = pytest.mark.cluster
N_FILES, N_RECORDS = 24, 240
TRIO = {"nworkers_per_group": 3, "nservers_per_group": 3}


@pytest.fixture(scope="module")
def parts(mini: MiniHdfs) -> Iterator[str]:
    """Put records on HDFS, in files of one block each."""
    if not mini.has_webhdfs:
        pytest.skip("no WebHDFS: Debian's jersey jars are not here")
    folder = fs.join(mini.url, "local")
    records = pixels(N_FILES * N_RECORDS, (28, 28))
    for i in range(N_FILES):
        part = {name: values[i * N_RECORDS : (i + 1) * N_RECORDS] for name, values in records.items()}
        STORES.find("arrow").write(fs.join(folder, f"part-{i:02d}.arrow"), part)
    yield fs.join(folder, "part-*.arrow")
    fs.remove_tree(folder)


def job_on(url: str, http: str, **changes: Any) -> JobConf:
    """Return a job whose epoch is 120 steps."""
    job = mlp(**{"cluster": TRIO, "train_steps": 120, **changes}).model_dump(mode="json")
    job["neuralnet"]["layer"][0]["store_conf"] |= {"path": url, "storage_options": {"http": http}}
    return JobConf.model_validate(job)


class Ran:
    """A job, run on a cluster that is there."""

    def __init__(self, job: JobConf, client: Client, directory: Path, resume: str | None = None) -> None:
        directory.mkdir()
        self.url, self.events = str(directory), list[dict[str, Any]]()
        driver = driver_of(
            job, client, run_url=self.url, on_event=self.events.append, job_id=directory.name, resume=resume
        )
        self.result: Result = driver.run()
        assert self.result.state == "done", self.result

    def losses(self) -> dict[int, float]:
        return {event["step"]: event["loss"] for event in self.events if event["event"] == "metrics"}

    def manifest(self) -> dict[str, Any]:
        return dict(json.loads(fs.read_bytes(fs.join(find(self.url), "manifest.json"))))

    def local_share(self) -> float:
        moved = self.result.bytes
        return moved["local"] / (moved["local"] + moved["remote"])


@pytest.mark.long
def test_workers_read_the_blocks_of_their_own_host(parts: str, mini: MiniHdfs, beside: Client, tmp_path: Path) -> None:
    ran = Ran(job_on(parts, mini.http), beside, tmp_path / "beside")
    half = Ran(job_on(parts, mini.http, train_steps=50), beside, tmp_path / "half")
    # on one worker, in the order that was chosen for three
    rest = Ran(job_on(parts, mini.http, cluster={}), beside, tmp_path / "rest", resume=find(half.url))
    assert ran.local_share() >= 0.95
    assert sorted(ran.manifest()["deals"]["data"]) == list(range(N_FILES))
    cursors = ran.manifest()["groups"]["0"]["cursors"]["train"]["data"]
    assert cursors["samples_seen"] == N_FILES * N_RECORDS
    assert len(json.dumps(cursors)) < 300
    assert rest.manifest()["deals"] == half.manifest()["deals"] == ran.manifest()["deals"]
    losses = {**half.losses(), **rest.losses()}
    assert list(losses) == list(ran.losses())
    np.testing.assert_allclose(list(losses.values()), list(ran.losses().values()), rtol=1e-3)


@pytest.mark.long
def test_without_names_a_job_runs_all_the_same(parts: str, mini: MiniHdfs, tmp_path: Path) -> None:
    with local_cluster(1, 3, processes=False) as client:
        here = {"nworkers_per_group": 2, "nworkers_per_procs": 2}
        job = job_on(parts, mini.http, cluster=here, train_steps=5)
        strangers = Ran(job, client, tmp_path / "strangers")
        # nobody listens there
        untold = Ran(job_on(parts, "http://127.0.0.1:9", cluster={}, train_steps=5), client, tmp_path / "untold")
    assert strangers.local_share() == untold.local_share() == 0.0
    assert strangers.manifest()["deals"] == untold.manifest()["deals"] == {}
    notes = [event["message"] for event in untold.events if event["event"] == "log" and event["unit"] == "driver"]
    assert notes == ["layer data: the filesystem does not report which hosts store the records"]
