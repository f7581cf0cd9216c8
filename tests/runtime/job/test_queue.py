"""Queued jobs on a real cluster."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import Client

from singa_dask.errors import ClusterError, LeftQueueError
from singa_dask.runtime.job.driver.follower import Follower
from singa_dask.runtime.job.limits import LIMITS
from singa_dask.runtime.job.names import JOBS
from tests.runtime.job.test_detached import arguments, ask, detach, driver_pid, facts_of, has_ended
from tests.runtime.processes import ROOT, Driven, digits, driver_of, long, program, small_cluster, wait_until

pytestmark = pytest.mark.cluster


def queued(dask_scheduler: Any) -> list[str]:
    """Return the names of the run directories of the queued jobs, in order."""
    plugin = dask_scheduler.plugins[JOBS]
    return [Path(facts.run_url).name for facts in plugin.queue.facts().values()]


def in_line(client: Client, *names: str) -> None:
    wait_until(lambda: ask(client, queued) == list(names), f"queued: {names}")


def of_line(prefix: str, dask_scheduler: Any) -> list[str]:
    """Return the clients of drivers that the scheduler has."""
    return [each for each in dask_scheduler.clients if prefix in each]


def peers(dask_scheduler: Any) -> list[int]:
    """Return the ports from which other processes are connected to the scheduler."""
    connections = psutil.Process().net_connections("tcp")
    listening = {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}
    own = {each.laddr.port for each in connections}
    return [e.raddr.port for e in connections if e.raddr and e.laddr.port in listening and e.raddr.port not in own]


def ports() -> list[int]:
    """Return the ports of the connections of this process and of the one that has started it, a nanny or a shell."""
    processes = [psutil.Process(), psutil.Process().parent()]
    return [each.laddr.port for process in processes if process for each in process.net_connections("tcp")]


def strangers(client: Client) -> set[int]:
    """Return the ports from which others than this process and the Dask workers are connected to the scheduler."""
    connected = set(ask(client, peers))
    return connected.difference(ports(), *client.run(ports).values())


def n_drivers() -> int:
    """Return the number of threads of drivers in this process."""
    return sum(thread.name.startswith("driver-") for thread in threading.enumerate())


def began(job_id: str, dask_scheduler: Any) -> float:
    return float(facts_of(job_id, dask_scheduler)["began"])


@pytest.mark.long
def test_jobs_start_in_order_and_priority_goes_first(client: Client, tmp_path: Path) -> None:
    ids: dict[str, str] = {}

    def start_others(driven: Driven, event: dict[str, Any]) -> None:
        for name, priority in (("second", 0), ("lost", 0), ("third", 0), ("first", 1)):
            ids[name] = detach(client, tmp_path / name, "--queue", "--priority", str(priority), steps=20)
        in_line(client, "first", "second", "lost", "third")
        for verb in (["list"], ["view", ids["second"]]):
            asked = program(*verb, "--scheduler", client.scheduler.address)
            shown = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
            assert "queued, place 2" in shown.stdout
            assert ("queued, place 1, priority 1" in shown.stdout) == (verb == ["list"])
        stop = program("stop", ids["lost"], "--scheduler", client.scheduler.address)
        done = subprocess.run(stop, cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stderr == f"{ids['lost']} leaves the queue.\n"
        in_line(client, "first", "second", "third")
        # nothing of them is anywhere but on the scheduler
        assert [ask(client, driver_pid, ids[name]) for name in ("first", "second", "third")] == ["", "", ""]
        assert ask(client, of_line, "driver-") == []
        assert sum(client.run(n_drivers).values()) == 0
        wait_until(lambda: not strangers(client), "the scheduler has no connection for them")
        with pytest.raises(ClusterError):
            Driven(digits("single"), client, tmp_path)
        driven.driver.stop()

    Driven(long("allreduce"), client, tmp_path, start_others)
    for job_id in ids.values():
        wait_until(lambda job_id=job_id: ask(client, has_ended, job_id), job_id)  # type: ignore[misc]
    order = sorted((ask(client, began, ids[name]), name) for name in ("first", "second", "third"))
    states = {name: ask(client, facts_of, job_id) for name, job_id in ids.items()}
    assert {name: facts["state"] for name, facts in states.items()} == {
        "first": "done", "second": "done", "third": "done", "lost": "stopped",
    }  # fmt: skip
    assert states["lost"]["reason"].startswith("stopped by ")
    assert not (tmp_path / "lost/job.yaml").exists()
    # the time that a job waits is not of its run
    assert [name for _, name in order] == ["first", "second", "third"]


def wait_for_lost_clients(time: str) -> None:
    """Set in the process of the scheduler how long a client may be lost."""
    dask.config.set({"distributed.singa-dask.client": time})


@pytest.fixture
def impatient(client: Client) -> Iterator[None]:
    """Give up lost clients after 3 s."""
    client.run_on_scheduler(wait_for_lost_clients, "3s")
    yield
    client.run_on_scheduler(wait_for_lost_clients, LIMITS["client"].default)


@pytest.mark.long
@pytest.mark.usefixtures("impatient")
def test_a_client_that_is_lost_in_line_lets_the_next_one_start(client: Client, tmp_path: Path) -> None:
    def start_others(driven: Driven, event: dict[str, Any]) -> None:
        lost = subprocess.Popen(
            program(*arguments(client, tmp_path / "lost", "--queue", "--priority", "1")),
            cwd=ROOT,
            stderr=subprocess.PIPE,
        )
        in_line(client, "lost")
        ids.append(detach(client, tmp_path / "next", "--queue", steps=20))
        in_line(client, "lost", "next")
        lost.kill()
        lost.communicate()
        in_line(client, "next")
        driven.driver.stop()

    ids: list[str] = []
    Driven(long("allreduce"), client, tmp_path, start_others)
    wait_until(lambda: ask(client, has_ended, ids[0]), "the next job has ended")
    assert ask(client, facts_of, ids[0])["state"] == "done"


@contextmanager
def followed(client: Client, job_id: str) -> Iterator[list[Any]]:
    """Follow a job: give its events, the last one too when the block has ended."""
    events: list[Any] = []

    def follow() -> None:
        with Client(client.scheduler.address, set_as_default=False) as other:
            follower = Follower(other, job_id, events.append)
            events.append(follower.follow())

    thread = threading.Thread(target=follow, name="follower")
    thread.start()
    yield events
    thread.join()


@pytest.mark.long
def test_those_who_follow_a_job_in_line_hear_of_its_start(client: Client, tmp_path: Path) -> None:
    states: list[str] = []
    url = str(tmp_path / "waits")

    def wait(driven: Driven, event: dict[str, Any]) -> None:
        thread.start()
        in_line(client, "waits")
        events.append(stack.enter_context(followed(client, "waits")))
        driven.driver.stop()

    def run_next() -> None:
        with Client(client.scheduler.address, set_as_default=False) as other:
            job = digits("allreduce", "train_steps=3")
            driver = driver_of(job, other, run_url=url, on_event=lambda event: None, job_id="waits", queue=True)
            states.append(driver.run().state)

    events: list[list[Any]] = []
    thread = threading.Thread(target=run_next, name="next")
    with ExitStack() as stack:
        Driven(long("allreduce"), client, tmp_path, wait)
    thread.join()
    assert states == ["done"]
    assert events[0][0]["event"] == "placed"
    assert events[0][-1].is_heard


def test_ctrl_c_leaves_the_line(client: Client, tmp_path: Path) -> None:
    said: list[str] = []
    seen: list[list[Any]] = []

    def wait_and_leave(driven: Driven, event: dict[str, Any]) -> None:
        def on_event(event: dict[str, Any]) -> None:
            said.append(event["message"])
            seen.append(stack.enter_context(followed(client, "waits")))
            driver.stop("SIGINT")

        url = str(tmp_path / "waits")
        driver = driver_of(digits("allreduce"), client, run_url=url, on_event=on_event, job_id="waits", queue=True)
        with pytest.raises(LeftQueueError) as caught:
            driver.run()
        assert caught.value.exit_code == 130
        assert ask(client, queued) == []
        driven.driver.stop()

    with ExitStack() as stack:
        assert Driven(long("allreduce"), client, tmp_path, wait_and_leave).result.state == "stopped"
    ((over,),) = seen
    assert over.reason == "the scheduler does not know the job any more."
    assert said[0].startswith("first in the queue: ")
    assert "0 of 2" in said[0]
    assert ask(client, facts_of, "waits")["ended"] <= time.time()


def test_a_job_in_line_keeps_its_scheduler_alive(tmp_path: Path) -> None:
    """Dask's ``idle-timeout`` counts tasks, and a queued job has none."""
    with small_cluster(1, 1) as cluster, Client(cluster, set_as_default=False) as client:

        def look(event: dict[str, Any]) -> None:
            scheduler = cluster.scheduler
            scheduler.idle_since = time.time() - 3600
            wait_until(lambda: scheduler.idle_since is None, "the scheduler is not idle", timeout_s=20)
            driver.stop()

        driver = driver_of(
            digits("allreduce"), client, run_url=str(tmp_path), on_event=look, job_id="waits", queue=True
        )
        with pytest.raises(LeftQueueError):
            driver.run()
