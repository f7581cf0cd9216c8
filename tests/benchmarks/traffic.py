"""Parameter traffic of AllReduce over two processes, beside what raw distributed.comm moves between them.

Raw: both processes send each other the bytes of a step of SINGA's MLP, in messages of 4 MiB, at the same time,
and drop what comes in. Ours: the same net's gradients go to the servers, are summed and applied, and new values
come back, without the layers' own work. Both between the same two processes, in turn.
``python -m tests.benchmarks.traffic [--rounds N] [--steps N]``
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import pairwise

import numpy as np
from distributed import Client

from singa_dask.runtime import Driver, embedded_cluster, plan_processes
from tests.benchmarks.exchange import raw_exchange, raw_open, ready
from tests.benchmarks.jobs import WIDTHS, mnist_mlp

CLUSTER = {"nworkers_per_group": 2, "nservers_per_group": 2}
N_VALUES = sum((a + 1) * b for a, b in pairwise(WIDTHS))


def raw_step_s(client: Client, n_bytes: int, steps: int) -> float:
    """Return the seconds that both processes need to swap ``n_bytes``."""
    workers = list(client.scheduler_info(n_workers=-1)["workers"])
    opened = [client.submit(raw_open, workers=[w], pure=False).result() for w in workers]
    swaps = [
        client.submit(raw_exchange, peer, n_bytes, steps, workers=[w], pure=False)
        for w, peer in zip(workers, reversed(opened), strict=True)
    ]
    return float(np.mean(client.gather(swaps)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        job = mnist_mlp(folder, given.steps, cluster=CLUSTER)
        job = job.model_copy(update={"train_one_batch": job.train_one_batch.model_copy(update={"alg": "Exchange"})})
        with embedded_cluster(plan_processes(job.cluster)) as client:
            client.run(ready)
            for i in range(given.rounds):
                driver = Driver(job, client, run_url=f"{folder}/run{i}", on_event=lambda event: None, job_id=f"t{i}")
                result = driver.run()
                assert result.state == "done", result.reason
                first = 4 * N_VALUES  # the values that were put, before the first step
                moved = (result.bytes["sent"] - first) / 2 / given.steps
                raw = raw_step_s(client, int(moved), given.steps)
                rows.append((moved / 1e6, 1e3 * raw, result.step_ms["median"]))
    moved, raw, ours = (float(np.median(column)) for column in zip(*rows, strict=True))
    print(f"bytes out of each process a step: {moved:.1f} MB, and as many in")
    print(f"raw distributed.comm: {raw:6.1f} ms a step, {2 * moved / raw:5.2f} GB/s both ways together")
    print(f"gradients to values:  {ours:6.1f} ms a step, {2 * moved / ours:5.2f} GB/s both ways together")
    print(f"share of raw: {np.median([100 * r / o for _, r, o in rows]):.0f} %")


if __name__ == "__main__":
    main()
