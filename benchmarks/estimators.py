"""The estimators as they are beside scikit-learn: scores on tables of the packages of data, and times for small data.

Scores: each table is split anew for each seed, a quarter to test. MLPClassifier or MLPRegressor, with a StandardScaler
and one-hot categories, and HistGradientBoosting learn from the same columns; MLPRegressor also from targets that are
scaled, as ours are. Accuracy, or R2 for numbers; missing numbers become the mean. ``--times``: the same net, batches
and epochs as MLPClassifier's, in turn in one process, warm.
``python -m benchmarks.estimators [--seeds N] [--only NAME ...] [--times]``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import TransformedTargetRegressor, make_column_selector, make_column_transformer
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import singa_dask as sd
from benchmarks.tables import tables as known_tables

ROUNDS = 7


def features_and_target(table: Any) -> tuple[pd.DataFrame, Any, bool]:
    """Return the features of a table of `tables`, what is to be predicted, and whether it is classes."""
    options = dict(each.removeprefix("--").split("=") for each in table.options)
    frame = table.load()
    name = options.get("label") or options.get("target") or frame.columns[-1]
    frame = frame.dropna(subset=[name])
    kept = options["features"].split(",") if "features" in options else frame.columns.drop(name)
    features = frame[kept].drop(columns=options.get("drop", "").split(","), errors="ignore")
    for column in features:
        if features[column].dtype.kind == "M":
            features[column] = features[column].dt.dayofyear
        elif not _is_number(features[column]):
            features[column] = features[column].astype("category")
    has_classes = "label" in options or not (_is_number(frame[name]) and frame[name].nunique() > 20)
    return features, frame[name].to_numpy(), has_classes


def _is_number(column: Any) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column))


def scores(table: Any, seed: int) -> tuple[bool, list[float]]:
    """Return whether there are classes, and the scores of ours and scikit-learn's: MLP, with scaled targets, trees."""
    x, y, has_classes = features_and_target(table)
    train, test, y_train, y_test = train_test_split(x, y, random_state=seed, stratify=y if has_classes else None)
    numbers = train.select_dtypes("number").mean()
    train, test = train.fillna(numbers), test.fillna(numbers)
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), make_column_selector(dtype_exclude="number")),
        remainder="passthrough",
    )
    ours, mlp, trees = (
        (sd.SingaClassifier, MLPClassifier, HistGradientBoostingClassifier)
        if has_classes
        else (sd.SingaRegressor, MLPRegressor, HistGradientBoostingRegressor)
    )
    peer = make_pipeline(encoder, StandardScaler(), mlp(random_state=seed))
    models = (
        ours(random_state=seed, handle_unknown="ignore"),
        peer,
        peer if has_classes else TransformedTargetRegressor(peer, transformer=StandardScaler()),
        trees(random_state=seed),
    )
    return has_classes, [model.fit(train, y_train).score(test, y_test) for model in models]


def compare_scores(n_seeds: int, only: list[str]) -> None:
    """Print the mean scores of each table."""
    tables = known_tables()
    unknown = set(only) - set(tables)
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}. Known: {', '.join(tables)}.")
    found: dict[bool, list[Any]] = {True: [], False: []}
    print(f"{'table':20} {'ours':>7} {'MLP':>7} {'scaled':>7} {'trees':>7} {'ours - MLP':>11}")
    for name in only or tables:
        kinds, rows = zip(*(scores(tables[name], seed) for seed in range(n_seeds)), strict=True)
        mean = np.mean(rows, axis=0)
        found[kinds[0]].append(mean)
        print(f"{name:20} {' '.join(f'{each:7.3f}' for each in mean)} {mean[0] - mean[1]:+11.3f}", flush=True)
    for has_classes, means in found.items():
        if means:
            shown = " ".join(f"{each:7.3f}" for each in np.mean(means, axis=0))
            print(f"{'mean ' + ('accuracy' if has_classes else 'R2'):20} {shown}")


def compare_times() -> None:
    """Print the time of fits and predictions, and their ratios: medians of rounds in turn."""
    sets = {
        "iris, 150 x 4": (*load_iris(return_X_y=True), 200),
        "digits, 1797 x 64": (*load_digits(return_X_y=True), 40),
        "made, 10000 x 20": (*make_classification(10_000, 20, random_state=0), 20),
    }
    for name, (x, y, epochs) in sets.items():
        given = {"max_iter": epochs, "tol": 0.0, "n_iter_no_change": 10_000}
        rows = []
        for seed in range(ROUNDS + 1):
            row = []
            for kind in (sd.SingaClassifier, MLPClassifier):
                model = kind(random_state=seed, **given)
                for work, arguments in ((model.fit, (x, y)), (model.predict, (x,)), (model.predict, (x,))):
                    start = time.perf_counter()
                    work(*arguments)
                    row.append(time.perf_counter() - start)
            rows.append(row)
        # the first round loads what all share
        fit, first, later, *theirs = np.median(rows[1:], axis=0) * 1000
        ratios = np.median([np.array(row[:3]) / row[3:] for row in rows[1:]], axis=0)
        print(
            f"{name}, {epochs} epochs: fit {fit:.1f} ms ({theirs[0]:.1f}), {ratios[0]:.2f} times as long; fit and "
            f"predict {(fit + first) / (theirs[0] + theirs[1]):.2f}; first predict {first:.1f} ms ({theirs[1]:.1f}), "
            f"later {later:.1f} ms ({theirs[2]:.1f})"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--times", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.times:
        compare_times()
    else:
        compare_scores(given.seeds, given.only)
