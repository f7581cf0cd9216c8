"""Connection layers: Split, Slice and Concate pass on their sources. Nets also insert them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS
from singa_dask.layers.feature import Feature, RecordIds, Span, on_host
from singa_dask.layers.forwarding import Forwarding
from singa_dask.layers.traits import Speed
from singa_dask.ops.contract import Array


class ConcateConf(Conf):
    """``concate_conf`` (SINGA's ConcateProto)."""

    concate_dim: Count = 0
    """Axis along which the sources are joined; 0 is the batch."""
    num_concates: Size = 1
    """Number of outputs."""


class SliceConf(Conf):
    """``slice_conf`` (SINGA's SliceProto)."""

    aliases: ClassVar[Mapping[str, str]] = {"slice_num": "num_slices"}

    slice_dim: Count = 0
    """Axis along which the source is sliced; 0 is the batch."""
    num_slices: Size = 1
    """Number of pieces."""


class SplitConf(Conf):
    """``split_conf`` (SINGA's SplitProto)."""

    aliases: ClassVar[Mapping[str, str]] = {"split_num": "num_splits"}

    num_splits: Size = 1
    """Number of readers."""


@LAYERS.register()
class Split(Forwarding):
    """Pass the data of the source to ``num_splits`` layers, and sum the gradients of these layers."""

    options_class = SplitConf
    outputs_key = "num_splits"
    forwards = Forwarding.forwards | {"one_hot_index"}
    speed = Speed(time_foldable=True, capturable=True, reads_gradients=True, fuses=("relu_grad",))

    def setup(self) -> None:
        source = self.sources[0]
        for _ in range(self.options.num_splits):
            output = self.add_output(
                source.shape, dtype=source.dtype, requires_grad=source.requires_grad, own_data=False
            )
            output.span = source.span

    def prepare(self, phase: Phase) -> None:
        """Give each output the ids and labels of the source."""
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
        if source.grad is None or not grads:
            return
        if len(grads) == 1:
            self.ops.copy(grads[0], out=source.grad)
            return
        total, *others, last = grads
        for grad in others:
            self.ops.add(total, grad, out=source.grad)
            total = source.grad
        if self.fused.relu_grad:
            self.ops.add_relu_grad(source.data, total, last, out=source.grad)
        else:
            self.ops.add(total, last, out=source.grad)


def _by_steps(values: Array, n_steps: int) -> Array:
    """Return the rows of T time steps as a view (T, N, ...); one time step is returned unchanged."""
    return values if n_steps == 1 else values.reshape(n_steps, -1, *values.shape[1:])


def _stretch(values: Array, axis: int, n_steps: int, start: int, stop: int) -> Array:
    """Return a view of the indices from ``start`` to ``stop`` along an axis.

    Axis 0 is the batch. If there are several time steps, the view has the rows from ``start`` to ``stop`` of each
    time step.
    """
    return _by_steps(values, n_steps)[(slice(None),) * (axis if n_steps == 1 else 1) + (slice(start, stop),)]


@LAYERS.register()
class Slice(Forwarding):
    """Divide the source into ``num_slices`` nearly equal pieces along axis ``slice_dim``.

    Each layer that reads the Slice gets one piece. Axis 0 is the batch. In an unrolled net, the batch of each time step
    is divided. Pieces of the batch are views, not copies.
    """

    options_class = SliceConf
    outputs_key = "num_slices"

    def setup(self) -> None:
        source = self.sources[0]
        shape, self.axis, n_slices = source.shape, self.options.slice_dim, self.options.num_slices
        # the number of time steps is 1 if the time steps themselves are sliced
        self.steps = self.site.n_steps if source.n_steps == self.site.n_steps and not self.axis else 1
        if self.axis >= len(shape):
            raise ConfigError(Problem(("slice_conf", "slice_dim"), f"expected an axis of {shape}, got {self.axis}."))
        size = shape[self.axis] // self.steps
        if size < n_slices:
            message = f"expected at most {size}, the length of axis {self.axis} of {shape}, got {n_slices}."
            raise ConfigError(Problem(("slice_conf", "num_slices"), message))
        self.spans = [Span.of(size, k, n_slices) for k in range(n_slices)]
        if not self.copies:
            self.forwards |= {"one_hot_index"}
        for span in self.spans:
            output = self.add_output(
                (*shape[: self.axis], span.size * self.steps, *shape[self.axis + 1 :]),
                dtype=source.dtype,
                requires_grad=source.requires_grad,
                own_data=self.copies,
                own_grad=self.copies,
            )
            output.span = span if self.axis else source.span

    @property
    def copies(self) -> bool:
        """Whether each piece has its own memory."""
        return self.axis > 0 or self.steps > 1

    def piece(self, values: Array, k: int) -> Array:
        """Return a view of piece ``k`` of an array in the shape of the source."""
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
            if self.copies and "data" in feature.consumed_as:
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
                self.ops.clear(part)
            elif self.copies:
                self.ops.copy(_by_steps(feature.grad, self.steps), out=part)


@LAYERS.register()
class Concate(Forwarding):
    """Join the sources along axis ``concate_dim``.

    Axis 0 is the batch. If batches are joined, their labels are joined, too. In an unrolled net, the batches of each
    time step are joined.
    """

    options_class = ConcateConf
    traits = Forwarding.traits.replace(n_sources=(1, None))
    speed = Speed(time_foldable=True, capturable=True)

    def setup(self) -> None:
        self.axis = self.options.concate_dim
        shapes = [source.shape for source in self.sources]
        # the number of time steps is 1 if the time steps themselves are joined
        n_steps = {source.n_steps for source in self.sources}
        self.steps = self.site.n_steps if n_steps == {self.site.n_steps} and not self.axis else 1
        if self.axis >= len(shapes[0]):
            message = f"expected an axis of {shapes[0]}, got {self.axis}."
            raise ConfigError(Problem(("concate_conf", "concate_dim"), message))
        others = {(*shape[: self.axis], *shape[self.axis + 1 :]) for shape in shapes}
        if len(others) > 1:
            listed = ", ".join(map(str, shapes))
            message = f"the sources have shapes {listed}, but may differ in axis {self.axis} only."
            raise ConfigError(Problem(("srclayers",), message))
        if len({source.dtype if on_host(source) else None for source in self.sources}) > 1:
            listed = ", ".join(str(source.dtype) for source in self.sources)
            raise ConfigError(Problem(("srclayers",), f"the sources have values of {listed}. Expected one type."))
        size = sum(shape[self.axis] for shape in shapes)
        output = self.add_output(
            (*shapes[0][: self.axis], size, *shapes[0][self.axis + 1 :]),
            dtype=self.sources[0].dtype,
            requires_grad=any(source.requires_grad for source in self.sources),
        )
        if not self.axis:
            output.span = self.sources[0].span

    def pieces(self, values: Array) -> Iterator[tuple[Feature, Array]]:
        """Yield each source with a view of its part of an array in the shape of the output."""
        start = 0
        for source in self.sources:
            stop = start + source.shape[self.axis] // self.steps
            yield source, _stretch(values, self.axis, self.steps, start, stop)
            start = stop

    def prepare(self, phase: Phase) -> None:
        parts, feature = [source.records for source in self.sources], self.features[0]
        # sources that are joined along another axis have the same rows: take each column from the first source with
        # it
        feature.records = RecordIds.first(parts) if self.axis else RecordIds.join(parts, self._join).stored(self.ops)
        if on_host(feature):
            self._copy()

    def forward(self, phase: Phase) -> None:
        if not on_host(self.features[0]):
            self._copy()

    def _copy(self) -> None:
        feature = self.features[0]
        for source, place in self.pieces(feature.data) if "data" in feature.consumed_as else ():
            self.ops.copy(_by_steps(source.data, self.steps), out=place)

    def _join(self, columns: list[Array]) -> Array:
        steps = [_by_steps(column, self.steps) for column in columns]
        return np.concatenate(steps, axis=min(self.steps - 1, 1)).reshape(-1)

    def backward(self, phase: Phase) -> None:
        for source, place in self.pieces(self.features[0].output_grad):
            if source.grad is not None:
                self.ops.copy(place, out=_by_steps(source.grad, self.steps))
