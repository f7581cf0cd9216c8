"""Trained nets: outputs, metrics and predictions of records in memory, in Dask collections and in stores.

Users import them from `singa_dask`.
"""

__all__: list[str] = []
