"""A job on a Dask cluster: checks, placement, plug-ins, the driver, and the result."""

__all__: list[str] = []
