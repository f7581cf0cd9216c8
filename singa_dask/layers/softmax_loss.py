"""Losses of class probabilities: softmax and cross entropy, of rows and of pixels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.findings import Finding
from singa_dask.conf.kinds import Field, Many, NonNegative, Size
from singa_dask.errors import ConfigError, Problem, listed
from singa_dask.layers.base import LAYERS, Buffer, Layer, check_axes, check_labels, data_error
from singa_dask.layers.contiguous import contiguous, contiguous_out
from singa_dask.layers.feature import RecordIds
from singa_dask.layers.loss import Loss
from singa_dask.ops.contract import Array

# maximum number of classes that an error names
MAX_SHOWN = 10
# up to this number bfloat16 has all integers
MAX_BF16 = 256


class SoftmaxLossConf(Conf):
    """``softmaxloss_conf`` (SINGA's SoftmaxLossProto)."""

    topk: Size = 1
    """A record counts as right when its label is among the best this many."""
    scale: float = 1.0
    """Multiplies loss, accuracy and gradient."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Part of the target that is spread evenly over all classes, in tests too."""
    ignore_index: int | None = None
    """Rows with this label count neither in the loss and its mean, nor in the accuracy and the gradient."""
    class_weights: Many[NonNegative] = Field(default=[])
    """A weight for each class: the loss is the weighted sum of the losses, divided by the sum of the weights."""
    focal_gamma: NonNegative = 0.0
    """Focal loss: multiplies the loss of a row by (1 - p)^focal_gamma, where p is the probability of its label."""

    def rules(self) -> Iterator[Finding]:
        """Check that labels of a focal loss are not smoothed."""
        if self.focal_gamma and self.label_smoothing:
            yield ("focal_gamma",), "label_smoothing is set, too. Expected one of them: remove the other."


@LAYERS.register("SoftmaxLoss", "CudnnSoftmaxLoss")
class SoftmaxLoss(Loss):
    """Softmax and cross entropy: loss = scale / N sum -log p[label], of x (N, ...) taken as (N, D).

    Also called CudnnSoftmaxLoss, which in SINGA reports only the loss, as a sum.

    Its output is p (N, D). The metric "accuracy" is scale / N times the rows with their label among the
    ``topk`` highest; of equal ones the higher class comes first. The gradient is scale / N (p - onehot).

    With ``label_smoothing`` e, after Szegedy et al. (2016), the target is (1 - e) onehot + e / D in place of onehot.

    A third source, a WeightInput, has a weight for each record: loss = scale / N sum -w log p[label], and the gradient
    of a record is multiplied by its weight. The accuracy is that of all records alike.

    With ``class_weights`` c, and c = 0 where the label is ``ignore_index``, the loss is scale / Z sum -c[label] log
    p[label] with Z = sum c[label], as that of PyTorch's cross_entropy. Z is the sum over the batch of a worker group,
    whose workers send each other their sums in each step of training. The metrics are means over all rows that count;
    classes have no weights in the accuracy. A batch of ignored rows has gradients of 0. Label smoothing takes the
    weight of the label for all classes, where PyTorch takes that of each class. Z is that of all time steps of an
    unrolled net, or of each of them where they are computed one by one.

    Of rows that are mixed of two records, by ``mixup`` or ``cutmix`` in ``store_conf``, the loss is s loss(label) +
    (1 - s) loss(label'), where s is the share of the first; the accuracy counts the label of the larger share.

    With ``focal_gamma`` g the loss of a row is -(1 - p[label])^g log p[label], after Lin et al. (2017).
    """

    block: ClassVar[type[SoftmaxLossConf]] = SoftmaxLossConf
    traits = Loss.traits.replace(
        consumes=("data", "labels"), metrics=("loss", "accuracy"), predicts="classes", mixes_labels=True
    )
    speed = Loss.speed
    _is_compared = False
    factors: Buffer | None = None
    """Factors of the loss and of the gradient of each row, (2, N); None if all rows count alike."""
    _known: Array | None = None
    _labels: Array | None = None
    # for mixed rows: the labels with the smaller shares, memory for both shares (2, N), and memory for a gradient
    _partners: Array | None = None
    _shares: Array | None = None
    _partner_grad: Array | None = None

    def setup(self) -> None:
        self.check_weights()
        self.set_classes(self.sources[0].size)
        self.add_output((self.sources[0].shape[0], self.n_classes), dtype=self.context.param_dtype)

    def set_classes(self, n_classes: int, n_pixels: int = 0) -> None:
        """Take over the block, for scores of ``n_classes`` classes, of each pixel if there are any.

        Raises
        ------
        ConfigError
            It does not fit their number.
        """
        block = self.conf.block(self.block)
        self.n_classes, self.topk, self.scale = n_classes, block.topk, block.scale
        self.smoothing, self.ignored, self.gamma = block.label_smoothing, block.ignore_index, block.focal_gamma
        key = block.block_key
        if self.topk > n_classes:
            message = f"expected at most {n_classes}, the number of classes, got {self.topk}."
            raise ConfigError(Problem((key, "topk"), message))
        if block.class_weights and len(block.class_weights) != n_classes:
            message = f"expected a number for each of {n_classes} classes, got {len(block.class_weights)}."
            raise ConfigError(Problem((key, "class_weights"), message))
        self.class_weights = np.array(block.class_weights) if block.class_weights else None
        if self.ignored is not None or block.class_weights or self.gamma or n_pixels:
            self.factors = self.buffer("factors", (2, self.sources[0].shape[0] * max(n_pixels, 1)))
            self.traits = self.traits.replace(mixes_labels=False)
            if self.site.batch_shard.count > 1:  # the step must wait for the sums of the other workers
                self.speed = self.speed.replace(capturable=False)

    def given_labels(self) -> Array:
        """Return the labels of all rows as the source has them, (N,) integers."""
        return super().labels(1)

    def labels(self, source: int, n_classes: int | None = None) -> Array:
        """Return the labels of all rows, (N,) integers; -1 for ignored ones."""
        return super().labels(source, n_classes) if self._labels is None else self._labels

    def prepare(self, phase: Phase) -> None:
        if not self._is_compared:
            self._compare_classes()
        if self.factors is None:
            self.labels(1, self.n_classes)
            self._prepare_mixed(self.sources[1].records)
            return
        labels = self.given_labels()
        counts = np.full(len(labels), True) if self.ignored is None else labels != self.ignored
        known = np.where(counts, labels, 0)
        check_labels(self, 1, known, self.n_classes)
        # the first array has only classes that kernels can look up; the second has -1 for rows that do not count
        self._known = self.ops.labels(known.astype(np.int32), self._known)
        self._labels = self.ops.labels(np.where(counts, labels, -1).astype(np.int32), self._labels)
        weights = counts * (1.0 if self.class_weights is None else self.class_weights[known])
        self._sums = np.array([len(labels), weights.sum()])
        self.add_metric("loss", None, float(self._sums[1]))
        self.add_metric("accuracy", None, float(np.count_nonzero(counts)))
        shard = self.site.batch_shard
        alone = _ratio(self._sums) if shard.count == 1 else 1.0
        self.ops.copy(np.stack([weights, weights * alone]), out=self.factors.data)
        if shard.count > 1 and phase & Phase.TRAIN and self.sources[0].grad is not None:
            for other in self._others:
                self.context.bridges.send(other, self._key(shard.index), [self._sums], ["sums"])

    def _compare_classes(self) -> None:
        """Check that all classes of the labels have scores, those too that no record of the first steps has."""
        self._is_compared, source = True, self.conf.srclayers[1]
        names = self.context.classes_of(source)
        if len(names) > self.n_classes and self.ignored is None:
            raise data_error(
                self,
                f"{len(names)} classes from {source!r}, {listed(names, MAX_SHOWN)}, but scores for "
                f"{self.n_classes}. Give the layer of the scores num_output: {len(names)}.",
            )

    def _prepare_mixed(self, records: RecordIds) -> None:
        """Take over labels and shares of rows that are mixed of two records."""
        if records.partner_labels is None or records.shares is None:
            self._partners = None
            return
        check_labels(self, 1, records.partner_labels, self.n_classes)
        self._partners = self.ops.labels(records.partner_labels, self._partners)
        source, n_rows = self.sources[0], len(records.shares)
        if self._shares is None:  # only nets with mixed rows need this memory
            self._shares = self.ops.zeros((2, n_rows), self.context.param_dtype)
        if self._partner_grad is None and source.grad is not None:
            self._partner_grad = self.ops.zeros((n_rows, self.n_classes), source.dtype)
        self.ops.copy(np.stack([records.shares, 1 - records.shares]), out=self._shares)

    @property
    def _others(self) -> list[int]:
        """The other workers that compute a part of the batch."""
        shard = self.site.batch_shard
        return [worker for worker in range(shard.count) if worker != shard.index]

    def _key(self, worker: int) -> str:
        """Return the name of what a worker sends to the others."""
        return f"sums of step {self.site.first_step} of {self.site.layer} of worker {worker}"

    def _normalisation(self) -> float:
        """Return the factor from the mean over N rows to the mean over the counting rows of the group."""
        if self.factors is None or self.site.batch_shard.count == 1:
            return 1.0  # the factors already contain the scale
        sums = {worker: self.context.bridges.receive(self._key(worker))["sums"] for worker in self._others}
        sums[self.site.batch_shard.index] = self._sums
        return _ratio(np.sum([sums[worker] for worker in sorted(sums)], axis=0))

    def forward(self, phase: Phase) -> None:
        p = self.features[0].data.reshape(-1, self.n_classes)
        self.ops.softmax(self.rows(), out=p)
        labels = self.labels(1)
        if self._partners is not None and self._shares is not None:
            for shares, each in zip(self._shares, (labels, self._partners), strict=True):
                if (weights := self.weights) is not None:
                    self.ops.multiply(shares, weights, out=shares)
                self.add_metric("loss", self.ops.cross_entropy(p, each, self.smoothing, shares), scale=self.scale)
            self.add_metric("loss", None, -1.0)  # count only the first metric, because the sum of both is one mean
            self.add_metric("accuracy", self.ops.count_in_top(p, labels, self.topk), scale=self.scale, n=len(p))
            return
        if self.factors is None or (known := self._known) is None:
            self.add_metric("loss", self.ops.cross_entropy(p, labels, self.smoothing, self.weights), scale=self.scale)
            self.add_metric("accuracy", self.ops.count_in_top(p, labels, self.topk), scale=self.scale, n=len(p))
            return
        factors = self.factors.data
        if self.gamma:
            self.ops.focal_factors(p, known, self.gamma, out=factors)
        if (weights := self.weights) is not None:
            for row in factors:
                self.ops.multiply(row, weights, out=row)
        loss = self.ops.cross_entropy(p, known, self.smoothing, factors[0])
        self.add_metric("loss", loss, 0.0, scale=self.scale * len(p))
        self.add_metric("accuracy", self.ops.count_in_top(p, labels, self.topk), 0.0, scale=self.scale)

    def backward(self, phase: Phase) -> None:
        p, source = self.features[0].data.reshape(-1, self.n_classes), self.sources[0]
        if source.grad is not None:
            labels = self.labels(1) if self._known is None else self._known
            with self.grad_rows() as gx:
                scale = self.scale * self.site.n_steps * self._normalisation()
                self.ops.cross_entropy_grad(p, labels, scale, out=gx, smoothing=self.smoothing)
                if self._partners is not None and self._shares is not None and self._partner_grad is not None:
                    self.ops.scale_rows(gx, self._shares[0], out=gx)
                    other = self._partner_grad
                    self.ops.cross_entropy_grad(p, self._partners, scale, out=other, smoothing=self.smoothing)
                    self.ops.scale_rows(other, self._shares[1], out=other)
                    self.ops.add(gx, other, out=gx)
                elif self.factors is None:
                    self.weigh(gx)
                else:
                    self.ops.scale_rows(gx, self.factors.data[1], out=gx)


def _ratio(sums: Array) -> float:
    """Return the number of rows divided by the sum of their weights; 0 if that is 0."""
    n_rows, weight = sums
    return float(n_rows / weight) if weight else 0.0


class PixelSoftmaxLossConf(SoftmaxLossConf):
    """``pixelsoftmaxloss_conf``."""


@LAYERS.register()
class PixelSoftmaxLoss(SoftmaxLoss):
    """SoftmaxLoss of each pixel of scores (N, C, H, W), as for segmentation.

    It is the mean over all pixels that count. The second source has the labels of the pixels as values, H W for each
    record in the order of rows, e.g. a TargetInput with ``target_conf: {size: H W}``, which reads the field ``target``
    of the records.

    Its output is p (N, H W, C). ``ignore_index`` and all other keys are those of SoftmaxLoss, for pixels.
    """

    block = PixelSoftmaxLossConf
    traits = SoftmaxLoss.traits.replace(n_sources=(2, 2), consumes=("data", "data"), predicts="")
    speed = SoftmaxLoss.speed.replace(reads_on_host=True)

    def setup(self) -> None:
        check_axes(self, "images of scores, a channel for each class", 4)
        n, n_classes, height, width = self.sources[0].shape
        if self.sources[1].shape[0] != n or self.sources[1].size != height * width:
            message = f"{self.conf.srclayers[1]!r} gives {self.sources[1].shape}, expected a label for each pixel, "
            raise ConfigError(Problem(("srclayers", 1), f"{message}{(n, height * width)}."))
        self.set_classes(n_classes, height * width)
        if self.sources[1].dtype.itemsize < 4 and max(n_classes, abs(self.ignored or 0)) > MAX_BF16:
            message = f"labels in bf16 are whole numbers up to {MAX_BF16}: for {n_classes} classes use float32."
            raise ConfigError(Problem(("srclayers", 1), message))
        self.add_output((n, height * width, n_classes), dtype=self.context.param_dtype)

    def given_labels(self) -> Array:
        values = self.ops.to_host(Layer.rows(self, 1)).reshape(-1)
        with np.errstate(invalid="ignore"):
            labels: Array = values.astype(np.int32)
        if (wrong := values != labels).any():
            source = self.conf.srclayers[1]
            raise data_error(self, f"label {values[wrong][0]:g} from {source!r}. Expected integers.")
        return labels

    def rows(self, source: int = 0) -> Array:
        pixels = contiguous(self.ops, self.sources[0].data.transpose(0, 2, 3, 1), "pixels")
        return pixels.reshape(-1, self.n_classes)

    @contextmanager
    def grad_rows(self, source: int = 0) -> Iterator[Array]:
        with contiguous_out(self.ops, self.sources[0].output_grad.transpose(0, 2, 3, 1), "pixels of grad") as memory:
            yield memory.reshape(-1, self.n_classes)
