"""How long the jobs hold up the event loop of the scheduler, and how long ``singa-dask list`` takes.

Jobs are simulated: 50 that run, one of them with 64 units that all report, and 1000 that have ended. Each callback of
`Jobs` is called as Dask calls it, with simulated Dask workers; packing answers counts. Times of callbacks are of the
CPU, as another program may take it for longer than a callback lasts.
``python -m benchmarks.scheduler``
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from distributed import Client, LocalCluster, Status
from distributed.protocol import dumps

from singa_dask.runtime.job.names import JOBS, SITE, Op
from singa_dask.runtime.job.scheduler.jobs import Jobs
from singa_dask.runtime.job.scheduler.record import JobRecord
from singa_dask.runtime.job.state.submission import JobSpec
from singa_dask.runtime.planning.layout import plan_processes
from singa_dask.runtime.planning.worker_choice import WorkerFacts
from tests.runtime.harness import mlp

RUNNING, ENDED = 50, 1000
LARGE = {"nworker_groups": 4, "nworkers_per_group": 8, "nservers_per_group": 32}
PAIR = {"nworkers_per_group": 2, "nservers_per_group": 2}
REPORTS = 300
QUIET: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}


def record_of(i: int, cluster: dict[str, Any]) -> JobRecord:
    """Return a job whose units run, each process on a Dask worker of its own."""
    job = mlp(name="digits", train_steps=100_000, cluster=cluster)
    workers = [f"tcp://10.0.{i}.{j}:40000" for j in range(len(plan_processes(job.cluster).processes))]
    spec = JobSpec(
        job_id=f"digits-20261122-120000-{i:04x}",
        job=job.model_dump_json(),
        run_url=f"/runs/digits-20261122-120000-{i:04x}",
        owner="anna@host",
        workers=workers,
        assignments={},
        client="nobody",
    )
    record = JobRecord(spec)
    facts = {address: WorkerFacts(2, 0, "10.0.0.1", address, False, True) for address in workers}
    record.state.begin(0.0, facts)
    record.state.phase = "running"
    return record


def metrics_of(step: int, group: int, worker: int) -> dict[str, Any]:
    """Return what a worker reports after a step."""
    return {
        "event": "metrics", "step": step, "phase": "train", "group": group, "worker": worker, "time": time.time(),
        "lr": 0.1, "epoch": 1.5, "samples_per_s": 1000.0, "wait_data_ms": 0.1, "wait_params_ms": 0.2,
        "metrics": {"loss": (12.5, 64.0), "accuracy": (32.0, 64.0)}, "unit": f"worker-{group}-{worker}",
    }  # fmt: skip


class Simulated:
    """A scheduler with simulated Dask workers, beside a real one that has none."""

    def __init__(self, scheduler: Any) -> None:
        self._real = scheduler
        self.workers: dict[str, Any] = {}
        self.clients: dict[str, Any] = {}
        self.handlers: dict[str, Any] = dict(scheduler.handlers)
        self.stream_handlers: dict[str, Any] = {}
        self.status = Status.running
        nothing = SimpleNamespace(add_callback=lambda *call: None, call_later=lambda *call: None)
        self.loop = nothing

    def add(self, record: JobRecord, step: int = 10) -> None:
        """Add the Dask workers of a job; each hosts a process, and has just sent a heartbeat."""
        for process, address in enumerate(record.state.workers):
            progress = {"bytes": (1, 1), "workers": {f"worker-0-{process}": (step, 0.1 * step, 0.0, 0.0)}}
            told = {
                "process": process,
                "incarnation": 0,
                "steps": {str(group): step for group in range(4)},
                "waits": {},
                **progress,
            }
            self.workers[address] = SimpleNamespace(
                nthreads=2,
                memory_limit=4 << 30,
                processing=[],
                host="10.0.0.1",
                name=address,
                nanny=None,
                status=Status.running,
                last_seen=time.time() + 3600,
                metrics={SITE: {record.spec.job_id: [told]}},
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


async def times_of(call: Callable[[int], object], n: int) -> tuple[int, float, float]:
    """Call a function; return how often, and the median and the longest time in milliseconds."""
    took = []
    for i in range(n):
        began = time.thread_time()
        if isinstance(made := call(i), Coroutine):
            await made
        took.append(1e3 * (time.thread_time() - began))
    return n, sorted(took)[n // 2], max(took)


async def measure(real: Any) -> dict[str, tuple[int, float, float]]:
    """Call what Dask calls, in the thread of the event loop."""
    plugin, simulated = real.plugins[JOBS], Simulated(real)
    jobs = Jobs()
    await jobs.start(simulated)  # type: ignore[arg-type]
    large = record_of(0, LARGE)
    records = [large, *(record_of(i, PAIR) for i in range(1, RUNNING))]
    for record in records:
        jobs.records[record.spec.job_id] = record
        simulated.add(record)
    ended = record_of(RUNNING, PAIR)
    facts = replace(ended.facts(), state="done", ended=time.time())
    for i in range(ENDED):
        jobs.history.add_facts(replace(facts, id=f"digits-20261121-120000-{i:04x}"))
    plugin.records.update(jobs.records)
    plugin.history.facts.update(jobs.history.facts)
    job_id = large.spec.job_id

    def report(i: int) -> None:
        jobs._on_event(job_id, 0, metrics_of(i // 32, i // 8 % 4, i % 8))

    def start_unit(i: int) -> None:
        jobs._on_event(job_id, 0, {"event": "unit", "unit": f"worker-{i // 8 % 4}-{i % 8}"})

    def tick(i: int) -> None:
        simulated.add(large, step=i)
        jobs._tick()

    def answer(op: str, **arguments: Any) -> Callable[[int], object]:
        async def call(i: int) -> None:
            dumps(await simulated.handlers[op](**arguments))

        return call

    gc.collect()
    return {
        "metrics of a worker": await times_of(report, 32 * REPORTS),
        "a unit begins": await times_of(start_unit, 64),
        "a tick": await times_of(tick, REPORTS),
        "list": await times_of(answer(Op.LIST), 20),
        "view of 64 units": await times_of(answer(Op.VIEW, job_id=job_id), 100),
        "200 events": await times_of(lambda i: dumps(large.events.after(-1)), 100),
    }


def main() -> None:
    """Measure, and print the longest time of each callback."""
    with (
        LocalCluster(n_workers=0, protocol="tcp://", **QUIET) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.register_plugin(Jobs(), name=JOBS)
        found = cluster.sync(measure, cluster.scheduler)
        for name, (n, middle, longest) in found.items():
            print(f"{name:20} {n:5} times, median {middle:7.3f} ms, longest {longest:7.3f} ms")
        command = [sys.executable, "-m", "singa_dask", "list", "--all", "--scheduler", cluster.scheduler_address]
        for _ in range(3):
            began = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"singa-dask list --all: {time.perf_counter() - began:.2f} s, {len(done.stdout.splitlines())} lines")
        cluster.scheduler.plugins[JOBS].records.clear()


if __name__ == "__main__":
    main()
