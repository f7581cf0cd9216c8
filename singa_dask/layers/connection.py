"""Layers that only pass on: Split, Slice and Concate, which a net may put in by itself, and Dummy, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from singa_dask.conf import ConcateConf, DummyConf, LayerConf, Phase, SliceConf, SplitConf
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Feature, Layer

__all__ = ["Concate", "Dummy", "Slice", "Split"]


class _Several(Layer):
    """What layers with an output for each consumer share."""

    splits = False
    n_wired = 0
    count_key = ("", "")

    def outlet(self) -> Feature:
        if self.n_wired == len(self.features):
            message = f"is {len(self.features)}, but the layer has more consumers."
            raise ConfigError(Problem(self.count_key, message))
        self.n_wired += 1
        return self.features[self.n_wired - 1]


@LAYERS.register()
class Split(_Several):
    """Gives each of ``num_splits`` consumers the same data, and its source the sum of their gradients."""

    over_time = True
    count_key = ("split_conf", "num_splits")

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        for _ in range(conf.block(SplitConf).num_splits):
            self.feature(sources[0].shape, dtype=sources[0].dtype)

    def allocate(self) -> None:
        """Allocate gradients alone; one consumer that learns writes straight to the source's."""
        wanted = [feature for feature in self.features if feature.wants_grad]
        for feature in wanted:
            alone = len(wanted) == 1 and self.sources[0].grad is not None
            feature.grad = self.sources[0].grad if alone else self.ops.features(feature.shape, feature.dtype)

    def compute_feature(self, phase: Phase) -> None:
        source = self.sources[0]
        for feature in self.features:
            feature.data, feature.labels, feature.index = source.data, source.labels, source.index
            feature.ids, feature.epochs = source.ids, source.epochs

    def compute_gradient(self, phase: Phase) -> None:
        total = self.sources[0].grad
        grads = [feature.grad for feature in self.features if feature.grad is not None]
        if total is None or len(grads) < 2:
            return
        self.ops.add(grads[0], grads[1], out=total)
        for grad in grads[2:]:
            self.ops.add(total, grad, out=total)


@LAYERS.register()
class Slice(_Several):
    """Cuts its source in ``num_slices`` equal pieces along axis ``slice_dim``, one for each consumer; 0 is the batch.

    Pieces of the batch are views: nothing is copied, forward or back.
    """

    count_key = ("slice_conf", "num_slices")

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        block, shape = conf.block(SliceConf), sources[0].shape
        self.axis, self.n_slices = block.slice_dim, block.num_slices
        if self.axis >= len(shape):
            raise ConfigError(Problem(("slice_conf", "slice_dim"), f"expected an axis of {shape}, got {self.axis}."))
        self.size = shape[self.axis]
        if self.size % self.n_slices:
            message = f"expected a number that divides {self.size}, axis {self.axis} of {shape}, got {self.n_slices}."
            raise ConfigError(Problem(self.count_key, message))
        piece = (*shape[: self.axis], self.size // self.n_slices, *shape[self.axis + 1 :])
        for _ in range(self.n_slices):
            self.feature(piece, dtype=sources[0].dtype)

    def place(self, k: int) -> tuple[slice, ...]:
        """Return where piece k lies in the source."""
        width = self.size // self.n_slices
        return (*(slice(None),) * self.axis, slice(k * width, (k + 1) * width))

    def allocate(self) -> None:
        if self.axis:
            super().allocate()
            return
        source = self.sources[0]
        for k, feature in enumerate(self.features):
            if source.grad is not None and feature.wants_grad:
                feature.grad = source.grad[self.place(k)]

    def compute_feature(self, phase: Phase) -> None:
        source = self.sources[0]
        for k, feature in enumerate(self.features):
            if self.axis:
                self.ops.copy(source.data[self.place(k)], out=feature.data)
                feature.labels, feature.ids, feature.epochs = source.labels, source.ids, source.epochs
                continue
            feature.data = source.data[self.place(k)]
            for name in ("labels", "index", "ids", "epochs"):
                values = getattr(source, name)
                setattr(feature, name, None if values is None else values[self.place(k)])

    def compute_gradient(self, phase: Phase) -> None:
        grad = self.sources[0].grad
        if grad is None:
            return
        for k, feature in enumerate(self.features):
            if feature.grad is None:
                self.ops.multiply(grad[self.place(k)], 0, out=grad[self.place(k)])
            elif self.axis:
                self.ops.copy(feature.grad, out=grad[self.place(k)])


@LAYERS.register()
class Concate(Layer):
    """Joins its sources along axis ``concate_dim``, 0 being the batch; labels too, where that is the batch."""

    n_sources = (1, None)

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        self.axis = conf.block(ConcateConf).concate_dim
        shapes = [source.shape for source in sources]
        if self.axis >= len(shapes[0]):
            message = f"expected an axis of {shapes[0]}, got {self.axis}."
            raise ConfigError(Problem(("concate_conf", "concate_dim"), message))
        others = {(*shape[: self.axis], *shape[self.axis + 1 :]) for shape in shapes}
        if len(others) > 1:
            shown = ", ".join(map(str, shapes))
            message = f"the sources have shapes {shown}: they may differ in axis {self.axis} only."
            raise ConfigError(Problem(("srclayers",), message))
        size = sum(shape[self.axis] for shape in shapes)
        self.feature((*shapes[0][: self.axis], size, *shapes[0][self.axis + 1 :]), dtype=sources[0].dtype)

    def places(self) -> Iterator[tuple[Feature, tuple[slice, ...]]]:
        """Yield each source and where it lies in the output."""
        start = 0
        for source in self.sources:
            end = start + source.shape[self.axis]
            yield source, (*(slice(None),) * self.axis, slice(start, end))
            start = end

    def compute_feature(self, phase: Phase) -> None:
        feature = self.features[0]
        for source, place in self.places():
            self.ops.copy(source.data, out=feature.data[place])
        labels = [source.labels for source in self.sources]
        if self.axis:
            feature.labels = next((each for each in labels if each is not None), None)
        elif all(each is not None for each in labels):
            feature.labels = np.concatenate(labels)

    def compute_gradient(self, phase: Phase) -> None:
        for source, place in self.places():
            if source.grad is not None:
                self.ops.copy(self.features[0].grad[place], out=source.grad)


@LAYERS.register()
class Dummy(Layer):
    """Stands in for any layer: as ``input`` draws U[0, 1) data, as ``output`` U[0, 1) gradients, between copies both.

    ``dummy_conf.shape`` is that of the whole group's batch.
    """

    n_sources = (0, 1)

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        block = conf.block(DummyConf)
        self.is_loss = block.output
        if bool(sources) == block.input:
            message = "an input Dummy takes no source layer." if sources else "Dummy takes one unless it is an input."
            raise ConfigError(Problem(("srclayers",), message))
        self.feature(sources[0].shape if sources else self.own_shape(block))

    def own_shape(self, block: DummyConf) -> tuple[int, ...]:
        """Return this worker's part of the configured shape."""
        n_workers = self.context.n_workers
        if not block.shape or block.shape[0] % n_workers:
            message = f"must start with a batch that {n_workers} workers can share equally, not {list(block.shape)}."
            raise ConfigError(Problem(("dummy_conf", "shape"), message))
        return (block.shape[0] // n_workers, *block.shape[1:])

    def compute_feature(self, phase: Phase) -> None:
        data = self.features[0].data
        if self.sources:
            self.ops.copy(self.sources[0].data, out=data)
        else:
            self.ops.uniform(self.random_key("data"), out=data, first_row=self.first_row(len(data)))

    def compute_gradient(self, phase: Phase) -> None:
        if not self.sources or self.sources[0].grad is None:
            return
        grad = self.sources[0].grad
        if self.is_loss:
            self.ops.uniform(self.random_key("grad"), out=grad, first_row=self.first_row(len(grad)))
        else:
            self.ops.copy(self.features[0].grad, out=grad)
