"""Fits by workers that hold out records: they end, and keep values, as fits in this thread and scikit-learn's do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes, load_iris, load_wine
from sklearn.metrics import r2_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler

import singa_dask as sd
from singa_dask.conf.metrics import EarlyStoppingConf
from singa_dask.estimators import estimator
from singa_dask.estimators.arguments import default_job
from singa_dask.estimators.fit_records import drawn
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.runtime.checkpoints.lookup import find_steps
from singa_dask.runtime.units.evaluation import MetricWatch
from tests.selection import mostly_long, mostly_soak

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]
STOPS: dict[str, Any] = {"early_stopping": True, "validation_fraction": 0.2, "n_iter_no_change": 5}
QUICK: dict[str, Any] = {"learning_rate_init": 0.02, "batch_size": 30, "max_iter": 60, "random_state": 3, **STOPS}
TWO = {"nworkers_per_group": 2, "nservers_per_group": 1}


def some_job(**keys: Any) -> sd.Job:
    """Return a job with an input layer for all phases, and one for weights."""
    records = {"path": "none.csv", "shape": [4], "batchsize": 30, "standardise": True}
    net = [
        sd.layer("RecordInput", name="data", store_conf=records),
        sd.layer("InnerProduct", name="scores", num_output=3),
        sd.layer("WeightInput", name="weight", store_conf=records),
        sd.layer("SoftmaxLoss", srclayers=["scores", "data", "weight"]),
    ]
    adam = {"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.3}}
    return sd.Job(sd.Net(net), epochs=30, train_one_batch={"alg": "BP"}, updater=adam, **keys)


# -- when a fit ends ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("tol", mostly_long([1e-4, 0.0, 0.01], 3))
@pytest.mark.parametrize("kind", [MLPClassifier, MLPRegressor])
def test_the_rule_is_that_of_scikit_learn(kind: Any, tol: float) -> None:
    (x, y), rate = (
        (load_wine(return_X_y=True), 1e-3) if kind is MLPClassifier else (load_diabetes(return_X_y=True), 0.01)
    )
    for seed in range(2):
        given = {"early_stopping": True, "tol": tol, "n_iter_no_change": 4, "max_iter": 80, "random_state": seed}
        fit = kind(**given, learning_rate_init=rate)
        fit.fit(StandardScaler().fit_transform(x), y)
        conf = {"metric": "test.r2", "patience": 5, "min_delta": tol, "every_best": True}
        job: Any = SimpleNamespace(early_stopping=EarlyStoppingConf.model_validate(conf), keep_checkpoints=None)
        watch, ends = MetricWatch(job, {}), []
        for epoch, score in enumerate(fit.validation_scores_):
            watch.add("test", epoch, [{"r2": (score, 1.0)}])
            ends.append(bool(watch.reason))
        # it may end with the last epoch that there is
        assert ends == [False] * (fit.n_iter_ - 1) + [fit.n_iter_ < 80 or ends[-1]]
        assert watch.state()["early_stopping"]["best"] == fit.best_validation_score_
        assert watch.state()["early_stopping"]["best_step"] == int(np.argmax(fit.validation_scores_))


@pytest.mark.long
@pytest.mark.parametrize("kind", mostly_soak([sd.SingaClassifier, sd.SingaRegressor], 2))
def test_a_fit_by_workers_is_that_in_this_thread(kind: Any, tmp_path: Path) -> None:
    x, y = (X, NAMES) if kind is sd.SingaClassifier else load_diabetes(return_X_y=True)
    here = kind(**QUICK, n_jobs=1).fit(x, y)
    run = kind(**QUICK, n_jobs=1, run_dir=str(tmp_path / "run")).fit(x, y)
    assert here.n_iter_ == run.n_iter_ < 60
    np.testing.assert_allclose(run.validation_scores_, here.validation_scores_, atol=1e-6)
    assert np.argmax(run.validation_scores_) < run.n_iter_ - 1
    np.testing.assert_array_equal(here.predict(x), run.predict(x))
    np.testing.assert_allclose(here.loss_curve_, run.loss_curve_, rtol=1e-6)
    assert run.best_validation_score_ == max(run.validation_scores_)
    assert run.best_loss_ is None
    # the run keeps the best values and the last ones
    assert len(list((tmp_path / "run" / "checkpoint").glob("step-*"))) == 2
    two = kind(**QUICK, cluster=TWO).fit(x, y)
    assert two.n_iter_ == here.n_iter_
    np.testing.assert_allclose(two.validation_scores_, here.validation_scores_, atol=1e-4)


@pytest.mark.long
def test_best_values_that_were_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # as if the checkpoint of the best epoch had taken too long
    monkeypatch.setattr(estimator, "find_steps", lambda url: dict([max(find_steps(url).items())]))
    fit = sd.SingaClassifier(**QUICK, run_dir=str(tmp_path / "run"))
    with pytest.warns(UserWarning, match=r"early_stopping: better values than those of step \d+ were not kept"):
        fit.fit(X, NAMES)
    assert fit.best_validation_score_ == fit.validation_scores_[-1] < max(fit.validation_scores_)
    newest = sd.load_model(fit.run_dir).predict_proba(X)
    np.testing.assert_allclose(fit.predict_proba(X), newest, rtol=1e-5)


@pytest.mark.long
def test_sparse_features_and_weights_of_classes(tmp_path: Path) -> None:
    given = {**QUICK, "n_jobs": 1, "class_weight": "balanced"}
    here = sd.SingaClassifier(**given).fit(sp.csr_matrix(X), NAMES)
    run = sd.SingaClassifier(**given, run_dir=str(tmp_path / "run")).fit(sp.csr_matrix(X), NAMES)
    assert here.validation_scores_ == pytest.approx(run.validation_scores_)
    np.testing.assert_allclose(here.predict_proba(X), run.predict_proba(X), rtol=1e-5)


@pytest.mark.long
def test_a_warm_start_goes_on_from_the_best_values(tmp_path: Path) -> None:
    fit = sd.SingaClassifier(**QUICK, warm_start=True, run_dir=str(tmp_path / "one")).fit(X, NAMES)
    expected, n = fit.predict_proba(X), fit.n_iter_
    fit.set_params(learning_rate_init=0.0, run_dir=str(tmp_path / "two")).fit(X, NAMES)
    np.testing.assert_allclose(fit.predict_proba(X), expected, rtol=1e-6)
    # each epoch has the score of the first one
    assert (len({*fit.validation_scores_}), fit.n_iter_ - n) == (1, 7)


# -- nets of one's own -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", ["allreduce", {"nworkers_per_group": 4}], ids=str)
def test_workers_can_share_the_batches_that_are_chosen(cluster: Any) -> None:
    """75 records, and no batch_size, are one batch for one worker."""
    kind = sd.SingaClassifier(cluster=cluster)
    job = default_job(kind, (75, 3), 2, "SoftmaxLoss", 1, 0, False)
    n = 2 if cluster == "allreduce" else 4
    assert job.conf.cluster.nworkers_per_group == n
    sizes = {layer.block(StoreConf).batchsize[0] for layer in job.conf.neuralnet.layer if layer.type == "RecordInput"}
    assert sizes == {75 // n * n}


@pytest.mark.parametrize("own_test", mostly_long([False, True], 2))
def test_a_job(own_test: bool, tmp_path: Path) -> None:
    job = some_job(test_freq=3, test_steps=1, metrics=["top_1_accuracy", "f1_macro"])
    if own_test:
        layers = [each.model_dump(exclude_unset=True) for each in job.conf.neuralnet.layer]
        inputs = [each for each in layers if "store_conf" in each]
        tests = [{**each, "include": ["test"]} for each in inputs]
        for each in inputs:
            each["include"] = ["train"]
        job = job.replace({"neuralnet.layer": [*tests, *layers]})
    fit = sd.SingaClassifier(job=job, **STOPS, random_state=0, run_dir=str(tmp_path / "run")).fit(X, NAMES)
    assert len(fit.validation_scores_) == fit.n_iter_ < 30
    np.testing.assert_allclose(np.array(fit.validation_scores_) * 30, np.round(np.array(fit.validation_scores_) * 30))
    steps = {int(each.name[5:]) for each in (tmp_path / "run" / "checkpoint").glob("step-*")}
    best = 4 * (int(np.argmax(fit.validation_scores_)) + 1)
    assert steps == {best, 4 * fit.n_iter_}
    expected = sd.load_model(fit.run_dir, step=best).predict_proba(X.astype(np.float32))
    np.testing.assert_allclose(fit.predict_proba(X), expected, rtol=1e-5)


# -- collections of Dask -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_records_of_dask_are_held_out_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    train = estimator.train

    def watched(job: Any, data: Any, **given: Any) -> Any:
        for name, dataset in data.items():
            seen[name] = [np.concatenate(each) for each in zip(*dask.compute(*dataset.parts), strict=True)]
        return train(job, data=data, **given)

    monkeypatch.setattr(estimator, "train", watched)
    rng = np.random.default_rng(0)
    x = np.stack([np.arange(500.0), rng.normal(size=500)], axis=1)
    y = x[:, 0] * 2 + 1
    # of partitions of one record none may be held out
    lazy = da.from_array(x, chunks=((200, 1, 1, 298), 2)), da.from_array(y, chunks=500)
    held_out = []
    for number, seed in enumerate((0, 0, 1)):
        run_dir = tmp_path / str(number)
        fit = sd.SingaRegressor(**{**QUICK, "random_state": seed, "max_iter": 3}, run_dir=str(run_dir)).fit(*lazy)
        # an epoch is 400 records in batches of 30
        assert (run_dir / "checkpoint" / "step-42").exists()
        rows = {}
        for name, (features, targets) in seen.items():
            rows[name] = features[:, 0].astype(int)
            np.testing.assert_allclose(targets[:, 0] * y.std() + y.mean(), y[rows[name]], rtol=1e-5)
        assert sorted([*rows["train"], *rows["held_out"]]) == list(range(500))
        assert len(rows["held_out"]) == 100
        # the score is that of these rows by the values that were kept
        expected = r2_score(y[rows["held_out"]], fit.predict(x[rows["held_out"]]))
        assert fit.best_validation_score_ == pytest.approx(expected, abs=1e-5)
        held_out.append(rows["held_out"])
    np.testing.assert_array_equal(held_out[0], held_out[1])
    assert set(held_out[0]) != set(held_out[2])


@pytest.mark.long
def test_rows_are_drawn_alike_from_all_partitions() -> None:
    lengths = (10, 0, 30, 1, 9)
    counts = sum(drawn(lengths, 20, seed).compute(scheduler="synchronous").astype(int) for seed in range(100))
    # of 100 draws of 20 among 50 each row is in 40, with a deviation of 5
    assert counts.sum() == 100 * 20
    assert 15 < counts.min() <= counts.max() < 65


def test_classes_of_dask() -> None:
    lazy = da.from_array(X, chunks=(40, 4)), da.from_array(NAMES, chunks=40)
    fit = sd.SingaClassifier(**QUICK, class_weight="balanced").fit(*lazy)
    assert fit.score(X, NAMES) > 0.9
    np.testing.assert_allclose(np.array(fit.validation_scores_) * 30, np.round(np.array(fit.validation_scores_) * 30))
    assert len(fit.validation_scores_) == fit.n_iter_


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_scores_that_workers_do_not_compute() -> None:
    lazy, labels = da.from_array(X), np.stack([Y > 0, Y > 1], axis=1).astype(int)
    fit = sd.SingaClassifier(**QUICK)
    with pytest.raises(ValueError, match=r"early_stopping: .* with sample_weight\. Leave one of the two out"):
        fit.fit(lazy, da.from_array(NAMES), da.ones(150))
    with pytest.raises(ValueError, match=r"early_stopping: .* with several labels\."):
        fit.fit(lazy, da.from_array(labels))
    with pytest.raises(ValueError, match=r"early_stopping: .* with several worker groups\."):
        sd.SingaClassifier(**QUICK, cluster="downpour").fit(X, NAMES)
    with pytest.raises(ValueError, match=r"validation_fraction: 0\.001 of 150 records are 1\. Expected at least two"):
        sd.SingaClassifier(**{**QUICK, "validation_fraction": 0.001}).fit(lazy, da.from_array(NAMES))
    with pytest.raises(ValueError, match=r"0\.999 of 150 records are 150\. Expected at least two, and others"):
        sd.SingaClassifier(**{**QUICK, "validation_fraction": 0.999}).fit(lazy, da.from_array(NAMES))


@pytest.mark.parametrize("given", [{"tol": 0.01}, {"n_iter_no_change": 3}])
def test_a_loss_that_ends_no_fit_by_workers_is_refused(given: dict[str, Any]) -> None:
    for where in ({"cluster": "allreduce"}, {"job": some_job()}):
        with pytest.raises(ValueError, match=r"tol, n_iter_no_change: .*Expected early_stopping=True, or the defaults"):
            sd.SingaClassifier(**where, **given).fit(X, NAMES)
    # more epochs than there are change nothing
    many = {**given, "n_iter_no_change": 3, "max_iter": 3}
    assert sd.SingaClassifier(job=some_job(), **many).fit(X, NAMES).n_iter_ == 3
