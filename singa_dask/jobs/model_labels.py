"""LabelReader: labels, targets and weights from memory, for the input layers of a test net."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.data import Arrays
from singa_dask.data.codecs.labels import find_wrong_label
from singa_dask.errors import DataError
from singa_dask.jobs.model_records import is_pandas
from singa_dask.layers import StoreInput
from singa_dask.layers.input import LabelInput, TargetInput, WeightInput
from singa_dask.runtime.inference.trained_net import TrainedNet

MAX_SHOWN = 20


class LabelReader:
    """Gives each input layer of a net its part of the records.

    Parameters
    ----------
    net : TrainedNet
    features : sequence of StoreInput
        Read the features; one of them labels too, if no other layer does.
    n : int
        Number of records.
    y : array-like, mapping of str to array-like, or None
        Labels or targets; None if the records have them. With it all records have weight 1.

    Raises
    ------
    DataError
        They do not fit the net.
    """

    def __init__(self, net: TrainedNet, features: Sequence[StoreInput], n: int, y: Any) -> None:
        self._net, self._n = net, n
        labelled = [each for each in features if any("labels" in found.consumed_as for found in each.features)]
        self._features = (labelled or features)[0]
        self._targets = [each for each in net.inputs.values() if isinstance(each, TargetInput)]
        self._labels = [each for each in net.inputs.values() if isinstance(each, LabelInput)]
        self._weights = [each for each in net.inputs.values() if isinstance(each, WeightInput)]
        self._has_label = bool(labelled) and not self._labels
        self._given = self._read(y) if y is not None else None

    def arrays(self, given: Mapping[str, Arrays], first: int, stop: int) -> dict[str, Arrays]:
        """Return the records of each input layer, given those of ``x`` by layer.

        Raises
        ------
        DataError
            The net needs labels or targets, and there are none.
        """
        arrays = given[self._features.conf_name]
        if self._given is not None:
            own = {
                name: {key: value[first:stop] for key, value in found.items()} for name, found in self._given.items()
            }
        else:
            own = {name: found for name in self._net.inputs if (found := self._own(name, arrays))}
        for layer in self._weights:
            weights = arrays.get("weight") if self._given is None else None
            own[layer.conf_name] = {"weight": np.ones(stop - first, np.float32) if weights is None else weights}
        missing = [name for name in self._wanted() if name not in own]
        if missing:
            what = "targets" if self._targets else "labels"
            raise DataError(f"y: the net needs {what}, for layer {missing[0]!r}. Give y.")
        fields: dict[str, Arrays] = {
            name: {key: each[key] for key in ("data", "pixel") if key in each} for name, each in given.items()
        }
        return {name: {**fields.get(name, {}), **own.get(name, {})} for name in self._net.inputs}

    def _wanted(self) -> list[str]:
        """Return the input layers that need labels or targets."""
        own = [self._features.conf_name] if self._has_label else []
        return [*own, *(each.conf_name for each in (*self._labels, *self._targets))]

    def _own(self, name: str, arrays: Arrays) -> Arrays:
        """Return labels or targets that a layer finds among the fields of records."""
        layer = self._net.inputs[name]
        if isinstance(layer, TargetInput):
            return {"target": arrays["target"]} if "target" in arrays else {}
        if "label" not in arrays:
            return {}
        labels = arrays["label"]
        if isinstance(layer, LabelInput):
            at = layer.store_conf.label_columns.index(layer.label_column) if labels.ndim > 1 else None
            return {"label": labels if at is None else labels[:, at]}
        return {"label": labels} if self._has_label else {}

    # -- y ---------------------------------------------------------------------------------------------------

    def _read(self, y: Any) -> dict[str, Arrays]:
        columns = _columns(y)
        found: dict[str, Arrays] = {}
        for layer in self._targets:
            names = layer.store_conf.target
            found[layer.conf_name] = {"target": self._numbers(self._pick(columns, y, names), len(names))}
        for each in self._labels:
            values = self._pick(columns, y, [each.label_column])
            found[each.conf_name] = {"label": self._numbered(values, each)}
        if self._has_label:
            values = self._pick(columns, y, self._features.store_conf.label_columns[:1])
            found[self._features.conf_name] = {"label": self._numbered(values, self._features)}
        return found

    def _pick(self, columns: Mapping[str, Any] | None, y: Any, names: list[str]) -> npt.NDArray[Any]:
        """Return the columns of these names, or ``y`` itself if that is all."""
        wanted = len(self._wanted())
        if columns is None or (len(columns) == 1 and wanted == 1):
            if wanted > 1:
                raise DataError(f"y: the net needs several, for {', '.join(self._wanted())}. Give a dict by column.")
            values = np.asarray(y if columns is None else next(iter(columns.values())))
        else:
            unknown = [name for name in names if name not in columns]
            if unknown or not names:
                known = ", ".join(columns)
                raise DataError(f"y: no column {unknown[0] if unknown else ''!r}. Columns: {known}.")
            values = np.stack([np.asarray(columns[name]) for name in names], axis=-1)
        if values.ndim == 0 or len(values) != self._n:
            n = "one" if values.ndim == 0 else len(values)
            raise DataError(f"y: {n} for {self._n} records. Expected one for each.")
        return values

    def _numbers(self, values: npt.NDArray[Any], n_targets: int) -> npt.NDArray[np.float32]:
        if values.dtype.kind not in "biuf" or values.size != self._n * n_targets:
            raise DataError(f"y: {values.dtype} {values.shape}, expected numbers {(self._n, n_targets)}.")
        found = values.reshape(self._n, n_targets).astype(np.float32)
        if not np.isfinite(found).all():
            raise DataError(f"y, row {int((~np.isfinite(found)).any(axis=1).argmax())}: a target is not finite.")
        return found

    def _numbered(self, values: npt.NDArray[Any], layer: StoreInput) -> npt.NDArray[np.int32]:
        """Return the numbers of classes."""
        if values.size != self._n:
            raise DataError(f"y: shape {values.shape}, expected {(self._n,)}: a label for each record.")
        values = values.reshape(-1)
        names = self._net.shapes.context.class_names.known_for(layer.conf_name)
        if values.dtype.kind in "OUST" and names:
            index = {name: i for i, name in enumerate(names)}
            numbers = np.array([index.get(str(value), -1) for value in values], np.int64)
            if (numbers < 0).any():
                row = int((numbers < 0).argmax())
                raise DataError(
                    f"y, row {row}: unknown class {str(values[row])!r}. Classes: {', '.join(names[:MAX_SHOWN])}."
                )
            return numbers.astype(np.int32)
        wrong = find_wrong_label(values)
        if wrong is not None:
            hint = " The classes of this net have no names." if values.dtype.kind in "OUST" else ""
            raise DataError(f"y, row {wrong[0]}: {wrong[1]}.{hint}")
        return values.astype(np.int32)


def _columns(y: Any) -> Mapping[str, Any] | None:
    """Return columns by name; None for an array."""
    if isinstance(y, Mapping):
        return y
    if isinstance(y, (pa.Table, pa.RecordBatch)):
        return {name: y.column(name).to_numpy(zero_copy_only=False) for name in y.schema.names}
    if is_pandas(y):
        return {str(name): y[name].to_numpy() for name in y.columns}
    return None
