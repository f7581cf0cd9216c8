"""Columns that layers read of frames, compared with those that there are before partitions are computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from singa_dask.conf import JobConf
from singa_dask.data.codecs.table_columns import column_kind
from singa_dask.data.codecs.table_spec import TableSpec
from singa_dask.data.fs.host_files import SCHEME
from singa_dask.errors import DataError, Problem
from singa_dask.jobs.datasets.binding import readers, store_of
from singa_dask.jobs.datasets.dataset import Dataset
from singa_dask.jobs.datasets.frames import as_table
from singa_dask.layers.records import without_labels

__all__ = ["find_wrong_columns"]


def find_wrong_columns(job: JobConf, datasets: Mapping[str, Dataset]) -> list[Problem]:
    """Return what is wrong with the columns that the layers of a job read, in the words of a table that is opened.

    Names, and values that their types tell to be no numbers. What only values tell is found when they are read.
    """
    problems = []
    for index, name in readers(job).items():
        layer, dataset = job.neuralnet.layer[index], datasets.get(name)
        store = store_of(layer)
        if store is None or dataset is None or dataset.meta is None or store.backend != "table":
            continue
        lists = {"features": tuple(store.features), "label": store.label_columns, "target": tuple(store.target)}
        spec = TableSpec.from_options({**store.model_dump(), **lists})
        url = f"{SCHEME}{name}/{dataset.pattern}"
        try:
            kinds = _kinds(dataset, url)
            spec.check(url, kinds, spec.select(url, kinds))
            if layer.type == "RecordInput" and store.needs_label and not spec.label:
                raise without_labels(url, is_table=True)
        except DataError as error:
            problems.append(Problem(("neuralnet", "layer", index, "store_conf", "path"), str(error)))
    return problems


def _kinds(dataset: Dataset, where: str) -> dict[str, str]:
    """Return the kind of each column; of those that may hold anything, numbers."""
    meta: Any = dataset.meta
    found = {each.name: column_kind(each.type) for each in as_table(meta, where).schema}
    if hasattr(meta, "iloc"):
        found |= {str(name): "number" for name, dtype in meta.dtypes.items() if str(dtype) in ("object", "category")}
    return {**found, **dict.fromkeys(dataset.added, "number")}
