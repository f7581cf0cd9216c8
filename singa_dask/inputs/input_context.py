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
        Order in which blocks are assigned to the workers, by input layer; see `Sampler`.
    class_names : ClassNames
        Meaning of the labels of the training net's input layers.
    host_names : collection of str
        Names of this host, whose bytes count as local.
    reader_bytes : int or None
        Memory of this process for the reader of each store, if known; see `MemoryBudget`.
    """

    assignments: Mapping[str, Sequence[int]] = field(default_factory=dict)
    class_names: ClassNames = field(default_factory=ClassNames)
    host_names: Collection[str] = ()
    reader_bytes: int | None = None

    def classes_of(self, layer: str) -> tuple[str, ...]:
        return self.class_names.known.class_names.get(layer, ())
