"""CupyElementwise and CupyUpdates: arithmetic, activations and update rules on a GPU, each a single kernel."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from singa_dask.arrays import DType
from singa_dask.ops.cupy.arrays import THREADS, CupyMemory, ValueKernel
from singa_dask.ops.cupy.device import Array, c_name
from singa_dask.ops.formulas import Formula, Step
from singa_dask.ops.numpy.elementwise import GELU_CUBE, GELU_X, STANH_X, STANH_Y
from singa_dask.ops.numpy.updates import NumpyUpdates
from singa_dask.ops.types import ArrayList, Each, Preparation
from singa_dask.ops.update_rules import SHIFT, UpdateRule

MULTIPLY = ValueKernel("multiply", "X x, Y y", "z = (Z)((W)x * (W)y);")
SCALE = ValueKernel("scale", "X x, float64 y", "z = (Z)((W)x * (W)y);")
WEIGHTED_SQUARE = ValueKernel("weighted_square", "X x, Y weight", "z = (Z)((W)weight * (W)x * (W)x);")
# a NaN stays NaN
RELU = ValueKernel("relu", "X x", "z = (Z)((W)x <= 0 ? (W)0 : (W)x);")
RELU_GRAD = ValueKernel("relu_grad", "X y, Y gy", "z = (Z)((W)y > 0 ? (W)gy : (W)0);")
LEAKY_RELU = ValueKernel("leaky_relu", "X x, float64 slope", "z = (Z)((W)x <= 0 ? (W)slope * (W)x : (W)x);")
LEAKY_RELU_GRAD = ValueKernel(
    "leaky_relu_grad", "X y, Y gy, float64 slope", "z = (Z)((W)y > 0 ? (W)gy : (W)slope * (W)gy);"
)
CDF = "const W v = (W)x, p = (W)0.5 * erfc(v * (W)-0.70710678118654752440);"
TANH_CDF = f"const W v = (W)x, p = (W)0.5 + (W)0.5 * tanh((W){GELU_X} * (v + (W){GELU_CUBE} * v * v * v));"
# the tanh is 2 p - 1, so its slope 4 p (1 - p)
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


# What a step of a `Formula` is in C++, of operands a and b.
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
    """Return the kernel of the steps of a formula."""
    lines = []
    for i, (function, args) in enumerate(steps):
        operands = " ".join(f"const W {name} = (W){each};" for name, each in zip("ab", args, strict=False))
        lines.append(f"W v{i}; {{ {operands} v{i} = {IN_CPP[function]}; }}")
    return ValueKernel("elementwise", given, f"{' '.join(lines)} z = (Z)v{len(steps) - 1};")


class CupyElementwise(CupyMemory):
    """Kernels that compute value by value, a mixin of `CupyOps`; most are a `ValueKernel` as it is."""

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
                self.normalize(there, mean, std, out)
            return
        by = [self._broadcast(name, values) for name, values in (("mean", mean), ("std", std))]
        kinds = ("none" if b is None else "number" if isinstance(b, float) else "array" for b in by)
        arguments = [x, *(b for b in by if b is not None), out]
        normalizer(*kinds)(*arguments)

    def _broadcast(self, name: str, values: Any) -> Any:
        """Return what broadcasts against records, a device array, a number, or None."""
        if values is None or isinstance(values, cupy.ndarray):
            return values
        if not np.ndim(values):
            return float(values)
        there = self.scratch(name, (values.size,), values.dtype).reshape(values.shape)
        self.copy(values, there)
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


# CupyUpdates: the update rules on a GPU, each one kernel that reads and writes every value once.
#
# The same pass prepares the gradient. The learning rate and other numbers are arguments: a change compiles and
# uploads nothing. Each rule has a second kernel with the same steps for an `ArrayList`: it finds the arrays by a
# table of their addresses, which is on the device from the first call on. A third one finds numbers that differ between
# the arrays by a table too, which is uploaded for each call.


# Values that a block of a kernel for lists updates, of one array.
CHUNK = 4096

# A NaN stays NaN. `times` is rounded by itself, never as part of a sum: all kernels of a rule have the same bits.
PREPARED = """
__device__ float times(float x, float y) { return __fmul_rn(x, y); }
__device__ double times(double x, double y) { return __dmul_rn(x, y); }
template <typename T>
__device__ T prepared(T g, T low, T high, T scale, T decay, T w) {
    g *= scale;
    if (high > low) g = g < low ? low : g > high ? high : g;
    return decay > T(0) ? g + decay * w : g;
}
template <typename T>
__device__ T larger(T x, T y) { return x > y ? x : y; }
"""
PREPARE = "T g = prepared<T>(grad, low, high, scale, decay, w); if (factor != T(1)) w = times(w, factor);"


@functools.cache
def kernel_of(rule: UpdateRule) -> Any:
    """Return the kernel of a rule: of a gradient, a `Preparation`, numbers, and the arrays that it changes."""
    preparation, prepare = ["low", "high", "scale", "decay", "factor"], PREPARE
    if rule is SHIFT:
        preparation, prepare = [], "T g = grad;"
    return cupy.ElementwiseKernel(
        ", ".join(f"T {name}" for name in ["grad", *preparation, *rule.numbers]),
        ", ".join(f"T {name}" for name in rule.arrays),
        f"{prepare} {rule.for_gpu}",
        rule.name,
        preamble=PREPARED,
    )


# A block updates a chunk of one array: 16 bytes of each array at once where all begin at a multiple of that.
FOR_LISTS = """
struct alignas(16) Pack {{ T of[16 / sizeof(T)]; }};

__device__ __forceinline__ void step({given}, {changed}) {{ {operation}; }}

extern "C" __global__ void {name}(
    const int* __restrict__ chunks, const long long* __restrict__ sizes, {tables}, {numbers}
) {{
    const int index = chunks[2 * blockIdx.x];
    const long long first = (long long)chunks[2 * blockIdx.x + 1] * {CHUNK}, left = sizes[index] - first;
    const int n = left < {CHUNK} ? (int)left : {CHUNK};
    {pointers}
    {fetch}
    int done = 0;
    if (({addresses}) % 16 == 0) {{
        const int width = 16 / sizeof(T);
        done = n / width * width;
        for (int i = threadIdx.x; i < n / width; i += blockDim.x) {{
            {load}
#pragma unroll
            for (int k = 0; k < width; ++k) step({packed});
            {store}
        }}
    }}
    for (int i = done + threadIdx.x; i < n; i += blockDim.x) step({single});
}}
"""


@functools.cache
def source_for_lists(kernel: Any, dtype: DType, differ: bool = False) -> str:
    """Return the source of the kernel of a rule for lists, from that for arrays; ``differ`` is of numbers."""
    grad, *numbers = (param.name for param in kernel.in_params)
    changed = [param.name for param in kernel.out_params]
    arrays = [grad, *changed]
    number = [f"T {x}" for x in numbers]
    parts = {
        "given": ", ".join([f"T {grad}", *number]),
        "changed": ", ".join(f"T& {x}" for x in changed),
        "tables": ", ".join(f"const unsigned long long* __restrict__ {x}s" for x in arrays),
        "numbers": "const T* __restrict__ numbers" if differ else ", ".join(number),
        "fetch": " ".join(f"const T {x} = numbers[index * {len(numbers)} + {k}];" for k, x in enumerate(numbers))
        if differ
        else "",
        "pointers": " ".join(f"T* {x} = (T*){x}s[index] + first;" for x in arrays),
        "addresses": " | ".join(f"(unsigned long long){x}" for x in arrays),
        "load": " ".join(f"Pack {x}_pack = ((const Pack*){x})[i];" for x in arrays),
        "packed": ", ".join([f"{grad}_pack.of[k]", *numbers, *(f"{x}_pack.of[k]" for x in changed)]),
        "store": " ".join(f"((Pack*){x})[i] = {x}_pack;" for x in changed),
        "single": ", ".join([f"{grad}[i]", *numbers, *(f"{x}[i]" for x in changed)]),
    }
    body = FOR_LISTS.format(name=kernel.name, operation=kernel.operation, CHUNK=CHUNK, **parts)
    return f"typedef {c_name(dtype)} T;\n{kernel.preamble}{body}"


class CupyUpdates(CupyMemory, NumpyUpdates):
    """Kernels of update rules, a mixin of `CupyOps`."""

    # a user's own rule takes three times this in scratch memory
    update_values = 1 << 24

    def update(
        self,
        rule: UpdateRule,
        prep: Preparation | Each[Preparation] | None,
        numbers: Sequence[float] | Each[Sequence[float]],
        grad: Any,
        *changed: Any,
    ) -> None:
        kernel = kernel_of(rule)
        if not isinstance(grad, ArrayList):
            kernel(grad, *(prep or ()), *numbers, *changed)
            return
        lists = [self._on_device(arrays) for arrays in (grad, *changed)]
        chunks, sizes, _ = lists[0]
        if not chunks.size:
            return
        dtype = grad[0].dtype
        for_lists = self.gpu.compile(source_for_lists(kernel, dtype, isinstance(prep, Each)), rule.name)
        with np.errstate(over="ignore"):
            if isinstance(prep, Each):
                pairs: Any = zip(prep, numbers, strict=True)
                rows = np.array([(*one, *more) for one, more in pairs]).astype(dtype)
                values = [self.scratch("numbers of an update", rows.shape, dtype)]
                self.gpu.put(rows, values[0])
            else:
                values = [dtype.type(number) for number in (*(prep or ()), *numbers)]
        for_lists((len(chunks),), (THREADS,), (chunks, sizes, *(addresses for *_, addresses in lists), *values))

    def _on_device(self, arrays: Any) -> Any:
        """Return what the device keeps of a list: index and number of each block's chunk, sizes, and addresses."""
        if arrays.on_device is None:
            sizes = np.array([x.size for x in arrays], np.int64)
            n_chunks = -(-sizes // CHUNK)
            index = np.repeat(np.arange(len(arrays)), n_chunks)
            number = np.arange(len(index)) - np.repeat(np.cumsum(n_chunks) - n_chunks, n_chunks)
            chunks = np.stack([index, number], axis=1).astype(np.int32)
            addresses = np.array([x.data.ptr for x in arrays], np.uint64)
            arrays.on_device = tuple(self.from_host(x) for x in (chunks, sizes, addresses))
        return arrays.on_device
