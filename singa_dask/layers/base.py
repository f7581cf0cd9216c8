"""Layer: what every layer is to the net, and every check of wiring.

A member implements ``setup``, ``compute_feature`` and ``compute_gradient``; it never checks how many
sources it has, allocates its outputs or touches a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from singa_dask.conf import Conf, InitConf, LayerConf, ParamConf, Phase
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.layers.feature import Connection, Context, Cut, Feature, Read, Stored
from singa_dask.layers.figures import Figures
from singa_dask.layers.packing import Packing
from singa_dask.layers.param import Box, Param
from singa_dask.registry import Registry

__all__ = ["LAYERS", "Connection", "Context", "Feature", "Layer", "Stored"]

LAYERS: Registry[Layer] = Registry("layer type")


class Layer(Packing):
    """One layer of a net.

    Class attributes are what the net asks of a type of layer.

    Attributes
    ----------
    n_sources : tuple of int and (int or None)
        Least and most sources; None is no upper bound.
    block : type of Conf or None
        The block of the job that it reads, if any: others are told to be of no use.
    param_names : tuple of str
        Params in the order in which a job lists them; an unnamed one is called ``<layer>.<name>``.
    reads : tuple of {"data", "labels", "ids", "stored", "index"}, or of tuples of them
        What it reads of each source; of those not named, "data". "stored" and "index" also take ``data`` where there
        is nothing else; "ids" are the records' numbers and their epochs. What is not named here may not be there.
    connection : Connection
        How the layer depends on its sources.
    is_input, is_loss, is_output : bool
        Families that the net and the algorithms treat apart: records come from an input layer, gradients
        start at a loss layer, output layers have none.
    is_energy : bool
        It learns without a loss, as the layers of an RBM do; its outputs have no gradients.
    splits : bool
        Whether several consumers need a Split, which sums their gradients. Input layers need none.
    over_time : bool
        In an unrolled net all its time steps may be computed in one call, as so many more rows.
    recurrent : bool
        Each time step also reads the one before of the same layer, as its last source.
    steps_from_columns : bool
        Each time step takes its own columns of a source that is not unrolled.
    by_feature : bool
        It can be partitioned by features: the net may give it a part of the columns. If not, it is partitioned by
        records where the job says 1; one that reads records, or takes its steps from columns, is then there whole on
        each worker.
    passes : frozenset of {"data", "labels", "ids", "index"}
        Of a layer that passes on what its consumers read: what it can pass on. What it cannot, they take as data.
    repeats : bool
        A pass through it, but for `prepare`, only asks for kernels: each time the same ones, on the same arrays, with
        the same numbers but for keys of random ones. So a GPU can repeat them by itself. Not inherited.
    accumulates : bool
        `compute_gradient` adds to the gradients of params where `Phase.AGGREGATE_GRADIENT` says so. If not, a later
        copy in an unrolled net computes them in memory of all such copies, and the net adds them. A class with a
        `compute_gradient` of its own has to say so itself.
    figures : tuple of str
        Figures that it adds: the workers of a group, which may have different layers, have to call them alike.
    row_part, n_row_parts : int
        Which part of the group's batch it has, of how many.
    column_part, n_column_parts : int
        Which part of the features it computes, of how many.
    conf_name : str
        Name in the job; that of a copy in an unrolled net is ``<step>#<name>``.
    first_step, n_steps : int
        Time steps that this instance computes; rows of the first step come first.
    first_copy : Layer or None
        Of a later copy: the copy of step 0, whose params it uses.
    adds_gradient : bool
        Another copy has been here before in the backward pass, with the same params; the net decides.
    hands_over : bool
        No other copy will come after it in the backward pass: its params' gradients are whole; the net decides.
    features : list of Feature
        One, except for layers that give each consumer its own.
    learns : bool
        Whether gradients pass through this layer; the net decides.

    metrics : Figures
        What it tells of its batches.

    Notes
    -----
    Features, gradients and params are arrays of the worker's device: functions of numpy that compute value by value
    take them wherever they lie, on a GPU too; features of integers, and labels, are always numpy's.
    """

    n_sources: ClassVar[tuple[int, int | None]] = (1, 1)
    block: ClassVar[type[Conf] | None] = None
    param_names: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[Read | tuple[Read, ...], ...]] = ()
    connection: ClassVar[Connection] = Connection.ONE_TO_ONE
    is_input: bool = False
    is_loss: bool = False
    is_output: bool = False
    is_energy: ClassVar[bool] = False
    splits: ClassVar[bool] = True
    over_time: ClassVar[bool] = False
    recurrent: ClassVar[bool] = False
    steps_from_columns: ClassVar[bool] = False
    by_feature: ClassVar[bool] = False
    repeats: bool = False
    accumulates: bool = False
    passes: frozenset[Read] = frozenset()
    figures: ClassVar[tuple[str, ...]] = ()
    first_step: int = 0
    n_steps: int = 1
    first_copy: Layer | None = None
    adds_gradient: bool = False
    hands_over: bool = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.repeats = vars(cls).get("repeats", False)
        if "compute_gradient" in vars(cls):
            cls.accumulates = vars(cls).get("accumulates", False)

    def __init__(self, conf: LayerConf, context: Context) -> None:
        super().__init__()
        self.conf = conf
        self.name = self.conf_name = conf.name
        self.context = context
        self.row_part, self.n_row_parts = context.worker, context.n_workers
        self.column_part, self.n_column_parts = 0, 1
        self.ops: Any = None
        self.sources: list[Feature] = []
        self.features: list[Feature] = []
        self.params: list[Param] = []
        self.own_grads: list[Any] = []
        self.learns = False
        self.metrics = Figures()

    # -- three verbs of a member ---------------------------------------------------------------

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        """Work out shapes: add outputs by `feature`, params by `param`. Allocates nothing.

        Raises
        ------
        ConfigError
            With a path relative to the layer.
        """
        raise TypeError(f"{type(self).__name__} does not say its shapes: it has no setup()")

    def prepare(self, phase: Phase) -> None:
        """Do the work on the host that comes before `compute_feature`, whose kernels a GPU may repeat without it.

        The net calls it in every forward pass; no layer calls it.
        """

    def compute_feature(self, phase: Phase) -> None:
        """Compute ``features[*].data`` from ``sources[*].data``."""
        raise TypeError(f"{type(self).__name__} has no compute_feature()")

    def compute_gradient(self, phase: Phase) -> None:
        """Compute the gradients of params and sources from ``features[*].grad``.

        They are overwritten. In a class that `accumulates`, `Phase.AGGREGATE_GRADIENT` asks to add those of params to
        what is there: the gradients of another copy of this layer in an unrolled net.
        """

    def arrived(self, phase: Phase) -> bool:
        """Tell whether a pass through this layer would not wait for another worker."""
        return True

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
        for i, source in enumerate(self.sources if not self.passes else ()):
            wanted = self.reads[i] if i < len(self.reads) else "data"
            source.read_as.update((wanted,) if isinstance(wanted, str) else wanted)

    def feature(
        self,
        shape: Sequence[int],
        wants_grad: bool = True,
        reusable: bool = False,
        dtype: Any = None,
        columns: Cut | None = None,
    ) -> Feature:
        """Add one output of the given shape; flags as in `Feature`; ``dtype`` where it is not that of features.

        ``columns`` is what `cut` has returned, where the features are not those of the first source.
        """
        if self.passes:
            wants_grad &= any(source.wants_grad for source in self.sources)
        made = Feature(shape, self.context.dtype if dtype is None else dtype, wants_grad, reusable)
        made.n_steps = self.n_steps
        if self.n_column_parts > 1:
            made.columns = columns or self.sources[0].columns
        self.features.append(made)
        return made

    def cut(self, total: int) -> Cut:
        """Return this layer's part of so many output features: all of them where it is not partitioned by features.

        Raises
        ------
        ConfigError
            There are too few.
        """
        if total < self.n_column_parts:
            message = f"{total} features cannot be shared by {self.n_column_parts} workers. Say 0, or -1."
            raise ConfigError(Problem(("partition_dim",), message))
        return Cut.of(total, self.column_part, self.n_column_parts)

    def outlet(self) -> Feature:
        """Return the feature for the next consumer, in the order in which they are wired."""
        return self.features[0]

    @classmethod
    def loop_sources(cls, conf: LayerConf) -> list[str]:
        """Return the layers whose outputs of an earlier pass it reads, which `close_loop` is given."""
        return []

    def close_loop(self, source: Feature) -> None:
        """Take in a feature that is computed after this layer, once all layers are wired."""

    def param(
        self, index: int, shape: Sequence[int], *, value: float | None = None, statistic: bool = False, axis: int = 0
    ) -> Param:
        """Add the param that the job lists at ``index``; it may leave it out or unnamed.

        Parameters
        ----------
        index : int
        shape : sequence of int
            Of the part that this layer computes with.
        value : float, optional
            First values where the job gives no init.
        statistic : bool
            See `Param`.
        axis : int
            Which axis is that of the output features, and is cut where these are.
        """
        if self.first_copy is not None:
            made = self.first_copy.params[len(self.params)]
        else:
            conf = self.conf.param[index] if index < len(self.conf.param) else ParamConf()
            if conf.init is None and value is not None:
                conf = conf.model_copy(update={"init": InitConf(type="Constant", value=value)})
            name = conf.name or f"{self.conf_name}.{self.param_names[index]}"
            columns = self.features[0].columns if self.n_column_parts > 1 else None
            box = None if columns is None else Box(self.column_part, axis, columns)
            made = Param(name, shape, conf, self.context.param_dtype, statistic, box)
        if made.shape != tuple(shape):
            message = f"at step {self.first_step} it would have shape {tuple(shape)}, at step 0 {made.shape}."
            raise ConfigError(Problem(("param", index), message))
        self.params.append(made)
        return made

    def initial(self, index: int) -> InitConf | None:
        """Return how the param at ``index`` starts where neither the job nor a checkpoint says it; None: they have to.

        Asked after `setup`; it may depend on the ``whole_shape`` of params, never on their parts.
        """
        return None

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
            memory = np.zeros if feature.on_host else self.ops.features
            feature.data = memory(feature.shape, feature.dtype)
            if feature.wants_grad:
                feature.grad = self.ops.features(feature.shape, feature.dtype)
        trained = [param for param in self.params if self.learns and not param.is_idle]
        for param in trained:
            if param.grad is None:
                param.take_grad(self.ops.zeros(param.memory_shape, param.dtype))
        if self.adds_gradient and not self.accumulates:
            self.own_grads = (self.first_copy or self).own_grads or [self.ops.zeros(p.shape, p.dtype) for p in trained]

    def random_key(self, *more: int | str) -> tuple[int | str, ...]:
        """Return the address of this layer's random numbers at this step."""
        context = self.context
        return (context.seed, self.conf_name, context.group, int(context.phase), context.step, *more)

    @staticmethod
    def key_at(key: Sequence[int | str], step: int) -> tuple[int | str, ...]:
        """Return what `random_key` gives at another step."""
        return (*key[:4], step, *key[5:])

    def first_row(self, n_rows: int) -> int:
        """Return the row of the group's batch at which this layer's ``n_rows`` start."""
        shares = self.context.shares
        return n_rows * sum(shares[: self.row_part]) // shares[self.row_part] if shares else self.row_part * n_rows

    def labels(self, source: int, n_classes: int) -> Any:
        """Return the labels of a source, (N,) integers in [0, n_classes).

        Raises
        ------
        DataError
            There are none, or one is out of range.
        """
        labels = self.sources[source].labels
        if labels is None:
            hint = f" Does {self.conf.type} say that it reads them? See Layer.reads."
            hint = "" if "labels" in self.sources[source].read_as else hint
            raise DataError(f"layer {self.name}: source {self.conf.srclayers[source]!r} has no labels.{hint}")
        if labels.min() < 0 or labels.max() >= n_classes:
            wrong = labels[(labels < 0) | (labels >= n_classes)][0]
            raise DataError(
                f"layer {self.name}: label {wrong} is out of range. Labels from {self.conf.srclayers[source]!r} "
                f"must be 0 to {n_classes - 1}, for {n_classes} classes."
            )
        return labels

    def add_metric(self, name: str, total: Any, count: float = 1.0, *, scale: float = 1.0, n: float = 1.0) -> None:
        """Add to a figure that is shown as total / count.

        Parameters
        ----------
        name : str
        total : float, or what a kernel has returned
            On a GPU the sum stays there: nothing waits for it.
        count : float
        scale, n : float
            What is added is ``scale * total / n``.
        """
        self.metrics.add(self.ops, name, total, count, scale, n)

    def take_metrics(self) -> dict[str, tuple[float, float]]:
        """Return (sum, count) of each figure since the last call, and start anew."""
        return self.metrics.take(self.ops)

    def totals(self, wait: bool = True) -> Iterator[tuple[str, float]]:
        """Yield each figure with a sum, in no unit; without ``wait`` that of some steps ago, where a GPU is behind."""
        return self.metrics.totals(self.ops, wait)

    def check_source(self) -> None:
        """Compare the records that the layer reads, if any, with what the job says of them.

        Raises
        ------
        ConfigError
            With paths relative to the layer.
        """

    @property
    def epoch(self) -> float | None:
        """Passes over its records so far, as a fraction; None if the layer reads none, or has not begun."""
        return None

    def cursor(self) -> dict[str, Any] | None:
        """Return where the layer stands in its records, in a few integers; None if it reads none."""
        return None

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Stand where `cursor` was taken."""

    def close(self) -> None:
        """Give back what the layer holds open (readers, files, threads)."""
