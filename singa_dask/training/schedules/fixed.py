"""Fixed: one learning rate."""

from __future__ import annotations

from singa_dask.training.schedules.schedule import SCHEDULES, Schedule

__all__ = ["Fixed"]


@SCHEDULES.register()
class Fixed(Schedule):
    """b."""

    def __call__(self, step: int) -> float:
        return self.base
