"""NumpyUpdates: the update rules of the servers, in numpy, each in one pass over pieces that stay in cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from singa_dask.arrays import Array
from singa_dask.ops.numpy.memory import NumpyMemory
from singa_dask.ops.types import ArrayList, Arrays, Preparation

# The loss reports a net that diverges; warnings would add nothing.
quietly = np.errstate(all="ignore")


class NumpyUpdates(NumpyMemory):
    """Update rules. All change ``w``, (n,) values, and the state of the rule, arrays like ``w``, in place.

    ``g``, (n,), is the gradient, only read and prepared as ``prep`` says; ``lr`` is the learning rate. A rule works
    value by value: the result does not depend on how a param is cut into slices.

    ``w``, ``g`` and the state may be an `ArrayList` each instead, of the same params. A GPU updates all of them by one
    launch; the result is the same to the bit.

    Attributes
    ----------
    update_values : int
        The most values of a piece.
    """

    # so small that values, gradient, state and scratch of a piece stay in cache, so large that calls are few
    update_values = 1 << 16

    def update_pieces(self, prep: Preparation, w: Arrays, g: Arrays, *state: Arrays) -> Iterator[tuple[Array, ...]]:
        """Cut a slice into pieces for a rule.

        Yields
        ------
        tuple of (m,) arrays
            Piece of ``w``, prepared gradient, two arrays of scratch, pieces of the state.
        """
        lists = (x if isinstance(x, ArrayList) else (x,) for x in (w, g, *state))
        for slices in zip(*lists, strict=True):
            yield from self._pieces_of(prep, *slices)

    def _pieces_of(self, prep: Preparation, w: Array, g: Array, *state: Array) -> Iterator[tuple[Array, ...]]:
        most = self.update_values
        work = self.scratch("update", (3, min(most, w.size)), w.dtype)
        for start in range(0, w.size, most):
            value, grad, *states = (array[start : start + most] for array in (w, g, *state))
            # the prepared gradient lies last: a rule called on this very piece uses the first two
            tmp, tmp2, own = work[:, : value.size]
            prepared = _prepared(prep, value, grad, own, tmp)
            if prep.value_factor != 1:
                value *= prep.value_factor
            yield (value, prepared, tmp, tmp2, *states)

    @quietly
    def shift(self, w: Arrays, g: Arrays, divisor: int) -> None:
        """``w -= g / divisor``: running statistics, ``g`` is the sum of what ``divisor`` sharers find too large."""
        for value, grad, tmp, _ in self.update_pieces(Preparation(), w, g):
            np.divide(grad, divisor, out=tmp)
            value -= tmp

    @quietly
    def sgd(self, w: Arrays, g: Arrays, velocity: Arrays | None, lr: float, momentum: float, prep: Preparation) -> None:
        """``v = momentum v - lr g``, ``w += v``; without velocity ``w -= lr g``."""
        state = () if velocity is None else (velocity,)
        for value, grad, tmp, _, *velocities in self.update_pieces(prep, w, g, *state):
            np.multiply(grad, lr, out=tmp)
            if not velocities:
                value -= tmp
                continue
            (v,) = velocities
            v *= momentum
            v -= tmp
            value += v

    @quietly
    def nesterov(self, w: Arrays, g: Arrays, velocity: Arrays, lr: float, momentum: float, prep: Preparation) -> None:
        """``v' = momentum v + lr g``, ``w -= (1 + momentum) v' - momentum v``."""
        for value, grad, tmp, tmp2, v in self.update_pieces(prep, w, g, velocity):
            v *= momentum
            np.copyto(tmp2, v)
            np.multiply(grad, lr, out=tmp)
            v += tmp
            np.multiply(v, 1 + momentum, out=tmp)
            tmp -= tmp2
            value -= tmp

    @quietly
    def adagrad(self, w: Arrays, g: Arrays, square: Arrays, lr: float, delta: float, prep: Preparation) -> None:
        """``h += g^2``, ``w -= lr g / sqrt(h + delta)``."""
        for value, grad, tmp, tmp2, h in self.update_pieces(prep, w, g, square):
            np.multiply(grad, grad, out=tmp)
            h += tmp
            _root_step(value, grad, h, lr, delta, tmp, tmp2)

    @quietly
    def rmsprop(
        self, w: Arrays, g: Arrays, square: Arrays, lr: float, rho: float, delta: float, prep: Preparation
    ) -> None:
        """``h = rho h + (1 - rho) g^2``, ``w -= lr g / sqrt(h + delta)``."""
        for value, grad, tmp, tmp2, h in self.update_pieces(prep, w, g, square):
            _mean_square(h, grad, rho, tmp)
            _root_step(value, grad, h, lr, delta, tmp, tmp2)

    @quietly
    def adadelta(
        self,
        w: Arrays,
        g: Arrays,
        square: Arrays,
        step_square: Arrays,
        lr: float,
        rho: float,
        delta: float,
        prep: Preparation,
    ) -> None:
        """``h = rho h + (1 - rho) g^2``, ``d = g sqrt(u + delta) / sqrt(h + delta)``, ``w -= lr d``.

        Then ``u = rho u + (1 - rho) d^2``; h is ``square`` and u ``step_square``.
        """
        for value, grad, tmp, tmp2, h, u in self.update_pieces(prep, w, g, square, step_square):
            _mean_square(h, grad, rho, tmp)
            np.add(u, delta, out=tmp)
            np.sqrt(tmp, out=tmp)
            tmp *= grad
            np.add(h, delta, out=tmp2)
            np.sqrt(tmp2, out=tmp2)
            tmp /= tmp2
            _mean_square(u, tmp, rho, tmp2)
            tmp *= lr
            value -= tmp

    @quietly
    def adam(
        self,
        w: Arrays,
        g: Arrays,
        mean: Arrays,
        square: Arrays,
        lr: float,
        beta1: float,
        beta2: float,
        delta: float,
        correction: float | None,
        prep: Preparation,
    ) -> None:
        """``m = beta1 m + (1 - beta1) g``, ``v = beta2 v + (1 - beta2) g^2``, then a step.

        With a ``correction``, a factor of v, the step is ``w -= lr m / (sqrt(correction v) + delta)``, without it
        ``w -= lr m / sqrt(v + delta)``. The correction of m is a part of ``lr``.
        """
        for value, grad, tmp, tmp2, m, v in self.update_pieces(prep, w, g, mean, square):
            _mean(m, grad, beta1, tmp)
            _mean_square(v, grad, beta2, tmp)
            if correction is None:
                _root_step(value, m, v, lr, delta, tmp, tmp2)
                continue
            np.multiply(v, correction, out=tmp)
            np.sqrt(tmp, out=tmp)
            tmp += delta
            np.multiply(m, lr, out=tmp2)
            tmp2 /= tmp
            value -= tmp2

    @quietly
    def adamax(
        self,
        w: Arrays,
        g: Arrays,
        mean: Arrays,
        largest: Arrays,
        lr: float,
        beta1: float,
        beta2: float,
        delta: float,
        keep_delta: bool,
        prep: Preparation,
    ) -> None:
        """``m = beta1 m + (1 - beta1) g``, ``u = max(beta2 u, |g|)``, ``w -= lr m / (u + delta)``.

        u is ``largest``; with ``keep_delta``, delta is added to it for good.
        """
        for value, grad, tmp, tmp2, m, u in self.update_pieces(prep, w, g, mean, largest):
            _mean(m, grad, beta1, tmp)
            u *= beta2
            np.abs(grad, out=tmp)
            np.maximum(u, tmp, out=u)
            np.add(u, delta, out=tmp)
            if keep_delta:
                np.copyto(u, tmp)
            np.multiply(m, lr, out=tmp2)
            tmp2 /= tmp
            value -= tmp2


def _prepared(prep: Preparation, w: Array, g: Array, out: Array, tmp: Array) -> Array:
    """Return the prepared gradient, in ``out`` unless it is ``g``."""
    if prep.scale != 1:
        g = np.multiply(g, prep.scale, out=out)
    if prep.high > prep.low:
        g = np.clip(g, prep.low, prep.high, out=out)
    if prep.decay > 0:
        np.multiply(w, prep.decay, out=tmp)
        g = np.add(g, tmp, out=out)
    return g


def _mean(m: Array, g: Array, keep: float, tmp: Array) -> None:
    """``m = keep m + (1 - keep) g``."""
    m *= keep
    np.multiply(g, 1 - keep, out=tmp)
    m += tmp


def _mean_square(h: Array, g: Array, keep: float, tmp: Array) -> None:
    """``h = keep h + (1 - keep) g^2``."""
    h *= keep
    np.multiply(g, g, out=tmp)
    tmp *= 1 - keep
    h += tmp


def _root_step(w: Array, g: Array, h: Array, lr: float, delta: float, tmp: Array, tmp2: Array) -> None:
    """``w -= lr g / sqrt(h + delta)``."""
    np.add(h, delta, out=tmp)
    np.sqrt(tmp, out=tmp)
    np.multiply(g, lr, out=tmp2)
    tmp2 /= tmp
    w -= tmp2
