"""NumpyUpdates: the update rules of the servers, in numpy, each in one pass over pieces that stay in cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from singa_dask.arrays import Array
from singa_dask.ops import update_rules as rules
from singa_dask.ops.numpy.memory import NumpyMemory
from singa_dask.ops.types import ArrayList, Arrays, Preparation
from singa_dask.ops.update_rules import UpdateRule

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

    def shift(self, w: Arrays, g: Arrays, divisor: int) -> None:
        """``w -= g / divisor``: running statistics, ``g`` is the sum of what ``divisor`` sharers find too large."""
        self._update(rules.SHIFT, None, (divisor,), g, w)

    def sgd(self, w: Arrays, g: Arrays, velocity: Arrays | None, lr: float, momentum: float, prep: Preparation) -> None:
        """``v = momentum v - lr g``, ``w += v``; without velocity ``w -= lr g``."""
        if velocity is None:
            self._update(rules.SGD, prep, (lr,), g, w)
        else:
            self._update(rules.MOMENTUM, prep, (lr, momentum), g, w, velocity)

    def nesterov(self, w: Arrays, g: Arrays, velocity: Arrays, lr: float, momentum: float, prep: Preparation) -> None:
        """``v' = momentum v + lr g``, ``w -= (1 + momentum) v' - momentum v``."""
        self._update(rules.NESTEROV, prep, (lr, momentum, 1 + momentum), g, w, velocity)

    def adagrad(self, w: Arrays, g: Arrays, square: Arrays, lr: float, delta: float, prep: Preparation) -> None:
        """``h += g^2``, ``w -= lr g / sqrt(h + delta)``."""
        self._update(rules.ADAGRAD, prep, (lr, delta), g, w, square)

    def rmsprop(
        self, w: Arrays, g: Arrays, square: Arrays, lr: float, rho: float, delta: float, prep: Preparation
    ) -> None:
        """``h = rho h + (1 - rho) g^2``, ``w -= lr g / sqrt(h + delta)``."""
        self._update(rules.RMSPROP, prep, (lr, rho, 1 - rho, delta), g, w, square)

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
        self._update(rules.ADADELTA, prep, (lr, rho, 1 - rho, delta), g, w, square, step_square)

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
        numbers = (lr, beta1, 1 - beta1, beta2, 1 - beta2, delta)
        if correction is None:
            self._update(rules.ADAM_OF_SINGA, prep, numbers, g, w, mean, square)
        else:
            self._update(rules.ADAM, prep, (*numbers, correction), g, w, mean, square)

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
        numbers = (lr, beta1, 1 - beta1, beta2, delta, delta if keep_delta else 0.0)
        self._update(rules.ADAMAX, prep, numbers, g, w, mean, largest)

    @quietly
    def _update(
        self, rule: UpdateRule, prep: Preparation | None, numbers: tuple[float, ...], g: Arrays, *changed: Arrays
    ) -> None:
        """Run a rule on a gradient, prepared unless ``prep`` is None, and on what it changes, the values first."""
        for value, grad, tmp, tmp2, *state in self.update_pieces(prep or Preparation(), changed[0], g, *changed[1:]):
            rule.for_cpu(*numbers, grad, tmp, tmp2, value, *state)


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
