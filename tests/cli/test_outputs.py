"""Files that commands write: one that exists is replaced only with --overwrite, and refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import DIGITS, Call

JOB, RUN = object(), object()
COMMANDS = {
    "compare": ("compare", JOB, "-o", "x.html"),
    "find-rate": ("find-rate", JOB, "-o", "x.svg"),
    "graph": ("graph", JOB, "-o", "x.dot"),
    "inspect": ("data", "inspect", DIGITS, "--png", "x.png"),
    "plan": ("plan", JOB, "-o", "x.yaml"),
    "plan-html": ("plan", JOB, "--html", "x.html"),
    "plan-trace": ("plan", JOB, "--trace", "x.json"),
    "plot": ("plot", RUN, "-o", "x.svg"),
    "sample": ("sample", JOB, "--out", "x.txt"),
    "test": ("test", JOB, "--init-from", RUN, "--confusion", "x.csv"),
}


@pytest.mark.parametrize("given", COMMANDS.values(), ids=list(COMMANDS))
def test_no_command_replaces_a_file_unasked(
    given: tuple[object, ...], call: Call, job: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = Path(str(given[-1]))
    place.write_text("of the user")
    words = [{JOB: job, RUN: trained}.get(word, word) for word in given]
    refused = call(*words)
    assert refused.exit_code == 2
    said = f"{place}: exists already. Expected a new file. Give --overwrite to replace it.\n"
    assert (refused.stdout, refused.stderr) == ("", said)
    assert place.read_text() == "of the user"
    if given[0] in ("graph", "plot", "test"):
        assert call(*words, "--overwrite").exit_code == 0
        assert place.read_text() != "of the user"
