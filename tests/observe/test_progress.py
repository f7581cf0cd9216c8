"""Progress: a line an event in a log, a row a group on a terminal, nothing when quiet."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from singa_dask.observe import LinesProgress, Progress, TableProgress, metrics_line, start_progress


def metrics(**given: Any) -> dict[str, Any]:
    event = {"event": "metrics", "phase": "train", "group": 0, "step": 60, "time": 1.0, "accuracy": 0.859375}
    return {**event, "loss": 0.45123, **given}


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, highlight=False)


def text(shown: Console) -> str:
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


@pytest.mark.parametrize(
    ("event", "n_groups", "line"),
    [
        (metrics(), 1, "Train @ step 60: loss = 0.4512, accuracy = 0.8594"),
        (metrics(samples_per_s=1234.4, wait_data_ms=3.0), 1, "Train @ step 60: loss = 0.4512, accuracy = 0.8594"),
        (metrics(group=1), 2, "Train @ step 60, group 1: loss = 0.4512, accuracy = 0.8594"),
        (metrics(phase="test"), 1, "Test @ step 60: loss = 0.4512, accuracy = 0.8594"),
    ],
)
def test_a_line_says_what_singas_did(event: dict[str, Any], n_groups: int, line: str) -> None:
    rate = "  (1234 samples/s)" if "samples_per_s" in event else ""
    assert metrics_line(event, n_groups) == line + rate


def test_losses_of_several_layers_come_first() -> None:
    event = metrics(**{"b.loss": 2.0, "a.loss": 1.0})
    assert metrics_line(event).endswith("a.loss = 1.0000, b.loss = 2.0000, loss = 0.4512, accuracy = 0.8594")


def test_lines_are_printed_as_they_are() -> None:
    shown = console(terminal=False)
    with start_progress(1, 100, console=shown) as progress:
        assert type(progress) is LinesProgress
        progress.on_event({"event": "started", "job": "j", "topology": {}})
        progress.on_event(metrics())
        progress.on_event(
            {"event": "log", "unit": "worker-0-0", "level": "WARNING", "message": "[bold]x[/]", "time": 0.0}
        )
        progress.on_event({"event": "log", "unit": "worker-0-0", "level": "INFO", "message": "no", "time": 0.0})
        progress.on_event({"event": "checkpoint", "step": 61, "url": f"s3://{'long' * 30}"})
    assert text(shown).splitlines() == [
        "Train @ step 60: loss = 0.4512, accuracy = 0.8594",
        "worker-0-0: [bold]x[/]",
        f"Checkpoint @ step 61: s3://{'long' * 30}",
    ]


def test_a_terminal_has_a_row_for_each_group() -> None:
    shown = console(terminal=True)
    with start_progress(2, 100, console=shown) as progress:
        assert isinstance(progress, TableProgress)
        progress.on_event(metrics(group=1, samples_per_s=99.6, wait_data_ms=1.25, wait_params_ms=0.5))
        progress.on_event(metrics(group=0, step=61))
        progress.on_event(metrics(phase="test", group=0))
        plain = Console(file=io.StringIO(), width=100)
        plain.print(progress.table())
    rows = [line.split() for line in text(plain).splitlines()[1:]]
    figures = ["loss", "=", "0.4512,", "accuracy", "=", "0.8594"]
    assert rows == [
        ["0", "61/100", *figures, "0", "0.0", "ms", "0.0", "ms"],
        ["1", "60/100", *figures, "100", "1.2", "ms", "0.5", "ms"],
    ]
    assert "Test @ step 60, group 0: loss = 0.4512" in text(shown)


def test_quiet_shows_nothing() -> None:
    shown = console(terminal=True)
    with start_progress(1, 100, quiet=True, console=shown) as progress:
        assert type(progress) is Progress
        progress.on_event(metrics())
    assert text(shown) == ""
