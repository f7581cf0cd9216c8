"""predict, extract and test: run trained nets on arrays, frames, Dask collections and stored records."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from dask.delayed import delayed
from distributed import Client

from singa_dask.arrays import Array
from singa_dask.comm.remote_import import Guarded
from singa_dask.conf import Phase
from singa_dask.conf.layer import PHASES
from singa_dask.errors import ConfigError, DataError
from singa_dask.inference.memory_records import is_of
from singa_dask.inference.model import Model, load_model
from singa_dask.inference.model_source import find_source
from singa_dask.inference.output_decoder import refuse_with_probabilities
from singa_dask.inference.predicted_layers import has_classes, predicted_layer
from singa_dask.inference.stored_net import DistributedNet, use_workers
from singa_dask.inference.stored_records import StoredRecords
from singa_dask.jobs.cluster import check_client, compute_on, find_cluster
from singa_dask.jobs.datasets.lazy_parts import parts_of
from singa_dask.jobs.run import AnyRun
from singa_dask.wording import listed

AnyPath = str | os.PathLike[str]
AnyModel = Model | AnyRun


def predict(
    model: AnyModel,
    data: Any,
    *,
    layer: str | None = None,
    proba: bool = False,
    threshold: float | None = None,
    missing: str | float | None = None,
    unknown: str | None = None,
    backend: str | None = None,
    client: Client | str | None = None,
) -> Any:
    """Predict the class of each record, or its values; see `Model.predict`.

    Parameters
    ----------
    model : Model, Run, str or path
        A model. For a run or its URL, the newest checkpoint is loaded.
    data : ndarray, Table, DataFrame, sequence of pictures, dask.array or dask.dataframe; or str or path
        Records, or the URL of stored records: a store, a folder of pictures, or one picture. Stored records need no
        labels.
    layer : str, optional
        See `Model.predict`.
    proba : bool
        Return the probability of each class.
    threshold : float, optional
        See `Model.predict`.
    missing, unknown
        See `load_model`. The default is the setting of the model.
    backend : str, optional
        Format of stored records. By default it is detected.
    client : distributed.Client or str, optional
        Client of a Dask cluster, or address of its scheduler. The workers of this cluster then compute stored records;
        by default, this process computes them. If a client is passed, Dask collections are computed on its cluster
        immediately, and the results stay in the memory of the cluster.

    Returns
    -------
    ndarray, Series, DataFrame, dask.array or dask.dataframe
        For a pandas or Dask frame: a Series with the same index and divisions, or a DataFrame if a record has several
        values. For a Dask array: an array with the same chunks. For stored records: an array in file order, with the
        same values as ``singa-dask predict``.

        Without ``client``, results of Dask data are lazy. Each worker reads the checkpoint from its URL.

    Raises
    ------
    DataError
        A record does not fit the net. The message has its row and column.
    """
    refuse_with_probabilities(threshold, proba)
    if _is_path(data):
        stored, url = _stored(model, client, "sd.predict, model, data", missing, unknown)
        return _predict_stored(stored, url, StoredRecords(os.fspath(data), backend), layer, proba, threshold)
    _refuse_stored(backend=backend)
    trained = _model(model, missing, unknown)
    name = layer or trained.output
    _check_history(trained, name, data)
    names = trained.decoder(name).names
    if proba:
        return _map(functools.partial(trained.predict_proba, layer=name), data, client, names)
    compute = functools.partial(trained.predict, layer=name, threshold=threshold)
    return _map(compute, data, client, () if trained.decoder(name).has_classes else names)


def extract(
    model: AnyModel,
    data: Any,
    layer: str,
    *,
    out: AnyPath | None = None,
    to: str | None = None,
    overwrite: bool = False,
    backend: str | None = None,
    client: Client | str | None = None,
) -> Any:
    """Return the output of a layer for each record; see `Model.extract`.

    Parameters
    ----------
    model, data, backend, client
        See `predict`. ``data=None`` uses the records of the job's test net.
    layer : str
    out : str or path, optional
        URL of a store to write the outputs of stored records to, as ``singa-dask extract`` does. The outputs are then
        not returned. If the records are the job's own, labels are written, too.
    to : str, optional
        Format of ``out``. By default the suffix of ``out`` decides.
    overwrite : bool
        Whether to replace ``out`` if it exists.

    Returns
    -------
    ndarray, Series, DataFrame, dask.array or dask.dataframe
        The outputs, (n, *shape) float32. With ``out``, its absolute URL.
    """
    if data is None or _is_path(data):
        stored, _ = _stored(model, client, "sd.extract, model, data, layer")
        records = None if data is None else StoredRecords(os.fspath(data), backend)
        if out is None:
            return stored.values([layer], [records] if records else []).array()
        [(url, _)] = stored.write(os.fspath(out), [layer], to=to, overwrite=overwrite, records=records)
        return url
    _refuse_stored(backend=backend, out=out, to=to)
    trained = _model(model)
    _check_history(trained, layer, data)
    return _map(functools.partial(trained.extract, layer=layer), data, client)


def test(
    model: AnyModel,
    data: Any = None,
    y: Any = None,
    *,
    phase: str = "test",
    steps: int | None = None,
    metrics: Sequence[str] | None = None,
    backend: str | None = None,
    client: Client | str | None = None,
) -> dict[str, Any]:
    """Return the metrics of a net on records, by name; see `Model.test`.

    Dask collections are computed partition by partition, on the workers of ``client``; by default, with the scheduler
    that Dask is configured to use. ``y`` must have the same partitions as ``data``. A batch never spans two partitions.

    Parameters
    ----------
    model, data, backend, client
        See `predict`. Stored records must include their labels. ``data=None`` uses the records of the job's test net.
        The number of batches is then set by the job, and the metrics are the same as those of ``singa-dask test``.
    y, metrics
        See `Model.test`.
    phase : str
        For stored records: ``"test"`` for the test net, ``"val"`` for the validation net.
    steps : int, optional
        For stored records: number of batches; 0 uses every record once.

    Raises
    ------
    DataError
        See `Model.test`. Also raised if ``y`` has other partitions than ``data``.
    """
    if data is None or _is_path(data):
        if y is not None:
            raise ConfigError("y: stored records include their labels. Leave y out, or pass records in memory.")
        stored, _ = _stored(model, client, "sd.test, model")
        if phase not in ("test", "val"):
            raise ConfigError(f"phase: {phase!r}, expected 'test' or 'val'.")
        records = [] if data is None else [StoredRecords(os.fspath(data), backend, outputs=True)]
        tested = stored.test(PHASES[phase], steps, records, metrics)
        return {**tested.metrics, **tested.matrices}
    _refuse_stored(backend=backend, steps=steps, phase=None if phase == "test" else phase)
    trained = _model(model)
    if not _is_dask(data):
        _refuse_client(client)
        return trained.test(data, y, metrics)
    check_client(client, "sd.test, model, data, y")
    _check_history(trained, "", data)
    parts = parts_of(data)
    labels = [None] * len(parts) if y is None else parts_of(y) if _is_dask(y) else []
    if len(labels) != len(parts):
        raise DataError(f"y: {len(labels) or 'no'} Dask partitions, expected {len(parts)}, as in data.")
    measure = delayed(Guarded(trained.measure), pure=False)
    measured = compute_on(client, *(measure(*part, metrics) for part in zip(parts, labels, strict=True)))
    return trained.merge(measured, metrics)


def _model(model: AnyModel, missing: str | float | None = None, unknown: str | None = None) -> Model:
    if not isinstance(model, Model):
        return load_model(model, missing=missing, unknown=unknown)
    source = model.source.reading(missing, unknown)
    return model if source is model.source else Model(source)


def _is_path(data: Any) -> bool:
    return isinstance(data, (str, os.PathLike))


def _stored(
    model: AnyModel,
    client: Client | str | None,
    call: str,
    missing: str | float | None = None,
    unknown: str | None = None,
) -> tuple[DistributedNet, str]:
    """Return the net for stored records, and its URL. The values of its params are not read yet."""
    if isinstance(model, Model):
        source = model.source
    else:
        source = find_source(os.fspath(model))
    source = source.reading(missing, unknown)
    check_client(client, call)
    workers = functools.partial(use_workers, client)
    return DistributedNet(source.job_file(), (source.checkpoint,), workers, source.sources), source.url


def _predict_stored(
    net: DistributedNet, url: str, records: StoredRecords, layer: str | None, proba: bool, threshold: float | None
) -> Array:
    layer = layer or predicted_layer(net.read.job, Phase.TEST)
    classes = has_classes(net.read.job, layer)
    if proba and not classes:
        raise ConfigError(f"{url}: layer {layer!r} has no class probabilities. Use predict or extract.")
    outputs = net.values([layer], [records], topk=int(classes and not proba), threshold=threshold)
    values, decoder = outputs.array(), outputs.decoders[0]
    if proba:
        return decoder.probabilities(values)
    return decoder.predictions_of_pairs(values) if classes else decoder.predictions(values)


def _refuse_stored(**arguments: Any) -> None:
    """Raise a ConfigError if arguments are passed that apply only to stored records."""
    for name, value in arguments.items():
        if value is not None:
            raise ConfigError(f"{name}: only for stored records, given by their URL. Leave it out for data in memory.")


def _refuse_client(client: Client | str | None) -> None:
    if client is not None:
        raise ConfigError("client: only for stored records and Dask collections. Leave it out for data in memory.")


# -- kinds of data ---------------------------------------------------------------------------------------------


def _is_dask(data: Any) -> bool:
    return is_of(data, "dask.array", "Array") or is_of(data, "dask.dataframe", "DataFrame", "Series")


def _check_history(model: Model, layer: str, data: Any) -> None:
    """Raise a DataError if the net needs earlier records, which Dask may keep in another partition."""
    if is_of(data, "dask.dataframe", "DataFrame"):
        lags = model.lags(layer)
        if lags is not None and {*lags.names}.isdisjoint(data.columns):
            raise DataError(
                f"data: a record needs the {lags.n} before it, but Dask partitions are read one by one. Pass "
                f"data.compute(), or add the columns {listed(lags.names)}."
            )


def _map(function: Callable[[Any], Array], data: Any, client: Client | str | None, names: tuple[str, ...] = ()) -> Any:
    """Apply a function of records to all data. Without a client, results of Dask collections are lazy."""
    if is_of(data, "dask.array", "Array"):
        return _begun(map_blocks(function, data, function(np.empty((0, *data.shape[1:]), data.dtype))), client)
    if is_of(data, "dask.dataframe", "DataFrame"):
        on_partition = Guarded(functools.partial(_on_partition, function, names))
        return _begun(data.map_partitions(on_partition, meta=_on_frame(function, names, data._meta)), client)
    _refuse_client(client)
    return _on_frame(function, names, data) if is_of(data, "pandas", "DataFrame") else function(data)


def _begun(collection: Any, client: Client | str | None) -> Any:
    """Start to compute a collection on the cluster of a client; without a client, return it unchanged."""
    if client is None:
        return collection
    if not isinstance(client, Client):
        raise ConfigError(
            "client: an address. Expected a Client for Dask collections, because the Client keeps the results."
        )
    with find_cluster(client):
        return client.persist(collection)


def map_blocks(function: Callable[[Any], Array], data: Any, sample: Array) -> Any:
    """Apply a function of records lazily to a Dask array. ``sample`` is the result for some records."""
    whole = data.rechunk(dict.fromkeys(range(1, data.ndim), -1))
    return whole.map_blocks(
        Guarded(functools.partial(_on_block, function)),
        chunks=(whole.chunks[0], *((n,) for n in sample.shape[1:])),
        drop_axis=list(range(1, whole.ndim)),
        new_axis=list(range(1, sample.ndim)) or None,
        dtype=sample.dtype,
        meta=np.empty((0,) * sample.ndim, sample.dtype),
    )


def _on_block(function: Callable[[Any], Array], block: Any, block_info: Any = None) -> Array:
    try:
        return function(block)
    except DataError as error:
        raise DataError(f"chunk {block_info[0]['chunk-location'][0]} of rows: {error}") from error


def _on_partition(
    function: Callable[[Any], Array], names: tuple[str, ...], frame: Any, partition_info: Any = None
) -> Any:
    try:
        return _on_frame(function, names, frame)
    except DataError as error:
        raise DataError(f"partition {partition_info['number']}: {error}") from error


def _on_frame(function: Callable[[Any], Array], names: tuple[str, ...], frame: Any) -> Any:
    """Apply a function to a pandas frame; return its result as a Series or frame with the same index."""
    pandas = sys.modules["pandas"]
    values = function(frame)
    # records at the beginning that serve only as history have no predictions
    index = frame.index[len(frame) - len(values) :]
    if values.ndim == 1:
        return pandas.Series(values, index=index, name=names[0] if len(names) == 1 else "prediction")
    values = values.reshape(len(values), int(np.prod(values.shape[1:])))
    columns = names if len(names) == values.shape[1] else [str(i) for i in range(values.shape[1])]
    return pandas.DataFrame(values, index=index, columns=list(columns))
