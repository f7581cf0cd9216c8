"""The memory of readers: a store that one cannot read is refused when the nets are built, not after the training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from singa_dask.conf import load
from singa_dask.errors import DataError
from singa_dask.runtime.planning.nets import add_passes, build_nets

JOB = """
name: two
train_steps: 3
test_freq: 3
train_one_batch: {alg: BP}
updater: {type: SGD, learning_rate: {type: Fixed, base_lr: 0.1}}
neuralnet:
  layer:
    - name: data
      type: RecordInput
      store_conf: {path: TABLE, backend: table, label: kind, shape: [2], batchsize: 50, block_bytes: 1000}
    - {name: fc, type: InnerProduct, srclayers: [data], innerproduct_conf: {num_output: 2}}
    - {name: loss, type: SoftmaxLoss, srclayers: [fc, data]}
"""


def test_a_test_set_that_its_reader_cannot_hold_is_refused_before_the_training(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(1).normal(size=(2000, 2)), columns=["a", "b"])
    frame.assign(kind=np.arange(2000) % 2).to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "job.yaml").write_text(JOB.replace("TABLE", str(tmp_path / "table.csv")))
    job = load(tmp_path / "job.yaml").job
    nets = build_nets(job, memory=1000)
    with pytest.raises(
        DataError, match=r"table\.csv, block 46: the block has 25 records, .* allows this reader 0 MiB\. Set memory_mb"
    ):
        add_passes(job, nets)
    enough = build_nets(job, memory=100 << 20)
    add_passes(job, enough)
    assert [each.n_batches for each in enough.passes.values()] == [40]
