"""Jobs whose remote records are replaced: while they start, after their last read, and between two runs."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from singa_dask import fs
from singa_dask.conf import JobConf
from singa_dask.data.stores import Store
from singa_dask.inputs import StoreInput
from singa_dask.inputs.record_source import RecordSource
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from tests.cli.conftest import DIGITS
from tests.runtime.harness import ALLREDUCE, Outcome, mlp

Run = Callable[..., Outcome]
DATA = DIGITS.read_bytes()


@pytest.fixture
def url() -> str:
    url = f"memory://{uuid.uuid4().hex}/digits.arrow"
    fs.write_atomic(url, DATA)
    return url


def remote(url: str, **changes: Any) -> JobConf:
    """Return the job on records at a URL, of which it does not read all."""
    job = mlp(**changes).model_dump(exclude_unset=True)
    job["neuralnet"]["layer"][0]["store_conf"] |= {"path": url, "shuffle": "none"}
    return JobConf.model_validate(job)


def reasons(outcome: Outcome) -> set[str]:
    return {report.get("reason", "") for report in outcome.reports.values()}


def test_workers_that_open_two_versions_of_a_file(url: str, run_job: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real, lock = RecordSource.open_checked, threading.Lock()

    def open_and_replace(source: RecordSource) -> Store:
        with lock:
            store = real(source)
            fs.write_atomic(url, DATA)
            return store

    monkeypatch.setattr(RecordSource, "open_checked", open_and_replace)
    outcome = run_job(remote(url, cluster=ALLREDUCE))
    (reason,) = reasons(outcome)
    assert f"{url}: the file was replaced while the job started: " in reason
    assert reason.count("created") == 2
    # the other worker may have computed a part of the first step
    assert {event["step"] for event in outcome.events if event["event"] == "metrics"} <= {0}
    assert not any(event["event"] == "checkpoint" for event in outcome.events)


def test_a_file_that_is_replaced_after_the_last_read(url: str, run_job: Run) -> None:
    def replace_file(_: Any, event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint":
            fs.write_atomic(url, DATA)

    outcome = run_job(remote(url, train_steps=3, cluster=ALLREDUCE), on_event=replace_file)
    servers = [report for unit, report in outcome.reports.items() if unit.startswith("server")]
    assert [(report["state"], report["exit_code"], report["retry"]) for report in servers] == 2 * [
        ("aborted", 1, False)
    ]
    (reason,) = {report["reason"] for report in servers}
    assert reason.endswith(f"{url}: the file was replaced while it was read.")
    assert Checkpoint(f"{outcome.url}/checkpoint/step-3").step == 3


@pytest.mark.parametrize("recovers", [False, True])
def test_a_file_that_is_replaced_between_two_runs(
    url: str, run_job: Run, caplog: pytest.LogCaptureFixture, recovers: bool
) -> None:
    first = run_job(remote(url, train_steps=3))
    assert {report["state"] for report in first.reports.values()} == {"done"}
    fs.write_atomic(url, DATA)
    rest = run_job(remote(url, train_steps=5), resume=f"{first.url}/checkpoint/step-3", incarnation=int(recovers))
    if recovers:
        assert any(f"{url}: replaced since" in reason for reason in reasons(rest))
    else:
        assert f"{url}: replaced since" in caplog.text
        assert {report["state"] for report in rest.reports.values()} == {"done"}


TABLE = "kind,x,species\n" + "".join(f"{kind},{i},{'cat' if i % 2 else 'dog'}\n" for i, kind in enumerate("abcabcab"))
OTHERS = {
    "categories of layer 'data'": TABLE.replace("a,", "z,"),
    "means of layer 'data'": TABLE.replace("7,", "9,"),
    "the blocks of records of layer 'data'": f"{TABLE}a,3.5,dog\n",
}
JOB = """
- {name: data, type: RecordInput, store_conf: {path: FILE, label: species, features: [kind, x], categories: {kind: []},
   missing: mean, batchsize: 4, shape: [4]}}
- {name: fc, type: InnerProduct, srclayers: [data], innerproduct_conf: {num_output: 2},
   param: [{name: w, init: {type: Constant}}, {name: b, init: {type: Constant}}]}
- {name: loss, type: SoftmaxLoss, srclayers: [fc, data]}
"""


@pytest.fixture
def run_on_two_tables(tmp_path: Path, run_job: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Outcome]:
    """Return what trains on two workers that each see a table of its own, as two hosts do that each have a copy."""
    real, file, other = StoreInput._open, tmp_path / "animals.csv", tmp_path / "other.csv"

    def open_own(layer: StoreInput) -> Any:
        if layer.site.batch_shard.index:
            layer.source.conf = layer.store_conf.model_copy(update={"path": str(other)})
        return real(layer)

    monkeypatch.setattr(StoreInput, "_open", open_own)

    def run(one: str, another: str) -> Outcome:
        file.write_text(one)
        other.write_text(another)
        layers = yaml.safe_load(JOB.replace("FILE", str(file)))
        return run_job(mlp(cluster=ALLREDUCE, neuralnet={"layer": layers}))

    return run


@pytest.mark.parametrize("what", OTHERS)
def test_workers_that_see_two_local_files_of_one_name(
    what: str, run_on_two_tables: Callable[[str, str], Outcome]
) -> None:
    outcome = run_on_two_tables(TABLE, OTHERS[what])
    reason = next(iter(reasons(outcome) - {""}))
    assert what in reason
    assert "differ between a worker on" in reason
    assert not any(event["event"] == "checkpoint" for event in outcome.events)


def test_means_may_differ_in_their_last_digits(run_on_two_tables: Callable[[str, str], Outcome]) -> None:
    table = TABLE.replace("7,", "7.00000001,")
    outcome = run_on_two_tables(table, table.replace("01,", "02,"))
    assert set(reasons(outcome)) == {""}
