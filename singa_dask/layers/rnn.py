"""RNN: a plain recurrent layer."""

from __future__ import annotations

from typing import Annotated, Literal

from singa_dask.conf.model import choice
from singa_dask.layers.base import LAYERS
from singa_dask.layers.recurrent import Recurrent, RecurrentConf
from singa_dask.ops.contract import Array

__all__ = ["RNN", "RNNConf"]


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
        known = {
            "TANH": (self.ops.tanh, self.ops.tanh_grad),
            "RELU": (self.ops.relu, self.ops.relu_grad),
            "SIGMOID": (self.ops.sigmoid, self.ops.sigmoid_grad),
        }
        self.function, self.derivative = known[self.conf.block(RNNConf).activation]

    def step(self, xw: Array, hu: Array, rows: slice, after: slice) -> None:
        self.ops.add(xw, hu, out=hu)
        self.function(hu, out=self.states[after])

    def step_grad(self, gy: Array, gh: Array, rows: slice, after: slice) -> None:
        self.ops.add(gh, gy, out=gh)
        self.derivative(self.states[after], gh, out=self.kept[rows])
