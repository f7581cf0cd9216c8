"""Inference in parts: the same for any cut and any number of workers, each record once, errors as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

import singa_dask as sd
from singa_dask import modules
from singa_dask.conf import JobConf, LayerConf, ParamConf, Phase
from singa_dask.data.stores import open_store
from singa_dask.errors import CheckpointError, ConfigError, DataError, LostUnitError, NumericError, UnitError
from singa_dask.inference.filled_net import build
from singa_dask.inference.inference_job import PhaseJob, inference_job, with_data
from singa_dask.inference.predicted_layers import classifier
from singa_dask.inference.tasks import (
    InferenceTask,
    NetFacts,
    TaskResult,
    inspect_net,
    merge_metrics,
    plan_tasks,
)
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.runtime import local_cluster, on_dask
from singa_dask.runtime.checkpoints.lookup import load_values
from singa_dask.runtime.job import dask_tasks as tasks
from singa_dask.runtime.job.calls import present_workers
from singa_dask.runtime.job.limits import LIMITS, Limit
from tests.runtime.harness import Outcome, mlp
from tests.runtime.processes import check_gone, cluster, kill_workers, residue, wait_until

DIGITS = "data/digits/test.arrow"
# 2,000 records are 13 batches and 50 records more
BATCH = 150


def small(**changes: Any) -> JobConf:
    """Return the job that the checkpoints of these tests are of, with batches that do not divide the records."""
    job = mlp(train_steps=4, disp_freq=0, threads=1, **changes)
    store = job.neuralnet.layer[0].block(StoreConf)
    return with_layer(job, "data", store_conf=store.model_copy(update={"batchsize": [BATCH]}))


def with_layers(job: JobConf, layers: Sequence[LayerConf]) -> JobConf:
    return job.model_copy(update={"neuralnet": job.neuralnet.model_copy(update={"layer": list(layers)})})


def with_layer(job: JobConf, name: str, **changes: Any) -> JobConf:
    """Return the job with other keys of one layer."""
    layers = [layer.model_copy(update=changes) if layer.name == name else layer for layer in job.neuralnet.layer]
    return with_layers(job, layers)


def part_of(wanted: PhaseJob, url: str, **kept: Any) -> InferenceTask:
    return InferenceTask(wanted.job.model_dump_json(), int(wanted.phase), (url,), **kept)


def parts_of(part: InferenceTask, steps: int = 0, n_workers: int = 1) -> list[InferenceTask]:
    return plan_tasks(part, inspect_net(part), steps, n_workers)


def every_record(job: JobConf, url: str, **kept: Any) -> InferenceTask:
    return part_of(inference_job(job, Phase.TEST, in_order=True, exposed=bool(kept)), url, **kept)


@pytest.fixture
def trained(run_once: Callable[[JobConf], Outcome]) -> str:
    """Return the URL of a run of the small job."""
    return run_once(small()).url


@functools.cache
def computed(url: str, *layers: str) -> list[TaskResult]:
    """Return outputs of some layers of the small job for all records, or its figures if no layer is named."""
    part = every_record(small(), url, layers=layers) if layers else every_record(small(), url)
    return [each() for each in parts_of(part)]


def test_a_job_that_follows_a_metric_computes_as_any_other() -> None:
    followed = {"early_stopping": {"metric": "test.loss"}, "keep_checkpoints": {"best": 1, "metric": "test.loss"}}
    tested = {"test_freq": 2, "test_steps": 1}
    assert every_record(small(**tested, **followed), "x") == every_record(small(**tested), "x")


# -- cutting -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [1, 2, 3, 50])
@pytest.mark.parametrize("n_records", [1, 9, 10, 11, 100, 1003])
def test_parts_have_each_record_once_whatever_their_number(n_records: int, n_workers: int) -> None:
    part = every_record(small(), "x")
    parts = plan_tasks(part, NetFacts(n_records, 10, 10, "", 4), 0, n_workers)
    taken = [
        (first, part.batchsize)
        for part in parts
        for first in range(part.first, part.first + part.n_batches * part.batchsize, part.batchsize)
    ]
    whole = [(first, 10) for first in range(0, n_records - 9, 10)]
    rest = [(len(whole) * 10, n_records % 10)] if n_records % 10 else []
    assert taken == whole + rest
    assert [part.index for part in parts] == list(range(len(parts)))


def test_a_pass_over_all_records_takes_more_records_a_batch_than_a_small_net_trains_with(trained: str) -> None:
    part = every_record(small(), trained)
    facts = inspect_net(part)
    whole, singly = (
        merge_metrics([each() for each in plan_tasks(part, facts._replace(rows=n), 0, 1)]) for n in (facts.rows, 7)
    )
    assert facts.rows > 4 * facts.batchsize
    assert whole == pytest.approx(singly, rel=1e-5)


def test_a_part_is_bounded_in_memory() -> None:
    part = every_record(small(), "x")
    parts = plan_tasks(part, NetFacts(1000, 10, 10, "", 1 << 20), 0, 1)
    assert [part.n_batches for part in parts] == [6] * 16 + [4]


def test_a_net_that_must_see_all_batches_in_order_is_one_part() -> None:
    part = every_record(small(), "x")
    (only,) = plan_tasks(part, NetFacts(None, 10, 10, "text", 4), 7, 3)
    assert (only.first, only.n_batches) == (0, 7)
    with pytest.raises(ConfigError, match="number of batches, steps"):
        plan_tasks(part, NetFacts(None, 10, 10, "text", 4), 0, 3)
    with pytest.raises(ConfigError, match="'out' takes only batches of 10, but 25 records leave a rest of 5"):
        plan_tasks(part, NetFacts(25, 10, 10, "out", 4), 0, 3)


def test_no_more_of_a_net_is_built_than_a_layer_needs() -> None:
    wanted = inference_job(small(), Phase.TEST, in_order=True, exposed=True)
    assert [layer.name for layer in build(wanted.job, wanted.phase, ["act1"]).layers] == ["data", "fc1", "act1"]
    with pytest.raises(ConfigError, match=r"layer 'act2' is not in the net of this phase. Did you mean 'act1'\?"):
        build(wanted.job, wanted.phase, ["act2"])
    halves = LayerConf(name="halves", type="Slice", srclayers=["fc1"], slice_conf={"num_slices": 2, "slice_dim": 1})
    wanted = inference_job(with_layers(small(), [*small().neuralnet.layer, halves]), Phase.TEST, in_order=True)
    with pytest.raises(ConfigError, match="layer 'halves' has 2 outputs, expected one"):
        build(wanted.job, wanted.phase, ["halves"])


# -- any number of workers -------------------------------------------------------------------------------------


def of_all(done: list[TaskResult], layer: int = 0) -> dict[str, np.ndarray]:
    ordered = sorted(done, key=lambda result: result.task.index)
    names = ordered[0].arrays[layer]
    return {name: np.concatenate([each.arrays[layer][name] for each in ordered]) for name in names}


def test_features_are_those_of_the_params_in_file_order(trained: str) -> None:
    found = computed(trained, "fc1", "loss")
    stored = {name: each.values for name, each in load_values(trained).items()}
    with open_store(DIGITS) as store:
        blocks = [store.read_block(block.id) for block in store.blocks]
    pixels = np.concatenate([block["pixel"] for block in blocks]).reshape(2000, -1).astype(np.float32) / 255
    expected = pixels @ stored["fc1.w"].reshape(32, 784).T + stored["fc1.b"]
    np.testing.assert_allclose(of_all(found)["data"], expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(of_all(found)["label"], np.concatenate([block["label"] for block in blocks]))
    np.testing.assert_allclose(of_all(found, 1)["data"].sum(axis=1), 1, rtol=0, atol=1e-5)


@pytest.mark.cluster
@pytest.mark.long
def test_several_workers_give_the_same(trained: str) -> None:
    features = every_record(small(), trained, layers=("fc1", "loss"))
    figures = every_record(small(), trained)
    here, merged = computed(trained, "fc1", "loss"), merge_metrics(computed(trained))
    with local_cluster(3, processes=False) as client:
        there = list(on_dask(client)(parts_of(features, n_workers=3)))
        measured = sorted(on_dask(client)(parts_of(figures, n_workers=3)), key=lambda result: result.task.index)
    for layer in (0, 1):
        for name, values in of_all(here, layer).items():
            np.testing.assert_array_equal(of_all(there, layer)[name], values)
    assert merge_metrics(measured) == merged


def test_figures_are_means_over_records(trained: str) -> None:
    done, kept = computed(trained), of_all(computed(trained, "fc1", "loss"), 1)
    right = kept["data"].argmax(axis=1) == kept["label"]
    loss = -np.log(kept["data"][np.arange(2000), kept["label"]])
    figures = merge_metrics(done)
    assert figures == {"accuracy": pytest.approx(right.mean(), abs=1e-6), "loss": pytest.approx(loss.mean(), abs=1e-5)}


def test_batches_of_a_shuffled_order_are_those_of_one_worker(trained: str) -> None:
    part = part_of(inference_job(small(), Phase.TEST, in_order=False), trained)
    cut = [each() for each in parts_of(part, 5, n_workers=3)]
    (whole,) = [replace(part, n_batches=5, batchsize=BATCH)()]
    assert len(cut) == 5
    assert [figures for each in cut for figures in each.metrics] == whole.metrics


def test_predictions_name_the_higher_of_equal_classes(trained: str) -> None:
    scores = of_all(computed(trained, "fc1", "loss"), 1)["data"]
    part = replace(every_record(small(), trained, layers=("loss",), topk=3))
    pairs = of_all([each() for each in parts_of(part)])["data"].reshape(-1, 3, 2)
    np.testing.assert_array_equal(pairs[:, 0, 1], scores.max(axis=1))
    np.testing.assert_array_equal(np.take_along_axis(scores, pairs[:, :, 0].astype(int), 1), pairs[:, :, 1])
    assert (np.diff(pairs[:, :, 1], axis=1) <= 0).all()


# -- jobs ----------------------------------------------------------------------------------------------------


def test_the_training_net_computes_as_in_a_test(trained: str) -> None:
    wanted = inference_job(small(), Phase.TRAIN, in_order=True, exposed=True)
    assert wanted.phase == Phase.TEST
    done = [parts_of(part_of(wanted, trained, layers=("act1", "drop1")))[0]()]
    np.testing.assert_array_equal(of_all(done, 1)["data"], of_all(done, 0)["data"])


def test_errors_point_into_the_job_that_was_given() -> None:
    layers = small().neuralnet.layer
    first = layers[0].model_copy(update={"name": "other", "include": ["train"]})
    broken = layers[1].model_copy(update={"innerproduct_conf": None})
    wanted = inference_job(with_layers(small(), [first, layers[0], broken, *layers[2:]]), Phase.TEST, in_order=True)
    with pytest.raises(ConfigError) as raised:
        build(wanted.job, wanted.phase)
    assert wanted.locate(raised.value).problems[0].path[:3] == ("neuralnet", "layer", 2)


def test_new_records_need_no_labels_and_may_be_text(tmp_path: Path, trained: str) -> None:
    (tmp_path / "new.csv").write_text("\n".join(",".join(["7"] * 784) for _ in range(3)) + "\n")
    wanted = inference_job(small(), Phase.TEST, in_order=True, exposed=True)
    job = with_data(wanted.job, ["data"], str(tmp_path / "new.csv"), None)
    part = part_of(replace(wanted, job=job), trained, layers=("loss",), labels=False)
    found = of_all([each() for each in parts_of(part)])
    assert list(found) == ["data"]
    assert found["data"].shape == (3, 10)


def test_what_has_the_classes_must_be_clear() -> None:
    assert classifier(small(), Phase.TEST) == "loss"
    layers = small().neuralnet.layer
    job = with_layers(small(), [*layers, layers[-1].model_copy(update={"name": "loss2"})])
    with pytest.raises(ConfigError, match=r"found: loss, loss2\. Specify the layer"):
        classifier(job, Phase.TEST)


def test_statistics_of_the_training_are_used(run_job: Callable[..., Outcome]) -> None:
    norm = LayerConf(name="norm", type="BatchNorm", srclayers=["fc1"])
    layers = [layer for layer in small().neuralnet.layer if layer.name != "act1"]
    layers = [layer.model_copy(update={"srclayers": ["norm"]}) if layer.name == "drop1" else layer for layer in layers]
    job = with_layers(small(), [*layers, norm])
    url = run_job(job).url
    whole = of_all([each() for each in parts_of(every_record(job, url, layers=("norm",)))])
    store = job.neuralnet.layer[0].block(StoreConf).model_copy(update={"batchsize": [1]})
    singly = parts_of(every_record(with_layer(job, "data", store_conf=store), url, layers=("norm",)), steps=5)
    found = of_all([each() for each in singly])
    # a batch of one record has no variance of its own
    np.testing.assert_allclose(found["data"], whole["data"][:5], rtol=0, atol=1e-4)


def test_what_writes_a_file_is_left_out_or_sees_all_batches(trained: str, tmp_path: Path) -> None:
    out = StoreConf(path=str(tmp_path / "out.csv"))
    writer = LayerConf(name="out", type="CSVOutput", srclayers=["fc2"], store_conf=out)
    job = with_layers(small(), [*small().neuralnet.layer, writer])
    parts_of(every_record(job, trained, layers=("fc2",)))[0]()
    assert list(tmp_path.glob("out*")) == []
    figures = part_of(inference_job(job, Phase.TEST, in_order=True), trained)
    (only,) = parts_of(figures, 3, n_workers=4)
    only()
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3 * BATCH
    with pytest.raises(
        ConfigError, match=r"layer 'out' takes only batches of 150, but 2000 records leave a rest of 50"
    ):
        parts_of(figures)


def test_records_that_cannot_be_read_are_not_replaced(trained: str, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("\n".join(",".join(["7"] * 784) for _ in range(3)) + "\n7,x\n")
    store = small().neuralnet.layer[0].block(StoreConf)
    store = store.model_copy(update={"path": str(tmp_path / "bad.csv"), "backend": "", "on_error": "skip"})
    job = with_layer(small(), "data", type="CSVInput", store_conf=store.model_copy(update={"has_label": False}))
    part = every_record(job, trained, layers=("fc1",))
    with pytest.raises(DataError, match=r"bad\.csv, line 4: 2 fields, expected 784"):
        parts_of(part)[0]()


# -- what goes wrong --------------------------------------------------------------------------------------------


def test_params_that_a_checkpoint_lacks_are_named(trained: str, tmp_path: Path) -> None:
    new = [ParamConf(name="new.w"), ParamConf(name="new.b")]
    job = with_layer(small(), "fc2", param=new)
    with pytest.raises(CheckpointError, match=r"no values of new\.w, new\.b, which the net needs\. Known: fc1\.b"):
        parts_of(every_record(job, trained))[0]()
    # what is above the layer is not needed
    assert parts_of(every_record(job, trained, layers=("act1",)))[0]().arrays


def test_figures_that_are_no_numbers_are_an_error(trained: str) -> None:
    broken = computed(trained)[0]._replace(metrics=[{"loss": (float("nan"), 1.0)}])
    with pytest.raises(NumericError, match="loss is not finite"):
        merge_metrics([broken])


OWN = """\
from singa_dask import Layer

class Twice(Layer):
    def setup(self):
        self.add_output(self.sources[0].shape)

    def compute_feature(self, phase):
        self.ops.multiply(self.sources[0].data, 2, out=self.features[0].data)
        if phase == 0:
            pass
        assert self.conf.user_conf.get("fine")
"""


@pytest.mark.cluster
@pytest.mark.long
def test_a_users_layer_is_computed_where_it_is_not_and_its_mistakes_are_told(trained: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    sources = tuple(modules.read([str(tmp_path / "own.py")]))
    modules.load(sources)
    jobs = [with_layer(small(), "act1", type="own.Twice", user_conf={"fine": fine}) for fine in (True, False)]
    right, wrong = (every_record(job, trained, layers=("fc1", "act1"), sources=sources) for job in jobs)
    with local_cluster(1) as client:
        found = list(on_dask(client)(parts_of(right)))
        np.testing.assert_array_equal(2 * of_all(found)["data"], of_all(found, 1)["data"])
        with pytest.raises(UnitError) as raised:
            list(on_dask(client)(parts_of(wrong)))
    first = str(raised.value).splitlines()[0]
    assert first.startswith(f"{tmp_path}/own.py:11: AssertionError: ")
    assert first.endswith("(layer act1)")


def test_a_prediction_keeps_the_modules_that_it_computes_with(trained: str, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(f"{OWN}        modules.load([modules.loaded()['own']._replace(text='')])\n")
    own.write_text(f"from singa_dask import modules\n{own.read_text()}")
    sources = tuple(modules.read([str(own)]))
    modules.load(sources)
    job = with_layer(small(), "act1", type="own.Twice", user_conf={"fine": True})
    task = every_record(job, trained, layers=("act1",), sources=sources)
    with pytest.raises(ConfigError, match=r"own.py: a prediction or test runs in this process with another version"):
        parts_of(task)[0]()
    modules.load([sources[0]._replace(text="")])


def test_a_model_computes_with_its_own_version_of_a_module(trained: str, tmp_path: Path) -> None:
    own, path, models = tmp_path / "own.py", tmp_path / "job.yaml", {}
    for factor in (2, 3):
        own.write_text(OWN.replace("data, 2", f"data, {factor}"))
        modules.load(modules.read([str(own)]))
        job = with_layer(small(), "act1", type="own.Twice", user_conf={"fine": True})
        path.write_text(job.model_copy(update={"modules": [str(own)]}).to_json())
        models[factor] = sd.load_model(trained, job=path)
    with open_store(DIGITS) as store:
        pixels = store.read_block(store.blocks[0].id)["pixel"]
    for n in (1, 2):  # each number of records has a net of its own
        for factor, model in models.items():
            after, before = (model.extract(pixels[:n], layer) for layer in ("act1", "fc1"))
            np.testing.assert_array_equal(after, factor * before)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Start three workers that are not started again when they are lost, and are not waited for long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "4s")
        with cluster(tmp_path_factory.mktemp("cluster"), "--no-nanny", names=("a", "b", "c")) as (_, client):
            yield client


def n_workers(client: Client) -> int:
    return len(present_workers(client))


@pytest.mark.cluster
@pytest.mark.long
def test_nothing_goes_on_when_nobody_waits(three: Client, trained: str) -> None:
    before = residue(three)
    store = small().neuralnet.layer[0].block(StoreConf).model_copy(update={"batchsize": [1]})
    part = part_of(inference_job(with_layer(small(), "data", store_conf=store), Phase.TEST, in_order=False), trained)
    # a part of some minutes, behind one of a moment
    long = replace(part, n_batches=1_000_000, batchsize=1)
    results = on_dask(three)([replace(part, n_batches=1, batchsize=1), *[long] * 5])
    next(results)
    assert isinstance(results, Generator)
    results.close()
    check_gone(three, before)


@pytest.mark.cluster
@pytest.mark.long
def test_lost_workers_are_done_without_as_long_as_there_is_one(
    three: Client, trained: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = every_record(small(), trained, layers=("fc1", "loss"))
    here = of_all(computed(trained, "fc1", "loss"))
    found: list[TaskResult] = []
    for done in on_dask(three)(parts_of(part, n_workers=3)):
        if not found:
            kill_workers(three, 2)
        found.append(done)
    np.testing.assert_array_equal(of_all(found)["data"], here["data"])
    monkeypatch.setattr(tasks, "LOOK_S", 0.05)
    monkeypatch.setitem(LIMITS, "workers", Limit("one is there", "0.2s"))
    wait_until(lambda: n_workers(three) == 1, "those are gone")
    kill_workers(three, 1)
    wait_until(lambda: n_workers(three) == 0, "all are gone")
    with pytest.raises(LostUnitError, match=r"lost: none is left\. Give the same command again"):
        list(on_dask(three)(parts_of(part)))
