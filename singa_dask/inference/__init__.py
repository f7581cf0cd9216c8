"""Predictions, layer outputs and metrics of trained nets, for records in memory, Dask collections and stores.

Users import the functions from `singa_dask`.
"""

__all__: list[str] = []
