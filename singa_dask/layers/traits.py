"""Traits: what a type of layer states about itself."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

Consumed: TypeAlias = Literal["data", "labels", "ids", "raw", "one_hot_index", "nothing"]


class Connection(enum.Enum):
    """How one output feature depends on the features of the source (SINGA's ``src_neuron_connection``)."""

    ONE_TO_ONE = "one-to-one"
    ONE_TO_ALL = "one-to-all"


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a type of layer states about itself. The defaults are right for every layer; each trait buys something.

    Attributes
    ----------
    n_sources : tuple of int and (int or None)
        Fewest and most source layers; None is no upper bound.
    params : tuple of str
        Names of the params, in the order in which `Layer.setup` adds them and a job lists them.
    time_foldable : bool
        No row depends on another one. An unrolled net then computes all time steps in one call, as more rows.
    feature_parallel : Connection or None
        The layer can compute a part of its output features, as `Layer.feature_span` says, from those features of its
        source (one-to-one) or from all of them (one-to-all). So it can be partitioned by features.
    capturable : bool
        `Layer.forward` and `Layer.backward` only call kernels, always the same ones on the same arrays. A GPU then
        replays them without the host, and a CPU those of our own layers. Work of the host belongs in `Layer.prepare`.
    reads_on_host : bool
        `Layer.prepare` reads the data of the sources on the host. Steps of a net are then captured only if these are
        not `capturable`, so that they come before all that is replayed.
    accumulates : bool
        `Layer.backward` adds to the gradients of params that say `Param.accumulates`. Without it
        the net gives each later copy of the layer memory of its own and adds the gradients itself.
    reads_gradients : bool
        `Layer.backward` does not write to the gradients of its outputs. A layer that passes gradients on unchanged, as
        `Add` does, then lets several features have the same one.
    adds_gradient : bool
        `Layer.backward` adds the gradient of `Feature.grad_added` of its source, if there is one, to that of its own.
    consumes : tuple of str, or of tuples of str
        What the layer reads of each source: "data", "labels", "ids" (and epochs), "raw" or "one_hot_index"; "data" of
        those not listed. In a partitioned net nothing else is sent. "raw" and "one_hot_index" may be missing, and
        ``data`` is there instead.
    metrics : tuple of str
        Metrics that the layer adds, so that all workers of a group name them alike.
    takes_mask : bool
        A source beside the others may be a PaddingMask: bool, (T N, 1), true where a row is no padding.
    recurrent : bool
        Each time step also reads the previous one of the same layer, as its last source.
    time_from_columns : bool
        Each time step reads its own column of a source that is not unrolled.
    all_steps_from : int or None
        Sources from this one on are read with all of their time steps at once, which may be more or fewer than those of
        the layer: `Feature.n_steps` of the source says how many.
    outputs_key : tuple of str, or None
        Block and key of the job that say how many outputs there are, one for each reader; None if all share one.
    needs_split : bool
        Several consumers need a Split layer, which sums their gradients.
    forwards : frozenset of str
        What the layer passes on unchanged, of what its consumers read.
    is_input, is_loss, is_output : bool
        Records enter here; gradients start here; results leave here and there are no gradients.
    predicts : {"", "classes", "labels", "values"}
        What a loss compares with its second source: probabilities of classes that exclude each other, which are its
        output, as of a Softmax of its first source; probabilities of labels that do not, as of a Sigmoid; or the
        values of its first source. A layer with "classes" that is no loss has such probabilities.
    reads_beside : {"", "targets", "labels", "weights"}
        What an input layer reads of the records of another one, which reads their features.
    mixes_labels : bool
        Of rows that are mixed of two records a loss reads both labels, see `RecordIds`.
    learns_without_loss : bool
        The layer is trained without a loss, as those of an RBM are. Its outputs have no gradients.
    """

    n_sources: tuple[int, int | None] = (1, 1)
    params: tuple[str, ...] = ()
    time_foldable: bool = False
    feature_parallel: Connection | None = None
    capturable: bool = False
    reads_on_host: bool = False
    accumulates: bool = False
    reads_gradients: bool = False
    adds_gradient: bool = False
    consumes: tuple[Consumed | tuple[Consumed, ...], ...] = ()
    metrics: tuple[str, ...] = ()
    takes_mask: bool = False
    recurrent: bool = False
    time_from_columns: bool = False
    all_steps_from: int | None = None
    outputs_key: tuple[str, str] | None = None
    needs_split: bool = True
    forwards: frozenset[Consumed] = frozenset()
    is_input: bool = False
    is_loss: bool = False
    is_output: bool = False
    predicts: Literal["", "classes", "labels", "values"] = ""
    reads_beside: Literal["", "targets", "labels", "weights"] = ""
    mixes_labels: bool = False
    learns_without_loss: bool = False

    @property
    def connection(self) -> Connection:
        """How the layer depends on its sources, where that makes a difference."""
        return self.feature_parallel or Connection.ONE_TO_ONE

    def replace(self, **changes: Any) -> Traits:
        """Return a copy with some traits changed."""
        return replace(self, **changes)

    def reads_all_steps(self, source: int) -> bool:
        """Tell whether the layer reads all time steps of a source at once."""
        return self.all_steps_from is not None and source >= self.all_steps_from

    def consumed(self, source: int) -> set[Consumed]:
        """Return what the layer reads of a source."""
        wanted = self.consumes[source] if source < len(self.consumes) else "data"
        return {wanted} if isinstance(wanted, str) else set(wanted)
