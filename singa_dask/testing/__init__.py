"""Checks for layers, updaters and stores of users, which our own pass, too. ``singa-dask check`` runs them.

Each raises `PartError` with all mistakes of a part and what to do, and returns what it could not check here.

`layer_exam`, `updater_exam` and `store_exam` have the checks; `examine` runs them and reports the mistakes. `case`
wires a layer to made-up sources.
"""

from singa_dask.testing.layer_exam import check_layer
from singa_dask.testing.store_exam import check_store
from singa_dask.testing.updater_exam import check_updater

__all__ = ["check_layer", "check_store", "check_updater"]
