"""find_rate: propose a learning rate for a job, from a short run with a rising rate."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client

from singa_dask import fs
from singa_dask.conf.files.yaml_text import read_plain
from singa_dask.errors import ConfigError, NumericError
from singa_dask.jobs.checks import check, complete
from singa_dask.jobs.job import Job, as_job
from singa_dask.jobs.train import train
from singa_dask.observe.event_texts import layer_metrics
from singa_dask.observe.files.run_directory import new_job_id
from singa_dask.observe.files.stored_run import StoredRun
from singa_dask.observe.pictures.curves import Panel, PlottedCurve
from singa_dask.observe.pictures.figure import figure_of

PREFIX = "find-rate-"
MIN_STEPS = 20
LEFT_OUT = ("checkpoint_freq", "checkpoint_after", "disp_", "test_", "validate_")
"""Keys, or prefixes of keys, that the short run omits."""
OTHERS = ("cluster", "early_stopping", "epochs", "keep_checkpoints", "metrics", "mlflow", "profile", "tensorboard")


@dataclass(frozen=True)
class RateCurve:
    """The loss of a job as a function of its learning rate, and the proposed rate.

    Attributes
    ----------
    rates, losses, smoothed : ndarray, 1-D float64
        For each step: learning rate, loss before the step, and exponential mean of the losses up to this step.
    rate : float
        Proposed learning rate: a quarter of the rate with the lowest smoothed loss.
    """

    rates: np.ndarray
    losses: np.ndarray
    smoothed: np.ndarray
    rate: float

    def panels(self) -> list[Panel]:
        """Return the panels of the figure."""
        raw = np.minimum(self.losses, self.smoothed.max())  # clip the raw curve, to keep the smoothed curve visible
        curves = [PlottedCurve(0, "train", self.rates, raw, 0), PlottedCurve(0, "train", self.rates, self.smoothed)]
        return [Panel("loss", curves, mark=self.rate)]

    def plot(self) -> Any:
        """Return a matplotlib figure of losses, smoothed losses, and the proposed rate."""
        return figure_of(self.panels(), [f"base_lr = {self.rate:g}"], "rate")


def find_rate(
    job: Job | str | os.PathLike[str],
    *,
    low: float = 1e-6,
    high: float = 10.0,
    steps: int = 100,
    data: Any = None,
    client: Client | str | None = None,
) -> RateCurve:
    """Propose a ``base_lr`` for a job, with the range test of Smith (2017).

    The range test is a short run in which the learning rate rises by a constant factor per step. The proposal is a
    quarter of the rate with the lowest smoothed loss. A single worker trains, so the result does not depend on the
    ``cluster`` block. The run directory is in the ``workspace`` of that block, or else on a local disk. It is deleted
    at the end.

    Parameters
    ----------
    job : Job or path
        The job. Its schedule and ``base_lr`` are ignored.
    low, high : float
        First and last learning rate.
    steps : int
        Maximum number of steps. The run ends earlier when the smoothed loss is not finite or four times its minimum.
    data, client
        See `singa_dask.start`. By default this process trains.

    Raises
    ------
    ConfigError, CheckpointError, DataError
        The job is wrong, its loss does not fall, or its loss still falls at the highest rate.
    """
    if not (0 < low < high and steps >= MIN_STEPS):
        wrong = f"got {low:g}, {high:g} and {steps} steps"
        raise ConfigError(f"expected 0 < low < high, and at least {MIN_STEPS} steps, {wrong}.")
    job = as_job(job)
    check(complete(job.file))  # check the unchanged job first, so that errors name places in the user's file
    rates = np.geomspace(low, high, steps)
    keys: dict[str, Any] = read_plain(job.to_yaml(), "job")
    values = {key: value for key, value in keys.items() if key not in OTHERS and not key.startswith(LEFT_OUT)}
    schedule = {"type": "FixedStep", "fixedstep_conf": {"step": list(range(steps)), "step_lr": rates.tolist()}}
    values |= {"updater": {**keys["updater"], "learning_rate": schedule}, "train_steps": steps, "disp_freq": 1}
    rising = Job(values.pop("neuralnet"), **values)
    with _short_run(job.conf.cluster.workspace) as url:
        with warnings.catch_warnings(), contextlib.suppress(NumericError):
            warnings.simplefilter("ignore")  # ignore warnings about the keys that are omitted below
            train(rising, data=data, client=client, run_dir=url, progress=False)
        events = [layer_metrics(event) for event in StoredRun(url).metrics]
    parts = [[value for name, value in each.items() if name.endswith(("loss", "error"))] for each in events]
    losses = [math.nan if None in each else sum(each) for each in parts]
    return curve_of(rates[: len(losses)], losses, is_whole=len(losses) == steps)


@contextlib.contextmanager
def _short_run(workspace: str) -> Iterator[str]:
    """Return a context with the URL of a temporary run directory."""
    if not workspace:
        with tempfile.TemporaryDirectory(prefix=PREFIX) as url:
            yield url
        return
    url = fs.absolute(fs.join(workspace, new_job_id(PREFIX)))
    try:
        yield url
    finally:
        fs.remove_tree(url)


def curve_of(rates: np.ndarray, losses: list[float], is_whole: bool) -> RateCurve:
    """Smooth losses, end the curve where they explode, and choose a rate.

    Pass ``is_whole=True`` if the run did not end early.

    Raises
    ------
    ConfigError
        The loss does not fall, or still falls at the end of a whole curve.
    """
    total, weights, smoothed = 0.0, 0.0, list[float]()
    for loss in losses:
        total, weights = 0.9 * total + loss, 0.9 * weights + 1
        if smoothed and not total / weights <= 4 * min(smoothed):
            break
        smoothed.append(total / weights)
    y, n = np.array(smoothed), len(smoothed)
    if not n or not y.min() < 0.98 * losses[0]:
        hint = "Does each label belong to its record? Large values may need store_conf: {standardise: true}."
        raise ConfigError(f"the loss does not fall at any rate. {hint}")
    least = int(y.argmin())
    if is_whole and least == len(losses) - 1:
        raise ConfigError(f"the loss still falls at the highest rate, {rates[least]:g}. Try a higher one.")
    return RateCurve(rates[:n], np.array(losses[:n]), y, float(f"{rates[least] / 4:.2g}"))
