"""Our loader beside other libraries that read records: the same records from disk, in file order and shuffled.

60000 records of 784 bytes and 10000 pictures of 3 x 32 x 32, synthetic, batches of 256. Each reader runs in a process
of its own and makes files in its own format; they take turns in one run, after a round that is not counted. Read the
ratios. A reader whose package is missing is skipped. ``python -m benchmarks.peers [--rounds N] [--share S]
[--only NAME ...] [--python NAME=PATH ...]``; some packages need a Python of their own::

    pip install torch webdataset
    --python petastorm=/venv-with-pyarrow-11/bin/python
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peer_readers import BATCH, READERS

ROOT = Path(__file__).parents[1]
SETS = {"784 B": (60_000, (1, 28, 28)), "3072 B": (10_000, (3, 32, 32))}
ORDERS = {"none": "file order", "full": "shuffled"}
OURS = "ours, arrow"
# by the name of the module that is imported
INSTALL = {
    "petastorm": "pip install petastorm 'pyarrow<12' 'numpy<2', in an environment of its own",
    "streaming": "pip install mosaicml-streaming, in an environment of its own",
    "torch": "pip install torch",
    "webdataset": "pip install webdataset",
}


@contextlib.contextmanager
def contender(name: str, python: str, records: str, folder: str) -> Iterator[subprocess.Popen[str]]:
    """Start the process of a reader."""
    process = subprocess.Popen(
        [python, "-m", "benchmarks.peer_readers", name, records, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # warnings of others
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the next answer of a contender; other lines that its package prints are passed over."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    return {"skipped": "its process ended"}


def ask(process: subprocess.Popen[str], order: str) -> float:
    """Return records per second of one round; 0 if the reader fails, with a line that says why."""
    assert process.stdin is not None
    process.stdin.write(f"{order}\n")
    process.stdin.flush()
    found = answer(process)
    if "rate" not in found:
        print(f"  {process.args[3]}: {found['skipped']}", flush=True)  # type: ignore[index]
    return float(found.get("rate", 0))


def make_records(folder: str, n: int, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    np.save(f"{folder}/pixel.npy", random.integers(0, 256, (n, *shape), np.uint8))
    np.save(f"{folder}/label.npy", random.integers(0, 10, n).astype(np.int32))


def compare(names: list[str], pythons: dict[str, str], records: str, rounds: int) -> None:
    """Measure readers in turns, and print records per second and how many times as fast ours is."""
    with contextlib.ExitStack() as opened:
        ready = {}
        for name in names:
            folder = opened.enter_context(tempfile.TemporaryDirectory())
            python = pythons.get(name, pythons.get(READERS[name].package, sys.executable))
            process = opened.enter_context(contender(name, python, records, folder))
            why = answer(process).get("skipped")
            if why:
                hint = INSTALL.get(READERS[name].package)
                print(f"  {name:31} skipped: {why}{f' ({hint})' if hint else ''}", flush=True)
            else:
                ready[name] = process
        for order, title in ORDERS.items():
            rates: dict[str, list[float]] = {name: [] for name in ready}
            for i in range(rounds + 1):
                for name, process in ready.items():
                    rate = ask(process, order)
                    rates[name] += [rate] if i else []
            print(f"  {title}")
            for name, values in rates.items():
                ratios = [our / rate for our, rate in zip(rates.get(OURS, []), values, strict=False) if rate]
                times = f"{statistics.median(ratios):10.2f}" if ratios else ""
                print(f"    {name:31} {statistics.median(values) / 1e6:9.4f} {times}", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the records")
    parser.add_argument("--only", nargs="+", default=list(READERS), choices=list(READERS), metavar="NAME")
    parser.add_argument("--python", nargs="+", default=[], metavar="NAME=PATH", help="of a reader or a package")
    given = parser.parse_args()
    pythons = dict(each.split("=", 1) for each in given.python)
    print(f"cores: {len(os.sched_getaffinity(0))}; M records/s in batches of {BATCH}; times that of {OURS!r}")
    for size, (n, shape) in SETS.items():
        with tempfile.TemporaryDirectory() as records:
            print(size)
            make_records(records, int(n * given.share), shape)
            compare(given.only, pythons, records, given.rounds)


if __name__ == "__main__":
    main()
