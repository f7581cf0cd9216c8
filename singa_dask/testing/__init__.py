"""The exams that our own layers, updaters and stores pass, for those of others. ``singa-dask check`` runs them.

Each raises `PartError` with all that is wrong with a part and what to do, and returns what it could not examine here.
"""

from singa_dask.testing.layer_exam import check_layer
from singa_dask.testing.store_exam import check_store
from singa_dask.testing.updater_exam import check_updater

__all__ = ["check_layer", "check_store", "check_updater"]
