"""The exam of layers: wire one to made-up sources in float64, and compare its gradients with central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from singa_dask.conf import LayerConf, Phase
from singa_dask.layers import LAYERS, Context, Feature, Layer
from singa_dask.net.copies import compute_gradient
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
) -> Feature:
    """Return a feature with normal data; values nearer to 0 than ``kink`` are moved away from it.

    Images lie in memory as nets lay them out, N, H, W, C, unless ``plain``.
    """
    feature = Feature(shape, np.float64, grad)
    data = np.random.default_rng(seed).normal(size=feature.shape)
    memory = ops.zeros if plain else ops.features
    feature.data = memory(feature.shape, feature.dtype)
    ops.copy(np.where(np.abs(data) < kink, np.copysign(kink, data), data), out=feature.data)
    if grad:
        feature.grad = memory(feature.shape, feature.dtype)
        feature.grad[...] = np.nan
    feature.labels = None if labels is None else ops.labels(np.array(labels, np.int32))
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
    layer = LAYERS.find(kind)(made, context)
    layer.n_steps = n_steps
    layer.wire(sources, ops)
    layer.learns = True
    random = np.random.default_rng(99)
    for feature in layer.features:
        feature.wants_grad &= bool(context.phase & Phase.TRAIN)
    for param in layer.params:
        param.data = ops.from_host(random.normal(size=param.shape).astype(param.dtype))
    layer.allocate()
    return layer


def forward(layer: Layer) -> None:
    """Run a layer forward as a net does."""
    layer.prepare(layer.context.phase | Phase.FORWARD)
    layer.compute_feature(layer.context.phase | Phase.FORWARD)


def backward(layer: Layer) -> None:
    """Run a layer backward as a net does."""
    compute_gradient(layer, Phase.TRAIN | Phase.BACKWARD)


def check_gradients(layer: Layer, objective: Callable[[], float] | None = None) -> None:
    """Compare the gradient of every source and param with central differences.

    Parameters
    ----------
    layer : Layer
        From `wire`, with float64 sources.
    objective : callable, optional
        What the layer differentiates after a forward pass; a random weighting of its outputs when not given.
    """
    random = np.random.default_rng(5)
    weights = [random.normal(size=feature.shape) for feature in layer.features]

    def weighted() -> float:
        return sum(float((w * f.data).sum()) for w, f in zip(weights, layer.features, strict=True))

    measure = objective or weighted

    def differentiate() -> None:
        forward(layer)
        layer.take_metrics()
        for feature, weight in zip(layer.features, weights, strict=True):
            if feature.grad is not None:
                feature.grad[...] = weight
        backward(layer)

    differentiate()
    pairs = [(s.data, s.grad.copy()) for s in layer.sources if s.grad is not None]
    pairs += [(p.data, p.grad.copy()) for p in layer.params]
    assert pairs, "nothing to differentiate"
    for values, analytic in pairs:
        np.testing.assert_allclose(analytic, _differences(layer, values, measure), rtol=0, atol=TOLERANCE)
    if not layer.recurrent:  # whose copies hand on states as well
        _check_later_copy(layer, differentiate)
    forward(layer)


def _check_later_copy(layer: Layer, differentiate: Callable[[], None]) -> None:
    """Check that a later copy in an unrolled net adds the gradients of its params to those of the copies before it."""
    differentiate()
    alone = [param.grad.copy() for param in layer.params]
    layer.adds_gradient = True
    layer.allocate()
    differentiate()
    for param, grad in zip(layer.params, alone, strict=True):
        np.testing.assert_allclose(param.grad, 2 * grad, rtol=1e-12, atol=1e-12)


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
    return lambda: layer.take_metrics()[name][0]


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
