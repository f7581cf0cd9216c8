"""AllReduce over two processes of one thread each, beside PyTorch's DistributedDataParallel over gloo.

Ours is configs/cluster/allreduce.yaml through the whole run time, with records from a store: once with the layers of
the job, once with the net of PyTorch as a TorchModule. All train the same net with the same global batch, in turn, some
steps in each round. ResNet-18 has no job file, so it runs only as a TorchModule.
``python -m benchmarks.ddp [--net NAME ...] [--rounds N] [--steps N]``
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import yaml

from benchmarks.contender import Contender
from benchmarks.ddp_torch import NETS_OF_TORCH, RESNET
from benchmarks.jobs import ROOT, job_on_made_records
from singa_dask.conf import JobConf
from singa_dask.runtime import Driver, JobRun, plan_processes
from singa_dask.runtime.job.client.job_cluster import embedded_cluster

RANKS = 2
CASES = (("cifar", 100), (RESNET, 64), ("mlp", 64), ("mlp", 256))
Round = Callable[[int], float]


def ours(stack: ExitStack, name: str, batch: int, by_torch: bool = False) -> Round:
    """Start two processes of ours; return what runs so many steps there and gives the median ms of one."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    cluster = yaml.safe_load((ROOT / "configs/cluster/allreduce.yaml").read_text())
    given = {
        **job_on_made_records(NETS_OF_TORCH[name]._replace(n_rows=batch), folder),
        "threads": 1,
        "cluster": cluster,
    }
    if by_torch:
        data, *_, loss = given["neuralnet"]["layer"]
        module = {"module": "benchmarks.ddp_torch:model_of", "args": {"name": name}}
        net = {"name": "net", "type": "TorchModule", "srclayers": ["data"], "torchmodule_conf": module}
        given["neuralnet"]["layer"] = [data, net, {**loss, "srclayers": ["net", "data"]}]
    client = stack.enter_context(embedded_cluster(plan_processes(JobConf.model_validate(given).cluster)))
    ids = iter(f"ddp{i}" for i in range(1000))

    def run(steps: int) -> float:
        job, job_id = JobConf.model_validate({**given, "train_steps": steps}), next(ids)
        url = f"{folder}/{job_id}"
        result = Driver(JobRun.of(job, run_url=url, job_id=job_id), client, on_event=lambda event: None).run()
        assert result.state == "done", result.reason
        return result.step_ms["median"]

    return run


def theirs(stack: ExitStack, name: str, form: str, batch: int) -> Round:
    """Start two processes of PyTorch; return the like of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    args = [(name, form, str(batch), str(rank), port) for rank in range(RANKS)]
    ranks = [Contender("ddp_torch", *one, threads=1) for one in args]
    for rank in ranks:
        stack.callback(rank.close)
    for rank in ranks:
        rank.hear()

    def run(steps: int) -> float:
        for rank in ranks:
            rank.ask(steps, 600)  # all of them: a rank that stopped before the other would leave it waiting
        return float(np.median([rank.hear()["ms"] for rank in ranks]))

    return run


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", nargs="+", choices={name for name, _ in CASES}, default=[name for name, _ in CASES])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    print(f"cores: {len(os.sched_getaffinity(0))}; two processes of one thread; median ms of a step")
    for name, batch in [case for case in CASES if case[0] in given.net]:
        forms = ["eager", "channels_last"] if len(NETS_OF_TORCH[name].shape) == 3 else ["eager"]
        with ExitStack() as stack:
            ddp = {form: theirs(stack, name, form, batch) for form in forms}
            runs = {"TorchModule": ours(stack, name, batch, by_torch=True)}
            if name != RESNET:  # the others have a job file with the same net
                runs = {"ours": ours(stack, name, batch), **runs}
            for run in (*runs.values(), *ddp.values()):
                run(5)
            rounds = [[run(given.steps) for run in (*runs.values(), *ddp.values())] for _ in range(given.rounds)]
        medians = [float(np.median(column)) for column in zip(*rounds, strict=True)]
        best = len(runs) + int(np.argmin(medians[len(runs) :]))
        ratios = [float(np.median([row[best] / row[k] for row in rounds])) for k in range(len(runs))]
        times = [
            f"{each} {ms:.1f}" for each, ms in zip((*runs, *(f"DDP {form}" for form in ddp)), medians, strict=True)
        ]
        faster = " and ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{name:8} global batch {batch:4}   {',  '.join(times)}   {faster} times as fast", flush=True)


if __name__ == "__main__":
    main()
