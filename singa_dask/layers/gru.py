"""GRU: gated recurrent units."""

from __future__ import annotations

from singa_dask.layers.base import LAYERS
from singa_dask.layers.recurrent import Recurrent, RecurrentConf, gate_names
from singa_dask.ops.contract import Array

__all__ = ["GRU", "GRUConf"]


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
