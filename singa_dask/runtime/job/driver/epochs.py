"""Count the steps of a job's epochs from its training records, and fit its learning rate to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.inputs import InputLayer
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.training.schedules import SCHEDULES

if TYPE_CHECKING:
    from singa_dask.runtime.job.dask_tasks import Runner


INSTEAD = "Set train_steps, the number of batches, instead of epochs."


def with_steps(job: JobConf, net: NeuralNet, resume: str | None = None) -> JobConf:
    """Return the job with ``train_steps`` instead of ``epochs``.

    The steps of an epoch are counted from the training records. A learning rate schedule without an end ends at the
    last step.

    Parameters
    ----------
    resume : str or None
        URL of the checkpoint that the job continues from. Records that the checkpoint has seen count as done, even if
        its batches had another size.

    Raises
    ------
    ConfigError
        No layer reads stored records, layers need different numbers of steps for an epoch, or the records cannot be
        counted.
    """
    if job.epochs is None:
        return _lasting(job, job.train_steps)
    layers = {layer.conf_name: layer for layer in net.all_layers if isinstance(layer, InputLayer)}
    try:
        counted = {name: steps for name, layer in layers.items() if (steps := layer.steps_per_epoch()) is not None}
    except DataError as error:
        raise ConfigError(Problem(("epochs",), f"the training records cannot be counted: {error}")) from error
    if not counted:
        raise ConfigError(Problem(("epochs",), f"no layer of the training net reads records of a store. {INSTEAD}"))
    if len(set(counted.values())) > 1:
        numbers = ", ".join(f"{name} in {float(steps):g}" for name, steps in counted.items())
        message = f"layers read their records once in different numbers of batches: {numbers}. {INSTEAD}"
        raise ConfigError(Problem(("epochs",), message))
    name, per_epoch = next(iter(counted.items()))
    # a fraction from the decimal text, so that 0.1 is exactly one tenth
    left, n_done = Fraction(repr(job.epochs)), 0
    groups = Checkpoint(resume).groups if resume else {}
    seen = groups[0]["cursors"].get("train", {}).get(name, {}) if len(groups) == job.cluster.nworker_groups else {}
    if "samples_seen" in seen:
        n_done, size = int(groups[0]["step"]), seen["batch_size"]
        rows_per_epoch = (layers[name].steps_per_epoch(size) or per_epoch) * size
        left -= seen["samples_seen"] / rows_per_epoch
    return _lasting(job, n_done + math.ceil(left * per_epoch))


def _lasting(job: JobConf, n_steps: int) -> JobConf:
    changes: dict[str, Any] = {"train_steps": n_steps, "epochs": None}
    if job.trains:
        rate = job.updater.learning_rate
        rate = SCHEDULES.find(rate.type).lasting(rate, n_steps)
        changes["updater"] = job.updater.model_copy(update={"learning_rate": rate})
    return job.model_copy(update=changes)


def steps_by_task(job: JobConf, sources: Sequence[modules.Source], resume: str | None, run: Runner) -> JobConf:
    """Return the result of `with_steps`, computed in a task, as perhaps only Dask workers see the records.

    Parameters
    ----------
    sources : sequence of Source
        The user's own modules.
    resume : str or None
        See `with_steps`.
    run : Runner
        Runs the task.
    """
    if job.epochs is None:
        return _lasting(job, job.train_steps)
    (n_steps,) = run([partial(_count_steps, job.to_json(), sources, resume)])
    return _lasting(job, n_steps)


def _count_steps(job: str, sources: Sequence[modules.Source], resume: str | None) -> int:
    """Load the user's own modules, and return the ``train_steps`` of a job. Runs as a task."""
    with modules.using(sources, REGISTRIES.values(), "the start of a job"):
        conf = JobConf.from_json(job, REGISTRIES)
        return with_steps(conf, build_nets(conf)[Phase.TRAIN], resume).train_steps
