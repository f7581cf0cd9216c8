"""A layer that harms the servers or the disk of its job at a step, so that no test depends on when it looks."""

from __future__ import annotations

import subprocess

import numpy as np

from singa_dask.conf import Phase
from singa_dask.layers import LAYERS, Layer

__all__ = ["Strike"]


@LAYERS.register()
class Strike(Layer):
    """Passes values on. ``user_conf``: at ``step`` the workers of group 0 in ``commands`` run their shell command."""

    def setup(self) -> None:
        self.add_output(self.sources[0].shape)

    def compute_feature(self, phase: Phase) -> None:
        conf, context = self.conf.user_conf, self.context
        command = conf["commands"].get(str(context.worker))
        if command and phase & Phase.TRAIN and context.step == conf["step"]:
            subprocess.run(["sh", "-c", command], check=False)
        np.copyto(self.features[0].data, self.sources[0].data)

    def compute_gradient(self, phase: Phase) -> None:
        np.copyto(self.sources[0].grad, self.features[0].grad)
