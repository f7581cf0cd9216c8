"""Links that are cut for some time, in a network of namespaces: the same bits, and no hang."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from singa_dask.conf import JobConf
from tests.faults.jobs import job
from tests.faults.links import Network, has_namespaces, network
from tests.faults.parts import HELD
from tests.faults.runs import LIMIT_S, check_params
from tests.runtime.processes import ROOT, program, wait_until

pytestmark = pytest.mark.cluster

STEPS = 600
Cut = Callable[[Network], None]


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Network]:
    if not has_namespaces():
        pytest.skip("no network namespaces here, or no veth")
    (tmp_path / "net").mkdir()
    with network(tmp_path / "net", 3) as made:
        yield made


def run_on(net: Network, made: JobConf, directory: Path, cut: Cut, seconds: float) -> dict[str, Any]:
    """Run a job, and do harm to the network at a step, for some seconds; return its summary."""
    (directory / "job.yaml").write_text(made.model_dump_json(exclude_unset=True))
    options = ["--scheduler-file", str(net.file), "--run-dir", str(directory / "run"), "--wait", "60"]
    command = [*net.inside(0), *program("run", str(directory / "job.yaml"), *options)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    said, healed = [], threading.Timer(seconds, net.mend, [1, 2, 3])
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        ends = threading.Timer(LIMIT_S, run.kill)
        ends.start()
        for line in run.stderr:
            said.append(line)
            if line.startswith("Train @ step 40:"):
                cut(net)
                healed.start()
        ends.cancel()
        healed.cancel()
    assert run.returncode == 0, said[-20:]
    return json.loads((directory / "run" / "summary.json").read_text())


# -- the client ------------------------------------------------------------------------------------------------------

CLIENT = 3


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    """Start two workers, and a host for clients. Connections without an answer are given up soon."""
    if not has_namespaces():
        pytest.skip("no network namespaces here, or no veth")
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP", "12s")
    (tmp_path / "net").mkdir()
    with network(tmp_path / "net", 2, n_clients=1) as made:
        yield made


def call(net: Network, host: int, *arguments: str) -> subprocess.Popen[str]:
    """Start ``singa-dask`` on a host."""
    command = [*net.inside(host), *program(*arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


def cut_off(process: subprocess.Popen[str], net: Network, seconds: float = 0.0) -> list[str]:
    """Cut a client off when it has shown some steps, for some seconds or for ever; return what it prints."""
    assert process.stderr is not None
    healed = threading.Timer(seconds, net.mend, [CLIENT])
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("Train @ step") and int(line.split()[3].rstrip(":")) >= 40:
            net.cut(CLIENT)
            if seconds:
                healed.start()
            break
    said += process.stderr
    healed.cancel()
    return said


def rows(net: Network) -> list[dict[str, Any]]:
    """Return what the scheduler knows of jobs."""
    said, _ = call(net, 0, "list", "--json", "--scheduler-file", str(net.file)).communicate()
    return json.loads(said)


def started(net: Network, directory: Path, *options: str, held: bool = True) -> subprocess.Popen[str]:
    """Start a job without end from the host of clients; if it is ``held`` it soon leaves the processors to others."""
    if held:
        (directory / "run").mkdir()
        (directory / "run" / HELD).write_text("60")
    (directory / "job.yaml").write_text(job("allreduce", 1_000_000).model_dump_json(exclude_unset=True))
    where = ["--scheduler-file", str(net.file), "--run-dir", str(directory / "run"), "--wait", "60"]
    return call(net, CLIENT, "run", str(directory / "job.yaml"), *where, *options)


@pytest.mark.soak
def test_a_client_that_is_cut_off_for_some_time_goes_on(far: Network, tmp_path: Path) -> None:
    steps = 2000  # more than it takes to be cut off and to come back
    with started(far, tmp_path, "--set", f"train_steps={steps}", held=False) as run:
        said = cut_off(run, far, seconds=3)
    assert run.returncode == 0, said
    shown = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [each["step"] for each in shown if each["event"] == "metrics"] == list(range(steps))


@pytest.mark.soak
def test_a_job_whose_client_is_cut_off_stops_with_a_checkpoint(far: Network, tmp_path: Path) -> None:
    with started(far, tmp_path) as run:
        said = cut_off(run, far)
    assert run.returncode == 4, said
    assert any("the scheduler could not be reached again" in line for line in said), said
    wait_until(lambda: rows(far)[0]["ended"] is not None, "the job has ended")
    assert rows(far)[0]["reason"] == "stopped by the loss of its client"
    assert list((tmp_path / "run/checkpoint").glob("step-*/manifest.json"))


@pytest.mark.soak
def test_a_detached_job_goes_on_when_those_who_watch_it_are_cut_off(far: Network, tmp_path: Path) -> None:
    with started(far, tmp_path, "--detach") as run:
        job_id, said_by_run = run.communicate()
    assert run.returncode == 0, said_by_run
    with call(far, CLIENT, "attach", job_id.strip(), "--scheduler-file", str(far.file)) as watcher:
        said = cut_off(watcher, far)
    assert watcher.returncode == 3, said
    assert any("the scheduler could not be reached again" in line for line in said), said
    before = rows(far)[0]
    assert (before["id"], before["state"]) == (job_id.strip(), "running")
    wait_until(lambda: rows(far)[0]["step"] > before["step"], "it trains on")
    with call(far, 0, "stop", job_id.strip(), "--scheduler-file", str(far.file)) as stop:
        output = stop.communicate()
    assert stop.returncode == 0, output


# -- the workers -----------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_process_that_nobody_reaches(net: Network, tmp_path: Path, calm: Any) -> None:
    made = job("allreduce", STEPS)
    summary = run_on(net, made, tmp_path, lambda net: net.cut(1), 60)
    assert summary["restarts"] == 1
    check_params(str(tmp_path / "run"), calm(made))


@pytest.mark.soak
def test_two_processes_that_do_not_reach_each_other(net: Network, tmp_path: Path, calm: Any) -> None:
    """The scheduler reaches both."""
    made = job("allreduce", STEPS)
    run_on(net, made, tmp_path, lambda net: net.part(1, 2), 10)
    check_params(str(tmp_path / "run"), calm(made))


@pytest.mark.soak
def test_two_processes_that_do_not_reach_each_other_for_long(net: Network, tmp_path: Path, calm: Any) -> None:
    """A third Dask worker reaches both: it takes the place of one of them."""
    made = job("allreduce", STEPS)
    summary = run_on(net, made, tmp_path, lambda net: net.part(1, 2), 120)
    assert summary["restarts"] <= 2
    check_params(str(tmp_path / "run"), calm(made))


@pytest.mark.soak
def test_nobody_who_is_left_reaches_another(net: Network, tmp_path: Path, calm: Any) -> None:
    """All units go to one Dask worker."""
    made = job("allreduce", STEPS)
    summary = run_on(net, made, tmp_path, lambda net: net.part(1, 2, 3), 120)
    assert summary["restarts"] <= 5
    check_params(str(tmp_path / "run"), calm(made))


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    """Start three workers that do not give up connections on which nothing comes."""
    if not has_namespaces():
        pytest.skip("no network namespaces here, or no veth")
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP", "300s")
    (tmp_path / "net").mkdir()
    with network(tmp_path / "net", 3) as made:
        yield made


@pytest.mark.soak
def test_all_links_are_silent_for_45_s(patient: Network, tmp_path: Path, calm: Any) -> None:
    made = job("allreduce", STEPS)
    summary = run_on(patient, made, tmp_path, lambda net: net.cut(1, 2, 3), 45)
    assert summary["restarts"] == 1
    check_params(str(tmp_path / "run"), calm(made))


@pytest.mark.soak
def test_a_link_that_is_silent_for_less_than_the_limit_costs_no_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calm: Any
) -> None:
    """Not even after 16 s, which is longer than the limit is if nobody sets it."""
    if not has_namespaces():
        pytest.skip("no network namespaces here, or no veth")
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP", "300s")
    monkeypatch.setenv("DASK_DISTRIBUTED__SINGA_DASK__SILENT", "60s")
    (tmp_path / "net").mkdir()
    made = job("allreduce", STEPS)
    with network(tmp_path / "net", 3) as net:
        summary = run_on(net, made, tmp_path, lambda net: net.part(1, 2), 16)
    assert (summary["restarts"], summary["recomputed_steps"]) == (0, 0)
    check_params(str(tmp_path / "run"), calm(made))
