"""Learning-rate schedules, each with its block of the job file, after SINGA's src/utils/updater.cc.

In the formulas t is the step, b ``base_lr``, f the ``change_freq`` of the schedule's own block.
A new schedule is a file in this directory: all of them are imported.
"""

from __future__ import annotations

from singa_dask.registry import import_members
from singa_dask.training.schedules.schedule import SCHEDULES, Schedule, displayed_rate

__all__ = ["SCHEDULES", "Schedule", "displayed_rate"]

import_members(__name__)
