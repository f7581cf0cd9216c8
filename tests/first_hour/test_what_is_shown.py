"""What commands print: on terminals of any width, without one, and with --quiet."""

from __future__ import annotations

import errno
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.first_hour.conftest import STORE, WITHIN_S, Desk
from tests.selection import mostly_soak

pytestmark = pytest.mark.long

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_a_terminal(desk: Desk, columns: int, environment: dict[str, str], *arguments: str) -> str:
    """Run ``singa-dask`` on a terminal of a width, and return all that it wrote there."""
    ours, its = pty.openpty()
    given = {**desk.environ(environment), "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
    program = Path(sys.executable).parent / "singa-dask"
    process = subprocess.Popen([program, *arguments], cwd=desk.directory, env=given, stdin=its, stdout=its, stderr=its)
    os.close(its)
    written = b""
    try:
        while block := os.read(ours, 65536):
            written += block
    except OSError as error:  # the way in which Linux says that the other side is closed
        if error.errno != errno.EIO:
            raise
    finally:
        os.close(ours)
    assert process.wait(WITHIN_S) == 0, written
    return written.decode()


@pytest.mark.parametrize("columns", mostly_soak([60, 80], 2))
def test_progress_fits_the_terminal(desk: Desk, columns: int) -> None:
    written = on_a_terminal(desk, columns, {}, "run", "job.yaml", "--run-dir", "run", "--set", "train_steps=300")
    lines = [ESCAPE.sub("", line) for line in re.split(r"[\r\n]+", written)]
    lines = [line for line in lines if "had no core" not in line]  # said at the end, on a busy machine
    assert max(map(len, lines)) <= columns, max(lines, key=len)
    assert lines[0].startswith("run directory: ")
    said = "\n".join(lines)
    for word in ("epoch", "ends", "lr") if columns == 80 else ("epoch", "ends"):
        assert word in said, said


@pytest.mark.soak
def test_no_colour_where_none_is_wanted(desk: Desk) -> None:
    written = on_a_terminal(desk, 80, {"NO_COLOR": "1"}, "run", "job.yaml", "--run-dir", "run")
    assert not re.search(r"\x1b\[([0-9]+;)*(3|4|9|10)[0-9]", written), written


def test_without_a_terminal_there_are_lines(desk: Desk) -> None:
    done = desk.singa("run", "job.yaml", "--run-dir", "run")
    assert done.code == 0
    assert "\x1b" not in done.err and "\r" not in done.err
    assert done.err.splitlines()[0] == "run directory: run"


@pytest.mark.soak
def test_quiet_says_nothing_but_errors(desk: Desk) -> None:
    done = desk.end(desk.start("run", "job.yaml", "--quiet", "--run-dir", "run", "--cluster", "allreduce"))
    assert (done.code, done.out, done.err) == (0, "", "")
    done = desk.singa("run", "job.yaml", "--quiet", "--run-dir", "run")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1


def test_a_failure_of_a_worker_is_told_once(desk: Desk) -> None:
    done = desk.end(desk.start("run", "job.yaml", "--set", f"{STORE}.path=empty.csv", "--cluster", "allreduce"))
    assert done.code == 1
    assert done.err.count("line 6, column '4'") == 1, done.err
    assert not re.search(r"(worker-\d-\d)\b.*\1", done.err), done.err


def test_a_vocabulary_is_written_beside_its_data(desk: Desk) -> None:
    desk.write("text.txt", "some words of a text\n" * 50)
    (desk.directory / "out").mkdir()
    done = desk.singa("convert", "text", "text.txt", "out/text.arrow")
    assert done.code == 0, done.err
    assert "out/vocab.txt" in done.err
    assert (desk.directory / "out/vocab.txt").exists()
    assert not (desk.directory / "vocab.txt").exists()
