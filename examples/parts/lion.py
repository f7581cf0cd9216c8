"""An update rule of a user's own: steps of one size, with the sign of a mean of gradients (Lion, Chen et al., 2023)."""

from __future__ import annotations

import numpy as np

from singa_dask import Updater


class Lion(Updater):
    """w -= lr sign(beta1 m + (1 - beta1) g), m = beta2 m + (1 - beta2) g."""

    state_names = ("mean",)

    def rule(self, w, g, lr, t, state, tmp, tmp2):
        """Change one piece of a param in place; ``tmp`` and ``tmp2`` are memory to compute in."""
        beta1 = self.conf.user_conf.get("beta1", 0.9)
        beta2 = self.conf.user_conf.get("beta2", 0.99)
        m = state["mean"]
        np.multiply(m, beta1, out=tmp)
        np.multiply(g, 1 - beta1, out=tmp2)
        tmp += tmp2
        w -= lr * np.sign(tmp)
        m *= beta2
        np.multiply(g, 1 - beta2, out=tmp2)
        m += tmp2
