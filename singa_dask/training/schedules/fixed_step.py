"""FixedStep: rates from given steps on."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from singa_dask.conf.model import Conf, Count, Field, Finding, Many, NonNegative, as_list
from singa_dask.training.schedules.schedule import SCHEDULES, Schedule

__all__ = ["FixedStep", "FixedStepConf"]


class FixedStepConf(Conf):
    """``fixedstep_conf``: from ``step[i]`` on, the rate is ``step_lr[i]``."""

    step: Many[Count] = Field(min_length=1)
    """Steps at which the rate changes, rising."""
    step_lr: Many[NonNegative] = Field(min_length=1)
    """Rates, as many as steps."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that lengths are equal and steps rise."""
        steps, rates = as_list(data.get("step")), as_list(data.get("step_lr"))
        if steps and rates and len(steps) != len(rates):
            yield ("step_lr",), f"expected as many rates as there are steps, {len(steps)}, got {len(rates)}."
        if all(isinstance(step, int) for step in steps):
            for place, (before, after) in enumerate(pairwise(steps), start=1):
                if after <= before:
                    yield ("step", place), f"expected steps that rise, got {after} after {before}."


@SCHEDULES.register()
class FixedStep(Schedule):
    """``step_lr[i]`` for the last i with t >= ``step[i]``; the first before them all. ``base_lr`` is not used."""

    block = FixedStepConf
    reads = ()

    def __call__(self, step: int) -> float:
        block = self.conf.block(FixedStepConf)
        return block.step_lr[max(bisect.bisect_right(block.step, step) - 1, 0)]
