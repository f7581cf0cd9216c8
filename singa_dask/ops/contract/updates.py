"""Updates: the update rules of the servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias

from singa_dask.ops.contract.device import Array


class ArrayList(tuple[Array, ...]):
    """Arrays (n_i,) of several params, of one dtype: their values, their gradients, or one name of their state.

    Make it once, and use it in each step.

    Attributes
    ----------
    on_device : object
        What a GPU keeps to find the arrays: it is made in the first call.
    """

    on_device: Any = None


# Of one param, or of several that are updated at once.
Arrays: TypeAlias = Array | ArrayList


class Preparation(NamedTuple):
    """What is done to a gradient before a rule sees it: ``clip(scale g, low, high) + decay w``.

    Attributes
    ----------
    low, high : float
        Bounds; the gradient is clipped if ``high > low``.
    scale : float
        Applied before the bounds, which hold for the mean over all sharers.
    decay : float
        Weight decay, not below 0.
    value_factor : float
        Multiplies the values before the rule changes them: decoupled weight decay.
    """

    low: float = 0.0
    high: float = 0.0
    scale: float = 1.0
    decay: float = 0.0
    value_factor: float = 1.0


class Updates(Protocol):
    """Update rules. All change ``w``, (n,) values, and the state of the rule, arrays like ``w``, in place.

    ``g``, (n,), is the gradient, only read and prepared as ``prep`` says; ``lr`` is the learning rate. A rule works
    value by value: the result does not depend on how a param is cut into slices.

    ``w``, ``g`` and the state may be an `ArrayList` each instead, of the same params. A GPU updates all of them by one
    launch; the result is the same to the bit.
    """

    def update_pieces(self, prep: Preparation, w: Arrays, g: Arrays, *state: Arrays) -> Iterator[tuple[Array, ...]]:
        """Cut a slice into pieces for a rule.

        Yields
        ------
        tuple of (m,) arrays
            Piece of ``w``, prepared gradient, two arrays of scratch, pieces of the state.
        """

    def shift(self, w: Arrays, g: Arrays, divisor: int) -> None:
        """``w -= g / divisor``: running statistics, ``g`` is the sum of what ``divisor`` sharers find too large."""

    def sgd(self, w: Arrays, g: Arrays, velocity: Arrays | None, lr: float, momentum: float, prep: Preparation) -> None:
        """``v = momentum v - lr g``, ``w += v``; without velocity ``w -= lr g``."""

    def nesterov(self, w: Arrays, g: Arrays, velocity: Arrays, lr: float, momentum: float, prep: Preparation) -> None:
        """``v' = momentum v + lr g``, ``w -= (1 + momentum) v' - momentum v``."""

    def adagrad(self, w: Arrays, g: Arrays, square: Arrays, lr: float, delta: float, prep: Preparation) -> None:
        """``h += g^2``, ``w -= lr g / sqrt(h + delta)``."""

    def rmsprop(
        self, w: Arrays, g: Arrays, square: Arrays, lr: float, rho: float, delta: float, prep: Preparation
    ) -> None:
        """``h = rho h + (1 - rho) g^2``, ``w -= lr g / sqrt(h + delta)``."""

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
