"""The end of a run says whether the net has learnt: one line if it has, else what is wrong and what to try."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import singa_dask as sd
from singa_dask.runtime.checkpoints.lookup import load_values
from singa_dask.runtime.units.learning_observer import LearningObserver
from singa_dask.training import BP
from tests.selection import circles

pytestmark = pytest.mark.cluster
RNG = np.random.default_rng(0)
N, N_TRAIN = 1200, 900
LABELS = RNG.integers(0, 4, N)
RECORDS = (2 * RNG.normal(size=(4, 12))[LABELS] + RNG.normal(size=(N, 12))).astype(np.float32)
NOISE = RNG.permutation(LABELS)
LARGEST = f"always saying '{np.bincount(LABELS[N_TRAIN:]).argmax()}'"


def data(labels: np.ndarray = LABELS, n: int = N_TRAIN) -> dict[str, Any]:
    return {"train": (RECORDS[:n], labels[:n]), "test": (RECORDS[N_TRAIN:], labels[N_TRAIN:])}


def fc(name: str, n: int, value: float | None = None, bias: float = 0.0) -> dict[str, Any]:
    init = [] if value is None else [{"name": f"{name}w", "init": {"type": "Constant", "value": value}}]
    init = init or [{"name": f"{name}w"}]
    bias_param = {"name": f"{name}b", "init": {"type": "Constant", "value": bias}}
    return sd.layer("InnerProduct", name=name, num_output=n, param=[*init, bias_param])


def relu(name: str = "relu1") -> dict[str, Any]:
    return sd.layer("ReLU", name=name)


def job(
    *layers: dict[str, Any],
    rate: float = 0.05,
    batch: int = 30,
    steps: int = 300,
    test: bool = True,
    test_size: int = 100,
    **keys: Any,
) -> sd.Job:
    """Return a job for four classes."""
    first, *rest = layers or (fc("fc1", 32), relu(), fc("fc2", 4))
    inputs = []
    for phase, size in (("train", batch), ("test", test_size)) if test else (("train", batch),):
        records = {"path": f"dask://{phase}", "shape": [12], "batchsize": size, "shuffle": "full"}
        inputs.append(sd.layer("RecordInput", name="data", store_conf=records, include=phase))
    body = [{**first, "srclayers": ["data"]}, *rest]
    net = sd.Net([*inputs, *body, sd.layer("SoftmaxLoss", name="loss", srclayers=[body[-1]["name"], "data"])])
    sgd = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": rate}}
    tests = {"test_freq": steps, "test_steps": 3} if test else {}
    given = {"name": "t", "seed": 3, "train_steps": steps, "disp_freq": 10, "train_one_batch": {"alg": "BP"}}
    return sd.Job(net, **{**given, "updater": sgd, **tests, **keys})


def run(made: sd.Job, given: dict[str, Any], folder: Any, **options: Any) -> list[str]:
    summary = sd.train(made, data=given, run_dir=str(folder / "run"), progress=False, **options).summary
    assert summary["state"] == "done"
    lines: list[str] = summary["learning"]["sentences"]
    return lines


def test_the_result_is_of_the_params_that_commands_use(tmp_path: Path) -> None:
    watched = {"metric": "test.loss", "patience": 2, "restore_best": True}
    # half of the labels are noise: a net that learns few of these records by heart gets worse at others
    given = data(np.where(np.arange(N) % 2, LABELS, NOISE), n=60)
    made = job(rate=0.3, steps=300, early_stopping=watched, test_freq=5)
    trained = sd.train(made, data=given, run_dir=str(tmp_path / "run"), progress=False)
    best = trained.summary["best_step"]
    assert 0 < best < trained.summary["steps"]
    tested = sd.test(trained, *given["test"])
    assert trained.summary["test"]["loss"] == pytest.approx(tested["loss"], rel=1e-5)
    assert f" at step {best}; " in trained.summary["learning"]["sentences"][0]


def test_a_net_that_learns_has_one_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    made = sd.train(job(), data=data(), run_dir=str(tmp_path / "run"))
    # beside other programs a run says that, too
    [line] = [each for each in made.summary["learning"]["sentences"] if "had no core" not in each]
    share = np.bincount(LABELS[N_TRAIN:]).max() / 300
    assert line == f"test accuracy {made.summary['test']['accuracy']:.4f}; {LARGEST} has {share:.4f}"
    assert line in capsys.readouterr().err


DEEP = [each for i in range(10) for each in (fc(f"fc{i}", 16), sd.layer("Sigmoid", name=f"s{i}"))]
ZERO = [fc("fc1", 32, 0.0), relu(), fc("fc2", 4, 0.0)]
DEAD = [fc("fc1", 32, bias=-1000.0), relu(), fc("fc2", 4)]
ILL: dict[str, tuple[sd.Job, np.ndarray, str, str]] = {
    "labels that say nothing": (job(), NOISE, f"no better than {LARGEST}", "whether each label belongs to its record"),
    "zeros": (job(*ZERO), LABELS, "all units of layer 'fc1' have equal weights", "random initial values"),
    "dead units": (job(*DEAD), LABELS, "the units of layer 'relu1' are 0 for all records", "LeakyReLU"),
    "vanishing": (job(*DEEP, fc("out", 4)), LABELS, "its gradients vanish", "ReLU in place of"),
    "a rate too low": (job(rate=1e-9), LABELS, "the params have hardly changed", "a higher base_lr"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name == "vanishing" else name for name in ILL]
)
def test_what_is_wrong_is_told_with_what_to_try(name: str, tmp_path: Any) -> None:
    made, labels, text, remedy = ILL[name]
    lines = run(made, data(labels), tmp_path)
    assert any(line.startswith("warning: ") and text in line for line in lines[1:-1]), lines
    assert lines[-1].startswith("try ") and remedy in lines[-1]


def test_a_batch_norm_of_single_records_is_told_before_and_after(tmp_path: Any) -> None:
    made = job(fc("fc1", 8), sd.layer("BatchNorm", name="bn"), relu(), fc("fc2", 4), batch=1, steps=100)
    with pytest.warns(UserWarning, match=r"layer\[bn\]: in training this layer normalises one value"):
        lines = run(made, data(), tmp_path)
    assert "warning: BatchNorm 'bn' normalises batches of one value, so its output is constant" in lines
    assert lines[-1] == "try a larger batchsize"
    assert not [
        each for each in job(fc("fc1", 8), sd.layer("BatchNorm", name="bn"), fc("fc2", 4)).warnings() if "bn" in each
    ]


@pytest.mark.long
def test_a_rate_of_a_million(tmp_path: Any) -> None:
    # sigmoids do not overflow: the loss stays finite
    rate = {"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 1e6}}
    layers = (fc("fc1", 16), sd.layer("Sigmoid", name="s"), fc("fc2", 4))
    lines = run(job(*layers, updater=rate), data(NOISE), tmp_path)
    assert any("has risen from" in line for line in lines)
    assert "a lower base_lr" in lines[-1]


@pytest.mark.long
def test_few_records_learnt_by_heart(tmp_path: Any) -> None:
    lines = run(job(rate=0.2, steps=1000), data(NOISE, 40), tmp_path)
    assert any("in training, and" in line for line in lines) and "early_stopping" in lines[-1]


def test_an_algorithm_that_reads_no_records_trains(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BP, "train_one_batch", lambda self, step: None)
    assert not any(
        "always saying" in line for line in run(job(steps=5, test=False), {"train": data()["train"]}, tmp_path)
    )


def test_ten_steps_are_not_judged(tmp_path: Any) -> None:
    assert len(run(job(steps=10), data(NOISE), tmp_path)) == 1


@pytest.mark.parametrize("cluster", circles([((1, 1),), ((1, 2),), ((2, 1),)], long=1))
def test_all_workers_of_a_group_count_each_record_of_the_first_epoch_once(
    cluster: tuple[int, int], tmp_path: Any
) -> None:
    n_groups, n_workers = cluster
    topology = {"nworker_groups": n_groups, "nworkers_per_group": n_workers, "nservers_per_group": 1}
    made = job(test=False, steps=90, cluster=topology).replace({"neuralnet.partition_dim": 0})
    run = sd.train(made, data={"train": data()["train"]}, run_dir=str(tmp_path / "run"), progress=False)
    found = run.summary["learning"]["baselines"]["train"]["accuracy"]
    # groups read different records
    assert found["records"] == N_TRAIN // n_groups
    if n_groups == 1:
        label, count = Counter(LABELS[:N_TRAIN].tolist()).most_common(1)[0]
        assert (found["answer"], found["value"]) == (f"always saying '{label}'", count / N_TRAIN)


@pytest.mark.long
def test_a_test_of_all_records_counts_the_last_batch_too(tmp_path: Any) -> None:
    # 300 records in batches of 100, or of 80 and a last one of 60
    for size in (100, 80):
        made = job(steps=60, test_size=size, test_steps=None)
        run = sd.train(made, data=data(), run_dir=str(tmp_path / str(size)), progress=False)
        found = run.summary["learning"]["baselines"]["test"]["accuracy"]
        assert (found["records"], found["value"]) == (300, np.bincount(LABELS[N_TRAIN:]).max() / 300)


@pytest.mark.long
def test_a_run_that_goes_on_is_judged_as_a_whole(tmp_path: Any) -> None:
    made = job(steps=100)
    assert len(run(made, data(), tmp_path)) == 1
    lines = run(
        made.replace({"train_steps": 200, "updater.learning_rate.base_lr": 1e-12}), data(), tmp_path, resume=True
    )
    # its own loss has not fallen, and params have not changed; they had been good
    assert len(lines) == 1 and lines[0].startswith("test accuracy ")


def test_nothing_changes_the_bits(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(name: str) -> dict[str, bytes]:
        url = sd.train(
            job(test=False, steps=60), data={"train": data()["train"]}, run_dir=str(tmp_path / name), progress=False
        ).url
        return {key: stored.values.tobytes() for key, stored in load_values(url).items()}

    noted = trained("noted")
    for name in ("begin", "after_step"):
        monkeypatch.setattr(LearningObserver, name, lambda *arguments: None)
    monkeypatch.setattr(LearningObserver, "facts", lambda self: {})
    assert trained("not") == noted


def test_params_that_are_frozen_by_a_pattern_are_not_looked_at(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    facts = LearningObserver.facts
    monkeypatch.setattr(LearningObserver, "facts", lambda self: told.append(facts(self)) or told[-1])
    updater = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.05}}
    for scales, looked_at in (([], {"fc1w", "fc2w"}), ([{"param": "fc1*", "lr_scale": 0}], {"fc2w"})):
        run(job(steps=20, updater={**updater, "scales": scales}), data(), tmp_path / str(len(told)))
        assert told[-1]["changes"].keys() == looked_at
