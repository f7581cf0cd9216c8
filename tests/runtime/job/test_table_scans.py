"""Large tables of text are scanned by all Dask workers of a job, each file once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
import pytest
from distributed import Client

from singa_dask.conf import JobConf, load
from singa_dask.data.tables.files.csv_part import CsvPart
from singa_dask.runtime import Patience, connect
from singa_dask.runtime.job.dask_tasks import run_here
from singa_dask.runtime.job.driver import locality
from singa_dask.runtime.job.driver.locality import reads_tables, survey
from singa_dask.runtime.job.driver.table_scans import scan_tables
from singa_dask.runtime.planning.nets import build_nets
from tests.runtime.processes import TIMEOUT_S, Cluster, Driven

T = TypeVar("T")
JOB = """
name: churn
train_steps: 3
train_one_batch: {alg: BP}
updater: {type: SGD, learning_rate: {type: Fixed, base_lr: 0.1}}
cluster: {nworkers_per_group: 2, nservers_per_group: 2, nworkers_per_procs: 1, nservers_per_procs: 1}
neuralnet:
  layer:
    - name: data
      type: RecordInput
      store_conf: {path: TABLE, backend: table, label: kind, shape: [2], batchsize: 50, standardise: true}
    - name: fc
      type: InnerProduct
      srclayers: [data]
      innerproduct_conf: {num_output: 2}
      param: [{init: {type: UniformSqrtFanIn}}, {init: {type: Constant}}]
    - {name: loss, type: SoftmaxLoss, srclayers: [fc, data]}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobConf:
    """Return a job that reads a table of four files, which is large here."""
    monkeypatch.setattr(locality, "SCANNED_BYTES", 1)
    random, folder = np.random.default_rng(1), tmp_path / "table"
    folder.mkdir()
    for i in range(4):
        frame = pd.DataFrame({"a": random.normal(size=3000), "b": random.normal(size=3000)})
        frame.assign(kind=np.where(frame.a > 0, "high", "low")).to_csv(folder / f"{i}.csv", index=False)
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace("TABLE", str(folder)))
    return load(file).job


def each_worker(function: Callable[[], T], **_: Any) -> dict[str, T]:
    return {"tcp://a": function()}


def test_each_file_is_scanned_once_and_then_no_more(
    job: JobConf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINGA_DASK_CACHE", str(tmp_path / "cache"))
    scanned: list[str] = []
    runs = CsvPart.runs
    monkeypatch.setattr(CsvPart, "runs", lambda part, *how: scanned.append(part.url) or runs(part, *how))
    client, said = cast(Client, SimpleNamespace(run=each_worker)), list[str]()

    def backwards(tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
        return run_here(tasks[::-1])

    assert reads_tables(job)
    scan_tables(client, survey(job.to_json(), None, 60, (), 1).unscanned, backwards, said.append)
    files = [f"{tmp_path}/table/{i}.csv" for i in range(4)]
    assert sorted(scanned) == files
    assert said == [f"{tmp_path}/table: the Dask workers look where records begin in 4 files"]
    for net in build_nets(job).values():
        with net.layers[0].source.open_checked() as store:
            assert store.count == 12000
    assert not survey(job.to_json(), None, 60, (), 1).unscanned
    assert sorted(scanned) == files and len(said) == 1


class Hosts(Cluster):
    """A cluster whose workers have caches of their own, as those of several hosts have."""

    def add(self, name: str, *options: str) -> None:
        self.before_worker = ("env", f"SINGA_DASK_CACHE={self.directory / name}")
        super().add(name, *options)


@pytest.mark.cluster
@pytest.mark.long
def test_hosts_of_a_job_share_a_scan(job: JobConf, tmp_path: Path) -> None:
    (tmp_path / "hosts").mkdir()
    (tmp_path / "runs").mkdir()
    made = Hosts(tmp_path / "hosts")
    try:
        with connect(scheduler_file=made.file, patience=Patience(TIMEOUT_S)) as client:
            client.wait_for_workers(2, timeout=TIMEOUT_S)
            done = Driven(job, client, tmp_path / "runs")
    finally:
        made.close()
    assert done.result.state == "done"
    notices = [event["message"] for event in done.events if event["event"] == "notice"]
    assert any("look where records begin in 4 files" in line for line in notices), notices
    kept = [[each.name for each in (tmp_path / "hosts" / name / "tables").glob("*-runs.json")] for name in "ab"]
    assert kept[0] == kept[1] and len(kept[0]) == 1
