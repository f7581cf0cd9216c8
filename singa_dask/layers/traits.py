"""What a type of layer states about itself: what it is, by `Traits`, and what its code permits, by `Speed`."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

Consumed: TypeAlias = Literal["data", "labels", "ids", "raw", "one_hot_index", "nothing"]
Fusable: TypeAlias = Literal["relu", "relu_grad", "add", "add_grad", "pass_grad"]


class Connection(enum.Enum):
    """How one output feature depends on the features of the source (SINGA's ``src_neuron_connection``)."""

    ONE_TO_ONE = "one-to-one"
    ONE_TO_ALL = "one-to-all"


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a type of layer is, as its author decides. Subclasses inherit it; what buys speed is `Speed`.

    Attributes
    ----------
    n_sources : tuple of int and (int or None)
        Fewest and most source layers; None is no upper bound.
    params : tuple of str
        Names of the params, in the order in which `Layer.setup` adds them and a job lists them.
    consumes : tuple of str, or of tuples of str
        What the layer reads of each source: "data", "labels", "ids" (and epochs), "raw" or "one_hot_index"; "data" of
        those not listed. In a partitioned net nothing else is sent. "raw" and "one_hot_index" may be missing, and
        ``data`` is there instead.
    metrics : tuple of str
        Metrics that the layer adds, so that all workers of a group name them alike.
    role : {"", "input", "loss", "output", "unsupervised", "connection"}
        Records enter here; gradients start here; results leave here and there are no gradients; the layer is trained
        without a loss, as those of an RBM are, and its outputs have no gradients; or it is a `Forwarding` one.
    predicts : {"", "classes", "labels", "values"}
        What a loss compares with its second source: probabilities of classes that exclude each other, which are its
        output, as of a Softmax of its first source; probabilities of labels that do not, as of a Sigmoid; or the
        values of its first source. A layer with "classes" that is no loss has such probabilities.
    reads_beside : {"", "targets", "labels", "weights"}
        What an input layer reads of the records of another one, which reads their features.
    mixes_labels : bool
        Of rows that are mixed of two records a loss reads both labels, see `RecordIds`.
    steps : {"own", "recurrent", "columns", "all", "memory"}
        What a time step reads: the same time step of its sources; also the previous one of the layer itself, as its
        last source; its own column of a source that is not unrolled; all time steps of its sources, which may be more
        or fewer than those of the layer, as `Feature.n_steps` says; or all of those after the first source.
    takes_mask : bool
        A source beside the others may be a PaddingMask: bool, (T N, 1), true where a row is no padding.
    """

    n_sources: tuple[int, int | None] = (1, 1)
    params: tuple[str, ...] = ()
    consumes: tuple[Consumed | tuple[Consumed, ...], ...] = ()
    metrics: tuple[str, ...] = ()
    role: Literal["", "input", "loss", "output", "unsupervised", "connection"] = ""
    predicts: Literal["", "classes", "labels", "values"] = ""
    reads_beside: Literal["", "targets", "labels", "weights"] = ""
    mixes_labels: bool = False
    steps: Literal["own", "recurrent", "columns", "all", "memory"] = "own"
    takes_mask: bool = False

    def replace(self, **changes: Any) -> Traits:
        """Return a copy with some traits changed."""
        return replace(self, **changes)

    def consumed(self, source: int) -> set[Consumed]:
        """Return what the layer reads of a source."""
        wanted = self.consumes[source] if source < len(self.consumes) else "data"
        return {wanted} if isinstance(wanted, str) else set(wanted)


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What the code of a type of layer permits. The defaults are right for every layer.

    A class that overrides a method states it anew, as its own code may not permit what that of its base does.
    `singa_dask.testing` examines what is stated.

    Attributes
    ----------
    time_foldable : bool
        No row depends on another one. An unrolled net then computes all time steps in one call, as more rows.
    feature_parallel : Connection or None
        The layer can compute a part of its output features, `Feature.span`, from those features of its source
        (one-to-one) or from all of them (one-to-all). So it can be partitioned by features.
    capturable : bool
        `Layer.forward` and `Layer.backward` only call kernels, always the same ones on the same arrays. A GPU then
        replays them without the host, and a CPU those of our own layers. Work of the host belongs in `Layer.prepare`.
    reads_on_host : bool
        `Layer.prepare` reads the data of the sources on the host. Steps of a net are then captured only if these are
        not `capturable`, so that they come before all that is replayed.
    accumulates : bool
        `Layer.backward` adds to the gradients of params where `Phase.accumulates`. Without it the net gives each later
        copy of the layer memory of its own and adds the gradients itself.
    reads_gradients : bool
        `Layer.backward` does not write to the gradients of its outputs. A layer that passes gradients on unchanged, as
        `Add` does, then lets several features have the same one.
    fuses : tuple of {"relu", "relu_grad", "add", "add_grad", "pass_grad"}
        What the layer computes for its neighbours in its own kernels, where `Layer.fused` says so: writes the ReLU of
        its output and takes the gradient of that; sets the gradient of its source, a ReLU, to 0 where the source is;
        adds a feature to its output; adds a gradient to that of its source. With "pass_grad" the gradient of all
        sources is that of the output: `Layer.backward` copies it only where source and output have different arrays.
    """

    time_foldable: bool = False
    feature_parallel: Connection | None = None
    capturable: bool = False
    reads_on_host: bool = False
    accumulates: bool = False
    reads_gradients: bool = False
    fuses: tuple[Fusable, ...] = ()

    def replace(self, **changes: Any) -> Speed:
        """Return a copy with some of it changed."""
        return replace(self, **changes)
