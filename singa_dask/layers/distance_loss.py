"""Losses that compare distances between records, for nets that learn embeddings with shared params."""

from __future__ import annotations

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Positive
from singa_dask.layers.base import LAYERS
from singa_dask.layers.loss import Loss
from singa_dask.ops.contract import Array


class DistanceLoss(Loss):
    """Base of losses of distances. The output is the loss of each row, (N, 1)."""

    traits = Loss.traits.replace(n_sources=(3, 3))
    speed = Loss.speed.replace(capturable=False)

    def add_losses(self, losses: Array) -> None:
        """Write the losses of the rows, (N,), to the output, and add their mean to the metric "loss"."""
        self.features[0].data[...] = losses[:, None]
        self.add_metric("loss", self.ops.sum_squares(np.sqrt(losses)), n=len(losses))

    def write_grad(self, source: int, difference: Array, sign: float) -> None:
        """Write the gradient of a source: ``sign * difference / N``, with ``difference`` (N, D)."""
        if self.sources[source].grad is not None:
            with self.grad_rows(source) as gx:
                self.ops.multiply(difference, sign * self.site.n_steps / len(difference), out=gx)


def _norms(difference: Array) -> Array:
    """Return the Euclidean norm of each row, (N,); a tiny number instead of 0, so that 1 / norm is finite."""
    least = np.sqrt(np.finfo(difference.dtype).tiny)
    norms: Array = np.maximum(np.sqrt(np.sum(difference * difference, axis=1)), least)
    return norms


class ContrastiveLossConf(Conf):
    """``contrastiveloss_conf``."""

    margin: Positive = 1.0
    """Distance above which the loss of two different records is 0."""


@LAYERS.register()
class ContrastiveLoss(DistanceLoss):
    """Loss = sum(s d^2 + (1 - s) max(0, margin - d)^2) / (2 N), with d = ||x1 - x2||.

    The sources are x1 and x2, (N, ...) read as rows (N, D), and s (N, 1), for example a TargetInput. s is 1 if the two
    records are alike, else 0. The loss follows Hadsell et al. (2006). Caffe has the same loss.
    """

    speed = DistanceLoss.speed
    options_class = ContrastiveLossConf

    def setup(self) -> None:
        self.check_sizes(". Expected sources of the same size.")
        self.check_constant(2, "1 or 0", "1 means that the records are alike. Read them e.g. from a TargetInput.")
        self.difference = self.buffer("difference", (self.sources[0].shape[0], self.sources[0].size))
        self.add_output((self.sources[0].shape[0], 1), dtype=self.context.param_dtype)

    def prepare(self, phase: Phase) -> None:
        alike = self.sources[2].data
        if isinstance(alike, np.ndarray) and not ((alike == 0) | (alike == 1)).all():
            source = self.conf.srclayers[2]
            message = f"{source!r} has values other than 0 and 1. Expected 1 if the two records are alike, else 0."
            raise self.data_error(message)

    def forward(self, phase: Phase) -> None:
        difference = self.difference.data
        self.ops.subtract(self.rows(0), self.rows(1), out=difference)
        alike, d = self.rows(2)[:, 0].astype(difference.dtype), _norms(difference)
        missing = np.maximum(self.options.margin - d, 0)
        self.add_losses((alike * d * d + (1 - alike) * missing * missing) * 0.5)
        np.multiply(difference, (alike - (1 - alike) * missing / d)[:, None], out=difference)

    def backward(self, phase: Phase) -> None:
        for source, sign in enumerate((1.0, -1.0)):
            self.write_grad(source, self.difference.data, sign)


class TripletLossConf(Conf):
    """``tripletloss_conf``."""

    margin: Positive = 1.0
    """The loss is 0 if the negative record is farther from the anchor than the positive record by this distance."""


@LAYERS.register()
class TripletLoss(DistanceLoss):
    """Loss = mean of max(0, d(a, p) - d(a, n) + margin), with d(x, y) = ||x - y + 1e-6||.

    The sources are anchors a, records p that are similar to them, and records n that are not, each (N, ...) read as
    rows (N, D). PyTorch's TripletMarginLoss computes the same.
    """

    speed = DistanceLoss.speed
    options_class = TripletLossConf

    def setup(self) -> None:
        self.check_sizes(". Expected sources of the same size.", 3)
        shape = (self.sources[0].shape[0], self.sources[0].size)
        self.differences = [self.buffer(name, shape) for name in ("positive", "negative", "anchor")]
        self.add_output((shape[0], 1), dtype=self.context.param_dtype)

    def forward(self, phase: Phase) -> None:
        positive, negative, anchor = (each.data for each in self.differences)
        for source, difference in enumerate((positive, negative), 1):
            self.ops.subtract(self.rows(0), self.rows(source), out=difference)
            np.add(difference, 1e-6, out=difference)
        near, far = _norms(positive), _norms(negative)
        losses = np.maximum(near - far + self.options.margin, 0)
        self.add_losses(losses)
        for difference, d in ((positive, near), (negative, far)):
            np.multiply(difference, (np.sign(losses) / d)[:, None], out=difference)
        np.subtract(positive, negative, out=anchor)

    def backward(self, phase: Phase) -> None:
        positive, negative, anchor = (each.data for each in self.differences)
        for source, (difference, sign) in enumerate(((anchor, 1.0), (positive, -1.0), (negative, 1.0))):
            self.write_grad(source, difference, sign)
