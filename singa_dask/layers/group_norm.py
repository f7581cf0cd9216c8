"""GroupNorm: normalises groups of channels of each image."""

from __future__ import annotations

from singa_dask.conf import Phase
from singa_dask.conf.model import Conf, Field, Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.conv import as_images, image_shape
from singa_dask.layers.traits import Traits

__all__ = ["GroupNorm", "GroupNormConf"]


class GroupNormConf(Conf):
    """``groupnorm_conf``: group normalisation."""

    num_groups: Size = 32
    """Groups of neighbouring channels; divides the number of channels."""
    epsilon: float = Field(default=1e-5, gt=0)
    """Added to the variance."""


@LAYERS.register()
class GroupNorm(Layer):
    """y = scale (x - m) / sqrt(v + epsilon) + shift, with mean m and variance v of each group of channels of an image.

    x and y (N, C, H, W). Params, each (C,): scale (at first 1), shift (0).

    Notes
    -----
    After Wu and He (2018), with their 32 groups unless the job says otherwise. One group is layer normalisation of
    images, as many as channels instance normalisation.
    """

    block = GroupNormConf
    traits = Traits(params=("scale", "shift"), time_foldable=True, capturable=True, accumulates=True)

    def setup(self) -> None:
        block = self.conf.block(GroupNormConf)
        n_rows, n_channels, *_ = image_shape(self.conf, self.sources[0])
        if n_channels % block.num_groups:
            message = f"expected a number that divides the {n_channels} channels, got {block.num_groups}."
            raise ConfigError(Problem(("groupnorm_conf", "num_groups"), message))
        self.epsilon = block.epsilon
        self.add_output(self.sources[0].shape, overwritable=True)
        self.scale, self.shift = (self.add_param((n_channels,), value=value) for value in (1, 0))
        self.mean, self.variance = (self.buffer(name, (n_rows, block.num_groups)) for name in ("mean", "variance"))

    def forward(self, phase: Phase) -> None:
        x, y = as_images(self.sources[0].data), as_images(self.features[0].data)
        self.ops.group_norm(
            x, self.scale.data, self.shift.data, self.mean.data, self.variance.data, y, self.epsilon
        )  # fmt: skip

    def backward(self, phase: Phase) -> None:
        source, gy = self.sources[0], as_images(self.features[0].output_grad)
        gx = None if source.grad is None else as_images(source.grad)
        self.ops.group_norm_grad(
            as_images(source.data), gy, self.scale.data, self.mean.data, self.variance.data, gx,
            self.scale.grad, self.shift.grad, self.epsilon, accumulate=bool(phase & Phase.AGGREGATE_GRADIENT),
        )  # fmt: skip
