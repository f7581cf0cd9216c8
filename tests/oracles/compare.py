"""A layer beside the same function in PyTorch: outputs and all gradients in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from singa_dask.layers import Feature, Layer
from singa_dask.testing.case import backward, forward, source

Array = np.ndarray[Any, Any]
TOLERANCE = 1e-10
TINY = 1e-300  # a delta that float64 does not notice beside anything here


def tensor(values: Array, learns: bool = True) -> Any:
    """Return a copy as a float64 tensor that autograd follows."""
    import torch

    return torch.tensor(np.asarray(values), dtype=torch.float64, requires_grad=learns)


def numbers(values: Any) -> Array:
    """Return a tensor as a numpy array."""
    found: Array = values.detach().numpy()
    return found


def assert_close(found: Any, wanted: Any, what: str = "") -> None:
    """Check that numbers agree to 1e-10, relative to the larger of 1 and their size."""
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=what)


def apart(shape: Sequence[int]) -> Feature:
    """Return a source none of whose values are equal, nor nearly."""
    feature = source(shape)
    feature.data[...] = np.random.default_rng(1).permutation(feature.data.size).reshape(shape) / 10
    return feature


def check(layer: Layer, reference: Callable[..., Any], n_params: int | None = None) -> None:
    """Compare a layer with a reference: the output, and the gradients of each source and param.

    Parameters
    ----------
    layer : Layer
        From `singa_dask.testing.case.wire`, with sources of float64.
    reference : callable
        Takes the sources' data and the params as tensors; returns the output.
    n_params : int, optional
        How many of the params, from the first on, have a gradient; all if not given.
    """
    sources = [tensor(each.data) for each in layer.sources]
    params = [tensor(each.data) for each in layer.params]
    forward(layer)
    wanted = reference(*sources, *params)
    (feature,) = layer.features
    assert_close(feature.data, numbers(wanted), "output")
    gy = np.random.default_rng(2).normal(size=feature.shape)
    feature.grad[...] = gy
    backward(layer)
    wanted.backward(tensor(gy, learns=False))
    for place, (mine, theirs) in enumerate(zip(layer.sources, sources, strict=True)):
        if mine.grad is not None:
            assert_close(mine.grad, numbers(theirs.grad), f"gradient of source {place}")
    for param, theirs in list(zip(layer.params, params, strict=True))[:n_params]:
        assert_close(param.grad, numbers(theirs.grad), f"gradient of {param.name}")
