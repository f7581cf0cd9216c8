"""LearningFacts: what a worker notes of its training, so that the end of a run can say whether the net has learnt.

Nothing here changes a value. Labels are counted in tests, or in the first epoch of a job without tests; activations are
looked at in four steps, params before the first step and after the last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from singa_dask.conf import Phase
from singa_dask.errors import DataError
from singa_dask.layers import Layer
from singa_dask.layers.conv import Convolution
from singa_dask.layers.loss import EuclideanLoss, SigmoidCrossEntropyLoss, SoftmaxLoss
from singa_dask.layers.neuron import Activation, ActivationConf, InnerProduct, ReLU, ReLUConf
from singa_dask.layers.norm import BatchNorm
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Array
from singa_dask.runtime.units.worker_metrics import PHASE_NAMES

__all__ = ["LearningFacts"]

MIN_STEPS, N_LOOKS, MIN_RECORDS = 50, 4, 64
"""Shorter runs are not looked at; a unit is dead that was zero for at least so many records."""
SAMPLE = 4096
"""Values of a param that are compared before and after the training."""
KINDS: dict[type[Layer], str] = {SoftmaxLoss: "classes", SigmoidCrossEntropyLoss: "labels", EuclideanLoss: "values"}
MAX_COLUMNS = 2**16


class LearningFacts:
    """Notes labels and targets, and layers that do not work.

    Parameters
    ----------
    nets : mapping of Phase to NeuralNet
    step, n_steps : int
        First step of the run, and its number of steps.
    """

    def __init__(self, nets: Mapping[Phase, NeuralNet], step: int, n_steps: int) -> None:
        self._net, left = nets[Phase.TRAIN], n_steps - step
        self._is_short = left < MIN_STEPS
        # in the second half, when the net has changed
        looks = range(N_LOOKS + 1, 2 * N_LOOKS + 1) if not self._is_short else ()
        self._looks = {step + left * i // (2 * N_LOOKS) - 1 for i in looks}
        self._counts_steps, self._until = len(nets) == 1, float("inf")
        self._answers: dict[Phase, dict[str, _Answers]] = {phase: {} for phase in nets}
        self._losses: dict[NeuralNet, list[Layer]] = {}
        self._relus = [layer for layer in self._net.layers if _cuts_off(layer) and layer.features]
        self._alive: dict[str, Any] = {}
        self._n_seen = 0
        self._before: dict[str, Array] = {}

    def begin(self) -> None:
        """Note the values of params before the first step."""
        self._before = {} if self._is_short else _samples(self._net)

    def begin_test(self, phase: Phase) -> None:
        """Forget what earlier tests have counted."""
        self._answers[phase] = {}

    def count(self, phase: Phase, net: NeuralNet) -> None:
        """Count the labels and targets of a batch that a net of a phase has computed."""
        if net not in self._losses:
            self._losses[net] = [layer for layer in net.layers if _has_answers(layer)]
        for layer in self._losses[net]:
            if layer.conf_name not in self._answers[phase]:
                self._answers[phase][layer.conf_name] = _Answers(layer)
            self._answers[phase][layer.conf_name].add(layer, phase)  # with its copies in an unrolled net

    def after_step(self, step: int) -> None:
        """Look at what a training step has left, where it is due."""
        if self._counts_steps:
            epoch = max((epoch for layer in self._net.inputs if (epoch := layer.epoch) is not None), default=0.0)
            self._until = min(self._until, epoch + 1)
            self._counts_steps = epoch < self._until
            if self._counts_steps:
                self.count(Phase.TRAIN, self._net)
        for layer in self._relus if step in self._looks else ():
            y = self._net.ops.to_host(layer.features[0].data)
            self._n_seen += len(y)
            alive = np.any(y, axis=(0, *range(2, y.ndim)))
            self._alive[layer.conf_name] = self._alive.get(layer.conf_name, False) | alive

    def facts(self) -> dict[str, Any]:
        """Return what `singa_dask.observe.learning` makes sentences of, as plain values."""
        facts: dict[str, Any] = {
            PHASE_NAMES[phase]: {name: each.facts() for name, each in answers.items()}
            for phase, answers in self._answers.items()
        }
        if self._before:
            has_seen = self._n_seen >= MIN_RECORDS * max(len(self._relus), 1)
            norms = [layer for layer in self._net.layers if isinstance(layer, BatchNorm)]
            facts["constant"] = {layer.conf_name: float(layer.has_one_value) for layer in norms}
            facts["equal"] = _equal_units(self._net)
            facts["dead"] = {name: 1 - float(np.mean(alive)) for name, alive in self._alive.items() if has_seen}
            after = _samples(self._net)
            facts["params"] = {
                name: [_size(x), _size(after[name]), _size(after[name] - x)] for name, x in self._before.items()
            }
        return facts


class _Answers:
    """The labels or targets of a loss layer, summed up."""

    def __init__(self, loss: Layer) -> None:
        self._loss, self._n, self._squares = loss, 0, 0.0
        self._sums = np.zeros(loss.features[0].size)

    def add(self, loss: Layer, phase: Phase) -> None:
        source = loss.sources[1]
        if isinstance(loss, SoftmaxLoss):
            self._sums += np.bincount(np.asarray(source.labels), minlength=len(self._sums))
        elif isinstance(source.data, np.ndarray) or phase != Phase.TRAIN:
            targets = loss.ops.to_host(source.data).reshape(source.shape[0], -1)
            self._sums += targets.sum(axis=0, dtype=np.float64)
            self._squares += float(np.einsum("ij,ij->", targets, targets, dtype=np.float64))
        else:
            return  # on a GPU a step would wait for it
        self._n += source.shape[0]

    def facts(self) -> dict[str, Any]:
        loss, names = self._loss, tuple[str, ...]()
        with contextlib.suppress(DataError):
            names = loss.context.class_names.find(loss.conf.srclayers[1])
        # weights of records, and smoothed labels, change what a loss is compared with
        has_loss = len(loss.sources) == 2 and not getattr(loss, "smoothing", 0)
        facts = {"kind": KINDS[type(loss)], "n": self._n, "sums": self._sums.tolist(), "squares": self._squares}
        facts |= {"scale": getattr(loss, "scale", 1.0), "topk": getattr(loss, "topk", 1), "has_loss": has_loss}
        return facts | {"names": list(names)}


def _has_answers(layer: Layer) -> bool:
    """Tell whether a layer is a loss whose labels or targets are given."""
    return type(layer) in KINDS and not layer.sources[1].requires_grad and layer.features[0].size <= MAX_COLUMNS


def _cuts_off(layer: Layer) -> bool:
    """Tell whether a layer makes zeros of all that is below zero."""
    if type(layer) is ReLU:
        return not layer.conf.block(ReLUConf).negative_slope
    return type(layer) is Activation and layer.conf.block(ActivationConf).type == "RELU"


def _samples(net: NeuralNet) -> dict[str, Array]:
    """Return some values of each param that has columns and is trained."""
    wanted = [each for each in net.owners if len(each.shape) > 1 and each.conf.lr_scale and each.has_data]
    values = {owner.name: net.ops.to_host(owner.values).reshape(-1) for owner in wanted}
    return {name: x[:: len(x) // SAMPLE + 1].astype(np.float64) for name, x in values.items()}


def _size(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _equal_units(net: NeuralNet) -> dict[str, float]:
    """Return for each layer of two or more units whether all of them have the same weights, 0 or 1."""
    found = {}
    for layer in net.layers:
        if isinstance(layer, InnerProduct | Convolution) and layer.site.prototype is None:
            weight = net.ops.to_host(layer.weight.data)
            units = weight.T if getattr(layer, "transpose", False) else weight
            found[layer.conf_name] = float(len(units) > 1 and (units == units[:1]).all())
    return found
