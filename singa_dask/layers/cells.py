"""Cells of recurrent layers: RNN, GRU and LSTM."""

from __future__ import annotations

from typing import Annotated, Literal

from singa_dask.conf.model import choice
from singa_dask.layers.base import LAYERS
from singa_dask.layers.neuron import kernels_of
from singa_dask.layers.recurrent import Recurrent, RecurrentConf, gate_names
from singa_dask.ops.contract import Array


class RNNConf(RecurrentConf):
    """``rnn_conf``."""

    activation: Annotated[Literal["TANH", "RELU", "SIGMOID"], choice()] = "TANH"
    """The function of the sum."""


@LAYERS.register()
class RNN(Recurrent):
    """h' = f(x W^T + h U^T + b); f is ``rnn_conf.activation``: TANH, RELU or SIGMOID."""

    block = RNNConf
    gates = ("",)
    traits = Recurrent.traits.replace(params=("W", "U", "b"))
    input_order = state_order = (0,)
    n_kept = 1

    def setup(self) -> None:
        super().setup()
        self.forward_kernel, self.backward_kernel = kernels_of(self.ops, self.conf.block(RNNConf).activation)

    def step(self, xw: Array, hu: Array, rows: slice, after: slice) -> None:
        self.ops.add(xw, hu, out=hu)
        self.forward_kernel(hu, out=self.states[after])

    def step_grad(self, gy: Array, gh: Array, rows: slice, after: slice) -> None:
        self.ops.add(gh, gy, out=gh)
        self.backward_kernel(self.states[after], gh, out=self.kept[rows])


class GRUConf(RecurrentConf):
    """``gru_conf`` (SINGA's GRUProto)."""


@LAYERS.register()
class GRU(Recurrent):
    """Gated recurrent units: h' = z h + (1 - z) c.

    z = sigmoid(x W_z^T + h U_z^T + b_z), r = sigmoid(x W_r^T + h U_r^T + b_r), c = tanh(x W_c^T + r (h U_c^T) + b_c).

    Notes
    -----
    After SINGA's GRULayer: z keeps the old state, and r is applied after the matrix product. Its gradient of h lacks
    the factor of the term with z; ours has it.
    """

    block = GRUConf
    gates = ("z", "r", "c")
    traits = Recurrent.traits.replace(params=gate_names(gates))
    input_order, state_order = (2, 0, 1), (0, 1, 2)
    n_kept = 4
    skips = True

    def step(self, xw: Array, hu: Array, rows: slice, after: slice) -> None:
        self.ops.gru_step(xw, hu, self.states[rows], out=self.states[after], gates=self.kept[rows])

    def step_grad(self, gy: Array, gh: Array, rows: slice, after: slice) -> None:
        self.ops.gru_step_grad(self.kept[rows], self.states[rows], gy, gh)


class LSTMConf(RecurrentConf):
    """``lstm_conf``."""


@LAYERS.register()
class LSTM(Recurrent):
    """Long short-term memory: c' = f c + i g, h' = o tanh(c').

    i = sigmoid(x W_i^T + h U_i^T + b_i), likewise f and o; g = tanh(x W_g^T + h U_g^T + b_g). The cell c begins as the
    state h does, but at zeros where h comes from another layer.
    """

    block = LSTMConf
    gates = ("i", "f", "g", "o")
    traits = Recurrent.traits.replace(params=gate_names(gates))
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
        if self.site.first_step:
            self.ops.copy(self.first.last_cell, out=self.cells[: self.n_rows])
        else:
            self.take_over(self.cells, 1)
        # copies hand on the state as any layer does, and the cell by the first of them
        self.first.last_cell = self.cells[len(self.kept) :]

    def last(self) -> tuple[Array, ...]:
        return (*super().last(), self.cells[len(self.kept) :])

    def step(self, xw: Array, hu: Array, rows: slice, after: slice) -> None:
        cells, states = self.cells, self.states
        self.ops.lstm_step(xw, hu, cells[rows], out=states[after], out_c=cells[after], gates=self.kept[rows])

    def through_time(self) -> None:
        if not self.recurrences[0].accumulates:
            self.first.cell_grad[...] = 0
        super().through_time()

    def step_grad(self, gy: Array, gh: Array, rows: slice, after: slice) -> None:
        self.ops.lstm_step_grad(self.kept[rows], self.cells[rows], self.cells[after], gy, gh, self.first.cell_grad)
