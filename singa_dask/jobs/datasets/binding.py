"""Jobs whose input layers read data of Python objects, ``path: dask://NAME``."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from singa_dask.conf import JobConf, JobFile
from singa_dask.data.codecs.table_columns import column_kind
from singa_dask.data.codecs.table_spec import TableSpec
from singa_dask.data.fs.host_files import SCHEME, dataset_of
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.jobs.datasets.arrays import ArrayWriter
from singa_dask.jobs.datasets.dataset import Dataset
from singa_dask.jobs.datasets.frames import as_table
from singa_dask.layers.records import StoreConf, check_shape, without_labels
from singa_dask.registry import suggest
from singa_dask.runtime.planning.passes import store_of, with_stores


def readers(job: JobConf) -> dict[int, str]:
    """Return the layers that read data of Python objects: name of the data by index of the layer."""
    found = {}
    for index, layer in enumerate(job.neuralnet.layer):
        store = store_of(layer)
        if store is not None and (name := dataset_of(store.path)):
            found[index] = name
    return found


def check_names(read: JobFile, known: Collection[str], needed: bool = True) -> None:
    """Check that the data that a job reads are given, and that it reads all that are.

    Parameters
    ----------
    read : JobFile
    known : collection of str
        Names of the data.
    needed : bool
        Whether there are no others, elsewhere.

    Raises
    ------
    ConfigError
        With the places in the file.
    """
    wanted = readers(read.job)
    problems = []
    for index, name in wanted.items() if needed else ():
        if name not in known:
            path = ("neuralnet", "layer", index, "store_conf", "path")
            problems.append(Problem(path, f"no data named {name!r}. {_hint(name, known)}"))
    for name in known:
        if name not in wanted.values():
            reads = f"It reads {', '.join(sorted(set(wanted.values())))}." if wanted else f"Say path: {SCHEME}{name}."
            problems.append(Problem((), f"data {name!r} is read by no input layer of the job. {reads}"))
    if problems:
        raise read.locate(ConfigError(problems))


def _hint(name: str, known: Collection[str]) -> str:
    if known:
        return suggest(name, known)
    return (
        f"Give it from Python: singa_dask.train(job, data={{{name!r}: ...}}); or publish it on a Dask cluster, "
        f"client.publish_dataset(..., name={name!r}), and run the job there: --scheduler, or client=."
    )


def check_weights(read: JobFile, datasets: Mapping[str, Dataset]) -> None:
    """Check that a layer reads the weights of records, where the data have any.

    Raises
    ------
    ConfigError
        None does.
    """
    layers = read.job.neuralnet.layer
    weighted = {name for index, name in readers(read.job).items() if layers[index].type == "WeightInput"}
    hint = "Add a WeightInput layer with the store_conf of the features, and let the loss read it third."
    problems = [
        Problem((), f"data {name!r} has weights, which no layer reads. {hint}")
        for name, dataset in datasets.items()
        if dataset.has_weights and name not in weighted
    ]
    if problems:
        raise read.locate(ConfigError(problems))


def check_shapes(read: JobFile, datasets: Mapping[str, Dataset]) -> None:
    """Check that layers expect records of the shape that the data have, before these are computed.

    Raises
    ------
    ConfigError
        With the places in the file.
    """
    problems = []
    for index, name in readers(read.job).items():
        layer = read.job.neuralnet.layer[index]
        shape = datasets[name].shape if name in datasets and layer.type == "RecordInput" else None
        store = store_of(layer)
        if shape is None or store is None or not store.shape:
            continue
        try:
            check_shape(f"{SCHEME}{name}", shape, store)
        except DataError as error:
            problems.append(Problem(("neuralnet", "layer", index, "store_conf", "path"), str(error)))
    if problems:
        raise read.locate(ConfigError(problems))


def with_defaults(job: JobConf, datasets: Mapping[str, Dataset]) -> JobConf:
    """Return the job whose layers say what their data imply, where they say nothing else, e.g. the column of labels."""
    layers = job.neuralnet.layer
    with_targets = {name for index, name in readers(job).items() if layers[index].type == "TargetInput"}
    fields = StoreConf.model_fields

    def change(store: StoreConf) -> Mapping[str, Any]:
        name = dataset_of(store.path)
        defaults = datasets[name].defaults if name in datasets else {}
        # that there are no labels is a mistake, unless targets are read
        wanted = defaults.keys() - ({"has_label"} if name not in with_targets else set())
        return {key: defaults[key] for key in wanted if getattr(store, key) == fields[key].default}

    return with_stores(job, change)


def without_unread(job: JobConf, datasets: Mapping[str, Dataset]) -> dict[str, Dataset]:
    """Return the datasets without the columns of frames that no layer reads, where all layers name those that they do.

    A frame of which a layer names an unknown column is left as it is: the error lists its columns.
    """
    read: dict[str, set[str]] = {}
    for index, name in readers(job).items():
        store, dataset = store_of(job.neuralnet.layer[index]), datasets.get(name)
        if store is not None and dataset is not None:
            read.setdefault(name, set()).update(_columns_read(store, dataset))
    found = dict(datasets)
    for name, columns in read.items():
        dataset = datasets[name]
        unread = [each for each in dataset.columns if each not in columns]
        if unread and dataset.drop is not None:
            found[name] = dataset.drop(unread)
    return found


def _columns_read(store: StoreConf, dataset: Dataset) -> Collection[str]:
    weight = [store.weight] if store.weight else []
    columns, outputs = dataset.columns, (*store.label_columns, *store.target, *weight)
    known = {*columns, *dataset.added}
    found = [_matching(columns, name) for name in store.features]
    if not store.features or not all(found) or not known.issuperset(outputs):
        return columns
    return {*outputs, *(name for names in found for name in names)}


def _matching(columns: Collection[str], pattern: str) -> list[str]:
    return [pattern] if pattern in columns else [each for each in columns if fnmatch.fnmatchcase(each, pattern)]


def fit_to_data(job: JobConf, datasets: Mapping[str, Dataset]) -> tuple[JobConf, dict[str, Dataset]]:
    """Return a job that says what its data imply, and the data without columns that it does not read.

    Raises
    ------
    ConfigError
        It reads columns that are not there, or hold no numbers.
    """
    read = without_unread(job, datasets)
    job = with_defaults(job, read)
    layers = job.neuralnet.layer
    for name in {name for index, name in readers(job).items() if (store_of(layers[index]) or StoreConf()).standardise}:
        if name in read and isinstance(writer := read[name].write_part, ArrayWriter):
            read[name] = replace(read[name], write_part=writer.widened())
    if wrong := find_wrong_columns(job, read):
        raise ConfigError(wrong)
    return job, read


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


def with_urls(job: JobConf, urls: Mapping[str, str]) -> JobConf:
    """Return the job whose layers read files, given by the names of the data."""

    def change(store: StoreConf) -> Mapping[str, Any]:
        name = dataset_of(store.path)
        return {"path": urls[name]} if name in urls else {}

    return with_stores(job, change)


@contextlib.contextmanager
def shown_by_name(urls: Mapping[str, str]) -> Iterator[None]:
    """Let errors name data as jobs do, and not by their files."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError([replace(each, message=_by_name(each.message, urls)) for each in error.problems]) from None


def _by_name(text: str, urls: Mapping[str, str]) -> str:
    for name, url in urls.items():
        text = text.replace(url.rpartition("/")[0], f"{SCHEME}{name}")
    return text
