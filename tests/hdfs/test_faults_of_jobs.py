"""Whole jobs on two Dask workers, with records and checkpoints on a real HDFS that breaks in mid-epoch."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client

from singa_dask import fs
from singa_dask.conf import JobConf
from singa_dask.data.stores.arrow.arrow import ArrowStore
from singa_dask.errors import DataError
from singa_dask.fs.range_reader import RangeReader
from singa_dask.runtime import Patience, connect
from singa_dask.runtime.checkpoints.lookup import load_values
from tests.contracts.records import pixels
from tests.data.loading.test_full_cache_disk import UNSHARE, can_mount
from tests.hdfs import strikes  # noqa: F401  registers its layer
from tests.hdfs.cluster import READY_WITHIN_S
from tests.hdfs.conftest import start_or_skip
from tests.hdfs.pair import HdfsPair
from tests.runtime.harness import ALLREDUCE, dense, mlp
from tests.runtime.processes import TIMEOUT_S, Cluster, driver_of, wait_until
from tests.selection import mostly_soak

pytestmark = pytest.mark.cluster

# an epoch is 120 steps, of which workers read some 30 ahead
N, BATCH, STEPS, FAULT, ANSWER = 12000, 100, 150, 40, 60
DISK = "mount -t tmpfs -o size=3m tmpfs {0}"


class Hosts(Cluster):
    """Two Dask workers, with a disk of 3 MB for each at ``disk`` where a user may mount one."""

    def __init__(self, directory: Path) -> None:
        self.disk = directory / "disk"
        self.disk.mkdir()
        if can_mount():
            script = f'{DISK.format(self.disk)} && exec "$@"'
            self.before_worker = (*UNSHARE, "sh", "-c", script, "sh")
        super().__init__(directory, "--no-nanny", "--preload", "tests.hdfs.strikes")


class World:
    """An HDFS of two NameNodes and two DataNodes that holds records, and two Dask workers."""

    def __init__(self, pair: HdfsPair, hosts: Hosts, client: Client) -> None:
        self.pair, self.hosts, self.client = pair, hosts, client
        self.records = f"{pair.url}/records.arrow"
        ArrowStore.write(self.records, pixels(N, (1000,)), block_bytes=100_000)
        # nothing happens to it
        self.calm = Ran(self, "calm")

    def job(self, commands: Mapping[str, str], **store: Any) -> JobConf:
        """Return a job with a step for each 100 records, and commands that workers run at step `FAULT`."""
        keys = {"path": self.records, "backend": "arrow", "shape": [1000], "batchsize": BATCH, "std_value": 255}
        layers = [
            {"name": "data", "type": "RecordInput",
             "store_conf": {**keys, "shuffle": "block", "in_flight_mb": 1, **store}},
            {"name": "strike", "type": "Strike", "srclayers": ["data"],
             "user_conf": {"step": FAULT, "commands": dict(commands)}},
            dense("fc", "strike", 10),
            {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["fc", "data"]},
        ]  # fmt: skip
        return mlp(train_steps=STEPS, checkpoint_freq=50, cluster=ALLREDUCE, neuralnet={"layer": layers})


class Ran:
    """A job that has run; ``answer`` is called in another thread once step `ANSWER` is done."""

    def __init__(
        self,
        world: World,
        name: str,
        commands: Mapping[str, str] | None = None,
        answer: Callable[[], None] | None = None,
        **store: Any,
    ) -> None:
        self.url = f"{world.pair.url}/{name}"
        fs.makedirs(self.url)
        self.events: list[dict[str, Any]] = []
        self._helpers: list[threading.Thread] = []
        self._answer = answer
        job = world.job(commands or {}, **store)
        try:
            driver = driver_of(job, world.client, run_url=self.url, on_event=self._see, job_id=name)
            self.result = driver.run()
        finally:
            for helper in self._helpers:
                helper.join()

    def _see(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if self._answer and event["event"] == "metrics" and event["step"] >= ANSWER:
            self._helpers.append(threading.Thread(target=self._answer))
            self._answer = None
            self._helpers[0].start()

    def metrics(self) -> dict[int, dict[str, float]]:
        """Return the metrics of each step."""
        shown = [event for event in self.events if event["event"] == "metrics"]
        return {event["step"]: {name: event[name] for name in ("loss", "accuracy")} for event in shown}

    def longest_step_s(self) -> float:
        """Return the longest time between the ends of two steps, as the workers measured it."""
        return float(max(np.diff([event["time"] for event in self.events if event["event"] == "metrics"])))

    def messages(self) -> list[str]:
        return [event["message"] for event in self.events if "message" in event]


@pytest.fixture(scope="module")
def _world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("faults")
    made = start_or_skip(lambda: HdfsPair(folder / "pair", ("node-a", "node-b")))
    with made as pair, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CONF_DIR", str(folder / "pair" / "conf"))
        hosts = Hosts(folder)
        try:
            with connect(scheduler_file=hosts.file, patience=Patience(TIMEOUT_S)) as client:
                client.wait_for_workers(2, timeout=TIMEOUT_S)
                yield World(pair, hosts, client)
        finally:
            hosts.close()


@pytest.fixture
def world(_world: World) -> Iterator[World]:
    yield _world
    _world.pair.restart_killed()
    wait_until(_world.pair.is_ready, "what the test killed is there again", READY_WITHIN_S)


def check(ran: Ran, world: World, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a job is done, and did what a calm one does bit by bit: it read the same records in each step."""
    calm = world.calm
    assert (ran.result.state, ran.result.restarts) == ("done", 0), ran.result
    assert list(ran.metrics()) == list(range(STEPS))
    assert ran.metrics() == calm.metrics()
    found, wanted = load_values(ran.url), load_values(calm.url)
    assert found.keys() == wanted.keys()
    assert all(found[name].values.tobytes() == wanted[name].values.tobytes() for name in wanted)
    with capsys.disabled():
        print(f"\n{fault}: longest step {ran.longest_step_s():.2f} s (calm {calm.longest_step_s():.2f} s)")


def strike(world: World, server: str, number: signal.Signals, answer: Callable[[], None] | None = None) -> Ran:
    """Run a job whose first worker sends a signal to a server of the HDFS in mid-epoch."""
    process = world.pair.java_of(server)
    ran = Ran(world, f"{server}-{number.name}", {"0": f"kill -{int(number)} {process.pid}"}, answer)
    assert not process.is_running() or process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED)
    return ran


@pytest.mark.soak
def test_a_datanode_is_killed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    ran = strike(world, "node-b", signal.SIGKILL)
    world.pair.kill("node-b")
    check(ran, world, "DataNode killed", capsys)


@pytest.mark.soak
def test_a_datanode_is_stopped(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    ran = strike(world, "node-b", signal.SIGSTOP)
    world.pair.stop("node-b")
    check(ran, world, "DataNode stopped", capsys)


@pytest.mark.soak
@pytest.mark.parametrize("number", mostly_soak([signal.SIGKILL, signal.SIGSTOP], 2))
def test_a_namenode_fails_over(world: World, number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    # the checkpoint of step 50 is due before another NameNode takes over
    ran = strike(world, world.pair.active, number, world.pair.fail_over)
    check(ran, world, f"NameNode, {number.name}", capsys)
    assert [event["step"] for event in ran.events if event["event"] == "checkpoint"][-1] == STEPS


@pytest.mark.soak
def test_a_namenode_that_hangs_is_said_within_the_deadline(world: World) -> None:
    pair, url = world.pair, f"{world.pair.url}/hung"
    data = os.urandom(3 << 20)
    fs.write_atomic(url, data)
    reader = RangeReader(url)
    pair.stop(pair.active)
    # the places of the blocks are known already
    assert bytes(reader.read(0, len(data))) == data
    with pytest.raises(DataError, match=rf"^{url}: no answer within 2 s. Is the NameNode of {pair.url} up"):
        fs.read_bytes(url, storage_options={"deadline_s": 2})
    pair.fail_over()
    assert fs.read_bytes(url, storage_options={"deadline_s": 20}) == data
    fs.write_atomic(url, data[:100])
    assert fs.read_bytes(url) == data[:100]


@pytest.mark.soak
@pytest.mark.skipif(not can_mount(), reason="this user may not mount a file system")
def test_the_disk_of_the_cache_is_full(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    disk = world.hosts.disk
    fill = f"head -c 9m /dev/zero > {disk}/filler; ls {disk}/cache/entries > {disk}/held"
    ran = Ran(world, "full", {"0": fill, "1": fill}, cache={"dir": str(disk / "cache"), "limit_gb": 1})
    check(ran, world, "disk of the cache full", capsys)
    assert any("cannot write to the cache: No space left on device" in each for each in ran.messages()), ran.messages()
