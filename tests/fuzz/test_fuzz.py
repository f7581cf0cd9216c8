"""Damaged files of all formats: right data, or a clear error; with a manifest no change without a word.

No mutation ends the process, hangs, or allocates more than twice the file. ``pytest -m soak tests/fuzz`` tries 80
mutations of each subject in processes of their own, and ``pytest -m long`` some of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from singa_dask.data.stores import STORES
from tests.fuzz.judge import EXPECTED, REFUSED, Judge
from tests.fuzz.mutations import mutate
from tests.fuzz.subjects import SUBJECTS
from tests.fuzz.warm_process import WarmProcess

N_QUICK, N_LONG, N_SOAK = 2, 4, 80


def test_every_store_is_damaged() -> None:
    assert {subject.store for subject in SUBJECTS.values()} == set(STORES.names())


def test_a_seed_means_one_mutation() -> None:
    whole = bytes(range(256)) * 40
    damaged = [mutate(whole, seed) for seed in range(100)]
    assert damaged == [mutate(whole, seed) for seed in range(100)]
    assert whole not in damaged
    assert len(set(damaged)) > 90
    assert {(len(each) > len(whole)) - (len(each) < len(whole)) for each in damaged} == {-1, 0, 1}


@pytest.mark.parametrize("name", SUBJECTS)
def test_some_mutations(name: str, tmp_path: Path) -> None:
    judge = Judge(name, tmp_path / "judge")
    outcomes = {seed: judge.outcome(seed) for seed in range(N_QUICK)}
    assert {seed: outcome for seed, outcome in outcomes.items() if outcome not in EXPECTED} == {}


@pytest.fixture(scope="module")
def process() -> Iterator[WarmProcess]:
    with WarmProcess() as process:
        yield process


@pytest.mark.parametrize(
    "n", [pytest.param(N_LONG, marks=pytest.mark.long), pytest.param(N_SOAK, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("name", SUBJECTS)
def test_many_mutations(name: str, n: int, process: WarmProcess) -> None:
    outcomes = {seed: process.outcome(name, seed) for seed in range(n)}
    assert {seed: outcome for seed, outcome in outcomes.items() if outcome not in EXPECTED} == {}
    counts = Counter(outcomes.values())
    # few may all be harmless, and lines are right whatever their bytes
    assert counts[REFUSED] > n / 8 or n == N_LONG or name == "lines", counts
