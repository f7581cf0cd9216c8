"""The exams that our own layers, updaters and stores pass, for those of others. ``singa-dask check`` runs them.

Each raises `PartError` with all that is wrong with a part and what to do, and returns what it could not examine here.
"""

from singa_dask.testing.exams import check_layer, check_store, check_updater

__all__ = ["check_layer", "check_store", "check_updater"]
