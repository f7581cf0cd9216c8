"""RawModule: kernels from source text, called with the arguments that their signatures ask for."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from cupy import _array, _compile, _errors, _source, _world

MAX_THREADS = 1024
MAX_SHARED = 48 * 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
POINTER, FLOATING, WHOLE, OTHER = 1, 2, 3, 4
SORTS = {POINTER: "a pointer", FLOATING: "a floating-point number", WHOLE: "a whole number", OTHER: "a struct"}

LAUNCHER = """
extern "C" char __start_shared_{name}[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_shared_{name}[] __attribute__((weak, visibility("hidden")));
extern "C" __attribute__((visibility("default"))) long long simulated_shared_{name}() {{
    return __stop_shared_{name} - __start_shared_{name};
}}
extern "C" __attribute__((visibility("default"))) int simulated_describe_{name}(int* out) {{
    return simulated::describe({name}, out);
}}
extern "C" __attribute__((visibility("default"))) const char* simulated_launch_{name}(
        void** args, const simulated::Launch* launch) {{
    return simulated::run_grid(simulated::call<{name}>, args, *launch, __start_shared_{name},
                               __stop_shared_{name} - __start_shared_{name});
}}
"""


class Launch(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_ulonglong),
        ("shared", ctypes.c_void_p),
        ("reverse", ctypes.c_int),
        ("fibers", ctypes.c_int),
    ]


class RawModule:
    """Source text whose kernels can be had by name."""

    def __init__(self, *, code: str, options: tuple[str, ...] = (), backend: str = "nvrtc") -> None:
        if isinstance(options, str):
            raise TypeError("options must be a tuple of str")
        self.code = code
        self.options = tuple(options)
        self.backend = backend
        self._functions: dict[str, Any] = {}

    def _library(self, names: tuple[str, ...]) -> ctypes.CDLL:
        text = '#line 1 "kernel"\n' + _source.shared(self.code) + "".join(LAUNCHER.format(name=n) for n in names)
        return _compile.library(text, names[0], self.options)

    def get_function(self, name: str) -> Any:
        if name not in self._functions:
            names = _source.kernels(self.code)
            if name not in names:
                raise _errors.CUDADriverError(500, f"there is no kernel {name!r}, there are {', '.join(names)}")
            waits = _source.waits(_source.defined(self.code, self.options), name)
            self._functions[name] = Function(self._library(names), name, waits)
        return self._functions[name]


class Function:
    """A kernel: call it with a grid, a block and its arguments."""

    def __init__(self, library: ctypes.CDLL, name: str, waits: bool) -> None:
        self.name = name
        self._waits = waits
        self._launch = getattr(library, f"simulated_launch_{name}")
        self._launch.restype = ctypes.c_char_p
        out = (ctypes.c_int * 256)()
        count = getattr(library, f"simulated_describe_{name}")(out)
        self._params = [(out[i] >> 16, out[i] & 0xFFFF) for i in range(count)]
        size = getattr(library, f"simulated_shared_{name}")
        size.restype = ctypes.c_longlong
        self.shared_size_bytes = size()
        if self.shared_size_bytes > MAX_SHARED:
            why = f"uses too much shared data ({self.shared_size_bytes:#x} bytes, {MAX_SHARED:#x} max)"
            raise _compile.CompileException(f"{name}: {why}", "", name, ())

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: Any, shared_mem: int = 0, *, stream: Any = None
    ) -> None:
        for sizes in (grid, block):
            if not isinstance(sizes, tuple):
                raise TypeError(f"Expected tuple, got {type(sizes).__name__}")
        launch = self._sizes(grid, block, shared_mem)
        values = self._values(args)
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        shared = ctypes.create_string_buffer(max(1, shared_mem) + 256)
        launch.shared = -(-ctypes.addressof(shared) // 256) * 256
        launch.fibers = self._waits

        def run() -> None:
            keep = (values, shared)
            launch.reverse = _world.reverse()
            fault = self._launch(pointers, ctypes.byref(launch))
            del keep
            if fault:
                raise _errors.CUDARuntimeError(_errors.LAUNCH_FAILURE, f"{self.name}: {fault.decode()}")

        _array.enqueue(self.name, run, args, stream, checked=True)

    def _sizes(self, grid: Any, block: Any, shared_mem: int) -> Launch:
        full = []
        for sizes, most in ((grid, MAX_GRID), (block, MAX_BLOCK)):
            sizes = tuple(int(n) for n in sizes)
            sizes += (1,) * (3 - len(sizes))
            if not all(1 <= n <= m for n, m in zip(sizes, most, strict=True)):
                raise _errors.CUDADriverError(1, f"{self.name}: grid {grid}, block {block}")
            full.append((ctypes.c_uint * 3)(*sizes))
        if math.prod(full[1]) > MAX_THREADS:
            raise _errors.CUDADriverError(1, f"{self.name}: {math.prod(full[1])} threads in a block")
        if self.shared_size_bytes + shared_mem > MAX_SHARED:
            raise _errors.CUDADriverError(
                1, f"{self.name}: {self.shared_size_bytes + shared_mem} bytes of shared memory"
            )
        return Launch(full[0], full[1], shared_mem)

    def _values(self, args: Any) -> list[Any]:
        if len(args) != len(self._params):
            raise TypeError(f"{self.name} has {len(self._params)} parameters, {len(args)} arguments are given")
        return [self._value(i, arg, *param) for i, (arg, param) in enumerate(zip(args, self._params, strict=True))]

    def _value(self, i: int, arg: Any, sort: int, size: int) -> Any:
        if isinstance(arg, _array.ndarray):
            raw, is_sort = np.asarray(arg.data.ptr, np.uint64), POINTER
        elif isinstance(arg, np.generic):
            raw = np.asarray(arg)
            is_sort = {"f": FLOATING, "i": WHOLE, "u": WHOLE, "b": WHOLE}.get(raw.dtype.kind, OTHER)
        elif isinstance(arg, (bool, int, float)):
            # As CuPy passes them: whatever the kernel expects.
            raw = np.asarray(arg, {bool: np.bool_, int: np.int64, float: np.float64}[type(arg)])
            is_sort = FLOATING if isinstance(arg, float) else WHOLE
        else:
            raise TypeError(f"Unsupported type {type(arg)}")
        if (sort, size) != (is_sort, raw.nbytes):
            raise TypeError(
                f"parameter {i} of {self.name} is {SORTS[sort]} of {size} bytes, "
                f"the argument is {SORTS[is_sort]} of {raw.nbytes} bytes"
            )
        return (ctypes.c_char * raw.nbytes).from_buffer_copy(raw.tobytes())
