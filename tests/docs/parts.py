"""The layers that docs/parts.md shows learn, and a mistake in one is reported as the page says."""

from __future__ import annotations

import json
import re

from tests.snippets import ROOT, Session, read_blocks

__all__ = ["check_parts"]

PAGE = ROOT / "docs" / "parts.md"

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


def check_parts(session: Session) -> None:
    """Check that the layers which the blocks of the page have saved learn, and what is said of a mistake."""
    for kind in ("mylayer.Double", "scale.Scale"):
        check_learning(session, kind)
    check_mistake(session)


def check_learning(session: Session, kind: str) -> None:
    """Check that a job with a layer of the page learns."""
    module = kind.partition(".")[0]
    (session.directory / "own.yaml").write_text(
        LAYER.replace("mylayer.Double", kind).replace("mylayer.py", f"{module}.py")
    )
    session.shell("singa-dask run own.yaml --run-dir runs/own --overwrite")
    events = [json.loads(line) for line in (session.directory / "runs/own/metrics.jsonl").read_text().splitlines()]
    losses = [event["loss"] for event in events if event.get("phase") == "train"]
    assert losses[-1] < losses[0], kind


def check_mistake(session: Session) -> None:
    """Check what is printed for the mistake that the page describes."""
    block = read_blocks(PAGE, "python")[0]
    told = re.search(r"^    mylayer\.py:(\d+): (ZeroDivisionError: .*) \(worker-\d-\d, step (\d+), layer (\w+)\)$",
                     PAGE.read_text(), re.MULTILINE)  # fmt: skip
    assert told
    line, said, step, layer = told.groups()
    wrong = block.text.replace("= 2 * self.sources", f"= 2 / ({step} - self.context.step) * self.sources")
    folder = session.directory / "mistake"
    folder.mkdir()
    (folder / "mylayer.py").write_text(wrong)
    (folder / "own.yaml").write_text(LAYER.replace("mylayer.py]", f"{folder}/mylayer.py]"))
    script = f"code=0; singa-dask run {folder}/own.yaml --quiet || code=$?; test $code = 1"
    first = session.shell(script).splitlines()[0]
    # both workers fail at this step; the second one counts if it reports before the first one's report ends the job
    where = rf"worker-0-\d(?: and 1 other)?, step {step}, layer {layer}"
    assert re.search(rf"mylayer\.py:{line}: {said} \({where}\)$", first), first
