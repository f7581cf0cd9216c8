"""``profile``: the steps of a job to record."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, Shorthand, Size


class ProfileConf(Conf):
    """``profile``: the steps to record."""

    first_step: Count = 20
    """Steps to skip after the start or resume of the run. A run that is too short records its last steps."""
    steps: Size = 5
    """Number of steps to record."""

    def window(self, first: int, train_steps: int) -> range:
        """Return the steps to record for a worker that starts at step ``first``."""
        start = min(first + self.first_step, max(train_steps - self.steps, first))
        return range(start, min(start + self.steps, train_steps))


def _as_profile(value: object) -> object:
    return ({} if value else None) if isinstance(value, bool) else value


# true selects the default steps, and false disables profiling
Profile: TypeAlias = Annotated[
    ProfileConf | None, Shorthand(_as_profile, lambda either: [{"type": "boolean"}, *either["anyOf"]])
]
