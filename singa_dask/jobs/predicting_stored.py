"""predict, extract and test for stored records: what the verbs of these names do, with values returned."""

from __future__ import annotations

import functools
import math
import os
from typing import Any

import numpy as np
import numpy.typing as npt
from distributed import Client

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError
from singa_dask.jobs.clusters import check_client
from singa_dask.jobs.inference import Records, use_workers
from singa_dask.jobs.model_source import ModelSource
from singa_dask.jobs.stored import PHASES, StoredNet
from singa_dask.runtime.inference.job import has_classes, predicted_layer
from singa_dask.runtime.inference.predictions import labels_of

__all__ = ["extract_stored", "is_path", "predict_stored", "test_stored"]

AnyPath = str | os.PathLike[str]
AnyClient = Client | str | None


def is_path(data: Any) -> bool:
    """Return whether data is the URL or path of stored records."""
    return isinstance(data, (str, os.PathLike))


def predict_stored(
    source: ModelSource, data: AnyPath, layer: str | None, proba: bool, backend: str | None, client: AnyClient
) -> npt.NDArray[Any]:
    """Predict the classes of stored records, or values; see `predict`."""
    net = _net(source, client, "sd.predict, model, data")
    layer = layer or predicted_layer(net.read.job, Phase.TEST)
    classes = has_classes(net.read.job, layer)
    if proba and not classes:
        raise ConfigError(f"{source.url}: layer {layer!r} has no probabilities of classes. Say predict or extract.")
    found = net.values([layer], [_records(data, backend)], topk=int(classes and not proba))
    values = found.array()
    if not classes:
        return values.reshape(-1) if values.shape[1:] == (1,) else values
    shaped = next(each for each in found.net.layers if each.conf_name == layer)
    steps = (shaped.site.n_steps,) if shaped.site.n_steps > 1 else ()
    n_classes = math.prod(shaped.features[0].shape[1:])
    if proba:
        return values.reshape(len(values), *steps, n_classes)
    numbers = values.reshape(len(values), *steps, 2)[..., 0].astype(np.int64)
    return labels_of(numbers, found.class_names[0], n_classes)


def extract_stored(
    source: ModelSource,
    data: AnyPath | None,
    layer: str,
    out: AnyPath | None,
    to: str | None,
    overwrite: bool,
    backend: str | None,
    client: AnyClient,
) -> Any:
    """Return or write what a layer makes of stored records; see `extract`."""
    net = _net(source, client, "sd.extract, model, data, layer")
    records = None if data is None else _records(data, backend)
    if out is None:
        return net.values([layer], [records] if records else []).array()
    [written] = net.write(os.fspath(out), [layer], to=to, overwrite=overwrite, records=records)
    return written.url


def test_stored(
    source: ModelSource,
    data: AnyPath | None,
    phase: str,
    steps: int | None,
    backend: str | None,
    client: AnyClient,
) -> dict[str, float]:
    """Measure a net on stored records; see `test`."""
    if phase not in ("test", "val"):
        raise ConfigError(f"phase: {phase!r}, expected 'test' or 'val'.")
    records = None if data is None else _records(data, backend, outputs=True)
    return _net(source, client, "sd.test, model").test(PHASES[phase], steps, records).metrics


def _net(source: ModelSource, client: AnyClient, call: str) -> StoredNet:
    check_client(client, call)
    workers = functools.partial(use_workers, client)
    return StoredNet(source.job_file(), (source.checkpoint,), workers, source.sources)


def _records(data: AnyPath, backend: str | None, outputs: bool = False) -> Records:
    return Records(os.fspath(data), backend, outputs)
