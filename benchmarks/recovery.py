"""How long a job takes to notice a lost process, and to train on: ``kill -9`` in each topology.

A cluster of two Dask workers of two threads; with a spare worker, without one, and with nannies. Each round kills the
last process of the digits job in the middle of a run. ``others`` is the longest step that worker groups which go on
take after it, in medians of their steps. ``python -m benchmarks.recovery [--rounds N]``
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from singa_dask.conf import JobConf
from tests.faults.jobs import first_unit, units_by_process
from tests.faults.machines import BARE, NANNY, Machines, machines
from tests.faults.runs import Moment, Run, at, at_step, end_job, killed
from tests.runtime.processes import FRAMEWORKS, digits

# (name, options of the workers, how many)
CLUSTERS = [("spare", BARE, 3), ("packed", BARE, 2), ("nanny", NANNY, 2)]
FIRST_STEP, MORE_STEPS = 200, 100


def endless(framework: str) -> JobConf:
    """Return a digits job that shows each step."""
    return digits(framework, "train_steps=1000000", "disp_freq=1")


def runs(framework: str, options: tuple[str, ...], n: int, rounds: int, folder: Path) -> Iterator[Run]:
    """Run jobs of which one process is killed, on a cluster that is made whole in between."""
    job = endless(framework)
    victim = first_unit(job, len(units_by_process(job)) - 1)
    folder.mkdir()
    with machines(folder, *options, n=n) as there:
        for number in range(rounds):
            there.settle(n)
            yield disturbed(job, victim, there, folder / f"runs{number}")


def disturbed(job: JobConf, victim: str, there: Machines, folder: Path) -> Run:
    """Run a job; kill the process of a unit, and end the job when it has trained on."""
    shown = 0

    def trained_on(run: Run, event: dict[str, object]) -> bool:
        nonlocal shown
        shown += event["event"] == "metrics"
        return shown >= MORE_STEPS

    moment: Moment = trained_on
    script = [(at_step(FIRST_STEP), killed(victim)), (at("placed"), lambda run: None), (moment, end_job)]
    run = Run(job, there, folder, *script)
    if run.result.state != "stopped":
        raise RuntimeError(f"{run.result.reason}\n{run.result.error}")
    return run


def longest_step(run: Run) -> float:
    """Return the longest step after the kill in worker groups that went on, in medians of all; nan if none did."""
    restarts = run.named("restart")
    lost = {group for event in restarts for group in event.get("groups", ())}
    groups = {event["group"] for event in run.named("metrics")} - lost
    if not groups or any("groups" not in event for event in restarts):
        return math.nan
    steps: list[float] = []
    later: list[float] = []
    for group in groups:
        shown = [
            (came, each["time"]) for came, each in run.events if each["event"] == "metrics" and each["group"] == group
        ]
        for (_, begin), (came, end) in pairwise(shown):
            steps.append(end - begin)
            if came >= run.fault_times[0]:
                later.append(end - begin)
    return max(later) / statistics.median(steps)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"medians (and maxima) of {rounds}: seconds after the kill")
    print(f"{'topology':14}{'cluster':10}{'noticed':>16}{'a new step':>16}{'computed again':>16}{'others':>16}")
    with tempfile.TemporaryDirectory() as folder:
        for framework in FRAMEWORKS:
            for name, options, n in CLUSTERS:
                if framework == "single" and name == "packed":
                    continue  # the second worker is a spare
                done = list(runs(framework, options, n, rounds, Path(folder) / f"{framework}-{name}"))
                noticed = [run.detection_s() for run in done]
                new_step = [run.recovery_s() for run in done]
                again = [run.result.recomputed_steps for run in done]
                others = [longest_step(run) for run in done]
                columns = [f"{statistics.median(each):.2f} ({max(each):.2f})" for each in (noticed, new_step, others)]
                print(
                    f"{framework:14}{name:10}{columns[0]:>16}{columns[1]:>16}{statistics.median(again):>16g}{columns[2]:>16}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
