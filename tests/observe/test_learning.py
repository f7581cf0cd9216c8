"""What is said about a run: baselines against scikit-learn's dummies and counts, and courses of losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, top_k_accuracy_score

from singa_dask.data.tables.scaling import Moments
from singa_dask.observe.learning import LABELS, STANDARDISE, sentences
from singa_dask.runtime.units.learning_observer import facts_of_workers

RNG = np.random.default_rng(1)


def counted(kind: str, found: Any, **more: Any) -> dict[str, Any]:
    """Return what a worker reports of the one loss of its test net."""
    facts = {"kind": kind, "counted": [np.asarray(each).tolist() for each in found], "names": [], "scale": 1.0}
    return {
        "answers": {"test": {"loss": {**facts, "topk": 1, "has_loss": True, **more}}},
        "broken": {},
        "changes": {},
    }


def of_classes(labels: np.ndarray, n_classes: int, **more: Any) -> dict[str, Any]:
    return counted("classes", np.bincount(labels, minlength=n_classes), **more)


def of_values(targets: np.ndarray, kind: str = "values") -> dict[str, Any]:
    return counted(kind, Moments.of(targets))


def values(reports: list[dict[str, Any]], phase: str = "test") -> dict[str, float]:
    return {name: each["value"] for name, each in facts_of_workers(reports)["baselines"][phase].items()}


def test_baselines_of_classes_are_those_of_a_dummy_for_any_number_of_workers() -> None:
    labels = RNG.choice(4, 900, p=[0.1, 0.2, 0.4, 0.3])
    x = np.zeros((900, 1))
    dummy = DummyClassifier(strategy="prior").fit(x, labels)
    expected = {
        "accuracy": accuracy_score(labels, dummy.predict(x)),
        "loss": log_loss(labels, dummy.predict_proba(x)),
    }
    for n_workers in (1, 2, 3):
        parts = [of_classes(part, 4) for part in np.split(np.sort(labels), n_workers)]
        assert values(parts) == pytest.approx(expected, abs=1e-12)
    found = facts_of_workers([of_classes(labels, 4, names=["a", "b", "c", "d"])])["baselines"]["test"]
    assert (found["accuracy"]["answer"], found["accuracy"]["records"]) == ("always saying 'c'", 900)
    two = top_k_accuracy_score(labels, dummy.predict_proba(x), k=2)
    assert values([of_classes(labels, 4, topk=2, has_loss=False)]) == pytest.approx({"accuracy": two}, abs=1e-12)


def test_baselines_of_numbers_and_of_several_labels() -> None:
    targets = RNG.normal(50, 3, (300, 2))
    mean = DummyRegressor().fit(targets, targets).predict(targets)
    expected = 2 * mean_squared_error(targets, mean)  # the loss is a sum over the targets
    assert values([of_values(targets[:100]), of_values(targets[100:])])["loss"] == pytest.approx(expected, rel=1e-9)
    tags = (RNG.random((300, 3)) < [0.2, 0.5, 0.9]).astype(float)
    found = values([of_values(tags, "labels")])
    often = (tags.mean(axis=0) > 0.5).astype(float)
    assert found["binary_accuracy"] == pytest.approx(np.mean(tags == often))
    assert found["loss"] == pytest.approx(np.mean([log_loss(t, np.full(300, t.mean())) for t in tags.T]))
    assert facts_of_workers([of_values(tags / 2, "labels")])["baselines"] == {}


def train(losses: Any, accuracies: Any = ()) -> list[dict[str, Any]]:
    """Return the events of a training."""
    found = [
        {"event": "metrics", "phase": "train", "group": 0, "step": i, "loss": float(y)} for i, y in enumerate(losses)
    ]
    for event, accuracy in zip(found, accuracies, strict=False):
        event["accuracy"] = float(accuracy)
    return found


def said(test: dict[str, float], losses: Any = (), facts: Any = None, steps: int = 500, **more: Any) -> list[str]:
    labels = np.repeat([0, 1], [630, 370])
    found = facts_of_workers([of_classes(labels, 2, names=["b", "c"]) | (facts or {})])
    accuracies = more.pop("accuracies", ())
    summary = {"steps": steps, "train": {}, "test": test, "validation": {}, **more.pop("summary", {})}
    return sentences(found, summary, train(losses, accuracies), **more)


FALLING = np.linspace(1, 0.3, 40) + RNG.normal(0, 0.05, 40)
CALM = "test accuracy 0.9000; always saying 'b' has 0.6300"


def test_a_run_that_has_learnt_has_one_line() -> None:
    good = {"accuracy": 0.9, "loss": 0.3}
    assert said(good, FALLING) == [CALM]
    assert said(good, [1.0, 0.3]) == [CALM]
    # most was learnt before the first report, and the rest is noise
    assert said(good, 0.3 + RNG.normal(0, 0.05, 40)) == [CALM]
    # little is left to learn: a rise of little is nothing
    assert said(good, np.concatenate([np.geomspace(1, 1e-4, 30), np.full(10, 2e-4)])) == [CALM]
    # of few records one is better than chance
    assert len(said({"accuracy": 0.66, "loss": 0.6}, FALLING)) == 1
    # a class is rare: the same answers, but better probabilities
    assert len(said({"accuracy": 0.63, "loss": 0.4}, FALLING)) == 1


def test_the_baseline_of_the_job_is_compared() -> None:
    job = {"baseline": {"accuracy": 0.92, "roc_auc": 0.88, "records": 1000}}
    better, shown = {"accuracy": 0.93, "loss": 0.2, "roc_auc": 0.9}, "the baseline has accuracy 0.9200, roc_auc 0.8800"
    line = f"test accuracy 0.9300, roc_auc 0.9000; always saying 'b' has 0.6300, roc_auc 0.5; {shown}"
    assert said(better, FALLING, job=job) == [line]
    lines = said({"accuracy": 0.93, "loss": 0.2, "roc_auc": 0.86}, FALLING, job=job)
    assert lines[1] == "warning: worse than the baseline of the job: its roc_auc is 0.88"
    assert "weight_decay" in lines[2] and "train_steps" in lines[2]
    # without the area the accuracy decides; a tenth of its standard error is chance
    assert "its accuracy is 0.92" in said({"accuracy": 0.9, "loss": 0.3}, FALLING, job=job)[1]
    assert len(said({"accuracy": 0.919, "loss": 0.3}, FALLING, job=job)) == 1
    # another test set
    assert said({"accuracy": 0.9, "loss": 0.3}, FALLING, job={"baseline": {"accuracy": 0.92, "records": 999}}) == [CALM]
    facts = facts_of_workers([of_values(np.repeat([0.0, 10.0], 50)[:, None])])
    summary = {"steps": 500, "train": {}, "validation": {}, "test": {"loss": 9.0}}
    lines = sentences(facts, summary, train(FALLING), job={"baseline": {"rmse": 2.5, "records": 100}})
    assert lines[0] == "test rmse 3; always saying the mean has 5; the baseline has rmse 2.5"
    assert lines[1] == "warning: worse than the baseline of the job: its rmse is 2.5"
    # the loss of the test is many times that of training
    assert lines[2] == "try a higher weight_decay or dropout_ratio, and fewer train_steps"
    lines = sentences(facts, summary, train(8 * FALLING), job={"baseline": {"rmse": 2.5, "records": 100}})
    assert "a higher weight_decay" in lines[2]
    lines = sentences(facts, summary, train(9 + FALLING), job={"baseline": {"rmse": 2.5, "records": 100}})
    assert "a lower weight_decay" in lines[2]


def test_the_step_of_the_last_test_is_told_and_one_before_training_is_no_result() -> None:
    labels = np.repeat([0, 1], [630, 370])
    facts = facts_of_workers([of_classes(labels, 2, names=["b", "c"])])
    summary = {"steps": 500, "train": {}, "validation": {}, "test": {"accuracy": 0.9, "loss": 0.3}}
    tested = {"event": "metrics", "phase": "test", "group": 0, **summary["test"]}
    curve = [*train(FALLING), {"event": "checkpoint", "step": 40, "url": "x"}]
    at = {step: sentences(facts, summary, [*curve, {**tested, "step": step}]) for step in (500, 400, 0)}
    assert at == {500: [CALM], 400: [CALM.replace(";", " at step 400;")], 0: []}


def test_no_better_than_the_largest_class() -> None:
    for accuracy, loss in ((0.63, 0.66), (0.5, 3.0), (0.64, 0.66), (0.2, float("nan"))):
        lines = said({"accuracy": accuracy, "loss": loss}, np.full(40, 0.66))
        assert "warning: no better than always saying 'b'" in lines
        assert any("has not fallen: 0.66 at first, 0.66 at last" in line for line in lines)
        assert "find-rate JOB.yaml" in lines[-1] and "standardise: true" in lines[-1]
    # ten steps prove nothing
    assert said({"accuracy": 0.63, "loss": 0.66}, np.full(40, 0.66), steps=10) == [
        "test accuracy 0.6300; always saying 'b' has 0.6300"
    ]


def test_a_rare_class_is_judged_by_the_balanced_accuracy() -> None:
    labels = np.repeat([0, 1], [940, 60])
    facts = facts_of_workers([of_classes(labels, 2, names=["no", "yes"])])

    def lines(**test: float) -> list[str]:
        summary = {"steps": 500, "train": {}, "validation": {}, "test": test}
        return sentences(facts, summary, train(FALLING))

    # all answers are the largest class, while the loss says that probabilities differ
    one = lines(accuracy=0.94, loss=0.18, balanced_accuracy=0.5)
    assert one[0] == "test accuracy 0.9400; always saying 'no' has 0.9400"
    assert one[1].startswith("warning: the likeliest class is nearly always the same") and "class_weights" in one[2]
    ranks = "test accuracy 0.9400, roc_auc 0.6100; always saying 'no' has 0.9400, roc_auc 0.5"
    assert lines(accuracy=0.94, loss=0.18, balanced_accuracy=0.5, roc_auc=0.61)[0] == ranks
    # classes that weights favour cost accuracy
    assert lines(accuracy=0.82, loss=0.5, balanced_accuracy=0.7) == [
        "test accuracy 0.8200; always saying 'no' has 0.9400"
    ]
    assert any(
        "no better than always saying 'no'" in each for each in lines(accuracy=0.94, loss=0.3, balanced_accuracy=0.5)
    )
    assert len(lines(accuracy=0.96, loss=0.1, balanced_accuracy=0.8)) == 1


@pytest.mark.parametrize("balanced", [0.5, 0.5034, 0.53])
@pytest.mark.parametrize("accuracy", [0.9395, 0.94, 0.9405])
def test_a_net_that_ranks_a_rare_class_has_learnt(accuracy: float, balanced: float) -> None:
    labels = np.repeat([0, 1], [9400, 600])
    facts = facts_of_workers([of_classes(labels, 2, names=["no", "yes"])])
    loss = 0.95 * values([of_classes(labels, 2)])["loss"]
    test = {"accuracy": accuracy, "loss": loss, "balanced_accuracy": balanced}

    def lines(job: dict[str, Any] | None = None, **more: float) -> list[str]:
        summary = {"steps": 500, "train": {}, "validation": {}, "test": {**test, **more}}
        return sentences(facts, summary, train(FALLING), job=job)

    said = lines()
    assert "nearly always the same" in said[1] and len(said) == 3
    assert all(each in said[2] for each in ("class_weights", "predict --proba", "--metrics auc"))
    assert "base_lr" not in said[2] and LABELS not in said[2]
    # the job computes it already
    assert "--metrics auc" not in lines({"metrics": ["roc_auc"]}, roc_auc=0.73)[2]
    # the ranks are right, while the probabilities are not
    assert "nearly always the same" in lines(loss=1.2 * loss, roc_auc=0.73)[1]
    assert "no better than" in lines(loss=1.2 * loss, roc_auc=0.53)[1]


def test_what_a_job_has_is_not_advised() -> None:
    store = {"standardise": True}
    layers = [{"type": "RecordInput", "store_conf": store}, {"type": "Dropout", "dropout_conf": {}}]
    job = {"neuralnet": {"layer": layers}, "updater": {"weight_decay": 0.1}, "early_stopping": None}
    nothing = {"accuracy": 0.63, "loss": 0.66}
    assert said(nothing, FALLING)[-1].split("; ")[1:] == [STANDARDISE, LABELS]
    assert said(nothing, FALLING, job=job)[-1].split("; ")[1:] == [LABELS]
    carried = {"accuracy": 0.7, "loss": 0.6}
    lines = said(carried, FALLING, accuracies=np.full(40, 0.94), job=job)
    assert lines[-1] == "try more records; early_stopping; whether the records of both are made in the same way"


def test_training_that_does_not_carry_over() -> None:
    lines = said({"accuracy": 0.7, "loss": 0.6}, FALLING, accuracies=np.full(40, 0.94))
    assert lines[1] == "warning: the accuracy is 0.94 in training, and 0.7 in the test"
    assert "early_stopping" in lines[-1] and len(lines) == 3


def test_a_loss_that_rises() -> None:
    lines = said({"accuracy": 0.9, "loss": 0.3}, np.linspace(1, 9e3, 30))
    assert lines[1].startswith("warning: the training loss has risen from 1 to") and "a lower base_lr" in lines[2]
    assert "gradients explode" in lines[1]


def test_params_that_do_not_change_are_told_unless_they_were_given() -> None:
    still = {"changes": {"w": 1e-8}}
    good = {"accuracy": 0.9, "loss": 0.3}
    assert said(good, FALLING, still)[1:] == [
        "warning: the params have hardly changed",
        "try a higher base_lr: singa-dask find-rate JOB.yaml proposes one",
    ]
    assert said(good, FALLING, still, is_fresh=False) == [CALM]
    # some alone are no mistake in a net that learns
    mixed = {"changes": {"w": 1e-8, "v": 500.0}}
    assert said(good, FALLING, mixed) == [CALM]
    lines = said({"accuracy": 0.5, "loss": 0.8}, FALLING, mixed)
    assert "warning: param 'w' has hardly changed, but other params have: its gradients vanish" in lines


def test_a_run_that_ends_too_early() -> None:
    good, job, n = {"accuracy": 0.9, "loss": 0.3}, {"train_steps": 500}, len(FALLING)
    (line,) = said(good, FALLING, job=job)[1:]
    assert line.startswith("still improving: the training loss fell from ")
    assert line.endswith("; train on with --resume --set train_steps=1000")
    # early stopping ended it, nothing is left to learn, or the rest is noise
    assert said(good, FALLING, steps=400, job=job) == [CALM]
    assert said(good, np.geomspace(1, 1e-4, n), job=job) == [CALM]
    assert said(good, 0.3 + RNG.normal(0, 0.05, n), job=job) == [CALM]
    tests = [{"event": "metrics", "phase": "test", "group": 0, "step": i, "loss": y} for i, y in enumerate((0.3, 0.4))]
    facts = facts_of_workers([of_classes(np.repeat([0, 1], [630, 370]), 2)])
    summary = {"steps": 500, "train": {}, "validation": {}, "test": good}
    # the test loss rises: more steps do not help
    assert len(sentences(facts, summary, [*train(FALLING), *tests], job=job)) == 1
    # the schedule has ended: more steps of it make none
    rated = [each | {"lr": lr} for each, lr in zip(train(FALLING), np.linspace(1, 0, n), strict=True)]
    line = sentences(facts, summary, [*rated, *tests[::-1]], job=job)[-1]
    assert "; train anew with --set train_steps=1000, because the learning rate" in line


def test_a_loss_without_a_baseline_has_to_fall() -> None:
    summary = {"steps": 500, "train": {}, "test": {}, "validation": {}}
    flat = train(np.full(40, 3.0))
    found = facts_of_workers([])
    assert sentences(found, summary, flat)[0] == "warning: the training loss has not fallen: 3 at first, 3 at last"
    assert sentences(found, summary, flat, is_fresh=False) == []
    assert sentences(found, summary, train(FALLING)) == []


def test_a_number_that_is_not_learnt() -> None:
    targets = RNG.normal(0, 1, (200, 1))
    facts = facts_of_workers([of_values(targets)])
    base = facts["baselines"]["test"]["loss"]["value"]
    summary = {"steps": 500, "train": {}, "test": {"loss": 0.1 * base}, "validation": {}}
    assert sentences(facts, summary, train(FALLING * base)) == [
        f"test rmse {np.sqrt(0.1 * base):.4g}; always saying the mean has {targets.std():.4g}"
    ]
    lines = sentences(facts, {**summary, "test": {"loss": base}}, train(np.linspace(base, 0.1 * base, 40)))
    assert "warning: no better than always saying the mean" in lines
    assert any(line.startswith("warning: the rmse is") for line in lines)


def test_workers_that_wait_for_cores() -> None:
    good = {"accuracy": 0.9, "loss": 0.3}

    def lines(cores_ms: float, steps: int, first_step: int = 0) -> list[str]:
        summary = {"wait_ms": {"cores": cores_ms}, "step_ms": {"median": 50.0}}
        return said(good, FALLING, steps=steps, summary=summary, first_step=first_step)

    assert lines(20.0, 1000) == [
        CALM,
        "warning: workers could run and had no core for 40% of a step: more threads than cores are busy on their host",
        "try fewer threads or workers on a host, or no other programs beside them",
    ]
    # little of a step, of a short run, or of a long one that had few steps left when it was resumed
    assert lines(2.0, 10_000) == lines(20.0, 200) == lines(20.0, 1000, first_step=800) == [CALM]
