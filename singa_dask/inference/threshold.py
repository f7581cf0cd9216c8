"""Choose one of two classes by a threshold for the probability of the second class."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.errors import ConfigError
from singa_dask.net import NeuralNet


def check_threshold(threshold: float, layer: str, n_classes: int) -> None:
    """Raise a ConfigError if a threshold is not from 0 to 1, or the layer does not have two classes.

    Pass ``n_classes=0`` for a layer without classes.
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold {threshold:g}: expected a probability, from 0 to 1.")
    if n_classes != 2:
        what = f"{n_classes} classes" if n_classes else "no class probabilities"
        raise ConfigError(f"threshold {threshold:g}: layer {layer!r} has {what}, expected two classes. Leave it out.")


def refuse_forecasts(forecasts: bool) -> None:
    """Raise a ConfigError if later inputs are earlier predictions, which are always the likeliest classes."""
    if forecasts:
        raise ConfigError("threshold: the net forecasts a series from its likeliest classes. Leave it out.")


def refuse_with_probabilities(threshold: float | None, proba: bool) -> None:
    """Raise a ConfigError if a threshold is passed together with ``proba``."""
    if proba and threshold is not None:
        raise ConfigError("threshold: with proba=True no class is chosen. Leave one of them out.")


def check_layer(threshold: float, layer: str, net: NeuralNet) -> None:
    """Raise the errors of `check_threshold` for a layer with classes of a net."""
    shaped = next(each for each in net.layers if each.conf_name == layer)
    check_threshold(threshold, layer, math.prod(shaped.features[0].shape[1:]))


def chosen(pairs: npt.NDArray[Any], threshold: float) -> npt.NDArray[Any]:
    """Return a class and its probability for each record and time step.

    ``pairs`` (n, steps * 4) has, for each time step, the likelier class, its probability, the other class, and its
    probability. The result is (n, steps * 2).
    """
    of_steps = pairs.reshape(len(pairs), -1, 2, 2)
    is_second = of_steps[..., 0] == 1
    wanted = (of_steps[..., 1] >= np.float32(threshold)) & is_second
    # choose class 1 if its probability reaches the threshold, otherwise class 0
    keeps = np.where(wanted.any(axis=-1, keepdims=True), is_second, ~is_second)
    pair: npt.NDArray[Any] = of_steps[keeps].reshape(len(pairs), 2 * of_steps.shape[1])
    return pair
