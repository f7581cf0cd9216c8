"""The card of the benchmark on a GPU: which one it is, and how fast products and copies are."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable
from importlib import metadata

import numpy as np

from benchmarks.gpu_nets import DEVICE
from benchmarks.gpu_report import Report
from benchmarks.loop import dtype_of
from singa_dask.ops import NumpyOps, get_ops

__all__ = ["bytes_per_s", "card", "operations_per_s", "seconds"]

PACKAGES = ("numpy", "cupy", "cupy-cuda12x", "cupy-cuda13x", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13",
            "nvidia-cudnn-frontend", "torch", "triton", "distributed")  # fmt: skip
PRECISIONS = ("float32", "tf32", "bf16")


def seconds(do: Callable[[], object], wait: Callable[[], object], rounds: int = 5, times: int = 10) -> float:
    """Return the least time of doing something on the device, once warm."""
    found = []
    for _ in range(rounds + 1):
        wait()
        started = time.perf_counter()
        for _ in range(times):
            do()
        wait()
        found.append((time.perf_counter() - started) / times)
    return min(found[1:])


def card(_: str, report: Report, small: bool) -> None:
    """Tell which card it is, which libraries there are, and how fast products and copies are."""
    query = "name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit,compute_cap"
    asked = subprocess.run(
        ["sh", "-c", f"nvidia-smi --query-gpu={query} --format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    report.tell("nvidia-smi", said=(asked.stdout or asked.stderr).strip(), python=platform.python_version())
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    report.tell("versions", **versions)
    for precision in PRECISIONS:
        report.attempt(f"ours {precision}", lambda precision=precision: _our_peak(report, precision, small))
    report.attempt("ours bandwidth", lambda: _our_bandwidth(report, small))
    if not small:
        report.attempt("torch", lambda: _torch_peaks(report, 8192, 1 << 30))


def operations_per_s(ops: NumpyOps, precision: str, small: bool) -> float:
    """Return how fast products of large matrices are in a precision; the thread is to be at the device."""
    n, random, kind = (64 if small else 8192), np.random.default_rng(0), dtype_of(precision)
    x, w = (ops.from_host(random.standard_normal((n, n), np.float32).astype(kind)) for _ in range(2))
    # a product of a layer: its weights are float32 where features are bfloat16
    w = ops.from_host(np.ascontiguousarray(ops.to_host(w).astype(np.float32))) if precision == "bf16" else w
    out = ops.zeros((n, n), kind)
    return 2 * n**3 / seconds(lambda: ops.linear(x, w, None, out=out), ops.synchronize, times=5)


def bytes_per_s(ops: NumpyOps, small: bool) -> tuple[float, float]:
    """Return how fast memory is copied, and two arrays are added up into a third, in bytes read and written."""
    n_bytes = 1 << 16 if small else 1 << 30
    x, y, out = (ops.zeros((n_bytes // 4,), np.float32) for _ in range(3))
    copied = seconds(lambda: ops.copy(x, out=out), ops.synchronize)
    added = seconds(lambda: ops.add(x, y, out=out), ops.synchronize)
    return 2 * n_bytes / copied, 3 * n_bytes / added


def _our_peak(report: Report, precision: str, small: bool) -> None:
    ops = get_ops(DEVICE, precision)
    with ops.activate():
        report.tell(f"ours {precision}", tflops=operations_per_s(ops, precision, small) / 1e12)


def _our_bandwidth(report: Report, small: bool) -> None:
    ops = get_ops(DEVICE)
    with ops.activate():
        copied, added = bytes_per_s(ops, small)
    report.tell("ours bandwidth", copy_gbs=copied / 1e9, triad_gbs=added / 1e9)


def _torch_peaks(report: Report, n: int, n_bytes: int) -> None:
    import torch

    wait = torch.cuda.synchronize
    report.tell("torch", cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(), n=torch.cuda.device_count())
    for precision in PRECISIONS:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        kind = torch.bfloat16 if precision == "bf16" else torch.float32
        x, w = (torch.randn(n, n, device="cuda").to(kind) for _ in range(2))
        taken = seconds(lambda x=x, w=w: x @ w, wait)  # type: ignore[misc]
        report.tell(f"torch {precision}", tflops=2 * n**3 / taken / 1e12)
    x, y, out = (torch.zeros(n_bytes // 4, device="cuda") for _ in range(3))
    copied, added = seconds(lambda: out.copy_(x), wait), seconds(lambda: torch.add(x, y, alpha=2.0, out=out), wait)
    report.tell("torch bandwidth", copy_gbs=2 * n_bytes / copied / 1e9, triad_gbs=3 * n_bytes / added / 1e9)
