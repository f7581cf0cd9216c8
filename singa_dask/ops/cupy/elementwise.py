"""CupyElementwise: arithmetic and activations on a GPU, each a single kernel."""

from __future__ import annotations

import functools
from typing import Any

import cupy
import numpy as np

from singa_dask.ops.cupy.device import Array
from singa_dask.ops.cupy.memory import CupyMemory
from singa_dask.ops.cupy.value_kernel import ValueKernel
from singa_dask.ops.formulas import Formula, Step
from singa_dask.ops.numpy.elementwise import GELU_CUBE, GELU_X, STANH_X, STANH_Y

MULTIPLY = ValueKernel("multiply", "X x, Y y", "z = (Z)((W)x * (W)y);")
SCALE = ValueKernel("scale", "X x, float64 y", "z = (Z)((W)x * (W)y);")
WEIGHTED_SQUARE = ValueKernel("weighted_square", "X x, Y weight", "z = (Z)((W)weight * (W)x * (W)x);")
# these conditions keep a NaN as NaN
RELU = ValueKernel("relu", "X x", "z = (Z)((W)x <= 0 ? (W)0 : (W)x);")
RELU_GRAD = ValueKernel("relu_grad", "X y, Y gy", "z = (Z)((W)y > 0 ? (W)gy : (W)0);")
LEAKY_RELU = ValueKernel("leaky_relu", "X x, float64 slope", "z = (Z)((W)x <= 0 ? (W)slope * (W)x : (W)x);")
LEAKY_RELU_GRAD = ValueKernel(
    "leaky_relu_grad", "X y, Y gy, float64 slope", "z = (Z)((W)y > 0 ? (W)gy : (W)slope * (W)gy);"
)
CDF = "const W v = (W)x, p = (W)0.5 * erfc(v * (W)-0.70710678118654752440);"
TANH_CDF = f"const W v = (W)x, p = (W)0.5 + (W)0.5 * tanh((W){GELU_X} * (v + (W){GELU_CUBE} * v * v * v));"
# p is the approximate CDF, so tanh = 2 p - 1, and its slope is 4 p (1 - p)
TANH_SLOPE = f"(W)2 * v * p * ((W)1 - p) * (W){GELU_X} * ((W)1 + (W){3 * GELU_CUBE} * v * v)"
GELU = ValueKernel("gelu", "X x", f"{CDF} z = (Z)(v * p);")
GELU_GRAD = ValueKernel(
    "gelu_grad", "X x, Y gy", f"{CDF} z = (Z)((W)gy * (p + v * (W)0.39894228040143267794 * exp((W)-0.5 * v * v)));"
)
GELU_TANH = ValueKernel("gelu_tanh", "X x", f"{TANH_CDF} z = (Z)(v * p);")
GELU_TANH_GRAD = ValueKernel("gelu_tanh_grad", "X x, Y gy", f"{TANH_CDF} z = (Z)((W)gy * (p + {TANH_SLOPE}));")
LOGISTIC = "const W v = (W)x, s = (W)1 / ((W)1 + exp(-v));"


@functools.cache
def normalizer(mean: str, std: str) -> Any:
    """Return the kernel of `normalize` for a mean and a standard deviation, each "array", "number" or "none"."""
    inputs, step = "X x", "W v = (W)x;"
    for kind, name, letter, apply in ((mean, "mean", "M", "v -= (W)mean;"), (std, "std", "S", "v /= (W)std;")):
        if kind != "none":
            inputs += f", {letter if kind == 'array' else 'float64'} {name}"
            step += apply
    return ValueKernel(f"normalize_{mean}_{std}", inputs, f"{step} z = (Z)v;")


# name of a step of a `Formula` -> C++ expression of its operands a and b
IN_CPP = {
    "add": "a + b",
    "subtract": "a - b",
    "multiply": "a * b",
    "divide": "a / b",
    "negative": "-a",
    "square": "a * a",
    **{name: f"{name}(a)" for name in ("exp", "log", "sqrt", "tanh")},
    "abs": "fabs(a)",
    "max": "a < b ? b : a",
    "min": "a > b ? b : a",
    "sigmoid": "(W)1 / ((W)1 + exp(-a))",
}


@functools.cache
def formula_kernel(steps: tuple[Step, ...], given: str) -> ValueKernel:
    """Return a kernel that computes all steps of a formula."""
    lines = []
    for i, (function, args) in enumerate(steps):
        operands = " ".join(f"const W {name} = (W){each};" for name, each in zip("ab", args, strict=False))
        lines.append(f"W v{i}; {{ {operands} v{i} = {IN_CPP[function]}; }}")
    return ValueKernel("elementwise", given, f"{' '.join(lines)} z = (Z)v{len(steps) - 1};")


class CupyElementwise(CupyMemory):
    """Mixin of `CupyOps` with elementwise kernels. Most of them are `ValueKernel` objects."""

    add = ValueKernel("add", "X x, Y y", "z = (Z)((W)x + (W)y);")
    add_relu = ValueKernel("add_relu", "X x, Y y", "const Z v = (Z)((W)x + (W)y); z = (W)v <= 0 ? (Z)(W)0 : v;")
    subtract = ValueKernel("subtract", "X x, Y y", "z = (Z)((W)x - (W)y);")
    add_relu_grad = ValueKernel("add_relu_grad", "X y, Y gy, S more", "z = (W)y > 0 ? (Z)((W)gy + (W)more) : (Z)(W)0;")
    sigmoid = ValueKernel("sigmoid", "X x", "z = (Z)((W)1 / ((W)1 + exp(-(W)x)));")
    sigmoid_grad = ValueKernel("sigmoid_grad", "X y, Y gy", "const W v = (W)y; z = (Z)((W)gy * v * ((W)1 - v));")
    tanh = ValueKernel("tanh_of", "X x", "z = (Z)tanh((W)x);")
    tanh_grad = ValueKernel("tanh_grad", "X y, Y gy", "const W v = (W)y; z = (Z)((W)gy * ((W)1 - v * v));")
    stanh = ValueKernel("stanh", "X x", f"z = (Z)((W){STANH_Y} * tanh((W){STANH_X} * (W)x));")
    stanh_grad = ValueKernel(
        "stanh_grad",
        "X y, Y gy",
        f"const W v = (W)y; z = (Z)((W)gy * ((W){STANH_X * STANH_Y} - (W){STANH_X / STANH_Y} * v * v));",
    )
    silu = ValueKernel("silu", "X x", f"{LOGISTIC} z = (Z)(v * s);")
    silu_grad = ValueKernel("silu_grad", "X x, Y gy", f"{LOGISTIC} z = (Z)((W)gy * s * ((W)1 + v * ((W)1 - s)));")

    def multiply(self, x: Array, y: Array | float, out: Array) -> None:
        if isinstance(y, cupy.ndarray):
            MULTIPLY(x, y, out)
        else:
            SCALE(x, float(y), out)

    def scale_rows(self, x: Array, factors: Array, out: Array) -> None:
        MULTIPLY(x, factors[:, None], out)

    def sum_squares(self, x: Array, weights: Array | None = None) -> Array:
        if weights is None:
            return self.sum_of("squares", x)
        squares = self.scratch("squares", x.shape, np.float64)
        WEIGHTED_SQUARE(x, weights[:, None], squares)
        return self.sum_of("values", squares)

    def normalize(self, x: Array, mean: Array | float | None, std: Array | float | None, out: Array) -> None:
        if isinstance(x, np.ndarray):
            with self.gpu.upload(x) as there:
                self.normalize(there, mean, std, out=out)
            return
        by = [self._broadcast(name, values) for name, values in (("mean", mean), ("std", std))]
        kinds = ("none" if b is None else "number" if isinstance(b, float) else "array" for b in by)
        arguments = [x, *(b for b in by if b is not None), out]
        normalizer(*kinds)(*arguments)

    def _broadcast(self, name: str, values: Any) -> Any:
        """Return a mean or deviation that broadcasts against records: a device array, a number, or None."""
        if values is None or isinstance(values, cupy.ndarray):
            return values
        if not np.ndim(values):
            return float(values)
        there = self.scratch(name, (values.size,), values.dtype).reshape(values.shape)
        self.copy(values, out=there)
        return there

    def relu(self, x: Array, out: Array, negative_slope: float = 0.0) -> None:
        if negative_slope:
            LEAKY_RELU(x, negative_slope, out)
        else:
            RELU(x, out)

    def relu_grad(self, y: Array, gy: Array, out: Array, negative_slope: float = 0.0) -> None:
        if negative_slope:
            LEAKY_RELU_GRAD(y, gy, negative_slope, out)
        else:
            RELU_GRAD(y, gy, out)

    def elementwise(self, x: Array, out: Array, formula: Formula) -> None:
        formula_kernel(formula.forward, "X x")(x, out)

    def elementwise_grad(self, x: Array, gy: Array, out: Array, formula: Formula) -> None:
        formula_kernel(formula.backward, "X x, Y gy")(x, gy, out)

    def gelu(self, x: Array, out: Array, approximate: bool = False) -> None:
        (GELU_TANH if approximate else GELU)(x, out)

    def gelu_grad(self, x: Array, gy: Array, out: Array, approximate: bool = False) -> None:
        (GELU_TANH_GRAD if approximate else GELU_GRAD)(x, gy, out)
