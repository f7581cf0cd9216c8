"""How each kernel becomes a call of oneDNN: a recipe takes the arrays and parameters of the kernel, and makes the call.

Primitives see images as N, H, W, C whatever their layout, as that is plain and the fastest here, and weights in the
layout that they want and the type of the images. What a caller has otherwise is copied on the way by `call`.
"""

from __future__ import annotations

from typing import Any

from singa_dask.ops.onednn.recipes import elementwise, images, linear, normalisation, softmax
from singa_dask.ops.onednn.recipes.normalisation import lrn_workspace

__all__ = ["RECIPES", "lrn_workspace"]

# By the name of the kernel.
RECIPES: dict[str, Any] = {
    name: getattr(family, name)
    for family in (elementwise, images, linear, normalisation, softmax)
    for name in family.__all__
}
