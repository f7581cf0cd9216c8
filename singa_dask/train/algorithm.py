"""TrainOneBatch: how one batch changes the params. BP is back-propagation.

An algorithm knows layers and params, no servers: it says when it needs a param and when a gradient is ready.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from singa_dask.conf import Phase
from singa_dask.errors import NumericError
from singa_dask.layers import Layer, Param
from singa_dask.net import NeuralNet
from singa_dask.registry import Registry

__all__ = ["ALGORITHMS", "BP", "Algorithm"]

ALGORITHMS: Registry[Algorithm] = Registry("algorithm")

REMEDY = "Lower updater.learning_rate.base_lr, set updater.clip_low and clip_high, or check the data."

Collect = Callable[[Param], None]
Update = Callable[[int, Param], None]


def _nothing(*_: object) -> None:
    """Stand in for a caller that keeps the params itself."""


class Algorithm:
    """Runs a net for one batch at a time.

    Parameters
    ----------
    net : NeuralNet
        Allocated.
    collect : callable (param), optional
        Returns when the values of a param are fresh; called before each layer's forward pass in training.
    update : callable (step, param), optional
        Takes a gradient that is ready; called right after each layer's backward pass.

    Attributes
    ----------
    layer : Layer or None
        The one being computed, None between batches: where an error happened.
    """

    def __init__(self, net: NeuralNet, collect: Collect = _nothing, update: Update = _nothing) -> None:
        self.net = net
        self.collect = collect
        self.update = update
        self.layer: Layer | None = None

    def train_one_batch(self, step: int) -> None:
        """Run forward and backward over the next batch of a training net."""
        raise TypeError(f"{type(self).__name__} does not train: it has no train_one_batch()")

    def test_one_batch(self, phase: Phase) -> None:
        """Run forward over the next batch of a test or validation net."""
        raise TypeError(f"{type(self).__name__} does not test: it has no test_one_batch()")

    def check_params(self) -> None:
        """Check that all params are numbers. Of those that are none some kernels make 0, so that no loss shows them.

        Raises
        ------
        NumericError
            One is not.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            for owner in self.net.owners:
                if not math.isfinite(float(owner.data.sum())):
                    raise NumericError(f"param {owner.name!r} is not finite. {REMEDY}")


@ALGORITHMS.register()
class BP(Algorithm):
    """Back-propagation: features forward, gradients in reverse; a layer's gradients leave as soon as they exist."""

    def train_one_batch(self, step: int) -> None:
        self.net.context.step = step
        # Overflow shows as a loss that is not finite; a warning for each kernel helps nobody.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            self.forward(Phase.TRAIN | Phase.FORWARD, self.collect)
            self.check_losses()
            self.backward(step)
        self.layer = None

    def test_one_batch(self, phase: Phase) -> None:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            self.forward(phase | Phase.FORWARD, _nothing)
        self.layer = None

    def forward(self, phase: Phase, collect: Collect) -> None:
        """Compute all features in order."""
        for layer in self.net.layers:
            self.layer = layer
            for param in layer.params:
                collect(param)
            layer.compute_feature(phase)

    def check_losses(self) -> None:
        """Check that every loss is a number, before a gradient of it reaches the params.

        Raises
        ------
        NumericError
            One is not.
        """
        for layer in self.net.layers:
            if layer.is_loss and not math.isfinite(sum(total for total, _ in layer.metrics_sum.values())):
                self.layer = layer
                raise NumericError(f"the loss is not finite. {REMEDY}")

    def backward(self, step: int) -> None:
        """Compute gradients in reverse order, and hand over those of params."""
        for layer in reversed(self.net.layers):
            if not layer.learns:
                continue
            self.layer = layer
            layer.compute_gradient(Phase.TRAIN | Phase.BACKWARD)
            for param in reversed(layer.params):  # a bias first: it leaves in the message that its weights fill
                self.update(step, param)
