"""ElementwiseKernel: one operation for each element of broadcast arrays."""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any, NamedTuple

import numpy as np

from cupy import _array, _compile, _errors, _world

C_NAMES = {
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
    "bfloat16": "bfloat16",
}
DIMENSIONS = 16


class Described(ctypes.Structure):
    """An array, as `simulated::Array` has it."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_ssize_t),
        ("ndim", ctypes.c_ssize_t),
        ("contiguous", ctypes.c_ssize_t),
        ("shape", ctypes.c_ssize_t * DIMENSIONS),
        ("strides", ctypes.c_ssize_t * DIMENSIONS),
    ]


class Loop(ctypes.Structure):
    """The elements to run over, as `simulated::Loop` has it."""

    _fields_ = [
        ("size", ctypes.c_ssize_t),
        ("ndim", ctypes.c_ssize_t),
        ("reverse", ctypes.c_ssize_t),
        ("shape", ctypes.c_ssize_t * DIMENSIONS),
    ]


class Param(NamedTuple):
    name: str
    # The type's letter, or None where `dtype` says it.
    letter: str | None
    dtype: Any
    raw: bool
    const: bool


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def parse(text: str, const: bool) -> tuple[Param, ...]:
    params = []
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        *marks, kind, name = piece.split()
        if not set(marks) <= {"raw"}:
            raise Exception(f"Unknown keyword {' '.join(marks)!r}")
        if name in ("n", "i") or name.startswith("_"):
            raise ValueError(f"Can not use parameter '{name}'")
        letter = kind if len(kind) == 1 else None
        params.append(Param(name, letter, None if letter else _dtype(kind), "raw" in marks, const))
    return tuple(params)


class ElementwiseKernel:
    """A kernel of one element: its parameters, and the operation on them."""

    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "kernel",
        reduce_dims: bool = True,
        preamble: str = "",
        no_return: bool = False,
        return_tuple: bool = False,
    ) -> None:
        if not re.fullmatch(r"[a-zA-Z_]\w*", name):
            raise ValueError(f'Invalid kernel name: "{name}"')
        self.in_params, self.out_params = parse(in_params, True), parse(out_params, False)
        self.params = self.in_params + self.out_params
        if len({p.name for p in self.params}) < len(self.params):
            raise ValueError("a parameter is given twice")
        self.nin, self.nout, self.nargs = len(self.in_params), len(self.out_params), len(self.params)
        self.operation, self.name, self.preamble = operation, name, preamble
        self.reduce_dims, self.no_return, self.return_tuple = reduce_dims, no_return, return_tuple
        self._code = functools.cache(self._compile)

    def __call__(self, *args: Any, size: int = -1, stream: Any = None) -> Any:
        if len(args) not in (self.nin, self.nargs):
            raise TypeError(
                f"Wrong number of arguments for {self.name!r}. It must be either {self.nin} or {self.nargs} "
                f"(with outputs), but given {len(args)}."
            )
        for arg in args:
            if not isinstance(arg, (_array.ndarray, bool, int, float, np.generic)):
                raise TypeError(f"Unsupported type {type(arg)}")
        shape = self._shape(args, size)
        types, dtypes = self._types(args)
        outs = args[self.nin :]
        if not outs:
            if any(p.raw for p in self.out_params) and size < 0:
                raise ValueError("Output array size is Undecided")
            outs = tuple(_array.empty(shape, dtype) for dtype in dtypes[self.nin :])
        for out, p in zip(outs, self.out_params, strict=True):
            if not isinstance(out, _array.ndarray):
                raise TypeError("Output arguments type must be cupy.ndarray")
            if not p.raw and out.shape != shape:
                raise ValueError("Out shape is mismatched")
        if 0 not in shape:
            self._launch((*args[: self.nin], *outs), shape, types, dtypes, stream)
        if self.no_return:
            return None
        return outs[0] if self.nout == 1 and not self.return_tuple else tuple(outs)

    def _shape(self, args: tuple[Any, ...], size: int) -> tuple[int, ...]:
        """Return the shape to run over: what arrays that are not raw broadcast to, or as many as the caller says."""
        shapes = [
            a.shape for a, p in zip(args, self.params, strict=False) if isinstance(a, _array.ndarray) and not p.raw
        ]
        if size >= 0:
            if shapes:
                raise ValueError("Specified 'size' can be used only if all of the ndarray are 'raw'.")
            return (size,)
        if not shapes:
            raise ValueError("Loop size is undecided.")
        return np.broadcast_shapes(*shapes)

    def _types(self, args: tuple[Any, ...]) -> tuple[tuple[tuple[str, str], ...], list[Any]]:
        """Find what each letter stands for and each parameter's dtype; outputs that are given bind letters first."""
        letters: dict[str, Any] = {}
        given = list(zip(self.params, args, strict=False))
        for p, a in given[self.nin :] + given[: self.nin]:
            if not isinstance(a, _array.ndarray):
                continue
            known = p.dtype if p.letter is None else letters.setdefault(p.letter, a.dtype)
            if known != a.dtype:
                raise TypeError(f"Type is mismatched. {p.name} {a.dtype} {known} {p.letter or ''}".rstrip())
        for p in self.params:
            if p.letter is not None and p.letter not in letters:
                raise TypeError(f"no array says what {p.letter} is")
        types = tuple(sorted((letter, C_NAMES[dtype.name]) for letter, dtype in letters.items()))
        return types, [p.dtype if p.letter is None else letters[p.letter] for p in self.params]

    def _compile(self, types: tuple[tuple[str, str], ...], arrays: tuple[bool, ...], names: tuple[str, ...]) -> Any:
        """Compile the kernel with these types, for arrays and numbers where there are such."""
        declared, fetched = [], []
        for n, (p, is_array, c) in enumerate(zip(self.params, arrays, names, strict=True)):
            const = "const " if p.const else ""
            if not is_array:
                declared.append(f"const {c} {p.name} = *static_cast<const {c}*>(args[{n}]);")
                continue
            array = p.name if p.raw else f"_raw_{p.name}"
            declared.append(f'const CArray<{const}{c}> {array}(args[{n}], "{p.name}");')
            if not p.raw:
                fetched.append(f"{const}{c} &{p.name} = {array}[_ind.get()];")
        text = "#define SIMULATED_BFLOAT16\n" if "bfloat16" in names else ""
        text += _compile.header("_elementwise.h")
        text += "".join(f"typedef {c} {letter};\n" for letter, c in types) + self.preamble
        text += (
            '\nextern "C" const char* simulated_run(void** args, const simulated::Loop* loop) {\n'
            "simulated::fault[0] = 0;\nCIndexer _ind(*loop);\n" + "\n".join(declared) + "\n"
            "for (ptrdiff_t _n = 0; _n < loop->size; ++_n) {\n"
            "const ptrdiff_t i = loop->reverse ? loop->size - 1 - _n : _n;\n_ind.set(i);\n"
            + "\n".join(fetched)
            + f'\n#line 1 "{self.name}"\n{self.operation};\n}}\n'
            "return simulated::fault[0] ? simulated::fault : nullptr;\n}\n"
        )
        run = _compile.library(text, self.name).simulated_run
        run.restype = ctypes.c_char_p
        return run

    def _launch(self, args: Any, shape: Any, types: Any, dtypes: Any, stream: Any) -> None:
        is_array = tuple(isinstance(a, _array.ndarray) for a in args)
        code = self._code(types, is_array, tuple(C_NAMES[dtype.name] for dtype in dtypes))
        loop_shape, strides = collapse(
            shape,
            [
                np.broadcast_to(a._host, shape).strides
                for a, p in zip(args, self.params, strict=True)
                if isinstance(a, _array.ndarray) and not p.raw
            ],
        )
        left = iter(strides)
        values: list[Any] = []
        for a, p, dtype in zip(args, self.params, dtypes, strict=True):
            if not isinstance(a, _array.ndarray):
                number = np.asarray(a).astype(dtype)
                values.append((ctypes.c_char * number.nbytes).from_buffer_copy(number.tobytes()))
            elif p.raw:
                values.append(_described(a, a.shape, a.strides))
            else:
                values.append(_described(a, loop_shape, next(left)))
        loop = Loop(int(np.prod(shape)), len(loop_shape), 0, (ctypes.c_ssize_t * DIMENSIONS)(*loop_shape))
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))

        def run() -> None:
            keep = values
            loop.reverse = _world.reverse()
            fault = code(pointers, ctypes.byref(loop))
            del keep
            if fault:
                raise _errors.CUDARuntimeError(_errors.LAUNCH_FAILURE, f"{self.name}: {fault.decode()}")

        _array.enqueue(self.name, run, args, stream, checked=True)


def _described(a: Any, shape: Any, strides: Any) -> Described:
    room = ctypes.c_ssize_t * DIMENSIONS
    return Described(a.data.ptr, a.size, len(shape), a.flags.c_contiguous, room(*shape), room(*strides))


def collapse(shape: tuple[int, ...], strides: list[tuple[int, ...]]) -> tuple[list[int], list[list[int]]]:
    """Join neighbouring dimensions that are one stretch in every array; the order of elements stays."""
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for d, n in enumerate(shape):
        if n == 1:
            continue
        if sizes and all(step[-1] == n * s[d] for step, s in zip(steps, strides, strict=True)):
            sizes[-1] *= n
            for step, s in zip(steps, strides, strict=True):
                step[-1] = s[d]
            continue
        sizes.append(n)
        for step, s in zip(steps, strides, strict=True):
            step.append(s[d])
    if not sizes:
        return [1], [[0] for _ in strides]
    return sizes, steps
