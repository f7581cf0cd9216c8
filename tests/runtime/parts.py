"""Parts of jobs that go wrong as they are told; for tests of what follows."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from singa_dask.conf import Phase
from singa_dask.layers import LAYERS, Layer
from singa_dask.training import ALGORITHMS, BP, UPDATERS, Updater

__all__ = ["BadUpdater", "Impatient", "Remembers", "Trap"]


@LAYERS.register()
class Trap(Layer):
    """Passes values on. ``user_conf``: at ``step``, ``group`` and ``worker`` it does what ``how`` says."""

    def setup(self) -> None:
        self.add_output(self.sources[0].shape)

    def _springs(self, *how: str) -> bool:
        wanted = {"step": 0, "group": 0, "worker": 0, **self.conf.user_conf}
        here = {name: getattr(self.context, name) for name in ("step", "group", "worker")}
        return wanted["how"] in how and here.items() <= wanted.items()

    def compute_feature(self, phase: Phase) -> None:
        if self._springs("tell-threads"):
            told = {pool["user_api"]: pool["num_threads"] for pool in threadpool_info()}
            logging.getLogger("singa_dask.tests").info("%s", json.dumps({**told, "env": os.environ["OMP_NUM_THREADS"]}))
        if self._springs("raise"):
            raise ZeroDivisionError("a mistake of the user")
        if self._springs("need-memory"):
            np.empty(1 << 50)
        value = np.nan if self._springs("nan") else 0.0
        np.add(self.sources[0].data, value, out=self.features[0].data)

    def compute_gradient(self, phase: Phase) -> None:
        if self._springs("raise-in-gradient"):
            raise ZeroDivisionError("a mistake of the user")
        np.copyto(self.sources[0].grad, self.features[0].grad)


@LAYERS.register()
class Remembers(Layer):
    """Adds to each batch a tenth of the batch before it, and a little more in every second batch."""

    def setup(self) -> None:
        self.add_output(self.sources[0].shape)

    def forward(self, phase: Phase) -> None:
        x = self.sources[0].data
        before, count = self.state or (np.zeros(x.shape, np.float16), np.array(0, np.int64))
        np.add(x, before / np.float16(10) + np.float16(0.25) * (count % 2), out=self.features[0].data)
        self.state = (x.astype(np.float16), count + 1)

    def backward(self, phase: Phase) -> None:
        np.copyto(self.sources[0].grad, self.features[0].grad)


@UPDATERS.register()
class BadUpdater(Updater):
    """Fails at its fourth update."""

    def rule(self, w: Any, g: Any, lr: float, t: int, state: Any, tmp: Any, tmp2: Any) -> None:
        if t == 4:
            raise ZeroDivisionError("a mistake of the user")


@ALGORITHMS.register()
class Impatient(BP):
    """Back-propagation that waits for each update before it goes on."""

    def backward(self, step: int) -> None:
        for layer in reversed(self.net.layers):
            if layer.learns:
                layer.backward(Phase.TRAIN | Phase.BACKWARD)
                for param in layer.params:
                    self.update(step, param)
                    self.collect(param)
