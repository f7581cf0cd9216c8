"""Layers for integers, such as the numbers of words: OneHot, Embedding, RNNLabel, PositionalEmbedding."""

from __future__ import annotations

import numpy as np

from singa_dask.conf import InitConf, LayerConf, Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer, check_axes
from singa_dask.layers.contiguous import contiguous, contiguous_out
from singa_dask.layers.feature import RecordIds
from singa_dask.layers.numbers import Numbers
from singa_dask.layers.param import NORMAL
from singa_dask.layers.traits import Connection, Speed, Traits
from singa_dask.ops.contract import Array


class OneHotConf(Conf):
    """``onehot_conf`` (SINGA's OnehotProto)."""

    vocab_size: Count = 0
    """Length of a one-hot row."""


class EmbeddingConf(Conf):
    """``embedding_conf`` (SINGA's EmbeddingProto)."""

    vocab_size: Count = 0
    """Number of rows of the table."""
    feature_dim: Size = 100
    """Number of values in each row."""


INITIAL = InitConf(type="Uniform", low=-0.05, high=0.05)


def _vocab_size(block: OneHotConf | EmbeddingConf, conf: LayerConf, key: str) -> int:
    """Return the size of the vocabulary from the block; raise ConfigError if the job does not set it."""
    if not block.vocab_size:
        message = f"{conf.type} needs vocab_size: how many numbers there are."
        raise ConfigError(Problem((key, "vocab_size"), message))
    return block.vocab_size


@LAYERS.register()
class OneHot(Numbers):
    """Convert each number of the source to a one-hot row: (rows, vocab_size).

    In each row, the column with the index of the number is 1, and all other columns are 0. If no layer reads the rows
    themselves, only the indices are computed.
    """

    options_class = OneHotConf
    speed = Numbers.speed

    def setup(self) -> None:
        super().setup()
        self.n_values = _vocab_size(self.options, self.conf, "onehot_conf")
        self.add_output((self.n_numbers, self.n_values), requires_grad=False, own_data="consumed")

    def prepare(self, phase: Phase) -> None:
        feature, numbers = self.features[0], self.numbers()
        self.check(numbers, 0, self.n_values)
        feature.one_hot_index = self.ops.row_index(numbers, self.n_values, feature.one_hot_index)

    def forward(self, phase: Phase) -> None:
        feature = self.features[0]
        if feature.has_data and feature.one_hot_index is not None:
            self.ops.one_hot(feature.one_hot_index, out=feature.data)


@LAYERS.register()
class Embedding(Numbers):
    """Replace each number of the source by a row of a table: (rows, feature_dim).

    The table is a param (vocab_size, feature_dim). If each record has k numbers that are not time steps, (N, k), the
    output is (N, k, feature_dim), as in PyTorch.

    The number -1 stands for padding. Its output row is zeros, as SINGA's documentation says. The gradient of a row of
    the table is the sum of the gradients of all output rows that are copies of this row. (SINGA omits some of these
    gradients.)
    """

    options_class = EmbeddingConf
    traits = Numbers.traits.replace(params=("table",))
    speed = Numbers.speed.replace(accumulates=True, reads_gradients=True, feature_parallel=Connection.ONE_TO_ALL)
    reads_columns = True

    def setup(self) -> None:
        super().setup()
        self.n_values = _vocab_size(self.options, self.conf, "embedding_conf")
        if self.all_columns and self.site.feature_shard.count > 1:
            message = f"rows of {self.sources[0].size} numbers a record are not shared by features. Use 0 or -1."
            raise ConfigError(Problem(("partition_dim",), message))
        columns = (self.sources[0].shape[0], self.sources[0].size) if self.all_columns else (self.n_numbers,)
        y = self.add_output((*columns, self.options.feature_dim), overwritable=True)
        self.table = self.add_param((self.n_values, y.shape[-1]), initial=INITIAL, axis=1)

    def attach(self) -> None:
        self.index = self.ops.row_index(np.zeros(self.n_numbers, np.int64), self.n_values)

    def prepare(self, phase: Phase) -> None:
        numbers = self.numbers()
        self.check(numbers, -1, self.n_values)
        self.index = self.ops.row_index(numbers, self.n_values, self.index)

    def forward(self, phase: Phase) -> None:
        y, table = self.features[0].data, self.table.data
        if not self.all_columns:
            self.ops.take_rows(table, self.index, out=y)
            return
        with contiguous_out(self.ops, y, "y") as rows:
            self.ops.take_rows(table, self.index, out=rows.reshape(self.n_numbers, -1))

    def backward(self, phase: Phase) -> None:
        gy = self.features[0].output_grad
        if self.all_columns:
            gy = contiguous(self.ops, gy, "gy").reshape(self.n_numbers, -1)
        self.ops.add_rows(gy, self.index, out=self.table.grad, accumulate=phase.accumulates)
        grad = self.sources[0].grad
        if grad is not None:
            self.ops.clear(grad)


@LAYERS.register()
class RNNLabel(Numbers):
    """Label each time step with the number that the source has at the next time step."""

    speed = Numbers.speed
    ahead = 1

    def setup(self) -> None:
        super().setup()
        self.add_output((self.n_numbers, 1), requires_grad=False)

    def prepare(self, phase: Phase) -> None:
        feature = self.features[0]
        labels = self.ops.labels(self.numbers().astype(np.int32), feature.records.labels)
        feature.records = RecordIds(labels)
        if "data" in feature.consumed_as:
            self.ops.copy(labels[:, None], out=feature.data)

    def forward(self, phase: Phase) -> None:
        pass


class PositionalEmbeddingConf(Conf):
    """``positionalembedding_conf``."""

    max_length: Size
    """Number of positions, which is the maximum number of time steps of a sequence."""
    carry_state: bool = False
    """Whether positions continue from the previous batch of the same stream. Not supported in training."""


@LAYERS.register()
class PositionalEmbedding(Layer):
    """y = x + table[t], where t is the time step of each row of x (T N, D).

    The table is a param (max_length, D). Its initial values are normal with standard deviation 0.02.

    Notes
    -----
    These are the learned positional embeddings of Vaswani et al. (2017), which GPT uses.
    """

    options_class = PositionalEmbeddingConf
    traits = Traits(params=("table",))
    speed = Speed(
        time_foldable=True,
        capturable=True,
        accumulates=True,
        reads_gradients=True,
        feature_parallel=Connection.ONE_TO_ONE,
        fuses=("pass_grad",),
    )

    def setup(self) -> None:
        options, site, shape = self.options, self.site, self.sources[0].shape
        check_axes(self, "rows", 2)
        n_steps = site.first_step + site.n_steps
        if n_steps > options.max_length:
            message = f"expected at least {n_steps}, the time steps, got {options.max_length}."
            raise ConfigError(Problem(("positionalembedding_conf", "max_length"), message))
        if options.carry_state and self.context.phase & Phase.TRAIN:
            message = "positions are not carried from batch to batch in training. Set false."
            raise ConfigError(Problem(("positionalembedding_conf", "carry_state"), message))
        self.max_length, self.carries = options.max_length, options.carry_state
        self.add_output(shape, overwritable=True)
        self.table = self.add_param((options.max_length, shape[1]), initial=NORMAL, axis=1)

    def attach(self) -> None:
        self.index = self.positions_from(self.site.first_step)

    def positions_from(self, first: int, before: Array | None = None) -> Array:
        """Return the position of each row, given the position of the first time step.

        ``before`` is an earlier result, whose memory is reused.
        """
        positions = np.arange(first, first + self.site.n_steps)
        n_rows = self.features[0].shape[0] // self.site.n_steps
        return self.ops.row_index(np.repeat(positions, n_rows), self.max_length, before)

    def prepare(self, phase: Phase) -> None:
        if not self.carries:
            return
        position = 0 if self.state is None or self.context.stream_start else int(self.state[0])
        if position + self.site.n_steps > self.max_length:
            raise self.data_error(
                f"there is no position {position}. Expected at most {self.max_length} time steps, "
                "as positionalembedding_conf.max_length says.",
            )
        self.index = self.positions_from(position, self.index)
        self.state = (np.array(position + self.site.n_steps),)

    def forward(self, phase: Phase) -> None:
        x, y = self.sources[0].data, self.features[0].data
        self.ops.take_rows(self.table.data, self.index, out=y)
        self.ops.add(x, y, out=y)

    def backward(self, phase: Phase) -> None:
        source, gy = self.sources[0], self.features[0].output_grad
        self.ops.add_rows(gy, self.index, out=self.table.grad, accumulate=phase.accumulates)
        if source.grad is not None and source.grad is not gy:
            self.ops.copy(gy, out=source.grad)
