"""Parameter traffic of AllReduce over two processes, beside what raw distributed.comm moves between them.

Raw: both processes send each other the bytes of a step of a net, in messages of 4 MiB, at the same time, and drop what
comes in. Ours: the net's gradients go to the servers, are summed and applied, and new values come back, without the
layers' own work: by sockets, and through shared memory. All between the same two processes, in turn. SINGA's MLP has 12
million values, the CIFAR net has 8 small params, where messages cost more than bytes.
``python -m benchmarks.traffic [--rounds N] [--steps N] [--scheme ws]``
"""

from __future__ import annotations

import argparse
import logging
import tempfile

import numpy as np
from distributed import Client, LocalCluster

from benchmarks.contender import NETS
from benchmarks.exchange import raw_exchange, raw_open, ready
from benchmarks.jobs import job_on_made_records
from singa_dask.conf import JobConf
from singa_dask.runtime import Driver, JobRun, plan_processes
from singa_dask.runtime.job.calls import present_workers
from singa_dask.runtime.job.client.job_cluster import install_jobs
from singa_dask.runtime.planning.job_plan import JobPlan

CLUSTER = {"nworkers_per_group": 2, "nservers_per_group": 2}


def raw_step_s(client: Client, n_bytes: int, steps: int) -> float:
    """Return the seconds that both processes need to swap ``n_bytes``."""
    workers = list(present_workers(client))
    opened = [client.submit(raw_open, workers=[w], pure=False).result() for w in workers]
    swaps = [
        client.submit(raw_exchange, peer, n_bytes, steps, workers=[w], pure=False)
        for w, peer in zip(workers, reversed(opened), strict=True)
    ]
    return float(np.mean(client.gather(swaps)))


def match(client: Client, job: JobConf, folder: str, rounds: int) -> tuple[float, ...]:
    """Return the bytes that each process sends a step, and the seconds of a step: raw, by sockets, shared; medians."""
    first = sum(piece.size for piece in JobPlan.make(job).slices) * 4  # the values that were put, before the first step
    rows = []
    for i in range(rounds):
        times = []
        for is_shared in (False, True):
            listen = job.cluster.listen.model_copy(update={"shared_memory": is_shared})
            given = job.model_copy(update={"cluster": job.cluster.model_copy(update={"listen": listen})})
            job_id = f"{job.name}-{i}-{is_shared}"
            url = f"{folder}/{job_id}"
            result = Driver(JobRun.of(given, run_url=url, job_id=job_id), client, on_event=lambda event: None).run()
            assert result.state == "done", result.reason
            times.append(result.step_ms["median"] / 1e3)
        moved = (result.bytes["sent"] - first) / 2 / job.train_steps
        rows.append((moved, raw_step_s(client, int(moved), job.train_steps), *times))
    return tuple(float(np.median(column)) for column in zip(*rows, strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--scheme", choices=["tcp", "ws"], default="tcp")
    given = parser.parse_args()
    print(
        "net      MB out of each process a step   ms raw   ms gradients to values   GB/s both ways   share of raw   by"
    )
    for name in ("mlp", "cifar"):
        with tempfile.TemporaryDirectory() as folder:
            made = {**job_on_made_records(NETS[name], folder), "train_one_batch": {"alg": "Exchange"}}
            made |= {"threads": 1, "train_steps": given.steps, "cluster": CLUSTER}
            job = JobConf.model_validate(made)
            layout = plan_processes(job.cluster)
            with (
                LocalCluster(
                    n_workers=len(layout.processes),
                    threads_per_worker=layout.n_threads,
                    host="127.0.0.1",
                    protocol=f"{given.scheme}://",
                    dashboard_address="127.0.0.1:0",
                    memory_limit=None,
                    silence_logs=logging.CRITICAL,
                ) as there,
                Client(there, set_as_default=False) as client,
            ):
                client.run(ready)
                install_jobs(client)
                moved, raw, *both = match(client, job, folder, given.rounds)
        for way, ours in zip(("sockets", "shared memory"), both, strict=True):
            shares = f"{2e-9 * moved / ours:16.2f} {100 * raw / ours:12.0f} %   {way}"
            print(f"{name:8} {moved / 1e6:30.2f} {1e3 * raw:8.1f} {1e3 * ours:24.1f} {shares}", flush=True)


if __name__ == "__main__":
    main()
