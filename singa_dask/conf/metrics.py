"""Names of metrics, and the keys of a job that depend on a metric: ``keep_checkpoints``, ``early_stopping``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, TypeAlias

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, NonNegative, Shorthand, Size
from singa_dask.conf.mistakes import Finding
from singa_dask.wording import suggest

Mode: TypeAlias = Literal["auto", "min", "max"]

CONFUSION = "confusion_matrix"
RANKED = {"auc", "roc_auc", "roc_auc_ovr", "average_precision"}
VALUES = {"mse", "mae", "rmse", "r2"}
TOP = re.compile(r"top_([1-9]\d*)_accuracy")
AVERAGES = ("", "_macro", "_micro", "_weighted")
SCORES = {"balanced_accuracy", *(f"{name}{how}" for name in ("precision", "recall", "f1") for how in AVERAGES), *RANKED}
PASS_METRICS = SCORES | VALUES | {"perplexity", CONFUSION}
"""Metrics that ``metrics`` may list, in addition to ``top_K_accuracy``."""
OF_LAYERS = {"loss", "accuracy", "binary_accuracy"}
"""Metrics that layers always measure; ``metrics`` may list them, too."""
_MEANT = {
    "acc": "accuracy",
    "auroc": "auc",
    "pr_auc": "average_precision",
    "log_loss": "loss",
    "mean_squared_error": "mse",
    "mean_absolute_error": "mae",
    "root_mean_squared_error": "rmse",
}

LESS_IS_BETTER = ("loss", "error")
MORE_IS_BETTER = ("accuracy",)
FREQUENCIES = {"validation": ("validate_freq", "validate_steps"), "test": ("test_freq", "test_steps")}
"""Phase -> keys of its frequency and of its number of batches. The phase runs if neither is 0."""


def split_metric(metric: str) -> tuple[str, str]:
    """Split ``validation.loss`` into phase and name; return empty texts for any other metric."""
    phase, _, name = metric.partition(".")
    phase = "validation" if phase == "val" else phase
    return (phase, name) if phase in FREQUENCIES and name else ("", "")


def is_less_better(metric: str, mode: Mode) -> bool | None:
    """Return whether a lower value is better; None if ``auto`` does not know the metric."""
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
        yield ("mode",), f"it is not known whether a lower or a higher {metric} is better. Set mode: min, or mode: max."


class KeepConf(Conf):
    """``keep_checkpoints``: the checkpoints that are kept when a newer one is complete."""

    last: Size = 1
    """Number of newest checkpoints to keep."""
    best: Count = 0
    """Number of additional checkpoints to keep: the best by ``metric``."""
    metric: str = ""
    """Metric of a test or validation, e.g. test.accuracy. The value of a checkpoint is the last one measured before
    it."""
    mode: Mode = "auto"
    """Whether a lower (min) or higher (max) value is better; auto knows losses, errors, accuracies, and metrics."""

    def rules(self) -> Iterator[Finding]:
        """Check that best and metric are set together."""
        yield from _check(self.metric, self.mode)
        if self.best and not self.metric:
            yield ("best",), "the best checkpoints need a metric. Set it, e.g. metric: validation.loss."
        if self.metric and not self.best:
            yield ("metric",), "no checkpoint is kept by this metric. Set best: 1, or leave metric out."


class EarlyStoppingConf(Conf):
    """``early_stopping``: stop the training when a metric no longer improves."""

    metric: str
    """Metric of a test or validation, e.g. validation.loss."""
    patience: Size = 5
    """Number of consecutive tests or validations without a better value after which the job ends."""
    min_delta: NonNegative = 0.0
    """Minimum improvement over the best value so far."""
    every_best: bool = False
    """Compare with the best of all values, as scikit-learn does, and not with the last value that improved by
    ``min_delta``."""
    restore_best: bool = False
    """Write a checkpoint at each best value, and keep the newest of these checkpoints. The commands test, predict,
    export and serve, and jobs that start from the params of the run, use this checkpoint. A resumed run uses the last
    step."""
    mode: Mode = "auto"
    """Whether a lower (min) or higher (max) value is better; auto knows losses, errors, accuracies, and metrics."""

    def rules(self) -> Iterator[Finding]:
        """Check the metric and its mode."""
        return _check(self.metric, self.mode)


def _as_keep(value: object) -> object:
    return {"last": value} if isinstance(value, int) and not isinstance(value, bool) else value


# a plain number stands for {last: number}
Keep: TypeAlias = Annotated[KeepConf, Shorthand(_as_keep, lambda block: [{"type": "integer", "minimum": 1}, block])]


def check_metrics(names: Sequence[str]) -> Iterator[Finding]:
    """Yield (path, message) for each unknown metric of ``metrics``."""
    for i, name in enumerate(names):
        if name not in PASS_METRICS | OF_LAYERS and not TOP.fullmatch(name):
            plain = re.sub(r"[\W_]+", "_", name.lower()).removesuffix("_score")
            known = [*PASS_METRICS, *OF_LAYERS, "top_5_accuracy"]
            yield ("metrics", i), f"unknown metric {name!r}. {suggest(_MEANT.get(plain, plain), known)}"
