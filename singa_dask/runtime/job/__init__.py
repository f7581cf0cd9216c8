"""A job on a Dask cluster: checks, placement, plug-ins, the driver, and the result."""

from __future__ import annotations

__all__: list[str] = []
