"""OneDnnOps: kernels for host memory by oneDNN.

If oneDNN has no kernel for some arrays, or only a slow kernel, NumPy computes the result. This is logged once for
each kernel.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from singa_dask.arrays import Array, DType
from singa_dask.errors import ConfigError
from singa_dask.ops.bfloat16 import BFLOAT16
from singa_dask.ops.contract import Running
from singa_dask.ops.numpy.normalisation import write_running
from singa_dask.ops.numpy.softmax import hidden
from singa_dask.ops.onednn import recipes
from singa_dask.ops.onednn.call import Call, Copied
from singa_dask.ops.onednn.library import DISTRIBUTION, Engine, OneDnnError, Unsupported, find_library
from singa_dask.ops.onednn.upcast import UpcastOps

logger = logging.getLogger(__name__)

# A call takes the arrays.
PreparedCall = Callable[[Sequence[Array | None]], None]

FLOATS = {np.dtype(np.float32), BFLOAT16}
STRIDE_1, PAD_0 = (1, 1), (0, 0)
PLACES = {np.dtype(np.uint8), np.dtype(np.int32)}


class OneDnnOps(UpcastOps):
    """Kernels for host memory by oneDNN, for float32 and bfloat16. Other dtypes are computed by NumPy.

    Use an object in one thread at a time, and in the process that made it. With bfloat16 images or rows, weights and
    their gradients are float32. `relu` without a slope and `max_pool` do not propagate NaN.

    The first call for arrays of a shape, layout and dtype prepares a primitive and keeps it. The number of threads is
    OpenMP's in the calling thread, which `threadpoolctl` can set once an object of this class has loaded the library.

    Raises
    ------
    ConfigError
        The library is not installed, or cannot be loaded.
    """

    name = "onednn"

    def __init__(self) -> None:
        super().__init__()
        path = find_library()
        if path is None:
            raise ConfigError(f"oneDNN is not installed. Install {DISTRIBUTION!r}, or set ops: numpy.")
        try:
            self._engine = Engine(path)
        except (OSError, AttributeError, OneDnnError) as error:  # oneDNN is missing, or has another version
            raise ConfigError(f"oneDNN cannot be loaded: {error}. Set ops: numpy to compute without it.") from error
        self.version = self._engine.version
        self.does_bfloat16 = self._engine.does_bfloat16
        self.is_fast_in_bfloat16 = self._engine.is_fast_in_bfloat16
        self._n_threads = self._engine.n_threads
        self._calls: dict[Any, PreparedCall | None] = {}
        self._logged: set[str] = set()
        self._process = os.getpid()

    def __reduce__(self) -> NoReturn:
        raise TypeError("OneDnnOps cannot be pickled, as it holds memory of this process. Call get_ops there.")

    def _run(self, kernel: str, arrays: Sequence[Array | None], *parameters: Any) -> bool:
        """Run a kernel by oneDNN; return False if NumPy has to compute it."""
        key = self._key(kernel, arrays, parameters)
        try:
            call = self._calls[key]
        except KeyError:
            call = self._calls[key] = self._prepare(kernel, arrays, parameters)
        if call is None:
            return False
        if os.getpid() != self._process:
            text = f"the net was built in process {self._process}, and is used in its child, which was forked. "
            raise OneDnnError(f"{text}Load or build the net in the child, or start processes by spawn or forkserver.")
        call(arrays)
        return True

    def _prepare(self, kernel: str, arrays: Sequence[Array | None], parameters: Any) -> PreparedCall | None:
        """Return the call of a kernel for arrays of these shapes and types; None if NumPy computes it."""
        copies = [None if array is None or takes(array) else np.empty(array.shape, array.dtype) for array in arrays]
        taken = [array if copy is None else copy for array, copy in zip(arrays, copies, strict=True)]
        try:
            for array in arrays:
                if array is not None and (array.dtype not in FLOATS | PLACES or not array.size):
                    raise Unsupported(f"{array.dtype.name} {array.shape}")
            call = getattr(recipes, kernel)(self._engine, *taken, *parameters)
        except Unsupported as reason:
            self._log_once(kernel, reason)
            return None
        return call if all(copy is None for copy in copies) else Copied(call, copies)

    def bound(self, name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        if name == "softmax":
            return self._bound_softmax(*args, **kwargs)
        if name in recipes.KERNELS:
            arrays, parameters = ARGUMENTS[name](*args, **kwargs)
            call = self._calls.get(self._key(name, arrays, parameters))
            if call is not None:
                return call.bound(arrays) if isinstance(call, Call) else functools.partial(call, arrays)
        return super().bound(name, *args, **kwargs)

    def _bound_softmax(self, x: Array, out: Array) -> Callable[[], Any]:
        call = self._calls.get(self._key("softmax_rows", (x, out), ()))
        if not isinstance(call, Call):
            return functools.partial(self.softmax, x, out)
        rows = call.bound((x, out))

        def run() -> None:
            rows()
            spread_nan(out)

        return run

    def conditions(self) -> tuple[object, ...]:
        return self._n_threads(), os.getpid()

    def _key(self, kernel: str, arrays: Sequence[Array | None], parameters: Any) -> tuple[Any, ...]:
        kinds = [None if array is None else (array.shape, array.strides, array.dtype) for array in arrays]
        return (kernel, self._n_threads(), parameters, *kinds)

    def _log_once(self, kernel: str, reason: Unsupported) -> None:
        if kernel not in self._logged:
            self._logged.add(kernel)
            logger.info("ops: %s is computed by NumPy, as oneDNN does not support it: %s", kernel, reason)

    # -- memory ------------------------------------------------------------------------------------------

    def copy(self, x: Array, out: Array) -> None:
        same_kind = x.dtype == out.dtype and x.strides == out.strides
        if same_kind or not {x.dtype, out.dtype} <= FLOATS or x.shape != out.shape or not self._run("copy", (x, out)):
            super().copy(x, out)

    # -- kernels that need several calls, or call other kernels -------------------------------------------

    def global_avg_pool(self, x: Array, out: Array) -> None:
        if not self._run("avg_pool", (x, out[:, :, None, None]), x.shape[2:], STRIDE_1, PAD_0, True):
            super().global_avg_pool(x, out)

    def global_avg_pool_grad(self, gy: Array, out: Array) -> None:
        if not self._run("avg_pool_grad", (gy[:, :, None, None], out), out.shape[2:], STRIDE_1, PAD_0, True):
            super().global_avg_pool_grad(gy, out)

    def lrn_memory(
        self, shape: Sequence[int], dtype: DType, size: int, alpha: float, beta: float, knorm: float
    ) -> Array:
        how = (size, alpha, beta, knorm)
        if np.dtype(dtype) in FLOATS:
            try:
                return recipes.lrn_workspace(self._engine, shape, dtype, *how)
            except Unsupported as reason:
                self._log_once("lrn", reason)
        return super().lrn_memory(shape, np.float32 if np.dtype(dtype) == BFLOAT16 else dtype, *how)

    def batch_norm(
        self,
        x: Array,
        scale: Array,
        shift: Array,
        mean: Array,
        variance: Array,
        out: Array,
        epsilon: float,
        training: bool,
        relu: bool = False,
        work: Array | None = None,
    ) -> None:
        arrays = (x, scale, shift, mean, variance, out)
        if training and relu and work is not None and self._run("batch_norm", (*arrays, work), epsilon, True):
            return
        if not self._run("batch_norm", (*arrays, None), epsilon, training):
            super().batch_norm(*arrays, epsilon, training)
        if relu:
            self.relu(out, out=out)

    def batch_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        variance: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        epsilon: float,
        running: Running | None = None,
        y: Array | None = None,
        work: Array | None = None,
    ) -> None:
        unwanted = self.scratch("unwanted", x.shape, x.dtype) if out is None else out
        rest = (scale, mean, variance, unwanted, grad_scale, grad_shift)
        if running is not None:
            write_running(running, mean, variance)
        # if `batch_norm` ran on oneDNN for these arrays, it has written `work`
        if y is not None and work is not None and self._run("batch_norm_grad", (x, gy, *rest, work), epsilon):
            return
        if y is not None:
            masked = self.scratch("masked", gy.shape, gy.dtype)
            self.relu_grad(y, gy, out=masked)
            gy = masked
        if not self._run("batch_norm_grad", (x, gy, *rest, None), epsilon):
            super().batch_norm_grad(x, gy, scale, mean, variance, out, grad_scale, grad_shift, epsilon)

    def softmax(self, x: Array, out: Array) -> None:
        if self._run("softmax_rows", (x, out)):
            spread_nan(out)
        else:
            super().softmax(x, out)

    def masked_softmax(self, scores: Array, out: Array, causal: bool, first: int = 0) -> None:
        source = scores
        if causal:
            if out is not scores:
                self.copy(scores, out=out)
            np.copyto(out, -np.inf, where=hidden(scores, first))
            source = out
        if not self._run("softmax_rows", (source, out)):
            super().masked_softmax(source, out, causal=False)


# Name of a kernel -> function that separates its arguments into arrays and other arguments.
ARGUMENTS: dict[str, Callable[..., tuple[tuple[Array | None, ...], tuple[Any, ...]]]] = {}


def by_onednn(name: str) -> Callable[..., None]:
    """Return a kernel that calls oneDNN by its recipe, or NumPy's kernel if oneDNN does not support the arguments.

    A recipe has the same arguments as the kernel, arrays first.
    """
    inherited = getattr(UpcastOps, name)
    _, *parameters = inspect.signature(inherited).parameters.values()
    names = [parameter.name for parameter in parameters]
    n_arrays = sum("Array" in parameter.annotation for parameter in parameters)
    # generate source text for the function, so that Python binds the arguments: this is several times faster than
    # `inspect.Signature.bind`
    head = ", ".join(str(parameter.replace(annotation=parameter.empty)) for parameter in parameters)
    arrays, numbers = ", ".join(names[:n_arrays]), "".join(f", {number}" for number in names[n_arrays:])
    namespace: dict[str, Any] = {"inherited": inherited}
    exec(
        f"def {name}(self, {head}):\n"
        f"    if not self._run({name!r}, ({arrays}){numbers}):\n"
        f"        inherited(self, {', '.join(names)})\n"
        f"def arguments({head}):\n"
        f"    return ({arrays}), ({numbers[2:]}{',' * bool(numbers)})",
        namespace,
    )
    ARGUMENTS[name] = namespace["arguments"]
    kernel: Callable[..., None] = namespace[name]
    kernel.__doc__ = inherited.__doc__
    return kernel


for _name in recipes.KERNELS:
    setattr(OneDnnOps, _name, by_onednn(_name))


def takes(array: Array) -> bool:
    """Return whether oneDNN accepts the strides of an array: positive multiples of the item size."""
    return all(
        size == 1 or (step > 0 and step % array.itemsize == 0)
        for size, step in zip(array.shape, array.strides, strict=True)
    )


def spread_nan(rows: Array) -> None:
    """Fill each row that contains a NaN with NaN, as NumPy's softmax does.

    oneDNN writes zeros beside a NaN, and the zeros would hide the NaN from a loss.
    """
    # the sum is faster than isnan, and is NaN if a value is
    if math.isnan(np.add.reduce(rows, axis=None)):
        rows[np.isnan(rows).any(axis=1)] = np.nan
