"""The tree of commands: cheap to load, under all its names, and every error an exit code."""

from __future__ import annotations

import errno
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import dask
import pytest
from click.testing import CliRunner

from singa_dask import __version__, errors
from singa_dask.cli import dask_scheduler, main
from singa_dask.cli.main import VERBS, Verbs
from tests.cli.conftest import Call


class Raises(Verbs):
    """The group, with one command that raises."""

    error: Exception

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        def raise_it() -> None:
            raise self.error

        return click.Command("raise", callback=raise_it)


def outcome_of(error: Exception) -> Any:
    group = Raises("singa")
    group.error = error
    return CliRunner().invoke(group, ["raise"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SingaError("what"), 1),
        (errors.ConfigError("what"), 2),
        (errors.ClusterError("what"), 3),
        (errors.LostUnitError("what"), 4),
        (errors.NumericError("what"), 5),
        (errors.DataError("what"), 1),
        (click.UsageError("what"), 2),
    ],
)
def test_an_error_is_said_in_plain_words(error: Exception, code: int) -> None:
    result = outcome_of(error)
    assert result.exit_code == code
    assert result.stdout == ""
    assert "what" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_bug_is_called_a_bug() -> None:
    result = outcome_of(ZeroDivisionError("what"))
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert result.stderr.rstrip().splitlines()[-1].startswith("This is a bug in singa-dask")


def test_a_full_disk_is_no_bug() -> None:
    result = outcome_of(OSError(errno.ENOSPC, "No space left on device"))
    assert (result.exit_code, result.stderr) == (1, "cannot write: No space left on device.\n")


def test_a_terminal_of_another_encoding_is_no_bug() -> None:
    result = outcome_of(UnicodeEncodeError("latin-1", "a\u0119", 1, 2, "ordinal not in range"))
    said = "cannot write: latin-1 of the standard output has no 'ę'. Set PYTHONIOENCODING=utf-8.\n"
    assert (result.exit_code, result.stderr) == (1, said)


def test_a_deleted_directory_is_no_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    result = outcome_of(errors.DataError("not reached"))
    assert (result.exit_code, result.stderr) == (2, "the current directory was deleted. Change to another one.\n")


def test_help_lists_all_verbs(call: Call) -> None:
    result = call("--help")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.split("Commands:\n")[1].splitlines()] == list(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(call: Call, verb: str) -> None:
    result = call(verb, "-h")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: singa-dask {verb} ")
    assert "\\b" not in result.stdout
    command = main.get_command(click.Context(main), verb)
    assert command is not None and command.get_short_help_str(80) == VERBS[verb]


def test_an_unknown_verb_is_refused(call: Call) -> None:
    result = call("trane")
    assert result.exit_code == 2
    assert "No such command 'trane'" in result.stderr


def test_version(call: Call) -> None:
    assert call("--version").stdout == f"singa-dask, version {__version__}\n"


# imported one after the other: what one may not load, none before it may
LEAN = """
import importlib, sys
for verb, heavy in (("data", "pydantic"), ("nets", "dask"), ("parts", "distributed")):
    importlib.import_module(f"singa_dask.cli.{verb}")
    assert not {"distributed", heavy} & set(sys.modules), f"{verb} loads {heavy}"
"""
HELP = f"""
import sys
from singa_dask.cli import main
for verb in ([], *([verb] for verb in {tuple(VERBS)})):
    main([*verb, "-h"], standalone_mode=False)
    loaded = {{"distributed", "numpy", "pydantic", "rich"}} & set(sys.modules)
    assert not loaded, f"help for {{verb}} loads {{loaded}}"
"""


@pytest.mark.parametrize("code", [LEAN, HELP], ids=["the module of a verb", "the help for all verbs"])
def test_only_what_is_needed_is_loaded(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if code == HELP:
        assert done.stdout.count("Usage: ") == 1 + len(VERBS)


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("console_scripts", "singa-dask"),
        ("console_scripts", "dask-scheduler"),
        ("console_scripts", "dask-worker"),
        ("dask_cli", "singa"),
    ],
)
def test_names_of_the_commands(group: str, name: str) -> None:
    (point,) = entry_points(group=group, name=name)
    command = point.load()
    assert isinstance(command, click.Command)
    assert (command is main) == ("singa" in name)


@pytest.mark.parametrize(
    ("named", "configured", "loaded"),
    [
        ([], [], ["singa_dask.runtime"]),
        ([], "one", ["one", "singa_dask.runtime"]),
        ([], ["singa_dask.runtime", "one"], ["singa_dask.runtime", "one"]),
        (["--preload", "json"], ["one"], ["json", "singa_dask.runtime"]),
    ],
)
def test_a_scheduler_has_the_page_of_jobs_from_its_start(
    named: list[str], configured: Any, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    got: dict[str, Any] = {}
    monkeypatch.setattr(dask_scheduler, "dask_start", lambda **options: got.update(options))
    with dask.config.set({"distributed.scheduler.preload": configured}):
        dask_scheduler.scheduler.main(["--port", "1", *named], standalone_mode=False)
    assert (got["port"], got["preload"]) == ("1", loaded)


@pytest.mark.long
def test_dask_singa() -> None:
    done = subprocess.run([sys.executable, "-m", "dask", "singa", "-h"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: python -m dask singa ")
    assert done.stderr == ""
