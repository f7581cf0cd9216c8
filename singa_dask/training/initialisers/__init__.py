"""Initialisers: how the initial values of params are drawn, after SINGA's src/utils/param.cc.

Rows and columns are those of a matrix (outputs, inputs). A new initialiser is a file in this directory: all of them are
imported.
"""

from __future__ import annotations

from singa_dask.registry import import_members
from singa_dask.training.initialisers.initialiser import INITIALISERS, Initialiser

__all__ = ["INITIALISERS", "Initialiser"]

import_members(__name__)
