"""Tables with named columns in jobs: what training learns of columns goes into checkpoints and to other nets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singa_dask import fs
from singa_dask.conf import ClusterConf, JobConf, Phase
from singa_dask.errors import ConfigError, DataError
from singa_dask.inference import tasks
from singa_dask.inference.inference_job import inference_job, with_data
from singa_dask.inference.output_decoder import OutputDecoder
from singa_dask.inference.predicted_layers import label_layer
from singa_dask.inference.stored_values import LayerValues, Predicted
from singa_dask.inference.tasks import InferenceTask, inspect_net, plan_tasks
from singa_dask.runtime.checkpoints import lookup
from singa_dask.runtime.job import dask_tasks
from singa_dask.runtime.job.checks.job import check_job
from singa_dask.runtime.planning.nets import build_nets
from tests.converting import convert
from tests.runtime.harness import Outcome
from tests.runtime.processes import small_cluster

TRAIN = "place,size,kind\n" + "north,1,big\nsouth,,small\nnorth,3,big\nsouth,0,small\n" * 4
TEST = "kind,size,place\nbig,,north\nsmall,0,south\n"


def job_of(train: str, test: str, *, loss: str = "SoftmaxLoss", n: int = 2, **changes: Any) -> JobConf:
    """Return a job that tells kinds by place and size, or predicts the size."""
    columns: dict[str, Any] = {
        "features": ["place", "size"],
        "categories": {"place": []},
        "label": "kind",
        "shape": [3],
        "missing": "mean",
        **changes,
    }

    def data(kind: str, name: str, url: str, phase: str) -> dict[str, Any]:
        table = {} if url.endswith(".arrow") else columns
        store = {"path": url, "batchsize": [2], "shape": [3], **table}
        return {"name": name, "type": kind, "include": [phase], "store_conf": store}

    inputs = [data("RecordInput", "data", train, "train"), data("RecordInput", "data", test, "test")]
    if "target" in changes:
        inputs += [data("TargetInput", "size", train, "train"), data("TargetInput", "size", test, "test")]
    params = [{"name": "w", "init": {"type": "Gaussian", "std": 0.01}}, {"name": "b", "init": {"type": "Constant"}}]
    fc = {"name": "fc", "type": "InnerProduct", "srclayers": ["data"], "innerproduct_conf": {"num_output": n}}
    ends = {"name": "loss", "type": loss, "srclayers": ["fc", "size" if "target" in changes else "data"]}
    return JobConf.model_validate(
        {
            "name": "kinds",
            "train_steps": 60,
            "test_freq": 60,
            "test_steps": 1,
            "disp_freq": 0,
            "threads": 1,
            "train_one_batch": {"alg": "BP"},
            "updater": {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.1}},
            "cluster": {},
            "neuralnet": {"layer": [*inputs, {**fc, "param": params}, ends]},
        }
    )


@pytest.fixture
def tables(tmp_path: Path) -> tuple[str, str]:
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text(TRAIN)
    test.write_text(TEST)
    return str(train), str(test)


def metrics_of(job: JobConf, url: str) -> dict[str, float]:
    """Return the metrics of a checkpoint."""
    part = InferenceTask(inference_job(job, Phase.TEST, in_order=True).job.model_dump_json(), int(Phase.TEST), (url,))
    done = [each() for each in plan_tasks(part, inspect_net(part), 1, 1)]
    return {name: total / count for name, (total, count) in done[-1].metrics[-1].items()}


def test_a_task_takes_its_part_of_the_memory_of_its_dask_worker(
    tables: tuple[str, str], run_job: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dask_tasks.task_memory() is None
    with small_cluster(1, 2) as cluster, cluster.get_client() as client:
        whole = cluster.workers[0].memory_manager.memory_limit
        assert whole and client.submit(dask_tasks.task_memory).result() == whole // 2
    job = job_of(*tables)
    check_job(job)
    outcome = run_job(job)
    monkeypatch.setattr(tasks, "task_memory", lambda: 3)
    with pytest.raises(DataError, match=r"test\.csv, block 0: .* The memory of the process allows this reader"):
        metrics_of(job, outcome.url)


def test_training_learns_columns_and_tests_use_them(
    tables: tuple[str, str], tmp_path: Path, run_job: Callable[..., Outcome]
) -> None:
    job = job_of(*tables)
    check_job(job)
    outcome = run_job(job)
    assert [report["state"] for report in outcome.reports.values()] == ["done", "done"], outcome.reports
    assert outcome.metric("accuracy", "test")[60] == 1.0
    manifest = json.loads(fs.read_bytes(fs.join(lookup.find(outcome.url), "manifest.json")))
    assert manifest["class_names"] == {"data": ["big", "small"]}
    assert manifest["tables"]["data"]["means"] == {"size": 4 / 3}
    assert manifest["tables"]["data"]["categories"] == {"place": ["north", "south"]}
    # the training data is not looked at again
    fs.remove_tree(tables[0])
    assert metrics_of(job, outcome.url)["accuracy"] == 1.0
    new = tmp_path / "new.csv"
    new.write_text("size,place\n,south\n1,west\n")
    changed = with_data(inference_job(job, Phase.TEST, in_order=True).job, ["data"], str(new), None)
    part = InferenceTask(changed.model_dump_json(), int(Phase.TEST), (outcome.url,), ("fc",), labels=False, topk=1)
    facts = inspect_net(part)
    assert (facts.n_records, facts.class_names) == (2, (("big", "small"),))
    with pytest.raises(Exception, match=r"new.csv, .*line 3, column 'place': unknown category 'west'"):
        plan_tasks(part, facts, 1, 1)[0]()


def test_a_test_set_may_write_the_same_values_in_another_way(
    tables: tuple[str, str], tmp_path: Path, run_job: Callable[..., Outcome]
) -> None:
    """Booleans and accents: learned from CSV, tested on Parquet and on CSV."""
    Path(tables[0]).write_text(TRAIN.replace("north", "True").replace("south", "False").replace("big", "caf\u00e9"))
    kinds = ["cafe\u0301", "small"]
    pq.write_table(pa.table({"kind": kinds, "size": [1, 0], "place": [True, False]}), tmp_path / "test.parquet")
    Path(tables[1]).write_text(f"kind,size,place\n {kinds[0]} ,1, TRUE\nsmall, 0 ,false\n")
    for test in (str(tmp_path / "test.parquet"), tables[1]):
        outcome = run_job(job_of(tables[0], test))
        assert outcome.metric("accuracy", "test")[60] == 1.0


def test_a_test_set_must_mean_the_same(tables: tuple[str, str]) -> None:
    Path(tables[1]).write_text("kind,size\nbig,1\n")
    with pytest.raises(ConfigError, match=r"test.csv: column 'place' is missing. Columns: kind, size"):
        check_job(job_of(*tables))
    with pytest.raises(ConfigError, match=r"train.csv: records \(place=north, place=south, size\) of \(3,\), expected"):
        check_job(job_of(*tables, shape=[2]))


def test_converted_tables_keep_names_and_categories(tables: tuple[str, str], tmp_path: Path) -> None:
    reading = {"features": ["place", "size"], "label": "kind", "missing": "mean", "categories": {"place": []}}
    Path(tables[1]).write_text(TEST)
    urls = [str(tmp_path / name) for name in ("train.arrow", "test.arrow")]
    convert("table", [tables[0]], urls[0], reading=reading)
    convert("table", [tables[1]], urls[1], reading={**reading, "missing": 0})
    check_job(job_of(*urls))
    Path(tables[1]).write_text(TEST.replace("south", "east"))
    convert("table", [tables[1]], urls[1], reading={**reading, "missing": 0})
    with pytest.raises(ConfigError, match=r"test.arrow: values of place=east, place=north, size, but place=north, "):
        check_job(job_of(*urls))


def test_a_target_is_the_second_source_of_a_loss(tables: tuple[str, str], run_job: Callable[..., Outcome]) -> None:
    keys = {"features": ["place"], "label": "", "target": ["size"], "shape": [2], "missing": "skip"}
    job = job_of(*tables, loss="EuclideanLoss", n=1, **keys)
    Path(tables[1]).write_text("place,size\nnorth,2\nsouth,0\nnorth,\n")
    check_job(job)
    outcome = run_job(job)
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports
    assert outcome.metric("loss", "test")[60] < 0.3


LABELLED = "place,size,kind,grade\n" + "north,1,big,A\nsouth,0,small,B\nnorth,0,small,A\nsouth,1,big,B\n" * 4


def job_of_two(train: str, test: str, columns: tuple[str, str] = ("kind", "grade"), **changes: Any) -> JobConf:
    """Return a job that tells kind and grade by place and size, with a loss for each."""
    layers: list[dict[str, Any]] = []
    for url, phase in ((train, "train"), (test, "test")):
        store: dict[str, Any] = {"path": url, "batchsize": [4], "shape": [3], "shuffle": "full"}
        if not url.endswith(".arrow"):
            store |= {"features": ["place", "size"], "categories": {"place": []}, "label": list(columns)}
        store |= changes
        layers.append({"name": "data", "type": "RecordInput", "include": [phase], "store_conf": store})
        for name in columns:
            chosen = {"store_conf": store, "label_conf": {"column": name}}
            layers.append({"name": name, "type": "LabelInput", "include": [phase], **chosen})
    one = job_of(train, test).neuralnet.layer[2].model_dump(exclude_unset=True)
    for name in columns:
        params = [{**param, "name": f"{name}-{i}"} for i, param in enumerate(one["param"])]
        layers.append({**one, "name": f"fc-{name}", "param": params})
        layers.append({"name": f"loss-{name}", "type": "SoftmaxLoss", "srclayers": [f"fc-{name}", name]})
    updater = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 1.0}}
    given = job_of(train, test).model_dump(exclude_unset=True)
    return JobConf.model_validate({**given, "updater": updater, "neuralnet": {"layer": layers}})


def test_several_labels_feed_several_losses(tmp_path: Path, run_job: Callable[..., Outcome]) -> None:
    train, test, new = (tmp_path / name for name in ("train.csv", "test.csv", "new.csv"))
    train.write_text(LABELLED)
    # the classes of each label are those of the training data
    test.write_text("grade,kind,size,place\n" + "B,small,0,south\nB,big,1,south\n" * 2)
    new.write_text("size,place\n1,south\n0,north\n")
    job = job_of_two(str(train), str(test))
    check_job(job)
    outcome = run_job(job)
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports
    for name in ("kind", "grade"):
        assert outcome.metric(f"loss-{name}.accuracy", "test")[60] == 1.0
    manifest = json.loads(fs.read_bytes(fs.join(lookup.find(outcome.url), "manifest.json")))
    assert manifest["class_names"] == {"kind": ["big", "small"], "grade": ["A", "B"]}
    layers = ("loss-grade", "fc-kind")
    given = inference_job(job, Phase.TEST, in_order=True, exposed=True).job
    changed = with_data(given, ["data"], str(new), None)
    labels = tuple(label_layer(job, Phase.TEST, layer) for layer in layers)
    assert labels == ("grade", "kind")
    kept: dict[str, Any] = {"layers": layers, "label_layers": labels, "labels": False, "topk": 1}
    part = InferenceTask(changed.model_dump_json(), int(Phase.TEST), (outcome.url,), **kept)
    facts = inspect_net(part)
    assert facts.class_names == (("A", "B"), ("big", "small"))
    done = [each() for each in plan_tasks(part, facts, 0, 1)]
    decoders = [OutputDecoder(*each, (2,), names=names) for *each, names in zip(layers, facts.class_names, strict=True)]
    found = LayerValues(1, [Predicted(str(new), done, pa.table({}))], decoders).table()
    names = ["record", "loss-grade.class", "loss-grade.number", "loss-grade.probability", "fc-kind.class"]
    assert found.column_names[:5] == names
    assert list(zip(*(found[names[i]].to_pylist() for i in (1, 4)), strict=True)) == [("B", "big"), ("A", "small")]


@pytest.mark.long
def test_a_group_of_workers_resumes_and_skips_wrong_records(tmp_path: Path, run_job: Callable[..., Outcome]) -> None:
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text(LABELLED + "north,0,small,A\nnorth,?,big,B,C\nsouth,x,big,B\nsouth,1,big,B\n")
    test.write_text("place,size,kind,grade\n" + "south,0,small,B\nnorth,1,big,A\n" * 2)
    job = job_of_two(str(train), str(test), on_error="skip", max_bad=2)
    job = job.model_copy(update={"cluster": ClusterConf(nworkers_per_group=2), "train_steps": 30, "test_freq": 30})
    first = run_job(job)
    longer = job.model_copy(update={"train_steps": 60})
    step = lookup.find(first.url)
    check_job(longer, resume=step)
    outcome = run_job(longer, step)
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports
    for name in ("kind", "grade"):
        assert outcome.metric(f"loss-{name}.accuracy", "test")[60] == 1.0
    manifest = json.loads(fs.read_bytes(fs.join(lookup.find(outcome.url), "manifest.json")))
    assert manifest["class_names"] == {"kind": ["big", "small"], "grade": ["A", "B"]}


def labels_of(layer: Any) -> list[int]:
    """Return the labels of the first records of a store."""
    with layer.source.open_checked() as store:
        return layer.source.labels.apply(store.read_block(0))["label"].tolist()


def test_converted_records_keep_several_labels(tmp_path: Path) -> None:
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text(LABELLED)
    test.write_text("place,size,kind,grade\n" + "south,0,small,B\nnorth,0,small,A\n" * 2)
    reading = {"features": ["place", "size"], "label": ["kind", "grade"], "categories": {"place": []}}
    urls = [str(tmp_path / name) for name in ("train.arrow", "test.arrow")]
    convert("table", [str(train)], urls[0], reading=reading)
    convert("table", [str(test)], urls[1], reading=reading)
    with pytest.raises(
        DataError, match=r"o.bin: kvfile stores one label for each record, but .*train.csv has several. Write arrow"
    ):
        convert("table", [str(train)], str(tmp_path / "o.bin"), reading=reading)
    job = job_of_two(*urls)
    check_job(job)
    inputs = {layer.conf_name: layer for layer in build_nets(job)[Phase.TEST].layers if layer.traits.role == "input"}
    assert labels_of(inputs["kind"]) == [1, 1, 1, 1]
    assert labels_of(inputs["grade"]) == [1, 0, 1, 0]
    with pytest.raises(ConfigError, match=r"train.arrow: there is no label 'place'. Its labels: kind, grade."):
        check_job(job_of_two(*urls, columns=("kind", "place")))
    test.write_text("place,size,kind,grade\n" + "south,0,small,C\nnorth,1,big,A\n" * 2)
    convert("table", [str(test)], urls[1], reading=reading)
    with pytest.raises(
        ConfigError, match=r"test.arrow: unknown class names: C. Its classes are A, C. .* training: A, B"
    ):
        check_job(job_of_two(*urls))


def test_wrong_labels_of_several_are_refused(tmp_path: Path) -> None:
    train = tmp_path / "train.csv"
    train.write_text(LABELLED)
    tables = (str(train), str(train))
    one = job_of(*tables, label=["kind", "grade"])
    with pytest.raises(
        ConfigError, match=r"have the labels kind, grade, and the net reads one of them from layer 'data'"
    ):
        check_job(one)
    with pytest.raises(ConfigError, match=r"column 'kind' is twice in label. Expected each column once"):
        check_job(job_of_two(*tables, label=["kind", "kind", "grade"]))
    with pytest.raises(ConfigError, match=r"column 'kind' is in features and in label"):
        check_job(job_of_two(*tables, features=["place", "kind"], categories={"place": [], "kind": []}))
    with pytest.raises(ConfigError, match=r"label_conf.column: 'grade' is not a label of store_conf. Labels: kind"):
        check_job(job_of_two(*tables, label="kind"))
    with pytest.raises(ConfigError, match=r"unknown column 'great'. Did you mean 'grade'"):
        check_job(job_of_two(*tables, columns=("kind", "great")))
    with pytest.raises(ConfigError, match=r"several labels. Expected one for labels: 2"):
        check_job(job_of_two(*tables, labels=2))
