"""Baselines for a table: ridge regression, linear and with a kernel.

Each record is predicted from all others in closed form: residuals divided by one minus leverage (Hoerl and Kennard
1970; Allen 1974). Classes are predicted as columns of 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from singa_dask.cli.init.columns import ColumnSurvey, TableSurvey
from singa_dask.cli.init.records import Baseline, OutputSurvey, Rows
from singa_dask.data.codecs.columns import as_floats, as_texts, missing_of
from singa_dask.training.pass_metrics import Scores

Floats = npt.NDArray[np.float64]

# limits of the linear model, and the maximum number of records for the kernel model, whose time is cubic
MAX_RECORDS, MAX_VALUES, MAX_KERNEL = 10_000, 1 << 21, 500
# with fewer records, a baseline is not informative
MIN_RECORDS = 20
# ridge penalties as multiples of the largest eigenvalue
RIDGES = np.logspace(-8, 2, 28)


def baseline_of(
    table: TableSurvey, features: Sequence[ColumnSurvey], outputs: Sequence[OutputSurvey], rows: Rows
) -> Baseline | None:
    """Return the baseline of a table from some of its rows; None if there are too few."""
    width = sum(len(each.distinct) if each.kind == "string" else 1 for each in features)
    n = min(len(rows), MAX_RECORDS, max(MAX_VALUES // max(width, 1), MAX_KERNEL))
    if n < MIN_RECORDS:
        return None
    rows = rows[np.linspace(0, len(rows) - 1, n).astype(np.int64)]
    values = np.concatenate([_values(each, rows) for each in features], axis=1)
    scale = values.std(axis=0)
    values = (values - values.mean(axis=0)) / np.where(scale > 0, scale, 1)
    wanted = [
        _one_hot(table.named[each.name], rows) if each.is_label else _values(table.named[each.name], rows)
        for each in outputs
    ]
    targets = np.concatenate(wanted, axis=1)
    centred = targets - targets.mean(axis=0)
    if not centred.any():
        return None
    predicted = _left_out(*_linear(values), centred) + targets.mean(axis=0)
    roc_auc = None
    if outputs[0].is_label:
        ends = np.cumsum([each.shape[1] for each in wanted])[:-1]
        pairs = zip(np.split(predicted, ends, axis=1), wanted, strict=True)
        score = float(np.mean([(a.argmax(axis=1) == b.argmax(axis=1)).mean() for a, b in pairs]))
        if len(outputs) == 1 and outputs[0].roc_auc:
            scores = Scores("classes", targets.shape[1], ["auc"])
            scores.add(targets.argmax(axis=1), predicted)
            roc_auc = scores.value("auc")
    else:
        score = float(np.sqrt(((predicted - targets) ** 2).mean(axis=0).sum()))
    chosen = np.linspace(0, n - 1, min(n, MAX_KERNEL)).astype(np.int64)
    values, targets = values[chosen], targets[chosen]
    # scale the targets so that all of them have equal weight
    targets = (targets - targets.mean(axis=0)) / (1 if outputs[0].is_label else np.maximum(targets.std(axis=0), 1e-300))
    linear, kernel = (_explained(*parts, targets) for parts in (_linear(values), _kernel(values)))
    return Baseline(score, linear, max(linear, kernel), roc_auc)


def _values(column: ColumnSurvey, rows: Rows) -> Floats:
    """Return the values of a column as an array (n, width).

    Categories are one-hot, and missing numbers are replaced by the mean.
    """
    if column.kind == "string":
        return _one_hot(column, rows)
    taken = column.values.take(rows)
    if column.kind == "vector":
        present = ~missing_of(taken)
        found = np.zeros((len(rows), len(taken.drop_null()[0]) if present.any() else 1))
        if present.any():
            found[present] = as_floats(taken.filter(present).flatten()).reshape(present.sum(), -1)
        return found
    numbers = as_floats(taken)
    present = np.isfinite(numbers)
    return np.where(present, numbers, numbers[present].mean() if present.any() else 0.0)[:, None]


def _one_hot(column: ColumnSurvey, rows: Rows) -> Floats:
    codes = as_texts(column.values.take(rows)).dictionary_encode().indices.fill_null(-1).to_numpy()
    return np.asarray(codes[:, None] == np.arange(codes.max(initial=0) + 1), np.float64)


def _linear(values: Floats) -> tuple[Floats, Floats]:
    """Return eigenvectors and eigenvalues of the inner products of records."""
    vectors, singular, _ = np.linalg.svd(values, full_matrices=False)
    return vectors, singular**2


def _kernel(values: Floats) -> tuple[Floats, Floats]:
    """Return eigenvectors and eigenvalues of a Gaussian kernel whose width fits independent values."""
    squares = (values**2).sum(axis=1)
    distances = squares[:, None] + squares - 2 * values @ values.T
    eigenvalues, vectors = np.linalg.eigh(np.exp(-distances / (2 * max(values.shape[1], 1))))
    return vectors, np.maximum(eigenvalues, 0)


def _left_out(vectors: Floats, eigenvalues: Floats, targets: Floats) -> Floats:
    """Return leave-one-out predictions with the best ridge penalty."""
    shares = eigenvalues[:, None] / (eigenvalues[:, None] + RIDGES * max(eigenvalues.max(initial=0), 1e-300))
    kept, inside = 1 - np.minimum(vectors**2 @ shares, 1 - 1e-9), vectors.T @ targets
    found = [
        targets - (targets - vectors @ (s[:, None] * inside)) / k[:, None]
        for s, k in zip(shares.T, kept.T, strict=True)
    ]
    return min(found, key=lambda each: ((each - targets) ** 2).sum())


def _explained(vectors: Floats, eigenvalues: Floats, targets: Floats) -> float:
    wrong = ((_left_out(vectors, eigenvalues, targets) - targets) ** 2).sum()
    return float(np.clip(1 - wrong / (targets**2).sum(), 0, 1 - 1e-6))
