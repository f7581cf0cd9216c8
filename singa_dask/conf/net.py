"""The net: its layers, and their defaults (SINGA's NetProto)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from singa_dask.conf.layer import LayerConf
from singa_dask.conf.model import Conf, Finding, Many, Size, as_list, plain_name, raw_value
from singa_dask.conf.wiring import check_wiring, read_wiring

__all__ = ["LayerGroupConf", "NetConf"]


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
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that names are unique, sources exist, there are no cycles, and windows of text have all steps."""
        for path, message in (*check_wiring(read_wiring(data)), *_check_windows(data)):
            yield ("layer", *path), message


def _check_windows(net: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield ((index, key...), message) for each CharRNN whose windows differ in length from the layers that read it."""
    default = raw_value(net, "unroll_len", int, 1)
    layers = as_list(raw_value(net, "layer", object, None))
    kinds = [plain_name(raw_value(layer, "type", str, "")) for layer in layers]
    for index, layer in enumerate(layers):
        block = raw_value(layer, "char_rnn_conf", object, None)
        length = raw_value(block, "unroll_len", int, 50)
        for reader, kind in zip(layers, kinds, strict=True) if kinds[index] == "CharRNN" else ():
            reads = raw_value(layer, "name", str, "") in as_list(raw_value(reader, "srclayers", object, None))
            n_steps = raw_value(reader, "unroll_len", int, default)
            if reads and kind in ("OneHot", "RNNLabel", "Embedding") and n_steps != length:
                name = raw_value(reader, "name", str, "")
                message = f"expected {n_steps}, the unroll_len of layer {name!r}, which reads it, got {length}."
                yield (index, "char_rnn_conf", "unroll_len"), message
                break
