"""Checks that the shapes of stored records fit ``store_conf``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data.stores import Store
from singa_dask.errors import DataError
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.wording import listed


def stored_shape(conf: StoreConf) -> tuple[int, ...]:
    """Return the shape of the records in a store.

    The shape is ``conf.shape``; if ``layout`` is NHWC, it is reordered to (height, width, channels).
    """
    shape = tuple(conf.shape)
    return (*shape[1:], shape[0]) if conf.layout == "NHWC" else shape


def same_shape(actual: Sequence[int], expected: Sequence[int]) -> bool:
    """Return whether two shapes are equal except for axes of length one."""
    return _squeezed(actual) == _squeezed(expected)


def check_shape(url: str, actual: Sequence[int], conf: StoreConf, what: str = "records") -> None:
    """Check that the shape of a store's records fits the job.

    Axes of length one are ignored. A flat record can be read as any shape with the same number of values, and any
    record can be read as a flat record. Other shapes are refused, because reshaping would put values in wrong places.
    ``what`` is a noun for the error.

    Raises
    ------
    DataError
        The shapes do not fit.
    """
    expected = stored_shape(conf)
    flat = min(len(_squeezed(actual)), len(_squeezed(conf.shape))) <= 1
    if same_shape(actual, expected) or (flat and math.prod(actual) == math.prod(expected)):
        return
    keys = "shape and layout: NHWC" if conf.layout == "NHWC" else "shape"
    hint = _hint(tuple(actual), conf) if math.prod(actual) == math.prod(expected) else ""
    raise DataError(f"{url}: {what} of {tuple(actual)}, expected {expected} from {keys}.{hint}")


def check_records(store: Store, conf: StoreConf) -> None:
    """Check that the shape and the fields of a store's records fit the job.

    Raises
    ------
    DataError
        The shape or the fields do not fit.
    """
    values = store.schema.get("data") or store.schema.get("pixel")
    if values is None:
        raise DataError(
            f"{store.url}: the records have only {', '.join(store.schema)}, expected values of shape "
            f"{tuple(conf.shape)} from shape."
        )
    names = store.table_facts.names if store.table_facts else ()
    check_shape(store.url, values.shape, conf, f"records ({listed(names)})" if names else "records")
    if conf.needs_label and "label" not in store.schema:
        if "target" in store.schema and not store.table_facts:
            raise DataError(
                f"{store.url}: the records have targets, which are floats, and no labels. Pass labels as integers or "
                "texts, such as y.astype(int), or set has_label: false to read no labels."
            )
        raise without_labels(store.url, bool(store.table_facts), store.other_fields)


def without_labels(url: str, is_table: bool, others: Sequence[str] = ()) -> DataError:
    """Return the error for records without labels. ``others`` are fields that could be labels."""
    hint = "Name the column in label, or set" if is_table else "Set"
    if others:
        hint = f"Name one of {listed(others)} by user_conf: {{label: NAME}}, or set"
    return DataError(f"{url}: the records have no labels. {hint} has_label: false to read none.")


def _hint(actual: tuple[int, ...], conf: StoreConf) -> str:
    """Return advice for records with the right number of values but another shape."""
    shape = tuple(conf.shape)
    if same_shape(actual, shape):
        return " These are channels first: leave layout out."
    if len(shape) == 3 and same_shape(actual, (*shape[1:], shape[0])):
        return (
            " These look like (height, width, channels): set layout: NHWC to read them so, or store them channels "
            "first, with array.transpose(0, 3, 1, 2)."
        )
    if len(shape) == 3 and same_shape(actual, (shape[2], *shape[:2])):
        return f" The shape of images is [channels, height, width]: set shape: {list(actual)}."
    return f" Set shape: {list(actual)}, or shape: [{math.prod(actual)}] for flat records."


def in_layout(values: npt.NDArray[Any], conf: StoreConf) -> npt.NDArray[Any]:
    """Return a batch of images as (N, channels, height, width).

    The result is a view if ``layout`` is NHWC, else ``values`` unchanged.
    """
    if conf.layout != "NHWC" or values.size != len(values) * math.prod(conf.shape):
        return values
    return np.moveaxis(values.reshape(len(values), *stored_shape(conf)), -1, 1)


def _squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)
