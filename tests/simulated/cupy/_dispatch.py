"""numpy's functions on device arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupy import _array

_NUMBERS = (bool, int, float, complex, np.generic)


def _host(value: Any) -> Any:
    """Return what numpy computes with: the memory of a device array, or a number."""
    if isinstance(value, _array.ndarray):
        return value._host
    if isinstance(value, _NUMBERS):
        return value
    raise TypeError(f"Unsupported type {type(value)}")


def _sample(value: Any) -> Any:
    """Return a stand-in of the same type, whose values nobody minds."""
    host = _host(value)
    return np.ones((1,) * host.ndim, host.dtype) if isinstance(value, _array.ndarray) else host


def ufunc(function: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    outs = kwargs.pop("out", None)
    if method == "reduce" and function is np.add:
        return sum_of(inputs[0], kwargs.get("axis", 0), kwargs.get("dtype"), outs and outs[0], kwargs.get("keepdims"))
    if method != "__call__" or set(kwargs) - {"dtype", "casting"}:
        raise TypeError(f"{function.__name__}.{method} with {sorted(kwargs)} is not in the simulator")
    hosts = [_host(value) for value in inputs]
    samples = [_sample(value) for value in inputs]
    with np.errstate(all="ignore"):
        dtypes = function(*samples, **kwargs)
    dtypes = [np.asarray(d).dtype for d in (dtypes if isinstance(dtypes, tuple) else (dtypes,))]
    shape = np.broadcast_shapes(*(np.shape(host) for host in hosts))
    outs = list(outs) if outs else [None] * function.nout
    for i, (out, dtype) in enumerate(zip(outs, dtypes, strict=True)):
        if out is None:
            model = next((v for v in inputs if isinstance(v, _array.ndarray) and v.shape == shape), None)
            outs[i] = _array.empty(shape, dtype) if model is None else _array.like(model, dtype)
            continue
        if not isinstance(out, _array.ndarray):
            raise TypeError(f"Unsupported type {type(out)}")
        if out.shape != shape:
            raise ValueError("Out shape is mismatched")
        if not np.can_cast(dtype, out.dtype, kwargs.get("casting", "same_kind")):
            raise TypeError(f"output ({dtype}) could not be coerced to provided output parameter ({out.dtype})")
    targets = tuple(out._host for out in outs)

    def run() -> None:
        with np.errstate(all="ignore"):
            function(*hosts, out=targets, **kwargs)

    _array.enqueue(function.__name__, run, (*inputs, *outs))
    return outs[0] if function.nout == 1 else tuple(outs)


def sum_of(array: Any, axis: Any, dtype: Any, out: Any, keepdims: Any) -> Any:
    host = _host(array)
    model = np.sum(np.ones(host.shape, bool), axis=axis, keepdims=bool(keepdims))
    kind = np.sum(np.ones(1, host.dtype), dtype=dtype).dtype
    if out is None:
        out = _array.empty(np.shape(model), kind)
    target = _host(out)

    def run() -> None:
        np.copyto(target, np.sum(host, axis=axis, dtype=kind, keepdims=bool(keepdims)), casting="same_kind")

    _array.enqueue("sum", run, (array, out))
    return out


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None) -> Any:
    if a_min is None:
        return np.minimum(a, a_max, out=out)
    if a_max is None:
        return np.maximum(a, a_min, out=out)
    low = np.maximum(a, a_min, out=out)
    return np.minimum(low, a_max, out=low)


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    if where is not None:
        raise TypeError("np.copyto with where is not in the simulator")
    if not isinstance(dst, _array.ndarray):
        raise TypeError(f"Unsupported type {type(dst)}")
    if isinstance(src, np.ndarray) and src.size != 1:
        raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
    if isinstance(src, _array.ndarray) and not np.can_cast(src.dtype, dst.dtype, casting):
        raise TypeError(f"Cannot cast {src.dtype} to {dst.dtype} in {casting} casting mode")
    dst[...] = src


def _empty_like(prototype: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> Any:
    return _array.like(prototype, dtype, order, shape)


def _zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> Any:
    new = _array.like(a, dtype, order, shape)
    new[...] = 0
    return new


FUNCTIONS: dict[Any, Any] = {
    np.clip: _clip,
    np.copyto: _copyto,
    np.empty_like: _empty_like,
    np.zeros_like: _zeros_like,
    np.sum: lambda a, axis=None, dtype=None, out=None, keepdims=False: sum_of(a, axis, dtype, out, keepdims),
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a: a.size,
    np.reshape: lambda a, shape, order="C": a.reshape(shape, order=order),
    np.transpose: lambda a, axes=None: a.transpose(axes),
}


def function(function: Any, args: Any, kwargs: Any) -> Any:
    if function not in FUNCTIONS:
        known = ", ".join(sorted(each.__name__ for each in FUNCTIONS))
        raise TypeError(f"np.{function.__name__} of device arrays is not in the simulator. Known: {known}; or add it.")
    return FUNCTIONS[function](*args, **kwargs)
