"""The stores that a job reads, and copies of the job with changes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from singa_dask.conf import JobConf, LayerConf
from singa_dask.inputs import StoreInput
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers import LAYERS

IN_ORDER = {"shuffle": "none", "random_skip": 0, "last_batch": "wrap"}
"""Values of ``store_conf`` with which a layer reads all records in file order, from the first one."""


def store_of(layer: LayerConf) -> StoreConf | None:
    """Return the ``store_conf`` of a layer that reads a store, else None."""
    return layer.given_block(StoreConf) if issubclass(LAYERS.find(layer.type), StoreInput) else None


def with_stores(job: JobConf, changes: Callable[[StoreConf], Mapping[str, object]]) -> JobConf:
    """Return the job with changes in the ``store_conf`` of its layers.

    ``changes`` takes the ``store_conf`` of a layer, and returns the keys to change with their new values.
    """
    layers = list(job.neuralnet.layer)
    for index, layer in enumerate(layers):
        if (store := store_of(layer)) and (changed := changes(store)):
            layers[index] = layer.with_block(store.model_copy(update=dict(changed)))
    return job.with_layers(layers)


def with_batchsize(job: JobConf, n: int) -> JobConf:
    """Return the job with batches of ``n`` records."""
    return with_stores(job, lambda _: {"batchsize": [n]})
