"""Show jobs in a browser and to Prometheus, with the HTTP server of the Dask scheduler.

This package does not run jobs. The scheduler plug-in passes it functions that describe jobs.
"""

__all__: list[str] = []
