"""Layers with one mistake each, which the exam has to find: what an author is likely to get wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from singa_dask.conf import ParamConf, Phase
from singa_dask.layers import Connection, Layer, Param, Speed, Traits


class Scale(Layer):
    """A right layer, y = gain x, which the others spoil."""

    traits = Traits(params=("gain",))

    def setup(self) -> None:
        x = self.sources[0]
        self.gain = self.add_param(x.shape[1:], value=1.0)
        self.y = self.add_output(x.shape)

    def forward(self, phase: Phase) -> None:
        self.y.data[...] = self.gain.data * self.sources[0].data

    def backward(self, phase: Phase) -> None:
        self.params_back()
        self.source_back()

    def params_back(self) -> None:
        self.gain.grad[...] = (self.y.output_grad * self.sources[0].data).sum(axis=0)

    def source_back(self) -> None:
        if self.sources[0].grad is not None:
            self.sources[0].grad[...] = self.gain.data * self.y.output_grad


class ForgottenSource(Scale):
    def source_back(self) -> None:
        pass


class ForgottenParam(Scale):
    def params_back(self) -> None:
        pass


class HalfWritten(Scale):
    def forward(self, phase: Phase) -> None:
        self.y.data[:2] = self.gain.data * self.sources[0].data[:2]


class Doubled(Scale):
    def source_back(self) -> None:
        if self.sources[0].grad is not None:
            self.sources[0].grad[...] = 2 * self.gain.data * self.y.output_grad


class MeanOverRows(Scale):
    def params_back(self) -> None:
        self.gain.grad[...] = (self.y.output_grad * self.sources[0].data).mean(axis=0)


class WrongSign(Scale):
    def source_back(self) -> None:
        if self.sources[0].grad is not None:
            self.sources[0].grad[...] = -self.gain.data * self.y.output_grad


class ReboundSourceGrad(Scale):
    def source_back(self) -> None:
        if self.sources[0].grad is not None:
            self.sources[0].grad = self.gain.data * self.y.output_grad


class ReboundParamGrad(Scale):
    def params_back(self) -> None:
        self.gain.grad = (self.y.output_grad * self.sources[0].data).sum(axis=0)


class ReboundOutput(Scale):
    def forward(self, phase: Phase) -> None:
        self.y.data = self.gain.data * self.sources[0].data


class Aliased(Layer):
    def setup(self) -> None:
        self.y = self.add_output(self.sources[0].shape)

    def forward(self, phase: Phase) -> None:
        self.y.data = self.sources[0].data

    def backward(self, phase: Phase) -> None:
        self.sources[0].output_grad[...] = self.y.output_grad


class AliasedGrad(Aliased):
    def forward(self, phase: Phase) -> None:
        self.y.data[...] = self.sources[0].data

    def backward(self, phase: Phase) -> None:
        self.sources[0].grad = self.y.grad


class AddsToSource(Scale):
    def source_back(self) -> None:
        if self.sources[0].grad is not None:
            self.sources[0].grad += self.gain.data * self.y.output_grad


class AddsToParam(Scale):
    def params_back(self) -> None:
        self.gain.grad += (self.y.output_grad * self.sources[0].data).sum(axis=0)


class FalseAccumulates(Scale):
    speed = Scale.speed.replace(accumulates=True)


class FalseFuses(Scale):
    speed = Speed(fuses=("relu",))


class FalseReadsGradients(Scale):
    speed = Scale.speed.replace(reads_gradients=True)

    def source_back(self) -> None:
        self.y.output_grad[...] *= self.gain.data
        if self.sources[0].grad is not None:
            self.sources[0].grad[...] = self.y.output_grad


class FalseOverwritable(Layer):
    def setup(self) -> None:
        self.y = self.add_output(self.sources[0].shape, overwritable=True)

    def forward(self, phase: Phase) -> None:
        np.tanh(self.sources[0].data, out=self.y.data)

    def backward(self, phase: Phase) -> None:
        self.sources[0].output_grad[...] = (1 - self.y.data**2) * self.y.output_grad


class Centred(Layer):
    """Subtracts the mean of the batch, in tests too."""

    def setup(self) -> None:
        self.y = self.add_output(self.sources[0].shape)

    def forward(self, phase: Phase) -> None:
        self.y.data[...] = self.sources[0].data - self.sources[0].data.mean(axis=0)

    def backward(self, phase: Phase) -> None:
        self.sources[0].output_grad[...] = self.y.output_grad - self.y.output_grad.mean(axis=0)


class FalseTimeFoldable(Centred):
    speed = Speed(time_foldable=True)

    def forward(self, phase: Phase) -> None:
        if phase & Phase.TRAIN:
            super().forward(phase)
        else:
            self.y.data[...] = self.sources[0].data


class FalseFeatureParallel(Layer):
    speed = Speed(feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        self.y = self.add_output(self.sources[0].shape)

    def forward(self, phase: Phase) -> None:
        x = self.sources[0].data
        self.y.data[...] = x - x.mean(axis=1, keepdims=True)

    def backward(self, phase: Phase) -> None:
        gy = self.y.output_grad
        self.sources[0].output_grad[...] = gy - gy.mean(axis=1, keepdims=True)


class UnnamedMetric(Scale):
    def forward(self, phase: Phase) -> None:
        super().forward(phase)
        self.add_metric("largest", float(self.y.data.max()))


class Hinge(Layer):
    """A right loss, (1 - x[label]) summed, as a mean over the rows."""

    traits = Traits(n_sources=(2, 2), role="loss", consumes=("data", "labels"), metrics=("loss",))

    def setup(self) -> None:
        self.y = self.add_output(self.sources[0].shape[:1])

    def forward(self, phase: Phase) -> None:
        x = self.sources[0].data
        one_hot = self.labels(1, x.shape[1])[:, None] == np.arange(x.shape[1])
        self.mask = self.ops.from_host(one_hot.astype(x.dtype))
        self.y.data[...] = 1 - (x * self.mask).sum(axis=1)
        self.add_metric("loss", float(self.y.data.sum()), n=len(x))

    def backward(self, phase: Phase) -> None:
        self.sources[0].output_grad[...] = self.mask * (-self.scale() * self.site.n_steps)

    def scale(self) -> float:
        return 1 / len(self.y.data)


class UnstatedLabels(Hinge):
    traits = Hinge.traits.replace(consumes=())


class UnstatedData(Hinge):
    traits = Hinge.traits.replace(consumes=("labels", "labels"))


class LossOfTheSum(Hinge):
    def scale(self) -> float:
        return 1.0


class LossWithoutMetric(Hinge):
    traits = Hinge.traits.replace(metrics=())

    def add_metric(self, *args: Any, **kwargs: Any) -> None:
        pass


class Float32(Scale):
    def setup(self) -> None:
        super().setup()
        self.features.clear()
        self.y = self.add_output(self.sources[0].shape, dtype=np.float32)


class Float32Buffer(Scale):
    def setup(self) -> None:
        super().setup()
        self.product = self.buffer("product", self.y.shape, np.float32)

    def forward(self, phase: Phase) -> None:
        np.multiply(self.gain.data, self.sources[0].data, out=self.product.data, casting="same_kind")
        self.y.data[...] = self.product.data


class WrongShape(Scale):
    def setup(self) -> None:
        super().setup()
        self.features.clear()
        self.y = self.add_output((len(self.sources[0].data), 2))


class WrongShapeOfGradient(Scale):
    def params_back(self) -> None:
        self.gain.grad[...] = self.y.output_grad * self.sources[0].data


class HiddenState(Scale):
    """Subtracts a mean that runs along, which no checkpoint has."""

    mean = 0.0

    def forward(self, phase: Phase) -> None:
        self.mean = 0.9 * self.mean + 0.1 * float(self.sources[0].data.mean())
        self.y.data[...] = self.gain.data * self.sources[0].data - self.mean


class StaleCopy(Scale):
    """Remembers the first batch."""

    x: Any = None

    def forward(self, phase: Phase) -> None:
        super().forward(phase)
        self.x = self.sources[0].data.copy() if self.x is None else self.x

    def params_back(self) -> None:
        self.gain.grad[...] = (self.y.output_grad * self.x).sum(axis=0)


class WritesIntoSource(Scale):
    def forward(self, phase: Phase) -> None:
        np.maximum(self.sources[0].data, -0.5, out=self.sources[0].data)
        super().forward(phase)


class WritesIntoSourceBackward(Scale):
    def params_back(self) -> None:
        self.sources[0].data[...] *= self.y.output_grad
        self.gain.grad[...] = self.sources[0].data.sum(axis=0)


class Random(Layer):
    def setup(self) -> None:
        self.y = self.add_output(self.sources[0].shape)

    def forward(self, phase: Phase) -> None:
        self.mask = np.random.default_rng().random(self.y.shape)
        self.y.data[...] = self.mask * self.sources[0].data

    def backward(self, phase: Phase) -> None:
        self.sources[0].output_grad[...] = self.mask * self.y.output_grad


class RandomWeights(Random):
    """Weights that are drawn in each process, and never learnt or saved."""

    def setup(self) -> None:
        super().setup()
        self.mask = np.random.default_rng().random(self.y.shape[1:])

    def forward(self, phase: Phase) -> None:
        self.y.data[...] = self.mask * self.sources[0].data


class ByPosition(Random):
    def forward(self, phase: Phase) -> None:
        self.mask = np.arange(1, len(self.y.data) + 1)[:, None]
        self.y.data[...] = self.mask * self.sources[0].data


class ParamNeverAdded(Random):
    traits = Traits(params=("gain",))


class ParamOfItsOwn(Scale):
    def setup(self) -> None:
        super().setup()
        self.shift = Param("shift", self.sources[0].shape[1:], ParamConf())


class UnnamedParam(Scale):
    traits = Traits()


class ChangesParam(Scale):
    def forward(self, phase: Phase) -> None:
        np.clip(self.gain.data, -0.1, 0.1, out=self.gain.data)
        super().forward(phase)


class ForwardOnly(Layer):
    def setup(self) -> None:
        self.y = self.add_output(self.sources[0].shape)

    def forward(self, phase: Phase) -> None:
        self.y.data[...] = 2 * self.sources[0].data


class NoGradientExpected(Scale):
    """Writes the gradient of a source that needs none."""

    def source_back(self) -> None:
        self.sources[0].grad[...] = self.gain.data * self.y.output_grad  # type: ignore[index]


class SecondSourceForgotten(Layer):
    traits = Traits(n_sources=(2, 2))

    def setup(self) -> None:
        self.y = self.add_output(self.sources[0].shape)

    def forward(self, phase: Phase) -> None:
        self.y.data[...] = self.sources[0].data * self.sources[1].data

    def backward(self, phase: Phase) -> None:
        if self.sources[0].grad is not None:
            self.sources[0].grad[...] = self.y.output_grad * self.sources[1].data
