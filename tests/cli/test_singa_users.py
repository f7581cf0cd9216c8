"""Job files as SINGA's users have them: types of their own, GPUs that are not here, old ways to name nets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Call

GOLD = ROOT / "tests" / "gold"

RNNLM = """\
name: "rnnlm"
train_steps: 8
validate_steps: 1
validate_freq: 4
disp_freq: 4
train_one_batch { alg: kBP }
updater {
  type: kSGD
  learning_rate { type: kFixedStep fixedstep_conf: { step: 0 step: 4 step_lr: 0.1 step_lr: 0.05 } }
}
neuralnet {
  layer {
    name: "data" user_type: "kData" exclude: kVal
    [rnnlm.data_conf] { path: "examples/rnnlm/train_data.bin" max_window: 10 }
  }
  layer {
    name: "data" user_type: "kData" exclude: kTrain
    [rnnlm.data_conf] { path: "examples/rnnlm/valid_data.bin" max_window: 10 }
  }
  layer {
    name: "embedding" user_type: "kEmbedding" srclayers: "data"
    [rnnlm.embedding_conf] { word_dim: 15 vocab_size: 3720 }
    param { name: "w1" init { type: kUniform low: -0.3 high: 0.3 } }
  }
  layer {
    name: "hidden" user_type: "kHidden" srclayers: "embedding"
    param { name: "w2" init { type: kUniform low: -0.3 high: 0.3 } }
  }
  layer {
    name: "loss" user_type: "kLoss" srclayers: "hidden" srclayers: "data"
    [rnnlm.loss_conf] { nclass: 100 vocab_size: 3720 }
    param { name: "w3" } param { name: "w4" }
  }
}
cluster { workspace: "examples/rnnlm/" }
"""
NET = """\
name: "cudnn"
train_steps: 4
test_steps: 1
test_freq: 2
disp_freq: 2
gpu: 0
train_one_batch { alg: kBP }
updater { type: kSGD momentum: 0.9 learning_rate { type: kFixed base_lr: 0.001 } }
neuralnet {
  layer {
    name: "data" type: kRecordInput
    store_conf {
      backend: "kvfile" path: "data/small_img_train.bin" mean_file: "data/small_img_mean.bin"
      batchsize: 16 shape: 3 shape: 12 shape: 12
    }
  }
  layer {
    name: "conv1" type: kCudnnConv srclayers: "data" convolution_conf { num_filters: 8 kernel: 5 pad: 2 }
    param { name: "w1" init { type: kGaussian std: 0.01 } }
    param { name: "b1" init { type: kConstant value: 0 } }
  }
  layer { name: "pool1" type: kCudnnPool srclayers: "conv1" pooling_conf { pool: MAX kernel: 3 stride: 2 } }
  layer { name: "relu1" type: kCudnnActivation srclayers: "pool1" activation_conf { type: RELU } }
  layer {
    name: "ip1" type: kInnerProduct srclayers: "relu1" innerproduct_conf { num_output: 10 }
    param { name: "w2" init { type: kGaussian std: 0.01 } }
    param { name: "b2" init { type: kConstant value: 0 } }
  }
  layer { name: "loss" type: kCudnnSoftmaxLoss srclayers: "ip1" srclayers: "data" }
}
cluster { workspace: "ws" }
"""


@pytest.fixture(autouse=True)
def _records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start where the records are that the jobs name."""
    (tmp_path / "data").symlink_to(GOLD / "data")
    monkeypatch.chdir(tmp_path)


def test_types_in_cpp_are_told_once(call: Call) -> None:
    Path("job.conf").write_text(RNNLM)
    result = call("validate", "job.conf")
    assert result.exit_code == 2
    assert result.stderr == (
        "job.conf:13:29: neuralnet.layer[data].type: 'kData', 'kEmbedding', 'kHidden' and 'kLoss': your own types "
        'are C++ classes in SINGA, and Python classes here. Write them, and name their file, modules: "mine.py", and '
        'each class, user_type: "mine.Class", in the job. See docs/parts.md, and examples/rnnlm for SINGA\'s '
        "language model.\n"
    )


def test_types_that_are_in_no_module_are_told_once(call: Call) -> None:
    Path("mine.py").write_text((ROOT / "examples" / "rnnlm" / "rnnlm.py").read_text())
    Path("job.conf").write_text(f'modules: "mine.py"\n{RNNLM}')
    result = call("validate", "job.conf")
    assert result.exit_code == 2
    told = [line for line in result.stderr.splitlines() if ".type: " in line]
    assert told == [
        "job.conf:14:29: neuralnet.layer[data].type: 'kData', 'kHidden' and 'kLoss' cannot be found. Name the module "
        'of each: user_type: "module.Class".'
    ]


def test_what_is_known_is_listed_once(call: Call) -> None:
    Path("job.conf").write_text(NET.replace("kCudnnConv", "kFoo").replace("kCudnnPool", "kBar"))
    result = call("validate", "job.conf")
    assert result.exit_code == 2
    first, second = result.stderr.splitlines()
    assert "unknown layer type 'kFoo'. Known: Accuracy, " in first
    assert second.endswith("unknown layer type 'kBar'. Known: see above.")


@pytest.mark.long
def test_a_net_for_gpus_on_a_cpu(call: Call) -> None:
    Path("job.conf").write_text(NET)
    result = call("run", "job.conf", "--quiet", "--set", "gpu=999")
    assert result.exit_code == 2
    assert "Or compute on the CPU: --cpu." in result.stderr
    for changes in ((), ("--set", "ops=cupy"), ("--set", "ops=numpy", "--set", "gpu=[]")):
        for verb in ("validate", "run", "test"):
            more = {"run": ("--quiet", "--run-dir", f"run{len(changes)}"), "test": ("--init-from", "run0")}.get(
                verb, ()
            )
            result = call(verb, "job.conf", *changes, *more, "--cpu")
            assert result.exit_code == 0, result.output
    assert "ops numpy" in call("validate", "job.conf", *changes, "--cpu").stdout


def test_data_layers_of_one_name_for_training_and_validation(call: Call) -> None:
    """In SINGA the test net is not built, where both would be."""
    data = NET[NET.index("  layer {") : NET.index('  layer {\n    name: "conv1"')]
    both = data.replace("kRecordInput", "kRecordInput exclude: kVal") + data.replace(
        "kRecordInput", "kRecordInput exclude: kTrain"
    )
    job = NET.replace(data, both).replace("test_steps: 1\ntest_freq: 2\n", "validate_steps: 1\nvalidate_freq: 2\n")
    Path("job.conf").write_text(job)
    result = call("run", "job.conf", "--cpu", "--run-dir", "run")
    assert result.exit_code == 0, result.output
    assert "Validation @ step 2" in result.stderr
    assert call("test", "job.conf", "--cpu", "--init-from", "run", "--steps", 2).exit_code == 0
    Path("job.conf").write_text(job.replace("validate_", "test_"))
    result = call("validate", "job.conf", "--cpu")
    assert result.exit_code == 2
    assert "duplicate name 'data'" in result.stderr


@pytest.mark.parametrize(
    ("old", "new", "where", "message"),
    [
        (
            "type: kCudnnPool", "type: kUserLayer", "22:31: neuralnet.layer[pool1].type",
            'kUserLayer means a type of your own, and the job does not name it. Add user_type: "module.Class".',
        ),
        (
            "alg: kBP", "alg: kUserAlg", "7:24: train_one_batch.alg",
            'kUserAlg means a type of your own, and the job does not name it. Add user_type: "module.Class".',
        ),
        (
            'backend: "kvfile"', 'backend: "hdfsfile"', "13:16: neuralnet.layer[data].store_conf.backend",
            "SINGA's format of records on HDFS is not supported. Copy the original kvfile to HDFS, and set "
            'backend: "kvfile" with its hdfs:// path.',
        ),
        (
            "shape: 12 shape: 12", "shape: 12 shape: 14", "13:31: neuralnet.layer[data].store_conf.path",
            "data/small_img_train.bin: records of (3, 12, 12), expected (3, 12, 14) from shape.",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_what_to_do(call: Call, old: str, new: str, where: str, message: str) -> None:
    Path("job.conf").write_text(NET.replace(old, new))
    result = call("validate", "job.conf", "--cpu")
    assert result.exit_code == 2
    assert f"job.conf:{where}: {message}\n" in result.stderr


def test_a_job_for_a_gpu_and_two_workers_is_the_same_on_a_cpu(call: Call) -> None:
    """As SINGA's cudnn_hybrid.conf and hybrid.conf: two workers, GPUs, a layer partitioned by features."""
    Path("one.conf").write_text(NET)
    two = NET.replace("gpu: 0", "gpu: 0\ngpu: 1").replace("{ workspace", "{ nworkers_per_group: 2 workspace")
    Path("two.conf").write_text(
        two.replace('type: kInnerProduct srclayers: "relu1"', "\\").replace(
            "\\", 'type: kInnerProduct partition_dim: 1 srclayers: "relu1"'
        )
    )
    figures = []
    for name, more in (("one", ()), ("two", ("--set", "cluster.nworkers_per_procs=2"))):
        result = call("run", f"{name}.conf", "--cpu", "--json", "--quiet", "--run-dir", name, *more)
        assert result.exit_code == 0, result.output
        figures.append(json.loads(result.stdout.splitlines()[-1]))
    assert figures[0]["train"]["loss"] == pytest.approx(figures[1]["train"]["loss"], rel=1e-5)


def test_numbers_of_records_for_each_worker(call: Call) -> None:
    """SINGA's repeated batchsize, one for each worker of a group."""
    Path("one.conf").write_text(NET)
    two = NET.replace("batchsize: 16", "batchsize: 10 batchsize: 6")
    Path("two.conf").write_text(two.replace("{ workspace", "{ nworkers_per_group: 2 workspace"))
    figures = []
    for name in ("one", "two"):
        more = ("--set", "cluster.nworkers_per_procs=2") if name == "two" else ()
        result = call("run", f"{name}.conf", "--cpu", "--json", "--quiet", "--run-dir", name, *more)
        assert result.exit_code == 0, result.output
        figures.append(json.loads(result.stdout.splitlines()[-1]))
    for phase in ("train", "test"):
        assert figures[0][phase]["loss"] == pytest.approx(figures[1][phase]["loss"], rel=1e-5)


def test_a_job_that_writes_text_is_sampled(call: Call) -> None:
    dummy = 'name: "a" type: kDummy dummy_conf { input: true shape: 1 shape: 2 }'
    Path("sample.conf").write_text(f"neuralnet {{ layer {{ {dummy} }} }}")
    result = call("run", "sample.conf")
    assert result.exit_code == 2
    assert "For tests run singa-dask test, for text singa-dask sample." in result.stderr
