"""Jobs for inference, with the layers of one phase, one worker, and possibly other records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from singa_dask import fs
from singa_dask.conf import ClusterConf, JobConf, LayerConf, Phase
from singa_dask.conf.wiring_rules import check_phases
from singa_dask.data.stores import STORES, detect
from singa_dask.data.stores.images.image_decoding import IMAGE_SUFFIXES
from singa_dask.data.stores.tables.table_options import NAMING
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.inference.predicted_layers import compares_targets, traits_of
from singa_dask.inputs import StoreInput
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers import LAYERS
from singa_dask.runtime.planning.absolute_paths import absolute_paths
from singa_dask.runtime.planning.job_stores import IN_ORDER, with_stores

NAMES = {Phase.TRAIN: "train", Phase.VALIDATION: "val", Phase.TEST: "test"}


@dataclass(frozen=True)
class PhaseJob:
    """A job that has only the layers of one phase.

    Attributes
    ----------
    phase : Phase
        Phase to build the net for. For the layers of TRAIN it is TEST, because they run as in a test.
    indices : tuple of int
        For each layer, its index in the original job.
    """

    job: JobConf
    phase: Phase
    indices: tuple[int, ...]

    def locate(self, error: ConfigError) -> ConfigError:
        """Return the error with its paths translated to paths in the original job."""
        problems = []
        for problem in error.problems:
            path = problem.path
            if path[:2] == ("neuralnet", "layer") and len(path) > 2 and isinstance(path[2], int):
                path = (*path[:2], self.indices[path[2]], *path[3:])
            problems.append(replace(problem, path=path))
        return ConfigError(problems)


def inference_job(job: JobConf, phase: Phase, *, in_order: bool, exposed: bool = False) -> PhaseJob:
    """Return a job that has only the layers of one phase, and one worker.

    Parameters
    ----------
    phase : Phase
        TRAIN, VALIDATION or TEST. With TRAIN, the layers of the training net are used, but they run as in a test.
    in_order : bool
        Whether to read records in file order, from the first one, instead of the order that the job sets.
    exposed : bool
        Whether to make the values of all layers readable. Each SoftmaxLoss is then replaced by a Softmax, and each
        SigmoidCrossEntropyLoss by a Sigmoid, because these need no labels. No layer overwrites the values of another
        layer. An unreadable record is an error, even if the job skips such records.

    Raises
    ------
    ConfigError
        The job has no layers for this phase, or a layer reads a layer that is not in this phase.
    """
    name = NAMES[phase]
    problems = [
        Problem(("neuralnet", "layer", *path), message) for path, message in check_phases(job.neuralnet.layer, [name])
    ]
    indices = [i for i, layer in enumerate(job.neuralnet.layer) if layer.in_phase(phase)]
    if not indices:
        problems.append(Problem(("neuralnet", "layer"), f"no layer is left in the {name} net."))
    if problems:
        raise ConfigError(problems)
    layers = [job.neuralnet.layer[i].model_copy(update={"include": [], "exclude": []}) for i in indices]
    reading: dict[str, object] = dict(IN_ORDER) if in_order else {}
    if exposed:
        layers = [_exposed(layer) for layer in layers]
        reading["on_error"] = "raise"

    def for_one(store: StoreConf) -> dict[str, object]:
        # batchsize may be a list with one number for each worker
        return {**reading, "batchsize": [sum(store.batchsize)] if store.batchsize else []}

    never = {"train_steps": 0, "test_freq": 0, "validate_freq": 0, "early_stopping": None, "keep_checkpoints": None}
    derived = with_stores(job.with_layers(layers), for_one).model_copy(update={"cluster": ClusterConf(), **never})
    return PhaseJob(absolute_paths(derived), Phase.TEST if phase == Phase.TRAIN else phase, tuple(indices))


def reading_of(missing: str | float | None, unknown: str | None) -> dict[str, Any]:
    """Return the keys of ``store_conf`` for the arguments ``missing`` and ``unknown``.

    Raises a ConfigError for wrong values.
    """
    is_number = isinstance(missing, (int, float, np.number)) and not isinstance(missing, bool)
    if not (missing is None or is_number or missing in ("error", "mean")):
        raise ConfigError(f"missing: {missing!r}, expected 'error', 'mean' or a number.")
    if unknown not in (None, "error", "ignore"):
        raise ConfigError(f"unknown: {unknown!r}, expected 'error' or 'ignore'.")
    given = {"missing": float(missing) if is_number else missing, "unknown": unknown}  # type: ignore[arg-type]
    return {key: value for key, value in given.items() if value is not None}


def with_reading(job: JobConf, url: str, reading: Mapping[str, Any]) -> JobConf:
    """Return the job with the keys of ``reading`` set in ``store_conf`` of layers that read tables.

    ``url`` names the records in errors; see `with_data`.
    """
    readers = [each for each in job.neuralnet.layer if issubclass(LAYERS.find(each.type), StoreInput)]
    tables = [each for each in readers if each.block(StoreConf).is_table] or readers
    confs = {each.name: _with_reading(each.block(StoreConf), url, reading) for each in tables}
    if not confs:
        raise ConfigError(f"{url}: {' and '.join(reading)}: the net has no layer that reads records.")
    return job.with_layers(
        [each.with_block(confs[each.name]) if each in tables else each for each in job.neuralnet.layer]
    )


def _with_reading(conf: StoreConf, url: str, reading: Mapping[str, Any]) -> StoreConf:
    if reading and not conf.is_table:
        raise ConfigError(f"{url}: {' and '.join(reading)}: only for a job that reads a table with named columns.")
    changes = dict(reading)
    if reading.get("missing", "error") != "error":
        # the key ``missing`` in the job file does not fill in whole columns, because a renamed column would go
        # unnoticed
        changes["user_conf"] = {**conf.user_conf, "fill_absent": True}
    return conf.model_copy(update=changes)


def with_data(
    job: JobConf,
    layers: Sequence[str],
    url: str,
    backend: str | None,
    outputs: bool = False,
    forecasts: Sequence[Any] | None = None,
    reading: Mapping[str, Any] = MappingProxyType({}),
) -> JobConf:
    """Return the job with input layers that read other records. Images are resized to the job's shape.

    Parameters
    ----------
    job : JobConf
    layers : sequence of str
        Names of the input layers.
    url : str
        URL of the records.
    backend : str or None
        Format of the records. None uses the job's format, or detects it.
    outputs : bool
        Whether to read labels and targets. If False, layers that read or need them are removed, and records with
        missing values are not skipped.
    forecasts : sequence, optional
        See `LagsConf.with_forecasts`.
    reading : mapping
        Keys of ``store_conf`` that replace the job's.

    Raises
    ------
    ConfigError
        A layer reads no store, the layers read several stores, or ``reading`` does not suit the records.
    """
    readers = [layer for layer in job.neuralnet.layer if layer.name in layers]
    for reader in readers:
        if not issubclass(LAYERS.find(reader.type), StoreInput):
            raise ConfigError(f"layer {reader.name!r}, a {reader.type}, reads no store, so it cannot read {url}.")
    paths = dict.fromkeys(reader.block(StoreConf).path for reader in readers)
    if len(paths) > 1:
        raise ConfigError(
            f"the net reads {' and '.join(paths)}, expected a net that reads one store, to replace it by {url}."
        )
    features = [reader for reader in readers if not traits_of(reader).reads_beside]
    for conf in (reader.block(StoreConf) for reader in features if len(features) > 1):
        found = backend or _format(url, conf)
        if conf.is_table and _is_positional(found, conf):
            names = ", ".join(reader.name for reader in features)
            raise ConfigError(f"{found} has no named columns, and the layers {names} read different ones. Use a table.")
    kept = [each for each in job.neuralnet.layer if outputs or each in readers or not traits_of(each).reads_beside]
    while len(fed := [each for each in kept if {other.name for other in kept}.issuperset(each.srclayers)]) < len(kept):
        kept = fed
    own = (url, backend, outputs, forecasts, reading)
    return job.with_layers([_reading(each, *own) if each in readers else each for each in kept])


def _reading(
    layer: LayerConf,
    url: str,
    backend: str | None,
    outputs: bool,
    forecasts: Sequence[Any] | None,
    reading: Mapping[str, Any],
) -> LayerConf:
    """Return an input layer with its store replaced; see `with_data`."""
    conf = _with_reading(layer.block(StoreConf), url, reading)
    backend = backend or _format(url, conf)
    changes: dict[str, object] = {"path": url, "backend": backend, "split": None}
    options = conf.user_conf
    if not outputs:
        changes["has_label"] = False
        if conf.missing == "skip":
            # if records were skipped, results could not be matched with records by their order
            changes["missing"] = "error"
    store = STORES.find(backend) if backend else None
    if _is_positional(backend, conf):
        # converted records already contain the table's features
        changes |= {key: StoreConf.model_fields[key].get_default() for key in NAMING}
    if backend and backend != conf.backend and backend in STORES.names():
        # drop options that the new format does not have
        known = STORES.find(backend).option_names()
        options = {name: value for name, value in options.items() if name in known}
    if conf.is_table and store is not None and store.is_named(conf.naming):
        own = {"fill_absent": conf.user_conf.get("fill_absent", False), "may_be_empty": not outputs}
        options = {**options, **{key: True for key, is_set in own.items() if is_set}}
    if not outputs and changes.get("texts", conf.texts):
        options = {**options, "blank_texts": True}
    if forecasts is not None and changes.get("lags", conf.lags):
        options = {**options, "forecasts": [*forecasts]}
    changes["user_conf"] = options
    channels, *size = conf.shape if len(conf.shape) == 3 else [1, *conf.shape]
    has_images = store is not None and store.holds == "images"
    if has_images and not conf.resize and len(size) == 2 and channels in (1, 3):
        changes |= {"resize": size, "channels": channels}
    if has_images:
        changes["layout"] = "NCHW"
    is_text = store.holds == "text" if store else url.lower().endswith(STORES.find("csv").suffixes)
    kind = {"type": "CSVInput" if is_text else "RecordInput"} if layer.type in ("CSVInput", "RecordInput") else {}
    return layer.with_block(conf.model_copy(update=changes)).model_copy(update=kind)


def _is_positional(backend: str, conf: StoreConf) -> bool:
    """Return whether the format is known, and its records have no named columns, unlike the job's."""
    return bool(backend) and not STORES.find(backend).is_named(conf.naming)


def _format(url: str, conf: StoreConf) -> str:
    """Return the format of the records at ``url``; empty if opening them has to detect it."""
    if url.lower().endswith(IMAGE_SUFFIXES):
        return "image-folder"
    if conf.backend == "image-list" and not fs.is_dir(url, conf.storage_options):
        # a list of images cannot be detected, because its first bytes look like any other text
        return "webdataset" if url.lower().endswith(".tar") else conf.backend
    try:
        backend = detect(url, conf.storage_options)
        return backend or ("" if fs.is_dir(url, conf.storage_options) else conf.backend)
    except DataError:
        # the file may exist only on the machines of the workers
        return ""


def _exposed(layer: LayerConf) -> LayerConf:
    """Return a layer without options that would make its values unreadable."""
    traits = traits_of(layer)
    if traits.role != "loss" or compares_targets(layer):
        return layer.model_copy(update={"share_src_blobs": False})
    first = {
        key: value[:1] for key in ("srclayers", "unroll_conn_type", "shift") if (value := list(getattr(layer, key)))
    }
    kind = "Softmax" if traits.predicts == "classes" else "Sigmoid"
    return layer.model_copy(update={"type": kind, "softmaxloss_conf": None, "share_src_blobs": False, **first})
