"""What the run time adds to a step: SINGA's MLP through worker, stub and server, beside a bare loop.

The bare loop calls the same kernels and the same updater on the same shapes, in one thread, with records from
memory. Both run in turn. ``python -m benchmarks.overhead [--rounds N] [--steps N]``
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.jobs import BATCH, WIDTHS, mnist_mlp
from singa_dask.conf import JobConf, UpdaterConf
from singa_dask.ops import get_ops
from singa_dask.runtime import Driver, JobRun, plan_processes
from singa_dask.runtime.job.client.job_cluster import embedded_cluster
from singa_dask.training import UPDATERS

CLASSES = WIDTHS[-1]


class BareLoop:
    """SINGA's MLP as anyone would write it on these kernels."""

    def __init__(self, updater: UpdaterConf) -> None:
        self.ops = get_ops("numpy")
        random = np.random.default_rng(0)
        self.images = random.integers(0, 256, (BATCH * 16, WIDTHS[0]), np.uint8)
        self.classes = random.integers(0, CLASSES, BATCH * 16).astype(np.int32)
        sizes = list(zip(WIDTHS[1:], WIDTHS[:-1], strict=True))
        self.params = [random.uniform(-0.05, 0.05, shape).astype(np.float32) for n in sizes for shape in (n, n[:1])]
        self.grads = [np.zeros_like(param) for param in self.params]
        self.updater = UPDATERS.find(updater.type)(updater)
        self.state = [{name: np.zeros(p.size, np.float32) for name in self.updater.state_names} for p in self.params]
        self.x = [np.zeros((BATCH, n), np.float32) for n in WIDTHS]
        self.y = [np.zeros((BATCH, n), np.float32) for n in WIDTHS[1:]]
        self.gx = [np.zeros((BATCH, n), np.float32) for n in WIDTHS]

    def step(self, step: int) -> None:
        ops, n = self.ops, len(self.y)
        rows = slice(step % 16 * BATCH, step % 16 * BATCH + BATCH)
        ops.normalize(self.images[rows], 127.5, 127.5, out=self.x[0])
        for i in range(n):
            ops.linear(self.x[i], self.params[2 * i], self.params[2 * i + 1], out=self.y[i])
            if i < n - 1:
                ops.stanh(self.y[i], out=self.x[i + 1])
        ops.softmax(self.y[-1], out=self.x[-1])
        ops.cross_entropy(self.x[-1], self.classes[rows])
        ops.count_in_top(self.x[-1], self.classes[rows], 1)
        ops.cross_entropy_grad(self.x[-1], self.classes[rows], 1.0, out=self.gx[-1])
        for i in reversed(range(n)):
            if i < n - 1:
                ops.stanh_grad(self.x[i + 1], self.gx[i + 1], out=self.gx[i + 1])
            ops.linear_grad_weight(self.x[i], self.gx[i + 1], out=self.grads[2 * i])
            ops.linear_grad_bias(self.gx[i + 1], out=self.grads[2 * i + 1])
            if i:
                ops.linear_grad_input(self.gx[i + 1], self.params[2 * i], out=self.gx[i])
            for k in (2 * i, 2 * i + 1):
                self.updater.update(step, step, self.params[k].reshape(-1), self.grads[k].reshape(-1), self.state[k])


def bare_step_ms(job: JobConf) -> float:
    """Return the median time of a step of the bare loop."""
    loop = BareLoop(job.updater)
    times = []
    with threadpool_limits(job.threads, user_api="blas"):
        for step in range(job.train_steps):
            started = time.perf_counter()
            loop.step(step)
            times.append(time.perf_counter() - started)
    return 1e3 * float(np.median(times))


def our_step_ms(job: JobConf, folder: str) -> float:
    """Return the median time of a step of the same net through the whole run time."""
    events: list[dict[str, Any]] = []
    with embedded_cluster(plan_processes(job.cluster)) as client:
        result = Driver(JobRun.of(job, run_url=folder, job_id="overhead"), client, on_event=events.append).run()
    assert result.state == "done", result.reason
    return result.step_ms["median"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    print(f"cores: {len(os.sched_getaffinity(0))}; SINGA's MLP, batch {BATCH}, one BLAS thread, median ms a step")
    for momentum in (0.0, 0.9):
        with tempfile.TemporaryDirectory() as folder:
            job = mnist_mlp(folder, given.steps, momentum=momentum)
            pairs = [(bare_step_ms(job), our_step_ms(job, f"{folder}/run{i}")) for i in range(given.rounds)]
        bare, ours = (float(np.median(column)) for column in zip(*pairs, strict=True))
        ratio = float(np.median([b / a for a, b in pairs]))
        print(f"momentum {momentum}: bare loop {bare:6.1f}   worker and server {ours:6.1f}   ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
