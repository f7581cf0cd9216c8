"""A way to call the command line in this process, and a job that takes a moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from singa_dask.cli import main

ROOT = Path(__file__).parents[2]
Call = Callable[..., Result]

TINY = f"""\
name: tiny
seed: 7
train_steps: 6
disp_freq: 2
test_freq: 3
test_steps: 2
train_one_batch: {{alg: BP}}
updater:
  type: SGD
  momentum: 0.9
  learning_rate: {{type: Fixed, base_lr: 0.05}}
neuralnet:
  layer:
    - name: data
      type: RecordInput
      store_conf: {{path: {ROOT}/data/digits/test.arrow, shape: [28, 28], batchsize: 20, std_value: 255, shuffle: full}}
    - name: fc
      type: InnerProduct
      srclayers: data
      innerproduct_conf: {{num_output: 10}}
      param:
        - {{name: w, init: {{type: UniformSqrtFanIn}}}}
        - {{name: b, init: {{type: Constant, value: 0}}}}
    - name: loss
      type: SoftmaxLoss
      srclayers: [fc, data]
"""


@pytest.fixture
def call() -> Call:
    """Return a function that runs ``singa-dask`` with some arguments in this process."""

    def run(*args: Any) -> Result:
        return CliRunner().invoke(main, [str(arg) for arg in args], prog_name="singa-dask")

    return run


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return a job file of six small steps."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path
