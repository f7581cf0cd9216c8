"""``run --profile``: a trace, and the time of each layer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call


@pytest.mark.parametrize(("change", "steps"), [((), range(1, 6)), (("--set", "profile.steps=2"), range(4, 6))])
def test_a_run_that_is_profiled_leaves_a_trace(
    call: Call, job: Path, tmp_path: Path, change: tuple[str, ...], steps: range
) -> None:
    run = tmp_path / "run"
    result = call("run", job, "--run-dir", run, "--profile", "--json", "--quiet", *change)
    assert result.exit_code == 0, result.output
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    assert {"worker-0-0", "server-0-0"} <= {event["args"].get("name") for event in events if event["ph"] == "M"}
    assert [event["name"] for event in events if event.get("cat") == "step"] == [f"step {step}" for step in steps]
    layers = json.loads(result.stdout)["layers"]
    assert {f"{layer} forward" for layer in layers} <= {event["name"] for event in events}
    shown = call("show", run).stdout
    assert all(word in shown for word in ("profiled step", "computing", *layers))
    assert shown.count("profiled step") == 1
