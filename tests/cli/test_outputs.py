"""Files that commands write: one that exists is replaced only with --overwrite, and refused before any work."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import singa_dask as sd
from singa_dask.cli.job import command_line
from singa_dask.cli.output_options import output_option, overwrite_option
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


def test_a_missing_directory_is_refused(call: Call, job: Path, trained: Path, tmp_path: Path) -> None:
    new = tmp_path / "nowhere" / "x.npz"
    said = f"{new}: no directory {new.parent}. Create it first: mkdir -p {new.parent}.\n"
    (conf := tmp_path / "job.conf").write_text('name: "x"\n' * 20)
    for words in (
        ("predict", job, "--init-from", trained, "--data", DIGITS, "--out", new),
        ("init", DIGITS, "-o", new),
        ("export", trained, "-o", new),
        ("convert", "conf", conf, new),
        ("convert", "text", conf, new, "--to", "arrow"),
        ("extract", job, "--init-from", trained, "--layer", "fc", "--to", "npz", "--out", new),
    ):
        refused = call(*words)
        assert (refused.exit_code, refused.stdout, refused.stderr) == (2, "", said)
    with pytest.raises(sd.ConfigError, match=f"{new}: no directory {new.parent}"):
        sd.export(str(trained), str(new))
    assert not new.parent.exists()


@pytest.mark.parametrize("given", [["-o", "x.html"], ["--overwrite", "-o", "x.html"], []], ids=" ".join)
def test_a_command_line_is_repeated_with_overwrite(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that run jobs keep it; the option is handed to none of their functions."""

    @click.command()
    @overwrite_option
    @output_option("-o", "--output")
    @click.pass_context
    def report(ctx: click.Context, output: str | None) -> None:
        click.echo(command_line(ctx))

    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(report, given, prog_name="report").stdout == f"{['report', *given]}\n"
