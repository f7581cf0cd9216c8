"""InputContext: the values that all layers of a net share, and values for input layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from singa_dask.data.stores.training_knowledge import TrainingKnowledge
from singa_dask.layers.context import Context


@dataclass
class InputContext(Context):
    """The `Context` of a net whose layers may read records.

    Attributes
    ----------
    assignments : mapping of str to sequence of int
        For each input layer, the order in which blocks are assigned to the workers; see `Sampler`.
    host_names : collection of str
        Names of this host, to count the bytes that are read from this host.
    knowledge : TrainingKnowledge
        Classes, columns and scalings of the training data.
    reader_bytes : int or None
        Bytes of this process's memory that the reader of each store may use; None if not known. See `MemoryBudget`.
    """

    assignments: Mapping[str, Sequence[int]] = field(default_factory=dict)
    host_names: Collection[str] = ()
    knowledge: TrainingKnowledge = field(default_factory=TrainingKnowledge)
    reader_bytes: int | None = None

    def classes_of(self, layer: str) -> tuple[str, ...]:
        return self.knowledge.known.class_names.get(layer, ())
