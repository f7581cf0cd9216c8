"""Class names on their way: from the training data into checkpoints, and to every net that reads labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.conf import JobConf, Phase
from singa_dask.data.stores import open_store
from singa_dask.errors import ConfigError
from singa_dask.inference.inference_job import inference_job, with_data
from singa_dask.inference.stored_net import write_records
from singa_dask.inference.tasks import InferenceTask, inspect_net, plan_tasks
from singa_dask.runtime.checkpoints import lookup
from singa_dask.runtime.job.checks.job import check_job
from tests.contracts.foreign import example, frame, png
from tests.converting import convert
from tests.data.stores.test_class_names import picture_folder
from tests.runtime.harness import Outcome

CLASSES = {"ant": 10, "bee": 120, "cat": 250}
FEW = {"bee": 120, "cat": 250}


def job_of(train: str, test: str = "", **changes: Any) -> JobConf:
    """Return a job that tells the grey of pictures."""

    def data(url: str, phase: str) -> dict[str, Any]:
        backend = "" if "." in url.rpartition("/")[2] else "image-folder"
        store = {"backend": backend, "path": url, "batchsize": [2], "shape": [3, 4, 4], "mean_value": 120.0}
        return {
            "name": "data",
            "type": "RecordInput",
            "store_conf": {**store, "std_value": 100.0, "shuffle": "full"},
            "include": [phase],
        }

    params = [
        {"name": "w", "init": {"type": "Gaussian", "std": 0.01}},
        {"name": "b", "init": {"type": "Constant", "value": 0.0}},
    ]
    layers = [
        data(train, "train"),
        data(test or train, "test"),
        {
            "name": "fc",
            "type": "InnerProduct",
            "srclayers": ["data"],
            "innerproduct_conf": {"num_output": 3},
            "param": params,
        },
        {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["fc", "data"]},
    ]
    return JobConf.model_validate(
        {
            "name": "greys",
            "train_steps": 150,
            "test_freq": 150,
            "test_steps": 2,
            "disp_freq": 0,
            "threads": 1,
            "train_one_batch": {"alg": "BP"},
            "updater": {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.2}},
            "cluster": {},
            "neuralnet": {"layer": layers},
            **changes,
        }
    )


def figures_of(job: JobConf, url: str) -> dict[str, float]:
    """Return the figures of a checkpoint."""
    part = InferenceTask(inference_job(job, Phase.TEST, in_order=True).job.model_dump_json(), int(Phase.TEST), (url,))
    done = [each() for each in plan_tasks(part, inspect_net(part), 2, 1)]
    return {name: total / count for name, (total, count) in done[-1].metrics[-1].items()}


@pytest.mark.parametrize("to", ["", "x.arrow", "x.bin"])
def test_a_test_with_fewer_classes_is_right_by_name(to: str, tmp_path: Path, run_job: Callable[..., Outcome]) -> None:
    train = picture_folder(tmp_path / "train", CLASSES)
    test = picture_folder(tmp_path / "test", FEW)
    if to:
        convert("image-folder", [test], test := str(tmp_path / to))
    job = job_of(train, test)
    check_job(job)
    outcome = run_job(job)
    assert [report["state"] for report in outcome.reports.values()] == ["done", "done"], outcome.reports
    assert outcome.metric("accuracy", "test")[150] == 1.0
    manifest = json.loads(fs.read_bytes(fs.join(lookup.find(outcome.url), "manifest.json")))
    assert manifest["class_names"] == {"data": ["ant", "bee", "cat"]}
    # and by the checkpoint alone, at which the training data is not looked at
    fs.remove_tree(train)
    assert figures_of(job, outcome.url)["accuracy"] == 1.0


def test_unknown_classes_are_refused_with_both_lists(tmp_path: Path, run_job: Callable[..., Outcome]) -> None:
    train = picture_folder(tmp_path / "train", CLASSES)
    test = picture_folder(tmp_path / "test", {**FEW, "dog": 7})
    message = r"test: unknown class names: dog\. .* are bee, cat, dog\. Expected .* classes of training: ant, bee, cat"
    with pytest.raises(ConfigError, match=message) as caught:
        check_job(job_of(train, test))
    assert caught.value.problems[0].path == ("neuralnet", "layer", 1, "store_conf", "path")
    # as well where only the workers see the records
    outcome = run_job(job_of(train, test))
    assert any("unknown class names: dog" in report.get("reason", "") for report in outcome.reports.values())
    outcome = run_job(job_of(train))
    with pytest.raises(ConfigError, match="unknown class names: dog"):
        figures_of(job_of(train, test), outcome.url)


def test_a_resumed_run_keeps_the_meaning_of_labels(tmp_path: Path, run_job: Callable[..., Outcome]) -> None:
    train = picture_folder(tmp_path / "train", CLASSES)
    first = run_job(job_of(train))
    step = lookup.find(first.url)
    few = picture_folder(tmp_path / "few", FEW, 3)
    longer = job_of(few, train, train_steps=152, test_freq=152)
    check_job(longer, resume=step)
    again = run_job(longer, step)
    assert {report["state"] for report in again.reports.values()} == {"done"}, again.reports
    assert again.metric("accuracy", "test")[152] == 1.0
    other = picture_folder(tmp_path / "other", {"dog": 7, **FEW}, 2)
    with pytest.raises(ConfigError, match=r"unknown class names: dog\. .* of the checkpoint: ant, bee, cat"):
        check_job(job_of(other, train), resume=step)
    # values alone: classes of the checkpoint keep their labels, other training data brings its own
    nets = check_job(job_of(few, train), init_from=[step])
    assert nets[Phase.TRAIN].context.knowledge.find("data") == ("ant", "bee", "cat")
    nets = check_job(job_of(other), init_from=[step])
    assert nets[Phase.TRAIN].context.knowledge.find("data") == ("bee", "cat", "dog")


def test_predictions_know_the_names_and_need_none_of_the_data(tmp_path: Path, run_job: Callable[..., Outcome]) -> None:
    job = job_of(picture_folder(tmp_path / "train", CLASSES))
    url = run_job(job).url
    for classes in (FEW, {"unknown": 250}):
        data = picture_folder(tmp_path / f"new{len(classes)}", classes)
        new = with_data(inference_job(job, Phase.TEST, in_order=True, exposed=True).job, ["data"], data, "image-folder")
        part = InferenceTask(new.model_dump_json(), int(Phase.TEST), (url,), ("loss",), labels=True, topk=1)
        facts = inspect_net(part)
        assert facts.class_names == (("ant", "bee", "cat"),)
        done = [each() for each in plan_tasks(part, facts, 0, 1)]
        count = write_records(done, 0, out := str(tmp_path / f"out{len(classes)}.arrow"), "arrow", *facts.class_names)
        with open_store(out) as store:
            assert (store.count, store.class_names) == (count, *facts.class_names)
            records = store.read_block(0)
        assert records["data"][:, 0].tolist() == [1, 1, 2, 2] if classes is FEW else [2, 2]
        assert ("label" in records) == (classes is FEW)
        if classes is FEW:
            np.testing.assert_array_equal(records["label"], [1, 1, 2, 2])


def test_names_of_lists_and_tfrecords_are_compared_and_shown(tmp_path: Path, run_job: Callable[..., Outcome]) -> None:
    picture_folder(tmp_path, CLASSES, 2)
    listed, records = tmp_path / "list.txt", tmp_path / "test.tfrecord"
    listed.write_text("".join(f"{name}/{i}.png {name}\n" for name in CLASSES for i in range(2)))

    def given(classes: list[str]) -> JobConf:
        """Return a job that tests on records of two classes, numbered in the order of ``classes``."""
        images = [np.full((3, 4, 4), CLASSES.get(name, 0), np.uint8) for name in classes[:2]]
        messages = [example({"image/encoded": png(x), "image/class/label": i}) for i, x in enumerate(images)]
        records.write_bytes(b"".join(map(frame, messages)))
        made = job_of(str(listed), str(records)).model_dump(exclude_unset=True)
        train, test = made["neuralnet"]["layer"][:2]
        train["store_conf"] |= {"backend": "image-list"}
        test["store_conf"] |= {"backend": "tfrecord", "user_conf": {"classes": classes}}
        return JobConf.model_validate(made)

    with pytest.raises(ConfigError, match=r"test.tfrecord: unknown class names: dog. .* of training: ant, bee, cat"):
        check_job(given(["cat", "dog"]))
    job = given(["cat", "ant"])
    check_job(job)
    outcome = run_job(job)
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports
    assert outcome.metric("accuracy", "test")[150] == 1.0
    # the names of the job's records are not those of new ones
    exposed = inference_job(job, Phase.TEST, in_order=True, exposed=True).job
    new = with_data(exposed, ["data"], str(tmp_path / "bee"), "image-folder")
    part = InferenceTask(new.model_dump_json(), int(Phase.TEST), (outcome.url,), ("loss",), labels=False, topk=1)
    facts = inspect_net(part)
    assert facts.class_names == (("ant", "bee", "cat"),)
    done = [each() for each in plan_tasks(part, facts, 0, 1)]
    assert done[0].arrays[0]["data"][:, 0].tolist() == [1, 1]
