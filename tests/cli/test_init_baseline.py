"""What ``init`` says a linear model does, beside scikit-learn's, and what becomes of it in the job that it writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, mean_squared_error, roc_auc_score
from sklearn.model_selection import LeaveOneOut, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from singa_dask.conf import load
from singa_dask.data.stores.split_store import SplitConf
from singa_dask.survey.leaks import leak_warnings
from singa_dask.survey.logistic import class_probabilities, held_out_probabilities, standardised
from singa_dask.survey.options import SurveyOptions
from singa_dask.survey.read_table import open_table, read_table
from singa_dask.survey.results import OutputSurvey
from tests.cli.conftest import Call

N = 80
RIDGE = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
LOGISTIC = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a new directory."""
    monkeypatch.chdir(tmp_path)


def table(noise: float, curved: bool = False, n: int = N) -> pd.DataFrame:
    random = np.random.default_rng(7)
    frame = pd.DataFrame(random.normal(size=(n, 4)).round(3), columns=list("abcd"))
    frame["shop"] = random.choice(["north", "south"], n)
    sums = frame.a * frame.b * 2 if curved else 2 * frame.a - frame.b + (frame.shop == "north")
    return frame.assign(sales=sums + random.normal(size=n) * noise)


def said(
    call: Call,
    frame: pd.DataFrame,
    *options: str,
    number: str = r"a linear model \(\w+ regression\) is (?:right in|off by) about",
) -> float:
    frame.to_csv("sales.csv", index=False)
    result = call("init", "sales.csv", "--overwrite", "--test-split", "0", *options)
    assert result.exit_code == 0, result.output
    found = re.search(r"a linear model \(\w+ regression\) is (?:right in|off by) about ([\d.]+)", result.stderr)
    assert found, result.stderr
    return float(found[1])


def test_without_a_test_set_a_linear_model_predicts_records_that_it_has_not_learned(call: Call) -> None:
    frame = table(noise=1.0)
    features = pd.get_dummies(frame.drop(columns="sales"), dtype=float)
    predicted = cross_val_predict(RIDGE, features, frame.sales, cv=LeaveOneOut())
    expected = np.sqrt(mean_squared_error(frame.sales, predicted))
    assert said(call, frame, "--target", "sales") == pytest.approx(expected, rel=0.02)

    x, y = made("ordered")
    frame = pd.DataFrame(x, columns=list("abcdef")).assign(sales=y)
    predicted = cross_val_predict(LOGISTIC, x, y, cv=StratifiedKFold(5))
    assert said(call, frame, "--label", "sales") == pytest.approx(100 * accuracy_score(y, predicted), abs=1)


def made(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and classes of a made table."""
    random = np.random.default_rng(3)
    x, noise = random.normal(size=(1500, 6)), random.logistic(size=1500)
    if name == "ordered":
        return x, np.digitize(2 * x[:, 0] + x[:, 1] + noise, [-2, 0.5, 2])
    if name == "xor":
        return x, np.where(x[:, 0] * x[:, 1] + 0.3 * x[:, 2] > 0, 1, 0)
    if name == "rare":
        return x, (x[:, 0] + x[:, 1] + noise / 2 > 3.6).astype(int)
    if name == "categories":
        codes = random.integers(40, size=(1500, 2))
        effects = random.normal(size=(40, 2))
        y = effects[codes[:, 0], 0] + effects[codes[:, 1], 1] + noise / 2 > 0
        return np.concatenate([np.eye(40)[codes[:, 0]], np.eye(40)[codes[:, 1]], np.ones((1500, 1))], 1), y.astype(int)
    if name == "separable":
        return x, (x[:, 0] > 0).astype(int)
    return x, random.integers(3, size=1500)


@pytest.mark.parametrize("name", ["ordered", "xor", "rare", "categories", "separable", "noise"])
def test_classes_are_predicted_as_by_scikit_learn(name: str) -> None:
    x, y = made(name)
    model = LOGISTIC.fit(x[:1000], y[:1000])
    expected, n = model.predict_proba(x[1000:]), y.max() + 1
    known, new = standardised(x[:1000], x[1000:])
    # the probability of a class without training records is near 0
    found = class_probabilities(known, y[:1000], n + 1, new) if n > 2 else class_probabilities(known, y[:1000], 2, new)
    assert found[:, n:].sum() < 1
    found = found[:, :n]
    assert accuracy_score(y[1000:], found.argmax(1)) == pytest.approx(model.score(x[1000:], y[1000:]), abs=0.01)
    found /= found.sum(axis=1, keepdims=True)
    areas = [roc_auc_score(y[1000:], p[:, 1] if n == 2 else p, multi_class="ovr") for p in (found, expected)]
    assert areas[0] == pytest.approx(areas[1], abs=0.01)
    held_out = held_out_probabilities(x, y, n).argmax(1)
    predicted = cross_val_predict(LOGISTIC, x, y, cv=StratifiedKFold(5, shuffle=True, random_state=0))
    assert accuracy_score(y, held_out) == pytest.approx(accuracy_score(y, predicted), abs=0.02)


def test_texts_are_compared_with_counted_words(call: Call) -> None:
    random = np.random.default_rng(3)
    labels = random.choice(["bad", "good"], 400)
    words = np.array([*"abcdefghijklmnop", "fine", "poor"])
    shares = {"good": [1] * 16 + [3, 1], "bad": [1] * 16 + [1, 3]}
    texts = [" ".join(random.choice(words, 9, p=np.array(shares[label]) / 20)) for label in labels]
    pd.DataFrame({"text": texts, "label": labels}).to_csv("texts.csv", index=False)
    counts = CountVectorizer(token_pattern=r"\w+").fit_transform(texts)
    scores = []
    for options in ((), ("--test-split", "0")):
        result = call("init", "texts.csv", "--text", "text", "--overwrite", *options)
        found = re.search(
            r"a linear model of counted words \(logistic regression\) is right in about ([\d.]+)%", result.stderr
        )
        assert found, result.output
        scores.append(float(found[1]) / 100)
    model = LogisticRegression(max_iter=1000)
    crossed = accuracy_score(
        labels, cross_val_predict(model, counts, labels, cv=StratifiedKFold(5, shuffle=True, random_state=1))
    )
    # other folds and other test records: the same within two standard errors
    assert scores == pytest.approx([crossed, crossed], abs=0.1)
    assert crossed > 0.6


def test_models_to_beat_are_judged_on_the_test_records_of_the_job(call: Call) -> None:
    frame = pd.DataFrame(made("ordered")[0][:600], columns=list("abcdef"))
    frame["level"] = np.where(made("rare")[1][:600], "high", "low")
    frame["sales"] = 2 * frame.a - frame.b + np.random.default_rng(5).normal(size=600)
    frame.to_csv("sales.csv", index=False)
    for column, option in (("level", "--label"), ("sales", "--target")):
        result = call("init", "sales.csv", "--overwrite", option, column, "--features", "a,b,c,d,e,f")
        assert result.exit_code == 0, result.output
        job = load("job.yaml").job
        layers = job.neuralnet.layer
        split = next(each.store_conf["split"] for each in layers if each.include == ["test"])
        rows = SplitConf.model_validate(split).rows(0, 600)
        train, test = frame.drop(rows), frame.iloc[rows]
        inputs = list("abcdef")
        if column == "level":
            model = LOGISTIC.fit(train[inputs], train.level)
            right, area = model.score(test[inputs], test.level), model.predict_proba(test[inputs])[:, 1]
            area = roc_auc_score(test.level == "low", area)
            largest = test.level.value_counts(normalize=True).max()
            assert f"always the largest class is right in {largest:.1%} on the test records\n" in result.stderr
            said = (
                f"is right in about {right:.1%} on the same test records, with roc_auc {area:.2f}, where 0.5 is chance"
            )
            assert said in result.stderr
            kept = {"accuracy": right, "roc_auc": area, "records": len(rows)}
            assert job.baseline == pytest.approx(kept, rel=1e-3)
            continue
        predicted = RIDGE.fit(train[inputs], train.sales).predict(test[inputs])
        said_mean = f"off by {test.sales.std(ddof=0):.6g} on the test records (root of the mean square)\n"
        assert said_mean in result.stderr
        found = re.search(r"is off by about ([\d.]+) on the same test records", result.stderr)
        assert found, result.stderr
        assert job.baseline == pytest.approx({"rmse": float(found[1]), "records": len(rows)}, rel=1e-3)
        assert float(found[1]) == pytest.approx(np.sqrt(mean_squared_error(test.sales, predicted)), rel=0.01)


def settings(call: Call, frame: pd.DataFrame) -> tuple[Any, float, float]:
    """Return the rate, decay of all steps together, and share of values that are dropped, of the job for a table."""
    said(call, frame, "--target", "sales")
    job = load("job.yaml").job
    rate = job.updater.learning_rate.base_lr
    drops = [layer.dropout_conf["dropout_ratio"] for layer in job.neuralnet.layer if layer.type == "Dropout"]
    return rate, rate * job.updater.weight_decay * job.train_steps / 2, drops[0] if drops else 0.0


def test_noise_takes_decay_and_dropout_and_curves_take_larger_steps(call: Call) -> None:
    clean, noisy, curved = (settings(call, each) for each in (table(0.1), table(5.0), table(0.1, curved=True)))
    assert clean[2] == 0 and clean[1] == pytest.approx(1, rel=0.1)
    assert noisy[2] > 0.3 and noisy[1] > 4
    # dropout is half of the unexplained share; a net with fewer weights than records hardly learns by heart
    many = settings(call, table(5.0, n=7000))
    assert many[2] > 0.3 and many[1] == pytest.approx((6 * 64 + 64 * 64) / 7000 / (1 - 2 * many[2]), rel=0.1)
    assert curved[0] > 2 * clean[0] == pytest.approx(0.002, rel=0.2)


def test_records_that_say_nothing_still_make_a_job(call: Call) -> None:
    frame = table(noise=1.0).assign(a=1e300, b=[float("nan")] * (N - 2) + [1.0, 2.0])
    assert said(call, frame, "--target", "sales", "--missing", "mean") > 0
    assert load("job.yaml").job.train_steps


def leaks(frame: pd.DataFrame, name: str, has_classes: bool = True) -> list[str]:
    frame.to_csv("leaks.csv", index=False)
    table = read_table(open_table("leaks.csv", SurveyOptions()), SurveyOptions())
    features = [each for each in table.columns if each.name != name]
    output = OutputSurvey(name, "given", (1,) * has_classes)
    return list(leak_warnings(table, features, [output], np.arange(len(frame))))


def test_features_that_tell_the_label_alone_are_named() -> None:
    random = np.random.default_rng(2)
    left = random.random(600) < 0.3
    frame = pd.DataFrame({"churned": np.where(left, "Yes", "No"), "age": random.integers(18, 80, 600)})
    frame["survey"] = pd.Series(random.choice(["price", "service"], 600)).where(left)
    frame["refund"] = pd.Series(random.normal(size=600)).where(left & (random.random(600) < 0.3))
    frame["credit"] = np.where(left & (random.random(600) < 0.8), random.gamma(2, size=600).round(2), 0)
    frame["status"] = np.where(left, "closed", random.choice(["new", "open"], 600))
    frame["end"] = np.where(left, random.normal(5, 1, 600), random.normal(50, 1, 600))
    # of 20 values of one class, 0.7 ** 20 is still likely by chance in some column
    frame["note"] = pd.Series(1.5, range(600)).where(np.cumsum(~left) <= 20).where(~left)
    assert leaks(frame, "churned") == [
        "survey, refund: a value only if churned is Yes. Pass --drop survey,refund unless they are known when you "
        "predict",
        "credit: another value than 0.0 only if churned is Yes. Pass --drop credit unless it is known when you predict",
        "status, end: determines churned alone, nearly without an error. Pass --drop status,end unless they are known "
        "when you predict",
    ]
    frame["fee"] = frame.age * 3.0 + 7
    assert [each.split(":")[0] for each in leaks(frame.drop(columns="note"), "age", has_classes=False)] == ["fee"]
    for name in ("iris", "wine", "breast_cancer", "digits", "diabetes"):
        known = getattr(datasets, f"load_{name}")(as_frame=True).frame
        assert leaks(known, "target", has_classes=name != "diabetes") == []
