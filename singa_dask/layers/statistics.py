"""The mean and std that records are normalised by, as ``store_conf`` gives them."""

from __future__ import annotations

from collections.abc import Sequence

from singa_dask.data import detect, open_store
from singa_dask.data.stores.store import backends_holding
from singa_dask.layers.records import StoreConf, check_shape, in_layout, same_shape, stored_shape
from singa_dask.ops.contract import Array, DType

__all__ = ["read_statistic"]


def read_statistic(conf: StoreConf, key: str, shape: Sequence[int], dtype: DType) -> Array | float | None:
    """Return mean or std: one record of the file, else the value, else None.

    Parameters
    ----------
    conf : StoreConf
    key : str
        ``"mean_file"`` or ``"std_file"``.
    shape : sequence of int
        Of a record, for the result.
    dtype : dtype

    Raises
    ------
    DataError
        The file cannot be read, or its records have another shape.
    """
    url = getattr(conf, f"{key.removesuffix('_file')}_file")
    value: float | None = getattr(conf, f"{key.removesuffix('_file')}_value")
    if not url:
        return value
    backend = detect(url, conf.storage_options) or conf.backend
    # there a line of text has no label, whatever the records have
    text = {"separator": conf.separator, "has_label": False} if backend in backends_holding("text") else {}
    with open_store(url, backend, conf.storage_options, **text) as store:
        arrays = store.read_block(0)
    record = (arrays["data"] if "data" in arrays else arrays["pixel"])[0]
    # one that is channels first, as shape says, is taken as it is, whatever the layout of the records
    if same_shape(record.shape, stored_shape(conf)) or not same_shape(record.shape, conf.shape):
        check_shape(url, record.shape, conf, "a record")
        record = in_layout(record[None], conf)[0]
    made: Array = record.reshape(shape).astype(dtype)
    return made
