"""A learning rate of a user's own: it rises for some steps, then falls along a cosine."""

from __future__ import annotations

import math

from singa_dask import Schedule, register


@register
class WarmupCosine(Schedule):
    """``base_lr`` after ``warmup`` steps, zero after ``steps``."""

    def __call__(self, step):
        """Return the rate of a step; they count from 0."""
        warmup, steps = self.conf.user_conf["warmup"], self.conf.user_conf["steps"]
        if step < warmup:
            return self.base * (step + 1) / warmup
        done = min((step - warmup) / (steps - warmup), 1.0)
        return self.base * (1 + math.cos(math.pi * done)) / 2
