"""Pictures of curves in the characters of a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from singa_dask.observe.files.stored_run import StoredRun, short_names
from singa_dask.observe.pictures.curves import panels_of
from singa_dask.observe.pictures.text_figure import draw_text
from tests.observe.runs import metrics, training, write_run

BRAILLE = re.compile("[\u2801-\u28ff]")


def test_panels_fit_the_width_with_and_without_colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    runs = [StoredRun(write_run(tmp_path / name, training())) for name in ("first", "second")]
    for width in (60, 100):
        plain = draw_text(panels_of(runs), short_names(runs), "step", width, colours=False)
        assert max(map(len, plain.splitlines())) < width
        assert "\x1b" not in plain and "x first test" in plain and "o second train" in plain
    coloured = draw_text(panels_of(runs[:1]), ["first"], "step", 80, colours=True)
    assert "\x1b[" in coloured
    assert max(len(re.sub("\x1b[^m]*m", "", line)) for line in coloured.splitlines()) < 80


def test_axes_have_numbers_and_a_label(tmp_path: Path) -> None:
    run = StoredRun(write_run(tmp_path, [metrics(step, loss=1.0 + step) for step in (0, 50, 100)]))
    lines = draw_text(panels_of([run]), ["a"], "step", 60, colours=False).splitlines()
    assert lines[0] == "loss (log scale)"
    numbers = [float(line.split("|")[0]) for line in lines[2:-2]]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] > 101 and numbers[-1] < 1
    assert lines[-2].endswith("> (step)")
    assert float(lines[-1].split()[1]) == 0 and float(lines[-1].split()[-1]) > 90
    assert BRAILLE.search("".join(lines))


def test_values_that_are_not_finite_or_all_equal_are_no_mistake(tmp_path: Path) -> None:
    nan = StoredRun(write_run(tmp_path / "nan", [metrics(0, loss=float("inf"))]))
    assert draw_text(panels_of([nan]), ["a"], "step", 60, colours=False) == "loss: no value is finite"
    equal = StoredRun(write_run(tmp_path / "equal", [metrics(0, loss=0.0)]))
    assert BRAILLE.search(draw_text(panels_of([equal]), ["a"], "step", 60, colours=False))
