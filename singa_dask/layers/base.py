"""Layer: the contract of every layer, its place in a net, and the memory that it declares.

An author writes `Layer.setup`, `Layer.forward` and `Layer.backward`. They never have to check how many sources there
are, allocate memory or touch a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import FunctionType
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from singa_dask.conf import Conf, InitConf, LayerConf, ParamConf, Phase
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.layers.context import Context
from singa_dask.layers.contiguous import contiguous_out
from singa_dask.layers.feature import Feature, Span
from singa_dask.layers.fused import Fused
from singa_dask.layers.metrics import Metrics
from singa_dask.layers.param import Param, ParamShard
from singa_dask.layers.traits import Connection, Speed, Traits
from singa_dask.ops.contract import Array, DType, Ops, Scalar
from singa_dask.registry import Registry


@dataclass(frozen=True)
class ShardIndex:
    """Shard ``index`` of ``count``."""

    index: int = 0
    count: int = 1


WHOLE = ShardIndex()


@dataclass(frozen=True)
class LayerSite:
    """The place of one instance of a layer in a net, set by the net.

    Attributes
    ----------
    layer : str
        Name of the layer in the job.
    batch_shard : ShardIndex
        Part of the group's batch that the instance computes.
    feature_shard : ShardIndex
        Part of the layer's output features that it computes.
    first_step, n_steps : int
        Time steps that it computes; the rows of the first step come first.
    prototype : Layer or None
        For later copies in an unrolled net: the copy of step 0, whose params they use.
    peer : int
        For a bridge: the worker at the other end.
    channel : str
        For a bridge: its name, the same at both ends.
    """

    layer: str
    batch_shard: ShardIndex = WHOLE
    feature_shard: ShardIndex = WHOLE
    first_step: int = 0
    n_steps: int = 1
    prototype: Layer | None = None
    peer: int = 0
    channel: str = ""


When: TypeAlias = Literal["always", "training", "backward"]


class Buffer:
    """Memory of a layer that `Layer.forward` and `Layer.backward` share.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
    when : {"always", "training", "backward"}
        Needed in every net, in training nets, or if the layer has gradients.
    make : callable
        (shape, dtype) returns the memory.
    data : ndarray
        The memory; RuntimeError if it is not needed, see `data_if_needed`.
    """

    def __init__(self, shape: Sequence[int], dtype: DType, when: When, make: Callable[..., Array]) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.when = when
        self.make = make
        self._data: Array | None = None

    def allocate(self) -> None:
        """Allocate the memory."""
        self._data = self.make(self.shape, self.dtype)

    @property
    def data(self) -> Array:
        if self._data is None:
            raise RuntimeError(
                f"buffer {self.shape}: it has no memory, as it is only for {self.when}. See Layer.buffer."
            )
        return self._data

    @property
    def data_if_needed(self) -> Array | None:
        """`data`, or None if it is not needed."""
        return self._data


# SINGA's method name -> name here; a class may use either name.
SINGA_NAMES = {"compute_feature": "forward", "compute_gradient": "backward"}


LAYERS: Registry[Layer] = Registry("layer type")


class Layer:
    """One layer of a net.

    Attributes
    ----------
    traits : Traits
        What the type declares.
    speed : Speed
        Optimisations that its code permits. A subclass that overrides a method declares it again.
    block : type of Conf or None
        The type's block of the job file, if any.
    conf : LayerConf
        The layer as the job describes it.
    name, conf_name : str
        Name of this instance, ``<step>#<layer>`` for a copy in an unrolled net; and of the layer in the job.
    site : LayerSite
        Its place in the net.
    context : Context
        Shared by all layers of the net.
    ops : Ops
        Kernels of the device, set before `setup`.
    sources : list of Feature
        The outputs that the layer reads.
    features : list of Feature
        Its outputs: one, or one for each consumer.
    params : list of Param
    metrics : Metrics
        Sums over the batches.
    learns : bool
        Whether gradients pass through this layer; the net decides.
    fused : Fused
        Work of its neighbours that it does; the net decides.

    Notes
    -----
    Features, gradients and params are arrays of the device; elementwise NumPy functions accept them on a GPU too.
    Labels and features of integers are always NumPy arrays.
    """

    traits: Traits = Traits()
    speed: Speed = Speed()
    block: ClassVar[type[Conf] | None] = None
    ops: Ops
    metrics: Metrics

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Accept SINGA's names of methods, and check that a class that overrides methods declares its own ``speed``.

        Raises
        ------
        TypeError
            The class defines a method under both names; sets a trait outside of ``traits``; or overrides a method of a
            class with a ``speed``, but has none of its own.
        """
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        for singa, method in SINGA_NAMES.items():
            if singa in own and method in own:
                raise TypeError(f"{cls.__name__} defines {method}() and {singa}(), which mean the same. Define one.")
            if singa in own:
                setattr(cls, method, own[singa])
            elif method in own:
                setattr(cls, singa, own[method])
        for kind in (Traits, Speed):
            for name in (field.name for field in fields(kind) if field.name in own):
                line = f"{kind.__name__.lower()} = {kind.__name__}({name}=...)"
                raise TypeError(f"{cls.__name__}.{name} has no effect. Write {line}.")
        base = next(each for each in cls.__mro__ if issubclass(each, Layer) and "speed" in vars(each))
        if base is cls or base.speed == Speed():
            return
        for name in own:
            if not name.startswith("__") and isinstance(getattr(base, name, None), FunctionType | property):
                theirs = f"{base.__name__}.speed"
                raise TypeError(
                    f"{cls.__name__} overrides {name} of {base.__name__}. Its own code may permit less than {theirs}. "
                    f"Write speed = Speed(); or speed = {theirs} if check_layer finds no mistake."
                )

    def __init__(self, conf: LayerConf, context: Context, site: LayerSite | None = None) -> None:
        self.conf = conf
        self.context = context
        self.site = site or LayerSite(conf.name, ShardIndex(context.worker, context.n_workers))
        self.sources: list[Feature] = []
        self.features: list[Feature] = []
        self.params: list[Param] = []
        self.buffers: dict[str, Buffer] = {}
        self.learns, self.fused = False, Fused()
        self.name, self.conf_name = conf.name, self.site.layer
        self._rows: dict[int, Array] = {}

    # -- methods that the author of a layer defines ------------------------------------------------

    def setup(self) -> None:
        """Declare outputs, params and buffers: `add_output`, `add_param`, `buffer`. Allocates nothing.

        Raises
        ------
        ConfigError
            With a path relative to the layer.
        """
        raise TypeError(f"{type(self).__name__} has no setup() to declare its outputs")

    def prepare(self, phase: Phase) -> None:
        """Do the host's work before `forward`, such as drawing. The net calls it in every forward pass."""

    def forward(self, phase: Phase) -> None:
        """Compute ``features[*].data`` from ``sources[*].data``. Also called ``compute_feature``, as in SINGA."""
        raise TypeError(f"{type(self).__name__} has no forward()")

    def backward(self, phase: Phase) -> None:
        """Compute the gradients of params and sources from ``features[*].grad``. Also called ``compute_gradient``.

        Overwrites gradients; if `Phase.accumulates`, a type that `accumulates` adds to the gradients of params. A layer
        without this method is refused if its params, or layers before it, learn.
        """

    def attach(self) -> None:
        """Bind outputs to other memory than their own. Called once, after the net has allocated memory."""

    # -- declarations, for setup ----------------------------------------------------------------------

    def add_output(
        self,
        shape: Sequence[int],
        *,
        dtype: DType | None = None,
        requires_grad: bool = True,
        overwritable: bool = False,
        own_data: bool | Literal["consumed"] = True,
        own_grad: bool = True,
    ) -> Feature:
        """Add an output.

        Parameters
        ----------
        shape : sequence of int
            Batch first. A layer that is `feature_parallel` one-to-all passes the shape with all features, on axis 1;
            the output has the features that this instance computes.
        dtype : dtype, optional
            By default `Context.dtype`.
        requires_grad, overwritable, own_data, own_grad
            See `Feature`.

        Raises
        ------
        ConfigError
            There are fewer features than workers that share them.
        """
        dtype = self.context.dtype if dtype is None else dtype
        shard, span = self.site.feature_shard, None
        if shard.count > 1 and self.speed.feature_parallel is Connection.ONE_TO_ALL:
            n_rows, total, *rest = shape
            if total < shard.count:
                message = f"{total} features cannot be shared by {shard.count} workers. Use 0 or -1."
                raise ConfigError(Problem(("partition_dim",), message))
            span = Span.of(total, shard.index, shard.count)
            shape = (n_rows, span.size, *rest)
        feature = Feature(shape, dtype, requires_grad, overwritable, own_data, own_grad)
        append_output(self, feature, span)
        return feature

    def add_param(
        self,
        shape: Sequence[int],
        *,
        value: float | None = None,
        initial: InitConf | Callable[[tuple[int, ...]], InitConf] | None = None,
        running_statistic: bool = False,
        requires_grad: bool = True,
        axis: int = 0,
    ) -> Param:
        """Add the next param that the traits name. The job need not describe or name it.

        If options leave a param out, as ``bias_term: false`` does, set the attribute of its name to None instead.

        Parameters
        ----------
        shape : sequence of int
            Shape of the shard that this instance has.
        value : float, optional
            Initial values, if the job sets none.
        initial : InitConf or callable, optional
            How to draw initial values that neither the job nor a checkpoint has; or a function that returns it for the
            shape of the whole param.
        running_statistic : bool
            See `Param`.
        requires_grad : bool
            False if the gradient is always 0: it gets no memory and is not sent. The param still counts as a sharer.
        axis : int
            Axis of the output features, along which the param is sharded.
        """
        index = len(self.params)
        if index == len(self.traits.params):
            raise TypeError(
                f"{type(self).__name__} adds a param that its traits do not name. Write Traits(params=...)."
            )
        if self.site.prototype is not None:
            param = self.site.prototype.params[index]
        else:
            conf = self.conf.param[index] if index < len(self.conf.param) else ParamConf()
            if conf.init is None and value is not None:
                conf = conf.model_copy(update={"init": InitConf(type="Constant", value=value)})
            name = conf.name or f"{self.conf_name}.{self.traits.params[index]}"
            part = self.site.feature_shard
            shard = ParamShard(part.index, axis, self.features[0].span) if part.count > 1 else None
            param = Param(name, shape, conf, self.context.param_dtype, running_statistic, shard)
            param.is_idle = not requires_grad
            param.initial = initial(param.whole_shape) if callable(initial) else initial
        if param.shape != tuple(shape):
            step = self.site.first_step
            message = f"at step {step} it would have shape {tuple(shape)}, at step 0 {param.shape}."
            raise ConfigError(Problem(("param", index), message))
        self.params.append(param)
        return param

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
        """Declare memory of the layer's own. Its ``data`` exists once the net is allocated.

        Parameters
        ----------
        name : str
            Unique in the layer.
        shape : sequence of int
            Four axes are laid out as images, (N, C, H, W).
        dtype : dtype, optional
            By default `Context.param_dtype`.
        when : {"always", "training", "backward"}
            Needed in every net, in training nets, or if the layer has gradients; otherwise it is not allocated.
        zeros : bool
            Start with zeros instead of arbitrary values.
        make : callable, optional
            (shape, dtype) returns the memory, if a kernel needs a special one.
        """
        make = make or (self.ops.zeros if zeros else self.ops.features)
        buffer = Buffer(shape, self.context.param_dtype if dtype is None else dtype, when, make)
        self.buffers[name] = buffer
        return buffer

    @property
    def state(self) -> tuple[Array, ...] | None:
        """Arrays kept from one batch to the next, shared by all copies; None before the first batch."""
        return self.context.states.get(self.conf_name)

    @state.setter
    def state(self, arrays: tuple[Array, ...]) -> None:
        self.context.states[self.conf_name] = arrays

    # -- helpers, for forward and backward ----------------------------------------------------------------

    def rows(self, source: int = 0) -> Array:
        """Return the data of a source as rows (N, D), values of images in the order C, H, W."""
        data = self.sources[source].data
        if data.ndim == 2:
            return data
        if not data.flags.c_contiguous:
            # keep the copy from forward to backward
            if source not in self._rows:
                self._rows[source] = self.ops.empty(data.shape, data.dtype)
            self.ops.copy(data, out=self._rows[source])
            data = self._rows[source]
        return data.reshape(len(data), -1)

    @contextmanager
    def grad_rows(self, source: int = 0) -> Iterator[Array]:
        """Yield memory (N, D) to write the gradient of a source to, in the order of `rows`."""
        grad = self.sources[source].output_grad
        with contiguous_out(self.ops, grad, "grad rows") as memory:
            yield memory if memory.ndim == 2 else memory.reshape(len(grad), -1)

    def random_key(self, *more: int | str) -> tuple[int | str, ...]:
        """Return the key of this layer's random numbers at this step; ``more`` tells several draws apart."""
        context = self.context
        return (context.seed, self.conf_name, context.group, int(context.phase), context.step, *more)

    def first_row(self, n_rows: int) -> int:
        """Return the row of the whole group's batch at which the ``n_rows`` of this worker start."""
        shares, index = self.context.shares, self.site.batch_shard.index
        return n_rows * sum(shares[:index]) // shares[index] if shares else index * n_rows

    def labels(self, source: int, n_classes: int | None = None) -> Array:
        """Return the labels of a source, (N,) integers.

        Raises
        ------
        DataError
            There are none; or ``n_classes`` is given and a label is not in [0, n_classes).
        """
        labels = self.sources[source].records.labels
        if labels is None:
            hint = f" Does {self.conf.type} declare that it consumes them? See Traits.consumes."
            hint = "" if "labels" in self.sources[source].consumed_as else hint
            raise data_error(self, f"source {self.conf.srclayers[source]!r} has no labels.{hint}")
        if n_classes is not None:
            check_labels(self, source, labels, n_classes)
        return labels

    def add_metric(
        self, name: str, total: Scalar | None, count: float | None = None, *, scale: float = 1.0, n: float = 1.0
    ) -> None:
        """Add ``scale * total / n`` to a metric, which is shown as its sum / count.

        Parameters
        ----------
        name : str
        total : float, or a kernel's result, which stays on a GPU; or None to add to the count alone
        count : float
            How many values, e.g. words, total is the sum of. By default total / n is a mean over the batch.
        scale, n : float
        """
        self.metrics.add(name, total, count, scale, n)

    # -- methods that the net calls ----------------------------------------------------------------------

    def take_metrics(self) -> dict[str, tuple[float, float]]:
        """Return (sum, count) of each metric since the last call."""
        return self.metrics.take()

    def check_source(self) -> None:
        """Check that the files that the layer reads, if any, are as the job describes them.

        Raises
        ------
        ConfigError
            With paths relative to the layer.
        """

    def close(self) -> None:
        """Close what the layer holds open: readers, files, threads."""


def append_output(layer: Layer, feature: Feature, span: Span | None = None) -> None:
    """Add an output that the layer made itself; see `Layer.add_output`."""
    feature.n_steps = layer.site.n_steps
    if layer.site.feature_shard.count > 1:
        feature.span = span or layer.sources[0].span
    layer.features.append(feature)


def check_axes(layer: Layer, expected: str, *counts: int) -> None:
    """Check that the first source of a layer has one of these numbers of axes.

    Raises
    ------
    ConfigError
        It does not; or images without channels are to be partitioned by features.
    """
    shape = layer.sources[0].shape
    if len(shape) not in counts:
        message = f"{layer.conf.srclayers[0]!r} gives records of {shape[1:]}, expected {expected}."
        raise ConfigError(Problem(("srclayers",), message))
    one_to_one = layer.speed.feature_parallel is Connection.ONE_TO_ONE
    if layer.site.feature_shard.count > 1 and len(shape) == 3 and one_to_one:
        raise ConfigError(Problem(("partition_dim",), "images without channels have no features to share. Use 0."))


def data_error(layer: Layer, message: str) -> DataError:
    """Return the error that a layer raises for records that it cannot use."""
    return DataError(f"layer {layer.name}: {message}")


def check_labels(layer: Layer, source: int, labels: Array, n_classes: int) -> None:
    """Check that labels of a source are in [0, n_classes); raise DataError if not."""
    # as unsigned numbers, negative labels are large, so one comparison is enough
    if np.maximum.reduce(labels.view(f"u{labels.itemsize}"), axis=None) >= n_classes:
        wrong = labels[(labels < 0) | (labels >= n_classes)][0]
        bounds = f"from {layer.conf.srclayers[source]!r} must be 0 to {n_classes - 1}, for {n_classes} classes"
        raise data_error(layer, f"label {wrong} is out of range. Labels {bounds}.")


def check_all_steps(layer: Layer) -> None:
    """Check that a layer computes all time steps in one call.

    Raises
    ------
    ConfigError
        There is a copy of it for each time step.
    """
    if layer.name.startswith(f"{layer.site.first_step}#"):
        message = (
            "the layer needs all time steps at once, but here they are computed one by one. It must not be in a cycle "
            "or partitioned by features, and its sources need as many time steps, connected by unroll_conn_type "
            "OneToOne without shift."
        )
        raise ConfigError(Problem(("srclayers",), message))


def split_mask(layer: Layer, most: int, masked: int = 0) -> tuple[list[Feature], Feature | None]:
    """Return the sources of a layer apart from its padding mask, and the mask, bool (T N, 1), or None.

    At most ``most`` sources are allowed beside the mask, which is for source ``masked`` of these.

    Raises
    ------
    ConfigError
        There are others, or the mask has another number of rows.
    """
    sources = [source for source in layer.sources if source.dtype != bool]
    masks = [k for k, source in enumerate(layer.sources) if source.dtype == bool]
    if not 1 <= len(sources) <= most or len(masks) > 1:
        bound = "one source" if most == 1 else f"1 to {most} sources"
        message = f"{layer.conf.type} takes {bound}, and at most one PaddingMask beside."
        raise ConfigError(Problem(("srclayers",), message))
    for k in masks:
        n_rows, of_mask = sources[masked].shape[0], layer.sources[k].shape
        if of_mask != (n_rows, 1):
            message = f"the mask is {of_mask}, expected {(n_rows, 1)}: a value for each row that it masks."
            raise ConfigError(Problem(("srclayers", k), message))
    return sources, layer.sources[masks[0]] if masks else None


def key_at(key: Sequence[int | str], step: int) -> tuple[int | str, ...]:
    """Return a key of `Layer.random_key` for another step."""
    return (*key[:4], step, *key[5:])
