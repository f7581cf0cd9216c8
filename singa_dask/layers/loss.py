"""Loss layers, where gradients start.

The first source is the prediction, the second has the labels or the target. Each call adds the mean loss over this
worker's rows to the metric "loss". Gradients are the gradients of this mean. In an unrolled net, they are the gradients
of the sum of the means over the time steps. An optional third source has a weight for each record. The loss is then
``sum(weight * loss) / N``; it is not divided by the sum of the weights.
"""

from __future__ import annotations

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Positive
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.traits import Speed, Traits
from singa_dask.ops.contract import Array


class Loss(Layer):
    """Base of the loss layers. It checks the shapes of the sources."""

    traits = Traits(n_sources=(2, 2), role="loss", metrics=("loss",))
    speed = Speed(time_foldable=True, capturable=True)

    def check_sizes(self, expected: str, n: int = 2) -> None:
        """Check that the first ``n`` sources have the same number of values in each row.

        Raises
        ------
        ConfigError
            The numbers differ. The message ends with ``expected``.
        """
        x, names = self.sources[0], self.conf.srclayers
        for k, t in enumerate(self.sources[1:n], 1):
            if (x.shape[0], x.size) != (t.shape[0], t.size):
                message = f"{names[0]!r} has shape {x.shape}, and {names[k]!r} has {t.shape}{expected}"
                raise ConfigError(Problem(("srclayers", k), message))

    def check_constant(self, source: int, value: str, remedy: str) -> None:
        """Check that a source has one constant value for each row of the first source.

        Parameters
        ----------
        source : int
            Index of the source.
        value, remedy : str
            What a value is, e.g. "a weight", and the sentence of the message that says where to read the values.

        Raises
        ------
        ConfigError
            The source has another shape, or requires a gradient.
        """
        n_rows, values, name = self.sources[0].shape[0], self.sources[source], self.conf.srclayers[source]
        if values.shape[0] != n_rows or values.size != 1:
            message = f"{name!r} has shape {values.shape}, expected {(n_rows, 1)}: {value} for each row."
            raise ConfigError(Problem(("srclayers", source), message))
        if values.requires_grad:
            message = f"{name!r} learns. Expected constant values: {value} for each row. {remedy}"
            raise ConfigError(Problem(("srclayers", source), message))


class WeightedLoss(Loss):
    """Base of the losses whose optional third source has a weight for each record."""

    traits = Loss.traits.replace(n_sources=(2, 3))
    speed = Loss.speed

    def check_weights(self) -> None:
        """Check that the third source, if there is one, has one constant weight for each row.

        Raises
        ------
        ConfigError
            The third source has another shape, or requires a gradient.
        """
        if len(self.sources) > 2:
            self.check_constant(2, "a weight", "Read weights e.g. from a WeightInput.")

    @property
    def weights(self) -> Array | None:
        """The weight of each row, (N,), or None if the layer has no third source."""
        return self.sources[2].data.reshape(-1) if len(self.sources) > 2 else None

    def weigh(self, gradient: Array) -> None:
        """Multiply each row of a gradient, (N, D), by the weight of its record, if there are weights."""
        weights = self.weights
        if weights is not None:
            self.ops.scale_rows(gradient, weights, out=gradient)


@LAYERS.register()
class EuclideanLoss(WeightedLoss):
    """Loss = sum (x - t)^2 / N, for a prediction x and a target t.

    As in SINGA, the gradient is (x - t) / N, which is the gradient of half the loss. If the target requires a gradient,
    its gradient is (t - x) / N.

    The output is x - t, (N, D). A third source, a WeightInput, has a weight w for each record. Then loss = sum w (x -
    t)^2 / N, and the gradient is w (x - t) / N.
    """

    traits = WeightedLoss.traits.replace(predicts="values")
    speed = WeightedLoss.speed

    def setup(self) -> None:
        prediction = self.sources[0]
        self.check_sizes(". Expected the same number of values in each record of both.")
        self.check_weights()
        self.add_output((prediction.shape[0], prediction.size), dtype=self.context.param_dtype)

    def forward(self, phase: Phase) -> None:
        difference = self.features[0].data
        self.ops.subtract(self.rows(0), self.rows(1), out=difference)
        self.add_metric("loss", self.ops.sum_squares(difference, self.weights), n=len(difference))

    def backward(self, phase: Phase) -> None:
        self.write_grads(self.features[0].data)

    def write_grads(self, slopes: Array, n_values: int = 1) -> None:
        """Write the gradients of prediction and target.

        Parameters
        ----------
        slopes : ndarray, shape (N, D)
            Derivative of the loss with respect to each value of the prediction.
        n_values : int
            Number of values of a row over which the loss is averaged, in addition to the average over rows.
        """
        for i, sign in enumerate((1, -1)):
            if self.sources[i].grad is not None:
                with self.grad_rows(i) as gx:
                    self.ops.multiply(slopes, sign * self.site.n_steps / (len(slopes) * n_values), out=gx)
                    self.weigh(gx)


class HuberLossConf(Conf):
    """``huberloss_conf``."""

    delta: Positive = 1.0
    """Absolute difference up to which the loss is quadratic. Beyond it, the loss is linear."""


@LAYERS.register()
class HuberLoss(EuclideanLoss):
    """Loss = mean of h(x - t), with h(d) = d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2).

    The mean is over records and values, as in PyTorch's HuberLoss. With ``delta: 1``, the loss is the smooth L1 loss.
    Sources, output and weights are the same as in EuclideanLoss.
    """

    options_class = HuberLossConf
    speed = EuclideanLoss.speed.replace(capturable=False)

    def setup(self) -> None:
        super().setup()
        self.delta = self.options.delta
        self.clipped, self.root = (self.buffer(name, self.features[0].shape) for name in ("clipped", "root"))

    def forward(self, phase: Phase) -> None:
        difference, clipped, root = self.features[0].data, self.clipped.data, self.root.data
        self.ops.subtract(self.rows(0), self.rows(1), out=difference)
        np.clip(difference, -self.delta, self.delta, out=clipped)
        np.multiply(clipped, -0.5, out=root)
        np.add(difference, root, out=root)
        np.multiply(root, clipped, out=root)
        np.sqrt(root, out=root)
        self.add_metric("loss", self.ops.sum_squares(root, self.weights), n=root.size)

    def backward(self, phase: Phase) -> None:
        self.write_grads(self.clipped.data, self.features[0].size)


@LAYERS.register()
class SigmoidCrossEntropyLoss(WeightedLoss):
    """Sigmoids and binary cross entropy: loss = mean of -t log p - (1 - t) log(1 - p), p = sigmoid(x).

    This loss is for multi-label classification. The first source x (N, D) has a score for each label. The second source
    t (N, D), for example a TargetInput, has a target in [0, 1] for each label; 1 means that the record has the label.
    The loss is computed from the scores, in a form that does not overflow. The mean is over records and labels.

    The output is p (N, D). The metric "binary_accuracy" is the fraction of labels with (p > 0.5) == (t > 0.5). The
    gradient is (p - t) / (N D). If the target requires a gradient, its gradient is -x / (N D).

    A third source, a WeightInput, has a weight for each record, which multiplies the record's loss and gradient. The
    metric "binary_accuracy" counts all records alike.
    """

    traits = WeightedLoss.traits.replace(metrics=("loss", "binary_accuracy"), predicts="labels")
    speed = WeightedLoss.speed

    def setup(self) -> None:
        scores = self.sources[0]
        self.check_sizes(". Expected a target of 0 or 1 for each score, e.g. the columns of a TargetInput.")
        self.check_weights()
        self.add_output((scores.shape[0], scores.size), dtype=self.context.param_dtype)

    def prepare(self, phase: Phase) -> None:
        targets = self.sources[1].data
        # on a GPU, this check would wait for the device. Wrong targets make the loss NaN there.
        if isinstance(targets, np.ndarray) and not (targets.min() >= 0 and targets.max() <= 1):
            wrong = float(targets[~((targets >= 0) & (targets <= 1))][0])
            source = self.conf.srclayers[1]
            raise self.data_error(f"target {wrong:g} from {source!r} is out of range. Expected a value from 0 to 1.")

    def forward(self, phase: Phase) -> None:
        x, t = self.rows(0), self.rows(1)
        self.ops.sigmoid(x, out=self.features[0].data)
        self.add_metric("loss", self.ops.binary_cross_entropy(x, t, self.weights), n=x.size)
        self.add_metric("binary_accuracy", self.ops.count_binary_matches(x, t), n=x.size)

    def backward(self, phase: Phase) -> None:
        p, (scores, targets, *_) = self.features[0].data, self.sources
        factor = self.site.n_steps / p.size
        if scores.grad is not None:
            with self.grad_rows(0) as gx:
                self.ops.subtract(p, self.rows(1), out=gx)
                self.ops.multiply(gx, factor, out=gx)
                self.weigh(gx)
        if targets.grad is not None:
            with self.grad_rows(1) as gt:
                self.ops.multiply(self.rows(0), -factor, out=gt)
                self.weigh(gt)
