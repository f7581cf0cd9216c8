"""The layers of a net as a table of text."""

from __future__ import annotations

from collections.abc import Sequence

from singa_dask.layers import Feature, Layer, Param
from singa_dask.net.node import Node

__all__ = ["table"]


def table(layers: Sequence[Layer], nodes: Sequence[Node], with_workers: bool) -> list[str]:
    """Return a heading and a line for each layer: worker (optional), name, type, sources, shape, params.

    Parameters
    ----------
    layers : sequence of Layer
    nodes : sequence of Node
        What the layers were made of.
    with_workers : bool
    """
    rows = [("worker", "layer", "type", "reads", "shape", "params")[not with_workers :]]
    for layer, node in zip(layers, nodes, strict=True):
        shape = _show_shape(layer.features[0]) if layer.features else ""
        params = ", ".join(_show_param(param) for param in layer.params)
        cells = (str(node.worker), layer.name, layer.conf.type, ", ".join(node.source_names), shape, params)
        rows.append(cells[not with_workers :])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _show_shape(feature: Feature) -> str:
    rows, *rest = feature.shape
    steps = [f"{feature.n_steps} steps"] if feature.n_steps > 1 else []
    return " x ".join(map(str, [*steps, rows // feature.n_steps, *rest]))


def _show_param(param: Param) -> str:
    shown = f"{param.name} {' x '.join(map(str, param.shape))}"
    return shown if param.owner is param else f"{shown} (of {param.owner.name})"
