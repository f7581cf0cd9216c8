"""Parts of jobs that go wrong as they are told; for tests of what follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.conf import LayerConf, Phase
from singa_dask.layers import LAYERS, Feature, Layer
from singa_dask.train import UPDATERS, Updater

__all__ = ["BadUpdater", "Trap"]


@LAYERS.register()
class Trap(Layer):
    """Passes values on. ``user_conf``: at ``step``, ``group`` and ``worker`` it does what ``how`` says."""

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        self.feature(sources[0].shape)

    def _springs(self, *how: str) -> bool:
        wanted = {"step": 0, "group": 0, "worker": 0, **self.conf.user_conf}
        here = {name: getattr(self.context, name) for name in ("step", "group", "worker")}
        return wanted["how"] in how and here.items() <= wanted.items()

    def compute_feature(self, phase: Phase) -> None:
        if self._springs("raise"):
            raise ZeroDivisionError("a mistake of the user")
        value = np.nan if self._springs("nan") else 0.0
        np.add(self.sources[0].data, value, out=self.features[0].data)

    def compute_gradient(self, phase: Phase) -> None:
        if self._springs("raise-in-gradient"):
            raise ZeroDivisionError("a mistake of the user")
        np.copyto(self.sources[0].grad, self.features[0].grad)


@UPDATERS.register()
class BadUpdater(Updater):
    """Fails at its fourth update."""

    def rule(self, w: Any, g: Any, lr: float, t: int, state: Any, tmp: Any, tmp2: Any) -> None:
        if t == 4:
            raise ZeroDivisionError("a mistake of the user")
