"""Show jobs in a browser and to Prometheus, through the HTTP server of the Dask scheduler.

This package does not run jobs: the scheduler plug-in passes it functions that describe them.
"""

__all__: list[str] = []
