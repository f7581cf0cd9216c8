"""Checks for layers, updaters and stores that users write. ``singa-dask check`` runs them.

The package's own parts pass these checks, too. A check raises `PartError` with all mistakes of a part, and advice. It
returns a list of checks that were not possible on this machine.

`layer_exam`, `updater_exam` and `store_exam` have the checks. `examine` runs them and reports the mistakes. `case`
connects a layer to sources with random values.
"""

from singa_dask.testing.layer_exam import check_layer
from singa_dask.testing.store_exam import check_store
from singa_dask.testing.updater_exam import check_updater

__all__ = ["check_layer", "check_store", "check_updater"]
