"""Progress: a line an event in a log, a bar a group on a terminal, nothing when quiet."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from rich.progress import Task

from singa_dask.observe import join_if_fits, start_progress
from singa_dask.observe.event_texts import metrics_line
from singa_dask.observe.terminal.bars import BarProgress, epoch_of
from singa_dask.observe.terminal.progress import LinesProgress, Progress


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


class Clock:
    """A clock that shows what it is set to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_warning_of_several_layers_is_one_line() -> None:
    shown = console(terminal=False)
    with LinesProgress(shown.file) as progress:
        for unit, said in (("w0", "a"), ("w0", "a"), ("w1", "a"), ("w1", "b"), ("w1", "b"), ("w1", "a")):
            progress.on_event({"event": "log", "unit": unit, "level": "WARNING", "message": said, "time": 0.0})
    assert text(shown).splitlines() == ["w0: a", "w1: a", "w1: b", "w1: a"]


def test_lines_say_how_much_time_is_left() -> None:
    shown = console(terminal=False)
    with LinesProgress(shown.file, 1, 200) as progress:
        for time, step in ((10.0, 0), (20.0, 100), (20.0, 199)):
            progress.on_event(metrics(step=step, time=time, samples_per_s=8.0))
    assert [line.rpartition("  ")[2] for line in text(shown).splitlines()] == [
        "(8 samples/s)",
        "(8 samples/s, 0:10 left)",
        "(8 samples/s, 0:00 left)",
    ]


def test_a_long_job_prints_some_hundred_lines_and_the_last() -> None:
    shown, clock, n = console(terminal=False), Clock(), 20_000
    with LinesProgress(shown.file, 1, n, clock) as progress:
        for step in range(n):
            clock.now += 0.1
            progress.on_event(metrics(step=step))
    lines = text(shown).splitlines()
    assert 100 < len(lines) < 1000
    assert lines[100] == "From here on lines are skipped; metrics.jsonl has all."
    assert [int(re.findall(r"step (\d+)", line)[0]) for line in lines[:100]] == list(range(100))
    assert f"step {n - 1}:" in lines[-1]


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
        # the end of the job says it
        progress.on_event({"event": "log", "unit": "worker-0-0", "level": "ERROR", "message": "why", "time": 0.0})
        progress.on_event({"event": "log", "unit": "worker-0-0", "level": "INFO", "message": "no", "time": 0.0})
        progress.on_event({"event": "checkpoint", "step": 61, "url": f"s3://{'long' * 30}"})
    assert text(shown).splitlines() == [
        "Train @ step 60: loss = 0.4512, accuracy = 0.8594",
        "worker-0-0: [bold]x[/]",
        f"Checkpoint @ step 61: s3://{'long' * 30}",
    ]


def bars(n_groups: int = 1, width: int = 80, n_steps: int = 2500) -> tuple[BarProgress, Callable[[], list[str]]]:
    """Return a progress with bars, and what shows their table as lines."""
    shown = Console(file=io.StringIO(), force_terminal=True, width=width, height=50, highlight=False)
    progress = start_progress(n_groups, n_steps, console=shown, run_url="/r/run")
    assert isinstance(progress, BarProgress)

    def lines() -> list[str]:
        plain = Console(file=io.StringIO(), width=width, height=50)
        plain.print(progress.bars.get_renderable())
        return text(plain).rstrip("\n").splitlines()

    return progress, lines


STEP_1250 = {
    "step": 1249,
    "epoch": 10.0,
    "lr": 0.0125,
    "samples_per_s": 18048.3,
    "wait_data_ms": 1.25,
    "wait_params_ms": 0.5,
}


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (60, "step bar eta epoch lr samples/s loss accuracy"),
        (80, "step bar time eta epoch lr samples/s loss accuracy"),
        (120, "step bar time eta epoch lr samples/s loss accuracy data ms params ms"),
        (30, "step eta loss accuracy"),
    ],
)
def test_bars_show_what_fits_the_terminal(width: int, names: str) -> None:
    progress, lines = bars(width=width)
    with progress:
        progress.on_event(metrics(**STEP_1250))
        header, row = lines()
    assert header.split() == names.split()
    assert len(header) <= width and len(row) <= width
    # behind the last row a terminal shows Ctrl-C as ^C
    assert len(row) <= width - 2 or width == 30
    assert row.split()[0] == "1250/2500"
    assert row.split()[-2:] == ["0.4512", "0.8594"] or width == 120
    assert ("10.0 0.0125" in row and "18048" in row) == (width >= 60)
    assert ("━" in row) == (width >= 60)


@pytest.mark.parametrize(
    ("completed", "speed", "expected"),
    [
        (1250, 12.5, (10.0, 10.0)),
        (1300, 12.5, (10.4, 6.0)),
        (2400, 10.0, (19.2, 10.0)),
        (2500, 10.0, (20.0, 0.0)),
        (1250, None, (10.0, None)),
    ],
)
def test_an_epoch_ends_when_its_records_are_done(
    completed: int, speed: float | None, expected: tuple[float, float | None]
) -> None:
    row = SimpleNamespace(completed=completed, remaining=2500 - completed, speed=speed)
    assert epoch_of(cast(Task, row), STEP_1250) == pytest.approx(expected)
    assert epoch_of(cast(Task, row), {"step": 3}) == (None, None)


@pytest.mark.parametrize("width", [60, 80])
def test_many_metrics_and_long_numbers_do_not_wrap(width: int) -> None:
    progress, lines = bars(width=width, n_steps=1_000_000)
    with progress:
        progress.on_event(metrics(**STEP_1250 | {"step": 123_455}, **{"b.loss": 2.0, "a.loss": 1.0}))
        shown = lines()
    assert len(shown) == 2 and max(map(len, shown)) <= width
    assert "123456/1000000" in shown[1]
    assert "a.loss b.loss" in shown[0]


def test_each_group_has_a_row_as_long_as_there_are_few() -> None:
    progress, lines = bars(n_groups=2, n_steps=100)
    with progress:
        progress.on_event(metrics(group=1, samples_per_s=99.6))
        progress.on_event(metrics(group=0, step=61))
        assert [line.split()[:2] for line in lines()] == [["group", "step"], ["0", "62/100"], ["1", "61/100"]]

    progress, lines = bars(n_groups=9, n_steps=100)
    with progress:
        for group in range(9):
            progress.on_event(metrics(group=group, step=60 + group, samples_per_s=100.0, loss=float(group)))
        header, row = lines()
    assert row.split()[:3] == ["all", "9", "61/100"]
    assert dict(zip(header.split()[-3:], row.split()[-3:], strict=True)) == {
        "samples/s": "900",
        "loss": "4.0000",
        "accuracy": "0.8594",
    }


def test_bars_move_between_the_metrics_and_without_any() -> None:
    progress, lines = bars(n_groups=2)
    with progress:
        progress.on_event({"event": "steps", "steps": {"0": 12, "1": 7}})
        assert [line.split()[1] for line in lines()[1:]] == ["12/2500", "7/2500"]
        assert lines()[0].split() == ["group", "step", "bar", "time", "eta"]
        progress.on_event({"event": "steps", "steps": {"0": 11}})  # overtaken by metrics of a later step
        assert [line.split()[1] for line in lines()[1:]] == ["12/2500", "7/2500"]


def test_what_matters_scrolls_by_above_the_bars_with_short_paths() -> None:
    progress, _ = bars(n_groups=2)
    with progress:
        progress.on_event(metrics(phase="test", group=0, **STEP_1250))
        progress.on_event(metrics(phase="train", group=0))
        progress.on_event({"event": "checkpoint", "step": 61, "url": "/r/run/checkpoint/step-61"})
    said = text(progress.console)
    assert "Test @ step 1249, group 0: loss = 0.4512" in said
    assert "Checkpoint @ step 61: checkpoint/step-61" in said
    assert "Train @" not in said


def test_colour_and_cursor_are_left_alone_where_they_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert type(start_progress(1, 100, console=console(terminal=True))) is LinesProgress
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    progress, _ = bars()
    with progress:
        progress.on_event(metrics(**STEP_1250))
    assert not re.findall(r"\x1b\[[0-9;]*3[0-9][0-9;]*m", text(progress.console))


def test_a_message_is_broken_in_two_where_the_terminal_is_too_narrow() -> None:
    narrow = Console(file=io.StringIO(), force_terminal=True, width=12)
    assert join_if_fits("done: 1", "see x", narrow) == "done: 1\nsee x"
    assert join_if_fits("done", "see x", narrow) == "done; see x"
    assert join_if_fits("done: 1", "see x", Console(file=io.StringIO(), width=12)) == "done: 1; see x"


def test_quiet_shows_nothing() -> None:
    shown = console(terminal=True)
    with start_progress(1, 100, quiet=True, console=shown) as progress:
        assert type(progress) is Progress
        progress.on_event(metrics())
    assert text(shown) == ""


def test_colours_that_are_forced_make_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-color")
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert type(start_progress(1, 100)) is LinesProgress
    assert join_if_fits("done" * 20, "see x") == f"{'done' * 20}; see x"


def test_a_terminal_has_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    assert type(start_progress(1, 100)) is BarProgress
