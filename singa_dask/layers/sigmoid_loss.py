"""SigmoidCrossEntropyLoss: the loss of records that may have any number of labels at once."""

from __future__ import annotations

import numpy as np

from singa_dask.conf import Phase
from singa_dask.errors import DataError
from singa_dask.layers.base import LAYERS
from singa_dask.layers.loss import Loss
from singa_dask.layers.traits import Traits

__all__ = ["SigmoidCrossEntropyLoss"]


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

    traits = Traits(
        n_sources=(2, 3),
        is_loss=True,
        time_foldable=True,
        capturable=True,
        metrics=("loss", "binary_accuracy"),
    )

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
