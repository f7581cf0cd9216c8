"""``test`` and ``extract``: figures and features of checkpoints, ours and SINGA's; what ``predict`` does as they do."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.data.stores.arrow.arrow import ArrowStore
from singa_dask.runtime import local_cluster
from singa_dask.runtime.checkpoints.lookup import load_values
from tests.cli.conftest import BATCH, DIGITS, ROOT, Call, digits, read
from tests.runtime.processes import program, wait_until
from tests.selection import circles

GOLD = ROOT / "tests" / "gold"
N_MANY = 40_000


# -- test --------------------------------------------------------------------------------------------------


def test_a_test_repeats_what_run_ended_with(call: Call, job: Path, trained: Path) -> None:
    result = call("test", job, "--init-from", trained, "--json", "--steps", 0)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    # larger batches add up records in another order
    assert found["test"] == pytest.approx(json.loads((trained / "summary.json").read_text())["test"], rel=1e-6)
    assert (found["state"], found["phase"], found["batches"], found["records"]) == ("done", "test", 1, 2000)
    figures = f"loss = {found['test']['loss']:.4f}, accuracy = {found['test']['accuracy']:.4f}"
    assert result.stderr == f"Test: {figures}  (1 batch, 2000 records)\n"


def test_the_job_says_how_many_batches(call: Call, job: Path, trained: Path) -> None:
    result = call("test", job, "--init-from", trained)
    assert result.stderr.endswith("  (2 batches, 40 records)\n")


def test_every_record_once_is_the_mean_over_records(call: Call, job: Path, trained: Path) -> None:
    found = [
        json.loads(call("test", job, "--init-from", trained, "--json", "--quiet", "--set", change, "--steps", 0).stdout)
        for change in (BATCH, "neuralnet.layer[data].store_conf.batchsize=2000")
    ]
    assert [each["records"] for each in found] == [2000, 2000]
    assert found[0]["test"] == pytest.approx(found[1]["test"], abs=1e-6)


@pytest.mark.parametrize("name", ["mlp_sgd", "mlp_sgd_mom_step"])
def test_checkpoints_of_singa_give_its_figures(call: Call, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(GOLD)
    lines = json.loads((GOLD / "lines" / f"{name}.json").read_text())
    said = next(line for line in reversed(lines) if line["phase"] == "test")
    result = call("test", f"confs/{name}.conf", "--init-from", f"end/{name}.bin", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["test"]["loss"] == pytest.approx(said["loss"], abs=3e-6)


TEST_ONLY = """\
name: "mlp-test"
test_steps: 4
checkpoint_path: "end/mlp_sgd.bin"
neuralnet {
  layer { name: "data" type: kRecordInput include: kTest
    store_conf { backend: "kvfile" path: "data/small_mnist_test.bin" batchsize: 32 shape: 784
                 mean_value: 127.5 std_value: 127.5 } }
  layer { name: "fc1" type: kInnerProduct srclayers: "data" innerproduct_conf { num_output: 32 }
          param { name: "w1" } param { name: "b1" } include: kTest }
  layer { name: "act1" type: kSTanh srclayers: "fc1" include: kTest }
  layer { name: "fc2" type: kInnerProduct srclayers: "act1" innerproduct_conf { num_output: 10 }
          param { name: "w2" } param { name: "b2" } include: kTest }
  layer { name: "loss" type: kSoftmaxLoss srclayers: "fc2" srclayers: "data" include: kTest }
}
"""


def test_a_job_for_tests_alone_needs_nothing_else(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(GOLD)
    (tmp_path / "test.conf").write_text(TEST_ONLY)
    result = call("test", tmp_path / "test.conf")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "Test: loss = 1.4403, accuracy = 0.6016  (4 batches, 128 records)\n"
    result = call("validate", tmp_path / "test.conf")
    assert result.exit_code == 0 and result.stdout.startswith("test net\n")
    result = call("run", tmp_path / "test.conf")
    assert result.exit_code == 2 and "there is nothing to train" in result.stderr


def test_a_net_over_time_needs_a_number_of_batches(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(GOLD)
    given = ["confs/gru_sgd.conf", "--init-from", "end/gru_sgd.bin"]
    result = call("test", *given)
    assert result.exit_code == 2
    assert "Give the number of batches, steps." in result.stderr
    assert call("test", *given, "--steps", 3).exit_code == 0
    layers = ["--layer", "gru1", "--layer", "loss", "--steps", 2, "--out", tmp_path / "{layer}.npz"]
    assert call("extract", *given, *layers).exit_code == 0
    assert read(tmp_path / "gru1.npz")["data"].shape == (8, 6, 8)
    np.testing.assert_allclose(read(tmp_path / "loss.npz")["data"].sum(axis=2), 1, rtol=0, atol=1e-5)


# -- extract -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", circles([".arrow", ".lmdb", ".csv", ".bin", ".npz", ".parquet"], plain=2, long=1))
def test_features_are_a_store(call: Call, job: Path, trained: Path, tmp_path: Path, suffix: str) -> None:
    (tmp_path / "out").mkdir()
    out = tmp_path / "out" / f"fc{suffix}"
    result = call("extract", job, "--init-from", trained, "--layer", "fc", "--out", out, "--set", BATCH)
    assert result.exit_code == 0, result.output
    assert result.stderr == f"{out}: 2000 records\n"
    params, records = load_values(str(trained)), digits()
    x = records["pixel"].reshape(2000, -1).astype(np.float32) / 255
    found = read(out)
    np.testing.assert_allclose(found["data"], x @ params["w"].values.T + params["b"].values, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(found["label"], records["label"])
    assert call("data", "verify", out).exit_code == 0
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    again = ["extract", job, "--init-from", trained, "--layer", "fc", "--out", out, "--set", BATCH]
    result = call(*again)
    assert (result.exit_code, result.stderr) == (
        2, f"{out}: exists already. Expected a new file. Give --overwrite to replace it.\n",
    )  # fmt: skip
    if suffix == ".arrow":
        assert call(*again, "--overwrite").exit_code == 0
        own = f"neuralnet.layer[data].store_conf.path={out}"
        assert "this file is an input" in call(*again, "--overwrite", "--set", own).stderr


def test_images_come_in_the_order_of_their_axes(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(GOLD)
    given = ["confs/conv_c.conf", "--init-from", "end/conv_c.bin", "--phase", "train"]
    layers = ["--layer", "conv1", "--layer", "data", "--layer", "relu1"]
    result = call("extract", *given, *layers, "--out", tmp_path / "x.bin", "--set", BATCH.replace("150", "7"))
    assert result.exit_code == 0, result.output
    x, y = read(tmp_path / "x-data.bin")["data"], read(tmp_path / "x-conv1.bin")["data"]
    assert (x.shape, y.shape) == ((96, 3, 12, 12), (96, 6, 12, 12))
    params = load_values("end/conv_c.bin")
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    kernels = params["w1"].values.reshape(6, 3, 3, 3)
    expected = np.einsum("nchwij,ocij->nohw", windows, kernels) + params["b1"].values.reshape(6, 1, 1)
    np.testing.assert_allclose(y, expected, rtol=0, atol=2e-3)
    assert (read(tmp_path / "x-relu1.bin")["data"] >= 0).all()


@pytest.mark.long
def test_hidden_units_of_an_rbm(call: Call, tmp_path: Path) -> None:
    job = tmp_path / "rbm.yaml"
    job.write_text(RBM)
    ran = call("run", job, "--run-dir", tmp_path / "run", "--json", "--quiet")
    assert ran.exit_code == 0, ran.output
    given = [job, "--init-from", tmp_path / "run"]
    tested = json.loads(call("test", *given, "--json", "--quiet").stdout)
    assert tested["test"] == json.loads(ran.stdout)["test"]
    result = call("extract", *given, "--layer", "hid", "--out", tmp_path / "hid.arrow", "--set", BATCH)
    assert result.exit_code == 0, result.output
    params = load_values(str(tmp_path / "run"))
    x = digits()["pixel"].reshape(2000, -1).astype(np.float32) / 255
    expected = 1 / (1 + np.exp(-(x @ params["w"].values.T + params["c"].values)))
    np.testing.assert_allclose(read(tmp_path / "hid.arrow")["data"], expected, rtol=0, atol=1e-5)


RBM = f"""\
name: rbm
seed: 3
train_steps: 5
test_freq: 5
test_steps: 4
train_one_batch: {{alg: CD}}
updater: {{type: SGD, learning_rate: {{type: Fixed, base_lr: 0.1}}}}
neuralnet:
  layer:
    - name: data
      type: RecordInput
      include: [train]
      store_conf: {{path: {DIGITS}, shape: [28, 28], batchsize: 20, std_value: 255}}
    - name: data
      type: RecordInput
      include: [test]
      store_conf: {{path: {DIGITS}, shape: [28, 28], batchsize: 500, std_value: 255}}
    - name: vis
      type: RBMVis
      srclayers: [data, hid]
      rbm_conf: {{hdim: 16}}
      param: [{{name: w, init: {{type: Gaussian, std: 0.1}}}}, {{name: b, init: {{type: Constant, value: 0}}}}]
    - name: hid
      type: RBMHid
      srclayers: [vis]
      rbm_conf: {{hdim: 16}}
      param: [{{name: w2, share_from: w}}, {{name: c, init: {{type: Constant, value: 0}}}}]
"""


# -- workers ---------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.cluster
def test_processes_give_the_same_bytes(call: Call, job: Path, trained: Path, tmp_path: Path) -> None:
    given = [job, "--init-from", trained, "--set", BATCH, "--set", "threads=1"]
    outs = []
    for n, more in enumerate([[], ["--workers", 2]]):
        out = tmp_path / f"{n}.arrow"
        result = call("extract", *given, "--layer", "fc", "--out", out, *more)
        assert result.exit_code == 0, result.output
        outs.append(out.read_bytes())
    assert outs[0] == outs[1]


@pytest.fixture
def scheduler() -> Iterator[str]:
    """Start a cluster of threads, and return its address."""
    with local_cluster(2, processes=False) as client:
        assert client.scheduler is not None
        yield client.scheduler.address


@pytest.mark.long
@pytest.mark.cluster
def test_a_cluster_that_is_there_gives_the_same(
    call: Call, scheduler: str, job: Path, trained: Path, tmp_path: Path
) -> None:
    given = [job, "--init-from", trained, "--set", BATCH, "--set", "threads=1"]
    for verb, more in (
        ("test", ["--steps", 0, "--json"]),
        ("extract", ["--predictions", "--quiet", "--overwrite", "--out", tmp_path / "p.csv"]),
        ("predict", ["--data", DIGITS, "--topk", 2]),
    ):
        results = [call(verb, *given, *more, *where) for where in ([], ["--scheduler", scheduler])]
        assert [result.exit_code for result in results] == [0, 0], results[1].output
        here, there = (drop_times(result.stdout) for result in results)
        assert there == here
    result = call("test", *given, "--scheduler", scheduler, "--set", "neuralnet.layer[data].store_conf.path=none")
    assert result.exit_code == 2
    assert result.stderr.startswith("--set neuralnet.layer[data].store_conf.path=none: ")


@pytest.mark.cluster
def test_a_cluster_without_workers_is_told(call: Call, job: Path, trained: Path) -> None:
    with local_cluster(0, processes=False) as client:
        assert client.scheduler is not None
        result = call("test", job, "--init-from", trained, "--scheduler", client.scheduler.address)
    assert (result.exit_code, result.stderr) == (3, "the cluster has no workers. Start some: dask-worker ADDRESS.\n")


def drop_times(text: str) -> Any:
    if not text.startswith("{"):
        return text
    summary = json.loads(text)
    del summary["seconds"]
    return summary


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("number", "workers"),
    [
        pytest.param(signal.SIGTERM, [], marks=pytest.mark.long),
        pytest.param(signal.SIGINT, ["--workers", "2"], marks=pytest.mark.soak),
    ],
    ids=["here", "processes"],
)
def test_a_signal_ends_it_and_leaves_nothing(
    job: Path, trained: Path, tmp_path: Path, number: signal.Signals, workers: list[str]
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    given = ["extract", str(job), "--init-from", str(trained), "--layer", "fc", "--out", str(folder / "x.arrow")]
    # so many batches take some seconds, on a busy machine so many that progress would be shown
    given += ["--quiet"]
    many = tmp_path / "many.arrow"
    ArrowStore.write(str(many), {"pixel": np.zeros((N_MANY, 28, 28), np.uint8), "label": np.zeros(N_MANY, np.int32)})
    given += ["--set", BATCH.replace("150", "1"), "--set", f"neuralnet.layer[data].store_conf.path={many}"]
    process = subprocess.Popen(program(*given, *workers), cwd=ROOT, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(folder.rglob("*.arrow")) or process.poll() is not None, "a part is written")
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (128 + number, f"{number.name}: stopped.\n")
    assert list(folder.iterdir()) == []


# -- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["test", "JOB"], 2, "there is no checkpoint. Pass --init-from"),
        (["test", "JOB", "--init-from", "nowhere"], 2, "nowhere: no such file or directory."),
        (["test", "JOB", "--init-from", "RUN", "--phase", "val", "--steps", "1"], 0, "Validation: loss = "),
        (["extract", "JOB", "--init-from", "RUN", "--out", "x.csv"], 2, "Pass --layer NAME, once or more"),
        (["extract", "JOB", "--init-from", "RUN", "--layer", "los", "--out", "x.csv"], 2, "mean 'loss'?"),
        (
            ["extract", "JOB", "--init-from", "RUN", "--layer", "fc", "--out", "x.tar"],
            2,
            "x.tar: cannot detect the format to write",
        ),
        (
            ["extract", "JOB", "--init-from", "RUN", "--layer", "fc", "--out", "x"],
            2,
            "cannot detect the format to write",
        ),
        (
            ["test", "JOB", "--init-from", "RUN", "--set", "neuralnet.layer[fc].exclude=test"],
            2,
            ": layer 'fc' is not in",
        ),
    ],
)
def test_mistakes_are_told(
    call: Call, job: Path, trained: Path, arguments: list[str], code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained.parent)
    names = {"JOB": str(job), "RUN": str(trained)}
    result = call(*(names.get(each, each) for each in arguments))
    assert result.exit_code == code, result.output
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_what_is_wrong_in_a_net_has_its_place_in_the_file(call: Call, job: Path, trained: Path) -> None:
    lines = job.read_text().splitlines()
    job.write_text(job.read_text().replace("{num_output: 10}", "{num_output: 9}").replace("[28, 28]", "[28, 27]"))
    place = next(i for i, line in enumerate(lines, 1) if "shape: [28, 28]" in line)
    result = call("test", job, "--init-from", trained)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{job}:{place}:")
    assert "neuralnet.layer[data].store_conf.path: " in result.stderr


# -- output layers -----------------------------------------------------------------------------------------------

OUTPUTS = """\
    - {name: scores, type: CSVOutput, srclayers: [fc], include: [test], store_conf: {path: out/scores.csv}}
    - {name: records, type: RecordOutput, srclayers: [fc, data], include: [test], store_conf: {path: out/records.bin}}
"""


def test_it_says_where_output_layers_wrote(
    call: Call, job: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    job.write_text(job.read_text() + OUTPUTS)
    urls = [f"{tmp_path}/out/scores.csv", f"{tmp_path}/out/records.bin"]
    said = f"layer scores: wrote {urls[0]}\nlayer records: wrote {urls[1]}\n"
    result = call("test", job, "--init-from", trained, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr.endswith(said)
    assert json.loads(result.stdout)["outputs"] == {"scores": [urls[0]], "records": [urls[1]]}
    assert "wrote" not in call("test", job, "--init-from", trained, "--quiet").stderr
    assert len((tmp_path / "out" / "scores.csv").read_text().splitlines()) == 40


def test_a_job_that_trains_leaves_the_files_of_output_layers_alone(
    call: Call, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "scores.csv").write_text("of a test before")
    job.write_text(job.read_text() + OUTPUTS)
    ran = call("run", job, "--run-dir", "run")
    assert ran.exit_code == 0, ran.output
    warning = "warning: CSVOutput writes nothing while the job trains. To write out/scores.csv: singa-dask test"
    assert warning in ran.stderr
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {"scores.csv": "of a test before"}
