"""What a snapshot costs a training job, beside the cost that the job measures and chooses their times by.

A snapshot is requested in every second block of steps: what one costs is the difference between the blocks. Its parts
also go to another process.
``python -m benchmarks.snapshots [--net mlp|cifar] [--threads N] [--steps N]``
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.contender import NETS
from benchmarks.jobs import job_on_made_records, mnist_mlp
from singa_dask.conf import JobConf
from singa_dask.runtime.checkpoints.snapshots import SnapshotStore
from singa_dask.runtime.units.run_unit import run_unit
from singa_dask.runtime.units.snapshot_schedule import snapshot_interval
from singa_dask.runtime.units.unit_host import UnitHost

# steps from one request to the next are two blocks
BLOCK = 25


def buddy(parts: Connection) -> None:
    """Keep the newest parts of another process, in a process of its own."""
    kept = [b"", b""]
    while part := parts.recv_bytes():
        kept[:] = [kept[1], part]


def run(job: JobConf, folder: str) -> tuple[list[tuple[float, float]], list[dict[str, Any]], int]:
    """Run a job of one worker and one server.

    Returns
    -------
    tuple
        The time at the end of each step, by the clock and of the process's threads; the snapshots; the size of one.
    """
    store, (ours, theirs) = SnapshotStore(), multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=buddy, args=(theirs,))
    process.start()
    times: list[tuple[float, float]] = []
    snapshots: list[dict[str, Any]] = []

    def keep(step: int, file: str, content: bytes, known: int) -> list[str]:
        store.put("job", file, step, content, known)
        ours.send_bytes(content)
        return ["here", "there"]

    def emit(event: dict[str, Any]) -> None:
        if event["event"] == "snapshot":
            snapshots.append(event)
        elif event["event"] == "metrics":
            times.append((time.perf_counter(), time.process_time()))
            if event["step"] % (2 * BLOCK) == 0:
                host.request("snapshot")

    host = UnitHost("job", 0, job, None, emit, store_part=keep)
    runs = [partial(run_unit, host, unit, f"{folder}/checkpoint", None, ()) for unit in host.local]
    threads = [threading.Thread(target=each) for each in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    host.close()
    ours.send_bytes(b"")
    process.join()
    assert len(times) == job.train_steps, host.failure
    n_bytes = sum(len(part.content) for part in store.jobs["job"].values())
    return times, snapshots, n_bytes // 2


def main() -> None:
    """Print the costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", choices=("mlp", "cifar"), default="mlp")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = job_on_made_records(NETS["cifar"], folder) if given.net == "cifar" else {}
        job = JobConf.model_validate(made) if made else mnist_mlp(folder, 0, momentum=0.9)
        changes = {"train_steps": given.steps, "disp_freq": 1, "threads": given.threads}
        cluster = job.cluster.model_copy(update={"snapshot_freq": 10 * given.steps})
        times, snapshots, size = run(job.model_copy(update={**changes, "cluster": cluster}), folder)
    blocks = np.diff(times[::BLOCK], axis=0)
    n = len(blocks) // 2 * 2
    # the first ones are warm-up
    (extra, cpu), steps = (blocks[0:n:2] - blocks[1:n:2])[1:].T, np.diff(times, axis=0)[:, 0]
    pauses = [steps[event["step"] - 1] - np.median(steps) for event in snapshots[1:]]
    background = [sum(part["seconds"] for part in event["manifest"]["parts"]) for event in snapshots[1:]]
    cost, cpu_ms, pause, behind = (1e3 * float(np.median(each)) for each in (extra, cpu, pauses, background))
    share = cost / (1e3 * snapshot_interval((pause + behind) / 1e3)) * 100
    error, cores = 1e3 * float(np.std(extra)) / len(extra) ** 0.5, len(os.sched_getaffinity(0))
    print(f"{given.net}, {given.threads} threads on {cores} cores, {size / 1e6:.1f} MB a snapshot")
    print(f"step {1e3 * np.median(steps):.1f} ms; a snapshot costs {cost:.1f} ms (standard error {error:.1f})")
    print(f"CPU time of a snapshot, without the buddy's: {cpu_ms:.1f} ms")
    print(f"pause {pause:.1f} ms, background {behind:.1f} ms; by default {share:.2f} % of the time")


if __name__ == "__main__":
    main()
