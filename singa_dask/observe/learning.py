"""Judge whether a run has learned, from its results, its curves and its layers.

Results are compared with the best constant answer: one prediction for all records, e.g. the largest class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from singa_dask.observe.event_texts import layer_metrics

PREFERRED_PHASES = ("test", "validation", "train")
MIN_STEPS, MIN_POINTS = 50, 8
"""Runs with fewer steps than `MIN_STEPS`, and curves with fewer points than `MIN_POINTS`, are not judged."""
GAP, MIN_CHANGE = 0.15, 1e-3
"""A warning is given if training accuracy exceeds test accuracy by more than `GAP`, and for params whose relative
change is below `MIN_CHANGE`."""
CORE_WAIT, MIN_CORE_WAIT_MS = 0.2, 5_000
"""A warning is given if workers wait for cores in at least the share `CORE_WAIT` of a step, and at least
`MIN_CORE_WAIT_MS` in all."""

STILL_FALLS, CLEARLY = 0.05, 3.0
"""A loss still falls if its mean in the last quarter is lower than its mean in the quarter before, by at least
`STILL_FALLS` of its whole fall and `CLEARLY` standard errors."""
RATE_ENDED = 0.05
"""A learning rate schedule has ended if the last rate is at most this share of the highest rate."""

RATE = "base_lr: singa-dask find-rate JOB.yaml proposes one"
STANDARDISE = "store_conf: {standardise: true}, if the values of records are large, or differ much in size"
LABELS = "whether each label belongs to its record"
CLASS_WEIGHTS = "softmaxloss_conf: {class_weights: [...]}, larger for rare classes"
THRESHOLD = "predict --proba, with a threshold of your own for the probability"
ROC_AUC = "singa-dask test RUN --metrics auc: how well the probabilities rank records"
RARE = [CLASS_WEIGHTS, THRESHOLD, ROC_AUC]
"""Advice for a net that ranks records well, but predicts the same class for nearly all of them."""
AREAS = ("roc_auc", "roc_auc_ovr", "auc")
"""Metrics that measure how well probabilities rank records. Random ranks have 0.5."""
MAJORITY = 0.75
"""If one class has at least this share of the records, the accuracy does not show what was learned."""
ONE_CLASS, BALANCED = 0.005, 0.05
"""Limits for the balanced accuracy of a net minus the balanced accuracy of a constant answer. Up to `ONE_CLASS`, the
net has hardly learned; from `BALANCED` on, it has learned."""
WORSE = 0.01
"""A warning is given if the net is worse than a baseline by more than this difference of areas, or this relative
difference of errors."""
LESS_DECAY = ["a lower weight_decay and dropout_ratio, and more train_steps"]
MORE_DECAY = ["a higher weight_decay or dropout_ratio, and fewer train_steps"]
OVERFITS = 1.3
"""A net that is worse than a baseline overfits if its loss is at least this many times its training loss."""
OVERFIT = [
    "more records",
    "Dropout",
    "weight_decay",
    "early_stopping",
    "whether the records of both are made in the same way",
]
VANISHING = ["ReLU in place of Sigmoid or Tanh", "BatchNorm", "the default initial values"]
KNOWN = {STANDARDISE: "standardise", CLASS_WEIGHTS: "class_weights", ROC_AUC: "roc_auc"}
"""Advice -> the key or metric of a job that follows the advice. Advice that is missing here is itself the name of a
layer or key."""
BROKEN = {
    "constant": ("BatchNorm {!r} normalises batches of one value, so its output is constant", ["a larger batchsize"]),
    "equal": ("all units of layer {!r} have equal weights, as in the beginning", ["random initial values"]),
    "dead": ("the units of layer {!r} are 0 for all records", [f"a lower {RATE}", "LeakyReLU", STANDARDISE]),
}
"""Faults of layers that cannot learn, each with a message and advice."""
Fault = tuple[str, list[str]]


def sentences(
    facts: Mapping[str, Any],
    summary: Mapping[str, Any],
    events: Iterable[Mapping[str, Any]],
    is_fresh: bool = True,
    first_step: int = 0,
    job: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return sentences about a run: its result, the best constant answer, warnings, and advice.

    Parameters
    ----------
    facts : mapping
        Result of `facts_of_workers`.
    summary : mapping
        ``steps``, and the last metrics of each phase.
    events : iterable of mapping
        The metrics of the run.
    is_fresh : bool
        True if the net started with new initial values; False if it started with values of another run.
    first_step : int
        Step at which the run last started or resumed. Step times are known only from this step on.
    job : mapping, optional
        The job with all defaults, to leave out advice that the job already follows.
    """
    known = list(events)
    curves = _curves(known)
    measured_at = {each["phase"]: each["step"] for each in known if "phase" in each and not each.get("group")}
    train = {**summary["train"], **{name: _last(y) for name, y in curves.items()}}
    results = {**summary, "train": train}
    # leave out tests before the first step, which do not measure learning
    judged = [each for each in PREFERRED_PHASES if results[each] and (measured_at.get(each, 1) or not summary["steps"])]
    phase = next((each for each in judged if facts["baselines"].get(each)), "train")
    step = summary["steps"] if phase == "train" else measured_at.get(phase, summary["steps"])
    at = f" at step {step}" if step < summary["steps"] else ""
    base = {
        name: each for name, each in facts["baselines"].get(phase, {}).items() if results[phase].get(name) is not None
    }
    results_text: list[str] = []
    faults: list[Fault] = []
    for prefix in dict.fromkeys(name[: name.rfind(".") + 1] for name in base):
        baseline = (job or {}).get("baseline") or {} if phase == "test" else {}
        sentence, warnings = _compare_with_constant(phase, at, prefix, results[phase], base, train, baseline)
        results_text.append(sentence)
        faults += warnings
    if summary["steps"] < MIN_STEPS:
        return results_text
    causes = [(text.format(names[0]), tries) for kind, (text, tries) in BROKEN.items()
              if (names := facts["broken"].get(kind))][:1]  # fmt: skip
    causes = causes or [*_judge_changes(facts["changes"], is_fresh, bool(faults))]
    faults += _judge_losses(curves, is_fresh and bool(faults or causes or not results_text))
    tries = dict.fromkeys(each for _, tries in causes or faults for each in tries)
    slow = _shares_cores(summary, summary["steps"] - first_step)
    tries |= dict.fromkeys(each for _, tries in slow for each in tries)
    has = _remedies_in(job or {})
    new = [each for each in tries if KNOWN.get(each, each) not in has]
    return [
        *results_text,
        *(f"warning: {text}" for text, _ in (*faults, *causes, *slow)),
        *([f"try {'; '.join(new)}"] * bool(new)),
        *([] if faults or causes else _judge_end(known, curves, summary["steps"], job or {})),
    ]


def _remedies_in(job: Mapping[str, Any]) -> set[str]:
    """Return the advice that a job already follows, as types of layers, keys of the job, and metrics."""
    layers = (job.get("neuralnet") or {}).get("layer") or []
    blocks = [value for each in layers for value in each.values() if isinstance(value, Mapping)]
    stores = [each["store_conf"] for each in layers if each.get("store_conf")]
    scaled = [any(each.get(key) for key in ("standardise", "mean_file", "std_file", "std_value")) for each in stores]
    found = {
        "standardise": bool(stores) and all(scaled),
        "class_weights": any(each.get("class_weights") for each in blocks),
        "weight_decay": (job.get("updater") or {}).get("weight_decay"),
        "early_stopping": job.get("early_stopping"),
        "roc_auc": any(name in AREAS for name in job.get("metrics") or ()),
    }
    return {name for name, value in found.items() if value} | {each.get("type", "") for each in layers}


def _compare_with_constant(
    phase: str,
    at: str,
    prefix: str,
    result: Mapping[str, Any],
    base: Mapping[str, Any],
    train: Mapping[str, float],
    baseline: Mapping[str, float],
) -> tuple[str, list[Fault]]:
    """Compare the results of a loss layer with the best constant answer and with the job's ``baseline``.

    ``at`` names the step at which the results were measured; it is empty for the last step.

    Returns
    -------
    str, list of Fault
        The comparison in words, and warnings.
    """
    main = next(name for name in ("accuracy", "binary_accuracy", "loss") if prefix + name in base)
    name, is_loss = prefix + main, main == "loss"
    value, least, n, answer = result[name], *(base[name][key] for key in ("value", "records", "answer"))
    # Loss divided by the loss of the best constant answer: 0 is perfect, and 1 is no better than the constant answer.
    # For a mean squared error it is 1 - R2.
    whole = base.get(f"{prefix}loss", {}).get("value")
    part = result[f"{prefix}loss"] / whole if whole else 0.0 if is_loss else math.nan
    learns_nothing, one_class = not part <= 0.99, False
    area = next((each for each in AREAS if result.get(prefix + each) is not None), "")
    # the balanced accuracy of a constant answer is 1 / n_classes, whatever the shares of the classes
    balanced, n_classes = result.get(f"{prefix}balanced_accuracy"), base[name].get("classes", 0)
    above = balanced - 1 / n_classes if balanced is not None and n_classes > 1 else 0.0
    if not is_loss:
        chance = 2 * math.sqrt(max(least * (1 - least), 0) / n)
        # the loss can show that a net has learned about a rare class, even if the net never predicts this class
        enough = 0.99 if least > MAJORITY else 0.9
        learns_nothing = (value <= least + chance and part > 0.99) or (value <= least and not part < enough)
        learns_nothing &= above < BALANCED
        learns_nothing &= not _ranks_records(result.get(prefix + area), n * (1 - least), n_classes)
        one_class = balanced is not None and above < (BALANCED if least > MAJORITY else ONE_CLASS)
        one_class &= least - (1 - least) / 4 < value <= least + chance
    before = train.get(name) if phase != "train" else None
    scale = 2 * (whole or 1.0) if is_loss else -1.0
    gap = before is not None and (value - before) / scale > GAP + 1 / math.sqrt(n)
    warnings: list[Fault] = []
    if learns_nothing:
        warnings.append((f"no better than {answer}", [LABELS] if gap else [f"another {RATE}", STANDARDISE, LABELS]))
    elif one_class:
        text = f"the likeliest class is nearly always the same: its balanced accuracy is {balanced:.4f}"
        warnings.append((text, RARE))
    if base[name].get("is_square"):
        # show the root of a mean square, which has the unit of the target
        name, value, least = f"{prefix}rmse", math.sqrt(value), math.sqrt(least)
        before = None if before is None else math.sqrt(before)
    metric = name.removeprefix(prefix)
    is_same_set = baseline.get("records") == n
    known = {each: baseline[prefix + each] for each in (metric, area) if is_same_set and prefix + each in baseline}
    judged = area if area in known else metric
    if known and not learns_nothing and _is_worse(judged, result.get(prefix + judged, value), known[judged], n):
        text = f"worse than the baseline of the job: its {judged} is {known[judged]:.4g}"
        trained = train.get(f"{prefix}loss", math.inf) if phase != "train" else math.inf
        overfits = result.get(f"{prefix}loss", 0.0) > OVERFITS * trained
        warnings.append((text, [] if gap else MORE_DECAY if overfits else LESS_DECAY))
    if gap:
        warnings.append((f"the {name} is {before:.4g} in training, and {value:.4g} in the {phase}", OVERFIT))
    places = ".4g" if is_loss else ".4f"
    # if one class is large, the area shows what was learned about the other classes
    own, chance_of = (f", {area} {result[prefix + area]:.4f}", f", {area} 0.5") if area and not is_loss else ("", "")
    shown = ", ".join(f"{each} {score:{places}}" for each, score in known.items())
    shown = f"; the baseline has {shown}" if shown else ""
    return f"{phase} {name} {value:{places}}{own}{at}; {answer} has {least:{places}}{chance_of}{shown}", warnings


def _is_worse(metric: str, value: float, other: float, n: int) -> bool:
    """Return whether ``value`` of a metric over ``n`` records is worse than ``other`` beyond chance."""
    if metric == "rmse":
        return value > other * (1 + WORSE)
    return value < other - (WORSE if metric in AREAS else math.sqrt(max(other * (1 - other), 0) / n))


def _ranks_records(roc_auc: float | None, n_others: float, n_classes: int) -> bool:
    """Return whether a net ranks records better than chance.

    ``n_others`` records are not in the largest class.
    """
    if roc_auc is None or n_classes < 2 or n_others < 1:
        return False
    return roc_auc > 0.5 + BALANCED + math.sqrt((n_classes - 1) / (3 * n_others))


def _shares_cores(summary: Mapping[str, Any], n_steps: int) -> list[Fault]:
    """Return a warning if the workers of a long run had to wait for cores in its last ``n_steps`` steps."""
    wait_ms = summary.get("wait_ms", {}).get("cores", 0.0)
    if wait_ms * n_steps < MIN_CORE_WAIT_MS or wait_ms < CORE_WAIT * summary["step_ms"]["median"]:
        return []
    share = min(wait_ms / summary["step_ms"]["median"], 1.0)
    text = (
        f"workers could run and had no core for {share:.0%} of a step: more threads than cores are busy on their host"
    )
    return [(text, ["fewer threads or workers on a host, or no other programs beside them"])]


def _curves(events: Iterable[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return the training losses, errors and accuracies that the first worker group has reported, by name."""
    points: dict[str, list[float]] = {}
    for event in events:
        if event.get("phase") == "train" and event.get("group", 0) == 0:
            for name, value in layer_metrics(event).items():
                if name.endswith(("loss", "error", "accuracy")):
                    points.setdefault(name, []).append(math.nan if value is None else value)
    return {name: np.array(values, np.float64) for name, values in points.items()}


def _last(y: np.ndarray) -> float:
    return float(y[-max(len(y) // 4, 1) :].mean())


def _judge_losses(curves: Mapping[str, np.ndarray], has_to_fall: bool) -> Iterator[Fault]:
    """Yield warnings about losses that rise, or do not fall, during training."""
    for name, y in curves.items():
        if not name.endswith(("loss", "error")) or len(y) < MIN_POINTS:
            continue
        first, last = y[: max(len(y) // 20, 1)].mean(), _last(y)
        if not last <= 2 * abs(first):
            text = f"the training {name} has risen from {first:.4g} to {last:.4g}"
            yield f"{text}: the rate is too high, or gradients explode", [f"a lower {RATE}"]
        elif has_to_fall and last > first - 0.01 * abs(first):
            yield f"the training {name} has not fallen: {first:.4g} at first, {last:.4g} at last", [f"another {RATE}"]


def _judge_end(
    events: Iterable[Mapping[str, Any]], curves: Mapping[str, np.ndarray], n_steps: int, job: Mapping[str, Any]
) -> Iterator[str]:
    """Yield a sentence if a run made all its steps, and more steps would probably improve the net.

    More steps would help if the training loss still falls clearly, and the newest test or validation has the lowest
    loss of all.
    """
    name = next((each for each in curves if each.endswith("loss")), "")
    y = curves.get(name, np.zeros(0))
    if n_steps != job.get("train_steps") or len(y) < MIN_POINTS or not np.isfinite(y).all():
        return
    n = len(y) // 4
    before, last = y[-2 * n : -n], y[-n:]
    fall, noise = before.mean() - last.mean(), math.sqrt((before.var() + last.var()) / n)
    # the fall itself is a part of the noise, because the values of a falling loss differ
    falls = fall > STILL_FALLS * (y[0] - last.mean()) and fall > CLEARLY * max(noise - fall / math.sqrt(n), 0.0)
    tested: dict[str, list[float]] = {}
    rates = []
    for each in events:
        if each.get("group"):
            continue
        value = each.get(name)
        if each.get("phase") in ("test", "validation") and value is not None:
            tested.setdefault(each["phase"], []).append(value)
        if each.get("phase") == "train" and each.get("lr") is not None:
            rates.append(each["lr"])
    if not falls or not all(values[-1] <= min(values) for values in tested.values()):
        return
    longer = f"--set train_steps={2 * n_steps}"
    how = f"train on with --resume {longer}"
    if rates and rates[-1] <= RATE_ENDED * max(rates):
        how = f"train anew with {longer}, because the learning rate of this run has fallen to its end"
    yield f"still improving: the training {name} fell from {before.mean():.4g} to {last.mean():.4g} at last; {how}"


def _judge_changes(changes: Mapping[str, float], is_fresh: bool, has_failed: bool) -> Iterator[Fault]:
    """Yield warnings about params that have changed too little."""
    unchanged = [name for name, change in changes.items() if change < MIN_CHANGE]
    if unchanged and len(unchanged) == len(changes) and is_fresh:
        yield "the params have hardly changed", [f"a higher {RATE}"]
    elif unchanged and has_failed:
        yield f"param {unchanged[0]!r} has hardly changed, but other params have: its gradients vanish", VANISHING
