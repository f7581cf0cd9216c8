"""How soon a command does something: help, validate, and the first step of a run, embedded and on a warm cluster.

Each round runs every command once; medians are shown, of CPU time of the command's own process and of the time until
it says what is waited for. ``python -m tests.benchmarks.startup [--rounds N] [--against DIR]``; the other checkout
takes turns with this one.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.runtime.processes import ROOT, cluster

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


@contextmanager
def warm_cluster(checkout: Path, folder: Path) -> Iterator[str]:
    """Start a scheduler and two workers; yield the file that says where."""
    folder.mkdir()
    with cluster(folder, cwd=checkout) as (made, _):
        yield made.file


def main() -> None:
    """Measure all, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    checkouts = [ROOT, *([options.against.resolve()] if options.against else [])]
    took: dict[tuple[str, Path], list[Took]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as directory:
        for number in range(-1, options.rounds):
            for place, checkout in enumerate(checkouts):
                folder = Path(directory) / f"{number}-{place}"
                with warm_cluster(checkout, folder) as scheduler_file:
                    run = [sys.executable, "-c", CODE, "run", JOB, *ONE_STEP, "--run-dir"]
                    there = ["--scheduler-file", scheduler_file]
                    measure([*run, str(folder / "first"), *there], checkout)
                    for name, each, until in (
                        ("import numpy", [sys.executable, "-c", "import numpy"], ""),
                        ("run --help", [sys.executable, "-c", CODE, "run", "--help"], ""),
                        ("validate", [sys.executable, "-c", CODE, "validate", JOB], ""),
                        ("run, embedded: first step", [*run, str(folder / "embedded")], FIRST_STEP),
                        ("run, warm cluster: first step", [*run, str(folder / "warm"), *there], FIRST_STEP),
                    ):
                        if number >= 0:  # the round before compiles modules and fills caches of the disk
                            took[name, checkout].append(measure(each, checkout, until))
                        elif name != "import numpy":
                            measure(each, checkout, until)
    print(f"{'median of ' + str(options.rounds):32}{'CPU s':>8}{'wall s':>8}")
    for (name, checkout), all_took in took.items():
        cpu, wall = (statistics.median(values) for values in zip(*all_took, strict=True))
        print(f"{name:32}{cpu:8.2f}{wall:8.2f}{'' if checkout == ROOT else '  ' + str(checkout)}")


if __name__ == "__main__":
    main()
