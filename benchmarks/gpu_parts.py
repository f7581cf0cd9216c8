"""Parts of the benchmark on a GPU: agreement with the CPU, jobs through the run time, and pytest's share."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contender import NETS
from benchmarks.gpu_card import card, seconds
from benchmarks.gpu_nets import DEVICE, loop_of, net_of
from benchmarks.gpu_report import Report
from benchmarks.jobs import job_on_made_records
from singa_dask.conf import JobConf
from singa_dask.ops import get_ops
from singa_dask.runtime import Driver, JobRun, Result, plan_processes
from singa_dask.runtime.job.client.job_cluster import embedded_cluster

__all__ = ["agree", "card", "loader", "runtime", "tests"]

ROOT = Path(__file__).parents[1]
N_AGREE = 50
# Precisions, and how far apart losses may be. What is rounded otherwise grows, between two libraries on one CPU, too.
# The first steps of RMSProp and Adam go by the signs of gradients, and a sample of an RBM is one thing or the other.
AGREE = {
    "mlp": [("float32", 1e-3)], "lenet": [("float32", 1e-3)], "cifar": [("float32", 1e-3)],
    "cifar-bn": [("float32", 1e-3)], "resnet20": [("float64", 1e-6), ("float32", 2e-2)],
    "transformer": [("float64", 1e-6), ("float32", 5e-3)],
    "gru": [("float64", 1e-6), ("float32", 2e-2)], "rbm": [("float64", 1e-6), ("float32", 5e-3)],
}  # fmt: skip


# -- the same as on the CPU ---------------------------------------------------------------------------


def agree(what: str, report: Report, small: bool) -> None:
    """Compare the losses of fixed-seed runs on the CPU and on the GPU, and those of two runs on the GPU."""
    for precision, within in AGREE[what]:
        report.attempt(precision, lambda given=(what, precision, within): _agree(*given, report, small))


def _agree(what: str, precision: str, within: float, report: Report, small: bool) -> None:
    """Compare losses in one precision."""

    def losses(device: str) -> np.ndarray[Any, Any]:
        ops = get_ops(device, precision)
        with ops.activate():
            loop = loop_of(what, ops, precision, small)
            return np.array([loop.train_one_batch() for _ in range(4 if small else N_AGREE)])

    wanted, first, again = losses("auto"), losses(DEVICE), losses(DEVICE)
    apart = float(np.max(np.abs(first - wanted) / np.maximum(1, np.abs(wanted))))
    same = bool((first == again).all())
    report.tell(precision, apart=apart, same_bits=same, first=wanted[0], last=[wanted[-1], first[-1]])
    if not apart <= within:
        told = f"losses differ by {apart:.2g}: {first.tolist()}, expected {wanted.tolist()}"
        report.tell(precision, failed=told)


# -- whole jobs ---------------------------------------------------------------------------------------


def driven(folder: str, n_rows: int, n_steps: int, **changes: Any) -> Result:
    """Run the CIFAR net on made-up records from a local store: one worker on the GPU, its server beside it."""
    job = job_on_made_records(NETS["cifar"]._replace(n_rows=n_rows), folder) | {"gpu": [0], "train_steps": n_steps}
    job["neuralnet"]["layer"][0]["store_conf"]["shuffle"] = "block"
    conf = JobConf.model_validate({**job, **changes})
    with embedded_cluster(plan_processes(conf.cluster)) as client:
        url = str(Path(folder, f"run-{n_rows}-{len(list(Path(folder).iterdir()))}"))
        result = Driver(JobRun.of(conf, run_url=url, job_id=Path(url).name), client, on_event=lambda event: None).run()
    assert result.state == "done", (result.reason, result.error)
    return result


def loader(_: str, report: Report, small: bool) -> None:
    """Tell which share of a step waits for records."""
    for n_rows, n_steps in ((4, 6),) if small else ((100, 1000), (1024, 300)):
        with tempfile.TemporaryDirectory() as folder:
            result = driven(folder, n_rows, n_steps)
        step_ms = result.step_ms["median"]
        report.tell(f"batch {n_rows}", step_ms=step_ms, waits=result.wait_ms["data"] / step_ms)


def runtime(_: str, report: Report, small: bool) -> None:
    """Tell what worker, stub and server add to the bare step."""
    for n_rows, n_steps in ((4, 6),) if small else ((100, 1000), (1024, 300)):
        for precision in ("float32",) if small else ("tf32", "bf16"):
            ops = get_ops(DEVICE, precision)
            with ops.activate():
                loop = net_of(NETS["cifar"]._replace(n_rows=n_rows), ops, precision)
                bare_ms = 1e3 * seconds(loop.train, ops.synchronize, 2 if small else 5, 2 if small else 50)
            with tempfile.TemporaryDirectory() as folder:
                result = driven(folder, n_rows, n_steps, precision=precision)
            step_ms = result.step_ms["median"]
            report.tell(f"batch {n_rows} {precision}", bare_ms=bare_ms, step_ms=step_ms, adds=step_ms / bare_ms - 1)


def tests(what: str, report: Report, small: bool) -> None:
    """Run what pytest has for GPUs in a folder of the tests, and show the end of what it says."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--maxfail=40", "--tb=short"]
    command += [f"tests/{what}", "-k", "cuda or cupy or gpu", "--deselect", "tests/gpu/test_benchmark.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout[-20_000:], done.stderr[-2000:], flush=True)
    summary = done.stdout.strip().splitlines()[-1:] or [""]
    told = {"failed": done.stdout[-8000:]} if done.returncode else {}
    report.tell(code=done.returncode, summary=summary[0], **told)
