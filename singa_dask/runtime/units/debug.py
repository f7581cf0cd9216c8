"""The log of ``debug: true``: mean absolute values of each layer and of its params."""

from __future__ import annotations

import logging

import numpy as np

from singa_dask.layers import Layer, Param
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Array, Ops

__all__ = ["log_layers"]

logger = logging.getLogger(__name__)


def log_layers(net: NeuralNet, step: int) -> None:
    """Log a line for each layer of this worker after a training step.

    For an InnerProduct, for example::

        step 100, fc1 (64, 32): data 0.4312, grad 0.0001927; fc1.weight (32, 784): value 0.02831, grad 0.0004106

    The numbers are means of absolute values. Data and gradients are those of this step, params have its update. A layer
    that overwrites its source shows its own values there.
    """
    for layer in net.layers:
        parts = [_features(layer, net.ops), *(_param(param, net.ops) for param in _params(layer))]
        logger.info("step %d, %s %s", step, layer.name, "; ".join(filter(None, parts)))


def _features(layer: Layer, ops: Ops) -> str:
    """Describe the features of a layer; equal ones, for several readers, are shown once."""
    described = []
    for feature in layer.features:
        data = feature.data if feature.has_data else None
        described.append(f"{feature.shape}: {_sizes(ops, data=data, grad=feature.grad)}")
    return "; ".join(dict.fromkeys(described))


def _params(layer: Layer) -> list[Param]:
    return layer.params if layer.site.prototype is None else []


def _param(param: Param, ops: Ops) -> str:
    value, grad = param.data if param.has_data else None, param.grad if param.has_grad else None
    return f"{param.name} {param.shape}: {_sizes(ops, value=value, grad=grad)}"


def _sizes(ops: Ops, **arrays: Array | None) -> str:
    """Describe the mean absolute value of each array that is not None."""
    sizes = [f"{name} {_mean_size(ops.to_host(x)):.4g}" for name, x in arrays.items() if x is not None]
    return ", ".join(sizes) or "not computed"


def _mean_size(x: Array) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.mean(np.abs(x, dtype=np.float32), dtype=np.float64)) if x.size else 0.0
