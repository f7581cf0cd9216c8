"""Whether a training net learns: it needs a loss, and params from which the loss is reached."""

from __future__ import annotations

from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.embedding import RNNLabel
from singa_dask.layers.neuron import Softmax
from singa_dask.net import NeuralNet

__all__ = ["check_learns"]


def check_learns(net: NeuralNet) -> None:
    """Check that back-propagation has a loss to start from, and changes a param.

    Raises
    ------
    ConfigError
        It has none, and which layer is likely to be missing.
    """
    layers = net.all_layers
    if not any(layer.traits.is_loss for layer in layers):
        message = f"the train net has no loss layer, so that nothing is learnt. {_missing_loss(net)}"
        raise ConfigError(Problem(("neuralnet", "layer"), message))
    if not any(layer.learns and layer.params for layer in layers):
        losses = ", ".join(dict.fromkeys(repr(layer.conf_name) for layer in layers if layer.traits.is_loss))
        first = next((layer.conf_name for layer in layers if layer.params), None)
        hint = f"Does it read what comes from {first!r}?" if first else "Add one, e.g. an InnerProduct."
        message = f"no layer with params is below the loss {losses}, so that nothing is learnt. {hint}"
        raise ConfigError(Problem(("neuralnet", "layer"), message))


def _missing_loss(net: NeuralNet) -> str:
    """Say which loss layer to add."""
    layers = {node.layer: net.name2layer(node.name) for node in net.nodes if not node.inserted}
    inner = {name: layer for name, layer in layers.items() if not (layer.traits.is_input or layer.traits.is_output)}
    ends = [node for node in net.unread_layers() if node.layer in inner]
    learning = [name for name, layer in inner.items() if layer.params]
    last = ends[-1].layer if ends else learning[-1] if learning else None
    labels = [name for name, layer in layers.items() if layer.traits.is_input or isinstance(layer, RNNLabel)]
    if last is None or not labels:
        return "Add one, e.g. a SoftmaxLoss."
    if isinstance(layers[last], Softmax):
        below = layers[last].conf.srclayers[0]
        return f"Put a SoftmaxLoss that reads {below!r} and {labels[-1]!r} in the place of the Softmax {last!r}."
    return (
        f"Add a SoftmaxLoss, or for values instead of classes a EuclideanLoss, that reads {last!r} and {labels[-1]!r}."
    )
