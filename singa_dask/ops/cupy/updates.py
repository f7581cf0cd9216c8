"""CupyUpdates: the update rules on a GPU, each one kernel that reads and writes every value once.

The same pass prepares the gradient. The learning rate and other numbers are arguments: a change compiles and uploads
nothing.
"""

from __future__ import annotations

from typing import Any

import cupy

from singa_dask.ops.contract import Preparation
from singa_dask.ops.cupy.arrays import CupyMemory
from singa_dask.ops.cupy.device import Array
from singa_dask.ops.numpy.updates import NumpyUpdates

__all__ = ["CupyUpdates"]

# A NaN stays NaN.
PREPARED = """
template <typename T>
__device__ T prepared(T g, T low, T high, T scale, T decay, T w) {
    g *= scale;
    if (high > low) g = g < low ? low : g > high ? high : g;
    return decay > T(0) ? g + decay * w : g;
}
"""


def _rule(name: str, numbers: str, arrays: str, step: str) -> Any:
    """Return a kernel of a gradient, a `Preparation`, numbers, and arrays that it changes, ``w`` first."""
    given, changed = ("".join(f", T {one}" for one in names.split()) for names in (numbers, arrays))
    return cupy.ElementwiseKernel(
        f"T grad, T low, T high, T scale, T decay, T factor{given}",
        f"T w{changed}",
        f"T g = prepared<T>(grad, low, high, scale, decay, w); if (factor != T(1)) w *= factor; {step}",
        name,
        preamble=PREPARED,
    )


PLAIN = _rule("sgd", "lr", "", "w -= lr * g;")
MOMENTUM = _rule("sgd_momentum", "lr mu", "v", "v = mu * v - lr * g; w += v;")
NESTEROV = _rule("nesterov", "lr mu ahead", "v", "T last = mu * v; v = last + lr * g; w -= ahead * v - last;")
ADAGRAD = _rule("adagrad", "lr delta", "h", "h += g * g; w -= lr * g / sqrt(h + delta);")
RMSPROP = _rule("rmsprop", "lr rho rest delta", "h", "h = rho * h + rest * (g * g); w -= lr * g / sqrt(h + delta);")
ADADELTA = _rule(
    "adadelta",
    "lr rho rest delta",
    "h u",
    """
    h = rho * h + rest * (g * g);
    T d = g * sqrt(u + delta) / sqrt(h + delta);
    u = rho * u + rest * (d * d);
    w -= lr * d;
    """,
)
MEANS = "m = beta1 * m + rest1 * g; v = beta2 * v + rest2 * (g * g);"
ADAM_NUMBERS = "lr beta1 rest1 beta2 rest2 delta"
ADAM = _rule("adam", f"{ADAM_NUMBERS} correction", "m v", f"{MEANS} w -= lr * m / (sqrt(correction * v) + delta);")
ADAM_OF_SINGA = _rule("adam_of_singa", ADAM_NUMBERS, "m v", f"{MEANS} w -= lr * m / sqrt(v + delta);")
ADAMAX = _rule(
    "adamax",
    "lr beta1 rest1 beta2 delta kept",
    "m u",
    """
    m = beta1 * m + rest1 * g;
    T least = beta2 * u, size = fabs(g);
    T largest = least > size ? least : size;
    u = largest + kept;
    w -= lr * m / (largest + delta);
    """,
)


class CupyUpdates(CupyMemory, NumpyUpdates):
    """Kernels of update rules, a mixin of `CupyOps`."""

    # a user's own rule takes three times this in scratch memory
    update_values = 1 << 24

    def sgd(self, w: Array, g: Array, velocity: Array | None, lr: float, momentum: float, prep: Preparation) -> None:
        if velocity is None:
            PLAIN(g, *prep, lr, w)
        else:
            MOMENTUM(g, *prep, lr, momentum, w, velocity)

    def nesterov(self, w: Array, g: Array, velocity: Array, lr: float, momentum: float, prep: Preparation) -> None:
        NESTEROV(g, *prep, lr, momentum, 1 + momentum, w, velocity)

    def adagrad(self, w: Array, g: Array, square: Array, lr: float, delta: float, prep: Preparation) -> None:
        ADAGRAD(g, *prep, lr, delta, w, square)

    def rmsprop(
        self, w: Array, g: Array, square: Array, lr: float, rho: float, delta: float, prep: Preparation
    ) -> None:
        RMSPROP(g, *prep, lr, rho, 1 - rho, delta, w, square)

    def adadelta(
        self,
        w: Array,
        g: Array,
        square: Array,
        step_square: Array,
        lr: float,
        rho: float,
        delta: float,
        prep: Preparation,
    ) -> None:
        ADADELTA(g, *prep, lr, rho, 1 - rho, delta, w, square, step_square)

    def adam(
        self,
        w: Array,
        g: Array,
        mean: Array,
        square: Array,
        lr: float,
        beta1: float,
        beta2: float,
        delta: float,
        correction: float | None,
        prep: Preparation,
    ) -> None:
        numbers = (lr, beta1, 1 - beta1, beta2, 1 - beta2, delta)
        if correction is None:
            ADAM_OF_SINGA(g, *prep, *numbers, w, mean, square)
        else:
            ADAM(g, *prep, *numbers, correction, w, mean, square)

    def adamax(
        self,
        w: Array,
        g: Array,
        mean: Array,
        largest: Array,
        lr: float,
        beta1: float,
        beta2: float,
        delta: float,
        keep_delta: bool,
        prep: Preparation,
    ) -> None:
        kept = delta if keep_delta else 0.0
        ADAMAX(g, *prep, lr, beta1, 1 - beta1, beta2, delta, kept, w, mean, largest)
