"""What is said about a run that is done, and one that was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from singa_dask.observe.files.run_facts import best_metric, facts_of, time_shares
from singa_dask.observe.files.stored_run import StoredRun
from tests.observe.runs import metrics, training, write_run


def test_facts_of_a_run_that_is_done(tmp_path: Path) -> None:
    facts = facts_of(StoredRun(write_run(tmp_path, training(), {"restarts": 1, "layers": {"fc": {"forward_ms": 1.0}}})))
    assert (facts["state"], facts["steps"], facts["restarts"], facts["resumes"]) == ("done", 100, 1, 0)
    assert facts["command"] == "singa-dask run job.yaml"
    assert facts["topology"]["nworker_groups"] == 1
    assert facts["metrics"]["train"]["step"] == 90
    assert facts["layers"] == {"fc": {"forward_ms": 1.0}}


def test_facts_of_a_run_that_was_killed(tmp_path: Path) -> None:
    facts = facts_of(StoredRun(write_run(tmp_path, training())))
    assert (facts["state"], facts["steps"], facts["seconds"]) == ("lost", 91, 1.9)
    assert facts["layers"] == {}


def test_the_best_step_is_the_first_of_the_best_tests(tmp_path: Path) -> None:
    values = [(0, 0.5), (10, 0.9), (20, 0.9), (30, 0.8)]
    run = StoredRun(write_run(tmp_path, [metrics(step, "test", accuracy=value, loss=1.0) for step, value in values]))
    assert best_metric(run) == {"metric": "test.accuracy", "value": 0.9, "step": 10}
    # of what is measured the job may name another
    run.job["early_stopping"] = {"metric": "test.loss", "mode": "auto"}
    assert best_metric(run) == {"metric": "test.loss", "value": 1.0, "step": 0}
    # the accuracy hardly shows what is learnt of a rare class
    events = [metrics(step, "test", accuracy=0.9, roc_auc=area) for step, area in ((10, 0.5), (20, 0.8), (30, 0.7))]
    ranked = StoredRun(write_run(tmp_path / "ranked", events))
    ranked.job["metrics"] = ["f1_macro", "roc_auc"]
    assert best_metric(ranked) == {"metric": "test.roc_auc", "value": 0.8, "step": 20}


def test_a_run_without_tests_has_no_best_step(tmp_path: Path) -> None:
    assert best_metric(StoredRun(write_run(tmp_path, [metrics(0, loss=1.0)]))) == {}


def test_where_time_went(tmp_path: Path) -> None:
    shares = time_shares(StoredRun(write_run(tmp_path, training())))
    # of the 10 ms of a step
    assert shares == {"compute": pytest.approx(0.7), "data": pytest.approx(0.1), "params": pytest.approx(0.2)}
