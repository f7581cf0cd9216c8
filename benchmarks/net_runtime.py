"""A contender: a net of a job file through the whole run time, worker and server in one process, records from a store.

A round is a job of its own; its step is timed where the worker trains a batch, and so is the time that the kernels
take of it. What is left is Python, messages and waits. ``python -m benchmarks.net_runtime NET FORM``
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from benchmarks.contender import NETS, peak_mb, say
from benchmarks.jobs import job_on_made_records
from singa_dask.conf import JobConf
from singa_dask.ops import get_ops
from singa_dask.ops.onednn.call import Call
from singa_dask.runtime import Driver, JobRun, plan_processes
from singa_dask.runtime.job.client.job_cluster import embedded_cluster
from singa_dask.training import ALGORITHMS, BP

WARM_UP = 3


class Clock(threading.local):
    """Seconds that kernels took in this thread."""

    seconds = 0.0
    running = False


CLOCK = Clock()
STEPS: list[tuple[float, float]] = []


def timed(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that adds its time to the clock, those it calls with it."""

    @wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        if CLOCK.running:
            return kernel(*args, **kwargs)
        CLOCK.running, started = True, time.perf_counter()
        try:
            return kernel(*args, **kwargs)
        finally:
            CLOCK.seconds += time.perf_counter() - started
            CLOCK.running = False

    return run


@ALGORITHMS.register("TimedBP")
class TimedBP(BP):
    """Notes how long each batch took, and how long its kernels."""

    def train_one_batch(self, step: int) -> None:
        kernels, started = CLOCK.seconds, time.perf_counter()
        super().train_one_batch(step)
        STEPS.append((time.perf_counter() - started, CLOCK.seconds - kernels))


def main() -> None:
    """Run jobs of as many steps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("net", choices=NETS)
    parser.add_argument("form")
    given = parser.parse_args()
    for ops in type(get_ops("auto")).__mro__:
        for name, kernel in list(vars(ops).items()):
            if not name.startswith("_") and isinstance(kernel, FunctionType):
                setattr(ops, name, timed(kernel))
    # what a replayed layer calls in place of its kernels
    Call._run = timed(Call._run)  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        job = job_on_made_records(NETS[given.net], folder)
        job |= {"threads": int(os.environ["OMP_NUM_THREADS"]), "train_one_batch": {"alg": "TimedBP"}}
        say({"losses": [], "note": ""})
        longest = 0.2
        for i, line in enumerate(sys.stdin):
            request = json.loads(line)
            steps = min(request["steps"], max(1, int(request["limit_s"] / longest)))
            conf = JobConf.model_validate({**job, "train_steps": WARM_UP + steps})
            STEPS.clear()
            with embedded_cluster(plan_processes(conf.cluster)) as client:
                url = str(Path(folder, f"run{i}"))
                result = Driver(JobRun.of(conf, run_url=url, job_id=f"r{i}"), client, on_event=lambda event: None).run()
            assert result.state == "done", result.reason
            ms, kernels = 1e3 * np.array(STEPS[WARM_UP:]).T
            longest = ms.max() / 1e3
            say({"ms": list(ms), "peak_mb": peak_mb(), "outside": float(1 - kernels.sum() / ms.sum())})


if __name__ == "__main__":
    main()
