"""Traits and Speed: what a type of layer declares about itself, and which optimisations its code permits."""

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
    """What a type of layer declares about itself. Subclasses inherit it.

    Attributes
    ----------
    n_sources : tuple of int and (int or None)
        Fewest and most source layers; None means no upper bound.
    params : tuple of str
        Names of the params, in the order in which `Layer.setup` adds them and a job lists them.
    consumes : tuple of str, or of tuples of str
        What the layer reads of each source: "data", "labels", "ids" (and epochs), "raw" or "one_hot_index"; by default
        "data". A partitioned net sends nothing else. "raw" and "one_hot_index" may be missing; then ``data`` is there.
    metrics : tuple of str
        Metrics that the layer adds, so that all workers of a group use the same names.
    role : {"", "input", "loss", "output", "unsupervised", "connection"}
        "input": records enter here. "loss": gradients start here. "output": results leave here, without gradients.
        "unsupervised": trained without a loss, e.g. an RBM; outputs have no gradients. "connection": a `Forwarding`.
    predicts : {"", "classes", "labels", "values"}
        What a loss compares with its second source. "classes": its output, probabilities of exclusive classes, as a
        Softmax of its first source. "labels": its output, independent probabilities, as a Sigmoid. "values": its first
        source. A layer with "classes" that is not a loss outputs class probabilities.
    reads_beside : {"", "targets", "labels", "weights"}
        For an input layer that reads no features, but this field of the records of another input layer.
    mixes_labels : bool
        Whether a loss reads both labels of rows that are mixed from two records, see `RecordIds`.
    steps : {"own", "recurrent", "columns", "all", "memory"}
        What a time step reads. "own": the same time step of its sources. "recurrent": also the layer's previous time
        step, as the last source. "columns": its own column of a source that is not unrolled. "all": all time steps of
        its sources, `Feature.n_steps`. "memory": all time steps of the sources after the first.
    takes_mask : bool
        Whether one more source may be a PaddingMask: bool, (T N, 1), true where a row is not padding.
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
    """Which optimisations the code of a type of layer permits. The defaults are right for every layer.

    A class that overrides a method declares it again, as its code may permit less. `singa_dask.testing` checks it.

    Attributes
    ----------
    time_foldable : bool
        No row depends on another. An unrolled net then computes all time steps in one call, as more rows.
    feature_parallel : Connection or None
        The layer can be partitioned by features: it can compute some output features, `Feature.span`, from the same
        features of its source (one-to-one) or from all of them (one-to-all).
    capturable : bool
        `Layer.forward` and `Layer.backward` only call kernels, always the same ones on the same arrays. A GPU then
        replays them without the host; a CPU does so for built-in layers. Host work belongs in `Layer.prepare`.
    reads_on_host : bool
        `Layer.prepare` reads the data of the sources on the host. Steps of a net are then captured only if the layers
        of that data are not `capturable`, so that they run before all that is replayed.
    accumulates : bool
        `Layer.backward` adds to the gradients of params if `Phase.accumulates`. Without it the net keeps the gradients
        of each further copy apart and adds them itself.
    reads_gradients : bool
        `Layer.backward` does not write to the gradients of its outputs, so that a layer such as `Add` can give several
        features the same gradient array.
    fuses : tuple of {"relu", "relu_grad", "add", "add_grad", "pass_grad"}
        What the layer can compute for its neighbours; `Layer.fused` says what it has to. "relu": the ReLU of its
        output, and its gradient. "relu_grad": the gradient of a ReLU that is its source. "add": adds a feature to its
        output. "add_grad": adds a gradient to the gradient of its source. "pass_grad": all sources may share the
        gradient array of the output; `Layer.backward` copies it to the others.
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
