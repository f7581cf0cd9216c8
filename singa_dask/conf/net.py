"""The net: its layers, and what they inherit from it (SINGA's NetProto)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from singa_dask.conf.layer import LayerConf
from singa_dask.conf.model import Conf, Finding, Many, Size
from singa_dask.conf.wiring import check_wiring, read_nodes

__all__ = ["LayerGroupConf", "NetConf"]


class LayerGroupConf(Conf):
    """``layer_group``: read by nothing, in SINGA too."""

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
        """Check that names are unique, sources exist, and no layer waits for itself."""
        for path, message in check_wiring(read_nodes(data)):
            yield ("layer", *path), message
