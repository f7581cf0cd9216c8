"""Job keys that follow a metric."""

from __future__ import annotations

from typing import Any

import pytest

from singa_dask import conf
from singa_dask.conf.metrics import is_less_better
from singa_dask.errors import ConfigError
from singa_dask.runtime.job.checks.job import check_job
from tests.conf.test_model import JOB, job, mistakes
from tests.runtime.harness import mlp

TESTED = {"test_freq": 5, "test_steps": 1}


def test_a_number_stands_for_the_newest() -> None:
    assert job(keep_checkpoints=3) == job(keep_checkpoints={"last": 3})
    made = job(keep_checkpoints={"last": 2, "best": 1, "metric": "test.accuracy"}, **TESTED)
    assert conf.JobConf.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(
    ("keys", "path", "message"),
    [
        ({"keep_checkpoints": 0}, ("keep_checkpoints", "last"), "expected at least 1, got 0."),
        ({"keep_checkpoints": {"best": 1}}, ("keep_checkpoints", "best"), "the best checkpoints need a metric"),
        (
            {"keep_checkpoints": {"metric": "test.loss"}, **TESTED},
            ("keep_checkpoints", "metric"),
            "no checkpoint is kept by this metric",
        ),
        ({"early_stopping": {}}, ("early_stopping", "metric"), "this required key is missing."),
        ({"early_stopping": {"metric": "loss"}}, ("early_stopping", "metric"), "expected validation.<name>"),
        ({"early_stopping": {"metric": "test.figure"}, **TESTED}, ("early_stopping", "mode"), "is better. Set mode"),
        (
            {"early_stopping": {"metric": "val.loss"}},
            ("early_stopping", "metric"),
            "never measured, as validate_freq is 0",
        ),
        (
            {"early_stopping": {"metric": "test.loss"}, "test_freq": 5, "test_steps": 0},
            ("early_stopping", "metric"),
            "never measured, as test_steps is 0",
        ),
        ({"checkpoint_minutes": -1}, ("checkpoint_minutes",), "expected at least 0"),
    ],
)
def test_what_does_not_fit_is_said(keys: dict[str, Any], path: tuple[str, ...], message: str) -> None:
    ((found, text),) = mistakes(conf.JobConf, {**JOB, **keys})
    assert found == path
    assert message in text


@pytest.mark.parametrize("key", ["early_stopping", "keep_checkpoints"])
def test_a_metric_that_no_layer_measures_is_refused_before_anything_starts(key: str) -> None:
    more = {"best": 1} if key == "keep_checkpoints" else {}
    check_job(mlp(**TESTED, **{key: {"metric": "test.accuracy", **more}}))
    with pytest.raises(ConfigError, match=rf"{key}\.metric: the test net has no metric 'acuracy'\. Did you mean"):
        check_job(mlp(**TESTED, **{key: {"metric": "test.acuracy", "mode": "max", **more}}))


BETTER = {
    "f1_macro": False,
    "fc.roc_auc": False,
    "rmse": True,
    "perplexity": True,
    "r2": False,
    "top_5_accuracy": False,
}


@pytest.mark.parametrize(("metric", "less"), [*BETTER.items(), ("perplexity", True), ("my_f1", None)])
def test_it_is_known_which_way_is_better(metric: str, less: bool | None) -> None:
    assert is_less_better(f"test.{metric}", "auto") is less
    assert is_less_better(f"test.{metric}", "min") is True
