"""Baselines for a table: scores of simple models, and how much of the variance they explain.

The score comes from a logistic regression for classes, and from a ridge regression for numbers. The share of the
explained variance comes from two ridge regressions, one linear and one with a kernel; there, classes are columns of 0
and 1. Each record is predicted from all others in closed form: residuals divided by one minus leverage (Hoerl and
Kennard 1970; Allen 1974).

A column of texts counts as a bag of words: how often each of the most frequent words of the training records occurs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from singa_dask.data.codecs.tokens import TextCodec, TextMeasure
from singa_dask.data.tables.column_values import as_floats, as_texts, missing_of
from singa_dask.survey.columns import ColumnSurvey, codes_of
from singa_dask.survey.logistic import class_probabilities, held_out_probabilities, standardised
from singa_dask.survey.results import Baseline, OutputSurvey, Rows
from singa_dask.survey.table_survey import TableSurvey
from singa_dask.training.pass_metrics import Scores

Floats = npt.NDArray[np.float64]

# limits of the linear model, and the maximum number of records for the kernel model, which takes cubic time
MAX_RECORDS, MAX_VALUES, MAX_KERNEL = 10_000, 1 << 21, 500
# maximum of records * max(features, MIN_WIDTH) * classes
MAX_PRODUCTS, MIN_WIDTH = 1 << 22, 30
# maximum number of words, or characters, that are counted in texts
MAX_WORDS = 1000
# with fewer records, no baseline is computed, because it would not be informative
MIN_RECORDS = 20
# ridge penalties as multiples of the largest eigenvalue
RIDGES = np.logspace(-8, 2, 28)


def baseline_of(
    table: TableSurvey,
    features: Sequence[ColumnSurvey],
    outputs: Sequence[OutputSurvey],
    train: Rows,
    test: Rows,
    measure: TextMeasure | None = None,
) -> Baseline | None:
    """Return the baseline of a table, from some of its training rows; None if there are too few.

    The models are judged on the test rows, or by cross-validation if there are none. If the only feature is a column of
    texts, ``measure`` describes these texts.
    """
    limit = _limit(features, outputs, measure)
    if len(train) < MIN_RECORDS:
        return None
    constants = tuple(_constant(table, each, test) for each in outputs) if len(test) else ()
    train, test = _some(train, limit), _some(test, limit)
    rows, n = np.concatenate([train, test]), len(train)
    if measure:
        # counts are not divided by their standard deviation, which would make rare words the largest values
        raw = _bags(features[0], rows, n, measure)
        raw -= raw[:n].mean(axis=0)
        values, new = raw[:n], raw[n:]
    else:
        raw = np.concatenate([_values(each, rows, n) for each in features], axis=1)
        values, new = standardised(raw[:n], raw[n:])
    columns = [table.named[each.name] for each in outputs]
    is_label, roc_auc = outputs[0].is_label, None
    wanted = [_one_hot(each, rows) if is_label else _values(each, rows, n) for each in columns]
    targets = np.concatenate(wanted, axis=1)
    if not (targets[:n] - targets[:n].mean(axis=0)).any():
        return None
    if is_label:
        predicted = [_probabilities(each[:n], raw[:n], values, new, measure is None) for each in wanted]
        judged = [each[n:] if len(test) else each for each in wanted]
        score = float(np.mean([(a.argmax(1) == b.argmax(1)).mean() for a, b in zip(predicted, judged, strict=True)]))
        roc_auc = _roc_auc(predicted[0], judged[0]) if len(outputs) == 1 and outputs[0].roc_auc else None
    else:
        score = _ridge_error(values, targets[:n], new, targets[n:])
    linear, best = _shares_explained(values, targets[:n], is_label)
    return Baseline(score, linear, best, roc_auc, constants)


def _limit(features: Sequence[ColumnSurvey], outputs: Sequence[OutputSurvey], measure: TextMeasure | None) -> int:
    """Return the maximum number of records for the linear model."""
    width = min(measure.vocab_size, MAX_WORDS) if measure else sum(_width(each) for each in features)
    n_classes = max(len(each.counts) for each in outputs)
    limit = min(MAX_VALUES // max(width, 1), MAX_PRODUCTS // max(max(width, MIN_WIDTH) * n_classes, 1))
    return min(MAX_RECORDS, max(limit, MAX_KERNEL))


def _roc_auc(predicted: Floats, judged: Floats) -> float | None:
    """Return the area under the ROC curve; None if all records are of one class."""
    scores = Scores("classes", judged.shape[1], ["auc"])
    scores.add(judged.argmax(axis=1), predicted)
    area = scores.value("auc")
    return None if np.isnan(area) else area


def _ridge_error(values: Floats, targets: Floats, new: Floats, judged: Floats) -> float:
    """Return the root mean squared error of a ridge regression.

    The error is measured on new records; if there are none, on leave-one-out predictions.
    """
    mean = targets.mean(axis=0)
    vectors, eigenvalues = _linear(values)
    ridge, residuals = _left_out(vectors, eigenvalues, targets - mean)
    if len(new):
        dual = vectors @ ((vectors.T @ (targets - mean)) / (eigenvalues + ridge)[:, None])
        residuals = new @ (values.T @ dual) + mean - judged
    return float(np.sqrt((residuals**2).mean(axis=0).sum()))


def _shares_explained(values: Floats, targets: Floats, is_label: bool) -> tuple[float, float]:
    """Return the shares of the variance that the linear model and the better model explain.

    The better model is either the linear model or the kernel model.
    """
    chosen = np.linspace(0, len(values) - 1, min(len(values), MAX_KERNEL)).astype(np.int64)
    values, targets = values[chosen], targets[chosen]
    # scale the targets so that all of them have equal weight
    targets = (targets - targets.mean(axis=0)) / (1 if is_label else np.maximum(targets.std(axis=0), 1e-300))
    linear, kernel = (_explained(*parts, targets) for parts in (_linear(values), _kernel(values)))
    return linear, max(linear, kernel)


def _some(rows: Rows, n: int) -> Rows:
    """Return at most ``n`` of the rows, evenly spaced."""
    return rows[np.linspace(0, len(rows) - 1, min(n, len(rows))).astype(np.int64)]


def _constant(table: TableSurvey, output: OutputSurvey, rows: Rows) -> float:
    """Return the accuracy, or root mean squared error, of the best constant answer."""
    column = table.named[output.name]
    if not output.is_label:
        return float(as_floats(column.values.take(rows)).std())
    return float(_one_hot(column, rows).mean(axis=0).max())


def _probabilities(one_hot: Floats, raw: Floats, values: Floats, new: Floats, standardise: bool) -> Floats:
    """Return class probabilities of new records.

    If there are no new records, return cross-validated probabilities of the known records.
    """
    codes, n_classes = one_hot.argmax(axis=1), one_hot.shape[1]
    if len(new):
        return class_probabilities(values, codes, n_classes, new)
    return held_out_probabilities(raw, codes, n_classes, standardise)


def _values(column: ColumnSurvey, rows: Rows, n_train: int) -> Floats:
    """Return the values of a column as an array (n, width); the first ``n_train`` rows are training rows.

    Categories are one-hot, and missing numbers are replaced by the mean of the training rows.
    """
    taken = column.values.take(rows)
    if column.date:
        parts = column.date.values(column.date.parse(pc.if_else(pa.array(missing_of(taken)), None, taken)))
        known = parts[:n_train][~np.isnan(parts[:n_train, 0])]
        return np.where(np.isnan(parts), known.mean(axis=0) if len(known) else 0.0, parts)
    if column.kind == "string":
        return _one_hot(column, rows)
    if column.kind == "vector":
        present = ~missing_of(taken)
        found = np.zeros((len(rows), len(taken.drop_null()[0]) if present.any() else 1))
        if present.any():
            found[present] = as_floats(taken.filter(present).flatten()).reshape(present.sum(), -1)
        return found
    numbers = as_floats(taken)
    present = np.isfinite(numbers)
    known = numbers[:n_train][present[:n_train]]
    return np.where(present, numbers, known.mean() if len(known) else 0.0)[:, None]


def _width(column: ColumnSurvey) -> int:
    """Return the number of values into which `_values` encodes a number, a date or a category."""
    if column.date:
        return len(column.date.are_flags)
    return len(column.distinct) if column.kind == "string" else 1


def _bags(column: ColumnSurvey, rows: Rows, n_train: int, measure: TextMeasure) -> Floats:
    """Return how often each frequent token occurs in each text, (n, width).

    Only the part of a text that the net reads is counted.
    """
    texts, counts = as_texts(column.values.take(rows)).fill_null(""), Counter[str]()
    codec = TextCodec(measure.length, measure.tokens, min(measure.vocab_size, MAX_WORDS), lowercase=True)
    codec.count(texts[:n_train], counts)
    numbers = codec.learned(counts).encode(texts)
    found = np.zeros((len(rows), codec.vocab_size))
    places, at = np.nonzero(numbers >= 0)
    np.add.at(found, (places, numbers[places, at]), 1)
    return found


def _one_hot(column: ColumnSurvey, rows: Rows) -> Floats:
    codes = codes_of(column.values.take(rows))
    return np.asarray(codes[:, None] == np.arange(codes.max(initial=0) + 1), np.float64)


def _linear(values: Floats) -> tuple[Floats, Floats]:
    """Return eigenvectors and eigenvalues of the matrix of inner products of records."""
    vectors, singular, _ = np.linalg.svd(values, full_matrices=False)
    return vectors, singular**2


def _kernel(values: Floats) -> tuple[Floats, Floats]:
    """Return eigenvectors and eigenvalues of a Gaussian kernel whose width fits independent values."""
    squares = (values**2).sum(axis=1)
    distances = squares[:, None] + squares - 2 * values @ values.T
    eigenvalues, vectors = np.linalg.eigh(np.exp(-distances / (2 * max(values.shape[1], 1))))
    return vectors, np.maximum(eigenvalues, 0)


def _left_out(vectors: Floats, eigenvalues: Floats, targets: Floats) -> tuple[float, Floats]:
    """Return the best ridge penalty, and the residuals of leave-one-out predictions with this penalty."""
    ridges = RIDGES * max(eigenvalues.max(initial=0), 1e-300)
    shares = eigenvalues[:, None] / (eigenvalues[:, None] + ridges)
    kept, inside = 1 - np.minimum(vectors**2 @ shares, 1 - 1e-9), vectors.T @ targets
    found = [
        (float(ridge), (targets - vectors @ (s[:, None] * inside)) / k[:, None])
        for ridge, s, k in zip(ridges, shares.T, kept.T, strict=True)
    ]
    return min(found, key=lambda each: (each[1] ** 2).sum())


def _explained(vectors: Floats, eigenvalues: Floats, targets: Floats) -> float:
    wrong = (_left_out(vectors, eigenvalues, targets)[1] ** 2).sum()
    return float(np.clip(1 - wrong / (targets**2).sum(), 0, 1 - 1e-6))
