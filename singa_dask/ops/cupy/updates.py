"""CupyUpdates: the update rules on a GPU, each one kernel that reads and writes every value once.

The same pass prepares the gradient. The learning rate and other numbers are arguments of the kernel, so other numbers
need no compilation and no upload. Each rule has a second kernel for an `ArrayList`, with the same steps. The second
kernel reads the addresses of the arrays from a table, which the first call writes to the device. A third kernel is
for numbers that differ between the arrays. The third kernel reads these numbers from another table, which is uploaded
for each call.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from singa_dask.arrays import DType
from singa_dask.ops.contract import ArrayList, Each, Preparation
from singa_dask.ops.cupy.device import c_name
from singa_dask.ops.cupy.launch import THREADS
from singa_dask.ops.cupy.memory import CupyMemory
from singa_dask.ops.numpy.updates import NumpyUpdates
from singa_dask.ops.update_rules import SHIFT, UpdateRule

# Number of values of one array that a block updates, in kernels for lists of arrays.
CHUNK = 4096

# These functions return NaN for NaN. `times` rounds the product before it is added to anything, so that all kernels of
# an updater give the same bits.
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
    """Return the kernel of an update rule.

    The kernel's arguments are the gradient, the fields of a `Preparation`, the rule's numbers, and the arrays to
    change.
    """
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


# Each block updates a chunk of one array. It moves 16 bytes of each array at once if all arrays are aligned to 16
# bytes.
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
    """Return the source of a kernel for an `ArrayList`, made from the source of the kernel for an array.

    ``differ`` names the numbers that differ between the arrays of the list.
    """
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
    """Mixin of `CupyOps` with the kernels of update rules."""

    # number of values per piece; a user's own rule needs three times this number in scratch memory
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
        """Return the tables of a list on the device.

        The tables contain the array and the chunk that each block computes, and the sizes and addresses of the
        arrays.
        """
        if arrays.on_device is None:
            sizes = np.array([x.size for x in arrays], np.int64)
            n_chunks = -(-sizes // CHUNK)
            index = np.repeat(np.arange(len(arrays)), n_chunks)
            number = np.arange(len(index)) - np.repeat(np.cumsum(n_chunks) - n_chunks, n_chunks)
            chunks = np.stack([index, number], axis=1).astype(np.int32)
            addresses = np.array([x.data.ptr for x in arrays], np.uint64)
            arrays.on_device = tuple(self.from_host(x) for x in (chunks, sizes, addresses))
        return arrays.on_device
