"""Standardising input: mean and deviation of the training records of an input layer, and where a net has them from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask.data import Store
from singa_dask.data.codecs.scaling import Moments, Scaling
from singa_dask.data.loading.reader import BlockReader
from singa_dask.errors import DataError
from singa_dask.layers.feature import Raw
from singa_dask.ops.contract import Array, Ops

if TYPE_CHECKING:
    from singa_dask.layers.input import StoreInput

__all__ = ["Measured", "as_raw", "find_scaling", "measure", "on_device", "scaling_of", "trained_so"]

GROUP_BYTES = 32 << 20
"""Records of about so many bytes are merged in one go, whoever reads them: the results are the same bits."""


class Measured(NamedTuple):
    """Moments of groups of blocks of a store.

    Attributes
    ----------
    first : int
        Number of the first group.
    moments : list of Moments
        Of each group.
    names : tuple of str
        Of the columns, where they have any.
    is_rounded : bool
        Whether the values were rounded to 32-bit floats before.
    """

    first: int
    moments: list[Moments]
    names: Sequence[str]
    is_rounded: bool


def measure(layer: StoreInput, index: int, count: int, check: Callable[[], None] = lambda: None) -> Measured:
    """Return the moments of part ``index`` of ``count`` parts of the records of a layer; ``check`` is called often.

    Raises
    ------
    DataError
        Records cannot be read, or a value is not finite.
    """
    with layer.open_checked() as store:
        groups = _groups(store)
        first, stop = index * len(groups) // count, (index + 1) * len(groups) // count
        conf = layer.store_conf
        reader = BlockReader(store, 1, False, tolerant=conf.on_error != "raise", labels=conf.labels)
        moments = []
        for blocks in groups[first:stop]:
            found = None
            for block in blocks:
                check()
                part = _moments(layer, reader, block)
                found = part if found is None else found.merged(part)
            moments += [] if found is None else [found]
        field = store.schema.get("data")
        names = store.table_facts.names if store.table_facts else ()
        return Measured(first, moments, names, field is not None and field.dtype == np.float32)


def _groups(store: Store) -> list[list[int]]:
    groups: list[list[int]] = []
    size = GROUP_BYTES
    for block in store.blocks:
        if size >= GROUP_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(block.id)
        size += block.n * store.record_bytes
    return groups


def _moments(layer: StoreInput, reader: BlockReader, block: int) -> Moments:
    arrays = reader.load(block)
    if bad := reader.bad.get(block):
        good = np.setdiff1d(np.arange(reader.store.blocks[block].n), list(bad))
        arrays = {name: array[good] for name, array in arrays.items()}
    values = layer.values_of(arrays)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row, *place = np.argwhere(~np.isfinite(values))[0].tolist()
        name = _name(reader.store.table_facts.names if reader.store.table_facts else (), place)
        raise DataError(
            f"{reader.store.url}, record {int(reader.store.starts[block]) + row}{name}: the value "
            f"{values[(row, *place)]}, which has no mean. Leave such records out, or fill in another value."
        )
    if values.ndim == 4:
        values = np.moveaxis(values, 1, -1)
        values = values.reshape(-1, values.shape[-1])
    return Moments.of(values)


def _name(names: Sequence[str], place: Sequence[int]) -> str:
    if len(place) == 1:
        return f", column {names[place[0]]!r}" if len(names) > place[0] else f", column {place[0]}"
    return f", value {list(place)}"


def scaling_of(layer: str, parts: Iterable[Measured]) -> tuple[Scaling, list[str]]:
    """Return the scaling of a layer, of all parts of its records, and warnings about it.

    Raises
    ------
    DataError
        There are no records, or their values are too large.
    """
    found = sorted(parts, key=lambda part: part.first)
    groups = [each for part in found for each in part.moments]
    total = Moments(0, *(np.zeros(0),) * 5)
    for each in groups:
        total = total.merged(each)
    if not total.n:
        raise DataError(f"layer {layer}: no records to compute mean and standard deviation of.")
    names = found[0].names
    huge = np.flatnonzero(~np.isfinite(total.squares))
    if len(huge):
        at = int(huge[0])
        raise DataError(
            f"layer {layer}{_name(names, [at])}: values from {total.low[at]:g} to {total.high[at]:g}, whose standard "
            "deviation does not fit in 64 bits. Scale the column, or leave it out."
        )
    scaling = Scaling.of(total)
    few = np.flatnonzero(scaling.needs_digits)
    if not (found[0].is_rounded and len(few)):
        return scaling, []
    at = int(few[0])
    return scaling, [
        f"layer {layer}{_name(names, [at])}: values of {scaling.mean[at]:g} with a standard deviation of "
        f"{scaling.std[at]:.3g} are stored as 32-bit floats, which hold few digits of their differences. Train with "
        "the table that they are from, or subtract a constant before you convert it."
    ]


def find_scaling(layer: StoreInput) -> Scaling | None:
    """Return the scaling of the records of a layer, for their shape; None if they are not standardised.

    Raises
    ------
    DataError
        The net has another scaling than its job says.
    """
    known, name = layer.context.class_names, layer.conf_name
    if not layer.store_conf.standardise:
        if name in known.scalings and not layer.reads_outputs:
            raise DataError(trained_so(layer))
        return None
    found = known.scaling_of(name)
    if found is None:
        trained = f"only of {', '.join(known.scalings)}" if known.scalings else "none: it was trained without"
        raise DataError(
            f"layer {name}: standardise: true, which takes mean and standard deviation of the training data from a "
            f"checkpoint, and this net has {trained}. Train it with standardise: true, or leave the key out."
        )
    shape = layer.features[0].shape[1:]
    fitting = found.of_shape(shape)
    if fitting is None:
        raise DataError(
            f"layer {name}: records of shape {shape}, but the net was trained on {len(found.mean)} columns. Give "
            "records of the same shape."
        )
    return fitting


def trained_so(layer: StoreInput) -> str:
    """Return what is wrong with a layer that does not standardise records, as the net did in training."""
    return f"layer {layer.conf_name}: the net was trained on standardised records. Set standardise: true in store_conf."


def on_device(found: Array | float | None, dtype: np.dtype[Any], ops: Ops) -> Array | float | None:
    """Return mean or std to compute with: a record of it where the device has it at hand."""
    return ops.constant(found.astype(dtype)) if isinstance(found, np.ndarray) else found


def as_raw(
    values: npt.NDArray[Any],
    mean: Array | float | None,
    std: Array | float | None,
    scaling: Scaling | None,
    dtype: np.dtype[Any],
) -> Raw:
    """Return records for the kernel that normalises them; floats with a scaling are standardised here, in 64 bits."""
    if values.dtype != np.uint8 and scaling is not None:
        return Raw(scaling.scale(values, dtype))
    return Raw(values if values.dtype in (np.uint8, np.float32) else values.astype(np.float32), mean, std)
