"""LabelReader: labels, targets and weights of records in memory, for tests of trained nets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from singa_dask.arrays import Array
from singa_dask.data.codecs.plain_arrays import as_array, as_stored, class_numbers
from singa_dask.data.codecs.record_values import is_numeric
from singa_dask.data.tables.column_names import as_spelled, show_columns
from singa_dask.data.tables.frames import as_table, is_frame
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError
from singa_dask.inference.sized_nets import SizedNets
from singa_dask.inputs import StoreInput
from singa_dask.inputs.targets import LabelInput, TargetInput, WeightInput
from singa_dask.wording import question_of


class LabelReader:
    """Finds the fields of records for each input layer: features, labels, targets or weights.

    Parameters
    ----------
    features : sequence of StoreInput
        Layers that read features. If no other layer reads the labels, one of these layers also reads them.
    n : int
        Number of records.
    y : array-like, mapping of str to array-like, or None
        Labels or targets. None if the records contain them. If ``y`` is passed, each record has weight 1.

    Raises
    ------
    DataError
        ``y`` does not fit the net.
    """

    def __init__(self, net: SizedNets, features: Sequence[StoreInput], n: int, y: Any) -> None:
        self._net, self._n = net, n
        labelled = [layer for layer in features if any("labels" in each.consumed_as for each in layer.features)]
        labels, targets, self._weights = (
            [layer for layer in net.inputs.values() if isinstance(layer, kind)]
            for kind in (LabelInput, TargetInput, WeightInput)
        )
        self._features = (labelled or features)[0]
        own = [self._features] if labelled and not labels else []
        self._fields = dict.fromkeys([*own, *labels], "label") | dict.fromkeys(targets, "target")
        self._given = {layer: self._read(y, layer) for layer in self._fields} if y is not None else None

    def arrays(self, features: Mapping[str, Arrays], first: int, stop: int) -> dict[str, Arrays]:
        """Return the fields that each input layer reads for the records from ``first`` to ``stop``.

        ``features`` has the fields of these records, by the name of the layer. Raises a DataError if labels or targets
        are missing.
        """
        records: dict[str, Arrays] = {name: {} for name in self._net.inputs}
        for name, arrays in features.items():
            records[name] = {key: arrays[key] for key in ("data", "pixel") if key in arrays}
        arrays = features[self._features.conf_name]
        for layer, field in self._fields.items():
            values = arrays.get(field) if self._given is None else self._given[layer][first:stop]
            if values is None:
                what = "targets" if "target" in self._fields.values() else "labels"
                raise DataError(f"y: the net needs {what}, for layer {layer.conf_name!r}. Pass y.")
            if self._given is None and isinstance(layer, LabelInput) and values.ndim > 1:
                values = values[:, layer.store_conf.label_columns.index(layer.source.label_column)]
            records[layer.conf_name][field] = values
        for layer in self._weights:
            weights = arrays.get("weight") if self._given is None else None
            records[layer.conf_name]["weight"] = np.ones(stop - first, np.float32) if weights is None else weights
        return records

    # -- labels and targets ----------------------------------------------------------------------------------

    def _read(self, y: Any, layer: StoreInput) -> Array:
        """Return the labels or targets of a layer, read from ``y``."""
        columns, conf, n = _columns(y), layer.store_conf, self._n
        if self._fields[layer] == "target":
            (n_targets,) = conf.shape
            values = self._pick(columns, y, conf.target)
            if not is_numeric(values.dtype) or values.size != n * n_targets:
                raise DataError(f"y: {values.dtype} {values.shape}, expected numbers {(n, n_targets)}.")
            return as_stored(values.reshape(n, n_targets), np.dtype(np.float32), "y, row")
        label = [layer.source.label_column] if isinstance(layer, LabelInput) else conf.label_columns[:1]
        values = self._pick(columns, y, label)
        if values.size != n:
            raise DataError(f"y: shape {values.shape}, expected {(n,)}: a label for each record.")
        known, name = self._net.shapes.context.knowledge, layer.conf_name
        return class_numbers(values.reshape(-1), known.known_for(name), "y, row", known.type_for(name))

    def _pick(self, columns: Mapping[str, Any] | None, y: Any, names: list[str]) -> Array:
        """Return the columns of ``y`` with these names, or ``y`` itself if there is only one name."""
        if columns is None or (len(columns) == 1 and len(self._fields) == 1):
            if len(self._fields) > 1:
                wanted = ", ".join(layer.conf_name for layer in self._fields)
                raise DataError(f"y: the net needs values for each of {wanted}. Pass a dict by column.")
            arrays = [as_array(y if columns is None else next(iter(columns.values())), "y")]
        else:
            columns = dict(zip(as_spelled([*map(str, columns)], names, "y"), columns.values(), strict=True))
            unknown = [name for name in names if name not in columns]
            if unknown or not names:
                wrong = unknown[0] if unknown else ""
                raise DataError(f"y: no column {wrong!r}. {question_of(wrong, columns)}{show_columns(list(columns))}")
            arrays = [as_array(columns[name], f"y, column {name!r}") for name in names]
        for array in arrays:
            if len(array) != self._n:
                raise DataError(f"y: {len(array)} for {self._n} records. Expected one for each.")
        return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=-1)


def _columns(y: Any) -> Mapping[str, Any] | None:
    """Return the columns of a table by name; None for an array."""
    if isinstance(y, Mapping):
        return y
    if not is_frame(y):
        return None
    if hasattr(y, "iloc"):
        return {str(name): y[name] for name in y.columns}
    table = as_table(y, "y")
    return dict(zip(table.column_names, table.columns, strict=True))
