"""The command line: one click tree for ``singa-dask`` and ``dask singa``, one file a verb or a family of verbs."""

from singa_dask.cli.main import main

__all__ = ["main"]
