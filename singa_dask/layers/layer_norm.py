"""LayerNorm: normalises each row."""

from __future__ import annotations

from singa_dask.conf import Phase
from singa_dask.conf.model import Conf, Field
from singa_dask.layers.base import LAYERS, Layer, check_axes
from singa_dask.layers.feature import Traits


class LayerNormConf(Conf):
    """``layernorm_conf``: layer normalisation."""

    epsilon: float = Field(default=1e-5, gt=0)
    """Added to the variance."""


@LAYERS.register()
class LayerNorm(Layer):
    """y = scale (x - m) / sqrt(v + epsilon) + shift, with mean m and variance v of each row of x (N, D).

    Params, each (D,): scale (at first 1), shift (0).

    Notes
    -----
    After Ba et al. (2016), whose gain and bias these are. The variance divides by D.
    """

    block = LayerNormConf
    traits = Traits(
        params=("scale", "shift"), time_foldable=True, capturable=True, accumulates=True, reads_gradients=True
    )

    def setup(self) -> None:
        shape = self.sources[0].shape
        check_axes(self, "rows. Say GroupNorm for images", 2)
        self.epsilon = self.conf.block(LayerNormConf).epsilon
        self.add_output(shape, overwritable=True)
        self.scale, self.shift = (self.add_param(shape[1:], value=value) for value in (1, 0))
        self.mean, self.variance = (self.buffer(name, shape[:1]) for name in ("mean", "variance"))

    def forward(self, phase: Phase) -> None:
        x, y = self.sources[0].data, self.features[0].data
        self.ops.layer_norm(
            x, self.scale.data, self.shift.data, self.mean.data, self.variance.data, y, self.epsilon
        )  # fmt: skip

    def backward(self, phase: Phase) -> None:
        source, gy = self.sources[0], self.features[0].output_grad
        self.ops.layer_norm_grad(
            source.data, gy, self.scale.data, self.mean.data, self.variance.data, source.grad,
            self.scale.grad, self.shift.grad, self.epsilon, accumulate=self.scale.accumulates,
        )  # fmt: skip
