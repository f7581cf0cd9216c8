"""GlobalPooling: one value for each channel of an image."""

from __future__ import annotations

from typing import Annotated, Literal

from singa_dask.conf import Phase
from singa_dask.conf.model import Conf, choice
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.conv import as_images, image_shape
from singa_dask.layers.memory import Buffer
from singa_dask.layers.traits import Connection, Traits

__all__ = ["GlobalPooling", "GlobalPoolingConf"]

STRIDE, PAD = (1, 1), (0, 0)


class GlobalPoolingConf(Conf):
    """``globalpooling_conf``."""

    pool: Annotated[Literal["MAX", "AVG"], choice()] = "AVG"
    """Take the mean of all pixels, or the largest value."""


@LAYERS.register()
class GlobalPooling(Layer):
    """y (N, C) = the mean of each channel of x (N, C, H, W) over its pixels, or its largest value: ``pool`` AVG or MAX.

    Of equal largest values the first, by rows, gets the gradient. The mean is that of Lin et al. (2014).
    """

    block = GlobalPoolingConf
    traits = Traits(time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        self.takes_mean = self.conf.block(GlobalPoolingConf).pool == "AVG"
        n_rows, n_channels, height, width = image_shape(self.conf, self.sources[0])
        if self.site.feature_shard.count > 1 and len(self.sources[0].shape) != 4:
            raise ConfigError(Problem(("partition_dim",), "images without channels have no features to share. Say 0."))
        self.size = (height, width)
        self.add_output((n_rows, n_channels), overwritable=True)
        self.where: Buffer | None = None
        if not self.takes_mean:
            shape = (n_rows, n_channels, 1, 1)
            self.where = self.buffer("where", shape, self.ops.place_dtype(self.size), when="backward")

    def forward(self, phase: Phase) -> None:
        x, y = as_images(self.sources[0].data), self.features[0].data
        if self.takes_mean:
            self.ops.global_avg_pool(x, out=y)
        else:
            where = None if self.where is None else self.where.data_if_needed
            self.ops.max_pool(x, y[:, :, None, None], where, self.size, STRIDE, PAD)

    def backward(self, phase: Phase) -> None:
        source = self.sources[0]
        if source.grad is None:
            return
        gy, gx = self.features[0].output_grad, as_images(source.grad)
        if self.where is None:
            self.ops.global_avg_pool_grad(gy, out=gx)
        else:
            self.ops.max_pool_grad(gy[:, :, None, None], self.where.data, gx, self.size, STRIDE, PAD)
