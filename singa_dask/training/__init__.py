"""Train nets: algorithms, update rules, learning rates and initial values.

Algorithms
    `algorithm`: the base class. `bp`, `cd`: back-propagation and contrastive divergence. `captured_step`: runs a
    training step as one launch on a GPU.
Registries
    `updaters`, `schedules`, `initialisers`.
Metrics
    `pass_metrics`: metrics over a whole pass of a test or validation net.
"""

from singa_dask.training.algorithm import ALGORITHMS, Algorithm
from singa_dask.training.bp import BP
from singa_dask.training.cd import CD
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
