"""The list of runs in a directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from singa_dask.cli import main
from singa_dask.errors import ConfigError
from singa_dask.observe.files.journal import Journal
from singa_dask.observe.files.run_list import list_runs
from tests.observe.runs import BEGAN, training, write_run


def test_states_of_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "done", training(), {"train": {"loss": 0.25}, "samples_per_s": 10.0})
    write_run(tmp_path / "killed", training())
    write_run(tmp_path / "running", [])
    (tmp_path / "notes").mkdir()
    journal = Journal(str(tmp_path / "running/commands.jsonl"), in_use=True)
    done, killed, running = list_runs(str(tmp_path))
    journal.close()
    assert done == {
        "id": "done",
        "name": "digits",
        "owner": "",
        "run_url": str(tmp_path / "done"),
        "state": "done",
        "train_steps": 100,
        "began": BEGAN - 1,
        "reason": "",
        "exit_code": None,
        "step": 100,
        "loss": 0.25,
        "samples_per_s": 10.0,
        "ended": BEGAN + 1,
    }
    assert (killed["state"], killed["step"], killed["loss"]) == ("lost", 91, 0.1)
    assert killed["ended"] == pytest.approx(BEGAN + 0.9)
    assert (running["state"], running["step"], running["loss"], running["ended"]) == ("running", 0, None, None)
    assert list_runs(str(tmp_path / "done")) == [done]


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--runs .*nowhere: no such directory"):
        list_runs(str(tmp_path / "nowhere"))


FOREIGN = {
    "commands": ("commands.jsonl", '{"time": "yesterday"}\n'),
    "no object": ("commands.jsonl", '{"time": []}\n'),
    "train": ("summary.json", '{"state": "done", "train": 4}'),
    "steps": ("summary.json", '{"state": "done", "steps": "many"}'),
    "rate": ("summary.json", '{"state": "done", "samples_per_s": "high"}'),
    "phase": ("metrics.jsonl", '{"event": "metrics", "phase": "train", "step": "last"}\n'),
}


@pytest.mark.parametrize(("file", "text"), FOREIGN.values(), ids=FOREIGN)
def test_a_run_with_files_of_another_version_hides_no_other(tmp_path: Path, file: str, text: str) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, training(), {})
    if file == "metrics.jsonl":
        (tmp_path / "a/summary.json").unlink()
    (tmp_path / "a" / file).write_text(text)
    done = CliRunner().invoke(main, ["list", "--runs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    first, second = list_runs(str(tmp_path))
    assert (first["id"], first["state"]) == ("a", "unknown")
    assert first["reason"].startswith("its files are damaged or of another version: ")
    assert second["state"] == "done"
    assert sum(line.startswith(("a ", "b ")) for line in done.output.splitlines()) == 2
