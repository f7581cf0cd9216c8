"""Change a job in SINGA's format so that it computes the same as SINGA.

`apply_rules` adds SINGA's defaults where the defaults of this package differ, and replaces SINGA's deprecated input
layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import ValidationError

from singa_dask.conf.base import Conf
from singa_dask.conf.files.tree import Items, Scalar, Tree, TreeEntry, TreeMap, child, items, locate, named, plain, text
from singa_dask.conf.kinds import Count, Positive, Size, phase_name, plain_name
from singa_dask.conf.mistakes import MISPLACED_KEY
from singa_dask.errors import Mark, Problem


class ShardDataConf(Conf):
    """``sharddata_conf``: SINGA's deprecated data layer (DataProto)."""

    path: str
    """Folder or file of the records."""
    batchsize: Size
    """Records per step of the whole worker group."""
    random_skip: Count = 0
    """Start at a random record among this number of first records."""


class LMDBDataConf(ShardDataConf):
    """``lmdbdata_conf``: SINGA's deprecated LMDB layer (DataProto)."""


class MnistConf(Conf):
    """``mnist_conf``: SINGA's deprecated parser of digit images, without its unused keys for distortions."""

    norm_a: Positive = 1.0
    """Divides each pixel."""
    norm_b: float = 0.0
    """Subtracted after the division."""


DEPRECATED: dict[str, type[Conf]] = {each.block_key: each for each in (LMDBDataConf, MnistConf, ShardDataConf)}


LABEL_READERS = {"SoftmaxLoss", "CudnnSoftmaxLoss", "Accuracy", "CSVOutput", "RecordOutput"}


def apply_rules(root: TreeMap) -> list[Problem]:
    """Change a job so that it computes what SINGA does; return the problems in replaced blocks."""
    _set_steps(root)
    _set_updater(root)
    layers = _layers(root)
    validates = _runs(root, "validate")
    for layer in layers:
        _set_layer(layer, validates)
    _part_test_net(root, layers)
    problems = _replace_deprecated(root, layers) + _refuse_hdfsfile(layers)
    _set_labels(layers)
    return problems


# -- reading and changing blocks ---------------------------------------------------------------------------------


def _inner(block: TreeMap, key: str) -> TreeMap:
    """Return the block under a key, creating an empty one if necessary."""
    node = block.entries.setdefault(key, TreeEntry(block.place, TreeMap(block.place, {}))).node
    return node if isinstance(node, TreeMap) else TreeMap(block.place, {})


def _layers(root: TreeMap) -> list[TreeMap]:
    return [layer for layer in items(child(root, "neuralnet", "layer")) if isinstance(layer, TreeMap)]


def _type(block: Tree | None) -> str:
    return plain_name(text(child(block, "type")))


def _sources(layer: TreeMap) -> Iterator[Scalar]:
    return (node for node in items(child(layer, "srclayers")) if isinstance(node, Scalar))


def _put(block: TreeMap, key: str, value: bool | int | float | str | list[int], place: Mark | None = None) -> None:
    """Set a key, unless it is set."""
    at = place or block.place
    node = Items(at, [Scalar(at, each) for each in value]) if isinstance(value, list) else Scalar(at, value)
    block.entries.setdefault(key, TreeEntry(at, node))


def _drop(block: Tree | None, *keys: str) -> None:
    if isinstance(block, TreeMap):
        for key in keys:
            block.entries.pop(key, None)


# -- defaults and rules that differ ------------------------------------------------------------------------------


def _set_steps(root: TreeMap) -> None:
    """Set SINGA's default of 0 batches for tests and validations."""
    for phase in ("test", "validate"):
        if entry := root.entries.get(f"{phase}_freq"):
            _put(root, f"{phase}_steps", 0, entry.place)


def _set_updater(root: TreeMap) -> None:
    """Set the options with which updaters and schedules compute the same as in SINGA."""
    updater = child(root, "updater")
    rate = child(updater, "learning_rate")
    if isinstance(rate, TreeMap) and _type(rate) == "Linear" and "linear_conf" in rate.entries:
        _put(_inner(rate, "linear_conf"), "clamp", False)
    if isinstance(rate, TreeMap) and _type(rate) == "Inverse":
        _inner(rate, "inverse_conf")
    if not isinstance(updater, TreeMap):
        return
    kind = _type(updater)
    if kind in ("Adam", "AdamMax"):
        _put(_inner(updater, f"{kind.lower()}_conf"), "bias_correction", False)
    if kind in ("AdaDelta", "Adam", "AdamMax"):
        _drop(updater, "clip_low", "clip_high")
    if kind == "AdaGrad":
        _drop(updater, "delta")


def _set_layer(layer: TreeMap, validates: bool) -> None:
    """Remove keys that SINGA ignores, and make its implicit behaviour explicit."""
    kind = _type(layer)
    excluded = child(layer, "exclude")
    if isinstance(excluded, Items) and not validates:
        # SINGA checks names only in nets that it builds, and old jobs do not validate
        excluded.items.append(Scalar(excluded.place, "val"))
    _drop(child(layer, "relu_conf"), "negative_slope")
    _drop(child(layer, "softmax_conf"), "num_softmax_per_instance")
    if kind == "ImagePreprocess":
        _drop(child(layer, "rgbimage_conf"), "meanfile")
    if kind == "Pooling":
        _put(_inner(layer, "pooling_conf"), "ties", "all")
    backend = child(layer, "store_conf", "backend")
    if kind == "CSVInput" and isinstance(backend, Scalar) and backend.value == "textfile":
        backend.value = "csv"
    params = items(child(layer, "param"))
    for param in params:
        shared = child(param, "share_from")
        if isinstance(shared, Scalar) and isinstance(shared.value, str):
            shared.value = shared.value.removeprefix("0#")
    # a param for the bias means that the layer has one, whatever bias_term is
    first_bias = 6 if kind == "GRU" else 1
    if len(params) > first_bias:
        for name in ("innerproduct_conf", "convolution_conf", "rbm_conf", "gru_conf"):
            _drop(child(layer, name), "bias_term")
    elif kind == "GRU" and isinstance(block := child(layer, "gru_conf"), TreeMap):
        _drop(block, "bias_term")
        _put(block, "bias_term", False)


def _refuse_hdfsfile(layers: list[TreeMap]) -> list[Problem]:
    """Refuse SINGA's format of records on HDFS."""
    problems = []
    for index, layer in enumerate(layers):
        backend = child(layer, "store_conf", "backend")
        if isinstance(backend, Scalar) and backend.value == "hdfsfile":
            message = (
                "SINGA's format of records on HDFS is not supported. Copy the original kvfile to HDFS, and set "
                'backend: "kvfile" with its hdfs:// path.'
            )
            problems.append(Problem(("neuralnet", "layer", index, "store_conf", "backend"), message, backend.place))
            backend.value = "kvfile"
    return problems


def _runs(root: TreeMap, phase: str) -> bool:
    """Return whether SINGA builds the net of tests or validations."""
    return all(isinstance(n := child(root, f"{phase}_{key}"), Scalar) and n.value for key in ("freq", "steps"))


def _part_test_net(root: TreeMap, layers: list[TreeMap]) -> None:
    """Exclude layers of the training net from a test net that SINGA does not build, if names would clash.

    In old jobs, the data layers of training and validation have the same name, and each excludes only the other phase.
    """
    if _runs(root, "test") or not any(_phases(layer, "exclude") for layer in layers):
        return
    tested = [layer for layer in layers if "test" not in _phases(layer, "exclude") and not _phases(layer, "include")]
    names = [named(layer) for layer in tested]
    for layer in tested:
        excluded = child(layer, "exclude")
        if names.count(named(layer)) > 1 and isinstance(excluded, Items) and "train" not in _phases(layer, "exclude"):
            excluded.items.append(Scalar(excluded.place, "test"))


def _phases(layer: TreeMap, key: str) -> set[object]:
    return {phase_name(node.value) for node in items(child(layer, key)) if isinstance(node, Scalar)}


def _set_labels(layers: list[TreeMap]) -> None:
    """Read labels only if a layer uses them, as SINGA allows records without labels."""
    wanted = {
        source.value
        for layer in layers
        if _type(layer) in LABEL_READERS or "." in _type(layer)
        for source in _sources(layer)
    }
    for layer in layers:
        if _type(layer) == "RecordInput":
            store = _inner(layer, "store_conf")
            _drop(store, "has_label")
            if named(layer) not in wanted:
                _put(store, "has_label", False)


# -- deprecated input layers -------------------------------------------------------------------------------------


def _replace_deprecated(root: TreeMap, layers: list[TreeMap]) -> list[Problem]:
    """Replace ShardData, LMDBData, Mnist, RGBImage and Label by current layers.

    Mnist and Label layers are removed, so that their readers read the source.
    """
    problems: list[Problem] = []
    by_name: dict[object, list[TreeMap]] = {}
    for layer in layers:
        by_name.setdefault(named(layer), []).append(layer)
    instead: dict[object, object] = {}
    for layer in layers:
        kind, sources = _type(layer), [source.value for source in _sources(layer)]
        if kind in REPLACE:
            problems += REPLACE[kind](layer, [each for name in sources for each in by_name.get(name, [])])
        if kind in ("Mnist", "Label") and sources:
            instead[named(layer)] = sources[0]
    net = child(root, "neuralnet", "layer")
    if instead and isinstance(net, Items):
        net.items = [layer for layer in net.items if _type(layer) not in ("Mnist", "Label")]
        for layer in layers:
            for source in _sources(layer):
                seen: set[object] = set()
                while source.value in instead and source.value not in seen:
                    seen.add(source.value)
                    source.value = str(instead[source.value])
    return problems


def _checked(layer: TreeMap, key: str, model: type[Conf]) -> tuple[Any, list[Problem]]:
    """Validate a block before its replacement; return its model, or None, and its problems."""
    node = child(layer, key)
    path = ("neuralnet", "layer", named(layer), key)
    shown = f"neuralnet.layer[{named(layer)}].{key}"
    try:
        return model.model_validate({} if node is None else plain(node)), []
    except ValidationError as error:
        root = node or layer
        return None, [
            Problem(
                (*path, *mistake["loc"]),
                mistake["msg"],
                locate(root, mistake["loc"], at_key=mistake["type"] == MISPLACED_KEY),
                ".".join((shown, *map(str, mistake["loc"]))),
            )
            for mistake in error.errors(include_url=False)
        ]


def _replace_data(layer: TreeMap, sources: list[TreeMap]) -> list[Problem]:
    """Replace ShardData or LMDBData by RecordInput."""
    old, model, backend = {
        "ShardData": ("sharddata_conf", ShardDataConf, "kvfile"),
        "LMDBData": ("lmdbdata_conf", LMDBDataConf, "lmdb"),
    }[_type(layer)]
    conf, problems = _checked(layer, old, model)
    entry = layer.entries.pop(old, None)
    store = _inner(layer, "store_conf")
    _put(store, "backend", backend)
    if conf is not None and entry is not None and isinstance(entry.node, TreeMap):
        store.place = entry.node.place
        store.entries.update(entry.node.entries)
    layer.entries["type"].node = Scalar(layer.entries["type"].node.place, "RecordInput")
    return problems


def _replace_mnist(layer: TreeMap, sources: list[TreeMap]) -> list[Problem]:
    """Make the sources compute x / norm_a - norm_b for images of 28 x 28, as Mnist does."""
    conf, problems = _checked(layer, "mnist_conf", MnistConf)
    for source in sources:
        store = _inner(source, "store_conf")
        _put(store, "shape", [1, 28, 28], layer.place)
        if conf is not None and conf.norm_b:
            _put(store, "mean_value", conf.norm_a * conf.norm_b, layer.place)
        if conf is not None and conf.norm_a != 1:
            _put(store, "std_value", conf.norm_a, layer.place)
    return problems


def _replace_rgb(layer: TreeMap, sources: list[TreeMap]) -> list[Problem]:
    """Replace RGBImage by ImagePreprocess, and make its sources subtract the mean."""
    cropped, mean = (child(layer, "rgbimage_conf", key) for key in ("cropsize", "meanfile"))
    # records of SINGA contain their shape: 32 x 32 for CIFAR, 256 x 256 for ImageNet
    size = 256 if isinstance(cropped, Scalar) and isinstance(cropped.value, int) and cropped.value > 32 else 32
    for source in sources:
        _put(_inner(source, "store_conf"), "shape", [3, size, size], layer.place)
        if isinstance(mean, Scalar) and mean.value:
            _put(_inner(source, "store_conf"), "mean_file", mean.value, layer.place)
    _drop(child(layer, "rgbimage_conf"), "meanfile")
    layer.entries["type"].node = Scalar(layer.entries["type"].node.place, "ImagePreprocess")
    return []


REPLACE: dict[str, Callable[[TreeMap, list[TreeMap]], list[Problem]]] = {
    "ShardData": _replace_data,
    "LMDBData": _replace_data,
    "Mnist": _replace_mnist,
    "RGBImage": _replace_rgb,
}
