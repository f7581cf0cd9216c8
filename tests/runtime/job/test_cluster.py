"""Jobs on a real scheduler and real worker processes over TCP: every framework, every end, and nothing left behind."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import signal
import subprocess
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.system import cpu_count
from distributed import Client, Event, Worker, secede, worker_client
from distributed.security import Security

from singa_dask.conf import JobConf
from singa_dask.errors import ClusterError, DataError
from singa_dask.runtime import Patience, RemoteJobs, plan_processes, wait_for_room
from singa_dask.runtime.checkpoints.lookup import load_values
from singa_dask.runtime.job import dask_tasks
from singa_dask.runtime.job.calls import present_workers
from singa_dask.runtime.job.client.cluster import local_cluster
from singa_dask.runtime.job.client.job_cluster import embedded_cluster, install_jobs
from singa_dask.runtime.job.dask_worker.site import Site
from singa_dask.runtime.job.limits import LIMITS, Limit
from singa_dask.runtime.job.names import JOBS, SITE
from tests.runtime.harness import ALLREDUCE, SINGLE, mlp
from tests.runtime.processes import (
    FRAMEWORKS,
    ROOT,
    Driven,
    check_gone,
    cluster,
    digits,
    driver_of,
    kill_worker,
    long,
    program,
    residue,
    small_cluster,
    wait_until,
)
from tests.runtime.units.test_ends import with_trap
from tests.selection import circles, mostly_long, mostly_soak

pytestmark = pytest.mark.cluster


@pytest.mark.long
def test_a_task_moves_to_a_dask_worker_that_joins_after_the_preferred_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_tasks, "LOOK_S", 0.1)
    first = tmp_path / "first"

    def end_the_first_worker() -> str:
        if not first.exists():
            first.touch()
            os._exit(1)
        return "done"

    with local_cluster(1) as client:
        (worker,) = present_workers(client)
        assert list(dask_tasks.on_dask(client, (), [worker])([end_the_first_worker])) == ["done"]
        assert worker not in present_workers(client)


@pytest.mark.long
def test_a_part_of_a_snapshot_that_comes_after_the_end_does_not_stay(client: Client, tmp_path: Path) -> None:
    before, run = residue(client), Driven(digits("single"), client, tmp_path)
    assert run.result.state == "done"

    def keep_late(dask_worker: Worker) -> None:
        site = dask_worker.plugins[SITE]
        assert isinstance(site, Site)
        site.snapshots.store.put("late", "step-4/part-0-of-1.safetensors", 4, b"content", 0)

    client.run(keep_late)
    check_gone(client, before)


@pytest.mark.parametrize(
    "framework", circles(["allreduce", *sorted({*FRAMEWORKS} - {"allreduce"}, reverse=True)], long=2)
)
def test_every_framework_trains_twice_in_a_row(client: Client, tmp_path: Path, framework: str) -> None:
    before = residue(client)
    runs = []
    for _ in range(2):
        runs.append(Driven(digits(framework), client, tmp_path))
        assert runs[-1].result.state == "done", runs[-1].result
        assert runs[-1].result.steps == 30
        assert runs[-1].checkpoints() == [30]
        check_gone(client, before)
    first, second = (load_values(run.url) for run in runs)
    if digits(framework).cluster.nworker_groups == 1:
        assert all(np.array_equal(first[name].values, second[name].values) for name in first)
    traffic = runs[0].result.bytes
    assert (traffic["sent"] > 0) == (traffic["received"] > 0) == (framework != "single")


def test_processes_and_threads_and_fewer_processes_give_the_same_bits(
    client: Client, tmp_path: Path, run_job: Any
) -> None:
    job = mlp(cluster=ALLREDUCE)
    here = run_job(job).params()
    for n, elastic in ((2, {}), (1, {"elastic": {"max_processes": 1}})):
        driven = Driven(mlp(cluster={**ALLREDUCE, **elastic}), client, tmp_path)
        assert len(driven.result.topology["processes"]) == n
        there = load_values(driven.url)
        assert all(np.array_equal(there[name].values, here[name]) for name in here), n


@pytest.mark.long
@pytest.mark.parametrize(
    ("framework", "place"),
    # every framework, workers and servers alone and beside each other, the first process and the last
    mostly_soak(
        [
            ("single", 0),
            ("sandblaster", 0),
            ("sandblaster", -1),
            ("allreduce", 0),
            ("downpour", -1),
            ("hogwild", 0),
            ("hybrid", -1),
        ],
        6,
    ),
)
def test_a_killed_process_ends_a_job_without_restarts_and_the_next_one_runs(
    client: Client, tmp_path: Path, framework: str, place: int
) -> None:
    job = digits(framework, "train_steps=1000000", "disp_freq=1", "cluster.max_restarts=0")
    result = Driven(job, client, tmp_path, kill_worker(place)).result
    assert (result.state, result.exit_code, result.restarts) == ("failed", 4, 0), result
    assert result.error == ""
    lost = result.topology["processes"][place]
    assert f"Lost: {', '.join(lost)}." in result.reason
    assert f"Last step: {result.steps}." in result.reason
    wait_until(lambda: len(present_workers(client)) == 2, "the nanny has started a new worker")
    assert Driven(digits(framework), client, tmp_path).result.state == "done"


@pytest.mark.parametrize(
    ("cluster", "threads"), mostly_long([(ALLREDUCE, 0), (SINGLE, 0), (SINGLE, 1000), (SINGLE, 1)], 2)
)
def test_workers_share_the_cores_of_their_host(
    client: Client, tmp_path: Path, cluster: dict[str, Any], threads: int
) -> None:
    job = mlp(train_steps=1, cluster=cluster, threads=threads, neuralnet=with_trap(how="tell-threads"))
    driven = Driven(job, client, tmp_path)
    assert driven.result.state == "done", driven.result
    share = max(1, cpu_count() // (2 if cluster is ALLREDUCE else 1))
    expected = min(threads, share) if threads else share
    assert driven.result.threads == expected
    logged = [event for event in driven.events if event["event"] == "log" and event["unit"] == "worker-0-0"]
    said = {event["message"] for event in logged}
    assert f"computes with {driven.result.ops} on {expected} thread{'s' * (expected > 1)}" in said
    assert any("1000 is more than the worker's share" in line for line in said) == (threads == 1000)
    (told,) = [json.loads(line) for line in said if line.startswith("{")]
    assert told.pop("env") == "1"  # what the nanny has set
    assert set(told.values()) == {expected}
    assert ("openmp" in told) == (driven.result.ops == "onednn")


def test_an_exception_in_a_layer_ends_the_job_with_its_traceback(client: Client, tmp_path: Path) -> None:
    net = with_trap(how="raise", step=3, worker=1)
    driven = Driven(mlp(train_steps=100_000, neuralnet=net, cluster=ALLREDUCE), client, tmp_path)
    result = driven.result
    assert (result.state, result.exit_code, result.restarts) == ("failed", 1, 0)
    assert result.reason == "worker-0-1, step 3, layer trap: ZeroDivisionError: a mistake of the user"
    assert "in compute_feature" in result.error
    assert len([event for event in driven.events if event["event"] == "placed"]) == 1


def test_a_loss_that_is_no_number_has_its_own_code(client: Client, tmp_path: Path) -> None:
    net = with_trap(how="nan", step=3, worker=1)
    result = Driven(mlp(train_steps=100_000, neuralnet=net, cluster=ALLREDUCE), client, tmp_path).result
    assert (result.state, result.exit_code, result.error, result.restarts) == ("failed", 5, "", 0)
    assert result.reason.startswith("worker-0-1, step 3, layer loss: the loss is not finite.")


def test_records_that_a_worker_cannot_find_are_named(client: Client, tmp_path: Path) -> None:
    job = mlp(cluster=ALLREDUCE).model_dump(mode="json")
    job["neuralnet"]["layer"][0]["store_conf"]["path"] = str(tmp_path / "gone.arrow")
    with pytest.raises(DataError, match=r"gone\.arrow: the Dask worker tcp://[^ ]+ on [^ ]+ sees no such file"):
        _ = Driven(JobConf.model_validate(job), client, tmp_path).result


@pytest.mark.parametrize("framework", mostly_long(["allreduce", "single", "downpour"], 3))
def test_a_signal_stops_the_job_with_a_checkpoint(client: Client, tmp_path: Path, framework: str) -> None:
    stopped = Driven(long(framework), client, tmp_path, lambda driven, event: driven.driver.stop("SIGTERM"))
    result = stopped.result
    assert (result.state, result.exit_code, result.reason) == ("stopped", 143, "stopped by SIGTERM")
    (step,) = stopped.checkpoints()
    last = step + 5
    job, url = digits(framework, f"train_steps={last}"), f"{stopped.url}/checkpoint/step-{step}"
    more = Driven(job, client, tmp_path, resume=url)
    assert (more.result.state, more.result.steps) == ("done", max(last, result.steps))


def test_a_second_signal_ends_it_at_once(client: Client, tmp_path: Path) -> None:
    def twice(driven: Driven, event: dict[str, Any]) -> None:
        for _ in range(2):
            driven.driver.stop("SIGINT")

    result = Driven(long("allreduce"), client, tmp_path, twice).result
    assert (result.exit_code, result.reason) == (130, "aborted by a second SIGINT")


@pytest.mark.long
def test_the_driver_hears_of_steps_that_are_not_displayed(client: Client, tmp_path: Path) -> None:
    told: list[dict[str, int]] = []

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "steps":
            told.append(event["steps"])
            if len(told) == 2:
                driver.stop()

    job = digits("downpour", "train_steps=1000000", "disp_freq=0")
    driver = driver_of(job, client, run_url=str(tmp_path), on_event=on_event, job_id="steps")
    result = driver.run()
    assert result.state == "stopped"
    groups = {str(group) for group in range(job.cluster.nworker_groups)}
    assert set(told[1]) == groups
    assert all(step > told[0].get(group, 0) for group, step in told[1].items())
    # each group, at its end
    assert {group for steps in told[-len(groups) :] for group in steps} == groups
    assert max(step for steps in told for step in steps.values()) == result.steps


def test_a_job_that_does_not_fit_is_refused_with_the_numbers(client: Client, tmp_path: Path) -> None:
    job = mlp(cluster={"nworkers_per_group": 3, "nservers_per_group": 3})
    with pytest.raises(ClusterError, match=r"needs 3 Dask workers with 2 free threads each; 2 are ready"):
        Driven(job, client, tmp_path)


def test_so_is_one_that_another_job_leaves_no_room_for_or_has_the_id_of(client: Client, tmp_path: Path) -> None:
    refused: list[str] = []

    def start_others(driven: Driven, event: dict[str, Any]) -> None:
        for job, job_id in ((digits("allreduce"), "another"), (digits("single"), driven.job_id)):
            driver = driver_of(job, client, run_url=str(tmp_path), on_event=lambda event: None, job_id=job_id)
            with pytest.raises(ClusterError) as caught:
                driver.run()
            refused.append(str(caught.value))
        driven.driver.stop()

    first = Driven(long("single"), client, tmp_path, start_others)
    assert first.result.state == "stopped"
    assert "0 of 2" in refused[0]
    assert f"(2 by job {first.job_id})" in refused[0]
    assert first.job_id in refused[1]


@pytest.mark.long
def test_a_job_that_dask_starts_in_part_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks take the threads between the look at the cluster and the start."""
    monkeypatch.setitem(LIMITS, "start", Limit("all units have begun", "1s"))
    monkeypatch.setattr("singa_dask.runtime.job.driver.locality.place", lambda layout, workers: list(workers))
    monkeypatch.setattr("singa_dask.runtime.job.scheduler.jobs.place_again", lambda *args, **given: None)
    with embedded_cluster(plan_processes(digits("single").cluster)) as client:
        gate = Event("gate", client=client)
        others = [client.submit(wait_at, "gate", pure=False) for _ in range(2)]
        run = Driven(digits("single"), client, tmp_path)
        gate.set()
        assert all(client.gather(others))
    assert (run.result.state, run.result.exit_code) == ("failed", 3)
    assert "had not started these units after 1 s" in run.result.reason


def test_tasks_that_have_seceded_leave_their_threads_to_a_job(client: Client, tmp_path: Path) -> None:
    gate = Event("open", client=client)
    others = [client.submit(wait_beside, "open", pure=False) for _ in range(4)]

    def seceded() -> int:
        counts = [each["metrics"].get("task_counts", {}) for each in present_workers(client).values()]
        return sum(each.get("long-running", 0) for each in counts)

    wait_until(lambda: seceded() == 4, "all have seceded, and the scheduler knows")
    try:
        assert Driven(digits("allreduce"), client, tmp_path).result.state == "done"
    finally:
        gate.set()
        client.gather(others)


def wait_beside(name: str) -> bool:
    secede()
    return wait_at(name)


def wait_at(name: str) -> bool:
    with worker_client(separate_thread=False) as client:
        return bool(Event(name, client=client).wait(timeout=60))


@pytest.mark.long
def test_a_client_that_is_killed_leaves_a_checkpoint_and_nothing_else(client: Client, tmp_path: Path) -> None:
    before, jobs = residue(client), RemoteJobs(client)
    usual = client.run_on_scheduler(wait_for_clients, "0.5s")
    arguments = ["--scheduler", client.scheduler.address, "--run-dir", str(tmp_path / "run")]
    sets = ["--set", "train_steps=1000000", "--set", "disp_freq=1", "--cluster", "configs/cluster/allreduce.yaml"]
    command = program("run", "configs/digits/mlp.yaml", *arguments, *sets)
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if line.startswith("Train @ step"):
                run.kill()
    assert run.returncode == -signal.SIGKILL
    wait_until(lambda: jobs.rows()[0]["ended"] is not None, "the job has ended")
    assert jobs.rows()[0]["reason"] == "stopped by the loss of its client"
    assert list((tmp_path / "run/checkpoint").glob("step-*/manifest.json"))
    check_gone(client, before)
    client.run_on_scheduler(wait_for_clients, usual)
    assert Driven(digits("allreduce"), client, tmp_path).result.state == "done"


def wait_for_clients(seconds: str) -> str:
    """Set how long jobs wait for clients that are gone; return how long that was."""
    before = LIMITS["client"].default
    LIMITS["client"] = LIMITS["client"]._replace(default=seconds)
    return before


@pytest.mark.soak
def test_without_nannies_a_killed_process_ends_the_job_too(tmp_path: Path, tmp_path_factory: Any) -> None:
    directory = tmp_path_factory.mktemp("bare")
    with cluster(directory, "--no-nanny") as (_, client):
        job = digits("sandblaster", "train_steps=1000000", "disp_freq=1", "cluster.max_restarts=0")
        result = Driven(job, client, tmp_path, kill_worker(-1)).result
        assert (result.exit_code, result.state) == (4, "failed")
        assert "Lost: server-0-0, server-0-1." in result.reason
        with pytest.raises(ClusterError, match="1 is ready"):
            Driven(digits("allreduce"), client, tmp_path)
        assert Driven(digits("single"), client, tmp_path).result.state == "done"


@pytest.mark.soak
@pytest.mark.parametrize("closed", [False, True], ids=["at once", "given up"])
def test_a_lost_scheduler_ends_the_job(
    tmp_path: Path, tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    monkeypatch.setitem(LIMITS, "client", LIMITS["client"]._replace(default="4s"))

    def lose(driven: Driven, event: dict[str, Any]) -> None:
        made.scheduler.kill()
        if closed:
            wait_until(lambda: client.status == "closed", "the client has given up")

    with cluster(tmp_path_factory.mktemp("bare"), "--no-nanny") as (made, client):
        result = Driven(long("allreduce"), client, tmp_path, lose).result
    assert result.state == "failed"
    assert result.exit_code == 4
    assert "scheduler" in result.reason


def endpoint_of(job_id: str, dask_worker: Worker) -> str:
    site = dask_worker.plugins[SITE]
    assert isinstance(site, Site)
    (hosting,) = (each for each in site.hostings.values() if each.job_id == job_id)
    return hosting.address


def drop_client_certificate(dask_scheduler: Any = None, dask_worker: Any = None) -> None:
    security = (dask_scheduler or dask_worker).security
    security.tls_client_cert = security.tls_client_key = None


@contextlib.contextmanager
def over_tls(has_client_certificate: bool) -> Iterator[Client]:
    """Start a cluster over TLS; its own processes may have no certificate of a client, nor the client another one."""
    whole = Security.temporary()
    own = {name: getattr(whole, name) for name in ("tls_ca_file", "tls_client_cert", "tls_client_key")}
    client_only = Security(require_encryption=True, **own)
    with (
        small_cluster(2, 2, processes=True, protocol="tls://", security=whole) as there,
        Client(there.scheduler_address, security=client_only, set_as_default=False) as client,
    ):
        if not has_client_certificate:
            client.run(drop_client_certificate)
            client.run_on_scheduler(drop_client_certificate)
        yield client
        # `LocalCluster`, whose scheduler is in this process, ends it as a client
        whole.tls_client_cert, whole.tls_client_key = client_only.tls_client_cert, client_only.tls_client_key


@contextlib.contextmanager
def over_plain(folder: Path, protocol: str) -> Iterator[Client]:
    folder.mkdir()
    with cluster(folder, protocol=protocol) as (_, client):
        yield client


def bits_of(url: str) -> dict[str, bytes]:
    return {name: stored.values.tobytes() for name, stored in load_values(url).items()}


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # distributed forgets websockets that it aborts
def test_the_same_bits_by_every_comm(tmp_path: Path) -> None:
    """Also where processes of the cluster have no certificate for clients, as with a gateway."""
    pytest.importorskip("cryptography", reason="makes the certificates of this test")
    sets = ("checkpoint_freq=30", "threads=1")
    with local_cluster(1, 4, processes=False) as client:
        packed = digits("allreduce", *sets, "cluster.elastic={max_processes: 1}")
        expected = bits_of(Driven(packed, client, tmp_path).url)
    for name, scheme, there in (
        ("tcp", "tcp://", over_plain(tmp_path / "tcp", "tcp")),
        ("ws", "ws://", over_plain(tmp_path / "ws", "ws")),
        ("tls", "tls://", over_tls(has_client_certificate=True)),
        ("gateway", "tls://", over_tls(has_client_certificate=False)),
    ):
        addresses: list[str] = []

        def look(driven: Driven, event: dict[str, Any], addresses: list[str] = addresses) -> None:
            addresses.extend(driven.client.run(endpoint_of, driven.job_id).values())

        with there as client:
            run = Driven(digits("allreduce", *sets), client, tmp_path, look)
        assert (run.result.state, run.result.restarts, run.result.bytes["sent"] > 0) == ("done", 0, True), name
        assert [address.startswith(scheme) for address in addresses] == [True, True], name
        assert bits_of(run.url) == expected, name
    gc.collect()  # of those websockets, while they are no warning


@pytest.mark.parametrize(("framework", "n_processes"), mostly_long([("single", 1), ("allreduce", 2)], 2))
def test_a_cluster_of_the_jobs_size_is_started_for_it(tmp_path: Path, framework: str, n_processes: int) -> None:
    job = digits(framework)
    before, level = set(threading.enumerate()), logging.getLogger("singa_dask").level
    with embedded_cluster(plan_processes(job.cluster)) as client:
        pids = set(client.run(os.getpid).values())
        assert len(pids) == n_processes
        if n_processes > 1:  # that do not watch their threads
            found = next(iter(client.run(callbacks).values()))
            assert "profile" not in found and found["tick"] == 500
        assert (os.getpid() in pids) == (n_processes == 1)
        assert Driven(job, client, tmp_path).result.state == "done"
    # the pools of the Dask worker, which closes, are not waited for
    wait_until(
        lambda: not any("singa" in each.name for each in set(threading.enumerate()) - before), "no thread is left"
    )
    assert logging.getLogger("singa_dask").level == level


def callbacks(dask_worker: Worker) -> dict[str, float]:
    return {name: each.callback_time for name, each in dask_worker.periodic_callbacks.items()}


def test_no_cluster_outlives_its_job() -> None:
    """Else the memory of a process grows with each job that it runs, and so the time of each collection of garbage."""
    with local_cluster(1, processes=False) as client:
        there = [client.cluster.scheduler, *client.cluster.workers.values()]
        assert client.submit(sum, [1, 2]).result() == 3
    left = [weakref.ref(each) for each in there]
    del there, client

    def gone() -> bool:
        gc.collect()
        return [each() for each in left] == [None, None]

    wait_until(gone, "the cluster is collected")  # threads of Dask that end hold it a little longer


def set_silent(worker: str, dask_scheduler: Any) -> None:
    """Have the scheduler count a Dask worker as silent; none if it is empty."""
    dask_scheduler.plugins[JOBS]._heartbeats.is_silent = lambda address: address == worker


def test_a_silent_dask_worker_has_no_room(client: Client) -> None:
    install_jobs(client)
    workers = present_workers(client)
    wanted = plan_processes(mlp(cluster={"nworkers_per_group": len(workers), "nworkers_per_procs": 1}).cluster)
    wait_for_room(client, wanted, Patience())
    silent = next(iter(workers))
    client.run_on_scheduler(set_silent, silent)
    said = rf"{len(workers) - 1} (is|are) ready .*\. Not used: {silent} \(it is silent\)\."
    try:
        with pytest.raises(ClusterError, match=said):
            wait_for_room(client, wanted, Patience())
    finally:
        client.run_on_scheduler(set_silent, "")


def test_a_job_is_placed_on_dask_workers_that_are_not_silent(client: Client, tmp_path: Path) -> None:
    install_jobs(client)
    try:
        for i, silent in enumerate(present_workers(client)):  # without the others, one of them would be chosen
            client.run_on_scheduler(set_silent, silent)
            placed: list[str] = []
            job = digits("single", "train_steps=1")

            def record(event: dict[str, Any], placed: list[str] = placed) -> None:
                placed += [each["address"] for each in event["processes"]] if event["event"] == "placed" else []

            driver_of(job, client, on_event=record, run_url=str(tmp_path), job_id=f"heard-{i}").run()
            assert placed and silent not in placed
    finally:
        client.run_on_scheduler(set_silent, "")
