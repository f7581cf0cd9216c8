"""Logistic regression in NumPy, as scikit-learn's ``LogisticRegression`` with ``C=1`` defines it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

# maximum number of steps of L-BFGS, and of multiplications in all of them, but at least MIN_STEPS
MAX_STEPS, MAX_WORK, MIN_STEPS = 100, 1 << 30, 10
# number of past steps that L-BFGS uses, and the mean gradient at which it stops
MEMORY, TOLERANCE = 10, 1e-4
N_FOLDS = 5
# a feature counts as constant up to this relative deviation, which may come from rounding
CONSTANT = 1e-13
# a step must reduce the loss by this share of the linear estimate; otherwise the step is halved, at most MAX_HALVED
# times
DECREASE, MAX_HALVED = 1e-4, 30


def held_out_probabilities(values: Floats, codes: Codes, n_classes: int, standardise: bool = True) -> Floats:
    """Return cross-validated class probabilities: regressions on the other folds predict a record.

    The folds are drawn at random, stratified by class. With ``standardise``, features are standardised by the mean and
    deviation of the records of the other folds.
    """
    folds = np.empty(len(codes), np.int64)
    folds[np.lexsort((np.random.default_rng(0).random(len(codes)), codes))] = np.arange(len(codes)) % N_FOLDS
    found = np.empty((len(codes), n_classes))
    for fold in range(N_FOLDS):
        is_new = folds == fold
        known, new = values[~is_new], values[is_new]
        if standardise:
            known, new = standardised(known, new)
        found[is_new] = class_probabilities(known, codes[~is_new], n_classes, new)
    return found


def standardised(values: Floats, new: Floats) -> tuple[Floats, Floats]:
    """Standardise features by the mean and deviation of the known records; constant features become 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = values.mean(axis=0), values.std(axis=0)
        varies = scale > CONSTANT * np.abs(mean)
        known, others = (
            np.nan_to_num(np.where(varies, (each - mean) / np.where(varies, scale, 1), 0)) for each in (values, new)
        )
    return known, others


def class_probabilities(values: Floats, codes: Codes, n_classes: int, new: Floats) -> Floats:
    """Return the class probabilities of new records, from a logistic regression on known records.

    Parameters
    ----------
    values : (N, D) float64
        Standardised features of the known records.
    codes : (N,) int64
        Classes of the known records. Some of the ``n_classes`` may be absent.
    n_classes : int
    new : (M, D) float64

    Returns
    -------
    (M, n_classes) float64

    Notes
    -----
    The loss is the summed cross-entropy plus half the squared weights; the bias has no penalty. The softmax of two
    classes has two opposite weights for each feature, so its penalty is doubled to equal that of a single weight.
    The loss is minimised by L-BFGS (Liu and Nocedal 1989).
    """
    known = np.column_stack([values, np.ones(len(values))])
    penalty = np.full((known.shape[1], 1), 2.0 if n_classes == 2 else 1.0)
    penalty[-1] = 0
    wanted = np.eye(n_classes)[codes]

    def loss_and_gradient(weights: Floats) -> tuple[float, Floats]:
        scores = known @ weights
        scores -= scores.max(axis=1, keepdims=True)
        own = scores[np.arange(len(codes)), codes].sum()
        np.exp(scores, out=scores)
        sums = scores.sum(axis=1, keepdims=True)
        loss = np.log(sums).sum() - own + (penalty * weights**2).sum() / 2
        return float(loss), known.T @ (scores / sums - wanted) + penalty * weights

    n_steps = max(min(MAX_STEPS, MAX_WORK // (known.size * n_classes)), MIN_STEPS)
    start = np.zeros((known.shape[1], n_classes))
    weights = _minimum(loss_and_gradient, start, TOLERANCE * len(values), n_steps)
    scores = new @ weights[:-1] + weights[-1]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def _minimum(
    loss_and_gradient: Callable[[Floats], tuple[float, Floats]], x: Floats, tolerance: float, n_steps: int
) -> Floats:
    """Minimise a convex loss by at most ``n_steps`` steps of L-BFGS from ``x``; return the minimum point."""
    pairs = deque[tuple[Floats, Floats, float]](maxlen=MEMORY)
    loss, gradient = loss_and_gradient(x)
    for _ in range(n_steps):
        if np.abs(gradient).max() <= tolerance:
            break
        direction = _newton_step(gradient, pairs)
        slope = float((direction * gradient).sum())
        for halved in range(MAX_HALVED):
            step = 0.5**halved * direction
            new_loss, new_gradient = loss_and_gradient(x + step)
            if new_loss <= loss + DECREASE * 0.5**halved * slope:
                break
        else:
            break
        change = new_gradient - gradient
        curvature = float((step * change).sum())
        if curvature > 0:
            pairs.append((step, change, curvature))
        x, loss, gradient = x + step, new_loss, new_gradient
    return x


def _newton_step(gradient: Floats, pairs: deque[tuple[Floats, Floats, float]]) -> Floats:
    """Approximate the step of Newton's method from past steps and gradient changes, the newest last."""
    if not pairs:
        return -gradient / max(float(np.sqrt((gradient**2).sum())), 1e-300)
    direction, factors = -gradient, list[float]()
    for step, change, curvature in reversed(pairs):
        factors.append(float((step * direction).sum()) / curvature)
        direction = direction - factors[-1] * change
    _, change, curvature = pairs[-1]
    direction = direction * (curvature / float((change**2).sum()))
    for (step, change, curvature), factor in zip(pairs, reversed(factors), strict=True):
        direction = direction + (factor - float((change * direction).sum()) / curvature) * step
    return direction
