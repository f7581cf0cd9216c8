"""Processes go where their records lie, and blocks to the workers beside them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.data.loading import Survey, host_names
from singa_dask.errors import CheckpointError
from singa_dask.runtime import plan_processes
from singa_dask.runtime.checkpoints import checkpoint, lookup
from singa_dask.runtime.job.driver.locality import Locality, Surveyed, reads_remote_stores, survey
from singa_dask.runtime.planning.worker_choice import WorkerFacts, place
from tests.runtime.harness import Outcome, mlp

HOSTS = ["a", "b", "c"]
WORKERS = {f"tcp://10.0.0.{i}:1": WorkerFacts(2, 0, "", name) for i, name in enumerate("xacyb")}
NAMES = {address: host_names(facts.name) for address, facts in WORKERS.items()}


def store(*hosts: str, n: int = 480) -> Survey:
    """Return the survey of a store with a block on each of these hosts (``"ab"``: on two)."""
    return Survey([n] * len(hosts), [1000] * len(hosts), [tuple(each) for each in hosts], "f")


def job(shuffle: str = "block", **cluster: Any) -> JobConf:
    made = mlp(cluster=cluster).model_dump(mode="json")
    made["neuralnet"]["layer"][0]["store_conf"] |= {"shuffle": shuffle, "path": "hdfs://n/x"}
    return JobConf.model_validate(made)


def locality(conf: JobConf, found: Survey, fresh: bool = True, **assignments: list[int]) -> Locality:
    return Locality(conf, plan_processes(conf.cluster), Surveyed({"data": found}, [], assignments), NAMES, fresh)


def placed(conf: JobConf, near: Locality) -> list[str]:
    """Return the names of the Dask workers that are chosen."""
    chosen = place(plan_processes(conf.cluster), WORKERS, near.gain)
    return [WORKERS[address].name for address in chosen]


def test_processes_spread_over_the_hosts_that_hold_the_records() -> None:
    conf = job(nworkers_per_group=3)
    near = locality(conf, store(*["ab", "bc", "ca"] * 4))
    chosen = place(plan_processes(conf.cluster), WORKERS, near.gain)
    assert sorted(placed(conf, near)) == HOSTS
    hosts = [WORKERS[address].name for address in chosen]
    (order,) = near.assignments(chosen).values()
    assert sorted(order) == list(range(12))
    held = ["ab", "bc", "ca"] * 4
    assert all(hosts[i // 4] in held[block] for i, block in enumerate(order))


def test_groups_are_placed_where_their_files_lie() -> None:
    conf = job("none", nworker_groups=3)
    near = locality(conf, store("c", "c", "a", "a", "b", "b"))
    assert placed(conf, near) == ["c", "a", "b"]
    assert near.assignments(list(WORKERS)[:3]) == {}


def test_a_resumed_job_follows_its_deal_and_gets_no_other() -> None:
    conf = job(nworkers_per_group=2)
    near = locality(conf, store("a", "b", "a", "b"), fresh=False, data=[1, 3, 0, 2])
    assert placed(conf, near) == ["b", "a"]
    assert near.assignments(list(WORKERS)[:2]) == {}


def test_where_nobody_is_near_nothing_is_dealt() -> None:
    conf = job(nworkers_per_group=2)
    near = locality(conf, store("q", "r"))
    assert place(plan_processes(conf.cluster), WORKERS, near.gain) == place(plan_processes(conf.cluster), WORKERS)
    assert near.assignments(list(WORKERS)[:2]) == {}


def test_local_records_are_not_surveyed() -> None:
    assert not reads_remote_stores(mlp())
    assert reads_remote_stores(job())
    assert survey(mlp().to_json(), None, 60) == Surveyed({}, [], {})


def test_a_survey_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        hanging = threading.Event()
        patch.setattr("singa_dask.runtime.job.driver.locality._survey_stores", lambda *_: hanging.wait())
        with pytest.raises(TimeoutError, match="no answer in 0 s"):
            survey("", None, 0)
        hanging.set()
    with pytest.raises(CheckpointError, match=r"manifest\.json: cannot be read"):
        survey(mlp().to_json(), "nowhere", 60)


def test_a_deal_is_kept_by_every_checkpoint(run_job: Any) -> None:
    def run(**given: Any) -> Outcome:
        outcome: Outcome = run_job(**given)
        assert {report["state"] for report in outcome.reports.values()} == {"done"}
        return outcome

    order = {"data": [6, 2, 4, 0, 1, 5, 3]}
    whole = run(job=mlp(cluster={"nworkers_per_group": 2}), assignments=order)
    half = run(job=mlp(cluster={"nworkers_per_group": 2}, train_steps=5), assignments=order)
    step = lookup.find(half.url)
    assert checkpoint.Checkpoint(step).assignments == order
    rest = run(job=mlp(cluster={"nworkers_per_group": 3}), resume=step)
    assert checkpoint.Checkpoint(lookup.find(rest.url)).assignments == order
    losses = {**half.losses(), **rest.losses()}
    np.testing.assert_allclose(list(losses.values()), list(whole.losses().values()), rtol=1e-4)
