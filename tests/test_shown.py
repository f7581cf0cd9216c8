"""What people see: nothing of others moves their cursor, and a stderr that is gone ends nothing."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from singa_dask import redaction
from singa_dask.cli.printing import TextColumn, echo, table
from singa_dask.observe.terminal.progress import LinesProgress, start_progress
from singa_dask.shown import STDERR, plural, shown

TITLE = "a\x1b]0;mine\x07\x1b[2J\r\x9b1m\u202eb"
CLEAN = r"a\x1b]0;mine\x07\x1b[2J\r\x9b1m\u202eb"


def test_control_characters_of_others_are_escaped() -> None:
    assert shown(TITLE) == CLEAN
    assert shown("a\n\tb") == "a\n\tb"
    assert shown("a\n\tb", one_line=True) == r"a\n\tb"
    assert shown("a\x1b[1;31mb") == r"a\x1b[1;31mb"
    assert shown("a\x1b[1;31mb\x1b[0m\x1b[2J", coloured=True) == "a\x1b[1;31mb\x1b[0m\\x1b[2J"
    assert shown("grüße, 你好") == "grüße, 你好"


def test_what_verbs_print_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    echo(TITLE)
    echo(TITLE, err=True)
    LinesProgress(STDERR).on_event({"event": "log", "level": "WARNING", "unit": "u", "message": TITLE})
    out, err = capsys.readouterr()
    assert (out, err) == (f"{CLEAN}\n", f"{CLEAN}\nu: {CLEAN}\n")
    lines = table([TextColumn("name", [f"{TITLE}\nline 2", "x"]), TextColumn("state", ["done", "done"])], None)
    assert lines[1:] == [rf"{CLEAN}\nline 2  done", f"{'x':<{len(CLEAN) + 8}}  done"]


def test_data_stay_as_they_are_but_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    echo("a,\x07\r\n", nl=False)
    assert capsys.readouterr().out == "a,\x07\r\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    echo("a,\x07\r\n", nl=False)
    assert capsys.readouterr().out == "a,\\x07\r\n"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the secrets that are known, none at first."""
    secrets: set[str] = set()
    monkeypatch.setattr(redaction, "_known", secrets)
    return secrets


def test_a_secret_that_is_part_of_another_leaves_nothing_of_it(known: set[str]) -> None:
    longest = "".join(f"secret{i:02}" for i in range(30))
    known.update(longest[: 8 * n] for n in range(1, 31))  # in the order of hashes
    assert redaction.redact(f"the key {longest} is wrong") == "the key *** is wrong"


def test_secrets_may_become_known_while_others_are_hidden(known: set[str]) -> None:
    class Text(str):
        """A text during whose search another thread opens a file."""

        def replace(self, *values: Any) -> Text:
            redaction.reveal({"password": f"secret {len(known)}"}, "s3://x")
            return Text(super().replace(*values))

    known.update(f"password {i}" for i in range(20))
    assert redaction.redact(Text("password 3")) == "***"


class Gone(io.StringIO):
    """A stream that fails as one does whose reader is gone."""

    n_tries = 0

    def write(self, text: str) -> int:
        self.n_tries += 1
        raise BrokenPipeError(32, "Broken pipe")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("broken", [Gone, closed, lambda: None, lambda: Path("/dev/full").open("w", buffering=1)])
def test_a_stderr_that_cannot_be_written_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: Callable[[], Any]
) -> None:
    stream = broken()
    monkeypatch.setattr(sys, "stderr", stream)
    for _ in range(3):
        echo("hello", err=True)
        with start_progress(1, 10) as progress:
            progress.on_event({"event": "notice", "message": "hello"})
    assert STDERR.lost.startswith("stderr cannot be written: ")
    assert STDERR.lost.endswith(". No more output is shown; the job continues.")
    assert capsys.readouterr().out == ""
    if isinstance(stream, Gone):
        assert stream.n_tries == 1
    monkeypatch.setattr(sys, "stderr", good := io.StringIO())  # of another cell of a notebook
    echo("hello", err=True)
    assert (STDERR.lost, good.getvalue()) == ("", "hello\n")


@pytest.mark.parametrize(
    ("n", "said"), [(0, "0 slices"), (1, "1 slice"), (2, "2 slices"), (1.0, "1 slice"), (0.5, "0.5 slices")]
)
def test_one_thing_has_no_plural(n: float, said: str) -> None:
    assert plural(n, "slice") == said
    assert plural(2, "batch", "batches") == "2 batches"
