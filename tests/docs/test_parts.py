"""The layer that docs/parts.md shows learns, and a mistake in it is reported as the page says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tests.snippets import Session, read_blocks, session

PAGE = DOCS / "parts.md"

pytestmark = [pytest.mark.cluster, pytest.mark.long]

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


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Give a reader's copy of the repository."""
    with session(tmp_path_factory.mktemp("parts") / "copy") as made:
        yield made


@pytest.mark.parametrize(("k", "kind"), [(0, "mylayer.Double"), (1, "scale.Scale")])
def test_the_layer_of_the_readers_own_learns(reader: Session, k: int, kind: str) -> None:
    reader.run(read_blocks(PAGE, "python")[k])
    module = kind.partition(".")[0]
    (reader.directory / "own.yaml").write_text(
        LAYER.replace("mylayer.Double", kind).replace("mylayer.py", f"{module}.py")
    )
    reader.shell("singa-dask run own.yaml --run-dir runs/own --overwrite")
    events = [json.loads(line) for line in (reader.directory / "runs/own/metrics.jsonl").read_text().splitlines()]
    losses = [event["loss"] for event in events if event.get("phase") == "train"]
    assert losses[-1] < losses[0]


def test_a_mistake_in_it_is_reported_as_the_page_says(reader: Session, tmp_path: Path) -> None:
    block = read_blocks(PAGE, "python")[0]
    told = re.search(r"^    mylayer\.py:(\d+): (ZeroDivisionError: .*) \(worker-\d-\d, step (\d+), layer (\w+)\)$",
                     PAGE.read_text(), re.MULTILINE)  # fmt: skip
    assert told
    line, said, step, layer = told.groups()
    wrong = block.text.replace("= 2 * self.sources", f"= 2 / ({step} - self.context.step) * self.sources")
    (tmp_path / "mylayer.py").write_text(wrong)
    (tmp_path / "own.yaml").write_text(LAYER.replace("mylayer.py]", f"{tmp_path}/mylayer.py]"))
    script = f"code=0; singa-dask run {tmp_path}/own.yaml --quiet || code=$?; test $code = 1"
    first = reader.shell(script).splitlines()[0]
    # both workers fail at this step; the second one counts if it reports before the first one's report ends the job
    where = rf"worker-0-\d(?: and 1 other)?, step {step}, layer {layer}"
    assert re.search(rf"mylayer\.py:{line}: {said} \({where}\)$", first), first
