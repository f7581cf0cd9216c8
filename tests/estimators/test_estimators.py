"""Classifier and regressor: what they learn, keep, refuse, and leave behind."""

from __future__ import annotations

import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from click.testing import CliRunner
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import singa_dask as sd
from singa_dask.cli import main
from tests.selection import circles

Array = npt.NDArray[Any]

QUICK: dict[str, Any] = {"learning_rate_init": 0.02, "batch_size": 30, "max_iter": 15, "random_state": 3}


@pytest.fixture(scope="module")
def iris() -> tuple[Array, Array]:
    """Return features in their units, and names of species."""
    found = load_iris()
    return found.data, found.target_names[found.target]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory that temporary ones are made in."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_classifier(iris: tuple[Array, Array], temporary: Path, capfd: pytest.CaptureFixture[str]) -> None:
    x, y = iris
    found = sd.SingaClassifier(**QUICK).fit(x, y)
    assert list(found.classes_) == ["setosa", "versicolor", "virginica"]
    assert found.score(x, y) > 0.9
    probabilities = found.predict_proba(x)
    assert probabilities.shape == (150, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert (found.n_features_in_, found.n_iter_) == (4, 15)
    assert found.loss_curve_[-1] < found.loss_curve_[0] / 2
    assert not list(temporary.glob("singa-dask*"))
    out, err = capfd.readouterr()
    assert out == ""
    assert "singa" not in err
    # a value, that depends on the seed alone
    sent = pickle.loads(pickle.dumps(found))
    assert np.array_equal(sent.predict_proba(x), probabilities)
    assert np.array_equal(clone(found).fit(x, y).predict_proba(x), probabilities)
    assert not np.array_equal(clone(found).set_params(random_state=4).fit(x, y).predict_proba(x), probabilities)


@pytest.mark.parametrize("cluster", [None, "single"])
def test_each_epoch_is_told(iris: tuple[Array, Array], cluster: str | None) -> None:
    x, y = iris
    told: list[tuple[int, float]] = []
    net = sd.SingaClassifier(hidden_layer_sizes=(4,), batch_size=50, max_iter=3, random_state=1, cluster=cluster)
    net.fit(x, y, on_epoch=lambda epoch, loss: told.append((epoch, loss)))
    assert [epoch for epoch, _ in told] == [1, 2, 3]
    assert all(type(loss) is float and 0 < loss < 3 for _, loss in told)

    def fail(epoch: int, loss: float) -> None:
        raise KeyError(f"of epoch {epoch}")

    with pytest.raises(KeyError, match="of epoch 1"):
        net.fit(x, y, on_epoch=fail)


def test_a_regressor() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(5, 100, (120, 3))
    y = x @ [[1.0, -2.0], [0.5, 1.0], [3.0, 0.0]] * 1e4 + 7e6
    found = sd.SingaRegressor(**{**QUICK, "max_iter": 40}).fit(x, y)
    assert found.predict(x).shape == (120, 2)
    assert found.score(x, y) > 0.9
    one = clone(found).set_params(max_iter=1).fit(pd.DataFrame(x, columns=["a", "b", "c"]), pd.Series(y[:, 0]))
    assert one.predict(pd.DataFrame(x, columns=["a", "b", "c"])).shape == (120,)
    assert list(one.feature_names_in_) == ["a", "b", "c"]


@pytest.mark.long
def test_a_job_that_init_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads a CSV file by the names of its columns; here the data come from the caller."""
    monkeypatch.chdir(tmp_path)
    iris = load_iris(as_frame=True)
    names = iris.target_names[iris.target]
    for column, kind, file in ((names, "label", "iris.csv"), (iris.target * 2.5, "target", "values.csv")):
        iris.data.assign(kind=column).to_csv(file, index=False)
        done = CliRunner().invoke(main, ["init", file, f"--{kind}", "kind", "-o", file.replace("csv", "yaml")])
        assert done.exit_code == 0, done.output
    classes = sd.SingaClassifier(job="iris.yaml", max_iter=30)
    assert classes.fit(iris.data, names).score(iris.data, names) > 0.9
    values = sd.SingaRegressor(job="values.yaml", max_iter=30).fit(iris.data.to_numpy(), iris.target * 2.5)
    assert values.score(iris.data.to_numpy(), iris.target * 2.5) > 0.8


def test_a_job_that_names_columns_is_refused_with_what_to_write() -> None:
    frame = pd.DataFrame({"size": [0.0, 1.0] * 8, "colour": ["red", "blue"] * 8})
    keys: dict[str, Any] = {"path": "dask://train", "features": ["colour"], "shape": [1], "batchsize": 4}
    net = [
        sd.layer("RecordInput", name="colour", categories={"colour": []}, encoding="index", label="kind", **keys),
        sd.layer("Embedding", vocab_size=2, feature_dim=2, srclayers="colour"),
        sd.layer("SoftmaxLoss", srclayers=["embedding", "colour"]),
    ]
    sgd = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.1}}
    job = sd.Job(sd.Net(net), train_steps=9, train_one_batch={"alg": "BP"}, updater=sgd)
    with pytest.raises(sd.ConfigError, match=r"layers colour read columns by name.* call sd\.train\(job, data=frame\)"):
        sd.SingaClassifier(job=job).fit(frame, frame.colour)
    # what the message says to write
    run = sd.train(job, data=frame.assign(kind=frame.colour), progress=False)
    assert set(sd.predict(run, frame)) <= {"red", "blue"}


def test_a_net_of_a_job(tmp_path: Path) -> None:
    records = {"path": "anything.csv", "shape": [2, 3, 2], "batchsize": 16}
    net = [
        sd.layer("RecordInput", name="data", store_conf=records),
        sd.layer("Convolution", num_filters=4, kernel=1),
        sd.layer("InnerProduct", name="scores", num_output=2),
        sd.layer("SoftmaxLoss", srclayers=["scores", "data"]),
    ]
    sgd = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.1}}
    job = sd.Job(sd.Net(net), train_steps=9, train_one_batch={"alg": "BP"}, updater=sgd, test_freq=3, test_steps=1)
    job.save(tmp_path / "job.yaml")
    x = np.random.default_rng(0).normal(size=(48, 12)).astype(np.float32)
    y = (x.sum(axis=1) > 0).astype(int) + 5
    given = sd.SingaClassifier(job=tmp_path / "job.yaml", run_dir=str(tmp_path / "run"))
    found = given.fit(x, y)
    assert sd.load(tmp_path / "run" / "job.yaml").conf.train_steps == 9
    assert set(found.predict(x)) <= {5, 6}
    # records may have the shape of the job, and start from values of before
    run = sd.open_run(tmp_path / "run")
    again = sd.SingaClassifier(job=job, init_from=run, max_iter=1, learning_rate_init=0.0)
    again.fit(x.reshape(48, 2, 3, 2), y)
    np.testing.assert_allclose(again.predict_proba(x.reshape(48, 2, 3, 2)), found.predict_proba(x), rtol=1e-5)
    assert again.n_iter_ == 1


def test_the_last_of_equally_likely_classes_is_predicted_by_every_door(tmp_path: Path) -> None:
    x, y = np.ones((6, 2), np.float32), np.array([3, 5, 7] * 2)
    zeros = [{"name": name, "init": {"type": "Constant", "value": 0}} for name in ("weight", "bias")]
    net = [
        sd.layer("RecordInput", name="data", store_conf={"path": "any.csv", "shape": [2], "batchsize": 6}),
        sd.layer("InnerProduct", name="scores", num_output=3, param=zeros),
        sd.layer("SoftmaxLoss", srclayers=["scores", "data"]),
    ]
    sgd = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.0}}
    job = sd.Job(sd.Net(net), train_steps=1, train_one_batch={"alg": "BP"}, updater=sgd, test_freq=1, test_steps=1)
    fitted = sd.SingaClassifier(job=job, run_dir=str(tmp_path / "run")).fit(x, y)
    model = sd.load_model(tmp_path / "run")
    assert len(np.unique(fitted.predict_proba(x))) == 1
    lazy = da.from_array(x, chunks=(3, 2))
    for found in (fitted.predict(x), fitted.predict(lazy), model.predict(x), sd.predict(model, lazy)):
        assert np.asarray(found).tolist() == [7] * 6
    metrics = model.test(x, y, metrics=["confusion_matrix"])
    assert fitted.score(x, y) == pytest.approx(metrics["accuracy"]) == pytest.approx(1 / 3)
    assert metrics["confusion_matrix"].tolist() == [[0, 0, 2]] * 3


def test_collections_of_dask(iris: tuple[Array, Array]) -> None:
    x, y = iris
    ours = sd.SingaClassifier(**QUICK).fit(da.from_array(x, chunks=(60, 2)), da.from_array(y, chunks=50))
    assert ours.score(x, y) > 0.9
    found = ours.predict(da.from_array(x, chunks=(60, 2)))
    assert found.chunks == ((60, 60, 30),)
    assert np.array_equal(found.compute(), ours.predict(x))
    assert ours.predict_proba(da.from_array(x, chunks=(60, 4))).compute().shape == (150, 3)


def test_a_search_over_a_pipeline_on_dask_arrays(iris: tuple[Array, Array]) -> None:
    x, y = (da.from_array(each, chunks=50) for each in iris)
    pipeline = make_pipeline(FunctionTransformer(np.log1p), sd.SingaClassifier(**QUICK))
    grid = {"singaclassifier__hidden_layer_sizes": [(16,)]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(x, y)
    assert search.best_score_ > 0.8
    assert isinstance(search.predict(x), da.Array)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_of_dask_that_are_not_finite(iris: tuple[Array, Array], value: float) -> None:
    x, y = iris
    wrong = x.copy()
    wrong[70, 2] = value
    sound, bad = (da.from_array(each, chunks=(50, 4)) for each in (x, wrong))
    with pytest.raises(ValueError, match="Input X contains NaN or infinity"):
        sd.SingaClassifier().fit(bad, da.from_array(y, chunks=50))
    with pytest.raises(ValueError, match="Input y contains NaN or infinity"):
        sd.SingaRegressor().fit(sound, bad)
    fitted = sd.SingaRegressor(max_iter=1).fit(x, x[:, 0])
    with pytest.raises(ValueError, match="Input X contains"):
        fitted.predict(bad).compute()


@pytest.mark.parametrize("lazy", [False, True])
def test_masked_values_are_refused(iris: tuple[Array, Array], lazy: bool) -> None:
    x, y = iris[0], np.arange(150) % 2
    arrays = x, y, np.ones(150)
    masked = tuple(np.ma.masked_equal(each, each.flat[0]) for each in arrays)
    if lazy:
        arrays, masked = (tuple(da.from_array(each, chunks=75) for each in group) for group in (arrays, masked))
    for i, name in enumerate(("X", "y", "sample_weight")):
        with pytest.raises(ValueError, match=f"^{name} has masked values. Expected a value everywhere"):
            sd.SingaClassifier(**QUICK).fit(*arrays[:i], masked[i], *arrays[i + 1 :])
    with pytest.raises(ValueError, match=r"^X has masked values\."):
        sd.SingaClassifier(**QUICK).fit(x, y).predict(masked[0])


def test_partial_fits_of_a_classifier(iris: tuple[Array, Array], temporary: Path) -> None:
    x, y = iris
    found = sd.SingaClassifier(**QUICK)
    with pytest.raises(ValueError, match=r"classes: missing\. Pass"):
        found.partial_fit(x, y)
    # the scaling of the first call stays
    found.partial_fit(x[:100], y[:100], classes=np.unique(y))
    before = found.predict_proba(x)
    found.set_params(learning_rate_init=0.0).partial_fit(x[50:], y[50:])
    np.testing.assert_allclose(found.predict_proba(x), before, rtol=1e-5)
    assert (found.n_iter_, len(found.loss_curve_), len(found.classes_)) == (2, 4, 3)
    cases: list[tuple[Array, Array, Any, str]] = [
        (x, y, ["setosa", "virginica"], "Expected those of the first fit: setosa, versicolor, virginica"),
        (x, np.where(y == "setosa", "rose", y), None, "unknown classes: rose. Known: setosa"),
        (x[:, 1:], y, None, "3 features"),
    ]
    for records, labels, classes, message in cases:
        with pytest.raises(ValueError, match=message):
            found.partial_fit(records, labels, classes)
    assert not list(temporary.glob("singa-dask*"))


def test_partial_fits_of_a_regressor(iris: tuple[Array, Array]) -> None:
    x, _ = iris
    found = sd.SingaRegressor(**QUICK).partial_fit(x, x[:, :2]).partial_fit(x, x[:, :2])
    assert found.loss_curve_[-1] < found.loss_curve_[0]
    assert found.predict(x).shape == (150, 2)
    with pytest.raises(ValueError, match=r"y has 1 targets\. Expected 2"):
        found.partial_fit(x, x[:, 0])


def test_a_warm_start(iris: tuple[Array, Array], tmp_path: Path) -> None:
    x, y = iris
    found = sd.SingaClassifier(**QUICK, warm_start=True).fit(x, y)
    found.set_params(run_dir=str(tmp_path / "run")).fit(x, y)
    assert found.loss_curve_[16] < found.loss_curve_[0] / 4
    assert found.n_iter_ == 30
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
    found.set_params(hidden_layer_sizes=(7,), run_dir=None)
    with pytest.raises(ValueError, match=r"values belong to another net.*Call fit with warm_start=False"):
        found.fit(x, y)
    assert found.set_params(warm_start=False, max_iter=1).fit(x, y).n_iter_ == 1
    # nothing is left of a net whose successor failed
    with pytest.raises(ValueError, match="num_output"):
        found.set_params(hidden_layer_sizes=(0,)).fit(x, y)
    with pytest.raises(NotFittedError):
        found.predict(x)


def test_fits_in_threads(iris: tuple[Array, Array], temporary: Path, capfd: pytest.CaptureFixture[str]) -> None:
    x, y = iris
    fits = [sd.SingaClassifier(**{**QUICK, "max_iter": n}) for n in (1, 2, 3)]
    Parallel(n_jobs=3, backend="threading")(delayed(each.fit)(x, y) for each in fits)
    assert [len(each.loss_curve_) for each in fits] == [2, 3, 4]
    alone = clone(fits[2]).fit(x, y)
    assert np.array_equal(alone.predict_proba(x), fits[2].predict_proba(x))
    assert not list(temporary.glob("singa-dask*"))
    out, err = capfd.readouterr()
    assert out == ""
    assert "singa" not in err


def test_one_hidden_layer_as_a_number(iris: tuple[Array, Array]) -> None:
    found = [sd.SingaClassifier(sizes, max_iter=1, random_state=0).fit(*iris) for sizes in (7, (7,))]
    np.testing.assert_array_equal(*(each.predict_proba(iris[0]) for each in found))


def test_wrong_parameters_and_data(iris: tuple[Array, Array]) -> None:
    x, y = iris
    cases: list[tuple[dict[str, Any], str]] = [
        ({"activation": "rely"}, "unknown function 'rely'. Did you mean 'relu'"),
        ({"updater": "Adaam"}, "Did you mean 'Adam'"),
        ({"hidden_layer_sizes": (0,)}, "num_output"),
        ({"cluster": "allreduces"}, "allreduces"),
        ({"max_iter": 0}, "max_iter: 0. Expected an integer from 1 on"),
        ({"batch_size": 0}, "batch_size: 0. Expected an integer from 1 on"),
        ({"batch_size": "auto"}, "batch_size: auto. Expected an integer from 1 on, or None"),
        ({"init_from": "absent"}, "no such file or directory"),
    ]
    for given, message in cases:
        with pytest.raises(ValueError, match=message):
            sd.SingaClassifier(**given).fit(x, y)
    with pytest.raises(ValueError, match="Unknown label type"):
        sd.SingaClassifier().fit(x, x[:, 0])
    with pytest.raises(ValueError, match="150 records, but y has 3"):
        sd.SingaClassifier().fit(da.from_array(x), y[:3])


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(sd.ConfigError, match=r"pip install 'singa-dask\[sklearn\]'"):
        sd.SingaClassifier  # noqa: B018


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:y has only the class")
@pytest.mark.parametrize("kind", circles(["SingaClassifier", "SingaRegressor"]))
def test_the_contract_of_scikit_learn(kind: str) -> None:
    repeated = "its batches are of other records if a record is repeated in place of a weight"
    failing = {f"check_sample_weight_equivalence_on_{each}_data": repeated for each in ("dense", "sparse")}
    check_estimator(
        getattr(sd, kind)(learning_rate_init=0.02, batch_size=32, max_iter=15),
        on_skip=None,
        # as those of scikit-learn that are trained by stochastic gradients
        expected_failed_checks=failing,
    )


@pytest.mark.soak
def test_searches_in_processes(iris: tuple[Array, Array]) -> None:
    pipeline = make_pipeline(StandardScaler(), sd.SingaClassifier(**QUICK))
    grid = {"singaclassifier__hidden_layer_sizes": [(4,), (16,)]}
    search = GridSearchCV(pipeline, grid, n_jobs=2, cv=2, error_score="raise").fit(*iris)
    assert search.best_score_ > 0.9


def test_what_servers_do_is_refused_where_there_are_none() -> None:
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    updater = {"type": "SGD", "clip_norm": 1.0}
    with pytest.raises(
        sd.ConfigError, match=r"updater.clip_norm: needs servers, but this thread trains. Pass a client"
    ):
        sd.SingaClassifier(updater=updater, max_iter=2).fit(x, x[:, 0] > 0)
