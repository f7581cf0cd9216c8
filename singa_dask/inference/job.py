"""Derive the job of an inference: the net of one phase, for one worker, with other ways to read records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from singa_dask import fs
from singa_dask.conf import ClusterConf, JobConf, LayerConf, Phase
from singa_dask.conf.net import check_phases, read_wiring
from singa_dask.data import STORES, detect
from singa_dask.data.stores.image import IMAGE_SUFFIXES
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.layers import LAYERS, StoreInput, Traits
from singa_dask.layers.records import StoreConf
from singa_dask.runtime.planning.nets import IN_ORDER, absolute_paths, with_stores

NAMES = {Phase.TRAIN: "train", Phase.VALIDATION: "val", Phase.TEST: "test"}


@dataclass(frozen=True)
class PhaseJob:
    """A job with only the layers of one phase.

    Attributes
    ----------
    job : JobConf
    phase : Phase
        Phase to build its net for; never training.
    indices : tuple of int
        Index of each layer in the original job.
    """

    job: JobConf
    phase: Phase
    indices: tuple[int, ...]

    def locate(self, error: ConfigError) -> ConfigError:
        """Return the same error with paths of the original job."""
        problems = []
        for problem in error.problems:
            path = problem.path
            if path[:2] == ("neuralnet", "layer") and len(path) > 2 and isinstance(path[2], int):
                path = (*path[:2], self.indices[path[2]], *path[3:])
            problems.append(Problem(path, problem.message))
        return ConfigError(problems)


def inference_job(job: JobConf, phase: Phase, *, in_order: bool, exposed: bool = False) -> PhaseJob:
    """Return the job with only the layers of a phase, for one worker.

    Parameters
    ----------
    job : JobConf
    phase : Phase
        TRAIN, VALIDATION or TEST. The net of TRAIN runs as in a test.
    in_order : bool
        Read records in file order from the first one; else as the job says.
    exposed : bool
        Keep the values of all layers readable: replace each SoftmaxLoss by a Softmax, and each SigmoidCrossEntropyLoss
        by a Sigmoid, which need no labels; let no layer overwrite another's values, and let no record replace one that
        cannot be read.

    Raises
    ------
    ConfigError
        The net of this phase is empty or lacks layers.
    """
    name = NAMES[phase]
    problems = [
        Problem(("neuralnet", "layer", *path), message)
        for path, message in check_phases(read_wiring(job.neuralnet), [name])
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
        # batchsize can have a number for each worker
        return {**reading, "batchsize": [sum(store.batchsize)] if store.batchsize else []}

    never = {"train_steps": 0, "test_freq": 0, "validate_freq": 0, "early_stopping": None, "keep_checkpoints": None}
    derived = with_stores(job.with_layers(layers), for_one).model_copy(update={"cluster": ClusterConf(), **never})
    return PhaseJob(absolute_paths(derived), Phase.TEST if phase == Phase.TRAIN else phase, tuple(indices))


def with_data(job: JobConf, layers: Sequence[str], url: str, backend: str | None, outputs: bool = False) -> JobConf:
    """Return the job with input layers that read other records.

    Parameters
    ----------
    layers : sequence of str
        Names of the input layers.
    backend : str or None
        Detected from the file if None, else that of the job. Images are resized to the shape of the job's records.
    outputs : bool
        Whether labels and targets are read; else the layers that read them, and need them, are left out, and no record
        is skipped for a missing value.

    Raises
    ------
    ConfigError
        A layer does not read a store, or they read several.
    """
    readers = [layer for layer in job.neuralnet.layer if layer.name in layers]
    for reader in readers:
        if not issubclass(LAYERS.find(reader.type), StoreInput):
            raise ConfigError(f"layer {reader.name!r}, a {reader.type}, reads no store, so it cannot read {url}.")
    paths = dict.fromkeys(reader.block(StoreConf).path for reader in readers)
    if len(paths) > 1:
        raise ConfigError(f"the net reads {' and '.join(paths)}, expected one store, to read {url}.")
    kept = [each for each in job.neuralnet.layer if outputs or each in readers or not _traits(each).reads_beside]
    while len(fed := [each for each in kept if {other.name for other in kept}.issuperset(each.srclayers)]) < len(kept):
        kept = fed
    return job.with_layers([_reading(each, url, backend, outputs) if each in readers else each for each in kept])


def _reading(layer: LayerConf, url: str, backend: str | None, outputs: bool) -> LayerConf:
    """Return an input layer that reads other records."""
    conf = layer.block(StoreConf)
    backend = backend or _format(url, conf)
    changes: dict[str, object] = {"path": url, "backend": backend}
    if not outputs:
        changes["has_label"] = False
        if conf.missing == "skip":
            # results would not be those of the records in their order
            changes["missing"] = "error"
    store = STORES.find(backend) if backend else None
    if store is not None and backend != "table" and not store.table_format:
        # records that were converted from a table are its features
        changes |= {"features": [], "label": [], "target": [], "weight": "", "missing": "error", "categories": {}}
    if backend and backend != conf.backend and backend in STORES.names():
        # options of the job's format are not those of another
        known = STORES.find(backend).option_names()
        changes["user_conf"] = {name: value for name, value in conf.user_conf.items() if name in known}
    channels, *size = conf.shape if len(conf.shape) == 3 else [1, *conf.shape]
    has_images = store is not None and store.holds == "images"
    if has_images and not conf.resize and len(size) == 2 and channels in (1, 3):
        changes |= {"resize": size, "channels": channels}
    if has_images:
        changes["layout"] = "NCHW"
    is_text = store.holds == "text" if store else url.lower().endswith(STORES.find("csv").suffixes)
    kind = {"type": "CSVInput" if is_text else "RecordInput"} if layer.type in ("CSVInput", "RecordInput") else {}
    return layer.with_block(conf.model_copy(update=changes)).model_copy(update=kind)


def _format(url: str, conf: StoreConf) -> str:
    """Return the format of new records; empty if it is to be detected when they are opened."""
    if url.lower().endswith(IMAGE_SUFFIXES):
        # also for a pattern
        return "image-folder"
    if conf.backend == "image-list" and not fs.is_dir(url, conf.storage_options):
        # looks like any other text
        return conf.backend
    try:
        backend = detect(url, conf.storage_options)
        return backend or ("" if fs.is_dir(url, conf.storage_options) else conf.backend)
    except DataError:
        # the file may exist only on the workers
        return ""


def _traits(layer: LayerConf) -> Traits:
    return LAYERS.find(layer.type).traits


def predicts_classes(layer: LayerConf) -> bool:
    """Return whether a layer has the probabilities of classes."""
    return _traits(layer).predicts == "classes"


def is_class_loss(layer: LayerConf) -> bool:
    """Return whether a layer is a loss that has them."""
    return predicts_classes(layer) and _traits(layer).is_loss


def _layers_of(job: JobConf, phase: Phase) -> dict[str, LayerConf]:
    """Return the layers of the net of a phase by name."""
    return {layer.name: layer for layer in job.neuralnet.layer if layer.in_phase(phase)}


def _only(names: Sequence[str], what: str) -> str:
    if len(names) == 1:
        return names[0]
    raise ConfigError(f"expected one layer with {what}, found: {', '.join(names) or 'none'}. Say which layer.")


def classifier(job: JobConf, phase: Phase) -> str:
    """Return the layer with the class probabilities in a phase: the only SoftmaxLoss, or the only Softmax.

    Raises
    ------
    ConfigError
        There is none, or there are several.
    """
    with_classes = [layer for layer in _layers_of(job, phase).values() if predicts_classes(layer)]
    losses = [layer.name for layer in with_classes if is_class_loss(layer)]
    return _only(losses if len(losses) == 1 else [layer.name for layer in with_classes], "the probabilities of classes")


def output_layers(job: JobConf, phase: Phase) -> list[str]:
    """Return the layers with the values that a net was trained for, in a phase.

    They are the losses that compute probabilities, and what other losses compare; without a loss, the layers that no
    other one reads.
    """
    layers = _layers_of(job, phase)
    traits = {name: _traits(layer) for name, layer in layers.items()}
    losses = sorted((each for name, each in layers.items() if traits[name].is_loss), key=_compares)
    if losses:
        compared = (
            next((source for source in loss.srclayers if _compares(loss) and not traits[source].is_input), loss.name)
            for loss in losses
        )
        return list(dict.fromkeys(compared))
    # those that sort scores, count and write files are for people
    ends = [name for name in layers if not (traits[name].is_input or traits[name].is_output)]
    return [name for name in ends if not any(name in layers[other].srclayers for other in ends)]


def _compares(loss: LayerConf) -> bool:
    """Return whether a loss only compares values, and does not compute probabilities too."""
    return _traits(loss).predicts not in ("classes", "labels")


def output_layer(job: JobConf, phase: Phase) -> str:
    """Return the layer with the values that a net computes in a phase, where it has no `classifier`.

    Raises
    ------
    ConfigError
        There is none, or there are several `output_layers`.
    """
    return _only(output_layers(job, phase), "the values to predict")


def predicted_layer(job: JobConf, phase: Phase) -> str:
    """Return the layer with what a net predicts in a phase: its `classifier`, or else its `output_layer`.

    Raises
    ------
    ConfigError
        There is none, or there are several.
    """
    if any(map(predicts_classes, _layers_of(job, phase).values())):
        return classifier(job, phase)
    return output_layer(job, phase)


def has_classes(job: JobConf, layer: str) -> bool:
    """Return whether a layer has the probabilities of classes."""
    return any(each.name == layer and predicts_classes(each) for each in job.neuralnet.layer)


def has_labels(job: JobConf, layer: str) -> bool:
    """Return whether a layer has a probability for each of several labels, any number of which a record may have."""
    return any(each.name == layer and _traits(each).predicts == "labels" for each in job.neuralnet.layer)


def has_values(job: JobConf, phase: Phase, layer: str) -> bool:
    """Return whether a layer has values to predict, of which none excludes another: no probabilities of classes."""
    return has_labels(job, layer) or bool(_compared_by(job, phase, layer))


def _compared_by(job: JobConf, phase: Phase, layer: str) -> str:
    """Return the first loss that compares the values of a layer with targets; empty if there is none."""
    losses = (layer for layer in _layers_of(job, phase).values() if _traits(layer).is_loss)
    return next((loss.name for loss in losses if _compares(loss) and layer in loss.srclayers[:1]), "")


def target_names(job: JobConf, phase: Phase, layer: str) -> tuple[str, ...]:
    """Return the columns that a loss compares the values of a layer of a net with; empty if they have no names."""
    layers = _layers_of(job, phase)
    loss = layers.get(_compared_by(job, phase, layer) or layer)
    targets = layers.get(loss.srclayers[1]) if loss and len(loss.srclayers) > 1 else None
    store = targets.given_block(StoreConf) if targets else None
    return tuple(store.target) if store else ()


def label_layer(job: JobConf, phase: Phase, layer: str) -> str:
    """Return the input layer whose labels are the classes of a layer of a net; empty if no SoftmaxLoss compares them.

    ``layer`` is a SoftmaxLoss, or has the scores of one or their probabilities.
    """
    layers = _layers_of(job, phase)
    scores = {layer, *(layers[layer].srclayers[:1] if layer in layers and predicts_classes(layers[layer]) else ())}
    for loss in layers.values():
        if is_class_loss(loss) and len(loss.srclayers) > 1 and (loss.name == layer or loss.srclayers[0] in scores):
            name = loss.srclayers[1]
            for _ in layers:
                # layers between pass labels on
                sources = layers[name].srclayers if name in layers else []
                name = sources[0] if sources else name
            return name
    return ""


def _exposed(layer: LayerConf) -> LayerConf:
    """Return a layer whose values can be read."""
    traits = _traits(layer)
    if not traits.is_loss or _compares(layer):
        return layer.model_copy(update={"share_src_blobs": False})
    first = {
        key: value[:1] for key in ("srclayers", "unroll_conn_type", "shift") if (value := list(getattr(layer, key)))
    }
    kind = "Softmax" if traits.predicts == "classes" else "Sigmoid"
    return layer.model_copy(update={"type": kind, "softmaxloss_conf": None, "share_src_blobs": False, **first})
