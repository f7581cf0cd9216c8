"""What is read from the runs of a comparison, and how its report shows it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from singa_dask.cli.comparison import table_lines
from singa_dask.observe.pictures.comparison import Target, add_statistics, measure, short
from singa_dask.observe.pictures.comparison_page import write_report

BATCH = 10
GOAL = Target("test.accuracy", 0.9, less_is_better=False)


def write_run(url: Path, accuracies: list[float], state: str = "done", speed: float = 1.0, **summary: Any) -> str:
    """Write a run of two groups, of which the second is half as fast; a test after every 10 steps of the first."""
    url.mkdir(parents=True)
    events: list[dict[str, Any]] = []
    for i, accuracy in enumerate(accuracies):
        now = 1000 + 10 * i / speed
        test = {"event": "metrics", "phase": "test", "group": 0, "step": 10 * i, "time": now, "accuracy": accuracy}
        train = {"event": "metrics", "phase": "train", "time": now + 10 / speed, "loss": 1.0 / (i + 1)}
        events += [
            test,
            {**train, "group": 0, "step": 10 * i + 9, "samples_per_s": BATCH * speed},
            {**train, "group": 1, "step": 5 * i + 4, "samples_per_s": BATCH * speed / 2},
        ]
    (url / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    facts = {
        "state": state,
        "reason": "",
        "steps": 10 * len(accuracies),
        "samples": 15 * BATCH * len(accuracies),
        "samples_per_s": 15.0 * speed,
        "step_ms": {"median": 5.0},
        "wait_ms": {"data": 0.1, "params": 2.0},
        "bytes": {"sent": 30720 * len(accuracies), "received": 30720 * len(accuracies)},
        "staleness": {"0": 3, "2": 1, "more": 1},
        "staleness_mean": 1.0,
        "test": {"accuracy": accuracies[-1]},
        "train": {"loss": 0.1},
    }
    (url / "summary.json").write_text(json.dumps({**facts, **summary}))
    return str(url)


def comparison_of(runs: dict[str, list[dict[str, Any]]], target: Target | None = GOAL) -> dict[str, Any]:
    topologies = []
    for name, found in runs.items():
        topology = {"name": name, "reason": "" if found else "it does not fit", "units": "2 x 1 workers", "runs": found}
        add_statistics(topology)
        topologies.append(topology)
    return {
        "job": "<mlp>",
        "version": "1",
        "time": 0.0,
        "cluster": "a cluster",
        "seeds": [1, 2],
        "target": {"metric": target.metric, "value": target.value, "text": str(target)} if target else None,
        "limit_s": None,
        "topologies": topologies,
    }


def run_of(url: str, seed: int) -> dict[str, Any]:
    return {"seed": seed, "path": url, **measure(url, BATCH, GOAL)}


@pytest.fixture
def compared(tmp_path: Path) -> dict[str, Any]:
    """Return a comparison: one topology reaches the target, one with one seed only, one fails, one does not fit."""
    urls = {
        "fast": [write_run(tmp_path / "f1", [0.1, 0.91, 0.95]), write_run(tmp_path / "f2", [0.1, 0.5, 0.92])],
        "slow": [write_run(tmp_path / "s1", [0.1, 0.2, 0.9], speed=0.5), write_run(tmp_path / "s2", [0.1, 0.3, 0.4])],
        "failed": [write_run(tmp_path / "x1", [0.1, 0.2], state="failed", reason="worker-0-0: <a layer>")],
    }
    runs = {name: [run_of(url, seed) for seed, url in enumerate(found, 1)] for name, found in urls.items()}
    return comparison_of({**runs, "unfit": []})


def test_time_and_samples_count_all_groups_from_the_first_step(tmp_path: Path) -> None:
    found = measure(write_run(tmp_path / "run", [0.1, 0.5, 0.9]), BATCH, GOAL)
    # the first test was at 1000 s, when the groups began; after 20 s the groups had done 20 and 10 steps
    assert found["curves"]["test.accuracy"] == [[0.0, 0, 0.1], [10.0, 150, 0.5], [20.0, 300, 0.9]]
    assert found["curves"]["train.loss"][0] == [10.0, 150, 1.0]
    assert found["target"] == {"seconds": 20.0, "samples": 300}
    assert found["sent_per_step"] == 2048
    assert found["seconds"] == 30.0


def test_a_run_with_restarts_counts_all_of_its_time_and_samples(tmp_path: Path) -> None:
    # its summary has what the units of the last incarnation have done
    run = write_run(tmp_path / "run", [0.1, 0.5, 0.9], restarts=1, samples=50, samples_per_s=100.0)
    found = measure(run, BATCH, GOAL)
    assert (found["restarts"], found["seconds"], found["samples"], found["samples_per_s"]) == (1, 30.0, 450, 15.0)
    table = comparison_of({"single": [run_of(run, 1)]}, None)
    assert table["topologies"][0]["statistics"]["restarts"]["max"] == 1


def test_a_target_that_no_test_has_reached(tmp_path: Path) -> None:
    url = write_run(tmp_path / "run", [0.1, 0.89])
    assert measure(url, BATCH, GOAL)["target"] is None
    assert measure(url, BATCH, Target("train.loss", 0.5, less_is_better=True))["target"] == {
        "seconds": 20.0,
        "samples": 300,
    }
    assert measure(url, BATCH, None)["target"] is None


def test_a_run_that_was_never_begun(tmp_path: Path) -> None:
    found = measure(str(tmp_path), BATCH, GOAL)
    assert (found["state"], found["target"], found["curves"]) == (None, None, {})


def test_statistics_are_of_the_runs_that_are_done(compared: dict[str, Any]) -> None:
    fast, slow, failed, unfit = compared["topologies"]
    assert fast["statistics"]["target_seconds"] == {"median": 15.0, "min": 10.0, "max": 20.0, "n": 2}
    assert slow["statistics"]["target_seconds"]["n"] == 1
    assert fast["staleness"] == {"0": 6, "2": 2, "more": 2}
    assert failed["statistics"] == unfit["statistics"] == {}


def test_the_table_fits_a_terminal_and_says_what_is_missing(compared: dict[str, Any]) -> None:
    lines = list(table_lines(compared, 80))
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert re.search(r"fast +15 +225 +0\.935 ", text)
    assert re.search(r"slow +40, 1 of 2 ", text)
    assert "failed, seed 1: worker-0-0: <a layer>" in lines
    assert "unfit, no run: it does not fit" in lines


@pytest.mark.long
def test_the_report_is_one_page_that_loads_nothing(compared: dict[str, Any]) -> None:
    page = write_report(compared)
    assert not re.search(r'src=|href="(?!#)|url\((?!#)|<script|<link|@import', page)
    # names of the formats within a picture
    assert not re.search(r"https?:", re.sub(r'xmlns(:\w+)?="[^"]*"|<metadata>.*?</metadata>', "", page, flags=re.S))
    assert "<mlp>" not in page
    assert "worker-0-0: &lt;a layer&gt;" in page
    assert "40, 1 of 2" in page
    # the best time is marked only where all runs have reached the target
    assert page.count("class=best") == 2
    pictures = re.findall(r"<figure>(<svg.*?</svg>)\s*</figure>", page, re.S)
    # over time, over samples
    assert len(pictures) == 2
    for picture in pictures:
        ElementTree.fromstring(picture)


def test_a_comparison_without_any_result_has_a_report() -> None:
    page = write_report(comparison_of({"a": [], "b": []}, target=None))
    assert "it does not fit" in page
    assert "<svg" not in page


def test_without_matplotlib_the_report_has_no_pictures(
    compared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = write_report(compared)
    assert "<svg" not in page and "40, 1 of 2" in page
    assert "pip install &#x27;singa-dask[plot]&#x27;" in page


@pytest.mark.parametrize(("value", "text"), [(0.95, "0.95"), (160000, "160k"), (2.5e6, "2.5M"), (0, "0"), (12, "12")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text
