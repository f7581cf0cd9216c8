"""The oneDNN library through ctypes: its path, its functions, and an engine with its objects.

Names and numbers are as in ``dnnl_types.h`` of oneDNN 3. Every status is checked.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import warnings
import weakref
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from singa_dask.arrays import Array, DType
from singa_dask.errors import SingaError

DISTRIBUTION = "onednn-cpu-gomp"
FILE = "libdnnl.so.3"
MAJOR = 3
MAX_DIMS = 12
PAGE = 4096

CPU = 1
IN_ORDER = 1
ANY_LAYOUT = 1
USER_SCRATCHPAD = 1
NOT_DEFINED, BF16, F32, S32, U8 = 0, 2, 3, 4, 6
DATA_TYPES = {"bfloat16": BF16, "float32": F32, "int32": S32, "uint8": U8}

IMPLEMENTATION, SCRATCHPAD_MD, ARGUMENT_MD = 8, 136, 255
INVALID, UNIMPLEMENTED = 2, 3
STATUSES = ["success", "out of memory", "invalid arguments", "unimplemented", "last implementation", "runtime error"]

# Kinds of objects that must be destroyed.
DESTROYED = ("engine", "stream", "memory_desc", "memory", "primitive_attr", "post_ops", "primitive_desc", "primitive")
# Argument types: p pointer, i int, u unsigned, q 64-bit, f float. Functions return a status unless RESULTS lists them.
RESULTS = {"primitive_desc_query_md": ctypes.c_void_p, "memory_desc_get_size": ctypes.c_size_t}
FUNCTIONS = {
    **{f"{name}_destroy": "p" for name in DESTROYED},
    "primitive_desc_query_md": "pii",
    "memory_desc_get_size": "p",
    "memory_desc_equal": "pp",
    "engine_create": "piq",
    "stream_create": "ppu",
    "memory_desc_create_with_strides": "pipip",
    "memory_desc_create_with_tag": "pipii",
    "memory_create": "pppp",
    "memory_set_data_handle": "pp",
    "primitive_attr_create": "p",
    "primitive_attr_set_scratchpad_mode": "pi",
    "primitive_attr_set_post_ops": "pp",
    "post_ops_create": "p",
    "post_ops_append_sum": "pfii",
    "post_ops_append_eltwise": "piff",
    "post_ops_append_binary": "pip",
    "binary_primitive_desc_create": "ppipppp",
    "primitive_desc_query": "piip",
    "primitive_create": "pp",
    "primitive_execute": "ppip",
    "reorder_primitive_desc_create": 6 * "p",
    "convolution_forward_primitive_desc_create": "ppii" + 9 * "p",
    "convolution_backward_data_primitive_desc_create": "ppi" + 9 * "p",
    "convolution_backward_weights_primitive_desc_create": "ppi" + 10 * "p",
    "pooling_forward_primitive_desc_create": "ppii" + 8 * "p",
    "pooling_backward_primitive_desc_create": "ppi" + 9 * "p",
    "lrn_forward_primitive_desc_create": "ppiippqfffp",
    "lrn_backward_primitive_desc_create": "ppipppqfffpp",
    "batch_normalization_forward_primitive_desc_create": "ppippfup",
    "batch_normalization_backward_primitive_desc_create": "ppipppfupp",
    "eltwise_forward_primitive_desc_create": "ppiippffp",
    "eltwise_backward_primitive_desc_create": "ppipppffpp",
    "matmul_primitive_desc_create": 7 * "p",
    "softmax_forward_primitive_desc_create": "ppiippip",
    "layer_normalization_forward_primitive_desc_create": "ppipppfup",
    "layer_normalization_backward_primitive_desc_create": "ppippppfupp",
}
TYPES: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "q": ctypes.c_int64,
    "f": ctypes.c_float,
}
# oneDNN's number for CPUs with AVX-512, which bfloat16 needs; without AVX512_BF16 or AMX, oneDNN converts bfloat16.
AVX512_CORE = 0x27
# oneDNN's number for CPUs with AVX512_BF16 or AMX, which multiply bfloat16 directly.
AVX512_CORE_BF16 = 0xE7

# Functions that are too short to release the GIL.
QUICK = {"memory_set_data_handle", *(f"{name}_destroy" for name in DESTROYED)}


class Prop(IntEnum):
    """Kinds of propagation."""

    TRAINING = 64
    INFERENCE = 96
    BACKWARD = 128


class Alg(IntEnum):
    """Algorithms."""

    CONVOLUTION = 0x1
    RELU = 0x20
    SQUARE = 0x23
    ABS = 0x24
    SQRT = 0x25
    LINEAR = 0x26
    LOGISTIC = 0x29
    EXP = 0x2A
    GELU_TANH = 0x2B
    SILU = 0x2C
    CLIP = 0x2E
    POWER = 0x30
    GELU_ERF = 0x31
    RELU_FROM_OUTPUT = 0x100
    POOL_MAX = 0x1FF
    POOL_AVG_INCLUDE = 0x2FF
    POOL_AVG_EXCLUDE = 0x3FF
    LRN_ACROSS = 0xAFF
    ADD = 0x1FFF0
    MULTIPLY = 0x1FFF1
    MAX = 0x1FFF2
    MIN = 0x1FFF3
    DIVIDE = 0x1FFF4
    SUBTRACT = 0x1FFF5
    SOFTMAX = 0x30000


class Arg(IntEnum):
    """Numbers of the arguments of a primitive."""

    SRC = 1
    SRC_1 = 2
    DST = 17
    WEIGHTS = 33
    BIAS = 41
    MEAN = 49
    VARIANCE = 50
    SCALE = 51
    SHIFT = 52
    WORKSPACE = 64
    SCRATCHPAD = 80
    DIFF_SRC = 129
    DIFF_DST = 145
    DIFF_WEIGHTS = 161
    DIFF_BIAS = 169
    DIFF_SCALE = 255
    DIFF_SHIFT = 256
    POST_OP = 1 << 15


class OneDnnError(SingaError):
    """A call of oneDNN failed unexpectedly."""


class Unsupported(Exception):
    """oneDNN has no primitive for these arguments, so that NumPy's kernel is used."""


class ExecArgument(ctypes.Structure):
    """An argument of a primitive: number and memory."""

    _fields_ = (("place", ctypes.c_int), ("memory", ctypes.c_void_p))


class DnnlVersion(ctypes.Structure):
    """The first fields of ``dnnl_version_t``."""

    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))


# A memory descriptor: an address inside the library.
Md = int | None


def find_library() -> Path | None:
    """Return the path of the library in the wheel ``onednn-cpu-gomp``, or None."""
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    places = (Path(str(file.locate())).resolve() for file in files if file.name == FILE)
    return next((place for place in places if place.exists()), None)


def integers(values: Sequence[int]) -> Any:
    """Return sizes or strides as an array for oneDNN."""
    return (ctypes.c_int64 * MAX_DIMS)(*values)


class Engine:
    """An engine of oneDNN on the CPU, with a stream.

    The engine owns the descriptions and primitives that it makes. Use an engine in one thread at a time, and only in
    the process that made it.

    Raises
    ------
    OSError
        The library cannot be loaded.
    OneDnnError
        The major version of the library is not 3, or the library cannot create an engine.
    """

    def __init__(self, path: Path) -> None:
        # without this, OpenMP's threads spin for milliseconds after each kernel, on cores that other threads need
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        free, locked = ctypes.CDLL(str(path)), ctypes.PyDLL(str(path))
        free.dnnl_version.restype = ctypes.POINTER(DnnlVersion)
        version = free.dnnl_version().contents
        if version.major != MAJOR:
            raise OneDnnError(f"{path}: this is oneDNN {version.major}. Expected {MAJOR}.")
        self.version = f"{version.major}.{version.minor}.{version.patch}"
        self.functions: dict[str, Any] = {}
        for name, letters in FUNCTIONS.items():
            function = getattr(locked if name in QUICK else free, f"dnnl_{name}")
            function.argtypes = [TYPES[letter] for letter in letters]
            function.restype = RESULTS.get(name, ctypes.c_int)
            self.functions[name] = function
        # read the thread count of the libgomp that oneDNN uses; this is cheap enough for every call
        self.n_threads: Callable[[], int] = locked.omp_get_max_threads
        if _FIRST.setdefault("process", os.getpid()) != os.getpid():
            self.n_threads = partial(limit_to_one_thread, locked)
        instructions = free.dnnl_get_effective_cpu_isa()
        self.does_bfloat16 = instructions & AVX512_CORE == AVX512_CORE
        self.is_fast_in_bfloat16 = instructions & AVX512_CORE_BF16 == AVX512_CORE_BF16
        self._made: list[tuple[Any, int]] = []
        # do not destroy objects at exit
        weakref.finalize(self, destroy, self._made, os.getpid()).atexit = False
        self.handle = self.make("engine", "engine_create", CPU, 0)
        self.stream = self.make("stream", "stream_create", self.handle, IN_ORDER)
        self._scratch = np.empty(0, np.uint8)
        self._scratch_users: list[int] = []

    def call(self, name: str, *args: Any) -> None:
        """Call a function.

        Raises
        ------
        Unsupported
            oneDNN has no implementation for these arguments.
        OneDnnError
            The function failed for another reason.
        """
        status = self.functions[name](*args)
        if status == UNIMPLEMENTED or (status == INVALID and name.endswith("primitive_desc_create")):
            raise Unsupported(f"dnnl_{name}: {STATUSES[status]}")
        if status:
            raise failure(name, status)

    def make(self, kind: str, name: str, *args: Any) -> int:
        """Call a function that creates a handle. The engine destroys the handle when it is itself deleted."""
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *args)
        assert handle.value is not None
        self._made.append((self.functions[f"{kind}_destroy"], handle.value))
        return handle.value

    # -- memory ------------------------------------------------------------------------------------

    def md(self, shape: Sequence[int], dtype: DType, strides: Sequence[int] | None = None) -> int:
        """Describe memory.

        Parameters
        ----------
        shape : sequence of int
        dtype : dtype
        strides : sequence of int, optional
            In bytes, as in NumPy. None lets a primitive choose the layout.
        """
        kind = DATA_TYPES[np.dtype(dtype).name]
        if strides is None:
            return self.make(
                "memory_desc", "memory_desc_create_with_tag", len(shape), integers(shape), kind, ANY_LAYOUT
            )
        steps = integers([stride // np.dtype(dtype).itemsize for stride in strides])
        return self.make("memory_desc", "memory_desc_create_with_strides", len(shape), integers(shape), kind, steps)

    def size(self, md: Md) -> int:
        """Return the size in bytes of described memory."""
        return int(self.functions["memory_desc_get_size"](md))

    def same(self, one: Md, other: Md) -> bool:
        """Return whether two descriptions are equal."""
        return bool(self.functions["memory_desc_equal"](one, other))

    def memory(self, md: Md, address: int | None = None) -> int:
        """Return a memory object; its address may be set later."""
        return self.make("memory", "memory_create", md, self.handle, address)

    def buffer(self, md: Md) -> tuple[int, Array]:
        """Return a memory object and its new array: zeros, because oneDNN requires zeros in padding."""
        values = np.zeros(self.size(md) + PAGE, np.uint8)
        values = values[-values.ctypes.data % PAGE :]
        return self.memory(md, values.ctypes.data), values

    def scratchpad(self, md: Md) -> int:
        """Return a memory object in the scratch memory that all primitives share."""
        handle = self.memory(md)
        self._scratch_users.append(handle)
        if self.size(md) > len(self._scratch) - PAGE:
            self._scratch = np.empty(self.size(md) + PAGE, np.uint8)
            changed = self._scratch_users
        else:
            changed = [handle]
        place = self._scratch.ctypes.data
        for user in changed:
            self.call("memory_set_data_handle", user, place + -place % PAGE)
        return handle

    # -- primitives ----------------------------------------------------------------------------------

    def attributes(
        self, add: bool = False, scale: float = 1.0, relu: bool = False, more: Sequence[tuple[Any, ...]] = ()
    ) -> int:
        """Return attributes of a primitive: multiply by ``scale``, ``add`` to earlier values, then ReLU.

        The caller provides the scratchpad. ``more`` are further steps: (algorithm, alpha, beta), or (algorithm,
        description of another array).
        """
        attributes = self.make("primitive_attr", "primitive_attr_create")
        self.call("primitive_attr_set_scratchpad_mode", attributes, USER_SCRATCHPAD)
        if add or scale != 1 or relu or more:
            steps = self.make("post_ops", "post_ops_create")
            if scale != 1:
                self.call("post_ops_append_eltwise", steps, Alg.LINEAR, scale, 0.0)
            if add:
                self.call("post_ops_append_sum", steps, 1.0, 0, NOT_DEFINED)
            if relu:
                self.call("post_ops_append_eltwise", steps, Alg.RELU, 0.0, 0.0)
            for step in more:
                self.call(f"post_ops_append_{'eltwise' if len(step) == 3 else 'binary'}", steps, *step)
            self.call("primitive_attr_set_post_ops", attributes, steps)
        return attributes

    def describe(self, name: str, *args: Any) -> int:
        """Describe a primitive, e.g. ``pooling_forward``; ``args`` follow the engine.

        Raises
        ------
        Unsupported
            oneDNN has no such primitive.
        """
        return self.make("primitive_desc", f"{name}_primitive_desc_create", self.handle, *args)

    def describe_reorder(self, source: Md, target: Md, add: bool = False) -> int:
        """Describe a primitive that copies or adds memory to memory of another layout or type."""
        args = (source, self.handle, target, self.handle, self.attributes(add))
        return self.make("primitive_desc", "reorder_primitive_desc_create", *args)

    def implementation(self, description: int) -> str:
        """Return the name of the implementation that oneDNN chose, e.g. ``brgconv:avx512_core``."""
        name = ctypes.c_char_p()
        self.call("primitive_desc_query", description, IMPLEMENTATION, 0, ctypes.byref(name))
        return (name.value or b"").decode()

    def wanted(self, description: int, place: int) -> Md:
        """Return the description of the memory of an argument, or None."""
        md = self.functions["primitive_desc_query_md"](description, ARGUMENT_MD, place)
        return md if md and self.size(md) else None

    def primitive(self, description: int, memories: dict[int, int]) -> tuple[int, int, int, Any]:
        """Make a primitive; return the arguments of ``primitive_execute``: handle, stream, count, arguments."""
        handle = self.make("primitive", "primitive_create", description)
        scratchpad = self.wanted(description, Arg.SCRATCHPAD)
        if scratchpad is not None:
            memories = {**memories, Arg.SCRATCHPAD: self.scratchpad(scratchpad)}
        arguments = (ExecArgument * len(memories))(*(ExecArgument(*pair) for pair in memories.items()))
        return handle, self.stream, len(memories), arguments

    def reorder(self, source: tuple[int, Md], target: tuple[int, Md], add: bool = False) -> tuple[int, int, int, Any]:
        """Make a primitive that copies or adds memory to memory of another layout or type."""
        description = self.describe_reorder(source[1], target[1], add)
        return self.primitive(description, {Arg.SRC: source[0], Arg.DST: target[0]})


_FIRST: dict[str, int] = {}
"""Process ids. ``process``: the process that made the first engine. ``warned``: a forked child that has warned."""


def limit_to_one_thread(library: ctypes.PyDLL) -> int:
    """Limit OpenMP to one thread for calls from this thread, which computes in a forked child; return 1.

    The child inherits libgomp's pool without its threads, so a kernel with several threads would wait forever.
    """
    n = library.omp_get_max_threads()
    if n > 1:
        library.omp_set_num_threads(1)
        if _FIRST.get("warned") != os.getpid():
            _FIRST["warned"] = os.getpid()
            text = "this process was forked from one that has computed. It computes with one thread instead of "
            warnings.warn(f"{text}{n}. Start processes by spawn or forkserver.", RuntimeWarning, stacklevel=2)
    return 1


def destroy(made: list[tuple[Any, int]], process: int) -> None:
    """Destroy handles in reverse order; a forked child of the process that made them does nothing."""
    if os.getpid() == process:
        for destroyer, handle in reversed(made):
            destroyer(handle)
    made.clear()


def failure(name: str, status: int) -> OneDnnError:
    """Return the error of a call that failed."""
    said = STATUSES[status] if status < len(STATUSES) else f"status {status}"
    return OneDnnError(f"dnnl_{name}: oneDNN reports: {said}.")
