"""A layer of a user's own: x sigmoid(beta x), with a learnt beta for each column (Ramachandran et al., 2017)."""

from __future__ import annotations

import numpy as np

from singa_dask import Layer


class Swish(Layer):
    """From x of shape (N, D) to the same shape."""

    param_names = ("beta",)

    def setup(self, conf, sources, ops):
        """Say shapes; nothing is computed yet."""
        self.param(0, (sources[0].size,), value=1.0)
        self.feature(sources[0].shape)

    def compute_feature(self, phase):
        """Forward: write ``features[0].data``."""
        x, beta = self.sources[0].data, self.params[0].data
        self.gate = 1 / (1 + np.exp(-beta * x))
        self.features[0].data[...] = x * self.gate

    def compute_gradient(self, phase):
        """Backward: from ``features[0].grad`` to the gradients of the param and of the source."""
        x, beta, gy = self.sources[0].data, self.params[0].data, self.features[0].grad
        slope = gy * x * self.gate * (1 - self.gate)
        self.params[0].grad[...] = (slope * x).sum(axis=0)
        self.sources[0].grad[...] = gy * self.gate + slope * beta
