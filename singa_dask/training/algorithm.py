"""Algorithm: how one batch changes the params. SINGA calls this TrainOneBatch.

An algorithm knows layers and params, but not servers. An algorithm calls ``collect`` before it uses a param, and
``update`` after it has computed the gradient of a param.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.job import AlgConf
from singa_dask.conf.parts import Part
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


class Algorithm(Part):
    """Runs a net for one batch at a time.

    Parameters
    ----------
    net : NeuralNet
        A net with memory.
    collect : callable (param), optional
        Waits until the values of a param are up to date. In training, it is called for each param before the forward
        pass of the param's layer.
    update : callable (step, param), optional
        Processes the complete gradient of a param. Called right after the backward pass of the param's layer.
    conf : AlgConf, optional
        The block ``train_one_batch`` of the job. Its ``user_conf`` has options of custom algorithms.

    Attributes
    ----------
    layer : Layer or None
        The layer that is being computed, for error messages; None between batches.
    """

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
            The algorithm cannot train the net. The error lists all problems, with paths from the top of the job.
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
        """Return a context to compute a batch in. Overflows raise no warnings: they show in the loss."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            yield
        self.layer = None

    def check_losses(self, wait: bool = False) -> None:
        """Check that every loss, or error of an RBM, is finite before a gradient changes the params.

        On a GPU, the losses of an earlier step are checked. Set ``wait`` to check the current step.

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

        This check is necessary, because some kernels turn NaN into 0, so that losses do not show it.

        Raises
        ------
        NumericError
            A param is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            for owner in self.net.owners:
                if not self.net.ops.finite(owner.values):
                    raise NumericError(f"param {owner.name!r} is not finite. {REMEDY}")
