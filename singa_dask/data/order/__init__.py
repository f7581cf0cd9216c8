"""Order: which records are in which batch, as pure functions of integers."""

from __future__ import annotations

from singa_dask.data.order.sampler import Sampler, permutation, random_skip

__all__ = ["Sampler", "permutation", "random_skip"]
