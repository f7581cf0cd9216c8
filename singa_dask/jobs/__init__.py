"""Jobs and runs from Python, which the command line is built on: a job is a value, and so is a run of it.

Users import them from `singa_dask`.
"""

__all__: list[str] = []
