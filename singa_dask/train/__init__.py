"""How a net learns: algorithms for a batch, update rules, learning rates, first values."""

from __future__ import annotations

from singa_dask.train.algorithm import ALGORITHMS, BP, Algorithm
from singa_dask.train.cd import CD
from singa_dask.train.initialiser import INITIALISERS, Initialiser, check_initialisers, init, with_initialisers
from singa_dask.train.schedule import SCHEDULES, Schedule, displayed_rate
from singa_dask.train.updater import UPDATERS, Updater

ALGORITHMS.base = Algorithm
INITIALISERS.base = Initialiser
SCHEDULES.base = Schedule
UPDATERS.base = Updater

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
    "init",
    "with_initialisers",
]
