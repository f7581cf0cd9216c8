"""Check datasets, and connect them to the input layers that read them as ``path: dask://NAME``."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from singa_dask.conf import JobConf, JobFile, LayerConf
from singa_dask.data.tables.column_values import column_kind
from singa_dask.data.tables.frames import as_table
from singa_dask.data.tables.spec import TableSpec
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.fs.host_files import SCHEME, dataset_of
from singa_dask.inputs.record_shapes import check_shape, without_labels
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.jobs.datasets.array_records import ArrayWriter
from singa_dask.jobs.datasets.records import Dataset
from singa_dask.runtime.planning.job_stores import store_of, with_stores
from singa_dask.wording import suggest


class _Reader(NamedTuple):
    """An input layer that reads a dataset, and the name of the dataset."""

    layer_index: int
    layer: LayerConf
    store: StoreConf
    name: str

    def problem(self, message: str) -> Problem:
        """Return a problem at the layer's ``path``."""
        return Problem(("neuralnet", "layer", self.layer_index, "store_conf", "path"), message)


def _readers(job: JobConf) -> Iterator[_Reader]:
    for index, layer in enumerate(job.neuralnet.layer):
        store = store_of(layer)
        if store is not None and (name := dataset_of(store.path)):
            yield _Reader(index, layer, store, name)


def readers(job: JobConf) -> dict[int, str]:
    """Return the name of the dataset that each input layer reads, by the index of the layer."""
    return {reader.layer_index: reader.name for reader in _readers(job)}


def check_names(read: JobFile, known: Collection[str], needed: bool = True) -> None:
    """Check that the layers of a job read all ``known`` datasets.

    If ``needed``, also check that the layers read no other datasets.

    Raises
    ------
    ConfigError
        A name is wrong. The error has places in the file.
    """
    wanted = {reader.name for reader in _readers(read.job)}
    problems = [
        reader.problem(f"no data named {reader.name!r}. {_hint(reader.name, known)}")
        for reader in _readers(read.job)
        if needed and reader.name not in known
    ]
    for name in known:
        if name not in wanted:
            reads = f"It reads {', '.join(sorted(wanted))}." if wanted else f"Set path: {SCHEME}{name}."
            problems.append(Problem((), f"no input layer of the job reads data {name!r}. {reads}"))
    if problems:
        raise read.locate(ConfigError(problems))


def _hint(name: str, known: Collection[str]) -> str:
    if known:
        return suggest(name, known)
    return (
        f"Pass it from Python: singa_dask.train(job, data={{{name!r}: ...}}); or publish it on a Dask cluster, "
        f"client.publish_dataset(..., name={name!r}), and run the job there with --scheduler or client=."
    )


def check_data(read: JobFile, datasets: Mapping[str, Dataset], needed: bool) -> None:
    """Check that layers read all datasets, and that shapes and weights of the datasets fit the layers.

    Nothing is computed. See `check_names` for ``needed``.

    Raises
    ------
    ConfigError
        A check failed. The error has places in the file.
    """
    check_names(read, datasets, needed)
    problems, weighted = [], set()
    for reader in _readers(read.job):
        shape = datasets[reader.name].shape if reader.name in datasets else None
        if reader.layer.type == "WeightInput":
            weighted.add(reader.name)
        if reader.layer.type == "RecordInput" and shape is not None and reader.store.shape:
            try:
                check_shape(f"{SCHEME}{reader.name}", shape, reader.store)
            except DataError as error:
                problems.append(reader.problem(str(error)))
    hint = "Add a WeightInput layer with the store_conf of the features, as the third source of the loss."
    problems += [
        Problem((), f"no layer reads the weights of data {name!r}. {hint}")
        for name, dataset in datasets.items()
        if dataset.has_weights and name not in weighted
    ]
    if problems:
        raise read.locate(ConfigError(problems))


def with_defaults(job: JobConf, datasets: Mapping[str, Dataset]) -> JobConf:
    """Return the job with the defaults of datasets, e.g. for `label`, set in the layers that read them.

    ``backend`` is replaced, because it names the format of the files to read.
    """
    with_targets = {reader.name for reader in _readers(job) if reader.layer.type == "TargetInput"}
    fields = StoreConf.model_fields

    def change(store: StoreConf) -> Mapping[str, Any]:
        name = dataset_of(store.path)
        defaults = datasets[name].defaults if name in datasets else {}
        # set has_label only if a layer reads targets; otherwise missing labels are a mistake
        wanted = defaults.keys() - ({"has_label"} if name not in with_targets else set())
        backend = {"backend": defaults.get("backend", "")} if name in datasets else {}
        return {key: defaults[key] for key in wanted if getattr(store, key) == fields[key].default} | backend

    return with_stores(job, change)


def without_unread(job: JobConf, datasets: Mapping[str, Dataset]) -> dict[str, Dataset]:
    """Return the datasets without the columns of frames that no layer reads.

    Columns are removed only if all layers name their columns. If a layer names an unknown column, the frame is returned
    unchanged, because a later error message lists the columns of the frame.
    """
    read: dict[str, set[str]] = {}
    for reader in _readers(job):
        if reader.name in datasets:
            read.setdefault(reader.name, set()).update(_columns_read(reader.store, datasets[reader.name]))
    needed = dict(datasets)
    for name, columns in read.items():
        unread = [column for column in datasets[name].columns if column not in columns]
        if unread and (drop := datasets[name].drop) is not None:
            needed[name] = drop(unread)
    return needed


def _columns_read(store: StoreConf, dataset: Dataset) -> Collection[str]:
    weight = [store.weight] if store.weight else []
    columns, outputs = dataset.columns, (*store.label_columns, *store.target, *weight)
    known = {*columns, *dataset.added}
    matches = [_matching(columns, name) for name in store.features]
    if not store.features or not all(matches) or not known.issuperset(outputs):
        return columns
    return {*outputs, *(name for names in matches for name in names)}


def _matching(columns: Collection[str], pattern: str) -> list[str]:
    return [pattern] if pattern in columns else [each for each in columns if fnmatch.fnmatchcase(each, pattern)]


def fit_to_data(job: JobConf, datasets: Mapping[str, Dataset]) -> tuple[JobConf, dict[str, Dataset]]:
    """Return a job with defaults from its datasets, and the datasets without unused columns.

    Raises
    ------
    ConfigError
        The job reads columns that do not exist or are not numeric.
    """
    read = without_unread(job, datasets)
    job = with_defaults(job, read)
    for name in {reader.name for reader in _readers(job) if reader.store.standardise}:
        if name in read and isinstance(writer := read[name].write_part, ArrayWriter):
            read[name] = replace(read[name], write_part=writer.widened())
    if wrong := find_wrong_columns(job, read):
        raise ConfigError(wrong)
    return job, read


def find_wrong_columns(job: JobConf, datasets: Mapping[str, Dataset]) -> list[Problem]:
    """Return problems with names and types of the columns that a job reads.

    Values are not read. They are checked later.
    """
    problems = []
    for reader in _readers(job):
        store, dataset = reader.store, datasets.get(reader.name)
        if dataset is None or dataset.meta is None or store.backend != "table":
            continue
        lists = {"features": tuple(store.features), "label": store.label_columns, "target": tuple(store.target)}
        spec = TableSpec.from_options({**store.model_dump(), **lists})
        url = f"{SCHEME}{reader.name}/{dataset.pattern}"
        try:
            kinds = _kinds(dataset, url) | dict.fromkeys(store.lags.names if store.lags else (), "number")
            spec.check(url, kinds, spec.select(url, kinds))
            if reader.layer.type == "RecordInput" and store.needs_label and not spec.label:
                raise without_labels(url, is_table=True)
        except DataError as error:
            problems.append(reader.problem(str(error)))
    return problems


def _kinds(dataset: Dataset, where: str) -> dict[str, str]:
    """Return the kind of each column. Columns of objects count as numbers."""
    meta: Any = dataset.meta
    kinds = {each.name: column_kind(each.type) for each in as_table(meta, where).schema}
    if hasattr(meta, "iloc"):
        kinds |= {str(name): "number" for name, dtype in meta.dtypes.items() if str(dtype) in ("object", "category")}
    return {**kinds, **dict.fromkeys(dataset.added, "number")}


def with_urls(job: JobConf, urls: Mapping[str, str]) -> JobConf:
    """Return the job with the URLs of files instead of the names of datasets."""

    def change(store: StoreConf) -> Mapping[str, Any]:
        name = dataset_of(store.path)
        return {"path": urls[name]} if name in urls else {}

    return with_stores(job, change)


@contextlib.contextmanager
def shown_by_name(urls: Mapping[str, str]) -> Iterator[None]:
    """Return a context whose errors name datasets instead of the URLs of their files."""

    def by_name(text: str) -> str:
        for name, url in urls.items():
            text = text.replace(url.rpartition("/")[0], f"{SCHEME}{name}")
        return text

    try:
        yield
    except ConfigError as error:
        problems = [replace(problem, message=by_name(problem.message)) for problem in error.problems]
        raise ConfigError(problems) from None
