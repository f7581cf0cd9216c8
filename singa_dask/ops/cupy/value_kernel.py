"""ValueKernel: a kernel that computes value by value, several contiguous values at once."""

from __future__ import annotations

import functools
from typing import Any

import cupy
import numpy as np

from singa_dask.ops.bfloat16 import BFLOAT16
from singa_dask.ops.cupy.device import Array, in_memory

# Number of bytes that a thread reads or writes at once.
PACK_BYTES = 16
# Maximum number of packs, because kernels count them in an int.
MAX_PACKS = (1 << 31) - 1

# Kernels compute in `wide` of the type of their output: double for double, else float.
WIDE = """
template <typename V> struct wide { typedef float type; };
template <> struct wide<double> { typedef double type; };
"""
PACK = """
template <typename V, int N> struct alignas(sizeof(V) * N) pack { V at[N]; };
"""


class ValueKernel:
    """A kernel that computes ``z`` from values of broadcast arrays and from numbers.

    Call it with the arrays and numbers that it reads, then with the array ``out`` that it writes, which may be one of
    the arrays that it reads.

    Parameters
    ----------
    name : str
    given : str
        Types and names of the arguments that the kernel reads, e.g. ``"X x, Y y, float64 slope"``. A type of one letter
        declares an array, another type a number.
    step : str
        C++ statements that assign ``z``, of type Z. They compute in type W.
    """

    def __init__(self, name: str, given: str, step: str) -> None:
        self.name, self.step = name, f"typedef wide<Z>::type W; {step}"
        self.params = [param.split() for param in given.split(",")]
        self.single = cupy.ElementwiseKernel(given, "Z z", self.step, name, preamble=WIDE)
        self.packed = functools.cache(self._packed)

    def __call__(self, *arguments: Any, **named: Any) -> None:
        if named:
            names = [*(name for _, name in self.params), "out"][len(arguments) :]
            if named.keys() != {*names}:
                raise TypeError(f"{self.name}: expected {', '.join(names)}, got {', '.join(named)}")
            arguments = (*arguments, *(named[name] for name in names))
        *inputs, out = arguments = in_memory_order(*arguments)
        arrays = [x for x in arguments if isinstance(x, cupy.ndarray)]
        width = PACK_BYTES // max(x.itemsize for x in arrays)
        if not out.size or not all(_in_packs(x, out, width) for x in arrays):
            self.single(*arguments)
            return
        rows = [0 if x.size == out.size else x.size // width for x in arrays[:-1]]
        flat = (x.reshape(-1) if isinstance(x, cupy.ndarray) else x for x in inputs)
        kernel = self.packed(width, tuple(row > 0 for row in rows))
        kernel(*flat, *filter(None, rows), out.size, out.reshape(-1), size=-(-out.size // width))

    def _packed(self, width: int, repeated: tuple[bool, ...]) -> Any:
        """Return the kernel in which each thread computes ``width`` neighbouring values.

        ``repeated`` says for each array that the kernel reads whether its values repeat along ``z``.
        """
        arrays = [param for param in self.params if len(param[0]) == 1]
        inputs = [f"raw {kind} all_{name}" if len(kind) == 1 else f"{kind} {name}" for kind, name in self.params]
        of_packs, of_values, loads = [], [], []
        for (kind, name), repeats in zip(arrays, repeated, strict=True):
            place = f"(unsigned int)i % (unsigned int)row_{name}" if repeats else "i"
            inputs += [f"int32 row_{name}"] * repeats
            loads.append(
                f"const pack<{kind}, {width}> pack_{name} ="
                f" reinterpret_cast<const pack<{kind}, {width}>*>(&all_{name}[(ptrdiff_t)0])[{place}];"
            )
            of_packs.append(f"pack_{name}.at[k]")
            of_values.append(f"all_{name}[{'(ptrdiff_t)0' if repeats else 'k'}]")
        takes = "".join(f"const {kind} {name}, " for kind, name in arrays)
        # arrays that repeat consist of whole packs, and so does z in that case
        operation = f"""
        auto one = [&]({takes}Z &z) {{ {self.step} }};
        if ((i + 1) * {width} <= count) {{
            {" ".join(loads)}
            pack<Z, {width}> made;
            #pragma unroll
            for (int k = 0; k < {width}; ++k) one({", ".join([*of_packs, "made.at[k]"])});
            reinterpret_cast<pack<Z, {width}>*>(&all_z[(ptrdiff_t)0])[i] = made;
        }} else {{
            #pragma unroll 1
            for (ptrdiff_t k = i * {width}; k < count; ++k) one({", ".join([*of_values, "all_z[k]"])});
        }}
        """
        return cupy.ElementwiseKernel(
            ", ".join([*inputs, "int64 count"]), "raw Z all_z", operation, self.name, preamble=WIDE + PACK
        )


def _in_packs(x: Array, out: Array, width: int) -> bool:
    """Return whether x can be read in the same packs as a contiguous ``out``, or repeats along ``out``."""
    if not x.flags.c_contiguous or x.data.ptr % (width * x.itemsize) or out.size > MAX_PACKS * width:
        return False
    if x.shape == out.shape:
        return True
    inner = x.shape[next((axis for axis, size in enumerate(x.shape) if size != 1), x.ndim) :]
    return bool(x.size % width == 0 and inner == out.shape[out.ndim - len(inner) :])


CAST = ValueKernel("cast", "X x", "z = (Z)x;")
FLOATS = {np.dtype(np.float32), np.dtype(np.float64), BFLOAT16}


def casts(x: Array, out: Array) -> bool:
    """Return whether the kernel `CAST` copies an array to another; CuPy copies integers and equal types."""
    return x.dtype != out.dtype and {x.dtype, out.dtype} <= FLOATS


def in_memory_order(*arrays: Any) -> tuple[Any, ...]:
    """Return views for an elementwise kernel, with axes in the order that the last array has in memory.

    Views of dense arrays are therefore contiguous. Arrays with fewer axes are broadcast; numbers are returned
    unchanged.
    """
    last = arrays[-1]
    if last.flags.c_contiguous:
        return arrays
    axes = in_memory(last)
    if axes == tuple(range(last.ndim)):
        return arrays
    return tuple(_with_axes(x, last.ndim).transpose(axes) if hasattr(x, "ndim") else x for x in arrays)


def _with_axes(x: Array, n: int) -> Array:
    return x if x.ndim == n else x.reshape((1,) * (n - x.ndim) + x.shape)
