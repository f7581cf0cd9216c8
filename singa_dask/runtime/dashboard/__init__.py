"""Show jobs in a browser and to Prometheus, with the HTTP server of the Dask scheduler.

This package does not run jobs. The scheduler plug-in passes a `JobsView`, an object that describes jobs.
"""

__all__: list[str] = []
