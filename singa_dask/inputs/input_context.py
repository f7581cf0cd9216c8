"""InputContext: what all layers of one net share, and what those that read records need beside that."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from singa_dask.data.stores.class_names import ClassNames
from singa_dask.layers.context import Context


@dataclass
class InputContext(Context):
    """The `Context` of a net whose layers may read records.

    Attributes
    ----------
    assignments : mapping of str to sequence of int
        By input layer: the order in which blocks are assigned to the workers, where it is given; see `Sampler`.
    class_names : ClassNames
        What the labels of the training net's input layers mean.
    host_names : collection of str
        What the host of the process is called; bytes that lie there count as local.
    reader_bytes : int or None
        Share of each store's reader in the memory of this process, if known; see `MemoryBudget`.
    """

    assignments: Mapping[str, Sequence[int]] = field(default_factory=dict)
    class_names: ClassNames = field(default_factory=ClassNames)
    host_names: Collection[str] = ()
    reader_bytes: int | None = None

    def classes_of(self, layer: str) -> tuple[str, ...]:
        return self.class_names.known.class_names.get(layer, ())
