"""The jobs that ``init`` writes, as they are, beside scikit-learn: tables of the packages of data, the same test set.

Each table is written as CSV; ``init`` splits it and writes the job, ``run`` trains it, ``predict`` is scored. On the
same files scikit-learn's nets, with early stopping and without, linear models and HistGradientBoosting learn from the
same columns, with a StandardScaler of features and of targets. Scores are accuracy, or R2 for numbers. It needs
scikit-learn, statsmodels and vega_datasets.
``python -m benchmarks.tables [--seeds N] [--only NAME ...]``.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from click.testing import CliRunner
from sklearn import datasets
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from singa_dask.cli import main


class Table(NamedTuple):
    """A table: how to load it, and what ``init`` is told about it."""

    load: Callable[[], pd.DataFrame]
    options: tuple[str, ...] = ()


def _of_sklearn(name: str) -> Table:
    return Table(lambda: getattr(datasets, f"load_{name}")(as_frame=True).frame)


def _of_statsmodels(name: str, **made: Callable[[pd.DataFrame], Any]) -> Callable[[], pd.DataFrame]:
    package = importlib.import_module(f"statsmodels.datasets.{name}")
    return lambda: package.load_pandas().data.reset_index(drop=True).assign(**made)


def _of_vega(name: str, *without_gaps: str) -> Callable[[], pd.DataFrame]:
    data = importlib.import_module("vega_datasets").local_data
    return lambda: getattr(data, name)().dropna(subset=list(without_gaps))


def _airports() -> pd.DataFrame:
    table = _of_vega("airports")()
    return table[table["state"].isin(["TX", "CA", "FL", "AK", "NY", "WA"])]


def tables() -> dict[str, Table]:
    """Return the tables by name."""
    affair = _of_statsmodels("fair", affair=lambda frame: np.where(frame["affairs"] > 0, "yes", "no"))
    above = _of_statsmodels("star98", rate=lambda frame: frame["NABOVE"] / (frame["NABOVE"] + frame["NBELOW"]))
    return {
        **{name: _of_sklearn(name) for name in ("iris", "wine", "breast_cancer", "digits", "diabetes")},
        "anes96": Table(_of_statsmodels("anes96"), ("--label=vote", "--drop=logpopul")),
        "fair": Table(affair, ("--label=affair", "--drop=affairs")),
        "modechoice": Table(_of_statsmodels("modechoice"), ("--label=choice", "--drop=individual")),
        "cars": Table(_of_vega("cars"), ("--label=Origin",)),
        "cars, numbers": Table(_of_vega("cars", "Miles_per_Gallon"), ("--target=Miles_per_Gallon",)),
        "weather": Table(_of_vega("seattle_weather"), ("--label=weather",)),
        "weather, numbers": Table(_of_vega("seattle_weather"), ("--target=temp_max",)),
        "airports": Table(_airports, ("--label=state", "--features=latitude,longitude")),
        "engel": Table(_of_statsmodels("engel"), ("--target=foodexp",)),
        "grunfeld": Table(_of_statsmodels("grunfeld"), ("--target=invest", "--drop=year")),
        "star98": Table(above, ("--target=rate", "--drop=NABOVE,NBELOW")),
        "macrodata": Table(_of_statsmodels("macrodata"), ("--target=unemp", "--drop=year,quarter")),
        "barley": Table(_of_vega("barley"), ("--target=yield",)),
    }


def measure(table: Table, seed: int) -> tuple[bool, list[float]]:
    """Return whether there are classes, and scores: of ours, MLP that stops early, linear model, MLP, trees."""
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            table.load().to_csv("data.csv", index=False)
            _call("init", "data.csv", "--copy", "--seed", str(seed), *table.options)
            _call("run", "job.yaml", "--run-dir", "run", "--quiet")
            said = _call("predict", "job.yaml", "--init-from", "run", "--data", "job-data/test.csv")
            return _compare(pd.read_csv(io.StringIO(said)), seed)
        finally:
            os.chdir(before)


def _call(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments))
    if result.exit_code:
        raise RuntimeError(f"{arguments}: {result.output}")
    return result.stdout


def _compare(predicted: pd.DataFrame, seed: int) -> tuple[bool, list[float]]:
    store = yaml.safe_load(Path("job.yaml").read_text())["neuralnet"]["layer"][0]["store_conf"]
    train, test = pd.read_csv("job-data/train.csv"), pd.read_csv("job-data/test.csv")
    has_classes = "target" not in store
    name = store.get("label") or store["target"][0]
    score = accuracy_score if has_classes else r2_score
    # a class 0.0 is predicted as 0
    kind = str if has_classes and pd.api.types.is_string_dtype(test[name]) else float
    wanted, learned = test[name].astype(kind), train[name].astype(kind)
    ours = predicted["class" if has_classes else name].astype(kind)
    features = pd.concat([train, test])[store["features"]]
    for date, form in store.get("dates", {}).items():
        when = pd.to_datetime(features.pop(date))
        for part in form["parts"] if isinstance(form, dict) else form:
            values = when.dt.day_of_week if part == "weekday" else getattr(when.dt, part)
            features[f"{date}.{part}"] = values.astype(float if part == "year" else str)
    features = pd.get_dummies(features, dtype=float)
    features = features.fillna(features[: len(train)].mean())
    models: list[Any] = [MLPClassifier(early_stopping=True), LogisticRegression(max_iter=1000), MLPClassifier()]
    if not has_classes:
        models = [MLPRegressor(early_stopping=True), Ridge(), MLPRegressor()]
    trees = HistGradientBoostingClassifier() if has_classes else HistGradientBoostingRegressor()
    found = [float(score(wanted, ours))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model in (*models, trees):
            if "random_state" in model.get_params():
                model.set_params(random_state=seed)
            learner = make_pipeline(StandardScaler(), model)
            if not has_classes:
                learner = TransformedTargetRegressor(learner, transformer=StandardScaler())
            fitted = learner.fit(features[: len(train)], learned)
            found.append(float(score(wanted, fitted.predict(features[len(train) :]))))
    return has_classes, found


def main_() -> None:
    """Print a line for each table, and means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    means: dict[bool, list[Any]] = {True: [], False: []}
    print(f"{'table':20} {'ours':>8} {'stopped':>8} {'linear':>8} {'MLP':>8} {'trees':>8}")
    for name, table in tables().items():
        if arguments.only and name not in arguments.only:
            continue
        found = [measure(table, seed) for seed in range(arguments.seeds)]
        mean = np.mean([scores for _, scores in found], axis=0)
        means[found[0][0]].append(mean)
        print(f"{name:20} {' '.join(f'{score:8.4f}' for score in mean)}", flush=True)
    for has_classes, rows in means.items():
        if rows:
            shown = " ".join(f"{score:8.4f}" for score in np.mean(rows, axis=0))
            worst = min(row[0] - max(row[1:3]) for row in rows)
            what = "accuracy" if has_classes else "R2"
            print(f"mean {what:15} {shown}   least difference to the better of the first two {worst:+.4f}")


if __name__ == "__main__":
    main_()
