"""Stores as ``store_conf`` describes them: opened with the options that a job gives, and compared with it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.conf import StoreConf
from singa_dask.data import STORES, Store, detect, fs, open_store
from singa_dask.data.codecs.image import IMAGE_STORES
from singa_dask.data.stores.opening import is_pattern
from singa_dask.errors import DataError
from singa_dask.registry import suggest

__all__ = ["check_shape", "in_layout", "open_records", "open_text", "same_shape", "stored_shape"]


def open_records(conf: StoreConf, url: str, backend: str | None, storage_options: fs.Options) -> Store:
    """Open a store with the options that ``store_conf`` has for its format.

    Raises
    ------
    DataError
        It cannot be opened, or does not take one of the options.
    """
    image = {"resize": conf.resize, "channels": conf.channels} if conf.resize or conf.channels != 3 else {}
    if (image or conf.user_conf) and not backend and not is_pattern(url):
        backend = detect(url, conf.storage_options)
    if image and backend not in IMAGE_STORES:
        message = "resize and channels are for image files. Convert with --resize, or give a backend of images."
        raise DataError(f"{url}: {message} Known: {', '.join(IMAGE_STORES)}.")
    if conf.user_conf and backend:
        _check_keywords(backend, url, conf.user_conf)
    return open_store(url, backend, storage_options, truncated=conf.on_error != "raise", **image, **conf.user_conf)


def open_text(conf: StoreConf, url: str, backend: str | None, storage_options: fs.Options) -> Store:
    """Open records of text lines as ``store_conf`` describes them.

    Raises
    ------
    DataError
        It cannot be opened.
    """
    return open_store(
        url,
        backend,
        storage_options,
        truncated=conf.on_error != "raise",
        separator=conf.separator,
        has_label=conf.has_label,
        shape=stored_shape(conf),
        header=conf.header,
    )


# -- shapes ------------------------------------------------------------------------------------------


def stored_shape(conf: StoreConf) -> tuple[int, ...]:
    """Return the shape that records have in the store: ``shape``, or (height, width, channels) of it."""
    shape = tuple(conf.shape)
    return (*shape[1:], shape[0]) if conf.layout == "NHWC" else shape


def same_shape(found: Sequence[int], expected: Sequence[int]) -> bool:
    """Tell whether two shapes differ by axes of length one alone; a flat one is never the same as one that is not."""
    return _squeezed(found) == _squeezed(expected)


def check_shape(url: str, found: Sequence[int], conf: StoreConf, what: str = "records") -> None:
    """Compare the shape of a store's records with what a job says.

    Axes of length one do not count. Flat records can have any shape of their size, and any record can be read as a flat
    one; everything else would put values in wrong places. ``what`` is what has the shape, for the error.

    Raises
    ------
    DataError
        They do not agree.
    """
    expected = stored_shape(conf)
    flat = min(len(_squeezed(found)), len(_squeezed(conf.shape))) <= 1
    if same_shape(found, expected) or (flat and math.prod(found) == math.prod(expected)):
        return
    said = "shape and layout: NHWC say" if conf.layout == "NHWC" else "shape says"
    hint = _hint(tuple(found), conf) if math.prod(found) == math.prod(expected) else ""
    raise DataError(f"{url}: {what} of {tuple(found)}, expected {expected}, as {said}.{hint}")


def _hint(found: tuple[int, ...], conf: StoreConf) -> str:
    """Say what to do about records that have the right size, but another shape."""
    shape = tuple(conf.shape)
    if same_shape(found, shape):
        return " These are channels first: leave layout out."
    if len(shape) == 3 and same_shape(found, (*shape[1:], shape[0])):
        return (
            " These look like (height, width, channels): set layout: NHWC to read them so, or store them channels "
            "first, with array.transpose(0, 3, 1, 2)."
        )
    if len(shape) == 3 and same_shape(found, (shape[2], *shape[:2])):
        return f" The shape of images is [channels, height, width]: set shape: {list(found)}."
    return f" Set shape: {list(found)}, or shape: [{math.prod(found)}] for values in a row."


def in_layout(values: npt.NDArray[Any], conf: StoreConf) -> npt.NDArray[Any]:
    """Return a batch of images (N, height, width, channels) as a view (N, channels, height, width) if so laid out."""
    if conf.layout != "NHWC" or values.size != len(values) * math.prod(conf.shape):
        return values
    return np.moveaxis(values.reshape(len(values), *stored_shape(conf)), -1, 1)


def _squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _check_keywords(backend: str, url: str, given: Mapping[str, Any]) -> None:
    """Check that a store takes what ``user_conf`` says."""
    known = inspect.signature(STORES.find(backend)).parameters
    unknown = [] if any(each.kind == each.VAR_KEYWORD for each in known.values()) else sorted(given.keys() - known)
    if unknown:
        options = known.keys() - {"url", "storage_options"}
        hint = suggest(unknown[0], options) if options else "It takes none."
        raise DataError(f"{url}: {backend} takes no {unknown[0]!r} from user_conf. {hint}")
