"""Recurrent layers: RNN, GRU and LSTM, on a base class that computes the time steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeVar, cast

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Size, choice
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.activation import Kernels
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.buffer import Buffer
from singa_dask.layers.fused_params import FusedParams, padded_matrix
from singa_dask.layers.param import ONES, ORTHOGONAL, ZEROS, glorot
from singa_dask.layers.time_steps import check_all_steps, split_mask
from singa_dask.layers.traits import Connection, Speed, Traits
from singa_dask.ops.contract import Array


class RecurrentConf(Conf):
    """Base of the blocks of recurrent layers."""

    dim_hidden: Size
    """Units of the hidden state."""
    bias_term: bool = True
    """Whether the layer has biases. As in SINGA, there are no biases if the job lists only the weights as params."""
    reverse: bool = False
    """Whether to read the time steps from the last to the first. For a bidirectional layer, join a layer and a reversed
    layer by a Concate along axis 1."""
    carry_state: bool = False
    """Whether a batch starts with the last state of the previous batch, if both belong to the same stream."""


Own = TypeVar("Own", bound="Recurrent")


class _TimeStep(NamedTuple):
    """The rows of a time step, and the rows of the states before and after it."""

    rows: slice
    before: slice
    after: slice


class Recurrent(Layer):
    """Base of recurrent layers.

    The sources are x (T N, ...), optionally the first state (N, D), and optionally a PaddingMask. The output is the
    state after each time step, (T N, D). Time steps of padding do not change the state. The last output is therefore
    the state after the last time step that is not padding. With ``reverse``, this time step is the first one that
    changes the state.

    By default the first state is zeros. With ``carry_state``, the first state is the last state of the previous
    batch, which gets no gradient.

    Each gate has the params W (D, V), U (D, D) and b (D,). A job lists all W first, then all U, then all b. With
    ``bias_term: false`` there is no b. As in SINGA, there is also no b if the job lists only W and U.

    If the layer is partitioned by features, each instance computes the units in ``own``, and has the rows of all params
    for these units. Each time step needs the states of all units, so an instance computes one time step at a time.

    Attributes
    ----------
    gates : tuple of str
        Names of the gates, in the order of their params.
    input_order, state_order : tuple of int
        Order of the gates in memory: for products with the input, and for products with the state.
    n_kept : int
        Number of arrays (T N, D) that are stored side by side for the backward pass. The first arrays are for products
        with the input, the last arrays for products with the state. The backward pass overwrites them with gradients.
    skips : bool
        Whether the next state depends on the state in other ways than through the product with U.
    """

    traits = Traits(n_sources=(1, 3), consumes=("one_hot_index",), takes_mask=True, steps="recurrent")
    speed = Speed(time_foldable=True, capturable=True, accumulates=True, feature_parallel=Connection.ONE_TO_ALL)
    options_class: ClassVar[type[RecurrentConf]]
    gates: ClassVar[tuple[str, ...]]
    input_order: ClassVar[tuple[int, ...]]
    state_order: ClassVar[tuple[int, ...]]
    n_kept: ClassVar[int]
    skips: ClassVar[bool] = False

    def setup(self) -> None:
        self.own = self.add_output((self.sources[0].shape[0], self.options.dim_hidden), own_data=False).span
        self.dim, self.carries, self.reverse = self.own.size, self.options.carry_state, self.options.reverse
        self.n_rows = self.sources[0].shape[0] // self.site.n_steps
        (_, *states), self.mask = split_mask(self, 2)
        self.first_state = states[0] if states else None
        self._check()
        self._add_params(self.options)
        self._add_buffers()
        by_input = [[params[k] for k in self.input_order] for params in (self.weights, self.biases) if params]
        by_state = [self.recurrences[k] for k in self.state_order]
        self.fused_params = {
            "w": FusedParams(by_input[0]),
            "table": FusedParams(by_input[0], by_input[1] if self.biases else []),
            "u": FusedParams(by_state),
            # on a CPU, the products of each time step are faster with transposed weights
            "u transposed": FusedParams(by_state, []),
        }
        if self.biases:
            self.fused_params["b"] = FusedParams(by_input[1])

    def _add_params(self, block: RecurrentConf) -> None:
        """Add the params.

        By default W is Glorot uniform and U is orthogonal; b is 0, or 1 for the forget gate of an LSTM.
        """
        n_gates, n_inputs = len(self.gates), self.sources[0].size
        self.weights = [
            self.add_param((self.dim, n_inputs), initial=lambda whole: glorot(*whole)) for _ in range(n_gates)
        ]
        self.recurrences = [self.add_param((self.dim, self.own.total), initial=ORTHOGONAL) for _ in range(n_gates)]
        has_biases = block.bias_term and len(self.conf.param) != 2 * n_gates
        self.biases = [
            self.add_param((self.dim,), initial=ONES if gate == "f" else ZEROS)
            for gate in (self.gates if has_biases else ())
        ]
        self.traits = self.traits.replace(params=self.traits.params[: n_gates * (3 if has_biases else 2)])

    def _add_buffers(self) -> None:
        """Declare memory for the first state and the output, and for the gradient."""
        n_rows, dtype = self.sources[0].shape[0], self.context.dtype
        self.state_memory = self.buffer("states", (n_rows + self.n_rows, self.dim), dtype)
        self.before_memory: Buffer | None = None
        if self.site.feature_shard.count > 1:
            self.before_memory = self.buffer("states before", (n_rows, self.own.total), dtype)
        self.kept_memory = self.buffer(
            "kept", (n_rows, self.n_kept * self.dim), dtype, make=partial(padded_matrix, self.ops)
        )
        if self.mask is not None:
            # `valid` is 1 for rows that are not padding, and `padding` is 1 for rows that are padding
            self.valid, self.padding = (self.buffer(name, (n_rows,), dtype) for name in ("valid", "padding"))

    def attach(self) -> None:
        self.states, self.kept, n_rows = self.state_memory.data, self.kept_memory.data, self.n_rows
        early, late = self.states[: len(self.kept)], self.states[n_rows:]
        places = [(slice(k, k + n_rows), slice(k + n_rows, k + 2 * n_rows)) for k in range(0, len(early), n_rows)]
        if self.reverse:
            self.steps = [_TimeStep(rows, later, rows) for rows, later in reversed(places)]
        else:
            self.steps = [_TimeStep(rows, rows, later) for rows, later in places]
        self.features[0].data = early if self.reverse else late
        # the states of all units before each time step
        self.before = self.before_memory.data if self.before_memory else late if self.reverse else early

    def _check(self) -> None:
        """Raise ConfigError for unsupported options and sources."""
        conf = self.conf
        if self.context.dtype != self.context.param_dtype:
            message = f"{conf.type} does not compute in bf16. Use precision: float32 or float64."
            raise ConfigError(Problem(("type",), message))
        if self.carries and self.site.feature_shard.count > 1:
            message = (
                f"{conf.type} with carry_state cannot be partitioned by features. Use 0 or -1, or remove carry_state."
            )
            raise ConfigError(Problem(("partition_dim",), message))
        if self.reverse:
            check_all_steps(self)
        if self.reverse and self.carries:
            message = "with reverse: true, no batch continues the previous one. Set carry_state: false."
            raise ConfigError(Problem((self.options_class.block_key, "carry_state"), message))
        if self.first_state is None:
            return
        wanted, place = (self.n_rows, self.own.total), self.sources.index(self.first_state)
        if self.first_state.shape != wanted:
            message = f"the first state has shape {self.first_state.shape}, expected {wanted}."
            raise ConfigError(Problem(("srclayers", place), message))
        if self.carries and not self.site.first_step:
            message = f"{conf.srclayers[place]!r} gives the first state. Remove that source, or carry_state."
            raise ConfigError(Problem(("srclayers", place), message))

    # -- methods that each type defines -------------------------------------------------------------

    def step(self, xw: Array, hu: Array, at: _TimeStep) -> None:
        """Compute one time step.

        The method reads the state from ``states[at.before]``, and writes the new state to ``states[at.after]``. It
        writes the values that the gradient needs to ``kept[at.rows]``.

        Parameters
        ----------
        xw, hu : ndarray, shape (N, gates D)
            Products with the input, biases included, and products with the state. ``xw`` may be columns of
            ``kept[at.rows]``.
        at : _TimeStep
        """
        raise TypeError(f"{type(self).__name__} has no step()")

    def step_grad(self, gy: Array, gh: Array, at: _TimeStep) -> None:
        """Overwrite ``kept[at.rows]`` with the gradients of a time step.

        Parameters
        ----------
        gy, gh : ndarray, shape (N, D)
            Their sum is the gradient of ``states[at.after]``. If the layer `skips`, the method overwrites ``gh`` with
            the gradient of ``states[at.before]``, except for the part that comes from the product with U.
        at : _TimeStep
        """
        raise TypeError(f"{type(self).__name__} has no step_grad()")

    # -- forward -------------------------------------------------------------------------------------------

    @property
    def first(self: Own) -> Own:
        """The instance for the first time step; this layer itself if it has only one instance."""
        return cast(Own, self.site.prototype or self)

    def weights_of(self, key: str) -> Array:
        """Return the params of all gates side by side in one array; ``key`` selects W, U or b."""
        return self.first.fused_params[key].value(self.ops)

    def columns(self, order: Sequence[int], gate: int, values: Array) -> Array:
        """Return the columns of ``values`` that belong to a gate; ``order`` is their order of the gates."""
        place = order.index(gate) * self.dim
        return values[:, place : place + self.dim]

    def prepare(self, phase: Phase) -> None:
        if self.site.prototype is None:
            for values in self.state or () if self.context.stream_start else ():
                values[...] = 0
            for fused in self.fused_params.values():
                fused.stale |= not self.context.frozen
        if self.mask is not None:
            valid = self.mask.data.reshape(-1).astype(np.float32)
            self.ops.copy(valid, out=self.valid.data)
            self.ops.copy(1 - valid, out=self.padding.data)

    def forward(self, phase: Phase) -> None:
        self.begin()
        n_rows, width, large = self.n_rows, len(self.gates) * self.dim, self.ops.prefers_large_kernels
        xw, index = self.kept[:, :width], None if large else self.sources[0].one_hot_index
        if index is None:
            self.from_input(out=xw)
        hu = self.ops.scratch("state products", (n_rows, width), xw.dtype)
        # a GPU multiplies equally fast by weights in either orientation
        u = self.weights_of("u" if large else "u transposed")
        for at in self.steps:
            self.ops.linear(self.before[at.rows], u, None, out=hu, transpose=not large)
            self.step(xw[at.rows] if index is None else self.looked_up(index, at.rows), hu, at)
            for values in self.memories if self.mask is not None else ():
                held = self.ops.scratch("held", (n_rows, self.dim), values.dtype)
                self.ops.scale_rows(values[at.before], self.padding.data[at.rows], out=held)
                self.ops.scale_rows(values[at.after], self.valid.data[at.rows], out=values[at.after])
                self.ops.add(values[at.after], held, out=values[at.after])
        if self.carries:
            self.state = tuple(values[self.steps[-1].after] for values in self.memories)

    def from_input(self, out: Array) -> None:
        """Compute the products with the input in all time steps, and write them to ``out``."""
        index = self.sources[0].one_hot_index
        if index is None:
            self.x = self.rows()
            self.ops.linear(self.x, self.weights_of("w"), self.weights_of("b") if self.biases else None, out=out)
        else:
            self.ops.take_rows(self.weights_of("table"), index, out=out)

    def looked_up(self, index: Array, rows: slice) -> Array:
        """Return the products with a one-hot input in one time step. The array is valid until the next call."""
        table = self.weights_of("table")
        out = self.ops.scratch("input products", (self.n_rows, table.shape[1]), self.kept.dtype)
        self.ops.take_rows(table, index[rows], out=out)
        return out

    def begin(self) -> None:
        """Set the state before the first time step."""
        before = self.before[self.steps[0].rows]
        if self.first_state is not None:
            self.ops.copy(self.first_state.data, out=before)
        else:
            self.take_over(before, 0)
        if self.site.feature_shard.count > 1:
            self.ops.copy(before[:, self.own.start : self.own.stop], out=self.states[: self.n_rows])

    def take_over(self, values: Array, place: int) -> None:
        """Copy array number ``place`` of `state` to ``values``; without a state, set ``values`` to zeros."""
        if self.state is not None:
            self.ops.copy(self.state[place], out=values)
        else:
            self.ops.clear(values)

    @property
    def memories(self) -> list[Array]:
        """The arrays (T N + N, D) whose values pass from one time step to the next."""
        return [self.states]

    # -- backward ------------------------------------------------------------------------------------------------

    def backward(self, phase: Phase) -> None:
        self.through_time(phase)
        width = len(self.gates) * self.dim
        by_input, by_state = self.kept[:, :width], self.kept[:, -width:]
        for gate, param in enumerate(self.recurrences):
            grad = self.columns(self.state_order, gate, by_state)
            self.ops.linear_grad_weight(self.before, grad, out=param.grad, accumulate=phase.accumulates)
        self.grad_of_input_params(by_input, phase)
        if self.sources[0].grad is not None:
            with self.grad_rows() as gx:
                self.ops.linear_grad_input(by_input, self.weights_of("w"), out=gx)

    def through_time(self, phase: Phase) -> None:
        """Compute the gradients of the gates, from the last time step to the first, and of the first state."""
        ops, gy, n_rows, width = self.ops, self.features[0].output_grad, self.n_rows, len(self.gates) * self.dim
        wanted = None if self.first_state is None else self.first_state.grad
        gh, zeros = (ops.scratch(name, (n_rows, self.dim), gy.dtype) for name in ("state grad", "zeros"))
        ops.clear(gh)
        ops.clear(zeros)
        for at in reversed(self.steps):
            g, held = gy[at.rows], None
            if self.mask is not None:
                ops.add(gh, g, out=gh)
                g, held = zeros, self.hold_back(gh, at, "held state")
            self.step_grad(g, gh, at)
            grad = self.kept[at.rows, -width:]
            if at is not self.steps[0]:
                ops.linear_grad_input(grad, self.weights_of("u"), out=gh, accumulate=self.skips)
                if held is not None:
                    ops.add(gh, held, out=gh)
            elif wanted is not None:
                ops.linear_grad_input(grad, self.weights_of("u"), out=wanted)
                own = wanted[:, self.own.start : self.own.stop]
                for more in (gh if self.skips else None, held):
                    if more is not None:
                        ops.add(own, more, out=own)

    def hold_back(self, grad: Array, at: _TimeStep, name: str) -> Array:
        """Set the gradient after a time step to 0 in rows of padding, and return the gradients of these rows.

        The state skips a time step of padding, so its gradient passes unchanged to the time step before.
        """
        held = self.ops.scratch(name, grad.shape, grad.dtype)
        self.ops.scale_rows(grad, self.padding.data[at.rows], out=held)
        self.ops.scale_rows(grad, self.valid.data[at.rows], out=grad)
        return held

    def grad_of_input_params(self, by_input: Array, phase: Phase) -> None:
        """Compute the gradients of W and b."""
        ops, index = self.ops, self.sources[0].one_hot_index
        rows = by_input
        if index is not None:
            rows = ops.scratch("table grad", (self.sources[0].size, by_input.shape[1]), by_input.dtype)
            ops.add_rows(by_input, index, out=rows)
        for gate, param in enumerate(self.weights):
            grad = self.columns(self.input_order, gate, rows)
            if index is None:
                ops.linear_grad_weight(self.x, grad, out=param.grad, accumulate=phase.accumulates)
            elif phase.accumulates:
                ops.add(param.grad, grad.T, out=param.grad)
            else:
                ops.copy(grad.T, out=param.grad)
        for gate, param in enumerate(self.biases):
            grad = self.columns(self.input_order, gate, rows)
            ops.linear_grad_bias(grad, out=param.grad, accumulate=phase.accumulates)


def gate_names(gates: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the params of gates."""
    return tuple(f"{kind}_{gate}" for kind in "WUb" for gate in gates)


class RNNConf(RecurrentConf):
    """``rnn_conf``."""

    activation: Annotated[Literal["TANH", "RELU", "SIGMOID"], choice()] = "TANH"
    """The function of the sum."""


@LAYERS.register()
class RNN(Recurrent):
    """h' = f(x W^T + h U^T + b); f is ``rnn_conf.activation``: TANH, RELU or SIGMOID."""

    options_class = RNNConf
    gates = ("",)
    traits = Recurrent.traits.replace(params=("W", "U", "b"))
    speed = Recurrent.speed
    input_order = state_order = (0,)
    n_kept = 1

    def setup(self) -> None:
        super().setup()
        self.kernels = Kernels(self.options.activation)

    def step(self, xw: Array, hu: Array, at: _TimeStep) -> None:
        self.ops.add(xw, hu, out=hu)
        self.kernels.forward(self.ops, hu, out=self.states[at.after])

    def step_grad(self, gy: Array, gh: Array, at: _TimeStep) -> None:
        self.ops.add(gh, gy, out=gh)
        self.kernels.backward(self.ops, self.states[at.after], gh, out=self.kept[at.rows])


class GRUConf(RecurrentConf):
    """``gru_conf`` (SINGA's GRUProto)."""


@LAYERS.register()
class GRU(Recurrent):
    """Gated recurrent units: h' = z h + (1 - z) c.

    z = sigmoid(x W_z^T + h U_z^T + b_z), r = sigmoid(x W_r^T + h U_r^T + b_r), c = tanh(x W_c^T + r (h U_c^T) + b_c).

    Notes
    -----
    As in SINGA's GRULayer, z keeps the old state, and r is applied after the matrix product. SINGA's gradient of h
    omits the term from z h; the gradient of this layer includes it.
    """

    options_class = GRUConf
    gates = ("z", "r", "c")
    traits = Recurrent.traits.replace(params=gate_names(gates))
    speed = Recurrent.speed
    input_order, state_order = (2, 0, 1), (0, 1, 2)
    n_kept = 4
    skips = True

    def step(self, xw: Array, hu: Array, at: _TimeStep) -> None:
        self.ops.gru_step(xw, hu, self.states[at.before], out=self.states[at.after], gates=self.kept[at.rows])

    def step_grad(self, gy: Array, gh: Array, at: _TimeStep) -> None:
        self.ops.gru_step_grad(self.kept[at.rows], self.states[at.before], gy, gh)


class LSTMConf(RecurrentConf):
    """``lstm_conf``."""


@LAYERS.register()
class LSTM(Recurrent):
    """Long short-term memory: c' = f c + i g, h' = o tanh(c').

    i = sigmoid(x W_i^T + h U_i^T + b_i), and likewise f and o; g = tanh(x W_g^T + h U_g^T + b_g). The first cell c is
    zeros or, with ``carry_state``, the last cell of the previous batch. If another layer supplies the first state h,
    the first cell is zeros.
    """

    options_class = LSTMConf
    gates = ("i", "f", "g", "o")
    traits = Recurrent.traits.replace(params=gate_names(gates))
    speed = Recurrent.speed
    input_order = state_order = (0, 1, 3, 2)
    n_kept = 4

    last_cell: Array

    def _add_buffers(self) -> None:
        super()._add_buffers()
        self.cell_memory = self.buffer("cells", self.state_memory.shape, self.context.dtype)
        self.cell_grad_memory = self.buffer("cell gradient", (self.n_rows, self.dim), self.context.dtype)

    def attach(self) -> None:
        super().attach()
        self.cells, self.cell_grad = self.cell_memory.data, self.cell_grad_memory.data

    def begin(self) -> None:
        super().begin()
        before = self.cells[self.steps[0].before]
        if self.site.first_step:
            self.ops.copy(self.first.last_cell, out=before)
        else:
            self.take_over(before, 1)
        # the next time step reads the state from the output, and the cell from this attribute of the first copy
        self.first.last_cell = self.cells[self.steps[-1].after]

    @property
    def memories(self) -> list[Array]:
        return [self.states, self.cells]

    def step(self, xw: Array, hu: Array, at: _TimeStep) -> None:
        cells, states = self.cells, self.states
        gates = self.kept[at.rows]
        self.ops.lstm_step(xw, hu, cells[at.before], out=states[at.after], out_c=cells[at.after], gates=gates)

    def through_time(self, phase: Phase) -> None:
        if not phase.accumulates:
            self.ops.clear(self.first.cell_grad)
        super().through_time(phase)

    def step_grad(self, gy: Array, gh: Array, at: _TimeStep) -> None:
        grad = self.first.cell_grad
        held = None if self.mask is None else self.hold_back(grad, at, "held cell")
        self.ops.lstm_step_grad(self.kept[at.rows], self.cells[at.before], self.cells[at.after], gy, gh, grad)
        if held is not None:
            self.ops.add(grad, held, out=grad)
