"""CupyUpdates: the update rules on a GPU, each one kernel that reads and writes every value once.

The same pass prepares the gradient. The learning rate and other numbers are arguments: a change compiles and uploads
nothing. Each rule has a second kernel with the same steps for an `ArrayList`: it finds the arrays by a table of their
addresses, which is on the device from the first call on.
"""

from __future__ import annotations

import functools
from typing import Any

import cupy
import numpy as np

from singa_dask.arrays import DType
from singa_dask.ops.cupy.arrays import THREADS, CupyMemory
from singa_dask.ops.cupy.device import Array, c_name
from singa_dask.ops.numpy.updates import NumpyUpdates
from singa_dask.ops.types import ArrayList, Preparation

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
"""


def _rule(name: str, numbers: str, arrays: str, step: str) -> Any:
    """Return a kernel of a gradient, a `Preparation`, numbers, and arrays that it changes, ``w`` first."""
    given, changed = ("".join(f", T {one}" for one in names.split()) for names in (numbers, arrays))
    return cupy.ElementwiseKernel(
        f"T grad, T low, T high, T scale, T decay, T factor{given}",
        f"T w{changed}",
        f"T g = prepared<T>(grad, low, high, scale, decay, w); if (factor != T(1)) w = times(w, factor); {step}",
        name,
        preamble=PREPARED,
    )


SHIFT = cupy.ElementwiseKernel("T grad, T divisor", "T w", "w -= grad / divisor", "shift")
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
RULES = (SHIFT, PLAIN, MOMENTUM, NESTEROV, ADAGRAD, RMSPROP, ADADELTA, ADAM, ADAM_OF_SINGA, ADAMAX)

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
def source_for_lists(rule: Any, dtype: DType) -> str:
    """Return the source of the kernel for lists of a rule, an `ElementwiseKernel` above."""
    grad, *numbers = (param.name for param in rule.in_params)
    changed = [param.name for param in rule.out_params]
    arrays = [grad, *changed]
    number = [f"T {x}" for x in numbers]
    parts = {
        "given": ", ".join([f"T {grad}", *number]),
        "changed": ", ".join(f"T& {x}" for x in changed),
        "tables": ", ".join(f"const unsigned long long* __restrict__ {x}s" for x in arrays),
        "numbers": ", ".join(number),
        "pointers": " ".join(f"T* {x} = (T*){x}s[index] + first;" for x in arrays),
        "addresses": " | ".join(f"(unsigned long long){x}" for x in arrays),
        "load": " ".join(f"Pack {x}_pack = ((const Pack*){x})[i];" for x in arrays),
        "packed": ", ".join([f"{grad}_pack.of[k]", *numbers, *(f"{x}_pack.of[k]" for x in changed)]),
        "store": " ".join(f"((Pack*){x})[i] = {x}_pack;" for x in changed),
        "single": ", ".join([f"{grad}[i]", *numbers, *(f"{x}[i]" for x in changed)]),
    }
    body = FOR_LISTS.format(name=rule.name, operation=rule.operation, CHUNK=CHUNK, **parts)
    return f"typedef {c_name(dtype)} T;\n{rule.preamble}{body}"


class CupyUpdates(CupyMemory, NumpyUpdates):
    """Kernels of update rules, a mixin of `CupyOps`."""

    # a user's own rule takes three times this in scratch memory
    update_values = 1 << 24

    def _update(self, rule: Any, grad: Array, numbers: tuple[float, ...], *changed: Array) -> None:
        """Call a rule on arrays, or on lists of them."""
        if not isinstance(grad, ArrayList):
            rule(grad, *numbers, *changed)
            return
        lists = [self._on_device(arrays) for arrays in (grad, *changed)]
        chunks, sizes, _ = lists[0]
        if not chunks.size:
            return
        dtype = grad[0].dtype
        kernel = self.gpu.compile(source_for_lists(rule, dtype), rule.name)
        with np.errstate(over="ignore"):
            values = map(dtype.type, numbers)
            kernel((len(chunks),), (THREADS,), (chunks, sizes, *(addresses for *_, addresses in lists), *values))

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

    def shift(self, w: Array, g: Array, divisor: int) -> None:
        self._update(SHIFT, g, (float(divisor),), w)

    def sgd(self, w: Array, g: Array, velocity: Array | None, lr: float, momentum: float, prep: Preparation) -> None:
        if velocity is None:
            self._update(PLAIN, g, (*prep, lr), w)
        else:
            self._update(MOMENTUM, g, (*prep, lr, momentum), w, velocity)

    def nesterov(self, w: Array, g: Array, velocity: Array, lr: float, momentum: float, prep: Preparation) -> None:
        self._update(NESTEROV, g, (*prep, lr, momentum, 1 + momentum), w, velocity)

    def adagrad(self, w: Array, g: Array, square: Array, lr: float, delta: float, prep: Preparation) -> None:
        self._update(ADAGRAD, g, (*prep, lr, delta), w, square)

    def rmsprop(
        self, w: Array, g: Array, square: Array, lr: float, rho: float, delta: float, prep: Preparation
    ) -> None:
        self._update(RMSPROP, g, (*prep, lr, rho, 1 - rho, delta), w, square)

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
        self._update(ADADELTA, g, (*prep, lr, rho, 1 - rho, delta), w, square, step_square)

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
            self._update(ADAM_OF_SINGA, g, (*prep, *numbers), w, mean, square)
        else:
            self._update(ADAM, g, (*prep, *numbers, correction), w, mean, square)

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
        self._update(ADAMAX, g, (*prep, lr, beta1, 1 - beta1, beta2, delta, kept), w, mean, largest)
