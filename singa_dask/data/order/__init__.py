"""Order: which records make which step, as pure functions of integers."""

from __future__ import annotations

from singa_dask.data.order.order import Order
from singa_dask.data.order.shuffle import permutation, random_skip

__all__ = ["Order", "permutation", "random_skip"]
