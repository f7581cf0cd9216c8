"""Outputs of a batch: the values of a layer, or the highest of them, and the labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from singa_dask.data import Arrays
from singa_dask.net import NeuralNet

__all__ = ["keep_outputs"]


def keep_outputs(net: NeuralNet, name: str, labels: bool, topk: int, label_layer: str = "") -> Arrays:
    """Copy the values of a layer for a batch, of shape (records, time steps, ...) if there are several steps.

    Labels are those of ``label_layer``, or else of the first input layer that has some.
    """
    pieces = []
    for layer in net.layers:
        if layer.conf_name == name:
            feature = layer.features[0]
            values = np.asarray(layer.ops.to_host(feature.data), np.float32)
            pieces.append(values.reshape(layer.site.n_steps, -1, *feature.shape[1:]))
    steps = np.concatenate(pieces)
    values = steps[0] if len(steps) == 1 else steps.swapaxes(0, 1)
    if topk:
        values = _top(values.reshape(len(values), len(steps), -1), topk)
    arrays: Arrays = {"data": np.array(values.reshape(len(values), *(values.shape[1:] or (1,))), np.float32, order="C")}
    inputs = [layer for layer in net.layers if layer.traits.is_input and labels]
    given = [layer.features[0].labels for layer in sorted(inputs, key=lambda each: each.conf_name != label_layer)]
    found = next((each for each in given if each is not None and np.shape(each) == (len(values),)), None)
    if found is not None:
        arrays["label"] = np.array(found, np.int32)
    return arrays


def _top(scores: Any, n: int) -> Any:
    """Return (index, value) of the ``n`` highest scores of each record; of equal ones the higher index first."""
    indices = np.argsort(scores, axis=-1, kind="stable")[..., ::-1][..., :n]
    pairs = np.stack([indices.astype(np.float32), np.take_along_axis(scores, indices, -1)], axis=-1)
    return pairs.reshape(len(scores), -1)
