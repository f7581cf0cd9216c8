"""Messages between units, and their transport. No other package opens a socket or uses asyncio.

This package handles names, versions and arrays; it does not know Param, Layer or Dask's scheduler.
"""

__all__: list[str] = []
