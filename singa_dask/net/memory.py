"""How much memory a net takes, found without taking it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from singa_dask.layers import Layer, Param
from singa_dask.ops import NumpyOps

__all__ = ["Sizes", "layer_bytes"]

# More than numpy describes.
MAX_BYTES = 1 << 62


class Sizes(NumpyOps):
    """Kernels whose memory is of any shape but one value long, for layers that allocate and do not compute.

    Attributes
    ----------
    n_bytes : int
        What was asked for. Of an array that numpy could not describe `OverflowError` is raised once it is counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.n_bytes = 0

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        value = np.zeros((), dtype)
        n_bytes = math.prod(shape) * value.itemsize
        self.n_bytes += n_bytes
        if n_bytes > MAX_BYTES:
            raise OverflowError(f"an array of {n_bytes} bytes")
        return as_strided(value, shape, (0,) * len(shape))

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        return self.empty(shape, dtype)

    def features(self, shape: Sequence[int], dtype: Any) -> Any:
        return self.empty(shape, dtype)


def layer_bytes(layers: Sequence[Layer], again: Any, owners: Sequence[Param]) -> dict[str, int]:
    """Return the bytes that each layer of the job takes of this worker's memory; a shared param counts once.

    Parameters
    ----------
    layers : sequence of Layer
        Those of this worker.
    again : NeuralNet
        The same net, made with `Sizes` for kernels.
    owners : sequence of Param
        Those that are kept for this worker.
    """
    sizes, here = again.ops, {layer.name for layer in layers}
    found: dict[str, int] = dict.fromkeys((layer.conf_name for layer in layers), 0)
    for layer in again.layers:
        if layer.name in here:
            before = sizes.n_bytes
            try:
                layer.allocate()
            except OverflowError:
                break
            finally:
                found[layer.conf_name] += sizes.n_bytes - before
    home = {param.owner: layer.conf_name for layer in reversed(layers) for param in layer.params}
    for owner in owners:
        # one may be a part that no layer here has made itself
        name = home.get(owner, owner.name)
        found[name] = found.get(name, 0) + owner.size * owner.dtype.itemsize
    return found
