"""How much memory a net will take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from singa_dask.layers import Layer, Param
from singa_dask.layers.memory import Memory

__all__ = ["layer_bytes"]


def layer_bytes(
    layers: Sequence[Layer], of_copies: Iterable[tuple[Layer, Memory]], owners: Sequence[Param]
) -> dict[str, int]:
    """Return the bytes that each layer of the job takes of this worker's memory; what layers share counts once.

    Parameters
    ----------
    layers : sequence of Layer
        Those of this worker.
    of_copies : iterable of (Layer, Memory)
        What the net allocates for copies of layers, beside their own memory.
    owners : sequence of Param
        Those that are kept for this worker.
    """
    found: dict[str, int] = dict.fromkeys((layer.conf_name for layer in layers), 0)
    counted: set[object] = set()
    memories = [(layer, memory) for layer in layers for memory in layer.memory()]
    for layer, memory in (*memories, *of_copies):
        if memory.owner not in counted:
            counted.add(memory.owner)
            found[layer.conf_name] += memory.n_bytes
    home = {param.owner: layer.conf_name for layer in reversed(layers) for param in layer.params}
    for owner in owners:
        # an owner may be a part that no layer of this worker has made
        name = home.get(owner, owner.name)
        found[name] = found.get(name, 0) + owner.size * owner.dtype.itemsize
    return found
