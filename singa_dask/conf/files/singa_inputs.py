"""Replacement of SINGA's deprecated input layers in a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import ValidationError

from singa_dask.conf.base import Conf
from singa_dask.conf.files.tree import (
    Items,
    Scalar,
    Tree,
    TreeMap,
    child,
    drop,
    inner,
    items,
    locate,
    named,
    plain,
    set_default,
    text,
)
from singa_dask.conf.kinds import Count, Positive, Size, plain_name
from singa_dask.conf.mistakes import MISPLACED_KEY
from singa_dask.errors import Problem


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


def type_of(block: Tree | None) -> str:
    """Return the type of a part, without SINGA's k."""
    return plain_name(text(child(block, "type")))


def sources_of(layer: TreeMap) -> Iterator[Scalar]:
    """Yield the names of the sources of a layer."""
    return (node for node in items(child(layer, "srclayers")) if isinstance(node, Scalar))


def replace_deprecated(root: TreeMap, layers: list[TreeMap]) -> list[Problem]:
    """Replace ShardData, LMDBData, Mnist, RGBImage and Label by current layers.

    Mnist and Label layers are removed, so that their readers read the source.
    """
    problems: list[Problem] = []
    by_name: dict[object, list[TreeMap]] = {}
    for layer in layers:
        by_name.setdefault(named(layer), []).append(layer)
    instead: dict[object, object] = {}
    for layer in layers:
        kind, sources = type_of(layer), [source.value for source in sources_of(layer)]
        if kind in REPLACE:
            problems += REPLACE[kind](layer, [each for name in sources for each in by_name.get(name, [])])
        if kind in ("Mnist", "Label") and sources:
            instead[named(layer)] = sources[0]
    net = child(root, "neuralnet", "layer")
    if instead and isinstance(net, Items):
        net.items = [layer for layer in net.items if type_of(layer) not in ("Mnist", "Label")]
        for layer in layers:
            for source in sources_of(layer):
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
    }[type_of(layer)]
    conf, problems = _checked(layer, old, model)
    entry = layer.entries.pop(old, None)
    store = inner(layer, "store_conf")
    set_default(store, "backend", backend)
    if conf is not None and entry is not None and isinstance(entry.node, TreeMap):
        store.place = entry.node.place
        store.entries.update(entry.node.entries)
    layer.entries["type"].node = Scalar(layer.entries["type"].node.place, "RecordInput")
    return problems


def _replace_mnist(layer: TreeMap, sources: list[TreeMap]) -> list[Problem]:
    """Make the sources compute x / norm_a - norm_b for images of 28 x 28, as Mnist does."""
    conf, problems = _checked(layer, "mnist_conf", MnistConf)
    for source in sources:
        store = inner(source, "store_conf")
        set_default(store, "shape", [1, 28, 28], layer.place)
        if conf is not None and conf.norm_b:
            set_default(store, "mean_value", conf.norm_a * conf.norm_b, layer.place)
        if conf is not None and conf.norm_a != 1:
            set_default(store, "std_value", conf.norm_a, layer.place)
    return problems


def _replace_rgb(layer: TreeMap, sources: list[TreeMap]) -> list[Problem]:
    """Replace RGBImage by ImagePreprocess, and make its sources subtract the mean."""
    cropped, mean = (child(layer, "rgbimage_conf", key) for key in ("cropsize", "meanfile"))
    # records of SINGA contain their shape: 32 x 32 for CIFAR, 256 x 256 for ImageNet
    size = 256 if isinstance(cropped, Scalar) and isinstance(cropped.value, int) and cropped.value > 32 else 32
    for source in sources:
        set_default(inner(source, "store_conf"), "shape", [3, size, size], layer.place)
        if isinstance(mean, Scalar) and mean.value:
            set_default(inner(source, "store_conf"), "mean_file", mean.value, layer.place)
    drop(child(layer, "rgbimage_conf"), "meanfile")
    layer.entries["type"].node = Scalar(layer.entries["type"].node.place, "ImagePreprocess")
    return []


REPLACE: dict[str, Callable[[TreeMap, list[TreeMap]], list[Problem]]] = {
    "ShardData": _replace_data,
    "LMDBData": _replace_data,
    "Mnist": _replace_mnist,
    "RGBImage": _replace_rgb,
}
