"""Losses of class probabilities: softmax and cross entropy, of rows and of pixels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Field, Many, NonNegative, Size
from singa_dask.conf.mistakes import Finding
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer, check_axes, check_labels
from singa_dask.layers.buffer import Buffer
from singa_dask.layers.contiguous import contiguous, contiguous_out
from singa_dask.layers.loss import WeightedLoss
from singa_dask.ops.contract import Array
from singa_dask.wording import listed

# maximum number of classes that an error names
MAX_SHOWN = 10
# bfloat16 represents all integers up to this number exactly
MAX_BF16 = 256


class SoftmaxLossConf(Conf):
    """``softmaxloss_conf`` (SINGA's SoftmaxLossProto)."""

    topk: Size = 1
    """A record counts as correct if its label is among the ``topk`` highest scores."""
    scale: float = 1.0
    """Factor of the loss, the accuracy and the gradient."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Part of the target that is divided equally among all classes, in training and in tests."""
    ignore_index: int | None = None
    """Label of rows to ignore: in the loss and its mean, in the accuracy and in the gradient."""
    class_weights: Many[NonNegative] = Field(default=[])
    """A weight for each class: the loss is the weighted sum of the losses, divided by the sum of the weights."""
    focal_gamma: NonNegative = 0.0
    """Focal loss: multiplies the loss of a row by (1 - p)^focal_gamma, where p is the probability of its label."""

    def rules(self) -> Iterator[Finding]:
        """Check that a job does not combine focal loss with label smoothing."""
        if self.focal_gamma and self.label_smoothing:
            yield ("focal_gamma",), "label_smoothing is set, too. Remove one of the two keys."


class _EqualRows:
    """The loss of a batch whose rows count equally, except for the weights of records."""

    def forward(self, layer: SoftmaxLoss, p: Array) -> None:
        """Add the metrics of a batch with probabilities ``p``, (N, D)."""
        labels, ops = layer.labels(1), layer.ops
        loss = ops.cross_entropy(p, labels, layer.smoothing, layer.weights)
        layer.add_metric("loss", loss, scale=layer.scale)
        layer.add_metric("accuracy", ops.count_in_top(p, labels, layer.topk), scale=layer.scale, n=len(p))

    def backward(self, layer: SoftmaxLoss, p: Array, scale: float, gx: Array) -> None:
        """Write the gradient of ``scale`` times the loss to ``gx``, (N, D)."""
        layer.ops.cross_entropy_grad(p, layer.labels(1), scale, out=gx, smoothing=layer.smoothing)
        layer.weigh(gx)


@dataclass(frozen=True)
class _MixedRows(_EqualRows):
    """A batch in which each row mixes two records.

    Attributes
    ----------
    partners : (N,) integers
        The labels with the smaller weights.
    mix_weights : (2, N) ndarray
        Weights of the labels of the source, and of ``partners``.
    partner_grad : (N, D) ndarray
        Workspace for a gradient; (0, D) if the source needs no gradient.
    """

    partners: Array
    mix_weights: Array
    partner_grad: Array

    @classmethod
    def of(cls, layer: SoftmaxLoss, partner_labels: Array, mix_weights: Array, before: _MixedRows | None) -> _MixedRows:
        """Copy the labels and weights of a batch to the memory of the previous batch."""
        check_labels(layer, 1, partner_labels, layer.n_classes)
        if before is None:  # only nets with mixed rows need this memory
            source, zeros = layer.sources[0], layer.ops.zeros
            n_learning = 0 if source.grad is None else len(mix_weights)
            grad = zeros((n_learning, layer.n_classes), source.dtype)
            weights = zeros((2, len(mix_weights)), layer.context.param_dtype)
            before = cls(layer.ops.labels(partner_labels), weights, grad)
        partners = layer.ops.labels(partner_labels, before.partners)
        layer.ops.copy(np.stack([mix_weights, 1 - mix_weights]), out=before.mix_weights)
        return replace(before, partners=partners)

    def forward(self, layer: SoftmaxLoss, p: Array) -> None:
        labels, ops, weights = layer.labels(1), layer.ops, layer.weights
        for mix_weights, each in zip(self.mix_weights, (labels, self.partners), strict=True):
            if weights is not None:
                ops.multiply(mix_weights, weights, out=mix_weights)
            layer.add_metric("loss", ops.cross_entropy(p, each, layer.smoothing, mix_weights), scale=layer.scale)
        layer.add_metric("loss", None, -1.0)  # both values are parts of one mean, so count its records once
        layer.add_metric("accuracy", ops.count_in_top(p, labels, layer.topk), scale=layer.scale, n=len(p))

    def backward(self, layer: SoftmaxLoss, p: Array, scale: float, gx: Array) -> None:
        pairs = (layer.labels(1), self.mix_weights[0], gx), (self.partners, self.mix_weights[1], self.partner_grad)
        for labels, mix_weights, grad in pairs:
            layer.ops.cross_entropy_grad(p, labels, scale, out=grad, smoothing=layer.smoothing)
            layer.ops.scale_rows(grad, mix_weights, out=grad)
        layer.ops.add(gx, self.partner_grad, out=gx)


@dataclass(frozen=True)
class _WeightedRows(_EqualRows):
    """A batch whose rows have factors, because of ignored rows, class weights or the focal loss.

    Attributes
    ----------
    labels : (N,) integers
        -1 for ignored rows.
    known : (N,) integers
        The labels, with class 0 for ignored rows, so that kernels can look up each of them.
    sums : (2,) ndarray
        Number of rows, and sum of their weights, of this worker.
    factors : (2, N) ndarray
        Factors of the loss and of the gradient of each row.
    """

    labels: Array
    known: Array
    sums: Array
    factors: Array

    @classmethod
    def of(cls, layer: SoftmaxLoss, factors: Array, before: object) -> _WeightedRows:
        """Return the rows of a batch. The memory of ``before``, the previous batch, is reused if possible."""
        labels, kept = layer.given_labels(), (before.labels, before.known) if isinstance(before, cls) else (None, None)
        counts = np.full(len(labels), True) if layer.ignored is None else labels != layer.ignored
        classes = np.where(counts, labels, 0)
        check_labels(layer, 1, classes, layer.n_classes)
        known = layer.ops.labels(classes.astype(np.int32), kept[1])
        counted = layer.ops.labels(np.where(counts, labels, -1).astype(np.int32), kept[0])
        weights = counts * (1.0 if layer.class_weights is None else layer.class_weights[classes])
        sums = np.array([len(labels), weights.sum()])
        layer.add_metric("loss", None, float(sums[1]))
        layer.add_metric("accuracy", None, float(np.count_nonzero(counts)))
        alone = _ratio(sums) if layer.site.batch_shard.count == 1 else 1.0
        layer.ops.copy(np.stack([weights, weights * alone]), out=factors)
        return cls(counted, known, sums, factors)

    def forward(self, layer: SoftmaxLoss, p: Array) -> None:
        ops = layer.ops
        if layer.gamma:
            ops.focal_factors(p, self.known, layer.gamma, out=self.factors)
        if (weights := layer.weights) is not None:
            for row in self.factors:
                ops.multiply(row, weights, out=row)
        loss = ops.cross_entropy(p, self.known, layer.smoothing, self.factors[0])
        # `of` has added the counts already
        layer.add_metric("loss", loss, 0.0, scale=layer.scale * len(p))
        layer.add_metric("accuracy", ops.count_in_top(p, self.labels, layer.topk), 0.0, scale=layer.scale)

    def backward(self, layer: SoftmaxLoss, p: Array, scale: float, gx: Array) -> None:
        scale *= self._normalisation(layer)
        layer.ops.cross_entropy_grad(p, self.known, scale, out=gx, smoothing=layer.smoothing)
        layer.ops.scale_rows(gx, self.factors[1], out=gx)

    def send_sums(self, layer: SoftmaxLoss) -> None:
        """Send the sums to the other workers of the group."""
        for other in _others(layer):
            layer.context.bridges.send(other, _key(layer, layer.site.batch_shard.index), [self.sums], ["sums"])

    def _normalisation(self, layer: SoftmaxLoss) -> float:
        """Return the factor that turns the mean over N rows into the weighted mean over the group's rows."""
        if layer.site.batch_shard.count == 1:
            return 1.0  # the factors already contain the scale
        receive = layer.context.bridges.receive
        sums = {worker: receive(_key(layer, worker))["sums"] for worker in _others(layer)}
        sums[layer.site.batch_shard.index] = self.sums
        return _ratio(np.sum([sums[worker] for worker in sorted(sums)], axis=0))


def _others(layer: SoftmaxLoss) -> list[int]:
    """Return the other workers that compute a part of the batch."""
    shard = layer.site.batch_shard
    return [worker for worker in range(shard.count) if worker != shard.index]


def _key(layer: SoftmaxLoss, worker: int) -> str:
    """Return the name of the sums that a worker sends to the other workers."""
    return f"sums of step {layer.site.first_step} of {layer.site.layer} of worker {worker}"


def _ratio(sums: Array) -> float:
    """Return the number of rows divided by the sum of their weights; 0 if the weights sum to 0."""
    n_rows, weight = sums
    return float(n_rows / weight) if weight else 0.0


_EQUAL = _EqualRows()


@LAYERS.register("SoftmaxLoss", "CudnnSoftmaxLoss")
class SoftmaxLoss(WeightedLoss):
    """Softmax and cross entropy: loss = scale / N sum -log p[label], of x (N, ...) read as rows (N, D).

    SINGA's name CudnnSoftmaxLoss works, too. In SINGA that type reports only the loss, as a sum.

    The output is p (N, D), with p = softmax(x). The metric "accuracy" is scale / N times the number of rows whose label
    is among the ``topk`` highest scores. If scores are equal, the higher class comes first. The gradient is scale / N
    (p - onehot).

    With ``label_smoothing`` e the target is (1 - e) onehot + e / D instead of onehot, after Szegedy et al. (2016).

    A third source, a WeightInput, has a weight w for each record. Then loss = scale / N sum -w log p[label], and the
    gradient of a record is multiplied by its weight. The accuracy counts all records alike.

    With ``class_weights`` c, loss = scale / Z sum -c[label] log p[label], where Z = sum c[label], as in PyTorch's
    cross_entropy. Rows whose label is ``ignore_index`` have the weight 0. Z is the sum over the batch of the whole
    worker group: in each training step the workers send each other their sums. In an unrolled net Z is the sum over all
    time steps, or over each time step if the steps are computed one by one. If all rows of a batch are ignored, the
    gradients are 0. Label smoothing multiplies the loss of all classes by the weight of the label; PyTorch multiplies
    each by the weight of its class.

    The metrics are means over all rows that are not ignored. Class weights do not change the accuracy.

    If ``mixup`` or ``cutmix`` in ``store_conf`` mixes two records in each row, the loss is s loss(label) + (1 - s)
    loss(label'), where s is the weight of the first record. The accuracy counts the label with the larger weight.

    With ``focal_gamma`` g the loss of a row is -(1 - p[label])^g log p[label], after Lin et al. (2017).
    """

    options_class: ClassVar[type[SoftmaxLossConf]] = SoftmaxLossConf
    traits = WeightedLoss.traits.replace(
        consumes=("data", "labels"), metrics=("loss", "accuracy"), predicts="classes", mixes_labels=True
    )
    speed = WeightedLoss.speed
    _is_compared = False
    factors: Buffer | None = None
    """Factors of the loss and of the gradient of each row, (2, N); None if all rows count alike."""
    # How the rows of this batch count. With a new object, no kernels are replayed with the labels of an earlier
    # batch.
    _batch: _EqualRows = _EQUAL
    _mixed: _MixedRows | None = None

    def setup(self) -> None:
        self.check_weights()
        self.set_classes(self.sources[0].size)
        self.add_output((self.sources[0].shape[0], self.n_classes), dtype=self.context.param_dtype)

    def set_classes(self, n_classes: int, n_pixels: int = 0) -> None:
        """Read the options of the block, given the number of classes.

        ``n_pixels`` is the number of pixels in an image if each pixel has its own scores, else 0.

        Raises
        ------
        ConfigError
            An option does not fit the number of classes.
        """
        options = self.options
        self.n_classes, self.topk, self.scale = n_classes, options.topk, options.scale
        self.smoothing, self.ignored, self.gamma = options.label_smoothing, options.ignore_index, options.focal_gamma
        key = options.block_key
        if self.topk > n_classes:
            message = f"expected at most {n_classes}, the number of classes, got {self.topk}."
            raise ConfigError(Problem((key, "topk"), message))
        if options.class_weights and len(options.class_weights) != n_classes:
            message = f"expected a number for each of {n_classes} classes, got {len(options.class_weights)}."
            raise ConfigError(Problem((key, "class_weights"), message))
        self.class_weights = np.array(options.class_weights) if options.class_weights else None
        if self.ignored is not None or options.class_weights or self.gamma or n_pixels:
            self.factors = self.buffer("factors", (2, self.sources[0].shape[0] * max(n_pixels, 1)))
            self.traits = self.traits.replace(mixes_labels=False)
            if self.site.batch_shard.count > 1:  # the step must wait for the sums of the other workers
                self.speed = self.speed.replace(capturable=False)

    def given_labels(self) -> Array:
        """Return the labels of the source without changes, including labels of ignored rows: (N,) integers."""
        return super().labels(1)

    def labels(self, source: int, n_classes: int | None = None) -> Array:
        """Return the labels of all rows, (N,) integers. The label of an ignored row is -1."""
        return self._batch.labels if isinstance(self._batch, _WeightedRows) else super().labels(source, n_classes)

    def prepare(self, phase: Phase) -> None:
        if not self._is_compared:
            self._compare_classes()
        if self.factors is not None:
            self._batch = weighted = _WeightedRows.of(self, self.factors.data, self._batch)
            if phase & Phase.TRAIN and self.sources[0].grad is not None:
                weighted.send_sums(self)
            return
        self.labels(1, self.n_classes)
        records = self.sources[1].records
        if records.partner_labels is None or records.mix_weights is None:
            self._batch = _EQUAL
        else:
            self._batch = self._mixed = _MixedRows.of(self, records.partner_labels, records.mix_weights, self._mixed)

    def _compare_classes(self) -> None:
        """Check that there is a score for each class, even for classes that the first batches lack."""
        self._is_compared, source = True, self.conf.srclayers[1]
        names = self.context.classes_of(source)
        if len(names) > self.n_classes and self.ignored is None:
            raise self.data_error(
                f"{source!r} has {len(names)} classes, {listed(names, MAX_SHOWN)}, but there are scores for "
                f"{self.n_classes}. Set num_output: {len(names)} in the layer of the scores.",
            )

    def forward(self, phase: Phase) -> None:
        p = self.features[0].data.reshape(-1, self.n_classes)
        self.ops.softmax(self.rows(), out=p)
        self._batch.forward(self, p)

    def backward(self, phase: Phase) -> None:
        p, source = self.features[0].data.reshape(-1, self.n_classes), self.sources[0]
        if source.grad is not None:
            with self.grad_rows() as gx:
                self._batch.backward(self, p, self.scale * self.site.n_steps, gx)


class PixelSoftmaxLossConf(SoftmaxLossConf):
    """``pixelsoftmaxloss_conf``."""


@LAYERS.register()
class PixelSoftmaxLoss(SoftmaxLoss):
    """Softmax and cross entropy of each pixel of scores (N, C, H, W), for segmentation.

    The loss is the mean over all pixels that are not ignored. The second source has H W labels for each record, row by
    row. For example, a TargetInput with ``target_conf: {size: H W}`` reads them from the field ``target`` of the
    records.

    The output is p (N, H W, C). The keys are the same as in SoftmaxLoss, but they apply to pixels instead of rows.
    """

    options_class = PixelSoftmaxLossConf
    traits = SoftmaxLoss.traits.replace(n_sources=(2, 2), consumes=("data", "data"), predicts="")
    speed = SoftmaxLoss.speed.replace(reads_on_host=True)

    def setup(self) -> None:
        check_axes(self, "images of scores with a channel for each class", 4)
        n, n_classes, height, width = self.sources[0].shape
        if self.sources[1].shape[0] != n or self.sources[1].size != height * width:
            message = f"{self.conf.srclayers[1]!r} has shape {self.sources[1].shape}, expected {(n, height * width)}: "
            raise ConfigError(Problem(("srclayers", 1), f"{message}a label for each pixel."))
        self.set_classes(n_classes, height * width)
        if self.sources[1].dtype.itemsize < 4 and max(n_classes, abs(self.ignored or 0)) > MAX_BF16:
            message = f"bf16 is exact only for labels up to {MAX_BF16}. Use float32 for {n_classes} classes."
            raise ConfigError(Problem(("srclayers", 1), message))
        self.add_output((n, height * width, n_classes), dtype=self.context.param_dtype)

    def given_labels(self) -> Array:
        values = self.ops.to_host(Layer.rows(self, 1)).reshape(-1)
        with np.errstate(invalid="ignore"):
            labels: Array = values.astype(np.int32)
        if (wrong := values != labels).any():
            source = self.conf.srclayers[1]
            raise self.data_error(f"label {values[wrong][0]:g} from {source!r} is not an integer.")
        return labels

    def rows(self, source: int = 0) -> Array:
        pixels = contiguous(self.ops, self.sources[0].data.transpose(0, 2, 3, 1), "pixels")
        return pixels.reshape(-1, self.n_classes)

    @contextmanager
    def grad_rows(self, source: int = 0) -> Iterator[Array]:
        with contiguous_out(self.ops, self.sources[0].output_grad.transpose(0, 2, 3, 1), "pixels of grad") as memory:
            yield memory.reshape(-1, self.n_classes)
