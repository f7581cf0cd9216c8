"""LSTM: long short-term memory."""

from __future__ import annotations

from singa_dask.layers.base import LAYERS
from singa_dask.layers.recurrent import Recurrent, RecurrentConf, gate_names
from singa_dask.ops.contract import Array

__all__ = ["LSTM", "LSTMConf"]


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

    def through_time(self, more: bool) -> None:
        if not more:
            self.first.cell_grad[...] = 0
        super().through_time(more)

    def step_grad(self, gy: Array, gh: Array, rows: slice, after: slice) -> None:
        self.ops.lstm_step_grad(self.kept[rows], self.cells[rows], self.cells[after], gy, gh, self.first.cell_grad)
