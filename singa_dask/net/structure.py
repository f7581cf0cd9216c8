"""Nodes that the system inserts between the layers of a job: Slice, Concate, Split and bridges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from singa_dask.conf import LayerConf
from singa_dask.net.node import Node, Output

__all__ = ["bridge", "concate", "slice_", "split"]


def _node(kind: str, name: str, sources: Sequence[Output], index: int, block: dict[str, Any], **facts: Any) -> Node:
    conf = {"name": name, "type": kind, "srclayers": [source.node for source in sources], **block}
    return Node(LayerConf.model_validate(conf), index, tuple(sources), **{"layer": name, **facts})


def slice_(name: str, source: Output, index: int, axis: int, n_slices: int, **facts: Any) -> Node:
    """Return a Slice that cuts an output in pieces along an axis; ``facts`` are more attributes of the `Node`."""
    block = {"slice_conf": {"slice_dim": axis, "num_slices": n_slices}}
    return _node("Slice", name, (source,), index, block, n_outputs=n_slices, **facts)


def concate(name: str, sources: Sequence[Output], index: int, axis: int, **facts: Any) -> Node:
    """Return a Concate that joins outputs along an axis; ``facts`` as of `slice_`."""
    return _node("Concate", name, sources, index, {"concate_conf": {"concate_dim": axis}}, **facts)


def split(source: Output, index: int, n_splits: int, **facts: Any) -> Node:
    """Return a Split that gives each of several readers an output of its own; ``facts`` as of `slice_`."""
    block = {"split_conf": {"num_splits": n_splits}}
    return _node("Split", f"split({source})", (source,), index, block, n_outputs=n_splits, **facts)


def bridge(source: Output, index: int, worker: int, other: int, **facts: Any) -> tuple[Node, Node]:
    """Return both ends of a bridge that leads an output from one worker to another; ``facts`` as of `slice_`."""
    channel = f"{source}@{worker}->{other}"
    names = f"bridge_src({channel})", f"bridge_dst({channel})"
    start = _node("BridgeSrc", names[0], (source,), index, {}, worker=worker, peer=other, channel=channel, **facts)
    end_source = (Output(names[0]),)
    end = _node("BridgeDst", names[1], end_source, index, {}, worker=other, peer=worker, channel=channel, **facts)
    return start, end
