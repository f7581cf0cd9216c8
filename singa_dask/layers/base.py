"""Layer: the base class of all layers.

To write a layer, define `Layer.setup`, `Layer.forward` and `Layer.backward`. The base class checks the number of
sources, and allocates memory on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from types import FunctionType
from typing import Any, ClassVar, Literal

import numpy as np

from singa_dask.conf import InitConf, LayerConf, ParamConf, Phase
from singa_dask.conf.parts import Part
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.layers.buffer import Buffer, When
from singa_dask.layers.context import Context
from singa_dask.layers.contiguous import contiguous_out
from singa_dask.layers.feature import Feature, Span
from singa_dask.layers.fused import Fused
from singa_dask.layers.metrics import Metrics
from singa_dask.layers.param import Param, ParamShard
from singa_dask.layers.site import LayerSite, ShardIndex
from singa_dask.layers.traits import Connection, Speed, Traits
from singa_dask.ops.contract import Array, DType, Ops, Scalar
from singa_dask.registry import Registry

# SINGA's method name -> name here; a class may use either name.
SINGA_NAMES = {"compute_feature": "forward", "compute_gradient": "backward"}
LAYERS: Registry[Layer] = Registry("layer type")


class Layer(Part):
    """One layer of a net.

    Attributes
    ----------
    traits : Traits
        Properties that the layer class declares.
    speed : Speed
        Optimisations that the code of the class permits. A subclass that overrides a method must set ``speed`` again.
    outputs_key : str
        Key of the layer's block that sets the number of outputs, e.g. "num_slices". Each layer that reads this layer
        then has an output of its own. If ``outputs_key`` is empty, or the value of the key is None, all layers read
        the same output.
    conf : LayerConf
        The layer's entry in the job file.
    name, conf_name : str
        ``conf_name`` is the name of the layer in the job. ``name`` is the name of this instance: in an unrolled net
        ``<step>#<layer>``, otherwise the same.
    site : LayerSite
        Position of this instance in the net.
    context : Context
        Values that all layers of the net share.
    ops : Ops
        Kernels of the device. They are set before `setup` is called.
    sources : list of Feature
        The outputs of other layers that this layer reads.
    features : list of Feature
        The outputs of this layer: a single output, or one for each layer that reads it.
    params : list of Param
    metrics : Metrics
        Sums of the layer's metrics over the batches.
    learns : bool
        Whether gradients pass through this layer. Set by the net.
    fused : Fused
        Work that this layer does for its neighbours. Set by the net.
    send_ready : callable or None
        Function that `ready` calls. The algorithm sets it while `backward` runs, if gradients may be sent before
        `backward` returns.

    Notes
    -----
    Features, gradients and params are arrays on the device. Elementwise NumPy functions accept them on a GPU, too.
    Labels, and features of integers, are always NumPy arrays.
    """

    traits: Traits = Traits()
    speed: Speed = Speed()
    outputs_key: ClassVar[str] = ""
    ops: Ops
    metrics: Metrics

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Check the definition of a layer class, and accept SINGA's names of methods.

        Raises
        ------
        TypeError
            The class defines a method under both its names, or sets a trait outside of ``traits``. It is also raised if
            a base class declares ``speed``, and the class overrides a method without declaring ``speed`` again.
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
        self.send_ready: Callable[[Param], None] | None = None
        self.name, self.conf_name = conf.name, self.site.layer
        self._rows: dict[int, Array] = {}

    # -- methods that the author of a layer defines ------------------------------------------------

    def setup(self) -> None:
        """Declare outputs, params and buffers, by calling `add_output`, `add_param` and `buffer`.

        The net allocates the memory later.

        Raises
        ------
        ConfigError
            The layer's conf or its sources are invalid. The path in the error is relative to the layer.
        """
        raise TypeError(f"{type(self).__name__} has no setup() to declare its outputs")

    def prepare(self, phase: Phase) -> None:
        """Do work that must run on the host, such as drawing random numbers.

        The net calls this method before each `forward`.
        """

    def forward(self, phase: Phase) -> None:
        """Compute ``features[*].data`` from ``sources[*].data``. SINGA's name ``compute_feature`` works, too."""
        raise TypeError(f"{type(self).__name__} has no forward()")

    def backward(self, phase: Phase) -> None:
        """Compute the gradients of params and sources from ``features[*].grad``.

        The method overwrites gradients. If ``phase.accumulates`` is set, a class that declares ``accumulates`` instead
        adds to the gradients of its params. SINGA's name ``compute_gradient`` works, too.

        Without this method, neither the params of the layer nor the params of layers before it can be trained; a net
        that has to train them is refused.
        """

    def attach(self) -> None:
        """Bind outputs to memory that belongs to another feature.

        The net calls this method once, after it has allocated memory.
        """

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
            Shape of the output, batch first. If ``feature_parallel`` of the layer is one-to-all, axis 1 is the number
            of all features of the layer. The output then has only the features that this instance computes.
        dtype : dtype, optional
            Data type of the output. The default is `Context.dtype`.
        requires_grad, overwritable, own_data, own_grad
            Attributes of the new `Feature`.

        Raises
        ------
        ConfigError
            The features are divided among more workers than there are features.
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
        initial: InitConf | Array | Callable[[tuple[int, ...]], InitConf] | None = None,
        running_statistic: bool = False,
        requires_grad: bool = True,
        trains: bool = True,
        axis: int = 0,
    ) -> Param:
        """Add a param. Call this method once for each name in ``traits.params``, in their order.

        The job need not describe or name the param. If an option such as ``bias_term: false`` disables a param, do not
        call this method: set the attribute with the param's name to None.

        Parameters
        ----------
        shape : sequence of int
            Shape of this instance's shard of the param.
        value : float, optional
            Constant initial value, used if the job sets no initial values.
        initial : InitConf, array-like or callable, optional
            Initial values, used if neither the job nor a checkpoint sets them. An InitConf is a distribution. An array,
            or an object with ``__array__``, contains the values; each worker must pass the same values. A callable
            takes the shape of the whole param, and returns a distribution.
        running_statistic : bool
            Whether the layer updates the param itself; see `Param`.
        requires_grad : bool
            Pass False if the gradient is always 0. The gradient then has no memory, and is not sent. The param still
            counts as one of the params that share their values.
        trains : bool
            Pass False if the values never change. The param then has no gradient and no weight decay, and is not sent.
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
            param.is_idle, param.trains = not requires_grad, trains
            param.initial = initial(param.whole_shape) if callable(initial) else initial
        if param.shape != tuple(shape):
            step = self.site.first_step
            message = f"the param has shape {param.shape} at step 0, but would have {tuple(shape)} at step {step}."
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
        """Declare a workspace. Its ``data`` exists after the net has allocated memory.

        Parameters
        ----------
        name : str
            Name of the buffer, unique in the layer.
        shape : sequence of int
            A buffer with four axes is laid out in memory like images (N, C, H, W).
        dtype : dtype, optional
            The default is `Context.param_dtype`.
        when : {"always", "training", "backward"}
            When the buffer is needed: in every net, in nets for training, or only if the layer computes gradients. A
            buffer that is not needed is not allocated.
        zeros : bool
            Whether to fill the buffer with zeros. By default, its values are arbitrary.
        make : callable, optional
            Function that allocates the array, given shape and dtype. Pass it if a kernel needs special memory.
        """
        make = make or (self.ops.zeros if zeros else self.ops.features)
        buffer = Buffer(shape, self.context.param_dtype if dtype is None else dtype, when, make)
        self.buffers[name] = buffer
        return buffer

    @property
    def state(self) -> tuple[Array, ...] | None:
        """Arrays that the layer keeps from one batch to the next; None before the first batch.

        In an unrolled net, all instances of the layer share the state.
        """
        return self.context.states.get(self.conf_name)

    @state.setter
    def state(self, arrays: tuple[Array, ...]) -> None:
        self.context.states[self.conf_name] = arrays

    # -- helpers, for forward and backward ----------------------------------------------------------------

    def rows(self, source: int = 0) -> Array:
        """Return the data of a source as rows (N, D). The values of images are in the order C, H, W."""
        data = self.sources[source].data
        if data.ndim == 2:
            return data
        if not data.flags.c_contiguous:
            # keep the copy that forward makes for backward
            if source not in self._rows:
                self._rows[source] = self.ops.empty(data.shape, data.dtype)
            self.ops.copy(data, out=self._rows[source])
            data = self._rows[source]
        return data.reshape(len(data), -1)

    @contextmanager
    def grad_rows(self, source: int = 0) -> Iterator[Array]:
        """Yield an array (N, D) for the gradient of a source.

        Write the gradient to it, in the order of `rows`.
        """
        # output_grad is grad, or an error if there is none: callers have checked that the source has a gradient
        grad = self.sources[source].output_grad
        with contiguous_out(self.ops, grad, "grad rows") as memory:
            yield memory if memory.ndim == 2 else memory.reshape(len(grad), -1)

    def ready(self, param: Param) -> None:
        """Send the gradient of a param at once; call this in `backward` when the gradient is complete.

        `backward` must not write to this gradient again. Gradients without this call are sent when `backward` returns.
        The call has no effect for a layer that is `capturable`, or if the gradient needs more work after `backward`, as
        in an unrolled net.
        """
        if self.send_ready is not None:
            self.send_ready(param)

    def random_key(self, *more: int | str) -> tuple[int | str, ...]:
        """Return the key that determines this layer's random numbers at the current step.

        Pass different values as ``more`` to draw several times in one step.
        """
        context = self.context
        return (context.seed, self.conf_name, context.group, int(context.phase), context.step, *more)

    def first_row(self, n_rows: int) -> int:
        """Return the position of this worker's first row in the batch of the whole group.

        ``n_rows`` is the number of rows of this worker.
        """
        parts, index = self.context.proportions, self.site.batch_shard.index
        return n_rows * sum(parts[:index]) // parts[index] if parts else index * n_rows

    def labels(self, source: int, n_classes: int | None = None) -> Array:
        """Return the labels of a source, (N,) integers.

        Raises
        ------
        DataError
            The source has no labels; or ``n_classes`` is passed and a label is not in [0, n_classes).
        """
        labels = self.sources[source].records.labels
        if labels is None:
            hint = f" Does {self.conf.type} declare that it consumes them? See Traits.consumes."
            hint = "" if "labels" in self.sources[source].consumed_as else hint
            raise self.data_error(f"source {self.conf.srclayers[source]!r} has no labels.{hint}")
        if n_classes is not None:
            check_labels(self, source, labels, n_classes)
        return labels

    def data_error(self, message: str) -> DataError:
        """Return the error to raise for records that the layer cannot use."""
        return DataError(f"layer {self.name}: {message}")

    def add_metric(
        self, name: str, total: Scalar | None, count: float | None = None, *, scale: float = 1.0, n: float = 1.0
    ) -> None:
        """Add ``scale * total / n`` to the sum of a metric.

        The metric is reported as its sum divided by its count.

        Parameters
        ----------
        name : str
            Name of the metric.
        total : float, result of a kernel, or None
            The value to add. The result of a kernel stays on a GPU. None adds only to the count.
        count : float
            Number of values that ``total`` is the sum of, e.g. the number of words. By default, ``total / n`` counts as
            a mean over the batch.
        scale, n : float
            Factor and divisor of ``total``.
        """
        self.metrics.add(name, total, count, scale, n)

    # -- methods that the net calls ----------------------------------------------------------------------

    def take_metrics(self) -> dict[str, tuple[float, float]]:
        """Return (sum, count) of each metric since the previous call."""
        return self.metrics.take()

    def check_source(self) -> None:
        """Check that the files that the layer reads match their description in the job.

        Raises
        ------
        ConfigError
            A file does not match. Paths in the error are relative to the layer.
        """

    def close(self) -> None:
        """Close readers and files that the layer has opened, and end its threads."""


def append_output(layer: Layer, feature: Feature, span: Span | None = None) -> None:
    """Append ``feature``, which the layer has created, to its outputs; see `Layer.add_output`."""
    feature.n_steps = layer.site.n_steps
    if layer.site.feature_shard.count > 1:
        feature.span = span or layer.sources[0].span
    layer.features.append(feature)


def check_axes(layer: Layer, expected: str, *counts: int) -> None:
    """Check that the number of axes of a layer's first source is one of ``counts``.

    Raises
    ------
    ConfigError
        The source has another number of axes. Or the layer is partitioned by features, and the source has images
        without a channel axis.
    """
    shape = layer.sources[0].shape
    if len(shape) not in counts:
        message = f"{layer.conf.srclayers[0]!r} gives records of {shape[1:]}, expected {expected}."
        raise ConfigError(Problem(("srclayers",), message))
    one_to_one = layer.speed.feature_parallel is Connection.ONE_TO_ONE
    if layer.site.feature_shard.count > 1 and len(shape) == 3 and one_to_one:
        raise ConfigError(Problem(("partition_dim",), "images without channels have no features to share. Use 0."))


def check_labels(layer: Layer, source: int, labels: Array, n_classes: int) -> None:
    """Raise DataError if a label of a source is not in [0, n_classes)."""
    # as unsigned numbers, negative labels are large, so one comparison is enough
    if np.maximum.reduce(labels.view(f"u{labels.itemsize}"), axis=None) >= n_classes:
        wrong = labels[(labels < 0) | (labels >= n_classes)][0]
        bounds = f"from {layer.conf.srclayers[source]!r} must be 0 to {n_classes - 1}, for {n_classes} classes"
        raise layer.data_error(f"label {wrong} is out of range. Labels {bounds}.")


def key_at(key: Sequence[int | str], step: int) -> tuple[int | str, ...]:
    """Return the key of random numbers for another step, given a ``key`` from `Layer.random_key`."""
    return (*key[:4], step, *key[5:])
