"""How a net learns: algorithms for a batch, update rules, learning rates, initial values."""

from singa_dask.registry import import_members
from singa_dask.training.algorithm import ALGORITHMS, BP, CD, Algorithm
from singa_dask.training.initialisers import (
    INITIALISERS,
    Initialiser,
    check_initialisers,
    initial_values,
    with_initialisers,
)
from singa_dask.training.schedules import SCHEDULES, Schedule, displayed_rate
from singa_dask.training.updaters import UPDATERS, Updater

ALGORITHMS.base = Algorithm

__all__ = [
    "ALGORITHMS",
    "BP",
    "CD",
    "INITIALISERS",
    "SCHEDULES",
    "UPDATERS",
    "Algorithm",
    "Initialiser",
    "Schedule",
    "Updater",
    "check_initialisers",
    "displayed_rate",
    "initial_values",
    "with_initialisers",
]

import_members(__name__)
