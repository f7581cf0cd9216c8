"""Every code block of README.md, pasted in order; those that need an HDFS are in tests/hdfs/test_readme.py."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import material
from tests.snippets import ROOT, Block, Session, read_blocks, session

README = ROOT / "README.md"
ON_HDFS = ("Records", "Training from HDFS")
HERE = [block for block in read_blocks(README) if block.section not in ON_HDFS]
STEPS = 5_000

pytestmark = [pytest.mark.cluster, pytest.mark.long]

# Without a stated reason a line of README runs as it is.
NOT_RUN = {
    "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest": "it is what runs this test",
    "pip install 'singa-dask[cuda12]'                              # or [cuda13]; CUDA itself need not be installed": (
        "a gigabyte, for a machine with a GPU"
    ),
    "dask cuda worker tcp://scheduler:8786 --nthreads 2            # pip install dask-cuda": "it starts a worker a GPU",
}


def substitutions(port: int) -> dict[str, str]:
    """Return what runs in place of text of README."""
    on_gpu = f"env -u DASK_SCHEDULER_ADDRESS PYTHONPATH={ROOT / 'tests/simulated'}"
    few = "--set train_steps=3 --set test_freq=2 --set test_steps=1"
    small = " ".join(f"--set 'neuralnet.layer[{i}].store_conf.batchsize=4'" for i in (0, 1))
    convnet = "singa-dask run configs/cifar10/convnet.yaml"
    stopped = "singa-dask run JOB.yaml --run-dir runs/mine   "
    return {
        # another scheduler may have the port
        "--port 8786": f"--host 127.0.0.1 --port {port}",
        "tcp://localhost:8786": f"tcp://127.0.0.1:{port}",
        # the reader's own
        "--init-from RUN ": "--init-from runs/of-reader ",
        # five minutes of training, for the sample below it
        "configs/char-rnn/gru.yaml --run-dir": "configs/char-rnn/gru.yaml --set train_steps=30 --run-dir",
        # simulated GPUs, which are slow, with processes of their own
        f"{convnet} --set 'gpu=[0]'": f"{on_gpu} {convnet} --set 'gpu=[0]' {few} {small}",
        f"{convnet} --cluster": f"{on_gpu} {convnet} {few} {small} --cluster",
        # a hand at the keyboard
        stopped: material.interrupted("runs/mine", stopped),
    }


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Give a reader's copy of the repository, with data and job files of the reader's own."""
    with session(tmp_path_factory.mktemp("readme") / "copy", substitutions(material.free_port()), NOT_RUN) as made:
        here = made.directory
        material.write_photos(here / "photos")
        shutil.copy(next((here / "photos").rglob("*.png")), here / "one.png")
        for i in range(1, 6):
            material.write_cifar(here / f"data_batch_{i}.bin", 20)
        material.write_cifar(here / "test_batch.bin", 20)
        mlp = (here / "configs/digits/mlp.yaml").read_text()
        (here / "JOB.yaml").write_text(
            mlp.replace("train_steps: 2500", f"train_steps: {STEPS}").replace("disp_freq: 125", "disp_freq: 10")
        )
        (here / "OTHER.yaml").write_text(mlp.replace("train_steps: 2500", "train_steps: 20"))
        made.shell(
            "singa-dask convert cifar 'data_batch_[1-5].bin' data/cifar10/train.arrow "
            "--mean data/cifar10/image_mean.bin\n"
            "singa-dask convert cifar test_batch.bin data/cifar10/test.arrow\n"
            "singa-dask run OTHER.yaml --run-dir runs/of-reader"
        )
        yield made


@pytest.mark.parametrize("block", HERE, ids=str)
def test_a_block_runs(reader: Session, block: Block) -> None:
    if "net.svg" in block.text and not shutil.which("dot"):
        pytest.skip("needs the program dot of Graphviz")
    reader.run(block)
    if block.file_name.endswith(".yaml"):
        reader.shell(
            f"singa-dask validate --strict {block.file_name}\nsinga-dask run {block.file_name} --set train_steps=100"
        )


def test_the_blocks_did_what_they_say(reader: Session) -> None:
    """Look at what all of the blocks above have left."""
    assert reader.unused() == set()
    runs = reader.directory / "runs"
    digits = [json.loads(path.read_text()) for path in sorted(runs.glob("digits-mlp-*/summary.json"))]
    # the first command, alone, and on the cluster by AllReduce and by Downpour; then what takes the reader's values
    assert [summary["state"] for summary in digits] == ["done"] * 4
    assert sorted(summary["test"]["accuracy"] > 0.95 for summary in digits[:3]) == [True] * 3
    mine = json.loads((runs / "mine/summary.json").read_text())
    assert (mine["state"], mine["steps"]) == ("done", STEPS)
    assert len(list(reader.directory.glob("features-*.arrow"))) == 2
    assert (reader.directory / "net.svg").read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize("extra", re.findall(r"singa-dask\[(\w+)\]|or \[(\w+)\]", README.read_text()), ids="".join)
def test_an_extra_that_readme_names_is_there(extra: tuple[str, str]) -> None:
    assert "".join(extra) in (importlib.metadata.metadata("singa-dask").get_all("Provides-Extra") or [])


def test_the_test_command_is_what_ci_runs() -> None:
    pattern = re.search(r"grep -m 1 -E '([^']+)'", (ROOT / ".ci/run").read_text())
    assert pattern
    found = subprocess.run(["grep", "-m", "1", "-E", pattern[1], README], capture_output=True, text=True).stdout
    assert found.rstrip("\n") in NOT_RUN


def test_a_worker_for_each_gpu_is_started_with_options_of_a_worker() -> None:
    (line,) = [line for line in NOT_RUN if line.startswith("dask cuda worker")]
    known = subprocess.run(
        [sys.executable, "-m", "dask", "worker", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r"--[\w-]+", line)) <= set(re.findall(r"--[\w-]+", known))


LAYER = """\
modules: [mylayer.py]
name: own
train_steps: 30
disp_freq: 10
train_one_batch: {alg: BP}
updater: {type: SGD, learning_rate: {type: Fixed, base_lr: 0.05}}
neuralnet:
  layer:
    - name: data
      type: RecordInput
      store_conf: {path: data/digits/train.arrow, shape: [28, 28], batchsize: 64, std_value: 255}
    - {name: double, type: mylayer.Double, srclayers: data}
    - name: fc
      type: InnerProduct
      srclayers: double
      innerproduct_conf: {num_output: 10}
      param: [{name: w, init: {type: UniformSqrtFanIn}}, {name: b, init: {type: Constant, value: 0}}]
    - {name: loss, type: SoftmaxLoss, srclayers: [fc, data]}
cluster: {nworkers_per_group: 2}
"""


def test_the_layer_of_the_readers_own_learns(reader: Session) -> None:
    (block,) = [block for block in HERE if block.language == "python"]
    reader.run(block)
    (reader.directory / "own.yaml").write_text(LAYER)
    reader.shell("singa-dask run own.yaml --run-dir runs/own")
    events = [json.loads(line) for line in (reader.directory / "runs/own/metrics.jsonl").read_text().splitlines()]
    losses = [event["loss"] for event in events if event.get("phase") == "train"]
    assert losses[-1] < losses[0]


def test_a_mistake_in_it_is_told_as_readme_says(reader: Session, tmp_path: Path) -> None:
    (block,) = [block for block in HERE if block.language == "python"]
    told = re.search(r"^    mylayer\.py:(\d+): (ZeroDivisionError: .*) \(worker-\d-\d, step (\d+), layer (\w+)\)$",
                     README.read_text(), re.MULTILINE)  # fmt: skip
    assert told
    line, said, step, layer = told.groups()
    wrong = block.text.replace("= 2 * self.sources", f"= 2 / ({step} - self.context.step) * self.sources")
    (tmp_path / "mylayer.py").write_text(wrong)
    (tmp_path / "own.yaml").write_text(LAYER.replace("mylayer.py]", f"{tmp_path}/mylayer.py]"))
    script = f"code=0; singa-dask run {tmp_path}/own.yaml --quiet || code=$?; test $code = 1"
    first = reader.shell(script).splitlines()[0]
    assert re.search(rf"mylayer\.py:{line}: {said} \(worker-0-\d, step {step}, layer {layer}\)$", first), first
