"""Compiles the elementwise kernels of ops/cupy by NVRTC, with CuPy's headers, and prints those that do not compile.

Run by test_sources in a process of its own, with CuPy itself and not the simulated one. It needs no GPU.
"""

from __future__ import annotations

import importlib
import itertools
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["main"]

ARCHITECTURE = "sm_90"
# values that a thread of a packed kernel takes
WIDTH = 4
# those that are compiled for mixed types too
MIXED = {"cast", "normalize_array_array"}
FLOATS = ["float", "double", "bfloat16"]
# kernels whose types are not those of a `ValueKernel`: (name of a type in the kernel, ...) -> what they may be
TYPES: dict[tuple[str, ...], list[tuple[str, ...]]] = {
    ("T",): [("float",), ("double",)],
    ("T", "P"): [("float", "float"), ("double", "double"), ("bfloat16", "float")],
}
HEADERS = "".join(
    f"#include <cupy/{name}>\n"
    for name in ("bfloat16.cuh", "complex.cuh", "carray.cuh", "atomics.cuh", "math_constants.h")
)


def kernels() -> Iterator[Any]:
    """Yield the kernels of all modules."""
    import cupy

    import singa_dask.ops.cupy as room
    from singa_dask.ops.cupy.elementwise import normalizer
    from singa_dask.ops.cupy.updates import kernel_of
    from singa_dask.ops.cupy.value_kernel import ValueKernel
    from singa_dask.ops.update_rules import SHIFT
    from singa_dask.training import UPDATERS, updaters

    kinds = ("none", "number", "array")
    of_values = {normalizer(*pair) for pair in itertools.product(kinds, kinds)}
    formulas = [updaters.PLAIN, updaters.MOMENTUM, updaters.ADAM, updaters.ADAM_OF_SINGA, SHIFT]
    formulas += [cls.formula for cls in UPDATERS.classes() if hasattr(cls, "formula")]
    yield from map(kernel_of, formulas)
    for found in pkgutil.iter_modules(room.__path__):
        module = importlib.import_module(f"{room.__name__}.{found.name}")
        holders = [vars(module), *(vars(each) for each in vars(module).values() if isinstance(each, type))]
        for value in (value for holder in holders for value in holder.values()):
            if isinstance(value, cupy.ElementwiseKernel):
                yield value
            elif isinstance(value, ValueKernel):
                of_values.add(value)
    for kernel in sorted(of_values, key=lambda kernel: kernel.name):
        yield kernel.single
        n_arrays = sum(len(kind) == 1 for kind, _ in kernel.params)
        yield kernel.packed(WIDTH, (False,) * (n_arrays - 1) + (n_arrays > 1,))


def combinations(kernel: Any) -> Iterator[dict[str, str]]:
    """Yield what the names of types in a kernel may stand for."""
    names = tuple(dict.fromkeys(p.ctype for p in (*kernel.in_params, *kernel.out_params) if p.dtype is None))
    if "Z" not in names:
        yield from (dict(zip(names, chosen, strict=True)) for chosen in (TYPES[names] if names else [()]))
        return
    records = ["unsigned char"] if kernel.name.startswith("normalize") else []
    mixed = not kernel.in_params[0].raw or kernel.name in MIXED
    for given, written in itertools.product([*records, *FLOATS], FLOATS):
        if mixed or given == written:
            yield dict.fromkeys(names, given) | {"Z": written}


def source(kernel: Any, types: dict[str, str]) -> str:
    """Return a kernel as CUDA C++, as CuPy writes it for dense arrays."""
    given, places = [], []
    for param, changes in (*((p, False) for p in kernel.in_params), *((p, True) for p in kernel.out_params)):
        kind = types.get(param.ctype, param.ctype)
        if param.raw:
            given.append(f"{'' if changes else 'const '}CArray<{kind}, 1, 1, 1> {param.name}")
            continue
        given.append(f"{'' if changes else 'const '}{kind}* _{param.name}")
        places.append(f"{kind} {'&' if changes else ''}{param.name} = _{param.name}[i];")
    named = "".join(f"typedef {kind} {name};\n" for name, kind in types.items())
    body = f"for (long long i = 0; i < n; ++i) {{ {' '.join(places)} {kernel.operation}; }}"
    return (
        f'{HEADERS}{named}{kernel.preamble}\nextern "C" __global__ void {kernel.name}'
        f"({', '.join(given)}, long long n) {{ {body} }}\n"
    )


def main() -> None:
    """Print a line of JSON for each kernel and its types: what the compiler says, empty if it compiles."""
    import cupy
    from cuda.pathfinder import find_nvidia_header_directory
    from cupy.cuda import nvrtc

    of_cupy = Path(cupy.__file__).parent / "_core/include"
    include = [*sorted((of_cupy / "cupy/_cccl").iterdir()), of_cupy, find_nvidia_header_directory("cudart")]
    options = ["-std=c++17", f"-arch={ARCHITECTURE}", *(f"-I{path}" for path in include)]
    for kernel in kernels():
        for types in combinations(kernel):
            program = nvrtc.createProgram(source(kernel, types), "kernel.cu", (), ())
            try:
                nvrtc.compileProgram(program, options)
                said = ""
            except nvrtc.NVRTCError as error:
                said = f"{error}: {nvrtc.getProgramLog(program)}"
            nvrtc.destroyProgram(program)
            print(json.dumps({"kernel": kernel.name, "types": types, "said": said}), flush=True)


if __name__ == "__main__":
    main()
