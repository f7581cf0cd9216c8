"""A job on a Dask cluster: its checks, its start, the driver that follows it, and its result."""

from __future__ import annotations

__all__: list[str] = []
