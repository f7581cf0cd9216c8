"""Dask clusters of real processes on this machine, driven jobs, and what a job may not leave behind."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from distributed import Client, LocalCluster, Scheduler, Worker

from singa_dask.conf import JobConf, load
from singa_dask.runtime import Driver, JobRun, Patience, Result, connect, this_user
from singa_dask.runtime.job.client.job_cluster import install_jobs
from singa_dask.runtime.job.dask_worker.site import Site
from singa_dask.runtime.job.driver.driver import Lease
from singa_dask.runtime.job.names import DRIVERS, EVENTS, JOBS, SITE
from singa_dask.runtime.job.scheduler.jobs import Jobs

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240
# threads that stay: pools of Dask and of the package's worker plugin, and the event loop of fsspec
POOLS = re.compile(r".*Dask-|asyncio_|singa-dask-site|fsspecIO")
NUMBERS = itertools.count()  # of jobs
FRAMEWORKS = ["single", "allreduce", "sandblaster", "downpour", "hogwild", "hybrid"]


class Cluster:
    """A scheduler and workers of two threads each, two if no names are given, started as a user starts them.

    Attributes
    ----------
    file : str
        The scheduler's file.
    client : distributed.Client
    before_worker : tuple of str
        Begin the command line of each worker.
    """

    before_worker: tuple[str, ...] = ()

    def __init__(
        self, directory: Path, *options: str, names: Sequence[str] = ("a", "b"), cwd: Path = ROOT, protocol: str = "tcp"
    ) -> None:
        self.cwd = cwd
        self.file = str(directory / "scheduler.json")
        self.directory = directory
        self.processes: list[subprocess.Popen[bytes]] = []
        self._common = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", self.file]
        self._common += ["--protocol", f"{protocol}://"]
        self._start("scheduler", *self._common, "--port", "0")
        for name in names:
            self.add(name, *options)

    def add(self, name: str, *options: str) -> None:
        """Start one more worker."""
        self._start("worker", *self._common, "--name", name, "--nthreads", "2", "--memory-limit", "0",
                    "--local-directory", str(self.directory), "--preload", "tests.runtime.parts",
                    "--preload", "tests.runtime.ahead", *options)  # fmt: skip

    def _start(self, role: str, *options: str) -> None:
        log = (self.directory / f"{role}-{len(self.processes)}.log").open("wb")
        with log:
            before = self.before_worker if role == "worker" else ()
            command = [*before, sys.executable, "-m", "dask", role, *options]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            self.processes.append(
                subprocess.Popen(command, cwd=self.cwd, env=environment, stdout=log, stderr=log, start_new_session=True)
            )

    @property
    def scheduler(self) -> subprocess.Popen[bytes]:
        return self.processes[0]

    def close(self) -> None:
        """Kill all processes, and those that they have started: closing in order can take Dask many seconds."""
        for process in self.processes:
            kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group of its own, and those that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(TIMEOUT_S)


@contextmanager
def cluster(
    directory: Path, *options: str, names: Sequence[str] = ("a", "b"), cwd: Path = ROOT, protocol: str = "tcp"
) -> Iterator[tuple[Cluster, Client]]:
    """Start a cluster of processes; give it and a client that sees all workers."""
    made = Cluster(directory, *options, names=names, cwd=cwd, protocol=protocol)
    try:
        with connect(scheduler_file=made.file, patience=Patience(TIMEOUT_S)) as client:
            client.wait_for_workers(len(names), timeout=TIMEOUT_S)
            yield made, client
    finally:
        made.close()


def digits(framework: str, *sets: str) -> JobConf:
    """Return the digits job with a file of configs/cluster: 30 steps, shown every 10, no test."""
    common = ("train_steps=30", "disp_freq=10", "test_freq=0", "checkpoint_freq=0")
    return load(ROOT / "configs/digits/mlp.yaml", (*common, *sets), ROOT / f"configs/cluster/{framework}.yaml").job


def long(framework: str) -> JobConf:
    """Return a digits job that never ends by itself and shows each step."""
    return digits(framework, "train_steps=1000000", "disp_freq=1")


def driver_of(
    job: JobConf, client: Client, on_event: Callable[[dict[str, Any]], None], lease: Lease | None = None,
    queue: bool = False, **run: Any,
) -> Driver:  # fmt: skip
    """Return the driver of a job on a cluster."""
    if lease is None:
        install_jobs(client)
    return Driver(JobRun.of(job, owner=this_user(), **run), client, on_event=on_event, lease=lease, queue=queue)


class Driven:
    """One job, run by a `Driver` in this thread."""

    def __init__(
        self,
        job: JobConf,
        client: Client,
        directory: Path,
        on_metrics: Callable[[Driven, dict[str, Any]], None] | None = None,
        resume: str | None = None,
    ) -> None:
        self.events: list[dict[str, Any]] = []
        self.client = client
        self.url = str(directory / f"run{len(list(directory.iterdir()))}")
        Path(self.url).mkdir()
        self._on_metrics = on_metrics
        # of a job of the same id, that has just ended, Dask workers may still tell the scheduler
        self.job_id = f"{job.name}-{next(NUMBERS)}"
        self.driver = driver_of(
            job, client, run_url=self.url, on_event=self._on_event, job_id=self.job_id, resume=resume
        )
        self.result: Result = self.driver.run()

    def _on_event(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if event["event"] == "metrics" and self._on_metrics:
            watch, self._on_metrics = self._on_metrics, None
            watch(self, event)

    def checkpoints(self) -> list[int]:
        return [event["step"] for event in self.events if event["event"] == "checkpoint"]


def kill_worker(place: int) -> Callable[[Driven, dict[str, Any]], None]:
    """Return a watcher that kills the Dask worker of one of the processes of a job when training has begun."""

    def watch(driven: Driven, event: dict[str, Any]) -> None:
        hosts = driven.client.run(process_of_host)
        pids = {process: pid for process, pid in hosts.values() if process is not None}
        os.kill(pids[max(pids) if place else 0], signal.SIGKILL)

    return watch


def kill_workers(client: Client, n: int) -> None:
    """Kill some Dask workers."""
    for pid in list(client.run(os.getpid).values())[:n]:
        os.kill(pid, signal.SIGKILL)


def process_of_host(dask_worker: Worker) -> tuple[int | None, int]:
    """Return the process of the job that a Dask worker hosts, if it hosts one, and its pid."""
    site = dask_worker.plugins.get(SITE)
    hostings = list(site.hostings.values()) if isinstance(site, Site) else []
    return next((hosting.process for hosting in hostings), None), os.getpid()


def residue(client: Client) -> dict[str, Any]:
    """Return what a job could leave on a cluster: compare it with what was there before."""
    return {"scheduler": client.run_on_scheduler(_on_scheduler), **client.run(_on_worker)}


def _on_scheduler(dask_scheduler: Scheduler) -> dict[str, Any]:
    jobs = dask_scheduler.plugins.get(JOBS)
    return {
        # a job between two incarnations has nothing else
        "jobs": sorted(jobs.records) if isinstance(jobs, Jobs) else [],
        "plugins": _of_jobs(dask_scheduler.plugins),
        "worker plugins": _of_jobs(dask_scheduler.worker_plugins),
        "tasks": sorted(map(str, dask_scheduler.tasks)),
        "handlers": _of_jobs(dask_scheduler.handlers),
        "streams": _of_jobs(dask_scheduler.stream_handlers),
    }


def _on_worker(dask_worker: Worker) -> dict[str, Any]:
    listening = [each for each in psutil.Process().net_connections(kind="tcp") if each.status == psutil.CONN_LISTEN]
    threads = [name for thread in threading.enumerate() if not POOLS.match(name := thread.name)]
    site = dask_worker.plugins.get(SITE)
    return {
        "plugins": _of_jobs(dask_worker.plugins),
        "hosted": sorted(map(str, site.hostings)) if isinstance(site, Site) else [],
        "kept": sorted(site.snapshots.store.jobs) if isinstance(site, Site) else [],
        "tasks": sorted(map(str, dask_worker.state.tasks)),
        "handlers": _of_jobs(dask_worker.handlers),
        "threads": sorted(threads),
        "n_listening": len(listening),
    }


def _of_jobs(names: Iterable[str]) -> list[str]:
    """Return names without those that the package leaves on a cluster for good."""
    return sorted(
        name for name in names if name not in (SITE, JOBS, EVENTS, DRIVERS) and not name.startswith("singa_dask_")
    )


def check_gone(client: Client, before: dict[str, Any]) -> None:
    """Check that a cluster becomes as it was `before`; a worker that is new since then may hold nothing of ours."""

    def known() -> dict[str, Any]:
        after.clear()
        after.update(residue(client))
        return {place: after[place] for place in before if place in after}

    after: dict[str, Any] = {}
    with contextlib.suppress(AssertionError):  # what is left is shown below
        wait_until(lambda: known() == {place: before[place] for place in before if place in after}, "")
    assert known() == {place: before[place] for place in before if place in after}
    for place in after.keys() - before.keys():
        assert "singa-dask" not in str(after[place])


@contextlib.contextmanager
def one_process(directory: Path, n_threads: int) -> Iterator[Client]:
    """Start a cluster of one process of Dask's own, and give its client, which is not the default one."""
    with (
        small_cluster(1, n_threads, processes=True, local_directory=str(directory)) as there,
        Client(there, set_as_default=False) as client,
    ):
        yield client


def small_cluster(n_workers: int, n_threads: int, **options: Any) -> LocalCluster:
    """Start Dask workers on this host, in this process unless ``options`` say otherwise, and without a dashboard."""
    common = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
    here = {} if options.get("processes") else {"processes": False, "protocol": "tcp://"}
    return LocalCluster(n_workers=n_workers, threads_per_worker=n_threads, **{**common, **here, **options})


def wait_until(check: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Ask again and again whether something has come about in another process, which cannot tell."""
    nobody = threading.Event()
    for _ in range(int(20 * timeout_s)):
        if check():
            return
        nobody.wait(0.05)
    raise AssertionError(f"not so after {timeout_s} s: {what}")


def program(*arguments: str) -> Sequence[str]:
    """Return the command line of ``singa-dask`` with some arguments."""
    return [sys.executable, "-c", "from singa_dask.cli import main; main()", *arguments]
