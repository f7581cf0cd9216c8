"""Standardising input: mean and deviation of the training records of an input layer, and where a net has them from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from singa_dask.data.codecs.scaling import Moments, Scaling
from singa_dask.data.loading.reader import BadPolicy, BlockReader
from singa_dask.data.stores import Store
from singa_dask.errors import DataError
from singa_dask.layers import StoreInput

NONE = Moments.of(np.empty((0, 1)))
GROUP_BYTES = 32 << 20
"""Records of about so many bytes are merged in one go, whoever reads them: the results are the same bits."""


class GroupMoments(NamedTuple):
    """Moments of some groups of blocks, from number ``first`` on; names of columns, and whether values were rounded."""

    first: int
    moments: list[Moments]
    names: Sequence[str]
    is_rounded: bool


def measure(layer: StoreInput, index: int, count: int, check: Callable[[], None]) -> GroupMoments:
    """Return the moments of part ``index`` of ``count`` parts of the records of a layer; ``check`` is called often.

    Raises
    ------
    DataError
        Records cannot be read, or a value is not finite.
    """
    conf = layer.store_conf
    with layer.open_checked() as store:
        # blocks begin a new group where their first record is beyond so many bytes
        numbers = store.starts[:-1] * store.record_bytes // GROUP_BYTES
        groups = np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(numbers)) + 1)
        first, stop = (part * len(groups) // count for part in (index, index + 1))
        reader = BlockReader(store, BadPolicy(conf.on_error, labels=conf.labels))
        moments = []
        for blocks in groups[first:stop]:
            moments.append(
                reduce(Moments.merged, (_moments(layer, reader, block, check) for block in blocks.tolist()), NONE)
            )
        field = store.schema.get("data")
        return GroupMoments(first, moments, _names(store), field is not None and field.dtype == np.float32)


def _names(store: Store) -> Sequence[str]:
    return store.table_facts.names if store.table_facts else ()


def _moments(layer: StoreInput, reader: BlockReader, block: int, check: Callable[[], None]) -> Moments:
    check()
    arrays, store = reader.load(block), reader.store
    if bad := reader.bad.get(block):
        arrays = {name: np.delete(array, list(bad), axis=0) for name, array in arrays.items()}
    values = layer.values_of(arrays)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row, *place = np.argwhere(~np.isfinite(values))[0].tolist()
        where = f"{store.url}, record {int(store.starts[block]) + row}{_column(_names(store), *place)}"
        raise DataError(f"{where}: the value {values[(row, *place)]}, which has no mean. Leave it out, or fill it in.")
    return Moments.of(np.moveaxis(values, 1, -1).reshape(-1, values.shape[1]) if values.ndim == 4 else values)


def _column(names: Sequence[str], *place: int) -> str:
    known = repr(names[place[0]]) if len(place) == 1 and place[0] < len(names) else ", ".join(map(str, place))
    return f", column {known}"


def scaling_of(layer: str, parts: Sequence[GroupMoments], warn: Callable[[str], None]) -> Scaling:
    """Return the scaling of a layer, of all parts of its records; warn if it is not exact.

    Raises
    ------
    DataError
        Their values are too large.
    """
    names, ordered = parts[0].names, sorted(parts, key=lambda part: part.first)
    total = reduce(Moments.merged, (moments for part in ordered for moments in part.moments), NONE)
    if not total.n:
        raise DataError(f"layer {layer}: no records to compute mean and standard deviation of.")
    for at in np.flatnonzero(~np.isfinite(total.squares)).tolist():
        raise DataError(
            f"layer {layer}{_column(names, at)}: values from {total.low[at]:g} to {total.high[at]:g}, whose standard "
            "deviation does not fit in 64 bits. Scale the column, or leave it out."
        )
    scaling = Scaling.of(total)
    for at in np.flatnonzero(scaling.needs_digits)[:1].tolist() if parts[0].is_rounded else ():
        warn(
            f"layer {layer}{_column(names, at)}: values of {scaling.mean[at]:g} with a standard deviation of "
            f"{scaling.std[at]:.3g} are stored as 32-bit floats, which hold few digits of their differences. Train "
            "with the table that they are from, or subtract a constant before you convert it."
        )
    return scaling
