"""Converters: functions that add a layer to an exported model, for each type of layer and each format.

A converter is called as ``converter(graph, layer, *inputs)``. ``graph`` is an `OnnxGraph` or a `TorchSource`, ``layer``
is the layer with its params, and ``inputs`` are the converted outputs of its sources. The converter returns the layer's
converted output, or a list of several. It raises `ConfigError` with the reason if the format has no such layer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np

from singa_dask.errors import ConfigError
from singa_dask.inputs import StoreInput
from singa_dask.layers import Layer
from singa_dask.layers.attention import MultiHeadAttention
from singa_dask.layers.connection import Slice
from singa_dask.layers.embedding import PositionalEmbedding
from singa_dask.layers.recurrent import LSTM

Converter: TypeAlias = Callable[..., Any]
C = TypeVar("C", bound=Converter)

# methods that a subclass may override without changing the output of the net
OF_TRAINING = ("backward", "compute_gradient")


class Converters:
    """The converters of one format, by class of layer.

    Parameters
    ----------
    format : str
        Name of the format in messages.
    variable : str
        Name of the variable that users import, for messages.

    Attributes
    ----------
    by_class : dict of type to callable

    Examples
    --------
    In the module of your own layer::

        from singa_dask.exports import ONNX_CONVERTERS

        @ONNX_CONVERTERS.register(Scaled)
        def scaled(graph, layer, x):
            return graph.add("Mul", x, graph.param(layer.scale))
    """

    def __init__(self, format: str, variable: str) -> None:
        self.format = format
        self.variable = variable
        self.by_class: dict[type[Layer], Converter] = {}

    def register(self, *classes: type[Layer]) -> Callable[[C], C]:
        """Register the decorated function for layers of these classes."""

        def decorate(converter: C) -> C:
            for cls in classes:
                self.by_class[cls] = converter
            return converter

        return decorate

    def find(self, layer: Layer) -> Converter:
        """Return the converter for a layer's class, or for a base class with the same output in a test.

        Raises
        ------
        ConfigError
            There is no converter, or no format can have such a layer.
        """
        _refuse(layer)
        for cls in type(layer).__mro__:
            if cls in self.by_class:
                return self.by_class[cls]
            own = (name for name, value in vars(cls).items() if inspect.isfunction(value))
            if any(name not in OF_TRAINING for name in own):
                break
        if type(layer).__module__.startswith("singa_dask."):
            raise ConfigError(f"{self.format} has no such operation. Export another layer.")
        place = f"{type(layer).__module__}.{type(layer).__qualname__}"
        raise ConfigError(
            f"{place} has no converter. Write one in its module: "
            f"@singa_dask.exports.{self.variable}.register({type(layer).__name__})."
        )


ONNX_CONVERTERS = Converters("ONNX", "ONNX_CONVERTERS")
TORCH_CONVERTERS = Converters("PyTorch", "TORCH_CONVERTERS")


def _refuse(layer: Layer) -> None:
    """Raise a ConfigError for a layer that no format can express.

    In exported models, batches can have any length, and layers have no state.
    """
    if isinstance(layer, MultiHeadAttention | PositionalEmbedding) and layer.carries:
        raise ConfigError("its time steps continue from batch to batch. Set carry_state: false.")
    if isinstance(layer, Slice) and len(layer.spans) > 1 and not layer.axis:
        # slices of the batch can only be exported if each slice is a time step
        if not (layer.steps == 1 and layer.sources[0].n_steps == len(layer.spans)):
            raise ConfigError("it slices the batch, whose length is not fixed in an exported model. Set slice_dim: 1.")
    if isinstance(layer, LSTM) and layer.site.prototype is not None:
        raise ConfigError("its time steps are computed one by one, and pass the cell on to the next.")


def unique_name(name: str, names: set[str]) -> str:
    """Return a name that is not in ``names``, with a number if necessary, and add it to ``names``."""
    free_name, number = name, 1
    while free_name in names:
        number += 1
        free_name = f"{name}_{number}"
    names.add(free_name)
    return free_name


def input_dtype(layer: StoreInput) -> np.dtype[Any]:
    """Return the dtype of an exported net's input: float64 if its scaling needs the digits, else float32."""
    scaling = layer.context.knowledge.scaling_of(layer.conf_name) if layer.store_conf.standardise else None
    return np.dtype(np.float64 if scaling is not None and scaling.needs_digits.any() else np.float32)
