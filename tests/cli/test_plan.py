"""``plan``, and ``run --cluster auto``: what they refuse, print and write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from singa_dask.conf import JobConf
from singa_dask.jobs import plan as planning
from singa_dask.planner.model import Link
from tests.cli.conftest import ROOT, Call
from tests.planner.fakes import LINK, FakeCosts

WHAT_IF = ["--what-if", "hosts=2,link=1Gbit,cores=2", "--price", 2]
BROKEN = sorted((ROOT / "tests" / "conf" / "files" / "broken").glob("*.yaml"))


class MadeUpCosts(FakeCosts):
    """What a plan measures, made up."""

    def __init__(self, job: JobConf) -> None:
        super().__init__(1e-7, 1e-4)

    def link(self, shared: bool) -> Link:
        return LINK

    def of(self, job: JobConf) -> MadeUpCosts:
        return self

    def __enter__(self) -> MadeUpCosts:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Measure nothing."""
    monkeypatch.setattr(planning, "MeasuredCosts", MadeUpCosts)
    return


@pytest.mark.usefixtures("made_up")
def test_a_plan_is_printed_and_written(call: Call, job: Path, tmp_path: Path) -> None:
    output = tmp_path / "best.yaml"
    trace = tmp_path / "trace.json"
    result = call("plan", job, *WHAT_IF, "-o", output, "--trace", trace, "--json")
    assert result.exit_code == 0, result.output
    assert "synchronous plans for 2 hosts with 4 cores" in result.stdout
    assert "asynchronous plans for 2 hosts" in result.stdout
    found = json.loads(result.stdout.splitlines()[-1])
    best = found["candidates"][0]
    assert f"chosen: {best['topology']}" in result.stdout
    assert best["cost"] > 0
    events = json.loads(trace.read_text())["traceEvents"]
    names = {event["args"]["name"]: event["tid"] for event in events if event["ph"] == "M"}
    computed = {event["name"] for event in events if event["ph"] == "X" and event["tid"] == names["worker-0-0"]}
    assert computed >= {"fc forward", "fc backward"}
    validated = call("validate", output)
    assert validated.exit_code == 0, validated.output


@pytest.mark.long
@pytest.mark.usefixtures("made_up")
def test_a_page_shows_the_step_beside_a_measured_one(call: Call, job: Path, tmp_path: Path) -> None:
    page, trace = tmp_path / "plan.html", tmp_path / "trace.json"
    result = call("plan", job, *WHAT_IF, "--html", page, "--trace", trace)
    assert result.exit_code == 0, result.output
    assert "<svg" in page.read_text()
    alone = page.read_text().count("PolyCollection")
    assert alone > 0
    result = call("plan", job, *WHAT_IF, "--html", page, "--overwrite", "--beside", trace)
    assert result.exit_code == 0, result.output
    assert page.read_text().count("PolyCollection") == 2 * alone  # the same step


@pytest.mark.usefixtures("made_up")
def test_a_measured_step_needs_a_page(call: Call, job: Path) -> None:
    result = call("plan", job, "--beside", "trace.json")
    assert result.exit_code == 2
    assert "--html" in result.output


@pytest.mark.cluster
@pytest.mark.usefixtures("made_up")
def test_what_is_written_runs(call: Call, job: Path, tmp_path: Path) -> None:
    output = tmp_path / "best.yaml"
    assert call("plan", job, "-o", output).exit_code == 0
    result = call("run", output, "--run-dir", tmp_path / "run", "--json", "--quiet")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["steps"] == 6


@pytest.mark.cluster
@pytest.mark.usefixtures("made_up")
def test_a_run_on_a_planned_cluster(call: Call, job: Path, tmp_path: Path) -> None:
    result = call("run", job, "--cluster", "auto", "--run-dir", tmp_path / "run", "--json")
    assert result.exit_code == 0, result.output
    # what takes a while is said before
    assert result.stderr.index("measuring what the job costs") < result.stderr.index("chosen for 1 host")
    summary = json.loads(result.stdout.splitlines()[-1])
    workers, servers = (summary["topology"][f"n{unit}s_per_group"] for unit in ("worker", "server"))
    assert f"1 x {workers} workers, 1 x {servers} servers" in result.stderr


@pytest.mark.parametrize("file", BROKEN[::8], ids=lambda path: path.stem)
def test_mistakes_of_a_job_are_those_of_validate(call: Call, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    validated, planned = call("validate", file), call("plan", file)
    assert (validated.exit_code, planned.exit_code) == (2, 2)
    wanted = [line for line in validated.stderr.splitlines() if "warning" not in line]
    assert [line for line in planned.stderr.splitlines() if line in wanted] == wanted


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--what-if", "hosts=2"], "several hosts need a link"),
        (["--what-if", "cores=2", "--scheduler", "tcp://127.0.0.1:1"], "--what-if describes a hypothetical cluster"),
        (["--set", "train_step=1"], "train_step"),
        (["--set", "gpu=0"], "gpu: plans are for jobs on CPUs. Pass --cpu."),
        (["--price", "-1"], "--price"),
    ],
)
def test_what_cannot_be_planned(call: Call, job: Path, arguments: list[str], said: str) -> None:
    result = call("plan", job, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.soak
@pytest.mark.cluster
def test_a_plan_of_this_machine(call: Call, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured, and kept for a second plan."""
    monkeypatch.setenv("SINGA_DASK_CACHE", str(tmp_path / "cache"))
    first = call("plan", job, "--json")
    assert first.exit_code == 0, first.output
    (file,) = tmp_path.glob("cache/costs/*.json")
    kept = json.loads(file.read_text())
    assert call("plan", job).exit_code == 0
    assert json.loads(file.read_text()) == kept
