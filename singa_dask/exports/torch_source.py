"""TorchSource: the text of a PyTorch module, and its state dict."""

from __future__ import annotations

import json
import keyword
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.errors import ConfigError
from singa_dask.exports.converters import unique_name
from singa_dask.exports.weights import encode_safetensors
from singa_dask.layers import Feature, Layer, Param

RESERVED = {"F", "Path", "classes", "load", "load_file", "nn", "self", "torch"}

# attributes of nn.Module; layers must not use these names
ATTRIBUTES = frozenset(
    "T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches "
    "eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict "
    "modules mtia named_buffers named_children named_modules named_parameters parameters register_buffer "
    "register_module register_parameter requires_grad_ set_extra_state set_submodule share_memory state_dict to "
    "to_empty train training type xpu zero_grad".split()
)

TEXT = '''\
"""{title}

A net of singa-dask as a module of PyTorch; its weights are in {weights} beside it::

    from {module} import load

    net = load()
"""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

{names}

class Net(nn.Module):
    """{about}"""

    def __init__(self):
        super().__init__()
{init}

    def forward(self, {inputs}):
{forward}
        return {outputs}


def load(weights=Path(__file__).with_name("{weights}")):
    """Return the net with its weights, as it computes in a test."""
    net = Net()
    net.load_state_dict(load_file(weights))
    return net.eval()
'''


class TorchSource:
    """The text of a PyTorch module, and its state dict.

    PyTorch is not needed to write it. Converters return the text of an expression. The output of a layer is assigned to
    a variable with the layer's name.
    """

    def __init__(self) -> None:
        self._layer = ""
        self._names = set(RESERVED)
        self._attributes = set(ATTRIBUTES)
        self._init: list[str] = []
        self._forward: list[str] = []
        self._inputs: list[str] = []
        self._outputs: dict[str, str] = {}
        self._values: dict[str, np.ndarray] = {}

    # -- methods for converters -----------------------------------------------------------------------

    def begin(self, layer: Layer) -> None:
        """Use a layer's name as the prefix of the names that follow."""
        self._layer = layer.name

    def add(self, module: str, values: Mapping[str, Any] | None = None) -> str:
        """Add a module with its params.

        Parameters
        ----------
        module : str
            Expression that constructs the module, such as ``"nn.Linear(784, 10)"``.
        values : mapping of str to array, optional
            Params and buffers of the module, by their names in its state dict.

        Returns
        -------
        str
            Expression for the module, such as ``"self.fc1"``.
        """
        name = unique_name(_identifier(self._layer), self._attributes)
        self._init.append(f"self.{name} = {module}")
        for key, each in (values or {}).items():
            self._values[f"{name}.{key}"] = _copied(each)
        return f"self.{name}"

    def import_name(self, module: str, name: str) -> None:
        """Import a name of another module, for the next `add`."""
        self._init.append(f"from {module} import {name}")

    def param(self, param: Param, shape: Sequence[int] | None = None) -> str:
        """Add a param; return its expression."""
        values = _copied(param.data).reshape(param.shape if shape is None else tuple(shape))
        name = unique_name(_identifier(f"{self._layer}_{param.name.rpartition('.')[2]}"), self._attributes)
        self._init.append(f"self.{name} = nn.Parameter(torch.empty({_shape(values)}))")
        self._values[name] = values
        return f"self.{name}"

    def constant(self, values: Any, name: str, dtype: npt.DTypeLike = np.float32) -> str:
        """Add a constant array or number; return its expression."""
        array = np.asarray(values)
        if array.ndim == 0:
            return repr(float(array))
        buffer = unique_name(_identifier(f"{self._layer}_{name}"), self._attributes)
        array = np.array(array, dtype, order="C")
        kind = ", dtype=torch.float64" if array.dtype == np.float64 else ""
        self._init.append(f'self.register_buffer("{buffer}", torch.empty({_shape(array)}{kind}))')
        self._values[buffer] = array
        return f"self.{buffer}"

    def finish(self, values: list[str]) -> list[str]:
        """Assign the outputs of a layer to variables."""
        return [self.let(value) for value in values]

    def let(self, expression: str, name: str = "") -> str:
        """Assign an expression to a variable, unless it is a variable already; return the variable."""
        if expression.isidentifier():
            return expression
        variable = unique_name(_identifier(f"{self._layer}_{name}" if name else self._layer), self._names)
        self._forward.append(f"{variable} = {expression}")
        return variable

    def let_several(self, expression: str, n: int) -> list[str]:
        """Assign the values of an expression to ``n`` variables; return the variables."""
        variables = [unique_name(_identifier(f"{self._layer}_{k}"), self._names) for k in range(n)]
        self._forward.append(f"{', '.join(variables)} = {expression}")
        return variables

    def input(self, name: str) -> str:
        """Add an argument of the module; return its name."""
        argument = unique_name(_identifier(name), self._names)
        self._inputs.append(argument)
        return argument

    @staticmethod
    def rows(x: str, feature: Feature) -> str:
        """Return the values of a feature as rows (N, D)."""
        return x if len(feature.shape) == 2 else f"{x}.flatten(1)"

    @staticmethod
    def images(x: str, feature: Feature) -> str:
        """Return images (N, C, H, W), adding a channel to (N, H, W)."""
        return x if len(feature.shape) == 4 else f"{x}.unsqueeze(1)"

    # -- writing the module ---------------------------------------------------------------------------

    def output(self, name: str, layers: Sequence[Layer], values: Sequence[str]) -> None:
        """Make a layer, or its copies, an output of the module: (N, ...), or (N, T, ...) for T time steps."""
        n_steps = layers[0].features[0].n_steps
        if len(values) > 1:
            self._outputs[name] = f"torch.stack([{', '.join(values)}], dim=1)"
        elif n_steps > 1:
            self._outputs[name] = f"{values[0]}.unflatten(0, ({n_steps}, -1)).transpose(0, 1)"
        else:
            self._outputs[name] = values[0]

    def encode(self, url: str, facts: Mapping[str, Any]) -> dict[str, bytes]:
        """Return the files for a module at ``url``, URL -> content, the weights first; ``facts`` are metadata.

        Raises
        ------
        ConfigError
            Python cannot import a module of this name.
        """
        stem = posixpath.basename(url).removesuffix(".py")
        if not stem.isidentifier() or keyword.iskeyword(stem):
            raise ConfigError(f"{url}: {stem!r} is not a valid name for a module. Use letters, digits and _ only.")
        weights = f"{stem}.weights.safetensors"
        several = len(self._outputs) > 1
        outputs = "{" + ", ".join(f'"{name}": {value}' for name, value in self._outputs.items()) + "}"
        text = TEXT.format(
            title=f"{_plain(facts['job'])}, step {facts['step']}, by {facts['producer']}.",
            module=stem,
            weights=weights,
            about=_about(facts),
            names=f"CLASS_NAMES = {json.dumps(facts['class_names'])}\n" if "class_names" in facts else "",
            init="\n".join(f"        {line}" for line in self._init) or "        pass",
            inputs=", ".join(self._inputs),
            forward="\n".join(f"        {line}" for line in self._forward),
            outputs=outputs if several else next(iter(self._outputs.values())),
        )
        folder = posixpath.dirname(url)
        content = encode_safetensors(self._values, facts)
        return {posixpath.join(folder, weights): content, url: re.sub(r"\n{4,}", "\n\n\n", text).encode()}


def _about(facts: Mapping[str, Any]) -> str:
    """Describe the inputs and outputs of the net."""
    inputs = "; ".join(
        f"{_plain(name)} ({', '.join(map(str, each['shape']))})" for name, each in facts["inputs"].items()
    )
    return f"From {inputs} to {', '.join(map(_plain, facts['outputs']))}."


def _plain(text: str) -> str:
    """Return a text that can be part of a docstring."""
    return text.replace("\\", "/").replace('"', "'")


def _copied(values: Any) -> np.ndarray:
    return np.array(values, np.float32, order="C")


def _shape(values: np.ndarray) -> str:
    return ", ".join(map(str, values.shape))


def _identifier(name: str) -> str:
    identifier = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "x"
    return f"x{identifier}" if identifier[0].isdigit() or keyword.iskeyword(identifier) else identifier
