"""The exams that our own layers, updaters and stores pass, for those of others. ``singa-dask check`` runs them.

Each raises `PartError` with all that is wrong with a part and what to do, and returns what it could not examine here.

`layer_exam`, `updater_exam` and `store_exam` have the checks; `examine` makes all of them and reports the mistakes.
`case` wires a layer to made-up sources.
"""

from singa_dask.testing.layer_exam import check_layer
from singa_dask.testing.store_exam import check_store
from singa_dask.testing.updater_exam import check_updater

__all__ = ["check_layer", "check_store", "check_updater"]
