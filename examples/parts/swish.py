"""A layer of a user's own: x sigmoid(beta x), with a learnt beta for each column (Ramachandran et al., 2017)."""

from __future__ import annotations

import numpy as np

from singa_dask import Layer, Traits


class Swish(Layer):
    """From x of shape (N, D) to the same shape."""

    traits = Traits(params=("beta",))

    def setup(self):
        """Declare the param and the output; nothing is computed yet."""
        self.beta = self.add_param((self.sources[0].size,), value=1.0)
        self.y = self.add_output(self.sources[0].shape)

    def forward(self, phase):
        """Forward: write ``y.data``."""
        x, beta = self.sources[0].data, self.beta.data
        self.gate = 1 / (1 + np.exp(-beta * x))
        self.y.data[...] = x * self.gate

    def backward(self, phase):
        """Backward: from ``y.grad`` to the gradients of the param and of the source."""
        x, beta, gy = self.sources[0].data, self.beta.data, self.y.grad
        slope = gy * x * self.gate * (1 - self.gate)
        self.beta.grad[...] = (slope * x).sum(axis=0)
        if self.sources[0].grad is not None:  # None if the source is the records
            self.sources[0].grad[...] = gy * self.gate + slope * beta
