"""A dask.dataframe larger than the memory of its Dask workers: making it ready for training, and reading it once.

Each reads the same frame, which is generated partition by partition, in a process of its own with a Dask cluster of its
own, one after another: `singa_dask.train`, `SingaClassifier.fit`, the matrix of xgboost.dask, and PyTorch's DataLoader
that computes a partition at a time. Nets are as small as can be, so that the records take the time. Each Dask worker
is limited to ``--limit-gb``; processes that ended, and workers that Dask paused, are counted.

``python -m benchmarks.dataframe [--rows N] [--columns N] [--what NAME ...] [--python xgboost=PATH ...]``
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
READERS = ("frame", "train", "fit", "xgboost", "torch")
POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--parts", type=int, default=40)
    parser.add_argument("--limit-gb", type=float, default=1.2, help="of a Dask worker; 0 for none")
    parser.add_argument("--limit-s", type=float, default=600.0, help="of each")
    parser.add_argument("--what", nargs="+", choices=READERS, default=READERS)
    parser.add_argument("--python", nargs="*", default=[], metavar="NAME=PATH", help="interpreters that have a package")
    given = parser.parse_args()
    pythons = dict(each.split("=", 1) for each in given.python)
    options = {name: getattr(given, name) for name in ("rows", "columns", "parts", "limit_gb")}
    size = given.rows * given.columns * 8 / 1e9
    print(f"{given.rows} rows, {given.columns} columns, {size:.1f} GB of float64, {given.parts} partitions")
    print(f"two Dask workers of two threads, {given.limit_gb:g} GB each; load of the machine {os.getloadavg()[0]:.1f}")
    print(
        f"{'':8} {'ready s':>8} {'rows/s':>10} {'read s':>8} {'rows/s':>10}  peak MB of workers, client; ended, paused"
    )
    for what in given.what:
        try:
            found = _run(pythons.get(what, sys.executable), what, options, given.limit_s)
        except subprocess.TimeoutExpired:
            print(f"{what:8} no end in {given.limit_s:g} s", flush=True)
            continue
        if found.returncode:
            print(f"{what:8} failed", flush=True)
            continue
        _show(what, given.rows, json.loads(found.stdout.splitlines()[-1]))


def _run(python: str, what: str, options: dict[str, Any], limit_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "benchmarks.dataframe_readers", what, json.dumps(options)],
        stdout=subprocess.PIPE,
        env=os.environ | dict.fromkeys(POOLS, "1"),
        cwd=ROOT,
        text=True,
        timeout=limit_s,
    )


def _show(what: str, rows: int, found: dict[str, Any]) -> None:
    times = "".join(_time(rows, found[name]) for name in ("ready_s", "read_s"))
    workers = " ".join(f"{each:.0f}" for each in found["workers_mb"])
    print(
        f"{what:8} {times} {workers}, {found['client_mb']:.0f}; {found['ended']}, {found['paused']}"
        f" (load {found['load']:.1f}) {found['note']}",
        flush=True,
    )


def _time(rows: int, seconds: float | None) -> str:
    return f"{seconds:8.1f} {rows / seconds:10.0f} " if seconds else f"{'':20}"


if __name__ == "__main__":
    main()
