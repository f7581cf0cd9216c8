"""PassMetrics: compute the ``metrics`` of a job over a whole pass of tests.

The metrics are computed from the sources and outputs of loss layers, and are defined as in scikit-learn. The state is a
set of arrays: counts of (true, predicted) classes, moments of values in float64, and, for metrics that depend on the
order of outputs, all outputs. The metrics do not depend on how a pass is divided into parts.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from singa_dask.conf.metrics import CONFUSION, OF_LAYERS, RANKED, TOP, VALUES, check_metrics
from singa_dask.data.codecs.class_types import likeliest
from singa_dask.errors import ConfigError, Problem
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Array

logger = logging.getLogger(__name__)

MAX_BYTES = 256 << 20
"""Maximum bytes of outputs to keep for metrics that depend on the order of the outputs. With more bytes, these metrics
are undefined."""
MAX_CLASSES = 2000
"""Maximum number of classes of a confusion matrix."""
OF_TWO = {"precision": "precision_macro", "recall": "recall_macro", "f1": "f1_macro", "roc_auc": "roc_auc_ovr"}
"""Each metric for two classes, and the metric to use instead with more classes."""
State = Mapping[str, Array]


class PassMetrics:
    """Metrics of a pass of a test or validation net.

    Parameters
    ----------
    net : NeuralNet
        Only its shapes are used.
    names : sequence of str
        See `conf.metrics`.

    Raises
    ------
    ConfigError
        A metric is unknown, or the net has no loss layer from which it can be computed.
    """

    def __init__(self, net: NeuralNet, names: Sequence[str]) -> None:
        layers = {layer.conf_name: layer for layer in net.all_layers}
        losses = {
            name: layer for name, layer in layers.items() if layer.traits.role == "loss" and layer.traits.predicts
        }
        facts = {name: (loss.traits.predicts, loss.features[0].size) for name, loss in losses.items()}
        missing = "it needs a SoftmaxLoss, SigmoidCrossEntropyLoss or EuclideanLoss."
        problems = [Problem(*mistake) for mistake in check_metrics(names)]
        fitting: dict[str, list[str]] = {name: [] for name in facts}
        known = [metric for layer in layers.values() for metric in layer.traits.metrics]
        for i, metric in enumerate(dict.fromkeys(names)):
            if metric in OF_LAYERS:
                if metric not in known:
                    message = f"{metric}: no layer measures it. Known: {', '.join(sorted({*known})) or 'none'}."
                    problems.append(Problem(("metrics", i), message))
                continue
            unfit = {name: _why_unfit(metric, name, *fact) for name, fact in facts.items()}
            for name in (fit := [name for name, reason in unfit.items() if not reason]):
                fitting[name].append(metric)
            if not fit:
                problems.append(Problem(("metrics", i), f"{metric}: {next(iter(unfit.values()), missing)}"))
        if problems:
            raise ConfigError(problems)
        self._scores = {name: Scores(*facts[name], fit) for name, fit in fitting.items() if fit}
        self._times = Counter([*known, *(metric for scores in self._scores.values() for metric in scores.names)])

    def __bool__(self) -> bool:
        return bool(self._scores)

    def add(self, net: NeuralNet) -> None:
        """Add the last batch of ``net``, which may have another batch size than the constructor's net."""
        for layer in net.layers if self._scores else ():
            scores = self._scores.get(layer.conf_name)
            if scores is not None:
                outputs = layer.rows(0) if scores.kind == "values" else layer.features[0].data
                wanted = layer.labels(1) if scores.kind == "classes" else layer.rows(1)
                y, p = (np.asarray(net.ops.to_host(each)) for each in (wanted, outputs))
                if scores.kind == "classes" and (y < 0).any():  # the loss ignores rows with negative labels
                    y, p = y[y >= 0], p[y >= 0]
                scores.add(y, p)

    def state(self) -> State:
        """Return the state for `merge`: arrays with names ``<layer>:<name>``."""
        states = {layer: scores.state() for layer, scores in self._scores.items()}
        return {f"{layer}:{name}": array for layer, state in states.items() for name, array in state.items()}

    def merge(self, state: State) -> None:
        """Add the state of another `PassMetrics`. Merging in the same order gives the same bits."""
        for layer, scores in self._scores.items():
            scores.merge(
                {name.removeprefix(f"{layer}:"): state[name] for name in state if name.startswith(f"{layer}:")}
            )

    def values(self) -> dict[str, float]:
        """Return the metrics by name, without confusion matrices. An undefined metric is NaN."""
        return {name: scores.value(metric) for name, metric, scores in self._each() if metric != CONFUSION}

    def matrices(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return confusion matrices by name: numbers of records by true class (rows) and predicted class."""
        return {name: scores.confusion() for name, metric, scores in self._each() if metric == CONFUSION}

    def _each(self) -> Iterator[tuple[str, str, Scores]]:
        """Yield the full name of each metric, its short name, and the `Scores` of its layer."""
        for layer, scores in self._scores.items():
            for metric in scores.names:
                yield metric if self._times[metric] == 1 else f"{layer}.{metric}", metric, scores


def _why_unfit(metric: str, layer: str, kind: str, n: int) -> str:
    """Return why a metric cannot be computed from a layer with ``n`` outputs; empty if it can."""
    top, several = TOP.fullmatch(metric), kind == "labels" and n > 1
    if (metric in VALUES) != (kind == "values"):
        return f"layer {layer!r} outputs {'values' if kind == 'values' else 'probabilities'}."
    if kind == "labels" and (
        top or metric in ("perplexity", "roc_auc_ovr") or (several and metric in (CONFUSION, "balanced_accuracy"))
    ):
        return f"it needs classes that exclude each other, and layer {layer!r} has labels."
    if metric in OF_TWO and n != (2 if kind == "classes" else 1) and not (several and metric == "roc_auc"):
        return f"it needs two classes, and layer {layer!r} has {n}. Use {OF_TWO[metric]}."
    if metric == CONFUSION and n > MAX_CLASSES:
        return f"layer {layer!r} has {n} classes. Expected at most {MAX_CLASSES}."
    if top and not 0 < int(top[1]) < n:
        return f"layer {layer!r} has {n} classes. Expected a number from 1 to {n - 1}."
    return ""


class Scores:
    """Metrics of one layer with ``n`` outputs.

    ``kind`` is ``"classes"`` for probabilities of exclusive classes, ``"labels"`` for independent probabilities of
    labels, or ``"values"`` for predicted numbers.
    """

    def __init__(self, kind: str, n: int, names: Sequence[str]) -> None:
        self.kind, self.n, self.names = kind, n, list(names)
        self._n_classes, self._tops = max(n, 2), [int(match[1]) for name in names if (match := TOP.fullmatch(name))]
        self._n_bytes = 0
        self._arrays: dict[str, Array] = {}
        self._kept: list[tuple[Array, Array]] = []

    def add(self, y: Array, p: Array) -> None:
        """Add a batch.

        Parameters
        ----------
        y : ndarray, (N,) or (N, n)
            Labels, or targets.
        p : ndarray, (N, n)
            Outputs.
        """
        if self.kind == "values":
            self.merge({"moments": _moments(np.asarray(y, np.float64), np.asarray(p, np.float64))})
            return
        if not RANKED.isdisjoint(self.names):
            scores = np.array(p[:, 1] if self.kind == "classes" and self.n == 2 else p)
            self.merge({"y": np.array(y), "p": scores, "n_bytes": np.array([y.nbytes + scores.nbytes])})
        if self.kind == "labels":
            true, predicted = y > 0.5, p > 0.5
            if self.n > 1:
                of_labels = [(true & predicted).sum(0), predicted.sum(0), true.sum(0)]
                self.merge({"counts": np.stack(of_labels).astype(np.int64)})
                return
            y, predicted = true[:, 0], predicted[:, 0]
        else:
            predicted = likeliest(p)
        keys, counts = np.unique(y.astype(np.int64) * self._n_classes + predicted, return_counts=True)
        self.merge({"keys": keys, "pairs": counts.astype(np.int64)})
        if self.kind == "classes" and (self._tops or "perplexity" in self.names):
            own = p[np.arange(len(y)), y][:, None]
            likelihood = np.log(np.maximum(own, np.finfo(p.dtype).tiny).astype(np.float64)).sum()
            rank = ((p > own) | ((p == own) & (np.arange(self.n) > y[:, None]))).sum(1)
            hits = [np.count_nonzero((rank < k) & (own[:, 0] >= 0)) for k in self._tops]
            self.merge({"own": np.array([len(y), likelihood, *hits])})

    def state(self) -> State:
        """Return the state for `merge`, as arrays by name."""
        kept = dict(zip("yp", map(np.concatenate, zip(*self._kept, strict=True)), strict=False))
        return {**self._arrays, **kept, "n_bytes": np.array([self._n_bytes])}

    def merge(self, state: State) -> None:
        """Add the state of another `Scores`."""
        known = self._arrays
        if "keys" in state:
            both = [known, state] if "keys" in known else [state]
            known["keys"], index = np.unique(np.concatenate([counts["keys"] for counts in both]), return_inverse=True)
            pairs = np.concatenate([counts["pairs"] for counts in both])
            known["pairs"] = np.zeros(len(known["keys"]), np.int64)
            np.add.at(known["pairs"], index, pairs)
        for name in {"counts", "own"} & state.keys():
            known[name] = known.get(name, 0) + state[name]
        if "moments" in state:
            known["moments"] = (
                _merge_moments(known["moments"], state["moments"]) if "moments" in known else state["moments"]
            )
        self._n_bytes += int(state["n_bytes"][0]) if "n_bytes" in state else 0
        if self._n_bytes <= MAX_BYTES:
            self._kept += [(state["y"], state["p"])] if "y" in state else []
        elif self._kept:
            self._kept.clear()
            names = ", ".join(sorted(RANKED.intersection(self.names)))
            logger.warning(
                "%s: undefined, as more than %d MiB of outputs would have to be kept.", names, MAX_BYTES >> 20
            )

    def value(self, name: str) -> float:
        """Return a metric; NaN if it is undefined."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return float(self._value(name)) if self._arrays else np.nan

    def _value(self, name: str) -> float:
        if name in VALUES:
            return _value_metric(name, self._arrays["moments"])
        if name in RANKED:
            return self._ranked(name)
        if name == "perplexity":
            return float(np.exp(-self._arrays["own"][1] / self._arrays["own"][0]))
        if top := TOP.fullmatch(name):
            return float(self._arrays["own"][2 + self._tops.index(int(top[1]))] / self._arrays["own"][0])
        hits, predicted, true = self._counted()
        if name == "balanced_accuracy":
            return float(np.mean((hits / true)[true > 0]))
        what, _, average = name.partition("_")
        if average == "micro":
            hits, predicted, true = (np.sum(by_class, keepdims=True) for by_class in (hits, predicted, true))
        below = {"precision": predicted, "recall": true, "f1": (predicted + true) / 2}[what]
        by_class = np.where(below > 0, hits / np.maximum(below, 0.5), 0.0)
        if not average:
            return float(by_class[-1])
        if average == "weighted" and true.sum():
            return float(np.average(by_class, weights=true))
        # omit classes that neither occur nor are predicted; with several labels per record, keep all labels
        return float(np.mean(by_class[(predicted > 0) | (true > 0) | ("counts" in self._arrays)]))

    def _counted(self) -> npt.NDArray[np.int64]:
        """Return the number of hits, predictions and occurrences of each class or label: (3, n)."""
        if "counts" in self._arrays:
            return self._arrays["counts"]
        (true, predicted), pairs = np.divmod(self._arrays["keys"], self._n_classes), self._arrays["pairs"]
        of = [(true, pairs * (true == predicted)), (predicted, pairs), (true, pairs)]
        return np.stack([np.bincount(classes, n, self._n_classes) for classes, n in of]).astype(np.int64)

    def confusion(self) -> npt.NDArray[np.int64]:
        """Return the number of records by true class (rows) and predicted class: (n, n)."""
        matrix = np.zeros(self._n_classes**2, np.int64)
        if self._arrays:
            matrix[self._arrays["keys"]] = self._arrays["pairs"]
        return matrix.reshape(self._n_classes, -1)

    def _ranked(self, name: str) -> float:
        """Return a metric that depends on the order of the outputs, averaged over classes or labels."""
        y, p = map(np.concatenate, zip(*self._kept, strict=True)) if self._kept else (np.empty(0), np.full(1, np.nan))
        if np.isnan(p).any():
            return np.nan
        if self.kind == "classes" and self.n > 2:
            y = y[:, None] == np.arange(self.n)
            if not y.any(0).all():
                return np.nan
        y, p = (values.reshape(len(values), -1) for values in (y, p))
        return float(np.mean([_area(name, y[:, k] > 0.5, p[:, k]) for k in range(p.shape[1])]))


def _area(name: str, is_true: Array, p: Array) -> float:
    """Return the average precision, or the area under the ROC curve, of one class or label.

    The average precision is the mean precision over steps of recall; 0 if no record is true. The area under the ROC
    curve is the share of correctly ordered pairs among all pairs of a true and a false record. A pair with equal
    outputs counts half.
    """
    _, index, counts = np.unique(-p, return_inverse=True, return_counts=True)
    right = np.bincount(index, is_true, len(counts))
    n_right, wrong = right.sum(), counts - right
    if name == "average_precision":
        return float((right / max(n_right, 1) * np.cumsum(right) / np.cumsum(counts)).sum())
    return float((wrong * (np.cumsum(right) - right / 2)).sum() / (n_right * wrong.sum()))


def _moments(t: Array, x: Array) -> Array:
    """Return sums over the records for each target: (6, n).

    The six rows are: the number of records, the first target, the mean deviation from the first target, the sum of
    squared deviations from the mean, the sum of squared errors, and the sum of absolute errors.
    """
    # deviations from the first target are exact for equal targets, and keep all digits of targets far from 0
    apart, error = t - t[0], t - x
    n, mean = np.full(t.shape[1], float(len(t))), apart.mean(0)
    return np.stack([n, t[0], mean, ((apart - mean) ** 2).sum(0), (error**2).sum(0), np.abs(error).sum(0)])


def _merge_moments(a: Array, b: Array) -> Array:
    """Return the moments of two parts together (Chan et al. 1983)."""
    n, difference = a[0] + b[0], (b[1] - a[1]) + (b[2] - a[2])
    deviations = a[3] + b[3] + difference**2 * a[0] * b[0] / n
    return np.stack([n, a[1], a[2] + difference * b[0] / n, deviations, a[4] + b[4], a[5] + b[5]])


def _value_metric(name: str, moments: Array) -> float:
    """Return the mean of a metric over the targets."""
    n, _, _, deviations, squares, absolutes = moments
    if name != "r2":
        return float(np.mean({"mse": squares / n, "mae": absolutes / n, "rmse": np.sqrt(squares / n)}[name]))
    # for a constant target, the score is 1 if all predictions are exact, else 0
    constant = np.where(squares > 0, 0.0, 1.0)
    by_target = np.where(deviations > 0, 1 - squares / deviations, constant)
    return float(np.mean(by_target)) if n[0] > 1 else np.nan
