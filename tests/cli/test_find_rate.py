"""``find-rate``: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call

pytestmark = pytest.mark.cluster


def test_a_proposal(call: Call, job: Path) -> None:
    shown = call("find-rate", job, "--steps", 60)
    assert shown.exit_code == 0, shown.output
    falls, proposed = shown.stdout.splitlines()
    assert falls.startswith("the smoothed loss falls from 2.")
    found = json.loads(call("find-rate", job, "--steps", 60, "--json").stdout)
    assert proposed == f"proposed: base_lr = {found['rate']:g}"
    assert found["rates"][0] == 1e-6 and len(found["rates"]) == len(found["smoothed"])


@pytest.mark.long
def test_a_curve_as_a_file(call: Call, job: Path) -> None:
    falls, proposed = call("find-rate", job, "--steps", 60).stdout.splitlines()
    for suffix, begins in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        written = call("find-rate", job, "--steps", 60, "-o", job.with_name(f"curve{suffix}"))
        assert written.stdout.splitlines() == [falls, proposed]
        assert job.with_name(f"curve{suffix}").read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "curve.pdf"), "-o curve.pdf: the name must end in .png, .svg."),
        (("--low", "1", "--high", "0.1"), "expected 0 < low < high"),
        (("--set", "updater.type=SDG"), "Did you mean 'SGD'?"),
    ],
)
def test_what_is_refused(call: Call, job: Path, arguments: tuple[str, ...], message: str) -> None:
    result = call("find-rate", job, *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
