"""First values of a user's own: a matrix with orthogonal rows or columns (Saxe et al., 2014)."""

from __future__ import annotations

import numpy as np

from singa_dask import Initialiser


class Orthogonal(Initialiser):
    """``value`` times a random matrix Q with Q Q^T = 1, or Q^T Q = 1 if it has more rows than columns."""

    needs_matrix = True

    def fill(self, random, shape):
        """Return an array of this shape; ``random`` is a numpy generator that follows from seed and name of param."""
        rows, columns = shape
        drawn = random.standard_normal((max(shape), min(shape)))
        q, r = np.linalg.qr(drawn)
        q *= np.sign(np.diag(r))
        return self.conf.value * (q if rows >= columns else q.T)
