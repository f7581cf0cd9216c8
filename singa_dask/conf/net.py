"""The net: its layers, and their defaults (SINGA's NetProto)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from singa_dask.conf.base import Conf, raw_value
from singa_dask.conf.findings import Finding
from singa_dask.conf.kinds import Many, Size, as_list, class_of
from singa_dask.conf.layer import LayerConf
from singa_dask.conf.wiring_rules import check_wiring, read_wiring
from singa_dask.registry import Registry


class LayerGroupConf(Conf):
    """``layer_group``: unused, in SINGA too."""

    layer: Many[str] = Field(default=[])
    """Names of layers."""


class NetConf(Conf):
    """``neuralnet`` (SINGA's NetProto)."""

    layer: Many[LayerConf] = Field(min_length=1)
    """Layers, in any order: the net is put in order by their sources."""
    partition_dim: int = Field(default=0, ge=-1, le=1)
    """partition_dim of the layers that do not set their own."""
    layer_group: Many[LayerGroupConf] = Field(default=[])
    """Unused."""
    unroll_len: Size = 1
    """unroll_len of the layers that do not set their own."""

    @classmethod
    def raw_rules(cls, data: Mapping[str, Any], registries: Mapping[str, Registry[Any]]) -> Iterator[Finding]:
        """Check names, sources, cycles, the order of axes, windows of text, and the records of targets."""
        layers = as_list(raw_value(data, "layer", object, None))
        types = [class_of(registries.get("layer"), raw_value(layer, "type", str, "")) for layer in layers]
        of_names = (*check_wiring(read_wiring(data)), *_check_axes(data))
        for path, message in (*of_names, *_check_windows(data, types), *_check_targets(data, types)):
            yield ("layer", *path), message


def _check_axes(net: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield ((index, key...), message) for each input layer whose records have other axes than those of its namesake.

    Each has the same values, in other places: a net that was trained on one of them is useless for the other.
    """
    shapes: dict[str, list[Any]] = {}
    for index, layer in enumerate(as_list(raw_value(net, "layer", object, None))):
        shape = as_list(raw_value(raw_value(layer, "store_conf", object, None), "shape", object, None))
        sizes = [size for size in shape if isinstance(size, int) and size != 1]
        other = shapes.setdefault(raw_value(layer, "name", str, ""), shape)
        others = [size for size in other if isinstance(size, int) and size != 1]
        if sizes != others and sorted(sizes) == sorted(others):
            message = (
                f"{shape} has the axes of {other}, the shape of this layer in another phase, in another order. Set "
                f"shape: {other}, and layout: NHWC if records are (height, width, channels), or transpose them."
            )
            yield (index, "store_conf", "shape"), message


def _check_targets(net: Mapping[str, Any], types: Sequence[Any]) -> Iterator[Finding]:
    """Yield ((index, key), message) for each layer of targets or labels that reads other records than the features."""
    blocks = [raw_value(each, "store_conf", object, {}) for each in as_list(raw_value(net, "layer", object, None))]
    nodes = read_wiring(net)
    # layers that read the records of the layer of the features again
    again = [node for node in nodes if types[node.index] is not None and types[node.index].traits.reads_beside]
    for node in again:
        for phase in sorted(node.phases):
            beside = [each for each in nodes if phase in each.phases and each not in again and blocks[each.index]]
            differing = [_different_keys(blocks[node.index], blocks[each.index]) for each in beside]
            if all(differing):
                fewest = min(differing, key=len, default=[])
                keys = f": {', '.join(fewest)} differ" if fewest else ""
                message = (
                    f"no other input layer of the {phase} net has the same store_conf{keys}, so "
                    f"{types[node.index].traits.reads_beside} and features would be of different records. Give both "
                    "the same, in YAML with &name and *name."
                )
                yield (node.index, "store_conf"), message
                break


def _different_keys(block: object, other: object) -> list[str]:
    """Return the keys of two store_conf that differ and are not of features alone."""
    one, two = (each if isinstance(each, Mapping) else getattr(each, "__dict__", {}) for each in (block, other))
    of_features = {"shape", "mean_file", "std_file", "mean_value", "std_value", "layout"}
    return sorted(key for key in {*one, *two} - of_features if one.get(key) != two.get(key))


def _check_windows(net: Mapping[str, Any], types: Sequence[Any]) -> Iterator[Finding]:
    """Yield ((index, key...), message) for each input whose windows differ in length from the layers that read it."""
    default = raw_value(net, "unroll_len", int, 1)
    layers = as_list(raw_value(net, "layer", object, None))
    for index, (layer, kind) in enumerate(zip(layers, types, strict=True)):
        block = getattr(kind, "block", None)
        if block is None or kind.traits.role != "input" or "unroll_len" not in block.model_fields:
            continue
        raw = raw_value(layer, block.block_key, object, None)
        length = raw_value(raw, "unroll_len", int, block.model_fields["unroll_len"].default)
        for reader, its_kind in zip(layers, types, strict=True):
            reads = raw_value(layer, "name", str, "") in as_list(raw_value(reader, "srclayers", object, None))
            n_steps = raw_value(reader, "unroll_len", int, default)
            if reads and its_kind is not None and its_kind.traits.steps == "columns" and n_steps != length:
                name = raw_value(reader, "name", str, "")
                message = f"expected {n_steps}, the unroll_len of layer {name!r}, which reads it, got {length}."
                yield (index, block.block_key, "unroll_len"), message
                break
