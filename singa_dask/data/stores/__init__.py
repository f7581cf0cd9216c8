"""Stores: records at a URL as blocks of arrays; a file has one format, or several that are read alike.

A new store is a file in this directory: all of them are imported.
"""

from singa_dask.data.stores.opening import detect, open_store, write_manifest
from singa_dask.data.stores.store import STORES, Store
from singa_dask.registry import import_members

__all__ = ["STORES", "Store", "detect", "open_store", "write_manifest"]

import_members(__name__)
