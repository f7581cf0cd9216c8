"""Whether a run has learnt: its result beside that of the best constant answer, and what curves and layers say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from singa_dask.observe.progress import layer_metrics

__all__ = ["facts_of_workers", "sentences"]

PHASES = ("test", "validation", "train")
MIN_STEPS, MIN_POINTS = 50, 8
"""Shorter runs, and curves of fewer points, are not judged."""
GAP, RISE, DEAD = 0.15, 1.2, 0.9
"""Of accuracies of training and test; ratio of a loss at the end to the one before; share of units that are 0."""
GROWN, STILL = 100.0, 1e-3
"""Ratios of sizes of a param, and of its change to its size, from which it is named."""

RATE = "base_lr: singa-dask find-rate JOB.yaml proposes one"
STANDARDISE = "store_conf: {standardise: true}, if the values of records are large, or differ much in size"
LABELS = "whether each label belongs to its record"
SAME = "more records, Dropout, weight_decay or early_stopping, and whether the records of both are made in the same way"
BROKEN = {
    "constant": ("BatchNorm {!r} normalises batches of one value, so its output is constant", ["a larger batchsize"]),
    "equal": ("all units of layer {!r} have equal weights, as in the beginning", ["random initial values"]),
    "dead": ("the units of layer {!r} are 0 for all records", [f"a lower {RATE}", "LeakyReLU", STANDARDISE]),
}
"""Layers that cannot learn, in words, and what to try."""
Found = tuple[str, list[str]]


def facts_of_workers(reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine what the workers of a group have noted, see `LearningFacts`.

    Returns
    -------
    dict
        ``baselines``: by phase and metric the ``value`` that the best constant answer has, the ``answer`` in words, and
        on how many ``records``. ``broken``: names of layers by what is wrong, see `BROKEN`. ``params``: sizes before
        and after the training, and of the change.
    """
    found = list(reports)
    baselines = {phase: _baselines([each.get(phase, {}) for each in found]) for phase in PHASES}
    shares = {kind: _least([each.get(kind, {}) for each in found]) for kind in BROKEN}
    return {
        "baselines": {phase: each for phase, each in baselines.items() if each},
        "broken": {kind: names for kind, each in shares.items() if (names := [n for n in each if each[n] >= DEAD])},
        "params": {name: sizes for each in found for name, sizes in each.get("params", {}).items()},
    }


def _least(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        name: min(each[name] for each in parts if name in each) for name in dict.fromkeys(n for p in parts for n in p)
    }


def _baselines(workers: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the metrics of the best constant answers to all that the workers have counted."""
    losses = dict.fromkeys(name for each in workers for name in each)
    made = {}
    for layer in losses:
        parts = [each[layer] for each in workers if layer in each]
        n = sum(each["n"] for each in parts)
        means = np.sum([each["sums"] for each in parts], axis=0) / n
        squares = sum(each["squares"] for each in parts) / n
        for name, (value, answer) in _constant_answer(parts[0], means, squares).items():
            if name != "loss" or parts[0]["has_loss"]:
                whole = f"{layer}.{name}" if len(losses) > 1 else name
                made[whole] = {"value": float(value), "answer": answer, "records": n}
    return made


def _constant_answer(loss: Mapping[str, Any], means: np.ndarray, squares: float) -> dict[str, tuple[float, str]]:
    """Return value and answer of each metric of a loss layer, from the means of its labels or targets."""
    if loss["kind"] == "values":
        return {"loss": (max(squares - float(np.sum(means**2)), 0.0), "always saying the mean")}
    if loss["kind"] == "labels":
        answer = "always giving the same labels"
        entropy, right = np.mean(_entropies(means) + _entropies(1 - means)), np.mean(np.maximum(means, 1 - means))
        is_binary = math.isclose(squares, float(means.sum()))
        return {"loss": (entropy, answer), "binary_accuracy": (right, answer)} if is_binary else {}
    top, names = np.argsort(-means, kind="stable")[: loss["topk"]].tolist(), loss["names"]
    said = " or ".join(repr(names[i] if i < len(names) else str(i)) for i in top)
    entropy, right = (loss["scale"] * x for x in (_entropies(means).sum(), means[top].sum()))
    return {"loss": (entropy, "guessing by the shares of the classes"), "accuracy": (right, f"always saying {said}")}


def _entropies(p: np.ndarray) -> np.ndarray:
    made: np.ndarray = -p * np.log(np.where(p > 0, p, 1.0))
    return made


def sentences(
    facts: Mapping[str, Any], summary: Mapping[str, Any], events: Iterable[Mapping[str, Any]], is_fresh: bool = True
) -> list[str]:
    """Return what to say about a run: its result beside that of the best constant answer, warnings, and what to try.

    Parameters
    ----------
    facts : mapping
        Of `facts_of_workers`.
    summary : mapping
        ``steps``, and the last metrics of each phase.
    events : iterable of mapping
        The metrics of the run.
    is_fresh : bool
        Whether the net began with initial values, not with those of another run.
    """
    curves = _curves(events)
    train = {**summary["train"], **{name: _last(y) for name, y in curves.items()}}
    results = {**summary, "train": train}
    phase = next((each for each in PHASES if results[each] and facts["baselines"].get(each)), "train")
    base = {
        name: each for name, each in facts["baselines"].get(phase, {}).items() if results[phase].get(name) is not None
    }
    said: list[str] = []
    found: list[Found] = []
    for prefix in dict.fromkeys(name.rpartition(".")[0] for name in base):
        judged = _Judged(phase, f"{prefix}." if prefix else "", results[phase], base, train)
        said.append(judged.beside)
        found += judged.warnings()
    if summary["steps"] < MIN_STEPS:
        return said
    causes = [(text.format(names[0]), tries) for kind, (text, tries) in BROKEN.items()
              if (names := facts["broken"].get(kind))][:1]  # fmt: skip
    causes = causes or [*_params(facts["params"], is_fresh, bool(found))]
    found += _course(curves, is_fresh and bool(found or causes or not said))
    tries = dict.fromkeys(each for _, tries in causes or found for each in tries)
    return [*said, *(f"warning: {text}" for text, _ in (*found, *causes)), *([f"try {'; '.join(tries)}"] * bool(tries))]


class _Judged:
    """The result of a loss layer beside that of the best constant answer to the same records."""

    def __init__(
        self, phase: str, prefix: str, result: Mapping[str, Any], base: Mapping[str, Any], train: Mapping[str, float]
    ) -> None:
        self._main = next(n for n in ("accuracy", "binary_accuracy", "loss") if prefix + n in base)
        self._name = prefix + self._main
        self._base = base[self._name]
        self._value, self._phase, self._in_training = result[self._name], phase, train.get(self._name)
        # part of the loss of the best constant answer: 0 is perfect, and 1 as good; of a mean square it is 1 - R2
        whole = base.get(f"{prefix}loss", {}).get("value")
        self._part = result[f"{prefix}loss"] / whole if whole else 0.0 if self._main == "loss" else math.nan
        self._scale = 2 * (whole or 1.0) if self._main == "loss" else -1.0

    @property
    def beside(self) -> str:
        places = ".4g" if self._main == "loss" else ".4f"
        value = self._base["value"]
        return f"{self._phase} {self._name} {self._value:{places}}; {self._base['answer']} has {value:{places}}"

    def warnings(self) -> Iterator[Found]:
        value, base, n = self._value, self._base["value"], self._base["records"]
        chance = 2 * math.sqrt(max(base * (1 - base), 0) / n)
        learns_nothing = not self._part <= 0.99
        if self._main != "loss":
            learns_nothing = (value <= base + chance and self._part > 0.99) or (value <= base and not self._part < 0.9)
        is_test = self._phase != "train" and self._in_training is not None
        gap = is_test and (value - self._in_training) / self._scale > GAP + 1 / math.sqrt(n)
        if learns_nothing:
            tries = [LABELS] if gap else [f"another {RATE}", STANDARDISE, LABELS]
            yield f"no better than {self._base['answer']}", tries
        if gap:
            text = f"the {self._name} is {self._in_training:.4g} in training, and {value:.4g} in the {self._phase}"
            yield text, [SAME]


def _curves(events: Iterable[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return the metrics of training over the reports, of the first worker group."""
    found: dict[str, list[float]] = {}
    for event in events:
        if event.get("phase") == "train" and event.get("group", 0) == 0:
            for name, value in layer_metrics(event).items():
                if name.endswith(("loss", "error", "accuracy")):
                    found.setdefault(name, []).append(math.nan if value is None else value)
    return {name: np.array(values, np.float64) for name, values in found.items()}


def _last(y: np.ndarray) -> float:
    return float(y[-max(len(y) // 4, 1) :].mean())


def _course(curves: Mapping[str, np.ndarray], has_to_fall: bool) -> Iterator[Found]:
    """Yield what is wrong with the losses over the time of training."""
    for name, y in curves.items():
        if not name.endswith(("loss", "error")) or len(y) < MIN_POINTS:
            continue
        *before, end = np.array_split(y, 4)
        first, last, best = y[: max(len(y) // 20, 1)].mean(), end.mean(), min(before, key=np.mean)
        # from differences, so that a course is no noise
        low, noise = best.mean(), math.sqrt(np.diff(y).var() / len(end))
        if not last <= 2 * abs(first):
            yield f"the training {name} has risen from {first:.4g} to {last:.4g}", [f"a lower {RATE}"]
        elif has_to_fall and last > first - 0.01 * abs(first):
            yield f"the training {name} has not fallen: {first:.4g} at first, {last:.4g} at last", [f"another {RATE}"]
        elif last - low > max(4 * noise, (RISE - 1) * abs(low), 0.05 * abs(first - low)):
            yield f"the training {name} rises at the end: from {low:.4g} to {last:.4g}", [f"a lower {RATE}"]


def _params(sizes: Mapping[str, Sequence[float]], is_fresh: bool, has_failed: bool) -> Iterator[Found]:
    """Yield which params have changed too little or, of a net that has not learnt, too much."""
    still = [name for name, (before, _, change) in sizes.items() if change < STILL * before]
    if sizes and len(still) == len(sizes) and is_fresh:
        yield "the params have hardly changed", [f"a higher {RATE}"]
    elif still and has_failed:
        tries = ["ReLU in place of Sigmoid or Tanh, BatchNorm, or the default initial values"]
        yield f"param {still[0]!r} has hardly changed, others have: its gradients vanish", tries
    for name, (before, after, _) in sizes.items() if has_failed else ():
        if after > GROWN * before > 0:
            yield f"the values of param {name!r} have grown from {before:.2g} to {after:.2g}", [f"a lower {RATE}"]
            return
