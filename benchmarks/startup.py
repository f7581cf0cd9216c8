"""How soon a command does something: help, validate, and the first step of a run, embedded and on a warm cluster.

Each round runs every command once; medians are shown, of CPU time of the command's own process and of the time until
it says what is waited for. ``python -m benchmarks.startup [--rounds N]``; `benchmarks.all` compares checkouts.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

JOB = "configs/digits/mlp.yaml"
ONE_STEP = ("--set", "train_steps=1", "--set", "test_freq=0", "--set", "checkpoint_freq=0")
FIRST_STEP = "Train @ step 0:"
CODE = "from singa_dask.cli import main; main()"


class Took(NamedTuple):
    """Seconds: of CPU until the end, of time until the line that is waited for."""

    cpu: float
    wall: float


def measure(command: Sequence[str], checkout: Path, until: str = "") -> Took:
    """Run a command; ``until`` is the start of a line on stderr, or empty for its end."""
    # as after the first use of an installed package, whose modules are compiled
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with subprocess.Popen(
        command, cwd=checkout, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        wall, said = 0.0, []
        for line in running.stderr:
            said.append(line)
            if until and line.startswith(until):
                wall = time.perf_counter() - started
    wall = wall or time.perf_counter() - started
    if running.returncode or (until and not any(line.startswith(until) for line in said)):
        raise RuntimeError(f"{command}: {''.join(said)}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def commands(folder: Path, scheduler_file: str) -> list[tuple[str, list[str], str]]:
    """Return what to measure: a name, a command, and the line to wait for."""
    ours = [sys.executable, "-c", CODE]
    run = [*ours, "run", JOB, *ONE_STEP, "--run-dir"]
    return [
        ("import numpy", [sys.executable, "-c", "import numpy"], ""),
        ("run --help", [*ours, "run", "--help"], ""),
        ("validate", [*ours, "validate", JOB], ""),
        ("first step, embedded", [*run, str(folder / "embedded")], FIRST_STEP),
        ("first step, warm cluster", [*run, str(folder / "warm"), "--scheduler-file", scheduler_file], FIRST_STEP),
    ]


def main() -> None:
    """Measure all, and print a table."""
    from tests.runtime.processes import ROOT, cluster

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    took: dict[str, list[Took]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as (made, _):
        for number in range(-1, options.rounds):
            for name, command, until in commands(Path(folder, str(number)), made.file):
                measured = measure(command, ROOT, until)
                # the first round compiles modules, and is the first job of its cluster
                if number >= 0:
                    took[name].append(measured)
    print(f"{'medians of ' + str(options.rounds):28}{'CPU s':>8}{'wall s':>8}")
    for name, all_took in took.items():
        cpu, wall = (statistics.median(values) for values in zip(*all_took, strict=True))
        print(f"{name:28}{cpu:8.2f}{wall:8.2f}")


if __name__ == "__main__":
    main()
