"""Traits and Speed: properties that a layer class declares, and optimisations that its code permits."""

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
    """Properties that a layer class declares. Subclasses inherit them.

    A net is planned with the traits of the class. An instance may replace traits that depend on its options, except
    ``n_sources``, ``reads_beside``, ``steps`` and ``takes_mask``; its role may become "loss" or "output". `Layer.setup`
    may leave out the last ``params``.

    Attributes
    ----------
    n_sources : tuple of int and (int or None)
        Minimum and maximum number of source layers; None means no maximum.
    params : tuple of str
        Names of the params, in the order in which `Layer.setup` adds them and a job lists them.
    consumes : tuple of str, or of tuples of str
        What the layer reads from each source: "data", "labels", "ids" (and epochs), "raw" or "one_hot_index". The
        default is "data". A partitioned net sends only these. A source that cannot supply "raw" or "one_hot_index" has
        ``data`` instead.
    metrics : tuple of str
        Names of the metrics that the layer adds. They are declared here, so that all workers of a group use the same
        names.
    role : {"", "input", "loss", "output", "unsupervised", "connection"}
        "input": the layer reads records. "loss": gradients start at the layer. "output": the layer outputs results and
        has no gradients. "unsupervised": the layer is trained without a loss, e.g. an RBM; its outputs have no
        gradients. "connection": the layer is a `Forwarding`.
    predicts : {"", "classes", "labels", "values"}
        What a loss compares with its second source. "classes": the loss's output, which is a softmax of the first
        source, a probability for each class. "labels": the loss's output, which is a sigmoid of the first source, a
        probability for each label. "values": the first source itself. For a layer that is not a loss, "classes" means
        that it outputs class probabilities.
    reads_beside : {"", "targets", "labels", "weights"}
        For an input layer that reads no features: the field that it reads from the records of another input layer.
    mixes_labels : bool
        Whether a loss uses both labels of a row that mixes two records; see `RecordIds`.
    steps : {"own", "recurrent", "columns", "all", "memory"}
        What a time step of the layer reads. "own": the same time step of the sources. "recurrent": also the layer's
        previous time step, as the last source. "columns": its own column of a source that is not unrolled. "all": all
        time steps of the sources; see `Feature.n_steps`. "memory": the same time step of the first source, and all time
        steps of the other sources.
    takes_mask : bool
        Whether the layer accepts a PaddingMask as an additional source: bool, (T N, 1), true for rows that are not
        padding.
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
        """Return what the layer reads from source number ``source``."""
        wanted = self.consumes[source] if source < len(self.consumes) else "data"
        return {wanted} if isinstance(wanted, str) else set(wanted)


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Optimisations that the code of a layer class permits. The defaults are right for every layer.

    A class that overrides a method must declare ``speed`` again, because its code may permit less. `singa_dask.testing`
    checks the declaration. `Layer.setup` may set ``capturable`` of its instance to False, and shorten ``fuses``.

    Attributes
    ----------
    time_foldable : bool
        Each output row depends only on the same row of the sources. An unrolled net then computes all time steps in one
        call, as additional rows.
    feature_parallel : Connection or None
        The layer can be partitioned by features. Each instance computes the output features in `Feature.span`, from the
        same features of its source (one-to-one) or from all of them (one-to-all).
    capturable : bool
        `Layer.forward` and `Layer.backward` only call kernels, always the same kernels on the same arrays. A GPU then
        replays the kernels without the host; a CPU replays the kernels of built-in layers. Put work for the host in
        `Layer.prepare`.
    reads_on_host : bool
        `Layer.prepare` reads the data of the sources on the host. The net can then capture its steps only if the source
        layers are not `capturable`: these layers then run before all captured layers.
    accumulates : bool
        `Layer.backward` adds to the gradients of params if `Phase.accumulates` is set. For layers that do not
        accumulate, the net stores the gradients of each additional instance separately, and adds them.
    reads_gradients : bool
        `Layer.backward` does not write to the gradients of its outputs. A layer such as `Add` can then give several
        features the same gradient array.
    fuses : tuple of {"relu", "relu_grad", "add", "add_grad", "pass_grad"}
        Work that the layer can do for its neighbours. `Layer.fused` lists the work that the layer has to do. "relu":
        the ReLU of its output, and the gradient of this ReLU. "relu_grad": the gradient of a ReLU that is its source.
        "add": add a feature to its output. "add_grad": add a gradient to the gradient of its source. "pass_grad": all
        sources may share the gradient array of the output; `Layer.backward` copies it to sources that do not share it.
    """

    time_foldable: bool = False
    feature_parallel: Connection | None = None
    capturable: bool = False
    reads_on_host: bool = False
    accumulates: bool = False
    reads_gradients: bool = False
    fuses: tuple[Fusable, ...] = ()

    def replace(self, **changes: Any) -> Speed:
        """Return a copy with some values changed."""
        return replace(self, **changes)
