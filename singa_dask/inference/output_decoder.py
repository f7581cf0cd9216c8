"""OutputDecoder: convert the outputs of a layer to predictions, and choose classes by a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.arrays import Array
from singa_dask.conf import JobConf, Phase
from singa_dask.data.codecs.class_types import classes_of, likeliest
from singa_dask.errors import ConfigError
from singa_dask.inference.predicted_layers import forecasts_itself, has_classes
from singa_dask.layers import Layer


@dataclass(frozen=True)
class OutputDecoder:
    """Converts outputs of a layer to predictions: classes, class probabilities, or values.

    Attributes
    ----------
    layer : str
        Name of the layer.
    shape : tuple of int
        Shape of the output for one record and time step.
    n_steps : int
        Number of time steps.
    has_classes : bool
        Whether the layer outputs class probabilities.
    names : tuple of str
        Names of the classes, or of the columns that the layer predicts; empty if there are no names.
    class_type : str
        Type of the labels before they became class names; see `label_type`.
    forecasts : bool
        Whether predictions are inputs of later records of a time series; see `forecasts_itself`.
    """

    layer: str
    shape: tuple[int, ...]
    n_steps: int = 1
    has_classes: bool = False
    names: tuple[str, ...] = ()
    class_type: str = ""
    forecasts: bool = False

    @classmethod
    def of(cls, job: JobConf, layer: Layer) -> OutputDecoder:
        """Return the decoder of a layer of the job's test net, without names."""
        name, shape = layer.conf_name, tuple(layer.features[0].shape[1:])
        forecasts = forecasts_itself(job, Phase.TEST, [name])
        return cls(name, shape, layer.site.n_steps, has_classes(job, name), forecasts=forecasts)

    @property
    def n_values(self) -> int:
        """Number of values for one record and time step."""
        return math.prod(self.shape)

    @cached_property
    def classes(self) -> Array:
        """The classes in order, with the values and the type that the label has in the training data."""
        return classes_of(np.arange(self.n_values), self.names, self.n_values, self.class_type)

    def check_threshold(self, threshold: float) -> None:
        """Raise a ConfigError if classes of this layer cannot be chosen by a threshold.

        A threshold is from 0 to 1, and the layer has two classes. The layer must not forecast a series, because
        forecasts use the likeliest classes as later inputs.
        """
        check_threshold(threshold, self.layer, self.n_values if self.has_classes else 0)
        if self.forecasts:
            raise ConfigError("threshold: the net forecasts a series from its likeliest classes. Leave it out.")

    def probabilities(self, values: Array) -> Array:
        """Convert outputs to class probabilities, (n, classes) or (n, steps, classes)."""
        steps = (self.n_steps,) if self.n_steps > 1 else ()
        return values.reshape(len(values), *steps, self.n_values)

    def predictions(self, values: Array, threshold: float | None = None) -> Array:
        """Convert outputs to classes in the type of the label, or to values.

        ``threshold`` is not checked here: call `check_threshold` first.
        """
        if not self.has_classes:
            return values.reshape(-1) if values.shape[1:] == (1,) else values
        found: Array = self.classes[self._numbers(self.probabilities(values), threshold)]
        return found

    def _numbers(self, scores: Array, threshold: float | None = None) -> npt.NDArray[np.int64]:
        """Return the numbers of the predicted classes, given the probabilities of all classes."""
        if threshold is not None:
            return (scores[..., 1] >= np.float32(threshold)).astype(np.int64)
        return likeliest(scores)

    # -- likeliest classes ------------------------------------------------------------------------------------

    def predictions_of_pairs(self, pairs: Array) -> Array:
        """Convert pairs of class number and probability, (n, steps * 2), to classes in the type of the label."""
        steps = (self.n_steps,) if self.n_steps > 1 else ()
        found: Array = self.classes[pairs.reshape(len(pairs), *steps, 2)[..., 0].astype(np.int64)]
        return found

    def forecast(self, values: Array, are_pairs: bool = False) -> Any:
        """Return the last prediction as an input value for later records of a time series.

        ``values`` are outputs; with ``are_pairs``, they are classes and probabilities, the likeliest class first.
        """
        last = values[-1]
        if not self.has_classes:
            return last.item()
        number = int(last.flat[0] if are_pairs else self._numbers(last.reshape(-1)))
        return self.names[number] if self.names else number


def check_threshold(threshold: float, layer: str, n_classes: int) -> None:
    """Raise a ConfigError if a threshold is not from 0 to 1, or the layer does not have two classes.

    Pass ``n_classes=0`` for a layer without classes.
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold {threshold:g}: expected a probability, from 0 to 1.")
    if n_classes != 2:
        what = f"{n_classes} classes" if n_classes else "no class probabilities"
        raise ConfigError(f"threshold {threshold:g}: layer {layer!r} has {what}, expected two classes. Leave it out.")


def refuse_with_probabilities(threshold: float | None, proba: bool) -> None:
    """Raise a ConfigError if a threshold is passed together with ``proba``."""
    if proba and threshold is not None:
        raise ConfigError("threshold: with proba=True no class is chosen. Leave one of them out.")


def chosen(pairs: npt.NDArray[Any], threshold: float) -> npt.NDArray[Any]:
    """Return the class that a threshold chooses and its probability, for each record and time step.

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
