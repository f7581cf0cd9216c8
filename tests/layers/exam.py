"""The exam of layers: wire one to made-up sources in float64, and compare its gradients with central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from singa_dask.conf import LayerConf, Phase
from singa_dask.layers import LAYERS, Context, Feature, Layer, Param, Records, Shard, Site
from singa_dask.net.copies import Copies
from singa_dask.ops import NumpyOps, get_ops

CPU = get_ops("numpy")
EPSILON = 1e-5
TOLERANCE = 1e-6


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
    """Return a feature with normal data; values nearer to 0 than ``kink`` are moved away from it.

    Images lie in memory as nets lay them out, N, H, W, C, unless ``plain``.
    """
    feature = Feature(shape, dtype, grad)
    data = np.random.default_rng(seed).normal(size=feature.shape)
    memory = ops.zeros if plain else ops.features
    feature.data = memory(feature.shape, feature.dtype)
    ops.copy(np.where(np.abs(data) < kink, np.copysign(kink, data), data), out=feature.data)
    if grad:
        feature.grad = memory(feature.shape, feature.dtype)
        feature.grad[...] = np.nan
    if labels is not None:
        feature.records = Records(ops.labels(np.array(labels, np.int32)))
    return feature


def wire(
    kind: str,
    sources: Sequence[Feature],
    context: Context | None = None,
    n_steps: int = 1,
    ops: NumpyOps = CPU,
    **conf: Any,
) -> Layer:
    """Return a layer that is ready to run, its params drawn; of all of ``n_steps`` time steps."""
    names = [f"src{i}" for i in range(len(sources))]
    made = LayerConf.model_validate({"name": "layer", "type": kind, "srclayers": names, **conf})
    context = context or Context(phase=Phase.TRAIN, dtype=np.dtype(np.float64))
    site = Site("layer", "layer", Shard(context.worker, context.n_workers), n_steps=n_steps)
    layer = LAYERS.find(kind)(made, context, site)
    layer.wire(sources, ops)
    layer.learns = True
    random = np.random.default_rng(99)
    for feature in layer.features:
        feature.requires_grad &= bool(context.phase & Phase.TRAIN)
    for param in layer.params:
        param.data = ops.from_host(random.normal(size=param.shape).astype(param.dtype))
    layer.allocate()
    return layer


def forward(layer: Layer) -> None:
    """Run a layer forward as a net does."""
    layer.prepare(layer.context.phase | Phase.FORWARD)
    layer.forward(layer.context.phase | Phase.FORWARD)


def backward(layer: Layer) -> None:
    """Run a layer backward as a net does."""
    layer.backward(Phase.TRAIN | Phase.BACKWARD)


def check_gradients(
    layer: Layer, objective: Callable[[], float] | None = None, params: Sequence[Param] | None = None
) -> None:
    """Compare the gradient of every source and param with central differences.

    Parameters
    ----------
    layer : Layer
        From `wire`, with float64 sources.
    objective : callable, optional
        What the layer differentiates after a forward pass; a random weighting of its outputs when not given.
    params : sequence of Param, optional
        Those that have a gradient; all if not given.
    """
    random = np.random.default_rng(5)
    weights = [random.normal(size=feature.shape) for feature in layer.features]

    def weighted() -> float:
        return sum(float((w * f.data).sum()) for w, f in zip(weights, layer.features, strict=True))

    measure = objective or weighted

    def differentiate() -> None:
        forward(layer)
        layer.metrics.take()
        for feature, weight in zip(layer.features, weights, strict=True):
            if feature.grad is not None:
                feature.grad[...] = weight
        backward(layer)

    differentiate()
    pairs = [(s.data, s.grad.copy()) for s in layer.sources if s.grad is not None]
    pairs += [(p.data, p.grad.copy()) for p in (layer.params if params is None else params)]
    assert pairs, "nothing to differentiate"
    for values, analytic in pairs:
        np.testing.assert_allclose(analytic, _differences(layer, values, measure), rtol=0, atol=TOLERANCE)
    if not layer.traits.recurrent:  # whose copies hand on states as well
        _check_two_copies(layer, weights)
    forward(layer)


def _check_two_copies(layer: Layer, weights: Sequence[Any]) -> None:
    """Check that the gradients of two copies in an unrolled net, which read the same sources here, are added up."""
    alone = [param.grad.copy() for param in layer.params]
    site = replace(layer.site, name="1#layer", prototype=layer)
    copy = type(layer)(layer.conf, layer.context, site)
    copy.wire(layer.sources, layer.ops)
    copy.learns = True
    copy.allocate()
    copies = Copies([layer, copy], {layer: [], copy: []})
    copies.allocate(layer.ops)
    for each in (layer, copy):
        forward(each)
        for feature, weight in zip(each.features, weights, strict=True):
            if feature.grad is not None:
                feature.grad[...] = weight
    for each in (copy, layer):
        copies.backward(each, Phase.TRAIN | Phase.BACKWARD)
    for param, grad in zip(layer.params, alone, strict=True):
        sum_of = 1 if param.running_statistic else 2  # which the net averages over the copies
        np.testing.assert_allclose(param.grad, sum_of * grad, rtol=1e-12, atol=1e-12)


def _differences(layer: Layer, values: Any, measure: Callable[[], float]) -> Any:
    numeric = np.empty_like(values)
    for place in np.ndindex(values.shape):
        kept, sides = values[place], []
        for sign in (1, -1):
            values[place] = kept + sign * EPSILON
            forward(layer)
            sides.append(measure())
        values[place] = kept
        numeric[place] = (sides[0] - sides[1]) / (2 * EPSILON)
    return numeric


def metric(layer: Layer, name: str) -> Callable[[], float]:
    """Return a function that takes a figure of the last forward pass."""
    return lambda: layer.metrics.take()[name][0]


def check_layouts(kind: str, shape: Sequence[int], context: Context | None = None, **conf: Any) -> None:
    """Check that a layer gives the same numbers of images whatever their order in memory."""
    found = []
    for plain in (False, True):
        x = source(shape, plain=plain)
        assert x.data.flags.c_contiguous is plain
        layer = wire(kind, [x], context, **conf)
        forward(layer)
        layer.features[0].grad[...] = np.random.default_rng(3).normal(size=layer.features[0].shape)
        backward(layer)
        found.append([layer.features[0].data, x.grad, *(param.grad for param in layer.params)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
