"""Layers of numbers, such as characters and words: one-hot rows, rows of a table that is learnt, labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from singa_dask.conf import EmbeddingConf, InitConf, LayerConf, OneHotConf, Phase
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.layers.base import LAYERS, Connection, Feature, Layer

__all__ = ["Embedding", "OneHot", "RNNLabel"]


class Numbers(Layer):
    """What layers that read numbers share.

    A time step takes its own column of a source that is not unrolled and has several; one column is taken as it is.
    """

    over_time = True
    steps_from_columns = True
    ahead: ClassVar[int] = 0

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        source, last = sources[0], self.first_step + self.n_steps + self.ahead
        several = source.size > 1 or self.ahead > 0
        self.own_columns = several and source.n_steps == 1
        if several and not self.own_columns:
            message = f"expected one number a row, in a source of {source.n_steps} time steps, got {source.size}."
            raise ConfigError(Problem(("srclayers", 0), message))
        if several and source.size < last:
            message = f"expected {last} columns or more, {self.n_steps} time steps from {self.first_step} on"
            message += f", with labels, got {source.size}." if self.ahead else f", got {source.size}."
            raise ConfigError(Problem(("srclayers", 0), message))
        self.n_numbers = source.shape[0] * self.n_steps // source.n_steps

    def numbers(self) -> Any:
        """Return the numbers of all rows, those of the first time step first: (rows,) int64."""
        data = self.ops.to_host(self.rows())
        if self.sources[0].n_steps > 1:
            return data.reshape(-1).astype(np.int64)
        first = self.first_step + self.ahead
        columns = data[:, first : first + self.n_steps] if self.own_columns else data
        return np.broadcast_to(columns.T, (self.n_steps, len(data))).astype(np.int64).reshape(-1)

    def check(self, numbers: Any, least: int, n: int) -> None:
        """Refuse numbers that are not in [``least``, ``n``).

        Raises
        ------
        DataError
            One is not.
        """
        if numbers.min() < least or numbers.max() >= n:
            wrong = numbers[(numbers < least) | (numbers >= n)][0]
            raise DataError(
                f"layer {self.name}: {wrong} is out of range. Numbers from {self.conf.srclayers[0]!r} must be "
                f"{least} to {n - 1}, as vocab_size is {n}."
            )


def _vocab_size(block: OneHotConf | EmbeddingConf, conf: LayerConf, key: str) -> int:
    """Return the size of the vocabulary, which the job has to say."""
    if not block.vocab_size:
        raise ConfigError(Problem((key, "vocab_size"), f"{conf.type} needs it: how many numbers there are."))
    return block.vocab_size


@LAYERS.register()
class OneHot(Numbers):
    """Rows of zeros with a one at the place that the source says: (rows, vocab_size).

    Where nobody reads the rows it gives the places alone.
    """

    block = OneHotConf
    splits = False

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        super().setup(conf, sources, ops)
        self.n_values = _vocab_size(conf.block(OneHotConf), conf, "onehot_conf")
        self.feature((self.n_numbers, self.n_values), wants_grad=False)

    def allocate(self) -> None:
        """Allocate the rows, if there is a reader."""
        if "data" in self.features[0].read_as or "index" not in self.features[0].read_as:
            super().allocate()

    def compute_feature(self, phase: Phase) -> None:
        feature, numbers = self.features[0], self.numbers()
        self.check(numbers, 0, self.n_values)
        feature.index = self.ops.labels(numbers, feature.index)
        if feature.data is not None:
            self.ops.one_hot(feature.index, out=feature.data)


@LAYERS.register()
class Embedding(Numbers):
    """The rows of a table (vocab_size, feature_dim) that the source says: (rows, feature_dim).

    -1 is padding, a row of zeros, as SINGA documents it. The gradient of a row of the table is the sum over all places
    where it was taken. (SINGA's loses some.)
    """

    block = EmbeddingConf
    param_names = ("table",)
    connection = Connection.ONE_TO_ALL
    by_feature = True
    accumulates = True

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        super().setup(conf, sources, ops)
        block = conf.block(EmbeddingConf)
        n_values, columns = _vocab_size(block, conf, "embedding_conf"), self.cut(block.feature_dim)
        self.feature((self.n_numbers, columns.size), reusable=True, columns=columns)
        self.table = self.param(0, (n_values, columns.size), axis=1)
        self.index: Any = None

    def initial(self, index: int) -> InitConf:
        return InitConf(type="Uniform", low=-0.05, high=0.05)

    def compute_feature(self, phase: Phase) -> None:
        numbers = self.numbers()
        self.check(numbers, -1, self.table.shape[0])
        self.index = self.ops.labels(numbers, self.index)
        self.ops.take_rows(self.table.data, self.index, out=self.features[0].data)

    def compute_gradient(self, phase: Phase) -> None:
        more = bool(phase & Phase.AGGREGATE_GRADIENT)
        self.ops.add_rows(self.features[0].grad, self.index, out=self.table.grad, accumulate=more)
        if self.sources[0].grad is not None:
            self.sources[0].grad[...] = 0


@LAYERS.register()
class RNNLabel(Numbers):
    """Labels of the time steps: at each the number that the source has for the next one."""

    splits = False
    ahead = 1

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        super().setup(conf, sources, ops)
        self.feature((self.n_numbers, 1), wants_grad=False)

    def compute_feature(self, phase: Phase) -> None:
        feature = self.features[0]
        feature.labels = self.ops.labels(self.numbers().astype(np.int32), feature.labels)
        if "data" in feature.read_as:
            self.ops.copy(feature.labels[:, None], out=feature.data)
