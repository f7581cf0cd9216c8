"""Initial values of params whose job gives none: those of Keras, for a layer to choose from."""

from __future__ import annotations

import math

from singa_dask.conf import InitConf

__all__ = ["ONES", "ORTHOGONAL", "ZEROS", "glorot"]

ZEROS, ONES = (InitConf(type="Constant", value=value) for value in (0.0, 1.0))
ORTHOGONAL = InitConf(type="Orthogonal")


def glorot(fan_in: int, fan_out: int) -> InitConf:
    """Return the uniform distribution of Glorot and Bengio (2010): within sqrt(6 / (fan_in + fan_out)) of zero."""
    # as many digits as float32 has, and as a person likes to read
    bound = float(f"{math.sqrt(6 / (fan_in + fan_out)):.6g}")
    return InitConf(type="Uniform", low=-bound, high=bound)
