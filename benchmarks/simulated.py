"""What a job of many processes costs the scheduler: CPU, memory, events and bytes.

The scheduler, its `Jobs` and the client that owns the tasks are real; Dask workers are simulated at the level of their
connections, each with a worker and a server of an AllReduce job. A job starts, trains while heartbeats, metrics and
snapshots come in, loses a Dask worker, starts again from its newest snapshot on the others, and ends. What the
simulated Dask workers compute does not count.
``python -m benchmarks.simulated [N ...]``
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import dask
from distributed import Scheduler
from distributed.comm.core import Comm
from distributed.core import CommClosedError
from distributed.protocol import dumps, loads, to_serialize
from distributed.protocol.pickle import dumps as pickled
from distributed.scheduler import heartbeat_interval
from distributed.versions import get_versions

from singa_dask.runtime.job.names import EVENTS, SITE, Op
from singa_dask.runtime.job.scheduler.jobs import TICK_S, Jobs
from singa_dask.runtime.job.state.submission import JobSpec
from tests.runtime.harness import mlp

SIZES = (125, 250, 500, 1000)
PER_HOST = 16
TRAINED_S = 60.0
"""Simulated seconds of training."""
METRICS_S = 2.0
"""Simulated seconds between two metrics of a worker."""
JOB = "digits-20261126-120000-0000"


class Meter:
    """Counts what the scheduler does, and leaves out what is simulated."""

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self.n_events = 0
        self._outside = self._since = 0.0

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Do not count the CPU of what is done in the context."""
        began = time.process_time()
        yield
        self._outside += time.process_time() - began

    def restart(self) -> None:
        """Begin to count anew."""
        gc.collect()
        self.bytes.clear()
        self.n_events = 0
        self._outside, self._since = 0.0, time.process_time()

    def cpu_s(self) -> float:
        """Return the seconds of CPU since `restart`."""
        return time.process_time() - self._since - self._outside


class Link(Comm):
    """A connection of the scheduler with a simulated Dask worker; what is sent and received is serialised."""

    def __init__(self, worker: Worker, is_stream: bool = False) -> None:
        super().__init__()
        self._worker, self._is_stream = worker, is_stream
        self._incoming: asyncio.Queue[Any] = asyncio.Queue()
        self._is_closed = False

    local_address = peer_address = property(lambda self: self._worker.address)

    def put(self, message: Any) -> None:
        """Let a message arrive."""
        with self._worker.meter.outside():
            self._incoming.put_nowait(dumps(message))

    async def read(self, deserializers: Any = None) -> Any:
        frames = await self._incoming.get()
        if frames is None:
            raise CommClosedError
        self._worker.meter.n_events += 1
        return loads(frames)

    async def write(self, msg: Any, serializers: Any = None, on_error: Any = None) -> int:
        n = sum(memoryview(frame).nbytes for frame in dumps(msg))
        with self._worker.meter.outside():
            for each in msg if isinstance(msg, list | tuple) else [msg]:
                self._worker.take(self, each, n)
        return n

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._incoming.put_nowait(None)

    def closed(self) -> bool:
        return self._is_closed


class Worker:
    """A Dask worker that hosts a process of the job, and trains nothing."""

    def __init__(self, i: int, meter: Meter) -> None:
        self.address = f"tcp://10.{i // PER_HOST // 256}.{i // PER_HOST % 256}.1:{40000 + i % PER_HOST}"
        self.meter = meter
        self.stream = Link(self, is_stream=True)
        self.incarnation, self.process, self.step = -1, -1, 0
        self.tasks: dict[str, Any] = {}
        self.hosted: dict[str, Any] = {}
        self.scheduler: Scheduler | None = None

    def take(self, link: Link, message: Any, n_bytes: int) -> None:
        """Take a message of the scheduler, and answer as a Dask worker does."""
        op = message.get("op", "") if isinstance(message, dict) else ""
        self.meter.bytes[op] += n_bytes
        if op == "compute-task":
            self.tasks[message["key"]] = message["run_id"]
            if len(self.tasks) == 2:
                for kind in ("worker", "server"):
                    self.tell({"event": "unit", "unit": f"{kind}-0-{self.process}"})
        elif op == Op.HOST:
            self.incarnation, self.process, self.hosted = message["incarnation"], message["process"], message
            link.put({"endpoint": f"{self.address}/{self.incarnation}", "threads": 1})
        elif op == Op.END:
            is_here = 0 <= self.incarnation <= message["incarnation"]
            link.put({self.unit: {"unit": self.unit, "state": "aborted", "step": self.step}} if is_here else {})
            if is_here:
                self.incarnation, self.tasks = -1, {}
        elif op == "get_data":
            report = {"state": "done", "step": self.step}
            link.put({"status": "OK", "data": {key: to_serialize([report]) for key in message["keys"]}})
        elif message == "OK" or link is self.stream:
            pass
        else:
            link.put({"status": "OK"})

    @property
    def unit(self) -> str:
        """Its worker."""
        return f"worker-0-{self.process}"

    def tell(self, what: dict[str, Any]) -> None:
        """Send an event of a unit."""
        message = {"op": EVENTS, "job_id": JOB, "incarnation": self.incarnation, "what": {"unit": self.unit, **what}}
        self.stream.put([message])

    def metrics(self) -> None:
        """Send the metrics of a step."""
        sums = {"loss": (12.5, 64.0), "accuracy": (32.0, 64.0)}
        facts = {"step": self.step, "phase": "train", "group": 0, "worker": self.process, "time": time.time()}
        speeds = {"samples_per_s": 1000.0, "wait_data_ms": 0.1, "wait_params_ms": 0.2, "epoch": 1.5, "lr": 0.1}
        self.tell({"event": "metrics", "metrics": sums, **facts, **speeds})

    def heartbeat(self) -> dict[str, Any]:
        """Return the arguments of a heartbeat."""
        progress = {"bytes": (1, 1), "workers": {self.unit: (self.step, 0.1 * self.step, 0.0, 0.0)}}
        told = {
            "process": self.process,
            "incarnation": self.incarnation,
            "steps": {"0": self.step},
            "waits": {},
            **progress,
        }
        bandwidth = {"total": 1e8, "workers": {}, "types": {}}
        metrics = {"bandwidth": bandwidth, "digests_total_since_heartbeat": {}, "managed_bytes": 0, "memory": 10**8}
        metrics |= {"spilled_bytes": {"memory": 0, "disk": 0}, "transfer": {}, "event_loop_interval": 0.02, "cpu": 1}
        metrics[SITE] = {JOB: [told]} if self.incarnation >= 0 else {}
        return {"address": self.address, "resolve_address": False, "metrics": metrics, "executing": {}}

    def finish(self) -> None:
        """End the tasks."""
        for key, run_id in self.tasks.items():
            facts = {"nbytes": 100, "type": pickled(list), "typename": "list", "metadata": {}, "thread": 1}
            facts |= {"startstops": [], "run_id": run_id, "status": "OK", "stimulus_id": "end"}
            self.stream.put([{"op": "task-finished", "key": key, **facts}])

    async def join(self, scheduler: Scheduler) -> None:
        """Be a Dask worker until the connection is closed."""
        self.scheduler = scheduler
        facts = {"nthreads": 2, "name": self.address, "memory_limit": 10**9, "services": {}, "local_directory": ""}
        facts |= {"metrics": self.heartbeat()["metrics"], "versions": get_versions(), "nanny": ""}
        facts |= {"extra": {}, "resources": {}}
        where = {"address": self.address, "server_id": self.address, "resolve_address": False}
        await scheduler.add_worker(self.stream, status="running", now=time.time(), stimulus_id="join", **where, **facts)


def manifest_of(workers: list[Worker], step: int) -> dict[str, Any]:
    """Return the manifest of a snapshot, each part of which two Dask workers have."""
    by_process = {worker.process: worker for worker in workers}

    def part(kind: str, p: int) -> dict[str, Any]:
        worker = by_process[p]
        holders = [worker.address, worker.hosted["buddy"]]
        file = f"step-{step}/{kind}-0-{p}-life-{worker.incarnation}.safetensors"
        params = {f"fc{i}/{name}": [p * 1000, 1000] for i in range(6) for name in ("weight", "bias")}
        return {"file": file, "holders": holders, "bytes": 10**6, "crc32": 1234567890, "params": params}

    parts, states = ([part(kind, p) for p in sorted(by_process)] for kind in ("server", "worker"))
    return {"step": step, "parts": parts, "states": states, "groups": {"0": {"step": step}}}


async def until(is_so: Any) -> None:
    """Let the scheduler work until something is so."""
    while not is_so():
        await asyncio.sleep(0.001)


async def measure(n: int, memory: bool) -> dict[str, Any]:
    """Run a job on simulated Dask workers; return what it costs."""
    meter = Meter()
    config = {"distributed.scheduler.worker-ttl": None, "distributed.scheduler.work-stealing": False}
    with dask.config.set(config):
        async with Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler:
            workers = [Worker(i, meter) for i in range(n + 1)]
            there = {worker.address: worker for worker in workers}
            connect = scheduler.rpc.connect

            async def to_simulated(address: str, timeout: float | None = None) -> Comm:
                return Link(there[address]) if address in there else await connect(address, timeout)

            scheduler.rpc.connect = to_simulated  # type: ignore[method-assign]
            joined = [asyncio.create_task(worker.join(scheduler)) for worker in workers]
            await until(lambda: len(scheduler.workers) == len(workers))
            jobs = Jobs()
            await scheduler.register_scheduler_plugin(jobs, idempotent=True)
            await jobs.detached.restored.wait()
            jobs._keep_ticking = lambda: None  # type: ignore[method-assign]
            found = await _run(scheduler, jobs, workers, n, meter, memory)
            for worker in workers:
                worker.stream.abort()
            with suppress(CommClosedError):
                await asyncio.gather(*joined, return_exceptions=True)
    return found


async def _run(
    scheduler: Scheduler, jobs: Jobs, workers: list[Worker], n: int, meter: Meter, memory: bool
) -> dict[str, Any]:
    job = json.loads(mlp(name="digits", train_steps=10**6).model_dump_json())
    job["cluster"] |= {"nworkers_per_group": n, "nservers_per_group": n}
    spec = JobSpec(
        job_id=JOB,
        job=json.dumps(job),
        run_url=f"/runs/{JOB}",
        owner="anna@host",
        workers=[worker.address for worker in workers[:n]],
        assignments={"data": list(range(n))},
        client="nobody",
    )
    found: dict[str, Any] = {}
    timed = {
        "graph": timed_call(jobs._tasks, "run"),
        "update_graph": timed_call(scheduler, "_create_taskstate_from_graph"),
    }

    def note(phase: str) -> None:
        found[phase] = {
            "ms": 1e3 * meter.cpu_s(),
            "events": meter.n_events,
            "MB": sum(meter.bytes.values()) / 1e6,
            "memory": tracemalloc.get_traced_memory()[0] / 1e6 if memory else 0.0,
        }
        meter.restart()

    await jobs._tasks.connect()
    scheduler.clients["nobody"] = scheduler.clients[jobs._tasks._client.id]  # the job goes on as long as it is there
    if memory:
        tracemalloc.start()
    meter.restart()
    refused, _ = await jobs.submit(spec.__dict__)
    assert not refused, refused
    record = jobs.records[JOB]
    await until(lambda: len(record.state._incarnation.started) == 2 * n)
    note("start")
    found["start"] |= {what: 1e3 * sum(each) for what, each in timed.items()}
    every, step = heartbeat_interval(n), 0
    for i in range(round(TRAINED_S / TICK_S)):
        now = i * TICK_S
        if now % METRICS_S < TICK_S:
            for worker in workers[:n]:
                worker.step = step
                worker.metrics()
            step += 1
        if now % every < TICK_S:
            for worker in workers:
                with meter.outside():
                    frames = dumps(worker.heartbeat())
                dumps(scheduler.heartbeat_worker(**loads(frames)))
        if i % 20 == 10:
            with meter.outside():
                frames = dumps({"event": "snapshot", "step": step, "manifest": manifest_of(workers[:n], step)})
            jobs._on_event(JOB, 0, loads(frames))
        jobs._tick()
        await until(lambda: all(worker.stream._incoming.empty() for worker in workers))
    note("train")
    lost = workers[0]
    lost.stream.abort()
    for _ in range(1000):
        if record.state.incarnation == 1 and len(record.state._incarnation.started) == 2 * n:
            break
        await asyncio.sleep(0.01)
        jobs._tick()
    assert record.state.incarnation == 1, record.state.phase
    note("loss")
    for worker in workers[1:]:
        worker.finish()
    await until(lambda: JOB not in jobs.records)
    note("end")
    assert jobs.history.facts[JOB].state == "done", jobs.history.facts[JOB].reason
    return found


def timed_call(owner: Any, name: str) -> list[float]:
    """Have the calls of a method measured; return the list to which the seconds of CPU of each go."""
    call, took = getattr(owner, name), list[float]()

    def measured(*given: Any, **named: Any) -> Any:
        began = time.thread_time()
        try:
            return call(*given, **named)
        finally:
            took.append(time.thread_time() - began)

    setattr(owner, name, measured)
    return took


def main() -> None:
    """Measure, and print a line for each number of processes."""
    logging.disable(logging.WARNING)
    gc.set_threshold(*(3 * each for each in gc.get_threshold()))  # as dask-scheduler does
    for n in [int(each) for each in sys.argv[1:]] or SIZES:
        found = asyncio.run(measure(n, memory=False))
        kept = asyncio.run(measure(n, memory=True))
        tracemalloc.stop()
        start, train = found["start"], found["train"]
        print(
            f"{n:5} processes: start {start['ms']:.0f} ms, of which its graph {start['graph']:.0f} and Dask's "
            f"update_graph {start['update_graph']:.0f}; training {train['ms'] / TRAINED_S / 10:.2f} % of a core; "
            f"loss {found['loss']['ms']:.0f} ms; end {found['end']['ms']:.0f} ms; "
            f"events {'/'.join(str(each['events']) for each in found.values())}; "
            f"MB sent {'/'.join(format(each['MB'], '.1f') for each in found.values())}; "
            f"memory {kept['start']['memory']:.1f} MB, after training {kept['train']['memory']:.1f} MB"
        )


if __name__ == "__main__":
    main()
