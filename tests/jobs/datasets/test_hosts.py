"""Datasets of jobs on a real cluster: part files on the hosts of Dask workers, over TLS."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, Event, Worker, wait
from distributed.security import Security

import singa_dask as sd
from singa_dask.data.stores.detection import HEAD_BYTES
from singa_dask.errors import ClusterError, ConfigError, DataError, LostUnitError, UnitError
from singa_dask.fs import host_files
from singa_dask.fs.host_files import Catalog, PartFile
from singa_dask.fs.range_reader import MIN_CACHED_BYTES
from singa_dask.jobs.datasets import hosts
from singa_dask.jobs.datasets.hosts import drop_from_hosts, write_on_hosts
from singa_dask.jobs.datasets.making import as_dataset
from singa_dask.runtime.checkpoints.lookup import load_values
from singa_dask.runtime.job.dask_worker import part_files
from singa_dask.runtime.job.dask_worker.part_files import part_folders
from tests.jobs.conftest import KEYS
from tests.runtime.processes import small_cluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long]

N, PARTS = 400, 4


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Start a cluster of two processes that talk TLS; a nanny starts a lost one again."""
    security = Security.temporary()
    scratch = str(tmp_path_factory.mktemp("scratch"))
    with (
        small_cluster(2, 2, processes=True, protocol="tls://", security=security, local_directory=scratch) as cluster,
        Client(cluster, security=security, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(N, 200)).astype(np.float32), generator.integers(0, 3, N)


@pytest.fixture
def published(client: Client, arrays: tuple[np.ndarray, np.ndarray]) -> Iterator[None]:
    """Publish the arrays in four partitions, in the memory of the Dask workers."""
    x, y = arrays
    value = client.persist((da.from_array(x, chunks=(N // PARTS, -1)), da.from_array(y, chunks=N // PARTS)))
    client.publish_dataset(value, name="train")
    yield
    client.unpublish_dataset("train")
    del value
    wait_until(lambda: not any(client.run(files_here).values()), "the part files are deleted")


def job_of(path: str, shuffle: str = "block", **keys: Any) -> sd.Job:
    records = {"path": path, "shape": [200], "batchsize": 16, "shuffle": shuffle}
    net = sd.Net(
        [
            sd.layer("RecordInput", name="data", store_conf=records),
            sd.layer("InnerProduct", name="fc", num_output=3),
            sd.layer("SoftmaxLoss", srclayers=["fc", "data"]),
        ]
    )
    two = {"nworkers_per_group": 2, "nworkers_per_procs": 1}
    return sd.Job(net, **{"train_steps": 30, "disp_freq": 10, "cluster": two, **KEYS, **keys})


def values_of(run: sd.Run) -> dict[str, bytes]:
    found = {name: stored.values.tobytes() for name, stored in load_values(run.url).items()}
    assert found
    return found


def files_here(dask_worker: Worker) -> list[str]:
    """Return the part files on the host of a Dask worker."""
    return sorted(path.name for path in part_folders(dask_worker).root.glob("*/part-*"))


def be_a_host_of_its_own(dask_worker: Worker) -> None:
    """Let a Dask worker take itself for a host, named as the worker, and count what it reads of others."""
    fetch = part_files.PartFiles.fetch

    def counted(self: Any, catalog: Catalog, file: PartFile, offset: int, length: int) -> bytes:
        dask_worker.fetched.append((file.name, offset, length))  # type: ignore[attr-defined]
        return fetch(self, catalog, file, offset, length)

    dask_worker.fetched = []  # type: ignore[attr-defined]
    dask_worker.kept = fetch, host_files._is_here  # type: ignore[attr-defined]
    part_files.PartFiles.fetch = counted  # type: ignore[method-assign]
    host_files._is_here = lambda file: file.worker == dask_worker.address
    hosts.get_address_host = lambda _: str(dask_worker.name)  # type: ignore[assignment]


def test_a_published_dataset_trains_to_the_bits_of_its_files(
    client: Client, published: None, arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    seen: list[list[str]] = []

    def look(event: Any) -> None:
        if event["event"] == "started":
            seen.append(client.run(files_here).popitem()[1])

    given = {"client": client, "progress": False}
    run = sd.train(job_of("dask://train"), run_dir=str(tmp_path / "run"), on_event=look, **given)
    assert seen == [[f"part-{i:05d}.arrow" for i in range(PARTS)]]
    dataset = as_dataset("train", arrays)
    for i, rows in enumerate(np.split(np.arange(N), PARTS)):
        (tmp_path / "files").mkdir(exist_ok=True)
        dataset.write_part(tuple(each[rows] for each in arrays), str(tmp_path / "files" / f"part-{i}.arrow"), i)
    other = sd.train(job_of(f"{tmp_path}/files/part-*.arrow"), run_dir=str(tmp_path / "other"), **given)
    assert values_of(run) == values_of(other)
    assert "dask://train'" in (tmp_path / "run" / "job.yaml").read_text()


def test_data_that_are_being_computed_do_not_take_the_threads_of_the_job(client: Client, tmp_path: Path) -> None:
    goes_on = Event("the data may be computed", client=client)

    def compute(block: np.ndarray) -> np.ndarray:
        Event("the data may be computed").wait()
        return block

    x = da.ones((N, 200), chunks=(N // PARTS, -1), dtype=np.float32).map_blocks(compute, dtype=np.float32)
    client.publish_dataset(client.persist((x, da.zeros(N, chunks=N // PARTS, dtype=np.int32))), name="train")
    try:
        wait_until(lambda: sum(map(len, client.processing().values())) >= PARTS, "all threads compute the data")
        threading.Timer(0.5, goes_on.set).start()
        run = sd.train(job_of("dask://train"), client=client, run_dir=str(tmp_path / "run"), progress=False)
        assert run.state == "done"
    finally:
        goes_on.set()
        client.unpublish_dataset("train")
    wait_until(lambda: not any(client.run(files_here).values()), "the part files are deleted")


def test_a_lost_process_goes_on_with_the_files(client: Client, published: None, tmp_path: Path) -> None:
    events: list[str] = []
    goes_on = threading.Event()

    def watch(event: Any) -> None:
        events.append(event["event"])
        if event["event"] == "metrics" and events.count("metrics") == 1:
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        if event["event"] == "metrics" and "restart" in events:
            goes_on.set()

    endless = job_of("dask://train", train_steps=10_000_000)
    run = sd.start(endless, client=client, run_dir=str(tmp_path / "run"), on_event=watch, progress=False)
    assert goes_on.wait(240), events
    run.stop()
    result = run.wait()
    assert result is not None
    assert (result.state, result.restarts >= 1) == ("stopped", True)


def test_errors_of_datasets(client: Client, published: None, tmp_path: Path) -> None:
    given: dict[str, Any] = {"client": client, "progress": False, "run_dir": str(tmp_path / "run")}
    with pytest.raises(ConfigError, match=r"dask://other: no data .* Published there: train\."):
        sd.train(job_of("dask://other"), **given)
    with pytest.raises(ClusterError, match="threads"):
        sd.train(job_of("dask://train", cluster={"nworker_groups": 99}), **given)
    client.publish_dataset(da.full((8, 2), np.nan, chunks=(4, 2)), name="wrong")
    with pytest.raises(DataError, match=r"dataset 'wrong', partition [01], X, record 0\[0\]: nan, expected"):
        sd.train(job_of("dask://wrong"), **given)
    client.unpublish_dataset("wrong")

    def delete(event: Any) -> None:
        if event["event"] == "started":
            client.run(delete_a_part)

    with pytest.raises(UnitError, match=r"part-00002\.arrow: a part of dataset 'train' on host 127\.0\.0\.1"):
        sd.train(job_of("dask://train"), on_event=delete, **given)


def set_allowed_failures(n: int, dask_scheduler: Any) -> int:
    before: int = dask_scheduler.allowed_failures
    dask_scheduler.allowed_failures = n
    return before


def test_data_that_kill_their_process_are_no_bug_of_ours(client: Client) -> None:
    deadly = da.from_array(np.zeros((8, 2)), chunks=(8, 2)).map_blocks(lambda _: os._exit(1), meta=np.empty((0, 2)))
    before = client.run_on_scheduler(set_allowed_failures, 0)
    try:
        with pytest.raises(LostUnitError, match="Dask workers were lost"):
            write_on_hosts(as_dataset("train", deadly), client)
    finally:
        client.run_on_scheduler(set_allowed_failures, before)
    wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 2, "its nanny has started it again")


def delete_a_part(dask_worker: Worker) -> None:
    for path in part_folders(dask_worker).root.glob("*/part-00002.arrow"):
        path.unlink(missing_ok=True)


def test_parts_of_other_hosts_are_read_from_there_once(client: Client, published: None, tmp_path: Path) -> None:
    """Runs last: the processes take themselves for hosts."""
    # more than an epoch
    job = job_of("dask://train", "full")
    whole = sd.train(job, client=client, run_dir=str(tmp_path / "a"), progress=False)
    assert whole.summary["bytes"]["remote"] == 0
    client.run(be_a_host_of_its_own)
    apart = sd.train(job, client=client, run_dir=str(tmp_path / "b"), progress=False)
    assert values_of(whole) == values_of(apart)
    found = [each for fetched in client.run(fetched_by).values() for each in fetched if each[2] >= MIN_CACHED_BYTES]
    # beside the beginnings of files, of which the driver sees what they are
    fetched = [each for each in found if each[1:] != (0, HEAD_BYTES)]
    assert fetched
    assert len(fetched) == len(set(fetched))


def test_each_partition_is_written_once_where_it_is(client: Client, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    """After the one above: the processes are named as hosts."""
    x, _ = arrays
    for kind in ("array", "frame"):
        lazy = da.from_array(x, chunks=(N // PARTS, -1))
        value = client.persist(
            lazy if kind == "array" else lazy.to_dask_dataframe(columns=[f"x{i}" for i in range(200)])
        )
        with client.as_current():
            wait(value)
        held = {key: list(workers) for key, workers in client.who_has(value).items()}
        before = sum(client.run(bytes_received).values())
        catalog = write_on_hosts(as_dataset("train", value), client)
        assert {file.host for file in catalog.files} == {"0", "1"}
        assert [[file.worker] for file in catalog.files] == [held[key] for key in sorted(held)]
        assert [file.n for file in catalog.files] == [N // PARTS] * PARTS
        assert sum(client.run(bytes_received).values()) == before
        size = sum(sum(sizes.values()) for sizes in client.run(sizes_here).values()) / 2
        assert x.nbytes <= size == sum(file.size for file in catalog.files) < 2 * x.nbytes
        drop_from_hosts(client, [catalog])


def bytes_received(dask_worker: Worker) -> int:
    """Return the bytes of partitions that a Dask worker has got from others."""
    return sum(each["total"] for each in dask_worker.transfer_incoming_log)


def sizes_here(dask_worker: Worker) -> dict[str, int]:
    """Return the sizes of the part files of both Dask workers, which share a directory."""
    return {path.name: path.stat().st_size for path in part_folders(dask_worker).root.glob("*/part-*")}


def fetched_by(dask_worker: Worker) -> list[tuple[str, int, int]]:
    """Return the ranges that a Dask worker has read of other hosts."""
    return list(dask_worker.fetched)  # type: ignore[attr-defined]
