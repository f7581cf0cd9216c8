"""Layers for tests of unrolled nets: small enough to see through."""

from __future__ import annotations

from typing import Any

import numpy as np

from singa_dask.conf import Phase
from singa_dask.layers import Layer, RecordIds, Speed, Traits

__all__ = ["Columns", "Decay", "Gain", "Sum"]


class Columns(Layer):
    """Step t takes columns [t D, (t + 1) D) of records (N, T D); D is ``user_conf.width``."""

    traits = Traits(role="input", steps="columns", consumes=(("data", "labels"),))
    speed = Speed(time_foldable=True)

    def setup(self) -> None:
        self.width = self.conf.user_conf["width"]
        self.add_output((self.sources[0].shape[0] * self.site.n_steps, self.width), requires_grad=False)

    def compute_feature(self, phase: Phase) -> None:
        steps = range(self.site.first_step, self.site.first_step + self.site.n_steps)
        x = self.sources[0].data
        self.features[0].data[...] = np.concatenate([x[:, t * self.width : (t + 1) * self.width] for t in steps])
        labels = self.sources[0].records.labels
        self.features[0].records = RecordIds(np.concatenate([labels for _ in steps]))


class Sum(Layer):
    """The sum of one or two sources."""

    traits = Traits(n_sources=(1, 2))

    def setup(self) -> None:
        self.add_output(self.sources[0].shape)

    def compute_feature(self, phase: Phase) -> None:
        self.features[0].data[...] = sum(source.data for source in self.sources)

    def compute_gradient(self, phase: Phase) -> None:
        for source in self.sources:
            if source.grad is not None:
                source.grad[...] = self.features[0].grad


class Gain(Layer):
    """g x, with g (D,), written as a user would: it overwrites its gradient and has not heard of time steps."""

    traits = Traits(params=("gain",))

    def setup(self) -> None:
        self.gain = self.add_param((self.sources[0].size,))
        self.add_output(self.sources[0].shape)

    def compute_feature(self, phase: Phase) -> None:
        self.features[0].data[...] = self.gain.data * self.sources[0].data

    def compute_gradient(self, phase: Phase) -> None:
        grad = self.features[0].grad
        self.gain.grad[...] = (grad * self.sources[0].data).sum(axis=0)
        if self.sources[0].grad is not None:
            self.sources[0].grad[...] = grad * self.gain.data


class Decay(Layer):
    """h[t] = tanh(x[t] + a h[t - 1]), with a (D,); sources x and, if there is one, the state before the first step."""

    traits = Traits(n_sources=(1, 2), params=("a",), steps="recurrent")
    speed = Speed(time_foldable=True)

    def setup(self) -> None:
        self.add_output(self.sources[0].shape)
        self.a = self.add_param((self.sources[0].size,))

    def states(self) -> tuple[Any, Any]:
        """Return h[t] and h[t - 1], (T, N, D)."""
        h = self.features[0].data.reshape(self.site.n_steps, -1, self.sources[0].size)
        first = self.sources[1].data if len(self.sources) > 1 else np.zeros_like(h[0])
        return h, np.concatenate([first[None], h[:-1]])

    def compute_feature(self, phase: Phase) -> None:
        x = self.sources[0].data.reshape(self.site.n_steps, -1, self.sources[0].size)
        h, _ = self.states()
        for t in range(self.site.n_steps):
            h[t] = np.tanh(x[t] + self.a.data * self.states()[1][t])

    def compute_gradient(self, phase: Phase) -> None:
        h, before = self.states()
        g = self.features[0].grad.reshape(h.shape).copy()
        if not phase & Phase.AGGREGATE_GRADIENT:
            self.a.grad[...] = 0
        for t in reversed(range(self.site.n_steps)):
            g[t] *= 1 - h[t] ** 2
            self.a.grad += (g[t] * before[t]).sum(axis=0)
            if t:
                g[t - 1] += self.a.data * g[t]
        if self.sources[0].grad is not None:
            self.sources[0].grad[...] = g.reshape(-1, g.shape[2])
        if len(self.sources) > 1 and self.sources[1].grad is not None:
            self.sources[1].grad[...] = self.a.data * g[0]
