"""Layers that forward their sources: Split, Slice and Concate, which a net also inserts by itself, and Dummy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, TypeAlias

import numpy as np

from singa_dask.conf import LayerConf, Phase
from singa_dask.conf.model import Conf, Count, Field, Many, Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.context import Exchange
from singa_dask.layers.feature import Feature, RecordIds, Span
from singa_dask.layers.traits import Connection, Consumed, Traits
from singa_dask.ops.contract import Array


class Feedback:
    """Mixin of a layer that closes a cycle of the net. Its feedback edges do not order the layers."""

    @classmethod
    def feedback_sources(cls, conf: LayerConf) -> list[str]:
        """Return the names of the layers whose outputs of an earlier pass are read, beside ``srclayers``."""
        return []

    def bind_feedback(self, source: Feature) -> None:
        """Take the feature of a feedback edge, once all layers are wired.

        Raises
        ------
        ConfigError
            It does not fit, with a path relative to the layer.
        """
        raise NotImplementedError


class ConcateConf(Conf):
    """``concate_conf`` (SINGA's ConcateProto)."""

    concate_dim: Count = 0
    """Axis along which the sources are joined; 0 is the batch."""
    num_concates: Size = 1
    """Number of outputs."""


class DummyConf(Conf):
    """``dummy_conf`` (SINGA's DummyProto)."""

    input: bool = False
    """Make random data of the shape."""
    output: bool = False
    """Make random gradients."""
    shape: Many[Size] = Field(default=[])
    """Shape of the data, batch first."""


class SliceConf(Conf):
    """``slice_conf`` (SINGA's SliceProto)."""

    aliases: ClassVar[Mapping[str, str]] = {"slice_num": "num_slices"}

    slice_dim: Count = 0
    """Axis along which the source is cut; 0 is the batch."""
    num_slices: Size = 1
    """Number of pieces."""


class SplitConf(Conf):
    """``split_conf`` (SINGA's SplitProto)."""

    aliases: ClassVar[Mapping[str, str]] = {"split_num": "num_splits"}

    num_splits: Size = 1
    """Number of readers."""


FORWARDED: frozenset[Consumed] = frozenset({"data", "labels", "ids"})


@LAYERS.register()
class Split(Layer):
    """Gives each of ``num_splits`` consumers the same data, and its source the sum of their gradients.

    Behind a ReLU that the layer before it computes, the sum is 0 where the ReLU is: one pass less over the gradient.
    """

    block = SplitConf
    traits = Traits(
        time_foldable=True,
        capturable=True,
        outputs_key=("split_conf", "num_splits"),
        reads_gradients=True,
        needs_split=False,
        forwards=FORWARDED | {"one_hot_index"},
    )

    def setup(self) -> None:
        for _ in range(self.conf.block(SplitConf).num_splits):
            output = self.add_output(
                self.sources[0].shape,
                dtype=self.sources[0].dtype,
                own_data=False,
                own_grad=lambda: self._only_gradient() is None,
            )
            output.span = self.sources[0].span

    def attach(self) -> None:
        if alone := self._only_gradient():
            alone.grad_of = None
            alone.grad = self.sources[0].grad
        elif total := self._sum():
            total.grad = self.sources[0].grad
        elif type(self) is Split and (below := self.sources[0].relu_of):
            below.is_masked = True

    def _sum(self) -> Feature | None:
        """Return the output whose consumer adds the gradient of the other one to its own, if there is one."""
        return next((feature for feature in self.features if feature.grad_added is not None), None)

    def _only_gradient(self) -> Feature | None:
        """Return the output with a gradient if there is only one: its consumer then writes to that of the source."""
        wanted = [feature for feature in self.features if feature.requires_grad]
        return wanted[0] if len(wanted) == 1 and self.sources[0].requires_grad else None

    def prepare(self, phase: Phase) -> None:
        """Pass on what the source has."""
        source = self.sources[0]
        for feature in self.features:
            if source.has_data:
                feature.data = source.data
            feature.one_hot_index, feature.records = source.one_hot_index, source.records

    def forward(self, phase: Phase) -> None:
        pass

    def backward(self, phase: Phase) -> None:
        source = self.sources[0]
        grads = [feature.grad for feature in self.features if feature.grad is not None]
        if source.grad is None or len(grads) < 2 or self._sum():
            return
        total, *others, last = grads
        for grad in others:
            self.ops.add(total, grad, out=source.grad)
            total = source.grad
        if source.relu_of is None:
            self.ops.add(total, last, out=source.grad)
        else:
            self.ops.add_relu_grad(source.data, total, last, out=source.grad)


def _by_steps(values: Array, n_steps: int) -> Array:
    """Return a view (T, N, ...) of the rows of several time steps; of one step the values as they are."""
    return values if n_steps == 1 else values.reshape(n_steps, -1, *values.shape[1:])


def _stretch(values: Array, axis: int, n_steps: int, start: int, stop: int) -> Array:
    """Return a view of a stretch of an axis; of the batch of each of several time steps."""
    return _by_steps(values, n_steps)[(slice(None),) * (axis if n_steps == 1 else 1) + (slice(start, stop),)]


@LAYERS.register()
class Slice(Layer):
    """Cuts its source in ``num_slices`` pieces along axis ``slice_dim``, one for each consumer; 0 is the batch.

    Pieces are as equal as possible. Pieces of the batch are views: nothing is copied. In an unrolled
    net the batch of each time step is cut.
    """

    block = SliceConf
    traits = Traits(outputs_key=("slice_conf", "num_slices"), needs_split=False, forwards=FORWARDED)

    def setup(self) -> None:
        source, block = self.sources[0], self.conf.block(SliceConf)
        shape, self.axis, n_slices = source.shape, block.slice_dim, block.num_slices
        # not where it is the steps themselves that are cut apart
        self.steps = self.site.n_steps if source.n_steps == self.site.n_steps and not self.axis else 1
        if self.axis >= len(shape):
            raise ConfigError(Problem(("slice_conf", "slice_dim"), f"expected an axis of {shape}, got {self.axis}."))
        size = shape[self.axis] // self.steps
        if size < n_slices:
            message = f"expected at most {size}, axis {self.axis} of {shape}, got {n_slices}."
            raise ConfigError(Problem(("slice_conf", "num_slices"), message))
        self.spans = [Span.of(size, k, n_slices) for k in range(n_slices)]
        if not self.copies:
            self.traits = self.traits.replace(forwards=self.traits.forwards | {"one_hot_index"})
        for span in self.spans:
            output = self.add_output(
                (*shape[: self.axis], span.size * self.steps, *shape[self.axis + 1 :]),
                dtype=source.dtype,
                own_data=self.copies,
                own_grad=self.copies,
            )
            output.span = span if self.axis else source.span

    @property
    def copies(self) -> bool:
        """Whether a piece has memory of its own."""
        return self.axis > 0 or self.steps > 1

    def piece(self, values: Array, k: int) -> Array:
        """Return a view of piece k of the source's values."""
        return _stretch(values, self.axis, self.steps, self.spans[k].start, self.spans[k].stop)

    def _rows_of(self, values: Array, k: int) -> Array:
        return self.piece(values, k).reshape(-1)

    def attach(self) -> None:
        grad = None if self.copies else self.sources[0].grad
        for k, feature in enumerate(self.features):
            if grad is not None and feature.requires_grad:
                feature.grad = self.piece(grad, k)

    def forward(self, phase: Phase) -> None:
        source = self.sources[0]
        for k, feature in enumerate(self.features):
            feature.records = source.records
            if not self.axis:
                take = partial(self._rows_of, k=k)
                feature.records = source.records.slice(take).stored(self.ops)
                if source.one_hot_index is not None:
                    feature.one_hot_index = self.ops.labels(take(source.one_hot_index))
            if self.copies and feature.data_is_consumed:
                self.ops.copy(self.piece(source.data, k), out=_by_steps(feature.data, self.steps))
            elif not self.copies and source.has_data:
                feature.data = self.piece(source.data, k)

    def backward(self, phase: Phase) -> None:
        grad = self.sources[0].grad
        if grad is None:
            return
        for k, feature in enumerate(self.features):
            part = self.piece(grad, k)
            if feature.grad is None:
                self.ops.multiply(part, 0, out=part)
            elif self.copies:
                self.ops.copy(_by_steps(feature.grad, self.steps), out=part)


@LAYERS.register()
class Concate(Layer):
    """Joins its sources along axis ``concate_dim``, 0 being the batch; labels too, where that is the batch.

    In an unrolled net the batches of each time step are joined.
    """

    block = ConcateConf
    traits = Traits(n_sources=(1, None), time_foldable=True, capturable=True, forwards=FORWARDED)

    def setup(self) -> None:
        self.axis = self.conf.block(ConcateConf).concate_dim
        shapes = [source.shape for source in self.sources]
        # not where it is the steps themselves that are joined
        n_steps = {source.n_steps for source in self.sources}
        self.steps = self.site.n_steps if n_steps == {self.site.n_steps} and not self.axis else 1
        if self.axis >= len(shapes[0]):
            message = f"expected an axis of {shapes[0]}, got {self.axis}."
            raise ConfigError(Problem(("concate_conf", "concate_dim"), message))
        others = {(*shape[: self.axis], *shape[self.axis + 1 :]) for shape in shapes}
        if len(others) > 1:
            listed = ", ".join(map(str, shapes))
            message = f"the sources have shapes {listed}: they may differ in axis {self.axis} only."
            raise ConfigError(Problem(("srclayers",), message))
        if len({source.dtype if source.on_host else None for source in self.sources}) > 1:
            listed = ", ".join(str(source.dtype) for source in self.sources)
            raise ConfigError(Problem(("srclayers",), f"the sources have values of {listed}. Expected one type."))
        size = sum(shape[self.axis] for shape in shapes)
        output = self.add_output(
            (*shapes[0][: self.axis], size, *shapes[0][self.axis + 1 :]), dtype=self.sources[0].dtype
        )
        output.span = None if self.axis else self.sources[0].span

    def pieces(self, values: Array) -> Iterator[tuple[Feature, Array]]:
        """Yield each source and a view of its place in values of the output."""
        start = 0
        for source in self.sources:
            stop = start + source.shape[self.axis] // self.steps
            yield source, _stretch(values, self.axis, self.steps, start, stop)
            start = stop

    def prepare(self, phase: Phase) -> None:
        parts, feature = [source.records for source in self.sources], self.features[0]
        # of joined features those of the first source that has some
        feature.records = RecordIds.first(parts) if self.axis else RecordIds.join(parts, self._join).stored(self.ops)
        if feature.on_host:
            self._copy()

    def forward(self, phase: Phase) -> None:
        if not self.features[0].on_host:
            self._copy()

    def _copy(self) -> None:
        feature = self.features[0]
        for source, place in self.pieces(feature.data) if feature.data_is_consumed else ():
            self.ops.copy(_by_steps(source.data, self.steps), out=place)

    def _join(self, columns: list[Array]) -> Array:
        steps = [_by_steps(column, self.steps) for column in columns]
        return np.concatenate(steps, axis=min(self.steps - 1, 1)).reshape(-1)

    def backward(self, phase: Phase) -> None:
        for source, place in self.pieces(self.features[0].output_grad):
            if source.grad is not None:
                self.ops.copy(place, out=_by_steps(source.grad, self.steps))


@LAYERS.register()
class Dummy(Layer):
    """Stands for any layer in tests: ``input`` draws data, ``output`` gradients from U[0, 1); else both are copied.

    ``dummy_conf.shape`` is that of the whole group's batch.
    """

    block = DummyConf
    traits = Traits(n_sources=(0, 1))

    def setup(self) -> None:
        block = self.conf.block(DummyConf)
        self.traits = self.traits.replace(is_loss=block.output)
        if bool(self.sources) == block.input:
            message = (
                "an input Dummy takes no source layer." if self.sources else "Dummy takes one unless it is an input."
            )
            raise ConfigError(Problem(("srclayers",), message))
        self.add_output(self.sources[0].shape if self.sources else self.own_shape(block))

    def own_shape(self, block: DummyConf) -> tuple[int, ...]:
        """Return this worker's part of the configured shape."""
        n_workers = self.site.batch_shard.count
        if not block.shape or block.shape[0] % n_workers:
            message = f"must start with a batch that {n_workers} workers can share equally, not {list(block.shape)}."
            raise ConfigError(Problem(("dummy_conf", "shape"), message))
        return (block.shape[0] // n_workers, *block.shape[1:])

    def forward(self, phase: Phase) -> None:
        data = self.features[0].data
        if self.sources:
            self.ops.copy(self.sources[0].data, out=data)
        else:
            self.ops.uniform(self.random_key("data"), out=data, first_row=self.first_row(len(data)))

    def backward(self, phase: Phase) -> None:
        grad = self.sources[0].grad if self.sources else None
        if grad is None:
            return
        if self.traits.is_loss:
            self.ops.uniform(self.random_key("grad"), out=grad, first_row=self.first_row(len(grad)))
        else:
            self.ops.copy(self.features[0].output_grad, out=grad)


# Layers that combine several sources value by value: Add, as at the end of a residual block, and Multiply.


Kernel: TypeAlias = Callable[[Array, Array, Array], None]


class Combined(Layer):
    """Several sources of one shape, combined by one kernel, two at a time."""

    traits = Traits(n_sources=(2, None), time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        shapes = [source.shape for source in self.sources]
        if len(set(shapes)) > 1:
            message = f"expected sources of one shape, got {', '.join(map(str, shapes))}."
            raise ConfigError(Problem(("srclayers",), message))
        self.add_output(shapes[0], overwritable=True)

    def combine(self, kernel: Kernel, values: Sequence[Array], out: Array, last: Kernel | None = None) -> None:
        """Write to ``out`` what a kernel makes of two or more arrays; ``last`` takes the last one in its place."""
        total, *others, end = values
        for value in others:
            kernel(total, value, out)
            total = out
        (last or kernel)(total, end, out)


@LAYERS.register()
class Add(Combined):
    """y = x1 + x2 + ..., of two or more sources of one shape. The gradient of each source is that of y.

    The shortcut connection of He et al. (2016), "Deep residual learning for image recognition".
    """

    # it writes to the gradient of its output only where that is a ReLU, which shares it with nobody. Where one of two
    # sources is the sum already, see `merge_sums`, their data is the output's
    traits = Combined.traits.replace(reads_gradients=True)

    def setup(self) -> None:
        super().setup()
        if type(self) is Add:
            self.features[0].can_relu = True
            for source in self.sources:
                source.share_grad(self.features[0])

    def attach(self) -> None:
        for source in self.sources:
            if source.added is not None:
                self.features[0].data = source.data

    def forward(self, phase: Phase) -> None:
        feature, last = self.features[0], self.ops.add_relu if self.features[0].relu else None
        if not feature.own_data:
            return
        self.combine(self.ops.add, [source.data for source in self.sources], feature.data, last)

    def backward(self, phase: Phase) -> None:
        grad = self.features[0].masked_grad(self.ops)
        for source in self.sources:
            if source.grad is not None and source.grad is not grad:
                self.ops.copy(grad, out=source.grad)


@LAYERS.register()
class Multiply(Combined):
    """y = x1 x2 ..., value by value, of two or more sources of one shape.

    The gradient of a source is that of y times the product of the other sources.
    """

    traits = Combined.traits

    def forward(self, phase: Phase) -> None:
        self.combine(self.ops.multiply, [source.data for source in self.sources], self.features[0].data)

    def backward(self, phase: Phase) -> None:
        for source in self.sources:
            if source.grad is not None:
                others = [other.data for other in self.sources if other is not source]
                self.combine(self.ops.multiply, [self.features[0].output_grad, *others], source.grad)


# BridgeSrc and BridgeDst: an edge of the net that leads from one worker of a group to another.


IN_FLIGHT = 2
"""Most batches that are on a bridge, or wait at its other end, if no gradient confirms that one was read."""

CARRIED: dict[str, Consumed] = {
    "labels": "labels",
    "ids": "ids",
    "epochs": "ids",
    "partner_labels": "labels",
    "shares": "labels",
}
"""What is sent beside data and gradients, and how consumers refer to it."""

SIZES = {"labels": np.dtype(np.int32).itemsize, "ids": 2 * np.dtype(np.int64).itemsize}
STREAM_START = "stream start"


class Bridge(Layer):
    """What both ends share.

    Attributes
    ----------
    takes_gradient : bool
        Whether the consumer of this end writes a gradient to it.
    """

    traits = Traits(forwards=frozenset({"data", "labels", "ids"}))
    takes_gradient = False

    def setup(self) -> None:
        source = self.sources[0]
        self.add_output(
            source.shape, dtype=source.dtype, own_data=False, own_grad=self.takes_gradient
        ).span = source.span

    def key(self, what: str) -> str:
        """Return the name of what goes over this bridge."""
        return f"{int(self.context.phase)} {what} {self.site.channel}"

    def arrived(self, phase: Phase) -> bool:
        """Tell whether a pass through this layer would not wait for another worker."""
        raise NotImplementedError

    def plain(self, values: Array) -> Array:
        """Return contiguous values in host memory, images as (N, H, W, C)."""
        ordered = values.transpose(0, 2, 3, 1) if values.ndim == 4 else values
        return np.ascontiguousarray(self.ops.to_host(ordered))

    @property
    def exchange(self) -> Exchange:
        """The way to other workers."""
        return self.context.bridges


@LAYERS.register(hidden=True)
class BridgeSrc(Bridge):
    """Sends what its source has computed, and takes the gradient that comes back."""

    n_sent = 0

    def bytes_per_step(self) -> tuple[int, int]:
        """Return how many bytes a step sends to the other end, and how many bytes of gradients come back."""
        feature, (n_rows, *_) = self.features[0], self.features[0].shape
        n_bytes = n_rows * feature.size * feature.dtype.itemsize
        n_more = n_rows * sum(SIZES.get(name, 0) for name in feature.consumed_as)
        return n_bytes * feature.data_is_consumed + n_more, n_bytes * feature.requires_grad

    def forward(self, phase: Phase) -> None:
        source, sent = self.sources[0], {}
        if self.features[0].data_is_consumed:
            sent["data"] = self.plain(source.data)
        wanted = [name for name, read in CARRIED.items() if read in self.features[0].consumed_as]
        sent |= {name: values for name in wanted if (values := getattr(source.records, name)) is not None}
        if self.context.stream_start:
            sent[STREAM_START] = np.ones(1, np.int32)
        if not self.features[0].requires_grad:
            # nothing that comes back says that the other end has read them
            sent = {name: np.array(values) for name, values in sent.items()}
            if self.n_sent >= IN_FLIGHT:
                self.exchange.receive(self.key("taken"))
            self.n_sent += 1
        self.exchange.send(self.site.peer, self.key("data"), list(sent.values()), list(sent))

    def arrived(self, phase: Phase) -> bool:
        if phase & Phase.BACKWARD:
            return self.exchange.has(self.key("grad"))
        return self.features[0].requires_grad or self.n_sent < IN_FLIGHT or self.exchange.has(self.key("taken"))

    def backward(self, phase: Phase) -> None:
        self.ops.copy(_images(self.exchange.receive(self.key("grad"))["grad"]), out=self.sources[0].output_grad)


@LAYERS.register(hidden=True)
class BridgeDst(Bridge):
    """Gives what the other end has sent, and sends its gradient back."""

    takes_gradient = True

    def arrived(self, phase: Phase) -> bool:
        return bool(phase & Phase.BACKWARD) or self.exchange.has(self.key("data"))

    def forward(self, phase: Phase) -> None:
        feature, received = self.features[0], self.exchange.receive(self.key("data"))
        if "data" in received:
            data = _images(received["data"])
            feature.data = data if feature.on_host else self.ops.from_host(data)
        if not feature.requires_grad:
            self.exchange.send(self.site.peer, self.key("taken"), (), ())
        feature.records = RecordIds(**{name: received.get(name) for name in CARRIED}).stored(self.ops)
        self.context.stream_start |= STREAM_START in received

    def backward(self, phase: Phase) -> None:
        self.exchange.send(self.site.peer, self.key("grad"), [self.plain(self.features[0].output_grad)], ["grad"])


def _images(values: Array) -> Array:
    """Return images as (N, C, H, W), of what `Bridge.plain` returned."""
    return values.transpose(0, 3, 1, 2) if values.ndim == 4 else values
