"""Layers of nets that generate data: random first values, and columns drawn with given probabilities."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from singa_dask.conf import LayerConf, Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Field, Many, NonNegative, Size
from singa_dask.conf.mistakes import Finding
from singa_dask.errors import ConfigError, Problem
from singa_dask.inputs.input import InputLayer
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.feature import Feature
from singa_dask.layers.feedback import Feedback
from singa_dask.layers.traits import Traits
from singa_dask.ops.contract import Array


class RNNDummyConf(Conf):
    """``rnn_dummy_conf``: output of a layer for the previous batch, for sampling (SINGA's RNNDummyProto)."""

    block_key = "rnn_dummy_conf"

    dynamic_srclayer: str = ""
    """Layer whose output of the previous batch is the output of this layer in a test."""
    shape: Many[Size] = Field(default=[])
    """Shape of the data, batch first."""
    integer: bool = False
    """Whether to round the random initial values down."""
    low: float = 0.0
    """Lower bound of the random initial values."""
    high: float = 0.0
    """Upper bound of the random initial values, excluded."""

    def rules(self) -> Iterator[Finding]:
        """Check that the bounds are in order."""
        if self.low > self.high:
            yield ("high",), f"expected at least low, which is {self.low:g}, got {self.high:g}."


class SamplingConf(Conf):
    """``sampling_conf``: options for drawing a column."""

    temperature: NonNegative = 1.0
    """Divisor of the logits. Below 1, likely columns become more likely. At 0, the most likely column is selected."""
    probabilities: bool = False
    """Whether the source outputs probabilities, as a Softmax does, instead of logits."""


class Counting(Layer):
    """A layer that counts its batches within one step, e.g. the batches of a test."""

    _counted = (-1, -1)

    def count(self) -> int:
        """Count a batch; return the number of earlier batches in this step."""
        step, n_before = self._counted
        self._counted = (self.context.step, n_before + 1 if step == self.context.step else 0)
        return self._counted[1]


@LAYERS.register()
class RNNDummy(Feedback, Counting, InputLayer):
    """Random data, uniform in [``low``, ``high``), rounded down if ``integer`` is set.

    In a test, from the second batch on, the output is instead the output of the layer ``dynamic_srclayer`` in the
    previous batch.
    """

    options_class = RNNDummyConf
    _last: Feature | None = None
    _fed: Array | None = None

    def setup(self) -> None:
        if not self.options.shape:
            raise ConfigError(
                Problem(("rnn_dummy_conf", "shape"), f"{self.conf.type} needs this key. The batch size comes first.")
            )
        # if a row has one value, SINGA's job files set only the batch size as its shape
        shape = self.options.shape if len(self.options.shape) > 1 else [*self.options.shape, 1]
        self.add_output(shape, requires_grad=False, dtype=self.context.param_dtype)

    @classmethod
    def feedback_sources(cls, conf: LayerConf) -> list[str]:
        name = conf.block(RNNDummyConf).dynamic_srclayer
        return [name] if name else []

    def bind_feedback(self, source: Feature) -> None:
        if np.prod(source.shape) != np.prod(self.features[0].shape):
            name, shape = self.options.dynamic_srclayer, self.features[0].shape
            message = f"the data of {name!r} has shape {source.shape}, expected {shape} from shape."
            raise ConfigError(Problem(("rnn_dummy_conf", "dynamic_srclayer"), message))
        self._last = source

    def feed(self, values: Array) -> None:
        """Set the data of the next batch."""
        self._fed = values

    def forward(self, phase: Phase) -> None:
        data, n_before = self.features[0].data, self.count()
        if self._fed is not None:
            self.ops.copy(np.broadcast_to(self._fed, data.shape), out=data)
            self._fed = None
        elif self._last is not None and n_before and phase & Phase.TEST:
            self.ops.copy(self._last.data.reshape(data.shape), out=data)
        else:
            key = self.random_key(self.site.first_step, n_before)
            self.ops.uniform(
                key, out=data, low=self.options.low, high=self.options.high, first_row=self.first_row(len(data))
            )
            if self.options.integer:
                self.ops.copy(np.floor(self.ops.to_host(data)), out=data)


@LAYERS.register()
class Sampling(Counting):
    """Draw a column for each row, (N, 1), with probabilities ``softmax(x / temperature)``.

    x is the source, or with ``probabilities`` the logarithm of the source. At temperature 0 the result is the column
    with the highest value, as in `ArgSort`.
    """

    options_class = SamplingConf
    traits = Traits(role="output")

    def setup(self) -> None:
        output = self.add_output((self.sources[0].shape[0], 1), requires_grad=False, dtype=self.context.param_dtype)
        self.draws = self.buffer("draws", output.shape)

    def forward(self, phase: Phase) -> None:
        rows, out, n_before = self.rows(), self.features[0].data, self.count()
        if self.options.temperature == 0:
            self.ops.top(rows, 1, out=out)
            return
        scores = np.array(self.ops.to_host(rows), np.float64)
        if self.options.probabilities:
            scores = np.log(np.maximum(scores, np.finfo(np.float32).tiny))
        scores -= scores.max(axis=1, keepdims=True)
        below = np.cumsum(np.exp(scores / self.options.temperature), axis=1)
        self.ops.uniform(
            self.random_key(self.site.first_step, n_before), out=self.draws.data, first_row=self.first_row(len(rows))
        )
        drawn = self.ops.to_host(self.draws.data) * below[:, -1:]
        self.ops.copy((below <= drawn).sum(axis=1, keepdims=True), out=out)
