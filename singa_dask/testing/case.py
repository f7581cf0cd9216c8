"""Case: a layer to check, connected to sources with random values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from singa_dask.conf import LayerConf, Phase
from singa_dask.inputs import InputContext
from singa_dask.layers import LAYERS, Context, Feature, Layer, LayerSite, RecordIds, ShardIndex
from singa_dask.layers.forwarding import Forwarding
from singa_dask.net import memory, wiring
from singa_dask.net.replay import Run, run_method
from singa_dask.ops import NumpyOps, get_ops
from singa_dask.ops.contract import Array

CPU = get_ops("numpy")


class Case(NamedTuple):
    """A layer to check.

    Attributes
    ----------
    kind : str or type of Layer
        The class of the layer, or its name in a job file.
    shapes : sequence of tuple of int
        Shapes of the layer's sources, batch first. Rows of all time steps count.
    conf : dict or None
        Other keys of the layer, e.g. its block.
    n_steps : int
        Number of time steps in the rows of the sources.
    labels : sequence of int or None
        Labels of the rows, for sources whose labels the layer reads.
    fixed : int
        Number of sources without a gradient. These are the last sources.
    kink : float
        Minimum distance of the sources' values from 0, for a layer without a derivative at 0, such as ReLU.
    loss_factor : float
        For a loss: its gradients are the gradients of ``loss_factor`` times its first metric.
    integers : int
        If not 0, sources without a gradient have integers below this number.
    source_steps : sequence of int
        Number of time steps in the rows of each source, if it differs from ``n_steps``.
    masked : bool
        Whether the last source is a padding mask.
    mixed : bool
        Whether the rows of sources with labels mix two records.
    """

    kind: str | type[Layer]
    shapes: Sequence[tuple[int, ...]]
    conf: dict[str, Any] | None = None
    n_steps: int = 1
    labels: Sequence[int] | None = None
    fixed: int = 0
    kink: float = 0.0
    loss_factor: float = 1.0
    integers: int = 0
    source_steps: Sequence[int] = ()
    masked: bool = False
    mixed: bool = False

    @property
    def cls(self) -> type[Layer]:
        """The class of the layer."""
        return LAYERS.find(self.kind) if isinstance(self.kind, str) else self.kind

    @property
    def every(self) -> range:
        """Indices of all sources."""
        return range(len(self.shapes))

    def sources(self, ops: NumpyOps = CPU, dtype: Any = np.float64, without: Collection[int] = ()) -> list[Feature]:
        """Return sources with random values; the sources in ``without`` have no gradients.

        The second source of a recurrent layer is its first state.
        """
        sources = []
        n_fixed = max(self.fixed, self.masked)
        traits = build(self.kind, len(self.shapes), **(self.conf or {})).traits
        for k, shape in enumerate(self.shapes):
            has_data = not traits.consumed(k).isdisjoint(("data", "one_hot_index", "raw"))
            learns = has_data and k not in without and k < len(self.shapes) - n_fixed
            forwards = issubclass(self.cls, Forwarding) and "labels" in self.cls.forwards
            labels = self.labels if forwards or "labels" in traits.consumed(k) else None
            if forwards and labels is None:
                labels = [0] * shape[0]
            feature = source(shape, k, kink=self.kink, labels=labels, grad=learns, ops=ops, dtype=dtype)
            if self.mixed and labels is not None:
                # derive these values from the labels alone, because checks may cut or repeat rows
                highest, own = max(labels), np.array(labels, np.int32)
                feature.records = RecordIds(
                    feature.records.labels, None, None, highest - own, 0.5 + 0.5 * own / highest
                )
            if self.integers and k >= len(self.shapes) - self.fixed:
                ops.copy(np.random.default_rng(k).integers(0, self.integers, shape).astype(float), out=feature.data)
            if not has_data:
                feature.own_data, feature.data = False, None
            feature.n_steps = 1 if k and self.cls.traits.steps == "recurrent" else self.n_steps
            if self.source_steps:
                feature.n_steps = self.source_steps[k]
            sources.append(feature)
        if self.masked:
            mask = sources[-1] = Feature(self.shapes[-1], bool, requires_grad=False)
            mask.n_steps = self.source_steps[-1] if self.source_steps else self.n_steps
            mask.data = np.random.default_rng(7).random(mask.shape) < 0.6
        return sources

    def wired(
        self, ops: NumpyOps = CPU, dtype: Any = np.float64, sources: Sequence[Feature] | None = None, **more: Any
    ) -> Layer:
        """Return the layer, connected to ``sources``; by default to the sources of the case.

        ``more`` are arguments of `wire`.
        """
        more.setdefault("context", InputContext(phase=Phase.TRAIN, dtype=np.dtype(dtype), seed=3, step=7))
        sources = self.sources(ops, dtype) if sources is None else sources
        return wire(self.kind, sources, n_steps=self.n_steps, ops=ops, **more, **(self.conf or {}))


def source(
    shape: Sequence[int],
    seed: int = 0,
    *,
    kink: float = 0.0,
    labels: Sequence[int] | None = None,
    grad: bool = True,
    plain: bool = False,
    ops: NumpyOps = CPU,
    dtype: Any = np.float64,
) -> Feature:
    """Return a feature with normally distributed data.

    Values nearer to 0 than ``kink`` are moved away from 0. Images have the memory layout that nets use, N, H, W, C,
    unless ``plain`` is set.
    """
    feature = Feature(shape, dtype, grad)
    data = np.random.default_rng(seed).normal(size=feature.shape)
    make = ops.zeros if plain else ops.features
    feature.data = make(feature.shape, feature.dtype)
    ops.copy(np.where(np.abs(data) < kink, np.copysign(kink, data), data), out=feature.data)
    if grad:
        feature.grad = make(feature.shape, feature.dtype)
        feature.grad[...] = np.nan
    if labels is not None:
        feature.records = RecordIds(ops.labels(np.array(labels, np.int32)))
    return feature


def build(
    kind: str | type[Layer],
    n_sources: int,
    context: Context | None = None,
    site: LayerSite | None = None,
    **conf: Any,
) -> Layer:
    """Return a layer that is not connected to sources. Its traits depend on its options."""
    names = [f"src{i}" for i in range(n_sources)]
    cls = LAYERS.find(kind) if isinstance(kind, str) else kind
    name = kind if isinstance(kind, str) else kind.__name__
    made = LayerConf.model_validate({"name": "layer", "type": name, "srclayers": names, **conf})
    return cls(made, context or InputContext(phase=Phase.TRAIN, dtype=np.dtype(np.float64)), site)


def wire(
    kind: str | type[Layer],
    sources: Sequence[Feature],
    context: Context | None = None,
    n_steps: int = 1,
    ops: NumpyOps = CPU,
    feature_shard: ShardIndex | None = None,
    first_step: int = 0,
    **conf: Any,
) -> Layer:
    """Return a layer that is ready to run, with random params. It computes all ``n_steps`` time steps."""
    context = context or InputContext(phase=Phase.TRAIN, dtype=np.dtype(np.float64))
    batch = ShardIndex(context.worker, context.n_workers)
    site = LayerSite("layer", batch, feature_shard or ShardIndex(), first_step, n_steps)
    layer = build(kind, len(sources), context, site, **conf)
    with _without_data(sources):
        wiring.wire(layer, sources, ops)
    layer.learns = bool(context.phase & Phase.TRAIN)
    random = np.random.default_rng(99)
    for feature in layer.features:
        feature.requires_grad &= layer.learns
        feature.consumed_as = {"data"}
    memory.allocate(layer)
    for param in layer.params:
        whole = random.normal(size=param.whole_shape).astype(param.dtype)
        # running statistics include variances, which must be positive
        whole = np.abs(whole) + 0.1 if param.running_statistic else whole
        param.data = ops.from_host(np.ascontiguousarray(param.shard.of(whole)) if param.shard else whole)
    return layer


@contextmanager
def _without_data(sources: Sequence[Feature]) -> Iterator[None]:
    """Remove the data of sources during the context: a net, too, allocates data only after `Layer.setup`."""
    kept = [(feature, feature.own_data, feature.data) for feature in sources if feature.has_data]
    for source, _, _ in kept:
        source.own_data, source.data = False, None
    yield
    for source, own, values in kept:
        source.data, source.own_data = values, own


def forward(layer: Layer, run: Run = run_method) -> None:
    """Run a layer forward as a net does."""
    layer.prepare(layer.context.phase | Phase.FORWARD)
    run(layer, layer.context.phase | Phase.FORWARD, "forward")


def backward(layer: Layer, adds: bool = False, run: Run = run_method) -> None:
    """Run a layer backward as a net does."""
    phase = Phase.TRAIN | Phase.BACKWARD
    run(layer, phase | Phase.AGGREGATE_GRADIENT if adds else phase, "backward")


def metric(layer: Layer, name: str) -> Callable[[], float]:
    """Return a function that reads a metric of the last forward pass."""
    return lambda: float(layer.metrics.take()[name][0])


def results(
    layer: Layer,
    weights: Sequence[Array] | None = None,
    back: bool = True,
    between: Callable[[], None] = lambda: None,
    run: Run = run_method,
) -> dict[str, Array]:
    """Run a layer; return copies of all arrays that it has written, by name.

    With ``back`` the layer runs forward and backward, else only forward. ``weights`` are the gradients of its outputs;
    by default they are random. ``between`` is called before the backward pass.
    """
    random = np.random.default_rng(5)
    arrays: dict[str, Any] = {}
    layer.context.states.clear()
    for feature in layer.features:
        feature.consumed_as.add("data")
    forward(layer, run)
    for k, feature in enumerate(layer.features):
        arrays |= {
            f"output {k}": feature.data,
            f"labels {k}": feature.records.labels,
            f"index {k}": feature.one_hot_index,
        }
        drawn = random.normal(size=feature.shape)
        if feature.grad is not None:
            layer.ops.copy(drawn if weights is None else weights[k], out=feature.grad)
    arrays |= {f"the sum of metric {name!r}": total for name, (total, _) in layer.metrics.take().items()}
    if back:
        between()
        backward(layer, run=run)
        arrays |= {f"the gradient of source {k}": each.grad for k, each in enumerate(layer.sources)}
        arrays |= {f"the gradient of param {each.name!r}": each.grad for each in layer.params if each.has_grad}
    return {name: np.array(layer.ops.to_host(each)) for name, each in arrays.items() if each is not None}
