"""Layers that are right alone with one batch, but wrong in nets: with others, at other steps or in other precision."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from singa_dask.conf import Phase
from singa_dask.layers import Layer, Speed
from singa_dask.layers.forwarding import Forwarding
from tests.testing.wrong_layers import Hinge, Random, Scale


class ChangesLabels(Hinge):
    def forward(self, phase: Phase) -> None:
        labels = self.labels(1, self.sources[0].shape[1])
        labels[labels == 2] = 1
        super().forward(phase)


class IgnoresTimeSteps(Hinge):
    speed = Hinge.speed.replace(time_foldable=True)

    def backward(self, phase: Phase) -> None:
        self.sources[0].output_grad[...] = self.mask * -self.scale()


class Square(Layer):
    """A right layer, y = x^2, which the others spoil."""

    def setup(self) -> None:
        self.y = self.add_output(self.sources[0].shape)

    def forward(self, phase: Phase) -> None:
        self.keep(self.sources[0].data)
        self.y.data[...] = self.sources[0].data ** 2

    def keep(self, x: Any) -> None:
        self.x = x

    def backward(self, phase: Phase) -> None:
        if self.sources[0].grad is not None:
            self.sources[0].grad[...] = 2 * self.x * self.y.output_grad


class SharedCache(Square):
    cache: ClassVar[dict[str, Any]] = {}

    def keep(self, x: Any) -> None:
        self.cache["x"] = x.copy()

    @property
    def x(self) -> Any:  # type: ignore[override]
        return self.cache["x"]


class GradientInFloat32(Square):
    def backward(self, phase: Phase) -> None:
        if self.sources[0].grad is not None:
            self.sources[0].grad[...] = 2 * self.x * self.y.output_grad.astype(np.float32)


class Float64(Square):
    def setup(self) -> None:
        self.y = self.add_output(self.sources[0].shape, dtype=np.float64)


class FalseForwards(Square, Forwarding):
    forwards = frozenset({"labels"})


class FalseCapturable(Random):
    speed = Speed(capturable=True)

    def forward(self, phase: Phase) -> None:
        self.mask: Any = 1 / (1 + self.context.step)
        self.y.data[...] = self.mask * self.sources[0].data


class BufferOfTraining(Square):
    def setup(self) -> None:
        super().setup()
        self.squares = self.buffer("squares", self.y.shape, when="backward")

    def forward(self, phase: Phase) -> None:
        self.squares.data[...] = self.sources[0].data ** 2
        super().forward(phase)


class KeepsParam(Scale):
    def attach(self) -> None:
        self.values = self.gain.data


class ReadsDataInSetup(Square):
    def setup(self) -> None:
        super().setup()
        self.largest = self.sources[0].data.max()
