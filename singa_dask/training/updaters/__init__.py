"""Update rules of the servers, each with its block of the job file: value and gradient of a slice in, new value out.

After SINGA's src/utils/updater.cc. The mathematics of each is a kernel of `ops`, or an `Updater.rule`; both work value
by value, so that cutting a param into slices never changes a bit. A new updater is a file in this directory: all of
them are imported.
"""

from __future__ import annotations

from singa_dask.registry import import_members
from singa_dask.training.updaters.updater import UPDATERS, Updater

__all__ = ["UPDATERS", "Updater"]

import_members(__name__)
