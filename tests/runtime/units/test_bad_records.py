"""Jobs on records of which some are bad: they end, and what was passed over is written down exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.data.codecs.record import encode_record
from singa_dask.observe.files.run_directory import RunDirectory
from singa_dask.runtime import plan_processes
from singa_dask.runtime.job.driver.result import Result, summarise
from tests.contracts.records import pixels, write_pairs
from tests.runtime.harness import ALLREDUCE, SINGLE, Outcome, last_event, mlp
from tests.selection import circles

Run = Callable[..., Outcome]
N, BATCH = 40, 4
RECORDS = pixels(N)
BAD = {5: encode_record((3, 5), 1, bytes(15)), 6: b"text", 30: encode_record((3, 4), None, bytes(12))}
SHAPE = "holds pixel (3, 5) uint8, label () int32, expected pixel (3, 4) uint8, label () int32"
TEXT = "not a protobuf message: wire type 4 at byte 0"
UNLABELLED = "holds pixel (3, 4) uint8, expected pixel (3, 4) uint8, label () int32"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Write records of which three are bad, and half a one at the end."""
    path = tmp_path / "records.bin"
    values = [encode_record((3, 4), int(y), x.tobytes()) for x, y in zip(*RECORDS.values(), strict=True)]
    write_pairs(str(path), ((f"{i}", BAD.get(i, value)) for i, value in enumerate(values)))
    return str(path)


def job_on(url: str, cluster: dict[str, Any], train_steps: int = N // BATCH, **store: Any) -> JobConf:
    job = mlp(cluster=cluster, train_steps=train_steps).model_dump(mode="json")
    job["neuralnet"]["layer"][0]["store_conf"] = {"path": url, "shape": [3, 4], "batchsize": BATCH, **store}
    return JobConf.model_validate(job)


def written_down(job: JobConf, outcome: Outcome) -> tuple[list[dict[str, Any]], Result]:
    """Return what a run directory says of the bad records, and the end of the job."""
    layout = plan_processes(job.cluster)
    result = summarise("mlp", "mlp-1", layout, last_event(layout, outcome.reports))
    with RunDirectory(outcome.url, "", "") as directory:
        for event in outcome.events:
            if event["event"] != "metrics":
                directory.on_event(event)
        directory.finish(result.summary())
    path = Path(outcome.url) / "bad_records.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    assert json.loads((Path(outcome.url) / "summary.json").read_text())["bad_records"] == result.bad_records
    return sorted(map(json.loads, lines), key=lambda bad: (bad["row"] is not None, bad["row"])), result


def said(unit: str, url: str, row: int, reason: str) -> dict[str, Any]:
    return {"unit": unit, "layer": "data", "url": url, "block": 0, "row": row, "reason": reason}


@pytest.mark.parametrize("on_error", circles(["skip", "replace"], long=1))
def test_three_bad_records_are_passed_over_and_told(run_job: Run, url: str, on_error: str) -> None:
    job = job_on(url, SINGLE, on_error=on_error, max_bad=3)
    outcome = run_job(job)
    told, result = written_down(job, outcome)
    assert (result.state, result.bad_records) == ("done", 3)
    assert told == [
        said("worker-0-0", url, 5, SHAPE), said("worker-0-0", url, 6, TEXT), said("worker-0-0", url, 30, UNLABELLED)
    ]  # fmt: skip
    # they are told after the step that wanted them
    kinds = [event["event"] for event in outcome.events if event["event"] in ("metrics", "bad_record")]
    assert kinds == [*["metrics"], *["bad_record"] * 2, *["metrics"] * 6, "bad_record", *["metrics"] * 3]
    again = run_job(job_on(url, SINGLE, on_error=on_error, max_bad=3))
    assert again.losses() == outcome.losses()


def test_a_record_that_training_and_test_read_is_told_once(run_job: Run, url: str) -> None:
    job = job_on(url, SINGLE, on_error="skip", max_bad=3)
    job = job.model_copy(update={"test_freq": N // BATCH, "test_steps": N // BATCH})
    told, result = written_down(job, run_job(job))
    assert result.bad_records == 3
    assert [bad["row"] for bad in told] == [5, 6, 30]


def test_each_of_two_workers_tells_its_own(run_job: Run, url: str) -> None:
    alone = run_job(job_on(url, SINGLE, on_error="skip", max_bad=3))
    job = job_on(url, ALLREDUCE, on_error="skip", max_bad=3)
    outcome = run_job(job)
    told, result = written_down(job, outcome)
    assert (result.state, result.bad_records) == ("done", 3)
    assert told == [
        said("worker-0-0", url, 5, SHAPE), said("worker-0-1", url, 6, TEXT), said("worker-0-1", url, 30, UNLABELLED)
    ]  # fmt: skip
    np.testing.assert_allclose(list(outcome.losses().values()), list(alone.losses().values()), rtol=1e-4)


def test_a_torn_end_is_told_with_the_first_step(run_job: Run, url: str) -> None:
    data = Path(url).read_bytes()
    Path(url).write_bytes(data[:-5])
    job = job_on(url, SINGLE, on_error="skip", max_bad=4)
    told, result = written_down(job, run_job(job))
    assert (result.state, result.bad_records) == ("done", 4)
    assert (told[0]["block"], told[0]["row"]) == (None, None)
    assert told[0]["reason"].startswith("truncated at byte ")
    assert [bad["row"] for bad in told[1:]] == [5, 6, 30]


@pytest.mark.parametrize(
    ("options", "reason", "told"),
    [
        ({}, rf"layer data: .*records\.bin, block 0 .*record \d+: {TEXT}", []),
        ({"on_error": "skip", "max_bad": 2}, r"layer data: .*records\.bin: 3 bad records, more than the 2", [5, 6, 30]),
        ({"on_error": "skip"}, r"layer data: .*records\.bin: 2 bad records, more than the 1", [5, 6]),
    ],
)
def test_too_many_end_the_job(run_job: Run, url: str, options: dict[str, Any], reason: str, told: list[int]) -> None:
    outcome = run_job(job_on(url, SINGLE, **options))
    report = outcome.reports["worker-0-0"]
    assert report["state"] == "failed"
    assert report["bad_records"] == len(told)
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(report["reason"])
    assert [event["row"] for event in outcome.events if event["event"] == "bad_record"] == told


def test_a_job_without_bad_records_has_no_file_of_them(run_job: Run, tmp_path: Path) -> None:
    job = mlp(train_steps=2)
    outcome = run_job(job)
    told, result = written_down(job, outcome)
    assert (told, result.bad_records) == ([], 0)
    assert not (Path(outcome.url) / "bad_records.jsonl").exists()
