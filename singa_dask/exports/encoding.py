"""Encode nets as ONNX files and as PyTorch modules, by the converters of their layers."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from singa_dask.errors import ConfigError
from singa_dask.exports import onnx_layers, torch_layers
from singa_dask.exports.converters import ONNX_CONVERTERS, TORCH_CONVERTERS, Converter, Converters
from singa_dask.exports.exported_net import ExportedNet, input_facts
from singa_dask.exports.onnx_graph import OnnxGraph
from singa_dask.exports.torch_source import TorchSource
from singa_dask.layers import Feature, Layer
from singa_dask.layers.torch_module import TorchModule
from singa_dask.ops.contract import Array

Graph = OnnxGraph | TorchSource
"""A model under construction."""
# modules that contain the converters of layers
CONVERTERS = (onnx_layers, torch_layers)


def convert(exported: ExportedNet, converters: Converters, graph: Graph) -> None:
    """Add all layers of a net to a graph.

    Raises a ConfigError that lists all layers that the format cannot express.
    """
    values: dict[Feature, Any] = {}
    failed: set[Feature] = set()
    problems: dict[str, str] = {}
    for layer in exported.net.layers:
        graph.begin(layer)
        try:
            converter = converters.find(layer)
            if failed.isdisjoint(layer.sources):
                values.update(zip(layer.features, _converted(converter, graph, layer, values), strict=True))
            else:
                failed.update(layer.features)
        except ConfigError as error:
            failed.update(layer.features)
            problems.setdefault(layer.conf_name, f"layer {layer.conf_name!r}, {layer.conf.type}: {error}")
    if problems:
        lines = [f"{exported.where}: cannot be exported to {converters.format}: {each}" for each in problems.values()]
        raise ConfigError("\n".join(lines))
    for name, layers in exported.outputs.items():
        graph.output(name, layers, [values[layer.features[0]] for layer in layers])


def _converted(converter: Converter, graph: Graph, layer: Layer, values: dict[Feature, Any]) -> list[Any]:
    if any(source not in values for source in layer.sources):
        raise ConfigError("it reads the output of a later layer, in a cycle.")
    outputs = converter(graph, layer, *(values[source] for source in layer.sources))
    return graph.finish(outputs if isinstance(outputs, list) else [outputs])


def _model_facts(exported: ExportedNet, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a model."""
    facts = {
        **about,
        "inputs": input_facts(exported.net, exported.tables),
        "outputs": list(exported.outputs),
    }
    if exported.class_names:
        facts["class_names"] = {name: list(classes) for name, classes in exported.class_names.items()}
    return facts


def encode_onnx(exported: ExportedNet, target: str, about: Mapping[str, Any]) -> dict[str, bytes]:
    """Encode a net as an ONNX file; return a dict of URL to content. ``about`` has further metadata.

    Raises
    ------
    ConfigError
        The package onnx is not installed, or ONNX lacks some layers; the message names all these layers.
    """
    graph = OnnxGraph()
    graph.reserve([*exported.outputs, *(layer.conf_name for layer in exported.net.inputs)])
    convert(exported, ONNX_CONVERTERS, graph)
    return {target: graph.encode(exported.job.name, _model_facts(exported, about))}


def encode_torch(exported: ExportedNet, target: str, about: Mapping[str, Any]) -> dict[str, bytes]:
    """Encode a net as a PyTorch module and a safetensors file; see `encode_onnx`."""
    module = TorchSource()
    convert(exported, TORCH_CONVERTERS, module)
    return module.encode(target, _model_facts(exported, about))


def encode_state_dict(
    exported: ExportedNet, target: str, layers: Sequence[str], states: Mapping[str, tuple[Array, ...]]
) -> bytes:
    """Return a PyTorch file with the state dict of the only TorchModule, or of the one in ``layers``.

    ``states`` has the buffers of integers, by the name of the layer.

    Raises
    ------
    ConfigError
        There is no such TorchModule, or there are several.
    """
    modules = {each.conf_name: each for each in exported.net.layers if isinstance(each, TorchModule)}
    chosen = [name for name in modules if name in layers or not layers]
    if not modules:
        raise ConfigError(f"{target}: the net has no TorchModule. Use {posixpath.splitext(target)[0]}.py.")
    if len(chosen) != 1:
        raise ConfigError(
            f"{target}: a file has the state dict of one TorchModule. Choose its layer: {', '.join(modules)}."
        )
    module = modules[chosen[0]]
    exported.net.context.states.update(states)
    file = io.BytesIO()
    module.torch.save({name: module.torch.from_numpy(each) for name, each in module.state_dict().items()}, file)
    return file.getvalue()


ENCODERS: dict[str, Callable[[ExportedNet, str, Mapping[str, Any]], dict[str, bytes]]] = {
    "onnx": encode_onnx,
    "torch": encode_torch,
}
