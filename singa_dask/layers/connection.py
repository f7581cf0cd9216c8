"""Layers that only pass on: Split, which the net puts where a layer has several consumers, and Dummy, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from singa_dask.conf import DummyConf, LayerConf, Phase, SplitConf
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Feature, Layer

__all__ = ["Dummy", "Split"]


@LAYERS.register()
class Split(Layer):
    """Gives each of ``num_splits`` consumers the same data, and its source the sum of their gradients."""

    splits = False

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        self.n_wired = 0
        for _ in range(conf.block(SplitConf).num_splits):
            self.feature(sources[0].shape, dtype=sources[0].dtype)

    def outlet(self) -> Feature:
        if self.n_wired == len(self.features):
            message = f"is {len(self.features)}, but the layer has more consumers."
            raise ConfigError(Problem(("split_conf", "num_splits"), message))
        self.n_wired += 1
        return self.features[self.n_wired - 1]

    def allocate(self) -> None:
        """Allocate gradients alone; one consumer that learns writes straight to the source's."""
        wanted = [feature for feature in self.features if feature.wants_grad]
        for feature in wanted:
            alone = len(wanted) == 1 and self.sources[0].grad is not None
            feature.grad = self.sources[0].grad if alone else self.ops.features(feature.shape, feature.dtype)

    def compute_feature(self, phase: Phase) -> None:
        source = self.sources[0]
        for feature in self.features:
            feature.data, feature.labels = source.data, source.labels
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
