"""Nets of inference: their jobs, and the nets with values of checkpoints, built as far as needed, batch by batch."""

from __future__ import annotations

import contextlib
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from singa_dask import fs, modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import ClusterConf, JobConf, LayerConf, Phase
from singa_dask.conf.wiring_rules import check_phases, read_wiring
from singa_dask.data.stores import STORES, detect
from singa_dask.data.stores.class_names import ClassNames
from singa_dask.data.stores.image_decoding import IMAGE_SUFFIXES
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, DataError, Problem, SingaError, UnitError
from singa_dask.layers import LAYERS, Layer, StoreInput, Traits
from singa_dask.layers.metrics import Totals
from singa_dask.layers.open_records import table_or
from singa_dask.layers.outputs import Writer
from singa_dask.layers.store_conf import NAMING, StoreConf
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Array, Ops
from singa_dask.registry import suggest
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.planning.absolute_paths import absolute_paths
from singa_dask.runtime.planning.devices import explain_memory_errors
from singa_dask.runtime.planning.machine import ThreadPools, n_threads
from singa_dask.runtime.planning.nets import IN_ORDER, build_net, with_batchsize, with_stores
from singa_dask.runtime.planning.whole_pass import is_sequential
from singa_dask.training import ALGORITHMS, Algorithm
from singa_dask.training.pass_metrics import PassMetrics, State

# Derive the job of an inference: the net of one phase, for one worker, with other ways to read records.


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


def with_data(
    job: JobConf,
    layers: Sequence[str],
    url: str,
    backend: str | None,
    outputs: bool = False,
    forecasts: Sequence[Any] | None = None,
) -> JobConf:
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
    forecasts : sequence, optional
        See `LagsConf.with_forecasts`.

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
    own = (url, backend, outputs, forecasts)
    return job.with_layers([_reading(each, *own) if each in readers else each for each in kept])


def _reading(
    layer: LayerConf, url: str, backend: str | None, outputs: bool, forecasts: Sequence[Any] | None
) -> LayerConf:
    """Return an input layer that reads other records."""
    conf = layer.block(StoreConf)
    backend = table_or(backend or _format(url, conf), conf)
    changes: dict[str, object] = {"path": url, "backend": backend, "split": None}
    options = conf.user_conf
    if not outputs:
        changes["has_label"] = False
        if conf.missing == "skip":
            # results would not be those of the records in their order
            changes["missing"] = "error"
    store = STORES.find(backend) if backend else None
    if store is not None and backend != "table" and not store.table_format:
        # records that were converted from a table are its features
        changes |= {key: StoreConf.model_fields[key].get_default() for key in NAMING}
    if backend and backend != conf.backend and backend in STORES.names():
        # options of the job's format are not those of another
        known = STORES.find(backend).option_names()
        options = {name: value for name, value in options.items() if name in known}
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


def _format(url: str, conf: StoreConf) -> str:
    """Return the format of new records; empty if it is to be detected when they are opened."""
    if url.lower().endswith(IMAGE_SUFFIXES):
        # also for a pattern
        return "image-folder"
    if conf.backend == "image-list" and not fs.is_dir(url, conf.storage_options):
        # looks like any other text
        return "webdataset" if url.lower().endswith(".tar") else conf.backend
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


def has_values(job: JobConf, phase: Phase, layer: str) -> bool:
    """Return whether a layer has values to predict, of which none excludes another: no probabilities of classes.

    They are compared with targets, or are a probability for each of several labels, any number of which a record may
    have.
    """
    has_labels = any(each.name == layer and _traits(each).predicts == "labels" for each in job.neuralnet.layer)
    return has_labels or bool(_compared_by(job, phase, layer))


def _compared_by(job: JobConf, phase: Phase, layer: str) -> str:
    """Return the first loss that compares the values of a layer with targets; empty if there is none."""
    losses = (layer for layer in _layers_of(job, phase).values() if _traits(layer).is_loss)
    return next((loss.name for loss in losses if _compares(loss) and layer in loss.srclayers[:1]), "")


def forecasts_itself(job: JobConf, phase: Phase, layers: Sequence[str]) -> bool:
    """Return whether one layer predicts the only column that records have lags of, so that further ones follow."""
    stores = [store for each in _layers_of(job, phase).values() if (store := each.given_block(StoreConf))]
    columns = {name for store in stores if store.lags for name in store.lags.columns}
    outputs = {name for store in stores for name in (*store.label_columns, *store.target)}
    return len(columns) == 1 and columns == outputs and [*layers] == [predicted_layer(job, phase)]


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


SharedValues = dict[str, tuple[Array, int]]
"""Values and version of params, by name."""


def build(
    job: JobConf,
    phase: Phase,
    layers: Sequence[str] = (),
    labels: bool = True,
    topk: int = 0,
    ops: Ops | None = None,
) -> NeuralNet:
    """Build the net of a phase, shapes only; if layers are named, only those that they need.

    With ``labels`` all input layers stay. Layers that learn without a loss stay together. Each layer must have at least
    ``topk`` values. ``ops`` are the kernels of the net, if it is to be computed.

    Raises
    ------
    ConfigError
        All errors in wiring and shapes; or a layer does not exist.
    """
    net = build_net(job, phase, ops)
    known = {layer.conf_name: layer for layer in net.layers}
    for name in layers:
        if name not in known:
            raise ConfigError(f"layer {name!r} is not in the net of this phase. {suggest(name, known)}")
        if len(known[name].features) != 1:
            raise ConfigError(f"layer {name!r} has {len(known[name].features)} outputs, expected one.")
        if topk > known[name].features[0].size:
            raise ConfigError(f"layer {name!r} has {known[name].features[0].size} classes, expected {topk} at least.")
    if layers and not any(layer.traits.learns_without_loss for layer in net.layers):
        home = {feature: layer for layer in net.layers for feature in layer.features}
        waiting = [layer for layer in net.layers if layer.conf_name in layers]
        needed = {layer for layer in net.layers if layer.traits.is_input and labels}
        while waiting:
            layer = waiting.pop()
            if layer not in needed:
                needed.add(layer)
                waiting += [home[source] for source in layer.sources]
        net.leave_out(layer for layer in net.layers if layer not in needed)
    for layer in net.layers:
        if layer.conf_name in layers:
            layer.features[0].consumed_as.add("data")
    return net


def fill(net: NeuralNet, initial: InitialValues, shared: SharedValues | None = None) -> int:
    """Set the params of a net to the values of checkpoints; return the highest version of a param.

    ``shared`` are the values of params in other nets of the same checkpoints, which this net uses too.

    Raises
    ------
    CheckpointError
        Values of a param are missing, or have another shape.
    """
    known = {} if shared is None else shared
    owners = {param.owner.name: param.owner for layer in net.layers for param in layer.params}
    missing = {name: owner for name, owner in owners.items() if name not in known}
    if missing:
        initial.check(((name, owner.shape) for name, owner in missing.items()), complete=True)
    for name, owner in missing.items():
        values, version = initial.get(name, owner.shape)
        data = net.ops.empty(owner.shape, owner.dtype)
        net.ops.copy(np.ascontiguousarray(values, owner.dtype), out=data)
        known[name] = data, version
    for name, owner in owners.items():
        owner.data = known[name][0]
    return max((known[name][1] for name in owners), default=0)


class ReadyNet:
    """A net with memory and the values of checkpoints, which computes one batch of records after the other.

    Its input layers read the records themselves, or are fed with them before each batch.

    Parameters
    ----------
    net : NeuralNet
        Of `build`.
    job : JobConf
    initial : InitialValues
    shared : SharedValues, optional
        See `fill`.

    Raises
    ------
    CheckpointError
        See `fill`.
    NumericError
        A param is not finite.
    """

    def __init__(
        self, net: NeuralNet, job: JobConf, initial: InitialValues, shared: SharedValues | None = None
    ) -> None:
        self.net = net
        net.allocate()
        # the random numbers are those of a test at the step of the checkpoint
        net.context.step = fill(net, initial, shared)
        conf = job.train_one_batch
        self._algorithm: Algorithm = ALGORITHMS.find(conf.alg)(net, _no_server, _no_server, conf)
        self._algorithm.check_params()

    def compute(self, phase: Phase, of_pass: PassMetrics | None) -> None:
        """Compute the next batch, and add it to the metrics of a pass."""
        with locate_errors(lambda: f"layer {self._algorithm.layer.name if self._algorithm.layer else '?'}"):
            self._algorithm.test_one_batch(phase)
        if of_pass is not None:
            of_pass.add(self.net)


def _no_server(*_: object) -> None:
    """Take the place of the exchange with servers."""


def keep_outputs(net: NeuralNet, name: str, labels: bool, topk: int, label_layer: str = "") -> Arrays:
    """Copy the values of a layer for a batch, of shape (records, time steps, ...) if there are several steps.

    Labels are those of ``label_layer``, or else of the first input layer that has some.
    """
    pieces = []
    for layer in net.layers:
        if layer.conf_name == name:
            feature = layer.features[0]
            values = np.asarray(layer.ops.to_host(feature.data), np.float32)
            pieces.append(values.reshape(layer.site.n_steps, -1, *feature.shape[1:]))
    steps = np.concatenate(pieces)
    values = steps[0] if len(steps) == 1 else steps.swapaxes(0, 1)
    if topk:
        values = _top(values.reshape(len(values), len(steps), -1), topk)
    arrays: Arrays = {"data": np.array(values.reshape(len(values), *(values.shape[1:] or (1,))), np.float32, order="C")}
    inputs = [layer for layer in net.layers if layer.traits.is_input and labels]
    candidates = [layer.features[0].labels for layer in sorted(inputs, key=lambda each: each.conf_name != label_layer)]
    own_labels = next((each for each in candidates if each is not None and np.shape(each) == (len(values),)), None)
    if own_labels is not None:
        arrays["label"] = np.array(own_labels, np.int32)
    return arrays


def _top(scores: Any, n: int) -> Any:
    """Return (index, value) of the ``n`` highest scores of each record; of equal ones the higher index first."""
    indices = np.argsort(scores, axis=-1, kind="stable")[..., ::-1][..., :n]
    pairs = np.stack([indices.astype(np.float32), np.take_along_axis(scores, indices, -1)], axis=-1)
    return pairs.reshape(len(scores), -1)


class MetricSums(NamedTuple):
    """What some batches have measured: metrics of each batch, and the state of a `PassMetrics` of all of them."""

    metrics: list[Totals]
    state: State


def load_modules(sources: Sequence[modules.Source]) -> None:
    """Load the user's modules; if there are none, keep those that are loaded."""
    if sources:
        modules.load(sources, REGISTRIES.values())


@contextlib.contextmanager
def locate_errors(where: Callable[[], str]) -> Iterator[None]:
    """Turn other exceptions into a `UnitError` that says where they happened, in the user's code if it was there."""
    try:
        yield
    except Exception as error:
        blamed = modules.blame(error)
        if blamed is not None:
            raise UnitError(f"{blamed.place}: {blamed.text} ({where()})\n{blamed.traceback.rstrip()}") from None
        if isinstance(error, SingaError):
            raise
        trace = traceback.format_exc().rstrip()
        raise UnitError(f"{where()}: {type(error).__name__}: {error}\n{trace}") from None


# nets of other batch sizes than the job's: the last batch of an array, arrays of a few records
MAX_SIZES = 8


@dataclass
class Trained:
    """What all nets of a checkpoint share.

    Attributes
    ----------
    initial : InitialValues
    ops : Ops
        Kernels that compute the nets.
    shared : SharedValues
        Filled by the nets.
    """

    initial: InitialValues
    ops: Ops
    shared: SharedValues = field(default_factory=dict)

    @cached_property
    def class_names(self) -> ClassNames:
        """Class names and facts of tables in the checkpoint."""
        return ClassNames(self.initial.learned())


class TrainedNet:
    """The net of a phase with the values of a checkpoint, computed on records in memory. Used by one thread at a time.

    There is a net for each size of batch; the last few are kept. All of them share their values.

    Parameters
    ----------
    job : JobConf
        Of `inference_job`.
    phase : Phase
    trained : Trained
    layers : sequence of str
        Layers whose values are wanted: only those that they need are computed. If empty, all layers, for the metrics,
        but those that write files.

    Attributes
    ----------
    shapes : NeuralNet
        Shapes only.
    inputs : dict of str to StoreInput
        Input layers by name, of ``shapes``.
    batchsize : int
        Of the job.
    sequential : str
        A layer that needs all batches in order; empty if there is none.

    Raises
    ------
    ConfigError
        The net cannot be built, or reads something other than records of stores.
    """

    def __init__(self, job: JobConf, phase: Phase, trained: Trained, layers: Sequence[str] = ()) -> None:
        self._job, self._phase, self._trained, self._layers = job, phase, trained, tuple(layers)
        self._sized: OrderedDict[int, ReadyNet] = OrderedDict()
        self._pools, self._n_threads = ThreadPools(), n_threads(job, 1)
        self.shapes = self._build(job)
        self.shapes.context.class_names = trained.class_names
        inputs = [layer for layer in self.shapes.layers if layer.traits.is_input]
        self.inputs = {layer.conf_name: layer for layer in inputs if isinstance(layer, StoreInput)}
        if len(self.inputs) < len(inputs):
            others = [f"{each.conf_name!r}, a {each.conf.type}" for each in inputs if not isinstance(each, StoreInput)]
            found = ", ".join(others) or "copies of an input layer"
            raise ConfigError(f"the net reads {found}. Expected layers that read stores, to feed them with arrays.")
        sizes = {layer.batch_size for layer in self.inputs.values()}
        if len(sizes) != 1:
            raise ConfigError(f"the input layers have batches of {sorted(sizes)} records. Expected one size.")
        self.batchsize = sizes.pop()
        self.sequential = next((layer.conf_name for layer in self.shapes.layers if is_sequential(layer)), "")

    def layer(self, name: str) -> Layer:
        """Return a layer, for its shapes; one of its copies in an unrolled net."""
        return next(each for each in self.shapes.layers if each.conf_name == name)

    def batches(self, n: int) -> Iterator[tuple[int, int]]:
        """Yield first and last record, plus 1, of the batches that ``n`` records make: those of the command line.

        Raises
        ------
        ConfigError
            A layer needs whole batches, and there is a rest.
        """
        if self.sequential and n % self.batchsize:
            raise ConfigError(
                f"layer {self.sequential!r} takes batches of {self.batchsize} only, and there are {n} records."
            )
        return ((first, min(first + self.batchsize, n)) for first in range(0, n, self.batchsize))

    def compute(self, arrays: Mapping[str, Arrays], n: int, first: int) -> dict[str, Arrays]:
        """Compute a batch; return ``data`` of each of the layers.

        Parameters
        ----------
        arrays : mapping of str to dict of ndarray
            For each input layer the fields of the records.
        n, first : int
            Number of records, and index of the first one; 0 begins a new stream of records.
        """
        with self._computed(arrays, n, first, None) as net:
            return {name: keep_outputs(net, name, False, 0) for name in self._layers}

    def measure(self, arrays: Mapping[str, Arrays], n: int, first: int, of_pass: PassMetrics) -> Totals:
        """Compute a batch, see `compute`, and add it to the metrics of a pass; return its own."""
        with self._computed(arrays, n, first, of_pass) as net:
            return net.take_metrics(n / self.batchsize)

    @contextmanager
    def _computed(
        self, arrays: Mapping[str, Arrays], n: int, first: int, of_pass: PassMetrics | None
    ) -> Iterator[NeuralNet]:
        ready = self._net(n)
        with self._computing(ready.net):
            if not first:
                ready.net.context.states.clear()
            for layer in ready.net.layers:
                if isinstance(layer, StoreInput):
                    layer.feed(arrays[layer.conf_name], first)
            ready.compute(self._phase, of_pass)
            yield ready.net

    def pass_metrics(self, names: Sequence[str] | None = None) -> PassMetrics:
        """Return metrics by name, by default those of the job, to add batches to."""
        return PassMetrics(self.shapes, self._job.metrics if names is None else names)

    def _net(self, n: int) -> ReadyNet:
        """Return the net for batches of ``n`` records."""
        if n not in self._sized:
            if len(self._sized) == MAX_SIZES:
                _, oldest = self._sized.popitem(last=False)
                oldest.net.close()
            self._sized[n] = self._make(n)
        self._sized.move_to_end(n)
        return self._sized[n]

    def _make(self, n: int) -> ReadyNet:
        net = self._build(with_batchsize(self._job, n), self._trained.ops)
        net.context.class_names = self._trained.class_names
        with self._computing(net), locate_errors(lambda: "the net"):
            for layer in net.layers:
                if isinstance(layer, StoreInput):
                    layer.read_statistics()
            ready = ReadyNet(net, self._job, self._trained.initial, self._trained.shared)
        self._trained.initial.release()
        # a layer may have loaded others
        self._pools = ThreadPools()
        return ready

    def _build(self, job: JobConf, ops: Ops | None = None) -> NeuralNet:
        net = build(job, self._phase, self._layers, labels=not self._layers, ops=ops)
        net.leave_out([layer for layer in net.layers if isinstance(layer, Writer)])
        return net

    @contextmanager
    def _computing(self, net: NeuralNet) -> Iterator[None]:
        limits, ops = self._pools.limit(self._n_threads), self._trained.ops
        with limits, explain_memory_errors(lambda: [net]), ops.activate():
            yield
