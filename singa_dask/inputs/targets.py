"""Input layers beside that of the features: targets, labels and weights of the same records."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from singa_dask.conf import LayerConf
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Field, Size
from singa_dask.data.codecs.values import find_wrong_weight
from singa_dask.data.stores import Store
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.inputs.augmentation import AugmentConf
from singa_dask.inputs.input import StoreInput
from singa_dask.inputs.input_context import InputContext
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers.base import LAYERS, LayerSite


class _TableInput(StoreInput):
    """What layers share that read the records of another input layer, but no features.

    They have its ``store_conf``; shape, mean and std in it are of the features. Where it mixes records, the values are
    mixed by the same shares.
    """

    field: ClassVar[str]
    """The field of records that the layer reads."""

    def adapted(self, conf: StoreConf) -> StoreConf:
        of_features = {"mean_file": "", "std_file": "", "mean_value": None, "std_value": None, "layout": "NCHW"}
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
            raise DataError(f"{store.url}: the records have no {self.field}, which {self.conf.type} reads.")
        self._check_labels(store)

    def setup(self) -> None:
        if self.store_conf.random_skip:
            message = "the layer of the features would start at another record. Use shuffle instead."
            raise ConfigError(Problem(("store_conf", "random_skip"), message))
        super().setup()


class TargetConf(Conf):
    """``target_conf``: the targets of records that are no table with named columns."""

    size: Size = 1
    """How many targets a record has."""


@LAYERS.register()
class TargetInput(_TableInput):
    """The columns ``target`` of a table with named columns, for regression: (batchsize / n_workers, targets).

    Of other records, such as arrays (X, y) given from Python, the field ``target``: ``target_conf.size`` of them.

    Give it the ``store_conf`` of the layer that reads the features, so that both have the same records in each step;
    shape, mean and std in it are of the features. It is the second source of a EuclideanLoss.
    """

    field = "target"
    block = TargetConf
    traits = StoreInput.traits.replace(reads_beside="targets")

    def shape_of(self, conf: StoreConf) -> list[int]:
        return [len(conf.target) or self.conf.block(TargetConf).size]

    def setup(self) -> None:
        if self.store_conf.is_table and not self.store_conf.target:
            raise ConfigError(Problem(("store_conf", "target"), "TargetInput needs it: columns of a table."))
        super().setup()

    def _check_records(self, store: Store) -> None:
        super()._check_records(store)
        shape = store.schema["target"].shape
        if shape != tuple(self.store_conf.shape):
            message = f"the records have {shape[0]} targets, expected {self.store_conf.shape[0]}"
            raise DataError(f"{store.url}: {message}. Set target_conf: {{size: {shape[0]}}}.")

    def parse(self, arrays: Arrays) -> tuple[Any, Any]:
        return arrays["target"], arrays.get("label")


class LabelConf(Conf):
    """``label_conf``: which label of records with several a layer reads."""

    column: str = Field(min_length=1)
    """Name of the column: one of ``label`` in ``store_conf``."""


@LAYERS.register()
class LabelInput(_TableInput):
    """One label of records that have several: (batchsize / n_workers, 1), with classes of its own.

    The columns are ``label: [species, island]`` in the ``store_conf`` of the layer that reads the features; give this
    layer the same one, so that both have the same records in each step. It is the second source of a SoftmaxLoss. Its
    values are the labels too, as floats.
    """

    field = "label"
    block = LabelConf
    traits = StoreInput.traits.replace(reads_beside="labels")

    def __init__(self, conf: LayerConf, context: InputContext, site: LayerSite | None = None) -> None:
        super().__init__(conf, context, site)
        self.label_column = conf.block(LabelConf).column

    def setup(self) -> None:
        known = self.store_conf.label_columns
        if known and self.label_column not in known:
            message = f"{self.label_column!r} is no label of store_conf. Labels: {', '.join(known)}."
            raise ConfigError(Problem(("label_conf", "column"), message))
        super().setup()

    def parse(self, arrays: Arrays) -> tuple[Any, Any]:
        return arrays["label"][:, None], arrays["label"]


@LAYERS.register()
class WeightInput(_TableInput):
    """A weight for each record, for the third source of a loss layer: (batchsize / n_workers, 1).

    It is the column ``weight`` of a table with named columns, or the field ``weight`` of other records, such as arrays
    (X, y, weights) given from Python: numbers from 0 on. A record of weight 0 adds nothing to loss and gradient.

    Give it the ``store_conf`` of the layer that reads the features, so that both have the same records in each step.
    """

    field = "weight"
    traits = StoreInput.traits.replace(reads_beside="weights")

    def setup(self) -> None:
        if self.store_conf.is_table and not self.store_conf.weight:
            raise ConfigError(Problem(("store_conf", "weight"), "WeightInput needs it: a column of a table."))
        super().setup()

    def parse(self, arrays: Arrays) -> tuple[Any, Any]:
        weights = np.asarray(arrays["weight"]).reshape(-1, 1)
        wrong = find_wrong_weight(weights)
        if wrong is not None:
            raise DataError(f"{self.store_conf.path}: {wrong[1]}.")
        return weights, None
