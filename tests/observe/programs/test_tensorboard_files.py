"""Event files are what TensorBoard reads, which shows each step once, and follow a run that is resumed."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path

import google_crc32c
import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from singa_dask import fs
from singa_dask.observe.files.run_directory import RunDirectory
from singa_dask.observe.programs.tensorboard_files import TensorboardFiles
from tests.observe.runs import BEGAN, metrics

STARTED = {"event": "started", "time": BEGAN}


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "run") if request.param == "local" else f"memory://{uuid.uuid4().hex}/run"


def masked(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def events_of(url: str, name: str) -> list[Event]:
    """Read event files, in their order, by their definition: length, checksum, event, checksum."""
    files = fs.ls(fs.join(url, "tensorboard", name))
    assert all(file.startswith("events.out.tfevents.") for file in files)
    found: list[Event] = []
    for file in files:
        found += events_in(fs.read_bytes(fs.join(url, "tensorboard", name, file)))
    return found


def events_in(content: bytes) -> list[Event]:
    found = []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        body = content[12 : 12 + length]
        assert struct.unpack("<I", content[8:12])[0] == masked(content[:8])
        assert struct.unpack("<I", content[12 + length : 16 + length])[0] == masked(body)
        found.append(Event.FromString(body))
        content = content[16 + length :]
    return found


def values_of(url: str, name: str) -> list[tuple[int, dict[str, float]]]:
    """Return what TensorBoard shows: nothing of files before one that is not before the step at which that begins."""
    events: list[Event] = []
    for event in events_of(url, name):
        if event.HasField("session_log"):
            assert event.session_log.status == SessionLog.START
            events = [each for each in events if each.step < event.step]
        elif event.HasField("summary"):
            events.append(event)
    return [(event.step, {value.tag: value.simple_value for value in event.summary.value}) for event in events]


def record(url: str, events: list[dict[str, object]], **given: object) -> None:
    with RunDirectory(url, "name: a", "name: a", **given) as directory:  # type: ignore[arg-type]
        files = TensorboardFiles(url)
        for event in (STARTED, *events):
            directory.on_event(event)
            files.on_event(event)
        files.close()


def test_phases_and_groups_have_files_of_their_own(url: str) -> None:
    nan = metrics(5, loss=float("nan"), lr=0.5)
    record(url, [metrics(0, loss=0.5, lr=0.25), metrics(0, "test", loss=0.75), metrics(0, group=1, loss=1.0), nan])
    assert fs.ls(fs.join(url, "tensorboard")) == ["test", "train", "train-group-1"]
    assert values_of(url, "train") == [(0, {"loss": 0.5, "lr": 0.25}), (5, {"lr": 0.5})]
    assert values_of(url, "test") == [(0, {"loss": 0.75})]
    first = events_of(url, "train")
    assert first[0].file_version == "brain.Event:2"
    assert first[2].wall_time == metrics(0)["time"]


def test_a_resumed_run_has_each_step_once(url: str) -> None:
    record(url, [metrics(step, loss=1.0) for step in (0, 10, 20)])
    record(url, [metrics(step, loss=2.0) for step in (10, 20, 30)], goes_on=True, steps={0: 10})
    assert [(step, each["loss"]) for step, each in values_of(url, "train")] == [(0, 1), (10, 2), (20, 2), (30, 2)]


def test_another_driver_goes_on_at_its_first_event(url: str) -> None:
    record(url, [metrics(step, loss=1.0) for step in (0, 10, 20)])
    files = TensorboardFiles(url)
    for step in (20, 30):  # told again from there on
        files.on_event(metrics(step, loss=2.0))
    files.close()
    assert [(step, each["loss"]) for step, each in values_of(url, "train")] == [(0, 1), (10, 1), (20, 2), (30, 2)]
