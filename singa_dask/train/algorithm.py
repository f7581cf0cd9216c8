"""TrainOneBatch: how one batch changes the params. BP is back-propagation, through time in an unrolled net.

An algorithm knows layers and params, no servers: it says when it needs a param and when a gradient is ready.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from singa_dask.conf import AlgConf, Phase
from singa_dask.errors import ConfigError, NumericError, Problem
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
    conf : AlgConf, optional
        ``train_one_batch`` of the job; its ``user_conf`` is for algorithms of the user's own.

    Attributes
    ----------
    layer : Layer or None
        The one being computed, None between batches: where an error happened.
    """

    def __init__(
        self, net: NeuralNet, collect: Collect = _nothing, update: Update = _nothing, conf: AlgConf | None = None
    ) -> None:
        self.net = net
        self.collect = collect
        self.update = update
        self.conf = conf or AlgConf(alg=type(self).__name__)
        self.layer: Layer | None = None

    @classmethod
    def check(cls, net: NeuralNet) -> None:
        """Check that this algorithm can train a net, before anything runs.

        Raises
        ------
        ConfigError
            All problems at once, with paths from the top of the job.
        """

    def train_one_batch(self, step: int) -> None:
        """Run forward and backward over the next batch of a training net."""
        raise TypeError(f"{type(self).__name__} does not train: it has no train_one_batch()")

    def test_one_batch(self, phase: Phase) -> None:
        """Run forward over the next batch of a test or validation net."""
        raise TypeError(f"{type(self).__name__} does not test: it has no test_one_batch()")

    def check_losses(self) -> None:
        """Check that every loss, or error of an RBM, is a number, before a gradient reaches the params.

        Raises
        ------
        NumericError
            One is not.
        """
        for layer in self.net.layers:
            for figure, (total, _) in layer.metrics_sum.items() if layer.is_loss or layer.is_energy else ():
                if not math.isfinite(total):
                    self.layer = layer
                    raise NumericError(f"the {figure.replace('_', ' ')} is not finite. {REMEDY}")

    def check_params(self) -> None:
        """Check that all params are numbers. Of those that are none some kernels make 0, so that no loss shows them.

        Raises
        ------
        NumericError
            One is not.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            for owner in self.net.owners:
                if not math.isfinite(float(owner.values.sum())):
                    raise NumericError(f"param {owner.name!r} is not finite. {REMEDY}")


@ALGORITHMS.register("BP", "BPTT")
class BP(Algorithm):
    """Back-propagation: features forward, gradients in reverse; a layer's gradients leave as soon as they exist.

    In an unrolled net it is back-propagation through time, BPTT: the gradients of all time steps are summed, and
    leave once, when the first step is reached.
    """

    @classmethod
    def check(cls, net: NeuralNet) -> None:
        energy = [layer.name for layer in net.layers if layer.is_energy]
        if energy:
            message = f"{', '.join(energy)}: layers that learn without a loss. Say CD."
            raise ConfigError(Problem(("train_one_batch", "alg"), message))

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
        for layer in self.net.in_turn(phase):
            self.layer = layer
            for param in layer.params:
                collect(param)
            layer.compute_feature(phase)

    def backward(self, step: int) -> None:
        """Compute gradients in reverse order, and hand over those of params."""
        for layer in self.net.in_turn(Phase.TRAIN | Phase.BACKWARD):
            self.layer = layer
            more = Phase.AGGREGATE_GRADIENT if layer.adds_gradient else Phase.NONE
            if not layer.adds_gradient:
                layer.clear_windows()
            layer.compute_gradient(Phase.TRAIN | Phase.BACKWARD | more)
            if layer.is_loss and self.net.is_partitioned:
                self.share_loss(layer)
            for param in reversed(layer.params) if layer.hands_over else ():
                self.update(step, param)  # a bias first: it leaves in the message that its weights fill

    def share_loss(self, layer: Layer) -> None:
        """Make the gradients of the mean over a part of the batch those of its share in the mean over the whole.

        Where all layers are partitioned by records it is the same to average over the workers.
        """
        grads = [source.grad for source in layer.sources] + [param.grad for param in layer.params if layer.hands_over]
        for grad in grads if layer.n_row_parts > 1 else ():
            if grad is not None:
                layer.ops.multiply(grad, 1 / layer.n_row_parts, out=grad)
