"""The net: its layers and their defaults (SINGA's NetProto)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Many, Size, as_list, class_of
from singa_dask.conf.layer import LayerConf
from singa_dask.conf.mistakes import Finding
from singa_dask.conf.parts import block_value
from singa_dask.conf.wiring_rules import check_wiring
from singa_dask.registry import Registry

# maximum number of keys that an error advises to set with --set
MAX_SET = 3


class LayerGroupConf(Conf):
    """``layer_group``: unused, as in SINGA."""

    layer: Many[str] = Field(default=[])
    """Names of layers."""


class NetConf(Conf):
    """``neuralnet`` (SINGA's NetProto)."""

    layer: Many[LayerConf] = Field(min_length=1)
    """Layers, in any order; the net sorts them by their sources."""
    partition_dim: int = Field(default=0, ge=-1, le=1)
    """Default partition_dim of the layers."""
    layer_group: Many[LayerGroupConf] = Field(default=[])
    """Unused."""
    unroll_len: Size = 1
    """Default unroll_len of the layers."""

    def rules(self) -> Iterator[Finding]:
        """Check names, sources, cycles, and the order of axes."""
        for path, message in (*check_wiring(self.layer), *_check_axes(self.layer)):
            yield ("layer", *path), message

    def part_rules(self, registries: Mapping[str, Registry[Any]]) -> Iterator[Finding]:
        """Check windows of text, and the records of targets."""
        types = [class_of(registries.get("layer"), layer.type) for layer in self.layer]
        for path, message in (*_check_windows(self, types), *_check_targets(self.layer, types)):
            yield ("layer", *path), message


def _check_axes(layers: Sequence[LayerConf]) -> Iterator[Finding]:
    """Yield ((index, key...), message) for each input layer whose order of axes differs between phases.

    A net that was trained with one order of axes is useless for another order.
    """
    shapes: dict[str, list[Any]] = {}
    for index, layer in enumerate(layers):
        shape = as_list(block_value(layer.blocks.get("store_conf"), "shape"))
        other = shapes.setdefault(layer.name, shape)
        sizes, others = ([n for n in each if isinstance(n, int) and n != 1] for each in (shape, other))
        if sizes != others and sorted(sizes) == sorted(others):
            message = (
                f"{shape} has other axes than {other}, the shape of this layer in another phase. Set shape: {other}, "
                "and layout: NHWC if records are (height, width, channels), or transpose them."
            )
            yield (index, "store_conf", "shape"), message


def _check_targets(layers: Sequence[LayerConf], types: Sequence[Any]) -> Iterator[Finding]:
    """Yield ((index, key), message) for each layer of targets, labels or weights that reads other records."""
    blocks = [layer.blocks.get("store_conf") for layer in layers]
    # layers that read records of another layer's store
    again = [i for i, kind in enumerate(types) if kind is not None and kind.traits.reads_beside]
    for index in again:
        for phase in sorted(layers[index].phases):
            beside = [i for i, each in enumerate(layers) if phase in each.phases and i not in again and blocks[i]]
            differing = [(_different_keys(blocks[index], blocks[i]), layers[i].name) for i in beside]
            if all(keys for keys, _ in differing):
                fewest, other = min(differing, key=lambda each: len(each[0]), default=([], ""))
                keys = f": {', '.join(fewest)} differ{'s' * (len(fewest) == 1)}" if fewest else ""
                names = [other, layers[index].name]
                sets = [f"--set 'neuralnet.layer[{name}].store_conf.{key}=...'" for key in fewest for name in names]
                advice = f", or pass {' '.join(sets)}" if 0 < len(fewest) <= MAX_SET else ""
                message = (
                    f"no other input layer of the {phase} net has the same store_conf{keys}, so "
                    f"{types[index].traits.reads_beside} and features would belong to different records. Set the same "
                    f"in both layers, in YAML with &name and *name{advice}."
                )
                yield (index, "store_conf"), message
                break


def _different_keys(block: object, other: object) -> list[str]:
    """Return the differing keys of two store_conf, without keys that affect features only."""
    one, two = (each if isinstance(each, Mapping) else getattr(each, "__dict__", {}) for each in (block, other))
    of_features = {"shape", "mean_file", "std_file", "mean_value", "std_value", "layout"}
    return sorted(key for key in {*one, *two} - of_features if one.get(key) != two.get(key))


def _check_windows(net: NetConf, types: Sequence[Any]) -> Iterator[Finding]:
    """Yield ((index, key...), message) for each input whose windows do not fit its readers' unroll_len."""
    for index, (layer, kind) in enumerate(zip(net.layer, types, strict=True)):
        options = getattr(kind, "options_class", None)
        if options is None or kind.traits.role != "input" or "unroll_len" not in options.model_fields:
            continue
        default = options.model_fields["unroll_len"].default
        length = block_value(layer.blocks.get(options.block_key), "unroll_len", default)
        for reader, its_kind in zip(net.layer, types, strict=True):
            n_steps = reader.unroll_len or net.unroll_len
            is_by_step = its_kind is not None and its_kind.traits.steps == "columns"
            if layer.name in reader.srclayers and is_by_step and n_steps != length:
                message = f"expected {n_steps}, the unroll_len of its reader {reader.name!r}, got {length}."
                yield (index, options.block_key, "unroll_len"), message
                break
