"""Records, checkpoints and whole jobs on a real HDFS: the same as on a local disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.conf import JobConf
from singa_dask.data.stores import STORES, open_store
from singa_dask.runtime import plan_processes
from singa_dask.runtime.checkpoints.lookup import find, load_values
from singa_dask.runtime.job.client.job_cluster import embedded_cluster
from tests.contracts.records import SUFFIX, assert_same, pixels, read_all
from tests.runtime.harness import SINGLE, mlp
from tests.runtime.processes import driver_of
from tests.selection import mostly_soak

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "data/digits/test.arrow"
# in one process: several are in test_cli
TOGETHER = {"nworkers_per_group": 2, "nworkers_per_procs": 2}

pytestmark = pytest.mark.long


@pytest.fixture
def digits(folder: str) -> str:
    """Put the digits that are checked in on HDFS."""
    url = fs.join(folder, "test.arrow")
    fs.write_atomic(url, DIGITS.read_bytes())
    return url


@pytest.mark.parametrize("backend", mostly_soak(["arrow", "csv", "kvfile"], 2))
def test_stores_hold_the_same_as_local_ones(folder: str, tmp_path: Path, backend: str) -> None:
    records = pixels(3000, (1000,))
    urls = [fs.join(place, f"records{SUFFIX[backend]}") for place in (str(tmp_path), folder)]
    for url in urls:
        STORES.find(backend).write(url, records)
    with open_store(urls[0]) as here, open_store(urls[1]) as there:
        assert len(there.blocks) > 2
        assert there.fingerprint == here.fingerprint
        assert_same(read_all(there), read_all(here))


class Ran:
    """A job, run on a cluster of its size, with its run directory at ``url``."""

    def __init__(self, job: JobConf, url: str, resume: str | None = None) -> None:
        self.url, self.events = url, list[dict[str, Any]]()
        fs.makedirs(url)
        with embedded_cluster(plan_processes(job.cluster)) as client:
            driver = driver_of(job, client, run_url=url, on_event=self.events.append, job_id="hdfs", resume=resume)
            self.result = driver.run()
        assert self.result.state == "done", self.result

    def losses(self) -> dict[int, float]:
        """Return the loss of each step."""
        told = [event for event in self.events if event["event"] == "metrics" and event["phase"] == "train"]
        return {event["step"]: event["loss"] for event in told}

    def values(self) -> dict[str, np.ndarray]:
        """Return the params in the last checkpoint."""
        return {name: stored.values for name, stored in load_values(self.url).items()}


def on(path: str, cluster: dict[str, Any], **changes: Any) -> JobConf:
    """Return the small job on the records at a path."""
    job = mlp(cluster=cluster, **changes).model_dump(mode="json")
    job["neuralnet"]["layer"][0]["store_conf"]["path"] = path
    return JobConf.model_validate(job)


def check_alike(folder: str, tmp_path: Path, cluster: dict[str, Any]) -> None:
    """Check that a job is the same from HDFS, with its run directory there, as from a local file."""
    digits = fs.join(folder, "test.arrow")
    fs.write_atomic(digits, DIGITS.read_bytes())
    local = Ran(on(str(DIGITS), cluster), str(tmp_path / "run"))
    remote = Ran(on(digits, cluster), fs.join(folder, "run"))
    assert list(local.losses()) == list(range(10))
    assert remote.losses() == local.losses()
    here, there = local.values(), remote.values()
    assert all(np.array_equal(here[name], there[name]) for name in here)


@pytest.mark.cluster
def test_a_job_of_two_workers_is_the_same_as_from_a_local_file(folder: str, tmp_path: Path) -> None:
    check_alike(folder, tmp_path, TOGETHER)


@pytest.mark.cluster
def test_a_job_goes_on_from_a_checkpoint_on_hdfs(folder: str, digits: str) -> None:
    whole = Ran(on(digits, SINGLE, train_steps=10), fs.join(folder, "whole"))
    first = Ran(on(digits, SINGLE, train_steps=6), fs.join(folder, "first"))
    step = find(first.url)
    assert step == fs.join(first.url, "checkpoint", "step-6")
    assert fs.ls(step) == ["manifest.json", "part-0-of-1.safetensors"]
    rest = Ran(on(digits, SINGLE, train_steps=10), fs.join(folder, "rest"), resume=step)
    assert {**first.losses(), **rest.losses()} == whole.losses()
    values, expected = rest.values(), whole.values()
    assert all(np.array_equal(values[name], expected[name]) for name in expected)
