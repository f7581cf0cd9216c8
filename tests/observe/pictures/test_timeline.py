"""Time lines of steps: what is read from a trace, and drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from singa_dask.errors import DataError
from singa_dask.observe.pictures.timeline import MAX_TRACKS, Interval, draw_steps, read_trace


def event(name: str, start_ms: float, ms: float, thread: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": 3, "tid": thread, "ts": 1e3 * start_ms, "dur": 1e3 * ms, **more}


def written(folder: Path, *events: dict[str, Any]) -> str:
    names = [
        {"name": "thread_name", "ph": "M", "pid": 3, "tid": i, "args": {"name": name}}
        for i, name in enumerate(("worker-0-1", "messages sent"))
    ]
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": [*names, *events]}))
    return str(path)


def test_the_last_step_of_a_measured_trace(tmp_path: Path) -> None:
    steps = [event(f"step {k}", 100 + 10 * k, 8, cat="step") for k in (1, 0)]
    layers = [event("fc forward", 101, 2, cat="forward"), event("fc backward", 111, 3, cat="backward")]
    across = event("update fc", 117, 5, thread=1, cat="update")
    found = read_trace(written(tmp_path, *layers, *steps, across))
    assert found == [
        Interval("3: worker-0-1", "backward", 1, 3),
        Interval("3: messages sent", "update", 7, 1),
    ]


def test_all_of_a_simulated_trace(tmp_path: Path) -> None:
    found = read_trace(written(tmp_path, event("fc forward", 0, 2), event("exchange", 2, 1, thread=1)))
    assert found == [Interval("3: worker-0-1", "forward", 0, 2), Interval("3: messages sent", "exchange", 2, 1)]


@pytest.mark.parametrize("text", ["", "[1]", '{"traceEvents": [{}]}', '{"events": []}'])
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(DataError, match="is not a trace"):
        read_trace(str(path))


@pytest.mark.long
def test_steps_are_drawn_with_a_bar_for_each_span() -> None:
    events = [Interval(f"{k}: worker", kind, k, 1) for k in range(MAX_TRACKS + 3) for kind in ("forward", "wait")]
    svg = draw_steps({"simulated": events, "measured": events[:4]}).decode()
    alone = draw_steps({"measured": events[:4]}).decode()
    assert svg.count("PolyCollection") == 2 * MAX_TRACKS + 4
    assert alone.count("PolyCollection") == 4
