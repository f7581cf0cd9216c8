"""Pictures of curves: PNG, SVG, and a page around them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from singa_dask.errors import ConfigError
from singa_dask.observe.files.stored_run import StoredRun, short_names
from singa_dask.observe.pictures.curves import panels_of
from singa_dask.observe.pictures.figure import draw, show_window
from singa_dask.observe.pictures.html import picture, table, write_page
from tests.observe.runs import metrics, training, write_run
from tests.selection import circles


def runs(folder: Path) -> list[StoredRun]:
    groups = [metrics(step, group=group, loss=0.5) for step in (0, 50) for group in (0, 1)]
    validation = [metrics(10, "validation", loss=float("nan"))]
    urls = [write_run(folder / "one", training()), write_run(folder / "two <b>", [*groups, *validation])]
    return [StoredRun(url) for url in urls]


@pytest.mark.parametrize(("suffix", "start"), circles([(".png", b"\x89PNG"), (".svg", b"<?xml")]))
@pytest.mark.long
def test_equal_runs_give_equal_pictures(tmp_path: Path, suffix: str, start: bytes) -> None:
    found = runs(tmp_path)
    picture = draw(panels_of(found), short_names(found), "step", suffix)
    assert picture.startswith(start)
    assert picture == draw(panels_of(found), short_names(found), "step", suffix)


@pytest.mark.long
def test_one_run_without_tests_is_drawn(tmp_path: Path) -> None:
    found = [StoredRun(write_run(tmp_path, [metrics(0, loss=1.0)]))]
    assert draw(panels_of(found, "epoch"), ["a"], "epoch", ".svg")


def test_there_is_no_window_without_a_display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND"):
        monkeypatch.delenv(name, raising=False)
    found = runs(tmp_path)
    assert show_window(panels_of(found), short_names(found), "step") is False


def test_without_matplotlib_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"matplotlib cannot be imported.*pip install 'singa-dask\[plot\]'"):
        draw([], [], "step", ".png")
    assert show_window([], [], "step") is False


def test_a_page_escapes_names_and_loads_nothing() -> None:
    rows = [{"run": "<script>"}, {"run": "x", "steps": "1"}]
    text = write_page("a <b>", [picture(b"<?xml?><svg>drawn</svg>"), table(rows)])
    assert "<h1>a &lt;b&gt;</h1>" in text
    assert "<td>&lt;script&gt;</td><td></td>" in text
    assert "<svg>drawn</svg>" in text and "<?xml" not in text
    assert "src=" not in text and "http" not in text.replace("http-equiv", "")
