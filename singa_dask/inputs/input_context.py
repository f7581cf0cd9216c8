"""InputContext: what the layers of a net share, including what input layers need."""

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
        For each input layer, the order in which blocks are assigned to the workers; see `Sampler`.
    class_names : ClassNames
        Meaning of the labels of the training net's input layers.
    host_names : collection of str
        Names of this host. Bytes that are read from it count as local.
    reader_bytes : int or None
        Bytes of this process's memory that the reader of each store may use; None if not known. See `MemoryBudget`.
    """

    assignments: Mapping[str, Sequence[int]] = field(default_factory=dict)
    class_names: ClassNames = field(default_factory=ClassNames)
    host_names: Collection[str] = ()
    reader_bytes: int | None = None

    def classes_of(self, layer: str) -> tuple[str, ...]:
        return self.class_names.known.class_names.get(layer, ())
