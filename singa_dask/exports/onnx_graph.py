"""OnnxGraph: a model of ONNX that is built node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from singa_dask.errors import ConfigError
from singa_dask.exports.converters import unique_name
from singa_dask.exports.weights import metadata_texts
from singa_dask.layers import Feature, Layer, Param
from singa_dask.lazy import require
from singa_dask.version import __version__

OPSET = 18
BATCH = "N"
"""Name of the first axis, of any length."""
MAX_BYTES = (1 << 31) - (1 << 20)


class OnnxGraph:
    """A model of ONNX.

    Raises
    ------
    ConfigError
        The package onnx is not installed.
    """

    def __init__(self) -> None:
        self.onnx: Any = require("onnx", "onnx", "export to ONNX")
        # import onnx.helper explicitly, because importing onnx may not load it
        self.helper: Any = require("onnx.helper", "onnx", "export to ONNX")
        self.numpy_helper: Any = require("onnx.numpy_helper", "onnx", "export to ONNX")
        self._prefix = ""
        self._names: set[str] = set()
        self._nodes: list[Any] = []
        self._constants: dict[str, np.ndarray] = {}
        self._params: dict[tuple[str, tuple[int, ...]], str] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._next_states: dict[str, tuple[str, int]] = {}

    def reserve(self, names: Sequence[str]) -> None:
        """Reserve names for inputs and outputs."""
        self._names.update(names)

    # -- methods for converters -----------------------------------------------------------------------

    def begin(self, layer: Layer) -> None:
        """Use a layer's name as the prefix of the names that follow."""
        self._prefix = layer.name

    def finish(self, values: list[str]) -> list[str]:
        """Return the outputs of a layer unchanged."""
        return values

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; return the output's name.

        Parameters
        ----------
        operator : str
            An operator of ONNX, opset 18, such as ``"Gemm"``.
        *inputs : str
            Names of the input values; empty for an omitted input.
        """
        return self.add_several(operator, *inputs, outputs=1, **attributes)[0]

    def add_several(self, operator: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Add a node with several outputs; return their names."""
        names = [unique_name(f"{self._prefix}/{operator}", self._names) for _ in range(outputs)]
        self._nodes.append(self.helper.make_node(operator, list(inputs), names, name=names[0], **attributes))
        return names

    def constant(self, values: Any, dtype: Any = np.float32, name: str = "constant") -> str:
        """Add a constant; return its name."""
        key = unique_name(f"{self._prefix}/{name}", self._names)
        self._constants[key] = np.array(values, dtype, order="C")
        return key

    def integers(self, values: Sequence[int]) -> str:
        """Add a list of integers, such as shapes and axes; return its name."""
        return self.constant(values, np.int64, "integers")

    def param(self, param: Param, shape: Sequence[int] | None = None) -> str:
        """Return the name of a param's values, reshaped to ``shape`` if passed. A shared param is stored once."""
        values = np.asarray(param.data, np.float32).reshape(param.shape if shape is None else tuple(shape))
        key = (param.owner.name, values.shape)
        if key not in self._params:
            self._params[key] = unique_name(param.owner.name, self._names)
            self._constants[self._params[key]] = np.ascontiguousarray(values)
        return self._params[key]

    def embed(self, model: Any, *inputs: str) -> list[str]:
        """Add the nodes and arrays of another model of the same opset; return the names of its outputs."""
        prefix = f"{unique_name(self._prefix, self._names)}."
        graph = require("onnx.compose", "onnx", "export to ONNX").add_prefix(model, prefix).graph
        self._constants.update({each.name: self.numpy_helper.to_array(each) for each in graph.initializer})
        for x, argument in zip(inputs, graph.input, strict=True):
            self._nodes.append(
                self.helper.make_node("Identity", [x], [argument.name], name=f"{argument.name}/Identity")
            )
        self._nodes.extend(graph.node)
        return [each.name for each in graph.output]

    def input(self, name: str, shape: Sequence[int | str], dtype: Any = np.float32) -> str:
        """Add an input of the model; return its name."""
        self._names.add(name)
        kind = self.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(self.helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def next_state(self, name: str, x: str, width: int) -> None:
        """Make a value (N, width) an output of the model: the state for the next batch.

        If several values have the same name, the last one is the output.
        """
        self._next_states[name] = x, width

    def reshape(self, x: str, *shape: int) -> str:
        """Reshape values; one length may be -1."""
        return self.add("Reshape", x, self.integers(shape))

    def rows(self, x: str, feature: Feature) -> str:
        """Return the values of a feature as rows (N, D)."""
        return x if len(feature.shape) == 2 else self.add("Flatten", x, axis=1)

    def images(self, x: str, feature: Feature) -> str:
        """Return images (N, C, H, W), adding a channel to (N, H, W)."""
        return x if len(feature.shape) == 4 else self.add("Unsqueeze", x, self.integers([1]))

    # -- writing the model ----------------------------------------------------------------------------

    def output(self, name: str, layers: Sequence[Layer], values: Sequence[str]) -> None:
        """Make a layer, or its copies, an output of the model: (N, ...), or (N, T, ...) for T time steps."""
        feature = layers[0].features[0]
        self._prefix = f"{name}/output"
        rest, n_steps = feature.shape[1:], feature.n_steps
        if len(values) > 1:
            n_steps = len(values)
            joined = self.add("Concat", *(self.add("Unsqueeze", x, self.integers([1])) for x in values), axis=1)
        elif n_steps > 1:
            steps = self.reshape(values[0], n_steps, -1, *rest)
            joined = self.add("Transpose", steps, perm=[1, 0, *range(2, 2 + len(rest))])
        else:
            joined = values[0]
        shape = [BATCH, *((n_steps,) if n_steps > 1 else ()), *rest]
        self._add_output(name, joined, shape, np.bool_ if feature.dtype == bool else np.float32)

    def _add_output(self, name: str, x: str, shape: Sequence[int | str], dtype: Any = np.float32) -> None:
        self._nodes.append(self.helper.make_node("Identity", [x], [name], name=f"{name}/Identity"))
        kind = self.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._outputs.append(self.helper.make_tensor_value_info(name, kind, shape))

    def encode(self, name: str, metadata: Mapping[str, Any]) -> bytes:
        """Return the bytes of the model, checked by ONNX.

        Parameters
        ----------
        metadata : mapping
            Metadata by name: strings or JSON values.

        Raises
        ------
        ConfigError
            The model is too large for an ONNX file.
        """
        n_bytes = sum(values.nbytes for values in self._constants.values())
        if n_bytes > MAX_BYTES:
            raise ConfigError(
                f"{name}: the params have {n_bytes:,} bytes, but an ONNX file holds at most 2 GiB. Use safetensors."
            )
        for output, (x, width) in self._next_states.items():
            self._add_output(output, x, [BATCH, width])
        tensors = [self.numpy_helper.from_array(values, key) for key, values in self._constants.items()]
        graph = self.helper.make_graph(self._nodes, name, self._inputs, self._outputs, tensors)
        opsets = [self.helper.make_opsetid("", OPSET)]
        model = self.helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=self.helper.find_min_ir_version_for(opsets),
            producer_name="singa-dask",
            producer_version=__version__,
        )
        self.helper.set_model_props(model, metadata_texts(metadata))
        self.onnx.checker.check_model(model, full_check=True)
        encoded: bytes = model.SerializeToString()
        return encoded
