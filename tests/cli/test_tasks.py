"""Conversions on Dask: the same bytes for any number of workers, errors as they are, and a look at how far it is."""

from __future__ import annotations

import io
import os
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from singa_dask.cli import tasks
from singa_dask.cli.tasks import shown
from singa_dask.data.convert import plan as convert_plan
from singa_dask.data.convert import tasks as convert_tasks
from singa_dask.data.convert.tasks import Task, reporting
from singa_dask.errors import DataError
from singa_dask.runtime import local_cluster, on_dask, on_each_worker
from tests.cli.conftest import Call
from tests.contracts.records import pixels, written
from tests.converting import convert

OPTIONS: dict[str, Any] = {"shuffle": 3, "split": {"a": 0.6, "b": 0.3}, "shards": 3, "verify": True}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def source(tmp_path: Path) -> str:
    return written(tmp_path, "arrow", pixels(500, (4, 5)), "source", block_bytes=1000)


@pytest.mark.long
def test_the_bytes_do_not_depend_on_the_number_of_workers(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("here", "1", "3"):
        (tmp_path / folder).mkdir()
    convert("arrow", [source], str(tmp_path / "here" / "{split}.arrow"), **OPTIONS)
    monkeypatch.setattr(convert_plan, "DIRECT_BYTES", 1000)
    monkeypatch.setattr(convert_plan, "RUN_BYTES", 1500)
    for n in (1, 3):
        with local_cluster(n, processes=False) as client:
            run, everywhere = on_dask(client), on_each_worker(client)
            convert(
                "arrow", [source], str(tmp_path / str(n) / "{split}.arrow"), **OPTIONS, run=run, everywhere=everywhere
            )
            assert convert_tasks._KEPT == {}
        assert contents(tmp_path / str(n)) == contents(tmp_path / "here")


@pytest.mark.long
def test_worker_processes_write_the_same_bytes(call: Call, source: str, tmp_path: Path) -> None:
    for folder in ("here", "processes"):
        (tmp_path / folder).mkdir()
    convert("arrow", [source], str(tmp_path / "here" / "{split}.arrow"), **OPTIONS)
    command = ["convert", "arrow", source, tmp_path / "processes" / "{split}.arrow", "--workers", 2]
    result = call(*command, "--shuffle", 3, "--split", "a=0.6,b=0.3", "--shards", 3, "--verify", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    assert contents(tmp_path / "processes") == contents(tmp_path / "here")


class Fails(Task):
    """A task that cannot be done."""

    def __call__(self) -> int:
        raise DataError("a.csv, line 7: no number.")


def test_what_is_wrong_with_the_data_is_said_as_it_is(source: str, tmp_path: Path) -> None:
    with local_cluster(1, processes=False) as client:

        def run(tasks: Sequence[Task]) -> Iterable[int]:
            return on_dask(client)([Fails(task.plan, task.step, task.index, task.session) for task in tasks])

        with pytest.raises(DataError, match=r"^a\.csv, line 7: no number\.$"):
            convert("arrow", [source], str(tmp_path / "x.arrow"), run=run)


def steps(tasks: Sequence[Task]) -> Iterator[int]:
    return (task.index for task in tasks)


@pytest.mark.parametrize(
    ("quiet", "line_s", "said"),
    [
        (True, 0.0, ""),
        (
            False,
            0.0,
            r"written: 10 of 20 records, \d+/s, 0:0\d left\nwritten: 20 of 20 records, \d+/s, 0:00 left\n",
        ),
        (False, 5.0, ""),
    ],
)
def test_lines_say_how_far_it_is(quiet: bool, line_s: float, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "LINE_S", line_s)
    file = io.StringIO()
    work: Any = [Task(None, "shard", i, "", 10) for i in range(2)]  # type: ignore[arg-type]
    run = shown(steps, int, quiet=quiet, console=Console(file=file, force_terminal=False))
    assert list(run(work)) == [0, 1]
    assert list(run([])) == []
    assert re.fullmatch(said, file.getvalue())


def test_a_bar_on_a_terminal() -> None:
    file = io.StringIO()
    tasks: Any = [Task(None, "scatter", i, "", 10) for i in range(2)]  # type: ignore[arg-type]
    console = Console(file=file, force_terminal=True, force_interactive=True)
    assert list(shown(steps, int, console=console)(tasks)) == [0, 1]
    assert "shuffled" in file.getvalue()
    assert "20/20" in file.getvalue()


@pytest.mark.parametrize("options", [{}, {"shuffle": 3, "split": {"a": 0.6, "b": 0.4}, "verify": True}])
@pytest.mark.parametrize("run_bytes", [1500, 1 << 20])
def test_records_are_counted_while_a_task_runs(
    source: str, tmp_path: Path, options: dict[str, Any], run_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert_plan, "DIRECT_BYTES", run_bytes)
    monkeypatch.setattr(convert_plan, "RUN_BYTES", run_bytes)
    counts: dict[str, float] = {}

    def run(tasks: Sequence[Task]) -> Iterator[int]:
        for task in tasks:

            def count(n: float, task: Task = task) -> None:
                counts[task.step] = counts.get(task.step, 0) + n

            with reporting(count):
                yield task()

    convert("arrow", [source], str(tmp_path / "x.arrow"), run=run, **options)
    steps = ["labels", *(["scatter"] if run_bytes == 1500 else []), "shard", "verify"] if options else ["shard"]
    assert counts == dict.fromkeys(steps, 500)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGXCPU])
def test_a_signal(
    call: Call, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def interrupted(*args: Any, **options: Any) -> None:
        os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr("singa_dask.data.convert.convert", interrupted)
        result = call("convert", "arrow", source, tmp_path / "x.arrow")
    assert (result.exit_code, result.stderr) == (
        128 + number,
        f"{number.name}: stopped. To continue, run the same command again.\n",
    )
