"""Layer: what every layer is to the net, and every check of wiring; Feature: what passes between two.

A member implements ``setup``, ``compute_feature`` and ``compute_gradient``; it never checks how many
sources it has, allocates its outputs or touches a device.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from singa_dask.conf import InitConf, LayerConf, ParamConf, Phase
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.layers.param import Param
from singa_dask.registry import Registry

__all__ = ["LAYERS", "Connection", "Context", "Feature", "Layer", "Stored"]

LAYERS: Registry[Layer] = Registry("layer type")


class Connection(enum.Enum):
    """How one element of a layer depends on its source (SINGA's ``src_neuron_connection``)."""

    ONE_TO_ONE = "one-to-one"
    ONE_TO_ALL = "one-to-all"


@dataclass
class Context:
    """What all layers of one net share: who computes it, with which seed, and at which step.

    Attributes
    ----------
    phase : Phase
        TRAIN, VALIDATION or TEST: the phase that the net was built for.
    seed : int
        The job's seed; every random number is a function of it, of a name and of the step.
    dtype : dtype
        Of features and their gradients.
    worker, n_workers : int
        Place in the worker group; a batch is split over the group by rows.
    group, n_groups : int
        The worker group; groups read disjoint shares of the records.
    step : int
        Set by whoever runs the net, before each pass.
    deals : mapping of str to sequence of int
        By input layer: the order in which blocks are dealt to the workers, where it is given; see `Order`.
    host_names : collection of str
        What the host of the process is called; bytes that lie there count as local.
    """

    phase: Phase = Phase.TRAIN
    seed: int = 0
    dtype: Any = field(default_factory=lambda: np.dtype(np.float32))
    worker: int = 0
    n_workers: int = 1
    group: int = 0
    n_groups: int = 1
    step: int = 0
    deals: Mapping[str, Sequence[int]] = field(default_factory=dict)
    host_names: Collection[str] = ()

    @property
    def param_dtype(self) -> np.dtype[Any]:
        """Type of what has to be exact: params, their gradients, statistics, losses; float32 with bfloat16."""
        return np.promote_types(self.dtype, np.float32)


class Stored(NamedTuple):
    """Records as a store has them, for a consumer that makes floats of them itself.

    Attributes
    ----------
    values : ndarray, shape (N, ...), uint8 or float32
        May be used until the next batch is computed.
    mean, std : ndarray of one record's shape, float, or None
        What is to be subtracted, and what divides the difference.
    """

    values: Any
    mean: Any = None
    std: Any = None


class Feature:
    """What a layer hands to one consumer: ``data`` forward, ``grad`` back.

    Attributes
    ----------
    shape : tuple of int
        Batch first; that of images is (N, C, H, W), whatever their order in memory.
    data : ndarray, shape ``shape``
        Written by the layer that owns this feature.
    grad : ndarray, shape ``shape``, or None
        Overwritten by the one consumer; None where no gradient is wanted.
    wants_grad : bool
        Whether a loss reaches back through here to something that learns; the net decides.
    reusable : bool
        The layer never reads ``data`` again, so its one consumer may compute in the same memory.
    labels : ndarray, shape (N,), int32, or None
        Labels of the records, where the layer has any.
    ids, epochs : ndarray, shape (N,), int64, or None
        Number of each record in its store, and the epoch in which it is read, where there is a store.
    stored : Stored or None
        In place of ``data`` where all who read the records take them as stored.
    read_as : set of str
        What its consumers read: "data", "labels", "stored".
    """

    def __init__(
        self, shape: Sequence[int], dtype: Any = np.float32, wants_grad: bool = True, reusable: bool = False
    ) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self.wants_grad = wants_grad
        self.reusable = reusable
        self.data: Any = None
        self.grad: Any = None
        self.labels: Any = None
        self.ids: Any = None
        self.epochs: Any = None
        self.stored: Stored | None = None
        self.read_as: set[Literal["data", "labels", "stored"]] = set()

    @property
    def size(self) -> int:
        """Values of one record."""
        return int(np.prod(self.shape[1:], dtype=np.int64))


class Layer:
    """One layer of a net.

    Class attributes are what the net asks of a type of layer.

    Attributes
    ----------
    n_sources : tuple of int and (int or None)
        Least and most sources; None is no upper bound.
    param_names : tuple of str
        Params in the order in which a job lists them; an unnamed one is called ``<layer>.<name>``.
    reads : tuple of {"data", "labels", "stored"}
        What it reads of each source; of those not named, "data". "stored" also takes ``data`` where there is no
        ``stored``.
    connection : Connection
        How the layer depends on its sources.
    is_input, is_loss, is_output : bool
        Families that the net and the algorithms treat apart: records come from an input layer, gradients
        start at a loss layer, output layers have none.
    splits : bool
        Whether several consumers need a Split, which sums their gradients. Input layers need none.
    features : list of Feature
        One, except for layers that give each consumer its own.
    learns : bool
        Whether gradients pass through this layer; the net decides.
    metrics_sum : dict of str to [float, float]
        Sum and count of each figure since `take_metrics`.
    """

    n_sources: ClassVar[tuple[int, int | None]] = (1, 1)
    param_names: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[Literal["data", "labels", "stored"], ...]] = ()
    connection: ClassVar[Connection] = Connection.ONE_TO_ONE
    is_input: bool = False
    is_loss: bool = False
    is_output: bool = False
    splits: ClassVar[bool] = True

    def __init__(self, conf: LayerConf, context: Context) -> None:
        self.conf = conf
        self.name = conf.name
        self.context = context
        self.ops: Any = None
        self.sources: list[Feature] = []
        self.features: list[Feature] = []
        self.params: list[Param] = []
        self.learns = False
        self.metrics_sum: dict[str, list[float]] = {}
        self._packed: dict[str, Any] = {}

    # -- three verbs of a member ---------------------------------------------------------------

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        """Work out shapes: add outputs by `feature`, params by `param`. Allocates nothing.

        Raises
        ------
        ConfigError
            With a path relative to the layer.
        """
        raise TypeError(f"{type(self).__name__} does not say its shapes: it has no setup()")

    def compute_feature(self, phase: Phase) -> None:
        """Compute ``features[*].data`` from ``sources[*].data``."""
        raise TypeError(f"{type(self).__name__} has no compute_feature()")

    def compute_gradient(self, phase: Phase) -> None:
        """Compute the gradients of params and sources from ``features[*].grad``; overwrite, do not add."""

    # -- what the base does for all --------------------------------------------------------------

    def wire(self, sources: Sequence[Feature], ops: Any) -> None:
        """Check the number of sources and params, then `setup`.

        Raises
        ------
        ConfigError
            With paths relative to the layer.
        """
        least, most = self.n_sources
        if len(sources) < least or (most is not None and len(sources) > most):
            bound = str(least) if least == most else f"at least {least}" if most is None else f"{least} to {most}"
            noun = "layer" if bound == "1" else "layers"
            message = f"{self.conf.type} takes {bound} source {noun}, not {len(sources)}."
            raise ConfigError(Problem(("srclayers",), message))
        if len(self.conf.param) > len(self.param_names):
            known = ", ".join(self.param_names) or "none"
            message = f"{self.conf.type} has no such param. Its params: {known}."
            raise ConfigError(Problem(("param", len(self.param_names)), message))
        self.sources = list(sources)
        self.ops = ops
        self.setup(self.conf, self.sources, ops)
        for i, source in enumerate(self.sources):
            source.read_as.add(self.reads[i] if i < len(self.reads) else "data")

    def feature(
        self, shape: Sequence[int], wants_grad: bool = True, reusable: bool = False, dtype: Any = None
    ) -> Feature:
        """Add one output of the given shape; flags as in `Feature`; ``dtype`` where it is not that of features."""
        made = Feature(shape, self.context.dtype if dtype is None else dtype, wants_grad, reusable)
        self.features.append(made)
        return made

    def outlet(self) -> Feature:
        """Return the feature for the next consumer, in the order in which they are wired."""
        return self.features[0]

    def param(self, index: int, shape: Sequence[int], *, value: float | None = None, statistic: bool = False) -> Param:
        """Add the param that the job lists at ``index``; it may leave it out or unnamed.

        Parameters
        ----------
        index : int
        shape : sequence of int
        value : float, optional
            First values where the job gives no init.
        statistic : bool
            See `Param`.
        """
        conf = self.conf.param[index] if index < len(self.conf.param) else ParamConf()
        if conf.init is None and value is not None:
            conf = conf.model_copy(update={"init": InitConf(type="Constant", value=value)})
        name = conf.name or f"{self.name}.{self.param_names[index]}"
        made = Param(name, shape, conf, self.context.param_dtype, statistic)
        self.params.append(made)
        return made

    def bias_param(self, index: int, size: int, bias_term: bool) -> Param | None:
        """Add a bias (size,) like `param`; None where ``bias_term`` says that there is none.

        Raises
        ------
        ConfigError
            The job describes one all the same.
        """
        if bias_term:
            return self.param(index, (size,))
        if len(self.conf.param) > index:
            raise ConfigError(Problem(("param", index), "there is no bias to describe: bias_term is false."))
        return None

    def allocate(self) -> None:
        """Allocate outputs and gradients, once for the life of the net; sources have theirs."""
        for feature in self.features:
            feature.data = self.ops.features(feature.shape, feature.dtype)
            if feature.wants_grad:
                feature.grad = self.ops.features(feature.shape, feature.dtype)
        if self.learns:
            for param in self.params:
                param.grad = self.ops.zeros(param.shape, param.dtype)

    def rows(self, source: int = 0) -> Any:
        """Return the data of a source as (N, D), one row a record, the values of images in the order C, H, W."""
        data = self.sources[source].data
        return data if data.ndim == 2 else self.packed(data, f"data{source}").reshape(len(data), -1)

    @contextmanager
    def grad_rows(self, source: int = 0) -> Iterator[Any]:
        """Give memory (N, D) to write the gradient of a source to, in the order of `rows`."""
        grad = self.sources[source].grad
        with self.packed_out(grad, f"grad{source}") as memory:
            yield memory if memory.ndim == 2 else memory.reshape(len(grad), -1)

    def packed(self, values: Any, key: str) -> Any:
        """Return an array whose memory is in the order of its axes: itself, or a copy in memory kept by ``key``."""
        memory = self._packed_memory(values, key)
        if memory is not values:
            self.ops.copy(values, out=memory)
        return memory

    @contextmanager
    def packed_out(self, out: Any, key: str) -> Iterator[Any]:
        """Give memory in the order of the axes for what is to be written to ``out``: itself, or some that is copied."""
        memory = self._packed_memory(out, key)
        yield memory
        if memory is not out:
            self.ops.copy(memory, out=out)

    def _packed_memory(self, values: Any, key: str) -> Any:
        if values.flags.c_contiguous:
            return values
        if key not in self._packed:
            self._packed[key] = self.ops.empty(values.shape, values.dtype)
        return self._packed[key]

    def random_key(self, *more: int | str) -> tuple[int | str, ...]:
        """Return the address of this layer's random numbers at this step."""
        context = self.context
        return (context.seed, self.name, context.group, int(context.phase), context.step, *more)

    def first_row(self, n_rows: int) -> int:
        """Return the row of the group's batch at which this worker's ``n_rows`` start."""
        return self.context.worker * n_rows

    def labels(self, source: int, n_classes: int) -> Any:
        """Return the labels of a source, (N,) integers in [0, n_classes).

        Raises
        ------
        DataError
            There are none, or one is out of range.
        """
        labels = self.sources[source].labels
        if labels is None:
            raise DataError(f"layer {self.name}: source {self.conf.srclayers[source]!r} has no labels.")
        if labels.min() < 0 or labels.max() >= n_classes:
            wrong = labels[(labels < 0) | (labels >= n_classes)][0]
            raise DataError(
                f"layer {self.name}: label {wrong} is out of range. Labels from {self.conf.srclayers[source]!r} "
                f"must be 0 to {n_classes - 1}, for {n_classes} classes."
            )
        return labels

    def add_metric(self, name: str, total: float, count: float = 1.0) -> None:
        """Add to a figure that is shown as total / count."""
        entry = self.metrics_sum.setdefault(name, [0.0, 0.0])
        entry[0] += total
        entry[1] += count

    def take_metrics(self) -> dict[str, tuple[float, float]]:
        """Return (sum, count) of each figure since the last call, and start anew."""
        taken = {name: (total, count) for name, (total, count) in self.metrics_sum.items()}
        self.metrics_sum.clear()
        return taken

    def check_source(self) -> None:
        """Compare the records that the layer reads, if any, with what the job says of them.

        Raises
        ------
        ConfigError
            With paths relative to the layer.
        """

    def cursor(self) -> dict[str, Any] | None:
        """Return where the layer stands in its records, in a few integers; None if it reads none."""
        return None

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Stand where `cursor` was taken."""

    def close(self) -> None:
        """Give back what the layer holds open (readers, files, threads)."""
