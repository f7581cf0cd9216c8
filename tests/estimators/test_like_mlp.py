"""What users of MLPClassifier and MLPRegressor bring: sparse X, labels, weights of classes, stopping, categories."""

from __future__ import annotations

import pickle
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_diabetes, load_iris, make_multilabel_classification
from sklearn.ensemble import StackingClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

import singa_dask as sd
from singa_dask.errors import CheckpointError
from singa_dask.estimators.arguments import MEANT
from tests.selection import mostly_long

Array = npt.NDArray[Any]

QUICK: dict[str, Any] = {"learning_rate_init": 0.02, "batch_size": 30, "max_iter": 10, "random_state": 3}
X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]


def classifier(**given: Any) -> Any:
    """Return a classifier that trains for a moment."""
    return sd.SingaClassifier(**{**QUICK, **given})


# -- sparse X ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectorizer", mostly_long([TfidfVectorizer, CountVectorizer], 2))
def test_texts(vectorizer: Any) -> None:
    random = np.random.default_rng(0)
    good, bad, any_ = ("good great fine".split(), "bad awful poor".split(), "film actor plot scene music".split())
    labels = np.where(np.arange(200) % 3 > 0, "good", "bad")
    texts = [" ".join([*random.choice(good if each == "good" else bad, 2), *random.choice(any_, 6)]) for each in labels]
    pipeline = make_pipeline(vectorizer(), classifier())
    assert cross_val_score(pipeline, texts, labels, cv=3).min() > 0.95


@pytest.mark.parametrize("kind", mostly_long([sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.csr_array], 4))
def test_sparse_features_are_divided_by_the_deviation(kind: Any, tmp_path: Path) -> None:
    x = np.where(np.random.default_rng(1).random((150, 40)) < 0.2, X[:, :1] * 100, 0.0)
    found = classifier(max_iter=2).fit(kind(x), Y)
    # a job reads features as they are
    job = sd.load(_saved(classifier(max_iter=2), kind(x), Y, tmp_path))
    scaled = StandardScaler(with_mean=False).fit_transform(x)
    same = classifier(max_iter=2, job=job).fit(scaled.astype(np.float32), Y)
    np.testing.assert_allclose(found.predict_proba(kind(x)), same.predict_proba(scaled), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found.predict_proba(kind(x)), found.predict_proba(x))


def _saved(estimator: Any, x: Any, y: Any, directory: Path) -> Path:
    """Return the job of a fit."""
    estimator.set_params(run_dir=str(directory / "run")).fit(x, y)
    return directory / "run" / "job.yaml"


@pytest.mark.long
def test_sparse_features_are_never_dense_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    made: list[weakref.ref[Array]] = []
    dense = sp.csr_matrix.toarray

    def watched(self: Any, *given: Any, **more: Any) -> Any:
        rows.append(self.shape[0])
        found = dense(self, *given, **more)
        made.append(weakref.ref(found))
        assert sum(each() is not None for each in made) <= 3
        return found

    monkeypatch.setattr(sp.csr_matrix, "toarray", watched)
    x = sp.random(1000, 15_000, 0.001, "csr", random_state=0)
    classifier(max_iter=1, batch_size=100, hidden_layer_sizes=()).fit(x[:400], np.arange(400) % 2).predict(x)
    assert max(rows) <= 200


# -- several outputs ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_several_labels() -> None:
    x, y = make_multilabel_classification(400, n_labels=2, random_state=0)
    train, test, y_train, y_test = train_test_split(x, y, random_state=0)
    scale = StandardScaler().fit(train)
    given = {"learning_rate_init": 0.01, "batch_size": 50, "max_iter": 40, "random_state": 0}
    peer = MLPClassifier(**given, tol=0).fit(scale.transform(train), y_train)
    found = sd.SingaClassifier(**given, tol=0).fit(train, y_train)
    for ours, theirs in (
        (found.predict(test), peer.predict(scale.transform(test))),
        (found.predict_proba(test), peer.predict_proba(scale.transform(test))),
        (found.classes_, np.asarray(peer.classes_)),
    ):
        assert ours.shape == theirs.shape
        assert ours.dtype.kind == theirs.dtype.kind
    assert found.score(test, y_test) >= peer.score(scale.transform(test), y_test) - 0.05
    np.testing.assert_array_equal(found.predict(test), found.predict_proba(test) > 0.5)
    lazy = sd.SingaClassifier(**given, tol=0).fit(da.from_array(train), da.from_array(y_train))
    np.testing.assert_array_equal(lazy.predict_proba(test), found.predict_proba(test))
    once = sd.SingaClassifier(**given).partial_fit(train, sp.csr_matrix(y_train)).partial_fit(train, y_train)
    assert once.n_iter_ == 2
    for wrong, message in (
        (np.c_[Y, Y], "MultiOutputClassifier fits several columns of classes"),
        (np.c_[NAMES, NAMES], "other values than 0 and 1"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier().fit(X, wrong)
    with pytest.raises(ValueError, match="as many columns as in the first fit"):
        once.partial_fit(train, y_train[:, 0])
    with pytest.raises(ValueError, match="class_weight: y has several labels"):
        classifier(class_weight="balanced").fit(x, y)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["balanced", {"setosa": 3.0, "virginica": 0.25}])
def test_weights_of_classes(weights: Any) -> None:
    rows = np.r_[0:20, 50:150]
    x, y, own = X[rows], NAMES[rows], np.linspace(0.5, 1.5, len(rows))
    expected = classifier().fit(x, y, compute_sample_weight(weights, y) * own).predict_proba(x)
    np.testing.assert_array_equal(classifier(class_weight=weights).fit(x, y, own).predict_proba(x), expected)
    lazy = [da.from_array(each, chunks=len(x)) for each in (x, y, own)]
    np.testing.assert_array_equal(classifier(class_weight=weights).fit(*lazy).predict_proba(x), expected)
    for wrong, message in (
        ({"setosaa": 1}, "Did you mean 'setosa'"),
        ("balance", "Expected 'balanced', or a dict"),
        ({"setosa": -1}, "Expected a number from 0 on"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier(class_weight=wrong).fit(x, y)
    with pytest.raises(ValueError, match="needs all records at once"):
        classifier(class_weight="balanced").partial_fit(x, y, np.unique(y))


@pytest.mark.parametrize("kind", [sd.SingaClassifier, sd.SingaRegressor])
def test_early_stopping_keeps_the_best_values(kind: Any) -> None:
    x, y = (X, NAMES) if kind is sd.SingaClassifier else load_diabetes(return_X_y=True)
    given = {**QUICK, "early_stopping": True, "validation_fraction": 0.2, "n_iter_no_change": 5}
    found = kind(**{**given, "max_iter": 200}).fit(x, y)
    scores = found.validation_scores_
    assert len(scores) == found.n_iter_ < 200
    assert found.best_validation_score_ == max(scores)
    assert found.best_loss_ is None
    # those of a fit that ends with this epoch
    best = kind(**{**given, "max_iter": int(np.argmax(scores)) + 1}).fit(x, y)
    np.testing.assert_array_equal(found.predict(x), best.predict(x))
    assert best.best_validation_score_ == max(scores)
    if kind is sd.SingaClassifier:
        # each class alike: 10 of 50 are held out, and each score is a number of 30
        np.testing.assert_allclose(np.array(scores) * 30, np.round(np.array(scores) * 30))
    with pytest.raises(ValueError, match="early_stopping: not with partial_fit"):
        found.partial_fit(x, y)
    with pytest.raises(ValueError, match=r"validation_fraction: 1\.5\. Expected a number between 0 and 1"):
        kind(**{**given, "validation_fraction": 1.5}).fit(x, y)


@pytest.mark.parametrize(("tol", "patience"), [(1e-2, 3), (1e-3, 10)])
def test_a_fit_ends_where_the_loss_no_longer_falls(tol: float, patience: int) -> None:
    found = classifier(batch_size=150, max_iter=500, tol=tol, n_iter_no_change=patience).fit(X, Y)
    # the rule of MLPClassifier, on the loss of each epoch
    best, n_worse, ends = np.inf, 0, []
    for loss in found.loss_curve_:
        n_worse = n_worse + 1 if loss > best - tol else 0
        best = min(loss, best)
        ends.append(n_worse > patience)
    assert found.n_iter_ == len(ends) < 500
    assert ends.index(True) == len(ends) - 1
    assert found.best_loss_ == best
    assert found.validation_scores_ is None


@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 1.5, len(X))])
def test_the_loss_of_an_epoch_is_that_of_each_record_once(weights: Any) -> None:
    scaler, labels = StandardScaler().fit(X[:, :2]), np.stack([Y > 0, Y > 1], axis=1)
    losses = {
        "classes": (NAMES, lambda p: -np.log(p[np.arange(len(X)), Y])),
        "labels": (labels.astype(int), lambda p: -np.log(np.where(labels, p, 1 - p)).mean(axis=1)),
        "values": (X[:, :2], lambda values: (scaler.transform(values - X[:, :2] + scaler.mean_) ** 2).sum(axis=1)),
    }
    # four batches are ten records more than there are
    given = {"learning_rate_init": 0.0, "batch_size": 40, "n_iter_no_change": 20, "max_iter": 30, "random_state": 3}
    for name, (y, loss) in losses.items():
        found = (sd.SingaRegressor if name == "values" else sd.SingaClassifier)(**given).fit(X, y, weights)
        predicted = found.predict(X) if name == "values" else found.predict_proba(X)
        expected = np.average(loss(predicted) * (1 if weights is None else weights))
        assert found.best_loss_ == pytest.approx(expected, rel=1e-5)
        assert found.n_iter_ == 22


def test_alpha_is_the_penalty_of_ridge() -> None:
    x, y = load_diabetes(return_X_y=True)
    given = {"hidden_layer_sizes": (), "batch_size": len(x), "max_iter": 500, "learning_rate_init": 0.05}
    scale, deviation = StandardScaler().fit(x), y.std()
    for alpha in (30.0, 1000.0):
        ridge = Ridge(alpha=alpha).fit(scale.transform(x), y)
        found = sd.SingaRegressor(**given, n_iter_no_change=500, alpha=alpha, random_state=0).fit(x, y).predict(x)
        np.testing.assert_allclose(found, ridge.predict(scale.transform(x)), atol=1e-5 * deviation)


def test_solvers_and_names_that_are_close() -> None:
    nesterov = {"type": "Nesterov", "momentum": 0.8}
    found = [classifier(**each).fit(X, Y) for each in ({"solver": "sgd", "momentum": 0.8}, {"updater": nesterov})]
    np.testing.assert_array_equal(*(each.predict_proba(X) for each in found))
    np.testing.assert_array_equal(*(classifier(solver=each).fit(X, Y).predict_proba(X) for each in ("adam", None)))
    for given, message in (
        ({"solver": "lbfgs"}, r"solver='lbfgs' .* Expected 'adam' or 'sgd'"),
        ({"solver": "adan"}, "Did you mean 'adam'"),
        ({"solver": "sgd", "updater": "SGD"}, "solver and updater are given. Expected one"),
        ({"alpha": 0.1, "weight_decay": 0.1}, "alpha and weight_decay are given. Expected one"),
        ({"alpha": "auto"}, "alpha: 'auto'. Expected a number from 0 on"),
        ({"n_jobs": 0}, "n_jobs: 0. Expected an integer from 1 on"),
        ({"early_stopping": True, "cluster": "downpour"}, "workers cannot compute a score with several"),
        ({"handle_unknown": "eror"}, "Did you mean 'error'"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier(**given).fit(pd.DataFrame({"a": NAMES}), Y)


@pytest.mark.long
def test_a_run_takes_the_same_steps(tmp_path: Path) -> None:
    weights = np.linspace(0.5, 1.5, len(X))
    for kind, y in ((sd.SingaClassifier, NAMES), (sd.SingaRegressor, X[:, :2])):
        here = kind(**QUICK, n_jobs=1).fit(X, y, weights)
        run = kind(**QUICK, n_jobs=1, run_dir=str(tmp_path / kind.__name__)).fit(X, y, weights)
        np.testing.assert_array_equal(here.predict(X), run.predict(X))
        np.testing.assert_allclose(here.loss_curve_, run.loss_curve_, rtol=1e-6)
        assert (here.n_iter_, here.best_loss_ > 0) == (run.n_iter_, True)
        assert sd.load(tmp_path / kind.__name__ / "resolved.yaml").conf.threads == 1


@pytest.mark.parametrize("activation", mostly_long(["relu", "logistic", "tanh", "identity"], 4))
def test_predictions_are_those_of_the_net_of_a_run(activation: str, tmp_path: Path) -> None:
    labels = np.stack([Y > 0, Y > 1], axis=1).astype(int)
    x = X * [1, 1000, 1, 0.001] + [0, 1e5, 0, 0]
    for name, y in (("classes", NAMES), ("labels", labels), ("numbers", Y * 7 + 3), ("flags", Y > 1)):
        given = {**QUICK, "batch_size": len(x), "hidden_layer_sizes": (20, 7), "activation": activation}
        found = sd.SingaClassifier(**given, run_dir=str(tmp_path / name)).fit(x, y)
        run = sd.load_model(found.run_dir)
        np.testing.assert_array_equal(found.predict_proba(x), run.extract(x, "loss"))
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)).predict(x), found.predict(x))
        if y.ndim == 1:
            np.testing.assert_array_equal(found.predict(x), run.predict(x))
            assert found.predict(x).dtype.kind == run.predict(x).dtype.kind


@pytest.mark.long
def test_a_run_that_only_its_estimator_can_read(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.where(Y > 1, "u", "v"))
    spelled = np.array(["x", "x ", "y"])[Y]
    for name, x, y, message in (
        ("targets", X, X[:, 0], "scales the targets"),
        ("texts", frame, NAMES, "encodes the texts of 'kind'"),
        ("names", X, spelled, "names the classes 'x', 'x ', 'y'"),
    ):
        kind = sd.SingaRegressor if name == "targets" else sd.SingaClassifier
        run = str(tmp_path / name)
        kind(**QUICK, run_dir=run).fit(x, y)
        for read in (
            sd.load_model,
            partial(sd.predict, data=X),
            partial(sd.export, path=str(tmp_path / "a.onnx")),
            partial(sd.export, path=str(tmp_path / "a.safetensors")),
        ):
            with pytest.raises(CheckpointError, match=f"{message}.*save it with pickle"):
                read(run)


def test_a_run_of_an_estimator_of_an_earlier_version(tmp_path: Path) -> None:
    # as version 0.1.0 wrote it: the estimator scaled X, and the run has nothing of it
    records = {"path": "dask://train", "shape": [4], "batchsize": 50, "shuffle": "full"}
    layers = [
        sd.layer("RecordInput", name="data", store_conf=records),
        sd.layer("InnerProduct", name="fc1", num_output=3),
        sd.layer("ReLU", name="act1"),
        sd.layer("InnerProduct", name="out", num_output=3),
        sd.layer("SoftmaxLoss", name="loss", srclayers=["out", "data"]),
    ]
    adam = {"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.1}}
    job = sd.Job(sd.Net(layers), name="classifier", train_steps=1, train_one_batch={"alg": "BP"}, updater=adam)
    run = sd.train(job, data={"train": (X, Y)}, run_dir=str(tmp_path / "run"), progress=False)
    for read in (sd.load_model, partial(sd.predict, data=X), partial(sd.export, path=str(tmp_path / "a.onnx"))):
        with pytest.raises(CheckpointError, match=r"lacks the scaling of X and y\..*fit again.*name=my-classifier"):
            read(run)
    assert len(sd.load_model(run, job=job.replace({"name": "mine"})).predict(X)) == len(X)


@pytest.mark.long
def test_a_job_that_standardises(tmp_path: Path) -> None:
    records = {"path": "none.csv", "shape": [4], "batchsize": 50, "standardise": True}
    net = [
        sd.layer("RecordInput", name="data", store_conf=records),
        sd.layer("InnerProduct", name="scores", num_output=3),
        sd.layer("SoftmaxLoss", srclayers=["scores", "data"]),
    ]
    adam = {"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.1}}
    job = sd.Job(sd.Net(net), epochs=20, train_one_batch={"alg": "BP"}, updater=adam)
    found = sd.SingaClassifier(job=job, random_state=0, warm_start=True, run_dir=str(tmp_path / "run"))
    shifted = X * [1, 1000, 1, 0.001] + [0, 1e5, 0, 0]
    assert found.fit(shifted, NAMES).score(shifted, NAMES) > 0.9
    expected = found.predict_proba(shifted)
    np.testing.assert_allclose(expected, sd.load_model(found.run_dir).predict_proba(shifted), rtol=1e-5)
    assert np.array_equal(pickle.loads(pickle.dumps(found)).predict_proba(shifted), expected)
    # more records, with another mean, are scaled as those of the first fit
    found.set_params(learning_rate_init=0.0, run_dir=None).fit(shifted[50:], NAMES[50:])
    np.testing.assert_allclose(found.predict_proba(shifted), expected, rtol=1e-6)


# -- frames ------------------------------------------------------------------------------------------------------------


def test_categories() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["kind"] = pd.Categorical(np.array(["x", "y", "z"])[Y[::-1]], categories=["z", "y", "x", "w"])
    frame["text"] = np.array(["u", "v"])[np.arange(150) % 2]
    frame["object"] = pd.Series([None, "s"] * 75, dtype=object)
    frame["flag"] = Y > 1
    encoder = OneHotEncoder(sparse_output=False, categories=[list("wxyz"), list("uv"), ["s", None]])
    codes = encoder.fit_transform(frame[["kind", "text", "object"]].astype(object))
    numbers = np.c_[codes, frame[[*"abcd", "flag"]].to_numpy(float)]
    found = pickle.loads(pickle.dumps(classifier().fit(frame, NAMES)))
    np.testing.assert_array_equal(found.predict_proba(frame), classifier().fit(numbers, NAMES).predict_proba(numbers))
    assert list(found.feature_names_in_) == list(frame.columns)
    blanks = frame.assign(text=[f" {text}" for text in frame.text])
    np.testing.assert_array_equal(found.predict_proba(blanks), found.predict_proba(frame))
    new = frame.assign(text="new")
    with pytest.raises(ValueError, match=r"column 'text' of X has unknown categories: new\. Known: u, v\. Set"):
        found.predict(new)
    wanted = classifier(handle_unknown="ignore").fit(frame, NAMES).predict_proba(new)
    found.set_params(handle_unknown="ignore")  # also after the fit
    np.testing.assert_array_equal(found.predict_proba(new), wanted)
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        found.predict(frame[frame.columns[::-1]])
    with pytest.raises(ValueError, match="column 'object' of X has values of several types"):
        classifier().fit(frame.assign(object=pd.Series([1, "s"] * 75, dtype=object)), NAMES)
    with pytest.raises(ValueError, match="contains NaN"):
        found.predict(frame.assign(a=np.nan))
    percents = frame.assign(text=[f"{i % 50}.5%" for i in range(150)])
    with pytest.warns(
        UserWarning, match=r"'text' of X: 50 different texts, such as '0\.5%', are taken for categories"
    ) as told:
        classifier().fit(percents, NAMES)
    with pytest.warns(UserWarning, match="y has only the class 'a'. The net predicts it for every record") as single:
        assert set(classifier().fit(numbers, ["a"] * 150).predict(numbers)) == {"a"}
    # the warnings show the line of the caller
    assert {each.filename for each in (*told, *single)} == {__file__}
    # postcodes that repeat are categories like others
    classifier().fit(frame.assign(text=[f"{i % 9}0210" for i in range(150)]), NAMES)


@pytest.mark.parametrize("kind", [sd.SingaClassifier, sd.SingaRegressor])
def test_scores_of_collections_of_unknown_lengths(kind: Any) -> None:
    memory = pd.DataFrame(X, columns=list("abcd")).assign(label=Y)
    frame = dd.from_pandas(memory, npartitions=3)
    x, y = frame[list("abcd")], frame["label"]
    found = kind(**QUICK).fit(x, y)
    assert list(found.feature_names_in_) == list("abcd")
    expected = found.score(memory[list("abcd")], Y)
    assert expected > 0.8
    assert found.score(x, y) == pytest.approx(expected, rel=1e-6)
    with_empty = dd.concat([frame.partitions[:1], dd.from_pandas(memory.iloc[:0], npartitions=1), frame.partitions[1:]])
    assert found.score(with_empty[list("abcd")], with_empty["label"]) == pytest.approx(expected, rel=1e-6)
    predicted = found.predict(memory[list("abcd")]).tolist()
    assert found.predict(with_empty[list("abcd")]).compute().tolist() == pytest.approx(predicted, abs=1e-6)
    weights = np.linspace(0, 1, 150)
    weighted = found.score(memory[list("abcd")], Y, weights)
    assert found.score(x, y, dd.from_pandas(pd.Series(weights), npartitions=2)) == pytest.approx(weighted, rel=1e-6)
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        found.score(frame[list("bacd")], y)


@pytest.mark.long
def test_tools_of_scikit_learn() -> None:
    found = classifier().fit(X, NAMES)
    importances = permutation_importance(found, X, NAMES, n_repeats=2, random_state=0).importances_mean
    assert np.argmax(importances) in (2, 3)
    assert CalibratedClassifierCV(classifier(), cv=2).fit(X, NAMES).score(X, NAMES) > 0.9
    stack = StackingClassifier([("net", classifier()), ("line", LogisticRegression(max_iter=500))], cv=2)
    assert stack.fit(X, NAMES).score(X, NAMES) > 0.9


@pytest.mark.parametrize("kind", [sd.SingaClassifier, sd.SingaRegressor])
def test_an_unknown_argument_has_a_suggestion(kind: Any) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__}: unknown argument 'max_iters'\. Did you mean 'max_iter'\?"):
        kind(max_iters=3)
    with pytest.raises(TypeError, match=r"unknown argument 'epochs'\. Did you mean 'max_iter'\?"):
        kind(epochs=3)
    assert "max_iter" in kind._get_param_names()
    assert {*MEANT.values()} <= {*kind._get_param_names()}


def test_texts_that_do_not_repeat_are_no_categories() -> None:
    """Ids, amounts and free texts would make a feature for each record."""
    frame = pd.DataFrame(X, columns=list("abcd")).assign(paid=[f"${i}.50" for i in range(150)])
    said = r"column 'paid' of X has 150 different texts in 150 records, such as '\$0\.50'\. Expected categories"
    for x in (frame, dd.from_pandas(frame, npartitions=3)):
        with pytest.raises(ValueError, match=said):
            classifier().fit(x, Y if x is frame else dd.from_pandas(pd.Series(Y), npartitions=3))
    assert classifier().fit(frame.assign(paid=frame["paid"].where(frame.index < 75, "none")), Y).n_features_in_ == 5
    assert classifier().fit(frame.assign(paid=frame["paid"].astype("category")), Y).n_features_in_ == 5


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            pd.Timestamp("2024-01-31", tz="UTC"),
            r"'day' of X has values of type datetime64.* X\['day'\]\.dt\.month",
        ),
        (pd.Timedelta("1h"), r"column 'day' of X has values of type timedelta64.*\.dt\.total_seconds\(\)"),
    ],
)
def test_dates_are_named(value: Any, said: str) -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    for kinds in ({}, {"kind": "x"}):
        with pytest.raises(ValueError, match=said):
            classifier().fit(frame.assign(day=value, **kinds), Y)


@pytest.mark.parametrize("make", [pd.Series, np.asarray, lambda values: pd.DataFrame({"label": values})])
def test_labels_that_are_missing_are_counted(make: Any) -> None:
    labels = make(np.where(np.arange(150) < 3, None, NAMES).astype(object))
    with pytest.raises(ValueError, match="Input y contains NaN: 3 of 150 values are missing"):
        classifier().fit(X, labels)


def test_columns_without_values_are_named() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.loc[:2, "b"] = np.nan
    with pytest.raises(ValueError, match=r"Input X contains NaN in the columns 'b' \(3 of 150\)\. .* X\.fillna"):
        sd.SingaClassifier(**QUICK).fit(frame, Y)
    # of texts it is a category of its own
    frame["b"] = frame["b"].map(lambda value: value if pd.isna(value) else "there")
    assert sd.SingaClassifier(**QUICK).fit(frame, Y).predict(frame).shape == (150,)
