"""How each kernel becomes a call of oneDNN: a recipe takes the arrays and parameters of the kernel, and makes the call.

Primitives take images as N, H, W, C, which is plain and the fastest here, and weights in the layout that they choose
and the dtype of the images. `call` copies arrays that lie otherwise.
"""

from __future__ import annotations

from typing import Any

from singa_dask.ops.onednn.recipes import images, normalisation, rows
from singa_dask.ops.onednn.recipes.normalisation import lrn_workspace

__all__ = ["RECIPES", "lrn_workspace"]

# By the name of the kernel.
RECIPES: dict[str, Any] = {
    name: getattr(family, name) for family in (images, normalisation, rows) for name in family.__all__
}
