"""Tables of plain text."""

from __future__ import annotations

import pytest

from singa_dask.cli.printing import TextColumn, ago, align, table


def test_columns_are_aligned_and_those_of_high_rank_give_way() -> None:
    columns = [
        TextColumn("job", ["digits", "mnist"]),
        TextColumn("name", ["", ""]),
        TextColumn("owner", ["anna", "otto"], 1),
        TextColumn("step", ["1", "20"], right=True),
    ]
    assert table(columns, None) == ["job     owner  step", "digits  anna      1", "mnist   otto     20"]
    assert table(columns, 12) == ["job     step", "digits     1", "mnist     20"]


def test_a_table_without_room() -> None:
    assert table([TextColumn("job", ["a-long-id"]), TextColumn("state", ["done"], 1)], 5) == ["job", "a-long-id"]
    assert table([TextColumn("job", [""])], 5) == []


def test_rows_are_aligned_by_the_width_of_what_is_shown() -> None:
    """Characters of East Asia take two columns, and an escaped line end two."""
    assert align([("層", "1"), ("fc\n", "20")], (1,), "  ") == ["  層     1", "  fc\\n  20"]


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0 s"), (59, "59 s"), (90, "2 min"), (7300, "2 h"), (2e5, "2 d")])
def test_time_spans(seconds: float, text: str) -> None:
    assert ago(seconds) == text


def test_each_cell_is_measured_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    monkeypatch.setattr("rich.cells.cell_len", lambda text: measured.append(text) or len(text))
    cells = [str(i) for i in range(1000)]
    assert len(table([TextColumn("job", cells), TextColumn("step", cells, right=True)], 80)) == 1001
    assert len(measured) <= 2 * 2 * 1001
