"""Normalisation: find and apply the mean and the divisor for records of an input layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_dask.data.stores import detect, open_store
from singa_dask.data.stores.store import backends_holding
from singa_dask.data.tables.scaling import Scaling, columns_of
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.inputs.input_context import InputContext
from singa_dask.inputs.record_shapes import check_shape, in_layout, same_shape, stored_shape
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers.feature import Raw
from singa_dask.ops.contract import Array, DType, Ops

Statistic = Array | float | None


class Normalisation:
    """Mean and divisor of records.

    Mean and divisor come from numbers in the job, from records in files, or from the mean and standard deviation of
    the training data.

    Parameters
    ----------
    conf : StoreConf
        Block of the input layer. Its ``shape`` must be set.
    layer : str
        Name of the layer in the job.
    context : InputContext
    scales : bool
        Whether the layer reads features. Only features are scaled by ``standardise``.
    """

    def __init__(self, conf: StoreConf, layer: str, context: InputContext, scales: bool = True) -> None:
        self._conf, self._layer, self._context, self._scales = conf, layer, context, scales
        self._scaling: Scaling | None = None
        self._mean: Statistic = None
        self._std: Statistic = None

    def find_scaling(self) -> Scaling | None:
        """Return the scaling of the records; None if they are not standardised.

        Raises
        ------
        DataError
            The net was trained with another scaling.
        """
        known, name, shape = self._context.knowledge.known, self._layer, tuple(self._conf.shape)
        if not self._conf.standardise:
            if name in known.scalings and self._scales:
                raise DataError(
                    f"layer {name}: the net was trained on standardised records. Set standardise: true in store_conf."
                )
            return None
        scaling = self._context.knowledge.scaling_of(name)
        if scaling is None:
            trained = f"only of {', '.join(known.scalings)}" if known.scalings else "none: it was trained without"
            raise DataError(
                f"layer {name}: standardise: true needs mean and standard deviation of the training data from a "
                f"checkpoint, and this net has {trained}. Train it with standardise: true, or leave the key out."
            )
        fitting = scaling.of_shape(shape)
        if fitting is None:
            raise DataError(
                f"layer {name}: the records have shape {shape}, but the net was trained on {len(scaling.mean)} columns."
            )
        return fitting

    def statistics(self) -> tuple[Statistic, Statistic]:
        """Return mean and std as arrays or numbers; None for a statistic that the job does not set.

        If the job standardises records, the std is `Scaling.divisor`.
        """
        if (scaling := self.find_scaling()) is not None:
            return scaling.mean, scaling.divisor
        return self._read("mean_file"), self._read("std_file")

    def problems(self) -> list[Problem]:
        """Return the problems of the files of mean and std, with paths relative to the layer."""
        problems = []
        for key in ("mean_file", "std_file"):
            try:
                self._read(key)
            except DataError as error:
                problems.append(Problem(("store_conf", key), str(error)))
        return problems

    def _read(self, key: str) -> Statistic:
        return read_statistic(self._conf, key, self._conf.shape, self._context.param_dtype)

    def prepare(self, ops: Ops) -> tuple[Statistic, Statistic]:
        """Read mean and std for later calls of `apply`, and return them as `statistics` does.

        Raises
        ------
        DataError
            A file cannot be read, its record has another shape, or `find_scaling` fails.
        """
        self._scaling = self.find_scaling()
        statistics = self.statistics()
        self._mean, self._std = (
            ops.constant(array.astype(self._context.param_dtype)) if isinstance(array, np.ndarray) else array
            for array in statistics
        )
        return statistics

    def apply(self, values: Array) -> Raw:
        """Return values with the mean and the divisor that `Ops.normalize` has to apply.

        If the job standardises the records, this method scales them itself.
        """
        if self._scaling is not None and values.dtype != np.uint8:
            return Raw(self._scaling.scale(values, self._context.param_dtype))
        plain = values if values.dtype in (np.uint8, np.float32) else values.astype(np.float32)
        return Raw(plain, self._mean, self._std)


def check_statistics(conf: StoreConf) -> None:
    """Raise ConfigError if a list of means or deviations lacks a number for each channel or value."""
    what, n = "channel" if len(conf.shape) == 3 else "value", columns_of(conf.shape)
    for key, value in (("mean_value", conf.mean_value), ("std_value", conf.std_value)):
        if len(value) not in (0, 1, n):
            message = f"expected one number, or a list of {n}, for each {what} of records of shape "
            message += f"{[*conf.shape]}, got {len(value)}."
            raise ConfigError(Problem(("store_conf", key), message))


def read_statistic(conf: StoreConf, key: str, shape: Sequence[int], dtype: DType) -> Statistic:
    """Return the mean or std that a job sets: the first record of a file, or numbers, or None.

    Parameters
    ----------
    conf : StoreConf
    key : str
        ``"mean_file"`` or ``"std_file"``.
    shape : sequence of int
        Shape of a record.
    dtype : dtype

    Raises
    ------
    DataError
        The file cannot be read, or its record has another shape.
    """
    url = getattr(conf, key)
    value: list[float] = getattr(conf, f"{key.removesuffix('_file')}_value")
    if not url and len(value) > 1:
        numbers = np.array(value, dtype).reshape((-1, 1, 1) if len(shape) == 3 else shape)
        return np.ascontiguousarray(np.broadcast_to(numbers, shape))
    if not url:
        return value[0] if value else None
    backend = detect(url, conf.storage_options) or conf.backend
    # here, a line of text has no label
    text = {"separator": conf.separator, "has_label": False} if backend in backends_holding("text") else {}
    with open_store(url, backend, conf.storage_options, **text) as store:
        arrays = store.read_block(0)
    record = (arrays["data"] if "data" in arrays else arrays["pixel"])[0]
    # use a record with channels first, as in `shape`, unchanged, even if the layout of the stored records is NHWC
    if same_shape(record.shape, stored_shape(conf)) or not same_shape(record.shape, conf.shape):
        check_shape(url, record.shape, conf, "a record")
        record = in_layout(record[None], conf)[0]
    statistic: Array = record.reshape(shape).astype(dtype)
    return statistic
