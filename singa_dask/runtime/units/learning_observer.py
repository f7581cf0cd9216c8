"""LearningObserver: observe a worker. `observe.learning` judges whether its net has learned.

Observing changes no value. Labels are counted during tests, or during the first epoch of a job without tests.
Activations are inspected in four steps. Params are inspected before the first step and after the last step.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.data.stores.training_knowledge import TrainingKnowledge
from singa_dask.data.tables.scaling import Moments
from singa_dask.errors import DataError
from singa_dask.layers import Layer
from singa_dask.layers.activation import Activation, ReLU
from singa_dask.layers.conv import Convolution
from singa_dask.layers.neuron import InnerProduct
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Array
from singa_dask.runtime.planning.nets import phase_name

MIN_RECORDS, DEAD = 64, 0.9
"""A unit is dead if it was zero for all of at least `MIN_RECORDS` records. A layer is dead if at least the share `DEAD`
of its units is dead."""
SAMPLE = 4096
"""Number of values of a param that are compared before and after training. A loss with more outputs than this is not
observed, unless its outputs are classes."""


class LearningObserver:
    """Observes labels, targets, changes of params, and idle layers, from the first ``step`` of a run."""

    def __init__(self, nets: Mapping[Phase, NeuralNet], job: JobConf, step: int) -> None:
        self._net, self._updater, n_steps = nets[Phase.TRAIN], job.updater, job.train_steps
        # inspect four steps in the second half of the run, when the net has changed
        self._is_new = step == 0
        self._inspected_steps = {step + (n_steps - step) * i // 8 - 1 for i in range(5, 9)}
        self._until = float("inf") if len(nets) == 1 else 0.0
        self._answers: dict[str, dict[str, tuple[Layer, Any]]] = {}
        self._alive: dict[str, tuple[int, Any]] = {}
        self._before: dict[str, Array] = {}

    def begin(self) -> None:
        """Store the values of params before the first step of a new run."""
        self._before = self._samples() if self._is_new else {}

    def begin_test(self, phase: Phase) -> None:
        """Drop the counts of earlier tests of a phase."""
        self._answers.pop(phase_name(phase), None)

    def count(self, phase: Phase, net: NeuralNet) -> None:
        """Count the labels and targets of the batch that a net has just computed."""
        known = self._answers.setdefault(phase_name(phase), {})
        for layer in net.layers:
            kind = layer.traits.predicts if layer.traits.role == "loss" else ""
            n = layer.features[0].size if layer.features else 0
            if not kind or layer.sources[1].requires_grad or (kind != "classes" and n > SAMPLE):
                continue
            # an unrolled net has several copies of a loss; keep the first one
            loss, before = known.get(layer.conf_name, (layer, None))
            if kind == "classes" and layer.sources[1].records.labels is None:
                continue  # a custom algorithm may have computed only other layers
            if kind == "classes":
                labels = np.asarray(layer.labels(1))
                counts = np.bincount(labels[labels >= 0], minlength=n)  # ignored rows have label -1
                known[layer.conf_name] = loss, counts if before is None else before + counts
            else:
                moments = Moments.of(layer.ops.to_host(layer.rows(1)))
                known[layer.conf_name] = loss, moments if before is None else before.merged(moments)

    def after_step(self, step: int) -> None:
        """Inspect the net after a training step, if due."""
        epoch = max((layer.epoch or 0.0 for layer in self._net.inputs), default=0.0)
        self._until = min(self._until, epoch + 1)
        if epoch < self._until:
            self.count(Phase.TRAIN, self._net)
        for layer in self._net.layers if step in self._inspected_steps else ():
            if isinstance(layer, ReLU | Activation) and layer.features:
                y = self._net.ops.to_host(layer.features[0].data)
                alive = np.any(y, axis=(0, *range(2, y.ndim)))
                n, before = self._alive.get(layer.conf_name, (0, False))
                self._alive[layer.conf_name] = n + len(y), before | alive

    def facts(self) -> dict[str, Any]:
        """Return the observations of this worker as plain values, for `facts_of_workers`."""
        known = self._net.context.knowledge
        answers = {
            phase: {name: _described(loss, counted, known) for name, (loss, counted) in losses.items()}
            for phase, losses in self._answers.items()
        }
        after, norm = self._samples(), np.linalg.norm
        changes = {name: float(norm(after[name] - x) / norm(x)) for name, x in self._before.items() if x.any()}
        layers = [layer for layer in self._net.layers if layer.site.prototype is None]
        seen = {name: np.mean(alive) for name, (n, alive) in self._alive.items() if n >= MIN_RECORDS}
        broken = {
            "constant": [each.conf_name for each in layers if getattr(each, "has_one_value", False)],
            "equal": [each.conf_name for each in layers if _has_equal_units(each)],
            "dead": [name for name, share in seen.items() if share <= 1 - DEAD],
        }
        return {"answers": answers, "broken": broken, "changes": changes}

    def _samples(self) -> dict[str, Array]:
        """Return a sample of the values of each trained param with at least two dimensions."""
        values = {}
        for owner in self._net.owners:
            lr_scale, _ = self._updater.scales_of(owner.name, owner.conf.lr_scale, owner.conf.wd_scale)
            if len(owner.shape) > 1 and lr_scale and owner.has_data:
                values[owner.name] = self._net.ops.to_host(owner.values).reshape(-1)
        return {name: x[:: len(x) // SAMPLE + 1].astype(np.float64) for name, x in values.items()}


def _described(loss: Layer, counted: Any, known: TrainingKnowledge) -> dict[str, Any]:
    """Return the counts of a loss layer as plain values, with the settings that affect its metrics."""
    names: list[str] = []
    with contextlib.suppress(DataError):
        names = list(known.find(loss.conf.srclayers[1]))
    # with record weights or smoothed labels, the loss of a constant answer cannot be computed from the counts
    has_loss = len(loss.sources) == 2 and not any(
        getattr(loss, name, None) for name in ("smoothing", "factors", "delta")
    )
    facts = {"scale": getattr(loss, "scale", 1.0), "topk": getattr(loss, "topk", 1), "has_loss": has_loss}
    plain = [np.asarray(each).tolist() for each in counted]
    return {"kind": loss.traits.predicts, "names": names, "counted": plain, **facts}


def _has_equal_units(layer: Layer) -> bool:
    """Return whether all units of a layer have the same weights."""
    if not isinstance(layer, InnerProduct | Convolution):
        return False
    weight = layer.ops.to_host(layer.weight.data)
    units = weight.T if getattr(layer, "transpose", False) else weight
    return len(units) > 1 and bool((units == units[:1]).all())


def facts_of_workers(reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the observations of the workers of a group.

    Returns
    -------
    dict
        Has three keys. ``baselines``, a nested dict by phase and metric, describes the best constant answer (one
        prediction for all records): its ``value`` of the metric, the ``answer`` in words, and the numbers of
        ``records`` and ``classes``; ``is_square`` marks the mean squared error of a single target. ``broken`` lists
        layers by fault: ``constant`` output, ``equal`` units, or ``dead``. ``changes`` has the norm of each param's
        change, divided by its norm at the start.
    """
    baselines: dict[str, dict[str, Any]] = {}
    broken: dict[str, list[str]] = {}
    parts: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    changes: dict[str, float] = {}
    for report in reports:
        changes.update(report["changes"])
        for kind, names in report["broken"].items():
            broken[kind] = [*dict.fromkeys([*broken.get(kind, ()), *names])]
        for phase, layers in report["answers"].items():
            for layer, facts in layers.items():
                parts.setdefault((phase, layer), []).append(facts)
    n_losses = Counter(phase for phase, _ in parts)
    for (phase, layer), reports_of_loss in parts.items():
        for name, facts in _constant_answers(reports_of_loss):
            baselines.setdefault(phase, {})[name if n_losses[phase] == 1 else f"{layer}.{name}"] = facts
    return {"baselines": baselines, "broken": broken, "changes": changes}


def _constant_answers(parts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each metric of the best constant answer to the labels or targets of a loss layer."""
    loss, counted = parts[0], [part["counted"] for part in parts]
    answers: dict[str, tuple[Any, str]]
    more: dict[str, dict[str, Any]] = {}
    if loss["kind"] == "classes":
        counts = np.sum(counted, axis=0)
        n = int(counts.sum())
        p = counts / max(n, 1)
        top, names = np.argsort(-p, kind="stable")[: loss["topk"]].tolist(), loss["names"]
        said = " or ".join(repr(names[i] if i < len(names) else str(i)) for i in top)
        entropy, right = loss["scale"] * _entropies(p).sum(), loss["scale"] * p[top].sum()
        answers = {"loss": (entropy, "guessing by the shares of the classes")}
        answers["accuracy"] = right, f"always saying {said}"
        more["accuracy"] = {"classes": int(np.count_nonzero(counts))}
    else:
        moments = reduce(Moments.merged, [Moments(each[0], *map(np.array, each[1:])) for each in counted])
        n, p, squares = moments.n, moments.mean, moments.squares / moments.n
        answers = {"loss": (squares.sum(), "always saying the mean")}
        if loss["kind"] == "values" and len(squares) == 1:
            more["loss"] = {"is_square": True}
        if loss["kind"] == "labels":
            answer, is_binary = "always giving the same labels", np.allclose(squares, p * (1 - p), atol=1e-9)
            entropy, right = np.mean(_entropies(p) + _entropies(1 - p)), np.mean(np.maximum(p, 1 - p))
            answers = {"loss": (entropy, answer), "binary_accuracy": (right, answer)} if is_binary else {}
    for name, (value, answer) in answers.items():
        if name != "loss" or loss["has_loss"]:
            yield name, {"value": float(value), "answer": answer, "records": n, **more.get(name, {})}


def _entropies(p: Array) -> Array:
    return -p * np.log(np.where(p > 0, p, 1.0))
