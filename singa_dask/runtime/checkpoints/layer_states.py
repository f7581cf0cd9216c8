"""Copy, save, read and restore the states of layers, such as the hidden state of a recurrent layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from singa_dask.errors import CheckpointError
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint, Save
from singa_dask.runtime.checkpoints.safetensors import tensor_chunks

if TYPE_CHECKING:
    from singa_dask.net import NeuralNet


class LayerState(NamedTuple):
    """The state of one layer.

    Attributes
    ----------
    phase : str
        ``"train"``, ``"validation"`` or ``"test"``.
    outputs : list of list of int
        Shapes of the layer's outputs. The state fits only a layer with equal shapes.
    arrays : tuple of ndarray
        The arrays of the state, copied to host memory.
    on_host : tuple of bool
        For each array, whether the layer keeps the array in host memory even if the net is on a GPU.
    """

    phase: str
    layer: str
    outputs: list[list[int]]
    arrays: tuple[np.ndarray, ...]
    on_host: tuple[bool, ...]


def take_states(nets: Mapping[str, NeuralNet]) -> list[LayerState]:
    """Return copies of the states of a worker's layers.

    Raises
    ------
    CheckpointError
        A state contains Python objects.
    """
    taken = []
    for phase, net in nets.items():
        on_gpu = net.ops.device.startswith("cuda:")
        for layer, arrays in net.context.states.items():
            copies = tuple(np.array(net.ops.to_host(array)) for array in arrays)
            if any(array.dtype.hasobject for array in copies):
                raise CheckpointError(f"layer {layer}: its state has Python objects. Expected arrays of numbers.")
            on_host = tuple(on_gpu and isinstance(array, np.ndarray) for array in arrays)
            taken.append(LayerState(phase, layer, _output_shapes(net, layer), copies, on_host))
    return taken


def _output_shapes(net: NeuralNet, name: str) -> list[list[int]]:
    """Return the output shapes of a layer, or of its first copy; empty if the net lacks the layer."""
    layer = next((layer for layer in net.layers if layer.conf_name == name), None)
    return [list(map(int, feature.shape)) for feature in layer.features] if layer else []


def restore_states(nets: Mapping[str, NeuralNet], states: Iterable[LayerState]) -> list[str]:
    """Restore the states of layers.

    Return the names of layers that are missing or have other output shapes.
    """
    unfit = []
    for state in states:
        net = nets.get(state.phase)
        if net is None:
            continue
        if _output_shapes(net, state.layer) != state.outputs:
            unfit.append(state.layer)
            continue
        arrays = zip(state.arrays, state.on_host, strict=True)
        net.context.states[state.layer] = tuple(each if here else net.ops.from_host(each) for each, here in arrays)
    return unfit


def write_states(save: Save, group: int, worker: int, states: Sequence[LayerState]) -> dict[str, Any]:
    """Save the states of one worker; return their description for the manifest."""
    arrays, layers = {}, []
    for state in states:
        described = []
        for index, (array, on_host) in enumerate(zip(state.arrays, state.on_host, strict=True)):
            key = f"{state.phase}/{state.layer}/{index}"
            arrays[key] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            # NumPy cannot restore some dtypes, e.g. bfloat16, from their dtype string; store their name instead
            dtype = array.dtype.str if np.dtype(array.dtype.str) == array.dtype else array.dtype.name
            described.append({"key": key, "dtype": dtype, "shape": list(array.shape), "on_host": on_host})
        layers.append({"phase": state.phase, "layer": state.layer, "outputs": state.outputs, "arrays": described})
    file = save(f"states-{group}-{worker}.safetensors", tensor_chunks(arrays))
    return {**file, "group": group, "worker": worker, "layers": layers}


def read_states(checkpoint: Checkpoint, group: int, worker: int) -> list[LayerState]:
    """Return the states of the layers of one worker; empty if the worker had none.

    Raises
    ------
    CheckpointError
        The file is damaged or cannot be read.
    """
    states = []
    for part in checkpoint.manifest.get("states", ()):
        if (part["group"], part["worker"]) != (group, worker):
            continue
        tensors = checkpoint.tensors(part["file"])
        for layer in part["layers"]:
            arrays = tuple(
                np.frombuffer(tensors[facts["key"]].tobytes(), np.dtype(facts["dtype"])).reshape(facts["shape"]).copy()
                for facts in layer["arrays"]
            )
            on_host = tuple(facts["on_host"] for facts in layer["arrays"])
            states.append(LayerState(layer["phase"], layer["layer"], layer["outputs"], arrays, on_host))
    return states
