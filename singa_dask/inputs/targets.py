"""Input layers for targets, labels and weights of records.

Another layer reads the features of the same records.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from singa_dask.conf import LayerConf
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Field, Size
from singa_dask.data.codecs.record_values import find_wrong_weight
from singa_dask.data.stores import Store
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.inputs.augmentation import AugmentConf
from singa_dask.inputs.input_context import InputContext
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.inputs.store_input import StoreInput
from singa_dask.layers.base import LAYERS
from singa_dask.layers.site import LayerSite


class _BesideInput(StoreInput):
    """Base of layers that read targets, labels or weights, while another layer reads the features.

    Both layers have the same ``store_conf``. Its shape, mean and std describe the features. If the layer of the
    features mixes records, this layer mixes its values with the same weights.
    """

    field: ClassVar[str]
    """The field of records that the layer reads."""

    def adapted(self, conf: StoreConf) -> StoreConf:
        of_features = {"mean_file": "", "std_file": "", "mean_value": [], "std_value": [], "layout": "NCHW"}
        augment = None
        if conf.augment is not None and (conf.augment.mixup or conf.augment.cutmix):
            augment = AugmentConf(mixup=conf.augment.mixup, cutmix=conf.augment.cutmix)
        return conf.model_copy(
            update={"shape": self.shape_of(conf), **of_features, "standardise": False, "augment": augment}
        )

    def shape_of(self, conf: StoreConf) -> list[int]:
        """Return the shape of the values of a record."""
        return [1]

    def _check_records(self, store: Store) -> None:
        if self.field not in store.schema:
            raise DataError(f"{store.url}: the records have no {self.field}, which {self.conf.type} needs.")
        self._check_labels(store)

    def setup(self) -> None:
        if self.store_conf.random_skip:
            message = "the layer of the features would start at another record. Set shuffle instead."
            raise ConfigError(Problem(("store_conf", "random_skip"), message))
        super().setup()


class TargetConf(Conf):
    """``target_conf``: the targets of records without named columns."""

    size: Size = 1
    """Number of targets in a record."""


@LAYERS.register()
class TargetInput(_BesideInput):
    """Read the targets of records: (batchsize / n_workers, targets).

    Use the layer as the second source of a regression loss, such as EuclideanLoss. In a table with named columns, the
    targets are the columns that ``target`` names. Other records, such as arrays (X, y) from Python, have their
    targets in the field ``target``, with ``target_conf.size`` values.

    Give this layer the ``store_conf`` of the layer that reads the features, so that both read the same records in each
    step. The shape, mean and std in ``store_conf`` describe the features.
    """

    field = "target"
    options_class = TargetConf
    traits = StoreInput.traits.replace(reads_beside="targets")

    def shape_of(self, conf: StoreConf) -> list[int]:
        return [len(conf.target) or self.options.size]

    def setup(self) -> None:
        if self.store_conf.is_table and not self.store_conf.target:
            raise ConfigError(
                Problem(("store_conf", "target"), "TargetInput needs this key: the columns of the table to predict.")
            )
        super().setup()

    def _check_records(self, store: Store) -> None:
        super()._check_records(store)
        n = math.prod(store.schema["target"].shape)
        if n != self.store_conf.shape[0]:
            message = f"the records have {n} targets, expected {self.store_conf.shape[0]}"
            raise DataError(f"{store.url}: {message}. Set target_conf: {{size: {n}}}.")

    def parse(self, arrays: Arrays) -> tuple[Any, Any]:
        return arrays["target"], arrays.get("label")


class LabelConf(Conf):
    """``label_conf``: the label to read from records with several labels."""

    column: str = Field(min_length=1)
    """Name of the column, one of the list ``label`` in ``store_conf``."""


@LAYERS.register()
class LabelInput(_BesideInput):
    """Read one of several labels of records: (batchsize / n_workers, 1), labels as floats.

    Use the layer as the second source of a SoftmaxLoss. The ``store_conf`` of the layer that reads the features lists
    the columns with labels, e.g. ``label: [species, island]``. Give this layer the same ``store_conf``, so that both
    read the same records in each step. Each label has its own classes.
    """

    field = "label"
    options_class = LabelConf
    traits = StoreInput.traits.replace(reads_beside="labels")

    def __init__(self, conf: LayerConf, context: InputContext, site: LayerSite | None = None) -> None:
        super().__init__(conf, context, site)
        self.source.label_column = conf.block(LabelConf).column

    def setup(self) -> None:
        known = self.store_conf.label_columns
        if known and self.source.label_column not in known:
            message = f"{self.source.label_column!r} is not a label of store_conf. Labels: {', '.join(known)}."
            raise ConfigError(Problem(("label_conf", "column"), message))
        super().setup()

    def parse(self, arrays: Arrays) -> tuple[Any, Any]:
        return arrays["label"][:, None], arrays["label"]


@LAYERS.register()
class WeightInput(_BesideInput):
    """Read the weights of records: (batchsize / n_workers, 1).

    Use the layer as the third source of a loss layer. In a table with named columns, the weights are the column that
    ``weight`` names. Other records, such as arrays (X, y, weights) from Python, have their weights in the field
    ``weight``. Weights are at least 0. A record of weight 0 does not affect loss and gradient.

    Give this layer the ``store_conf`` of the layer that reads the features, so that both read the same records in each
    step.
    """

    field = "weight"
    traits = StoreInput.traits.replace(reads_beside="weights")

    def setup(self) -> None:
        if self.store_conf.is_table and not self.store_conf.weight:
            raise ConfigError(Problem(("store_conf", "weight"), "WeightInput needs this key: a column of the table."))
        super().setup()

    def parse(self, arrays: Arrays) -> tuple[Any, Any]:
        weights = np.asarray(arrays["weight"]).reshape(-1, 1)
        wrong = find_wrong_weight(weights)
        if wrong is not None:
            raise DataError(f"{self.store_conf.path}: {wrong[1]}.")
        return weights, None
