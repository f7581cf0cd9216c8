"""Shows jobs in a browser and to Prometheus, by the HTTP server of the Dask scheduler.

Nothing here knows how a job is run: the scheduler plug-in hands over functions that describe its jobs.
"""

__all__: list[str] = []
