"""Loss layers: where gradients start. Source one is the prediction, source two has the labels or the target.

Each call adds the mean over this worker's rows to the metric "loss"; gradients are those of that mean, in an unrolled
net those of the sum over the time steps. Source three, if there is one, has a weight for each record: the loss is
``sum(weight * loss) / N``, not divided by the sum of the weights.
"""

from __future__ import annotations

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.model import Conf, Field, Size
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.feature import Traits
from singa_dask.ops.contract import Array


class Loss(Layer):
    """What the loss layers share: the sizes of their sources, and weights of records."""

    traits = Traits(n_sources=(2, 3), is_loss=True, time_foldable=True, capturable=True, metrics=("loss",))

    def check_sizes(self, expected: str) -> None:
        """Check that the first two sources have the same number of values for each row.

        Raises
        ------
        ConfigError
            They have not; ``expected`` ends the message.
        """
        x, t = self.sources[:2]
        if (x.shape[0], x.size) != (t.shape[0], t.size):
            prediction, wanted, *_ = self.conf.srclayers
            message = f"{prediction!r} gives {x.shape} and {wanted!r} {t.shape}{expected}"
            raise ConfigError(Problem(("srclayers",), message))

    def check_weights(self) -> None:
        """Check that the third source, if there is one, has one value for each row of the first.

        Raises
        ------
        ConfigError
            It has others, or learns.
        """
        if len(self.sources) < 3:
            return
        n_rows, weights = self.sources[0].shape[0], self.sources[2]
        if weights.shape[0] != n_rows or weights.size != 1:
            message = (
                f"{self.conf.srclayers[2]!r} gives {weights.shape}, expected a weight for each row, {(n_rows, 1)}."
            )
            raise ConfigError(Problem(("srclayers", 2), message))
        if weights.requires_grad:
            message = f"{self.conf.srclayers[2]!r} learns. Expected weights that are given, e.g. of a WeightInput."
            raise ConfigError(Problem(("srclayers", 2), message))

    @property
    def weights(self) -> Array | None:
        """The weight of each row, (N,), or None."""
        return self.sources[2].data.reshape(-1) if len(self.sources) > 2 else None

    def weigh(self, gradient: Array) -> None:
        """Multiply each row of a gradient, (N, D), by the weight of its record, if there are weights."""
        weights = self.weights
        if weights is not None:
            self.ops.scale_rows(gradient, weights, out=gradient)


class SoftmaxLossConf(Conf):
    """``softmaxloss_conf`` (SINGA's SoftmaxLossProto)."""

    topk: Size = 1
    """A record counts as right when its label is among the best this many."""
    scale: float = 1.0
    """Multiplies loss, accuracy and gradient."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Part of the target that is spread evenly over all classes, in tests too."""


@LAYERS.register("SoftmaxLoss", "CudnnSoftmaxLoss")
class SoftmaxLoss(Loss):
    """Softmax and cross entropy: loss = scale / N sum -log p[label], of x (N, ...) taken as (N, D).

    Also called CudnnSoftmaxLoss, which in SINGA reports only the loss, as a sum.

    Its output is p (N, D). The metric "accuracy" is scale / N times the rows with their label among the
    ``topk`` highest; of equal ones the higher class comes first. The gradient is scale / N (p - onehot).

    With ``label_smoothing`` e, after Szegedy et al. (2016), the target is (1 - e) onehot + e / D in place of onehot.

    A third source, a WeightInput, has a weight for each record: loss = scale / N sum -w log p[label], and the gradient
    of a record is multiplied by its weight. The accuracy is that of all records alike.
    """

    block = SoftmaxLossConf
    traits = Loss.traits.replace(consumes=("data", "labels"), metrics=("loss", "accuracy"), predicts="classes")

    def setup(self) -> None:
        block = self.conf.block(SoftmaxLossConf)
        self.topk, self.scale, self.smoothing = block.topk, block.scale, block.label_smoothing
        n_classes = self.sources[0].size
        if self.topk > n_classes:
            message = f"expected at most {n_classes}, the number of classes, got {self.topk}."
            raise ConfigError(Problem(("softmaxloss_conf", "topk"), message))
        self.check_weights()
        self.add_output((self.sources[0].shape[0], n_classes), dtype=self.context.param_dtype)

    def prepare(self, phase: Phase) -> None:
        self.labels(1, self.features[0].shape[1])

    def forward(self, phase: Phase) -> None:
        p = self.features[0].data
        labels = self.labels(1)
        self.ops.softmax(self.rows(), out=p)
        loss = self.ops.cross_entropy(p, labels, self.smoothing, self.weights)
        self.add_metric("loss", loss, scale=self.scale)
        self.add_metric("accuracy", self.ops.count_in_top(p, labels, self.topk), scale=self.scale, n=len(p))

    def backward(self, phase: Phase) -> None:
        p, source = self.features[0].data, self.sources[0]
        if source.grad is not None:
            labels = self.labels(1)
            with self.grad_rows() as gx:
                scale = self.scale * self.site.n_steps
                self.ops.cross_entropy_grad(p, labels, scale, out=gx, smoothing=self.smoothing)
                self.weigh(gx)


@LAYERS.register()
class EuclideanLoss(Loss):
    """Loss = sum (x - t)^2 / N; as in SINGA the gradient is (x - t) / N, that of half the loss.

    Its output is x - t, (N, D). A target that requires a gradient gets the opposite one.

    A third source, a WeightInput, has a weight for each record: loss = sum w (x - t)^2 / N, gradient w (x - t) / N.
    """

    traits = Loss.traits.replace(predicts="values")

    def setup(self) -> None:
        prediction = self.sources[0]
        self.check_sizes(": both need the same number of values a record.")
        self.check_weights()
        self.add_output((prediction.shape[0], prediction.size), dtype=self.context.param_dtype)

    def forward(self, phase: Phase) -> None:
        difference = self.features[0].data
        self.ops.subtract(self.rows(0), self.rows(1), out=difference)
        self.add_metric("loss", self.ops.sum_squares(difference, self.weights), n=len(difference))

    def backward(self, phase: Phase) -> None:
        difference = self.features[0].data
        for i, sign in enumerate((1, -1)):
            if self.sources[i].grad is not None:
                with self.grad_rows(i) as gx:
                    self.ops.multiply(difference, sign * self.site.n_steps / len(difference), out=gx)
                    self.weigh(gx)


@LAYERS.register()
class SigmoidCrossEntropyLoss(Loss):
    """Sigmoids and binary cross entropy: loss = mean of -t log p - (1 - t) log(1 - p), p = sigmoid(x), of (N, D).

    For multi-label classification: source one has a score for each label, source two a target for each, in [0, 1],
    where 1 means that the record has the label, e.g. from a TargetInput. The loss is computed from the scores, in a
    form that does not overflow. The mean is over records and labels.

    Its output is p (N, D). The metric "binary_accuracy" is the share of all labels with (p > 0.5) == (t > 0.5). The
    gradient is (p - t) / (N D). A target that requires a gradient gets -x / (N D).

    A third source, a WeightInput, has a weight for each record, which multiplies its loss and gradient. The metric
    "binary_accuracy" is that of all records alike.
    """

    traits = Loss.traits.replace(metrics=("loss", "binary_accuracy"), predicts="labels")

    def setup(self) -> None:
        scores = self.sources[0]
        self.check_sizes(". Expected a target of 0 or 1 for each score, e.g. the columns of a TargetInput.")
        self.check_weights()
        self.add_output((scores.shape[0], scores.size), dtype=self.context.param_dtype)

    def prepare(self, phase: Phase) -> None:
        targets = self.sources[1].data
        # on a GPU this would wait: the loss is NaN there
        if isinstance(targets, np.ndarray) and not (targets.min() >= 0 and targets.max() <= 1):
            wrong = float(targets[~((targets >= 0) & (targets <= 1))][0])
            source = self.conf.srclayers[1]
            raise DataError(f"layer {self.name}: target {wrong:g} from {source!r}. Expected 0, 1 or a value between.")

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
