"""Progress below a cell of a notebook: one table that changes, and the latest other events."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from singa_dask.observe.terminal.bars import MAX_LINES, UPDATE_S, NotebookProgress
from singa_dask.observe.terminal.progress import notebook_shell


def metrics(step: int, phase: str = "train") -> dict[str, Any]:
    return {"event": "metrics", "phase": phase, "group": 0, "step": step, "time": 1.0, "loss": 0.5}


def test_a_table_changes_in_place() -> None:
    shown: list[dict[str, str]] = []
    now = [0.0]
    with NotebookProgress(1, 100, "/r/run", shown.append, lambda: now[0]) as progress:
        assert shown[-1]["text/plain"] == "starting ..."
        for step in range(50):
            now[0] += UPDATE_S / 8
            progress.on_event(metrics(step))
        assert len(shown) == 1 + 6
        assert "48/100" in shown[-1]["text/plain"]
        progress.on_event(metrics(60, "test"))
        progress.on_event({"event": "checkpoint", "step": 61, "url": "/r/run/checkpoint/step61"})
    table, *lines = shown[-1]["text/plain"].splitlines()[1:]
    assert table.split()[0] == "50/100"
    assert lines == ["Test @ step 60: loss = 0.5000", "Checkpoint @ step 61: checkpoint/step61"]
    assert shown[-1]["text/html"].startswith("<pre")


def test_lines_are_as_they_are_and_the_latest_stay() -> None:
    shown: list[dict[str, str]] = []
    with NotebookProgress(1, 100, show=shown.append) as progress:
        for i in range(MAX_LINES + 3):
            progress.on_event({"event": "notice", "message": f"[bold]<b>{i}" + 200 * "x"})
    lines = [line for line in shown[-1]["text/plain"].splitlines() if line.startswith("[bold]")]
    assert [line.rstrip("x") for line in lines] == [f"[bold]<b>{i}" for i in range(3, MAX_LINES + 3)]
    assert "&lt;b&gt;" in shown[-1]["text/html"]


def test_the_kernel_of_a_notebook_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for shell, is_kernel in ((None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=object()), True)):
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert (notebook_shell() is not None) == is_kernel
    monkeypatch.delitem(sys.modules, "IPython")
    assert notebook_shell() is None
