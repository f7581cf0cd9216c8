"""Algorithm: how one batch changes the params. SINGA calls this TrainOneBatch.

An algorithm knows layers and params, but no servers. It calls ``collect`` before it uses a param, and ``update`` after
it has computed a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import numpy as np

from singa_dask.conf import Conf, Phase
from singa_dask.conf.job import AlgConf
from singa_dask.errors import NumericError
from singa_dask.layers import Layer, Param
from singa_dask.net import NeuralNet
from singa_dask.registry import Registry

ALGORITHMS: Registry[Algorithm] = Registry("algorithm")

REMEDY = (
    "Lower updater.learning_rate.base_lr, for which singa-dask find-rate proposes a value, set updater.clip_low and "
    "clip_high, or check the data."
)

Collect = Callable[[Param], None]
Update = Callable[[int, Param], None]


def do_nothing(*_: object) -> None:
    """Do nothing: the default ``collect`` and ``update``."""


class Algorithm:
    """Runs a net for one batch at a time.

    Parameters
    ----------
    net : NeuralNet
        A net with memory.
    collect : callable (param), optional
        Waits until the values of a param are up to date. Called for each param before the forward pass of its layer in
        training.
    update : callable (step, param), optional
        Takes the complete gradient of a param. Called right after the backward pass of its layer.
    conf : AlgConf, optional
        The block ``train_one_batch`` of the job. Its ``user_conf`` has options of custom algorithms.

    Attributes
    ----------
    block : type of Conf or None
        Model of the class's own block in ``train_one_batch``; read it with ``conf.block(XConf)``.
    layer : Layer or None
        The layer being computed, for errors; None between batches.
    """

    block: ClassVar[type[Conf] | None] = None

    def __init__(
        self, net: NeuralNet, collect: Collect = do_nothing, update: Update = do_nothing, conf: AlgConf | None = None
    ) -> None:
        self.net = net
        self.collect = collect
        self.update = update
        self.conf = conf or AlgConf(alg=type(self).__name__)
        self.layer: Layer | None = None

    @classmethod
    def check(cls, net: NeuralNet) -> None:
        """Check that this algorithm can train a net. Called before anything runs.

        Raises
        ------
        ConfigError
            It cannot. The error lists all problems, with paths from the top of the job.
        """

    def capture_steps(self) -> None:
        """Capture the constant part of each step on a GPU, if possible.

        The gradients are then available only at the end of a step.
        """

    def train_one_batch(self, step: int) -> None:
        """Run the next batch of a training net forward and backward."""
        raise TypeError(f"{type(self).__name__} does not train: it has no train_one_batch()")

    def test_one_batch(self, phase: Phase) -> None:
        """Run the next batch of a test or validation net forward."""
        raise TypeError(f"{type(self).__name__} does not test: it has no test_one_batch()")

    @contextmanager
    def _batch(self) -> Iterator[None]:
        """Compute a batch in this context. An overflow shows as a loss that is not finite, without warnings."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            yield
        self.layer = None

    def check_losses(self, wait: bool = False) -> None:
        """Check that every loss, or error of an RBM, is finite before a gradient changes the params.

        On a GPU the losses of an earlier step are checked, unless ``wait`` is set.

        Raises
        ------
        NumericError
            A loss is not finite.
        """
        losses = [layer for layer in self.net.layers if layer.traits.role in ("loss", "unsupervised")]
        for layer in losses:
            for metric, total in layer.metrics.totals(wait):
                if not math.isfinite(total):
                    self.layer = layer
                    raise NumericError(f"the {metric.replace('_', ' ')} is not finite. {REMEDY}")

    def check_params(self) -> None:
        """Check that all params are finite.

        Losses do not always show NaN, because some kernels turn NaN into 0.

        Raises
        ------
        NumericError
            A param is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            for owner in self.net.owners:
                if not self.net.ops.finite(owner.values):
                    raise NumericError(f"param {owner.name!r} is not finite. {REMEDY}")
