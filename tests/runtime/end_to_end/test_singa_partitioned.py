"""A run of SINGA 0.3 itself, repeated by partitioned nets: any layer cut in any way, the same figures.

SINGA could not do so: its gradients of a layer that is cut by features are too large by the number of workers.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf, load
from singa_dask.errors import ConfigError
from singa_dask.runtime.checkpoints.lookup import load_values
from tests.runtime.harness import Outcome
from tests.selection import circles

GOLD = Path(__file__).parents[2] / "gold"
LAYERS = ("data", "fc1", "act1", "fc2", "act2", "fc3", "loss")
LOSS_WITHIN, PARAM_WITHIN = 1e-5, 2e-6
# how one layer is cut, and how the others are; the batch, 32, cannot be cut for three workers
PLACES: dict[str, tuple[dict[str, int], int]] = {
    "records": ({"partition_dim": 0}, -1),
    "features": ({"partition_dim": 1}, 0),
    "whole": ({"partition_dim": -1}, 0),
    "location": ({"location": 1}, 0),
}
PLACES_OF_3: dict[str, tuple[dict[str, int], int]] = {
    "features": ({"partition_dim": 1}, -1),
    "whole": ({"partition_dim": -1}, 1),
    "location": ({"location": 2}, 1),
}
RunJob = Callable[..., Outcome]


def each_once(places: Iterable[str]) -> list[Any]:
    """Return all pairs of a layer and a place: each layer in one place is long, the first of them plain."""
    of_layers = list(zip(reversed(LAYERS), itertools.cycle(places)))
    return circles([*of_layers, *(each for each in itertools.product(LAYERS, places) if each not in of_layers)], long=6)


@pytest.fixture(autouse=True)
def at_singas_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for there, here in {"data": "data", "ckpt": "start"}.items():
        (tmp_path / there).symlink_to(GOLD / here)
    monkeypatch.chdir(tmp_path)


def check(run_job: RunJob, places: dict[str, dict[str, int]], others: int, n_workers: int, n_processes: int) -> None:
    job = load(GOLD / "confs" / "mp1_same_net.conf").job.model_dump(mode="json", exclude_unset=True)
    job["neuralnet"]["partition_dim"] = others
    job["neuralnet"]["layer"] = [{**each, **places.get(each["name"], {})} for each in job["neuralnet"]["layer"]]
    job["cluster"] = {
        "nworkers_per_group": n_workers,
        "nservers_per_group": n_processes,
        "nworkers_per_procs": -(-n_workers // n_processes),
    }
    outcome = run_job(JobConf.model_validate(job))
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports
    lines = json.loads((GOLD / "lines" / "mp1_same_net.json").read_text())
    for figure, within in (("loss", LOSS_WITHIN), ("accuracy", 1e-6)):
        wanted = {line["step"]: line[figure] for line in lines}
        assert outcome.metric(figure) == pytest.approx(wanted, abs=within, rel=0), figure
    stored = load_values(f"{outcome.url}/checkpoint/step-20")
    singas = load_values(str(GOLD / "end" / "mp1_same_net.bin"))
    assert stored.keys() == singas.keys()
    for name, param in singas.items():
        np.testing.assert_allclose(stored[name].values, param.values, rtol=0, atol=PARAM_WITHIN)


@pytest.mark.parametrize(("layer", "place"), each_once(PLACES))
def test_one_layer_is_cut_otherwise_over_two_workers(run_job: RunJob, layer: str, place: str) -> None:
    where, others = PLACES[place]
    check(run_job, {layer: where}, others, 2, 1)


@pytest.mark.parametrize(("layer", "place"), each_once(PLACES_OF_3))
def test_one_layer_is_cut_otherwise_over_three_workers(run_job: RunJob, layer: str, place: str) -> None:
    where, others = PLACES_OF_3[place]
    if (layer, place) == ("loss", "features"):
        with pytest.raises(ConfigError, match="expected a batch that 3 workers can share equally, got 32"):
            check(run_job, {layer: where}, others, 3, 1)
    else:
        check(run_job, {"loss": {"partition_dim": -1}, layer: where}, others, 3, 1)


@pytest.mark.parametrize("place", circles(["features", "location", "records", "whole"], long=1))
def test_in_two_processes(run_job: RunJob, place: str) -> None:
    where, others = PLACES[place]
    check(run_job, {"fc2": where}, others, 2, 2)


@pytest.mark.long
@pytest.mark.parametrize("place", circles(PLACES_OF_3))
def test_three_workers_in_two_processes(run_job: RunJob, place: str) -> None:
    where, others = PLACES_OF_3[place]
    check(run_job, {"loss": {"partition_dim": -1}, "fc2": where}, others, 3, 2)


@pytest.mark.parametrize("n_processes", circles([1, 2]))
@pytest.mark.parametrize("dim", circles([1, 0, -1], long=2))
def test_all_layers_are_cut_alike(run_job: RunJob, dim: int, n_processes: int) -> None:
    check(run_job, {}, dim, 2, n_processes)
