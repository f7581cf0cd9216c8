"""Many kills at random moments: of one process at a time, and of all of them as they come.

What is random follows from a seed. ``pytest -m soak`` has a few runs; set ``FAULT_RUNS``, ``FAULT_SECONDS``,
``FAULT_SEEDS`` and ``FAULT_TOPOLOGIES`` for more, as CONTRIBUTING.md says.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.faults.jobs import SYNCHRONOUS, first_unit, job, units_by_process
from tests.faults.machines import Machines, check_left
from tests.faults.runs import Event, Run, at_step, check_params, check_same, killed
from tests.faults.test_asynchronous import check_as_accurate
from tests.runtime.processes import residue

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

STEPS = 400
RUNS = int(os.environ.get("FAULT_RUNS", "1"))
SECONDS = float(os.environ.get("FAULT_SECONDS", "8"))
SEEDS = range(int(os.environ.get("FAULT_SEEDS", "1")))
# one whose groups are synchronous, one whose groups are not
TOPOLOGIES = os.environ.get("FAULT_TOPOLOGIES", "partitioned hogwild").split()
# of a process, in a run of three minutes; shorter runs have as many deaths
MEAN_LIFE_S = 20.0 * min(SECONDS, 180.0) / 180.0
MANY_RESTARTS = {"max_restarts": 100_000}


@pytest.mark.parametrize("topology", SYNCHRONOUS)
@pytest.mark.parametrize("number", range(RUNS))
def test_a_kill_at_a_random_step(
    tmp_path: Path, calm: Any, request: pytest.FixtureRequest, topology: str, number: int
) -> None:
    random = np.random.default_rng([number, list(SYNCHRONOUS).index(topology)])
    # the processes of a job of one process are not packed on others
    kinds = ["nannies", "spare"] if topology == "single" else ["nannies", "bare", "spare"]
    kind = kinds[number % len(kinds)]
    there: Machines = request.getfixturevalue("nannies" if kind == "nannies" else "bare")
    if kind == "spare":
        there.grow(1)
        there.client.wait_for_workers(3, timeout=240)
    made = job(topology, STEPS)
    process = int(random.integers(len(units_by_process(made))))
    moment = at_step(int(random.integers(STEPS // 2)))
    run = Run(made, there, tmp_path / "runs", (moment, killed(first_unit(made, process))))
    # on a busy machine the nanny may be too late for the restart: the units then move to what it has started
    check_same(run, calm(made), moves=run.n_moves())


class Chaos:
    """Kills processes of a job at random; the job ends when the time is over.

    It is the moment and the fault of a script that never ends: it looks at each event.
    """

    def __init__(self, seed: int) -> None:
        self.n_kills = 0
        self._shown: Counter[int] = Counter()  # steps of each group since units were placed or killed
        self._random = np.random.default_rng(seed)
        self._began = time.monotonic()
        self._next = 0.0
        self._is_over = False

    def __call__(self, run: Run, event: Event) -> bool:
        now = time.monotonic() - self._began
        if self._is_over or event["event"] not in ("metrics", "placed", "restart"):
            return False
        if event["event"] == "metrics":
            self._shown[event["group"]] += 1
        else:
            self._shown.clear()
        if now >= SECONDS:
            # results of fewer steps say nothing; and if a loss is still to be noticed, they may be lost with it
            if all(self._shown[group] >= STEPS for group in range(run.job.cluster.nworker_groups)):
                self._shown.clear()  # to look takes so long that events pile up: not at each of them
                if _all_alive(run):
                    self._is_over = True
                    run.driver.stop()
        elif now >= self._next:
            self._strike(run)
            n_processes = len(set(run.placed.values())) or 1
            self._next = now + float(self._random.exponential(MEAN_LIFE_S / n_processes))
        return False

    def _strike(self, run: Run) -> None:
        units = sorted(run.placed)
        if units and self._next > 0:
            with suppress(AssertionError, ProcessLookupError):  # it is dead already
                killed(units[int(self._random.integers(len(units)))])(run)
                self.n_kills += 1
                self._shown.clear()


def _all_alive(run: Run) -> bool:
    try:
        return all(run.machines.pid(address) for address in set(run.placed.values()))
    except AssertionError:
        return False


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_processes_that_live_for_seconds(
    nannies: Machines, tmp_path: Path, calm: Any, topology: str, seed: int
) -> None:
    nannies.settle(2)
    before = residue(nannies.client)
    nannies.grow(1)
    nannies.client.wait_for_workers(3, timeout=240)
    chaos = Chaos(seed)
    made = job(topology, 1_000_000, MANY_RESTARTS)
    run = Run(made, nannies, tmp_path / "runs", (chaos, lambda run: None), limit_s=4 * SECONDS + 180)
    assert not run.hangs
    assert run.result.state == "stopped", run.result
    assert chaos.n_kills > 0
    assert run.result.restarts >= 1
    print(f"{topology}, seed {seed}: {chaos.n_kills} kills, {run.result.steps} steps, {run.result.restarts} restarts, "
          f"{run.result.recomputed_steps} recomputed, longest pause {run.longest_pause_s():.1f} s")  # fmt: skip
    if topology in SYNCHRONOUS:
        check_params(run.url, calm(job(topology, run.result.steps, MANY_RESTARTS)))
    else:  # each group has trained for so many steps since the last loss, maybe from the first params
        check_as_accurate(run, calm(job(topology, STEPS)))
    check_left(nannies.client, before)
