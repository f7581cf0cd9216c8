"""Keys of a job that follow a metric of its tests or validations: ``keep_checkpoints``, ``early_stopping``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, TypeAlias

from singa_dask.conf.base import Conf
from singa_dask.conf.findings import Finding
from singa_dask.conf.kinds import Count, NonNegative, Shorthand, Size
from singa_dask.registry import suggest

Mode: TypeAlias = Literal["auto", "min", "max"]

CONFUSION = "confusion_matrix"
RANKED = {"roc_auc", "roc_auc_ovr", "average_precision"}
VALUES = {"mse", "mae", "rmse", "r2"}
TOP = re.compile(r"top_([1-9]\d*)_accuracy")
AVERAGES = ("", "_macro", "_micro", "_weighted")
SCORES = {"balanced_accuracy", *(f"{name}{how}" for name in ("precision", "recall", "f1") for how in AVERAGES), *RANKED}
PASS_METRICS = SCORES | VALUES | {"perplexity", CONFUSION}
"""Metrics of ``metrics``, beside ``top_K_accuracy``."""

LESS_IS_BETTER = ("loss", "error")
MORE_IS_BETTER = ("accuracy",)
FREQUENCIES = {"validation": ("validate_freq", "validate_steps"), "test": ("test_freq", "test_steps")}
"""Keys of a job for the frequency of a phase, and for its number of batches; the phase runs if neither is 0."""


def split_metric(metric: str) -> tuple[str, str]:
    """Split ``validation.loss`` into phase and name; both are empty if it is none."""
    phase, _, name = metric.partition(".")
    phase = "validation" if phase == "val" else phase
    return (phase, name) if phase in FREQUENCIES and name else ("", "")


def is_less_better(metric: str, mode: Mode) -> bool | None:
    """Return whether less is better; None if ``auto`` cannot tell."""
    if mode != "auto":
        return mode == "min"
    name = metric.rpartition(".")[2]
    if metric.endswith(LESS_IS_BETTER) or name in {"perplexity", *VALUES} - {"r2"}:
        return True
    return False if metric.endswith(MORE_IS_BETTER) or name in {*SCORES, "r2"} else None


def _check(metric: str, mode: Mode) -> Iterator[Finding]:
    if metric and not split_metric(metric)[0]:
        yield ("metric",), f"expected validation.<name> or test.<name>, e.g. validation.loss, got {metric!r}."
    elif metric and is_less_better(metric, mode) is None:
        yield ("mode",), f"whether less or more of {metric} is better is not known. Say mode: min, or mode: max."


class KeepConf(Conf):
    """``keep_checkpoints``: which checkpoints stay when a newer one is complete; the newest always does."""

    last: Size = 1
    """Newest checkpoints that stay."""
    best: Count = 0
    """Best checkpoints that stay beside them, by the metric."""
    metric: str = ""
    """Metric of a test or validation, e.g. test.accuracy. A checkpoint counts with the last value before it."""
    mode: Mode = "auto"
    """Whether less (min) or more (max) is better; auto knows losses, errors, accuracies, and those of metrics."""

    def rules(self) -> Iterator[Finding]:
        """Check that best and metric are there together."""
        yield from _check(self.metric, self.mode)
        if self.best and not self.metric:
            yield ("best",), "metric is missing: say by which one, e.g. metric: validation.loss."
        if self.metric and not self.best:
            yield ("metric",), "nothing is kept by it. Say best: 1, or leave it out."


class EarlyStoppingConf(Conf):
    """``early_stopping``: end the training when a metric no longer improves."""

    metric: str
    """Metric of a test or validation, e.g. validation.loss."""
    patience: Size = 5
    """Tests or validations in a row without a better value after which the job ends."""
    min_delta: NonNegative = 0.0
    """A value is better when it differs from the best so far by more than this."""
    every_best: bool = False
    """Compare with the best of all values, as scikit-learn does, not with the last that was better by ``min_delta``."""
    restore_best: bool = False
    """Write a checkpoint at each best value, and keep the newest of these: test, predict, export and serve of the run,
    and jobs that start from its params, take that of the best value. A run that goes on does so from its last step."""
    mode: Mode = "auto"
    """Whether less (min) or more (max) is better; auto knows losses, errors, accuracies, and those of metrics."""

    def rules(self) -> Iterator[Finding]:
        """Check that it is known whether less or more is better."""
        return _check(self.metric, self.mode)


def _as_keep(value: object) -> object:
    return {"last": value} if isinstance(value, int) and not isinstance(value, bool) else value


# A number stands for {last: number}.
Keep: TypeAlias = Annotated[KeepConf, Shorthand(_as_keep, lambda block: [{"type": "integer", "minimum": 1}, block])]


def check_metrics(names: Sequence[str]) -> Iterator[Finding]:
    """Yield (path, message) for each metric of ``metrics`` that nobody knows."""
    for i, name in enumerate(names):
        if name not in PASS_METRICS and not TOP.fullmatch(name):
            yield ("metrics", i), f"unknown metric {name!r}. {suggest(name, [*sorted(PASS_METRICS), 'top_5_accuracy'])}"
