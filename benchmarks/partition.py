"""What partitions of a net over two processes of one thread each send and how long a step takes.

First perceptrons by records, by features, and by that mixture of both which sends least. A layer by features sends no
gradients and values of its weights, but for all records what it reads: less where it has more outputs than the batch
has records. The least that a way must send is worked out from shapes; what the job has sent must be as much.
Then the CIFAR net: two workers by records, and two as configs/cifar10/hybrid.yaml, beside one worker, in turn.
``python -m benchmarks.partition [--only mlp|cifar] [--rounds N] [--steps N]``
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count, pairwise, product
from typing import Any, NamedTuple

import numpy as np
from distributed import Client

from benchmarks.contender import NETS
from benchmarks.jobs import job_on_made_records
from singa_dask.conf import ClusterConf, JobConf
from singa_dask.runtime import Driver, JobRun, plan_processes
from singa_dask.runtime.job.client.job_cluster import embedded_cluster

TWO = {"nworkers_per_group": 2, "nservers_per_group": 2}
ITEM = 4
IDS = count()


class Case(NamedTuple):
    """A perceptron, and records of a batch."""

    name: str
    widths: tuple[int, ...]
    n_rows: int


CASES = (
    Case("wide layers, small batch", (784, 2048, 2048, 10), 16),
    Case("narrow layers, large batch", (784, 128, 128, 10), 1024),
    Case("narrow, then wide ones", (784, 64, 2048, 1024, 10), 256),
)


def ways(case: Case) -> dict[str, list[int]]:
    """Return the partition_dims of the inner products that are compared."""
    n = len(case.widths) - 1
    mixed = min(list(product((0, 1), repeat=n))[1:-1], key=lambda dims: least(case, dims))
    return {"data": [0] * n, "model": [1] * n, "hybrid": list(mixed)}


def least(case: Case, dims: Sequence[int]) -> int:
    """Return the bytes that two processes must send each other in a step.

    By records each weight's gradient goes one way and its value the other. By features a layer needs all of its
    source, and gives a gradient for all of it; what the loss, by records, reads of features is half of it.
    """
    values = sum((d + 1) * w for (d, w), dim in zip(pairwise(case.widths), dims, strict=True) if dim == 0)
    for width, (source, reader) in zip(case.widths[1:], pairwise([*dims, -1]), strict=True):
        if reader == 1:
            values += case.n_rows * width
        elif source == 1:
            values += case.n_rows * width // 2
    return 2 * ITEM * values


def perceptron(case: Case, dims: Sequence[int]) -> list[dict[str, Any]]:
    """Return its layers behind ``data``."""
    layers: list[dict[str, Any]] = []
    source, n = "data", len(dims)
    for k, (width, dim) in enumerate(zip(case.widths[1:], dims, strict=True)):
        param = [
            {"name": f"w{k}", "init": {"type": "UniformSqrtFanIn"}},
            {"name": f"b{k}", "init": {"type": "Constant"}},
        ]
        block = {"innerproduct_conf": {"num_output": width}, "param": param, "partition_dim": dim}
        layers.append({"name": f"fc{k}", "type": "InnerProduct", "srclayers": [source], **block})
        source = f"fc{k}"
        if k < n - 1:
            layers.append({"name": f"act{k}", "type": "STanh", "srclayers": [source], "partition_dim": dim})
            source = f"act{k}"
    return [*layers, {"name": "loss", "type": "SoftmaxLoss", "srclayers": [source, "data"]}]


def run(client: Client, job: dict[str, Any], steps: int, folder: str) -> tuple[int, float]:
    """Run so many steps; return the bytes of all, and the median ms of one."""
    k = next(IDS)
    conf = JobConf.model_validate({**job, "train_steps": steps})
    driver = Driver(
        JobRun.of(conf, run_url=f"{folder}/run{k}", job_id=f"partition{k}"), client, on_event=lambda event: None
    )
    result = driver.run()
    assert result.state == "done", result.reason
    return result.bytes["sent"], result.step_ms["median"]


def spread(times: Sequence[float]) -> str:
    """Return the best and the worst."""
    return f"{min(times):7.1f} to {max(times):6.1f}"


def perceptrons(rounds: int, steps: int) -> None:
    """Print the table of bytes and times."""
    print(f"{'perceptron':28} {'batch':>5}  {'partition':22} {'MB a step':>9} {'least':>9}  {'ms a step, medians':>18}")
    with ExitStack() as stack:
        client = stack.enter_context(embedded_cluster(plan_processes(ClusterConf.model_validate(TWO))))
        for case in CASES:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            made = job_on_made_records(NETS["mlp"]._replace(n_rows=case.n_rows), folder)
            (data, *_) = made["neuralnet"]["layer"]
            for name, dims in ways(case).items():
                layers = [{**data, "partition_dim": dims[0]}, *perceptron(case, dims)]
                job = {**made, "threads": 1, "cluster": TWO, "neuralnet": {"layer": layers}}
                first, _ = run(client, job, 2, folder)
                told = [run(client, job, steps, folder) for _ in range(rounds)]
                sent = {(n_bytes - first) / (steps - 2) for n_bytes, _ in told}
                wanted = least(case, dims)
                assert sent == {wanted}, f"{case.name}, {name}: {sent} bytes a step, expected {wanted}"
                how = f"{name} ({' '.join(map(str, dims))})"
                times = spread([ms for _, ms in told])
                shown = f"{sent.pop() / 1e6:9.3f} {wanted / 1e6:9.3f}  {times}"
                print(f"{case.name:28} {case.n_rows:5}  {how:22} {shown}", flush=True)


def convnet(rounds: int, steps: int) -> None:
    """Print how much faster two workers are."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        made = {**job_on_made_records(NETS["cifar"], folder), "threads": 1}
        layers = made["neuralnet"]["layer"]
        mixed = [{**layer, "partition_dim": int(layer["name"] == "ip1")} for layer in layers]
        jobs = {
            "one worker": made,
            "two by records": {**made, "cluster": TWO},
            "two, ip1 by features": {**made, "cluster": TWO, "neuralnet": {"layer": mixed}},
        }
        one, two = (
            stack.enter_context(embedded_cluster(plan_processes(ClusterConf.model_validate(cluster))))
            for cluster in ({}, TWO)
        )
        clients = {name: two if "cluster" in job else one for name, job in jobs.items()}
        for name, job in jobs.items():
            run(clients[name], job, 3, folder)
        table = [[run(clients[name], job, steps, folder)[1] for name, job in jobs.items()] for _ in range(rounds)]
    columns = [list(column) for column in zip(*table, strict=True)]
    for name, times in zip(jobs, columns, strict=True):
        faster = [a / b for a, b in zip(columns[0], times, strict=True)]
        ratios = f"{float(np.median(faster)):.2f} ({min(faster):.2f} to {max(faster):.2f})"
        print(f"CIFAR net, batch 100  {name:22} ms a step {spread(times)}   {ratios} times as fast", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("mlp", "cifar"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=22)
    given = parser.parse_args()
    print(f"cores: {len(os.sched_getaffinity(0))}; two processes of one thread")
    if given.only != "cifar":
        perceptrons(given.rounds, given.steps)
    if given.only != "mlp":
        convnet(given.rounds, given.steps)


if __name__ == "__main__":
    main()
