"""PositionalEmbedding: adds a learnt row for each time step."""

from __future__ import annotations

import numpy as np

from singa_dask.conf import InitConf, Phase
from singa_dask.conf.model import Conf, Size
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.traits import Connection, Traits
from singa_dask.ops.contract import Array

__all__ = ["PositionalEmbedding", "PositionalEmbeddingConf"]

INITIAL = InitConf(type="Gaussian", std=0.02)


class PositionalEmbeddingConf(Conf):
    """``positionalembedding_conf``."""

    max_length: Size
    """Positions that have a row: the most time steps of a sequence."""
    carry_state: bool = False
    """Go on counting where the batch before has stopped, if it is of the same stream; not in training."""


@LAYERS.register()
class PositionalEmbedding(Layer):
    """y = x + table[t], where x (T N, D) are rows of T time steps, and t is the time step of a row.

    The table is a param (max_length, D), at first normal with standard deviation 0.02.

    Notes
    -----
    The learnt positions that Vaswani et al. (2017) mention, as in GPT.
    """

    block = PositionalEmbeddingConf
    traits = Traits(
        params=("table",),
        time_foldable=True,
        capturable=True,
        accumulates=True,
        feature_parallel=Connection.ONE_TO_ONE,
    )

    def setup(self) -> None:
        block, site, shape = self.conf.block(PositionalEmbeddingConf), self.site, self.sources[0].shape
        if len(shape) != 2:
            message = f"{self.conf.srclayers[0]!r} gives records of {shape[1:]}, expected rows."
            raise ConfigError(Problem(("srclayers",), message))
        n_steps = site.first_step + site.n_steps
        if n_steps > block.max_length:
            message = f"expected at least {n_steps}, the time steps, got {block.max_length}."
            raise ConfigError(Problem(("positionalembedding_conf", "max_length"), message))
        if block.carry_state and self.context.phase & Phase.TRAIN:
            message = "positions are carried from batch to batch only where nothing is trained. Say false."
            raise ConfigError(Problem(("positionalembedding_conf", "carry_state"), message))
        self.max_length, self.carries = block.max_length, block.carry_state
        self.add_output(shape, overwritable=True)
        self.table = self.add_param((block.max_length, shape[1]), initial=lambda whole: INITIAL, axis=1)

    def attach(self) -> None:
        self.index = self.positions_from(self.site.first_step)

    def positions_from(self, first: int, before: Array | None = None) -> Array:
        """Return the position of each row, from that of the first one; ``before`` is memory for reuse."""
        positions = np.arange(first, first + self.site.n_steps)
        n_rows = self.features[0].shape[0] // self.site.n_steps
        return self.ops.labels(np.repeat(positions, n_rows), before)

    def prepare(self, phase: Phase) -> None:
        if not self.carries:
            return
        position = 0 if self.state is None or self.context.stream_start else int(self.state[0])
        if position + self.site.n_steps > self.max_length:
            raise DataError(
                f"layer {self.name}: there is no position {position}. Expected at most {self.max_length} time steps, "
                "as positionalembedding_conf.max_length says."
            )
        self.index = self.positions_from(position, self.index)
        self.state = (np.array(position + self.site.n_steps),)

    def forward(self, phase: Phase) -> None:
        x, y = self.sources[0].data, self.features[0].data
        self.ops.take_rows(self.table.data, self.index, out=y)
        self.ops.add(x, y, out=y)

    def backward(self, phase: Phase) -> None:
        source, gy = self.sources[0], self.features[0].output_grad
        more = bool(phase & Phase.AGGREGATE_GRADIENT)
        self.ops.add_rows(gy, self.index, out=self.table.grad, accumulate=more)
        if source.grad is not None:
            self.ops.copy(gy, out=source.grad)
