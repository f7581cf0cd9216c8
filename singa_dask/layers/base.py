"""Layer: the contract of every layer, and every check of its wiring.

An author writes `Layer.setup`, `Layer.forward` and `Layer.backward`. He never checks how many sources there are,
allocates memory or touches a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from singa_dask.conf import Conf, InitConf, LayerConf, ParamConf, Phase
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.layers.feature import Feature
from singa_dask.layers.memory import Buffer, Contiguous, Memory, When
from singa_dask.layers.metrics import Metrics
from singa_dask.layers.param import Param, ParamShard
from singa_dask.layers.site import Context, Shard, Site, Span
from singa_dask.layers.subclass import check_setup, define_verbs, inherit_traits
from singa_dask.layers.traits import Traits
from singa_dask.ops.contract import Array, DType, Ops, Scalar
from singa_dask.registry import Registry

LAYERS: Registry[Layer] = Registry("layer type")


class Layer(Contiguous):
    """One layer of a net.

    Attributes
    ----------
    traits : Traits
        What the type states about itself. A subclass that states nothing inherits the traits of its base, but those
        that its own code could make wrong: see `Traits`.
    block : type of Conf or None
        The block of the job file that the type reads, if any.
    conf : LayerConf
        The layer as the job describes it.
    site : Site
        What the net knows about this instance.
    context : Context
        What all layers of the net share.
    ops : Ops
        Kernels of the device; the net gives them before `setup`.
    sources : list of Feature
        What the layer reads.
    features : list of Feature
        Its outputs: one, unless each consumer gets its own.
    params : list of Param
    metrics : Metrics
        Sums over the batches.
    learns : bool
        Whether gradients pass through this layer; the net decides.

    Notes
    -----
    Features, gradients and params are arrays of the device: NumPy functions that compute value by value accept them
    on a GPU too. Features of integers, and labels, are always NumPy arrays.
    """

    traits: Traits = Traits()
    block: ClassVar[type[Conf] | None] = None
    ops: Ops
    metrics: Metrics

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        define_verbs(cls)
        inherit_traits(cls)

    def __init__(self, conf: LayerConf, context: Context, site: Site | None = None) -> None:
        super().__init__()
        self.conf = conf
        self.context = context
        self.site = site or Site(conf.name, conf.name, Shard(context.worker, context.n_workers))
        self.sources: list[Feature] = []
        self.features: list[Feature] = []
        self.params: list[Param] = []
        self.n_left_out = 0
        self.buffers: dict[str, Buffer] = {}
        self.learns = False

    @property
    def name(self) -> str:
        """Name of this instance in the net."""
        return self.site.name

    @property
    def conf_name(self) -> str:
        """Name of the layer in the job."""
        return self.site.layer

    # -- what an author writes ---------------------------------------------------------------------

    def setup(self) -> None:
        """Declare outputs, params and buffers: `add_output`, `add_param`, `buffer`. Allocates nothing.

        Raises
        ------
        ConfigError
            With a path relative to the layer.
        """
        raise TypeError(f"{type(self).__name__} does not say its shapes: it has no setup()")

    def prepare(self, phase: Phase) -> None:
        """Do what the host has to do before `forward`. The net calls it in every forward pass; no layer calls it."""

    def forward(self, phase: Phase) -> None:
        """Compute ``features[*].data`` from ``sources[*].data``. Also called ``compute_feature``, as in SINGA."""
        raise TypeError(f"{type(self).__name__} has no forward()")

    def backward(self, phase: Phase) -> None:
        """Compute the gradients of params and sources from ``features[*].grad``. Also called ``compute_gradient``.

        Gradients are overwritten. A type that `accumulates` adds those of params where the phase has
        `Phase.AGGREGATE_GRADIENT`. A layer without this method is refused where something that it reads learns.
        """

    compute_feature = forward
    compute_gradient = backward

    def attach(self) -> None:
        """Let outputs use other memory than their own, once that is allocated."""

    # -- declarations, for setup ----------------------------------------------------------------------

    def add_output(
        self,
        shape: Sequence[int],
        *,
        dtype: DType | None = None,
        requires_grad: bool = True,
        overwritable: bool = False,
        span: Span | None = None,
        own_data: bool | Literal["consumed"] = True,
        own_grad: bool = True,
    ) -> Feature:
        """Add an output.

        Parameters
        ----------
        shape : sequence of int
            Batch first.
        dtype : dtype, optional
            That of features if not given.
        requires_grad, overwritable, own_data, own_grad
            See `Feature`.
        span : Span, optional
            From `feature_span`; not needed where the features are those of the first source.
        """
        if self.traits.forwards:
            requires_grad &= any(source.requires_grad for source in self.sources)
        dtype = self.context.dtype if dtype is None else dtype
        return self.append_output(Feature(shape, dtype, requires_grad, overwritable, own_data, own_grad), span)

    def append_output(self, feature: Feature, span: Span | None = None) -> Feature:
        """Add an output that the layer has made itself."""
        feature.n_steps, feature.traits = self.site.n_steps, self.traits
        if self.site.feature_shard.count > 1:
            feature.span = span or self.sources[0].span
        self.features.append(feature)
        return feature

    def feature_span(self, total: int) -> Span:
        """Return which of ``total`` output features this instance computes; all unless partitioned by features.

        Raises
        ------
        ConfigError
            There are fewer features than workers.
        """
        shard = self.site.feature_shard
        if total < shard.count:
            message = f"{total} features cannot be shared by {shard.count} workers. Say 0, or -1."
            raise ConfigError(Problem(("partition_dim",), message))
        return Span.of(total, shard.index, shard.count)

    def add_param(
        self,
        shape: Sequence[int],
        *,
        value: float | None = None,
        initial: Callable[[tuple[int, ...]], InitConf] | None = None,
        running_statistic: bool = False,
        axis: int = 0,
    ) -> Param:
        """Add the next param of those that the traits name. The job may leave it out or unnamed.

        Parameters
        ----------
        shape : sequence of int
            Of the part that this instance computes with.
        value : float, optional
            Initial values, where the job says nothing.
        initial : callable, optional
            Takes the shape of the whole param and returns how to draw initial values, where neither the job nor a
            checkpoint has any.
        running_statistic : bool
            See `Param`.
        axis : int
            Axis of the output features, along which a part is taken.
        """
        index = len(self.params)
        if index == len(self.traits.params):
            raise TypeError(f"{type(self).__name__} adds a param that its traits do not name. Say Traits(params=...).")
        if self.site.prototype is not None:
            made = self.site.prototype.params[index]
        else:
            conf = self.conf.param[index] if index < len(self.conf.param) else ParamConf()
            if conf.init is None and value is not None:
                conf = conf.model_copy(update={"init": InitConf(type="Constant", value=value)})
            name = conf.name or f"{self.conf_name}.{self.traits.params[index]}"
            span = self.features[0].span if self.site.feature_shard.count > 1 else None
            shard = None if span is None else ParamShard(self.site.feature_shard.index, axis, span)
            made = Param(name, shape, conf, self.context.param_dtype, running_statistic, shard)
            made.initial = None if initial is None else initial(made.whole_shape)
        if made.shape != tuple(shape):
            step = self.site.first_step
            message = f"at step {step} it would have shape {tuple(shape)}, at step 0 {made.shape}."
            raise ConfigError(Problem(("param", index), message))
        self.params.append(made)
        return made

    def add_bias(self, size: int, bias_term: bool, initial: InitConf) -> Param | None:
        """Add a bias (size,) as the next param; return None where ``bias_term`` is false.

        Raises
        ------
        ConfigError
            The job describes a bias that there is not.
        """
        if bias_term:
            return self.add_param((size,), initial=lambda whole: initial)
        self.n_left_out += 1
        if len(self.conf.param) > (index := len(self.params)):
            raise ConfigError(Problem(("param", index), "there is no bias to describe: bias_term is false."))
        return None

    def buffer(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType | None = None,
        *,
        when: When = "always",
        zeros: bool = False,
        make: Callable[..., Array] | None = None,
    ) -> Buffer:
        """Declare memory of the layer's own: its ``data`` is there once the net is allocated.

        Parameters
        ----------
        name : str
            Unique in the layer.
        shape : sequence of int
            Four axes are those of images, (N, C, H, W).
        dtype : dtype, optional
            That of params if not given.
        when : {"always", "training", "backward"}
            Needed in every net, in training nets, or where the layer has gradients; elsewhere ``data`` is None.
        zeros : bool
            Start with zeros instead of arbitrary values.
        make : callable, optional
            (shape, dtype) returns the memory, where a kernel wants memory of its own kind.
        """
        make = make or (self.ops.zeros if zeros else self.ops.features)
        made = Buffer(shape, self.context.param_dtype if dtype is None else dtype, when, make)
        self.buffers[name] = made
        return made

    @property
    def state(self) -> tuple[Array, ...] | None:
        """What the layer keeps from one batch to the next, in every copy of it; None before the first batch."""
        return self.context.states.get(self.conf_name)

    @state.setter
    def state(self, arrays: tuple[Array, ...]) -> None:
        self.context.states[self.conf_name] = arrays

    # -- helpers, for forward and backward ----------------------------------------------------------------

    def random_key(self, *more: int | str) -> tuple[int | str, ...]:
        """Return the address of this layer's random numbers at this step."""
        context = self.context
        return (context.seed, self.conf_name, context.group, int(context.phase), context.step, *more)

    @staticmethod
    def key_at(key: Sequence[int | str], step: int) -> tuple[int | str, ...]:
        """Return what `random_key` returns at another step."""
        return (*key[:4], step, *key[5:])

    def first_row(self, n_rows: int) -> int:
        """Return the row of the group's batch at which this layer's ``n_rows`` start."""
        shares, index = self.context.shares, self.site.batch_shard.index
        return n_rows * sum(shares[:index]) // shares[index] if shares else index * n_rows

    def labels(self, source: int, n_classes: int) -> Array:
        """Return the labels of a source, (N,) integers; DataError unless all are in [0, n_classes)."""
        labels = self.labels_of(source)
        if labels.min() < 0 or labels.max() >= n_classes:
            wrong = labels[(labels < 0) | (labels >= n_classes)][0]
            bounds = f"from {self.conf.srclayers[source]!r} must be 0 to {n_classes - 1}, for {n_classes} classes"
            raise DataError(f"layer {self.name}: label {wrong} is out of range. Labels {bounds}.")
        return labels

    def labels_of(self, source: int) -> Array:
        """Return the labels of a source, (N,) integers, unchecked; DataError if there are none."""
        labels = self.sources[source].labels
        if labels is None:
            hint = f" Does {self.conf.type} state that it consumes them? See Traits.consumes."
            hint = "" if "labels" in self.sources[source].consumed_as else hint
            raise DataError(f"layer {self.name}: source {self.conf.srclayers[source]!r} has no labels.{hint}")
        return labels

    def add_metric(
        self, name: str, total: Scalar, count: float | None = None, *, scale: float = 1.0, n: float = 1.0
    ) -> None:
        """Add to a metric, which is shown as total / count.

        Parameters
        ----------
        name : str
        total : float, or what a kernel has returned, which stays on a GPU
        count : float
            How many the layer has summed itself, e.g. words. Without it, total / n is a mean of the rows of the batch.
        scale, n : float
            ``scale * total / n`` is added.
        """
        self.metrics.add(name, total, count, scale, n)

    # -- what the net calls ------------------------------------------------------------------------------

    def wire(self, sources: Sequence[Feature], ops: Ops) -> None:
        """Check the number of sources and params, then `setup`.

        Raises
        ------
        ConfigError
            With paths relative to the layer.
        """
        least, most = self.traits.n_sources
        if len(sources) < least or (most is not None and len(sources) > most):
            bound = str(least) if least == most else f"at least {least}" if most is None else f"{least} to {most}"
            message = f"{self.conf.type} takes {bound} source layer{'s' * (bound != '1')}, not {len(sources)}."
            raise ConfigError(Problem(("srclayers",), message))
        if len(self.conf.param) > len(self.traits.params):
            known = ", ".join(self.traits.params) or "none"
            message = f"{self.conf.type} has no such param. Its params: {known}."
            raise ConfigError(Problem(("param", len(self.traits.params)), message))
        self.sources = list(sources)
        self.ops = ops
        self.metrics = Metrics(ops)
        self.setup()
        check_setup(self.conf.type, self.traits, self.params, self.n_left_out, self.features, vars(self))
        for i, source in enumerate(self.sources if not self.traits.forwards else ()):
            source.consumed_as |= self.traits.consumed(i)

    def memory(self) -> Iterator[Memory]:
        """Yield what the layer needs: outputs, buffers, gradients of outputs and params."""
        for feature in self.features:
            if feature.needs_data_memory:
                make = np.zeros if feature.on_host else self.ops.features
                yield Memory(feature, feature.shape, feature.dtype, partial(feature.allocate, "data", make))
            if feature.requires_grad and feature.own_grad:
                allocate = partial(feature.allocate, "grad", self.ops.features)
                yield Memory((feature, "grad"), feature.shape, feature.dtype, allocate)
        wanted = {"always": True, "training": bool(self.context.phase & Phase.TRAIN), "backward": self.learns}
        for buffer in self.buffers.values():
            if wanted[buffer.when]:
                yield Memory(buffer, buffer.shape, buffer.dtype, buffer.allocate)
        for param in self.params:
            if self.learns and not param.is_idle:
                yield Memory(param, param.memory_shape, param.dtype, partial(param.allocate_grad, self.ops.zeros))

    def allocate(self) -> None:
        """Allocate `memory`, once for the life of the net."""
        for memory in self.memory():
            memory.allocate()
        self.attach()

    def take_metrics(self) -> dict[str, tuple[float, float]]:
        """Return (sum, count) of each metric since the last call."""
        return self.metrics.take()

    def check_source(self) -> None:
        """Compare the files that the layer reads, if any, with what the job says about them.

        Raises
        ------
        ConfigError
            With paths relative to the layer.
        """

    def close(self) -> None:
        """Close what the layer holds open: readers, files, threads."""
