"""An activation of a user's own, by formulas: x tanh(log(1 + exp(x))) (Misra, 2019)."""

from __future__ import annotations

from singa_dask import Elementwise

# with w = exp(x) the tanh is w (w + 2) / (w (w + 2) + 2), and beyond x = 20 it is 1 in float64, too
W = "w = exp(min(x, 20)); "


class Mish(Elementwise):
    """From x of any shape to the same shape, by a fused kernel on each device."""

    value = W + "x / (1 + 2 / (w * (w + 2)))"
    derivative = W + "d = 1 / ((w + 1) ** 2 + 1); ((w + 1) * x * d * 4 + w + 2) * w * d"
