"""Faults drawn from seeds, in jobs of every topology and of several nets: bits of a calm run, or its count of updates.

``pytest -m soak`` draws one attached and one detached job for each topology; set ``FAULT_CASES`` to draw more. A case
follows from its topology and number, so one that fails can be run again alone.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import numpy as np
import psutil
import pytest

from singa_dask import fs
from singa_dask.conf import JobConf
from singa_dask.observe.files.journal import read_objects
from singa_dask.observe.files.run_directory import read_summary
from singa_dask.runtime import RemoteJobs
from singa_dask.runtime.checkpoints.lookup import find
from tests.faults.conftest import whole
from tests.faults.jobs import units_by_process
from tests.faults.machines import Machines, machines
from tests.faults.parts import HELD
from tests.faults.runs import Fault, Moment, Run, after, at, at_step, check_params, killed, signalled, stopped_for
from tests.fs.s3_server import s3_server
from tests.ports import free_port
from tests.runtime.end_to_end import test_text as of_text
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, HOGWILD, HYBRID, SANDBLASTER_2, SINGLE, Outcome, dense, mlp
from tests.runtime.job.test_detached import ask, call, driver_pid, facts_of, has_ended
from tests.runtime.processes import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

LIMITS = ("3s", "10s", "60s")
"""Values of ``distributed.singa-dask.silent``, in turn."""
CASES = [(LIMITS[number % len(LIMITS)], number) for number in range(int(os.environ.get("FAULT_CASES", "1")))]
FOREIGN = {"damaged": "{", "other-version": '{"run": {"job_id": "other-version", "job": "{}"}, "number": 1}'}
"""Jobs in the state of the scheduler that it cannot take up."""
STEPS = 240
FREQUENCIES = {"snapshot_freq": 20}

SYNCHRONOUS: dict[str, dict[str, Any]] = {
    "single": SINGLE,
    "sandblaster": SANDBLASTER_2,
    "allreduce": ALLREDUCE,
    "three-processes": {
        "nworkers_per_group": 2,
        "nworkers_per_procs": 2,
        "nservers_per_group": 2,
        "server_worker_separate": True,
    },
}
ASYNCHRONOUS: dict[str, dict[str, Any]] = {
    "downpour": {**DOWNPOUR, "server_worker_separate": True},
    "2x2": {"nworker_groups": 2, "nworkers_per_group": 2, "nservers_per_group": 2, "nworkers_per_procs": 2},
    "hogwild": HOGWILD,
    "hybrid": HYBRID,
}
TOPOLOGIES = {**SYNCHRONOUS, **ASYNCHRONOUS}


def _images(cluster: dict[str, Any], **changes: Any) -> JobConf:
    """Return a job of a net with a convolution, batch normalisation and dropout."""
    given = mlp().model_dump(exclude_unset=True)["neuralnet"]["layer"]
    data = {**given[0], "type": "RecordInput"}
    init = [{"name": "conv.w", "init": {"type": "UniformSqrtFanIn"}}, {"name": "conv.b", "init": {"type": "Constant"}}]
    conv = {"num_filters": 4, "kernel": 5, "stride": 2}
    layers = [
        data,
        {"name": "conv", "type": "Convolution", "srclayers": ["data"], "convolution_conf": conv, "param": init},
        {"name": "bn", "type": "BatchNorm", "srclayers": ["conv"]},
        {"name": "relu", "type": "ReLU", "srclayers": ["bn"]},
        {"name": "drop", "type": "Dropout", "srclayers": ["relu"], "dropout_conf": {"dropout_ratio": 0.25}},
        dense("fc", "drop", 10),
        {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["fc", "data"]},
    ]
    return mlp(neuralnet={"layer": layers}, cluster=cluster, **changes)


def _partitioned(cluster: dict[str, Any], **changes: Any) -> JobConf:
    net = mlp().model_dump(mode="json", exclude_unset=True)["neuralnet"]
    for layer in net["layer"]:
        if layer["type"] == "InnerProduct":
            layer["partition_dim"] = 1
    return mlp(neuralnet=net, cluster=cluster, **changes)


NETS: dict[str, Callable[..., JobConf]] = {
    "mlp": lambda cluster, **changes: mlp(cluster=cluster, **changes),
    "images": _images,
    "gru": lambda cluster, **changes: of_text.job(cluster, True, **changes),
    "partitioned": _partitioned,
}


class Case(NamedTuple):
    """A job, and what happens to it.

    Attributes
    ----------
    job : JobConf
    calm : JobConf
        The same job on ports that the system chooses.
    n_spares : int
        Dask workers that the job does not need.
    script : list of (moment, fault)
    only_pauses : bool
        All faults stop processes, for less time than the longest of `LIMITS`.
    text : str
        In words.
    """

    job: JobConf
    calm: JobConf
    n_spares: int
    script: list[tuple[Moment, Fault]]
    only_pauses: bool
    text: str


def draw(topology: str, number: int, detached: bool = False) -> Case:
    """Draw a case; the driver of a detached job is one more process to harm."""
    random = np.random.default_rng([number, list(TOPOLOGIES).index(topology), detached])
    net = str(random.choice(list(NETS)))
    given = {"checkpoint_freq": 100, "keep_checkpoints": {"last": 1}, "test_freq": STEPS, "test_steps": 16}
    keys = {**TOPOLOGIES[topology], **FREQUENCIES}
    has_ports = bool(random.integers(2))
    made = calm = NETS[net](keys, train_steps=STEPS, **given)
    if has_ports:
        first = free_port()
        made = NETS[net]({**keys, "listen": {"ports": f"{first}-{first + 60}"}}, train_steps=STEPS, **given)
    processes = [units[0] for units in units_by_process(made)]
    if detached:
        processes += ["driver"] * len(processes)
    moments: dict[str, Moment] = {
        "at a step": at_step(int(random.integers(STEPS // 2))),
        "at the start": at("placed"),
        "at a checkpoint": at("checkpoint"),
    }
    laters: dict[str, Moment] = {
        "at once": lambda run, event: True,
        "at the restart": at("restart"),
        "some steps later": after(int(random.integers(1, 60))),
    }
    if detached:  # the scheduler is asked for its steps alone
        del moments["at the start"], moments["at a checkpoint"], laters["at the restart"]
    moment, later = str(random.choice(list(moments))), str(random.choice(list(laters)))
    n_faults = int(random.integers(1, 3))
    drawn = {str(random.choice(processes)): str(random.choice(list(HARM))) for _ in range(n_faults)}
    if later == "at the restart" and not next(iter(drawn.values())).startswith("kill"):
        later = "at once"  # a pause may cost no restart
    faults = [_if_alive(HARM[how](unit)) for unit, how in drawn.items()]
    what = ", ".join(f"{how.format(unit)}" for unit, how in drawn.items())
    text = f"{topology}, {net}{', ports' * has_ports}: {what}, {moment}{f', then {later}' * (len(faults) - 1)}"
    n_sleepers = sum(how.endswith("end") for how in drawn.values())
    script = list(zip([moments[moment], laters[later]], faults, strict=False))
    only_pauses = all(how.endswith("s") for how in drawn.values())
    return Case(made, calm, int(random.integers(2)) + n_sleepers, script, only_pauses, text)


HARM: dict[str, Callable[[str], Fault]] = {
    "kill {}": killed,
    "stop {} for 2 s": partial(stopped_for, 2.0),
    "stop {} for 15 s": partial(stopped_for, 15.0),
    "stop {} until the job's end": partial(signalled, signal.SIGSTOP),
}


def _if_alive(fault: Fault) -> Fault:
    """Return a fault that does nothing where a process is dead already: one may come before the last is noticed."""

    def strike(run: Run) -> None:
        with suppress(AssertionError, ProcessLookupError):
            fault(run)

    return strike


def updates(url: str) -> dict[str, Any]:
    """Return the number of updates of each slice in the newest checkpoint, by name and range."""
    manifest = json.loads(fs.read_bytes(f"{find(url)}/manifest.json"))
    return {
        each["key"]: (each["version"], each.get("applied")) for part in manifest["parts"] for each in part["tensors"]
    }


def check_no_tracebacks(run: Run) -> None:
    """Check that nothing the job says is a traceback."""
    texts = [str(event.get("message", "")) for _, event in run.events] + [run.result.reason]
    assert not [text for text in texts if "Traceback" in text or "This is a bug" in text]


@pytest.fixture(scope="module")
def _roomy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    directory = tmp_path_factory.mktemp("roomy")
    (directory / "state").mkdir()
    for name, text in FOREIGN.items():
        (directory / "state" / f"{name}.job.json").write_text(text)
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setitem(fsspec.config.conf, "s3", server.options)
        for key in ("key", "secret", "endpoint_url"):
            patch.setenv(f"FSSPEC_S3_{key.upper()}", server.options[key])
        patch.setenv("DASK_DISTRIBUTED__SINGA_DASK__STATE", str(directory / "state"))
        patch.setenv("DASK_DISTRIBUTED__SINGA_DASK__SILENT", request.param)
        with machines(directory, "--nthreads", "4") as made:
            yield made


@pytest.fixture
def roomy(_roomy: Machines, tmp_path: Path) -> Iterator[Machines]:
    """Give two workers of four threads that are started again; see that nothing of a job is left, nor a traceback."""
    before = {log: log.stat().st_size for log in _roomy.directory.glob("*.log")}
    yield from whole(_roomy, tmp_path)
    said = {log.name: log.read_bytes()[before.get(log, 0) :].decode() for log in _roomy.directory.glob("*.log")}
    assert not {name: text for name, text in said.items() if "Traceback" in text}


def make_room(there: Machines, case: Case) -> None:
    """Start the Dask workers that a case needs."""
    n = max(len(units_by_process(case.job)), 2) + case.n_spares
    there.grow(n - 2)
    there.client.wait_for_workers(n, timeout=240)


def content(url: str) -> dict[str, bytes]:
    """Return the files of a run directory."""
    there, path = fsspec.url_to_fs(url)
    there.invalidate_cache()
    return {file: there.cat_file(file) for file in there.find(path)}


def content_but_late(url: str, known: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files of a run directory without new parts of checkpoints.

    An upload that was under way when its process was stopped ends when that goes on; no manifest names what it wrote.
    """
    found = content(url)
    late = {file for file in found.keys() - known.keys() if "/part-" in file or "/states-" in file}
    return {file: found[file] for file in found.keys() - late}


def check_patience(case: Case, number: int, restarts: int) -> None:
    """Check that processes that are stopped for less time than the limit cost no restart."""
    if case.only_pauses and number % len(LIMITS) == LIMITS.index("60s"):
        assert not restarts, case.text


def check_exact(url: str, topology: str, calm: Outcome) -> None:
    """Check that a run has the bits of a calm run, or as many updates."""
    if topology in SYNCHRONOUS:
        check_params(url, calm)
    else:
        assert updates(url) == updates(calm.url)


def wake(there: Machines, pids: list[int]) -> None:
    """Let stopped processes go on, and wait until they have ended or answer, and have left all jobs."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def have_left() -> bool:
        alive: dict[str, tuple[int, bool]] = there.client.run(_state_of_worker, on_error="ignore")
        known = {pid for pid, _ in alive.values()}
        return all(pid in known or not psutil.pid_exists(pid) for pid in pids) and not any(
            busy for _, busy in alive.values()
        )

    wait_until(have_left, "those that woke up have left")


def _state_of_worker() -> tuple[int, bool]:
    return os.getpid(), any(thread.name.startswith("driver-") for thread in threading.enumerate())


@pytest.mark.parametrize(("_roomy", "number"), CASES, indirect=["_roomy"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_fault(
    roomy: Machines, tmp_path: Path, calm: Any, known: dict[str, Outcome], topology: str, number: int
) -> None:
    case = draw(topology, number)
    make_room(roomy, case)
    run = Run(case.job, roomy, tmp_path / "runs", *case.script, limit_s=400)
    assert not run.hangs, case.text
    quiet = calm(case.calm)
    figures = {"restarts": run.result.restarts, "pause": round(run.longest_pause_s(), 1), "test": run.accuracy("test")}
    print(f"{number} {case.text}: {figures}, calm: {quiet.metric('accuracy', 'test')}")
    assert (run.result.state, run.result.exit_code, run.result.reason) == ("done", 0, ""), case.text
    check_no_tracebacks(run)
    assert not list(Path(run.url).rglob("*.tmp")), case.text
    check_patience(case, number, run.result.restarts)
    check_exact(run.url, topology, quiet)
    wanted = content(run.url)
    wake(roomy, run.pids)
    assert content_but_late(run.url, wanted) == wanted, case.text


class DetachedRun:
    """A detached job that is disturbed; `Fault` and `Moment` take it for a `Run`."""

    def __init__(self, job: JobConf, there: Machines, url: str, file: Path) -> None:
        file.write_text(job.model_dump_json(exclude_unset=True))
        self.machines, self.url, self.pids = there, url, list[int]()
        self._timers: list[threading.Timer] = []
        self._lines: list[dict[str, Any]] = []
        done = call("run", str(file), "--scheduler-file", there.file, "--run-dir", url, "--detach", "--quiet")
        assert done.exit_code == 0, done.stderr
        self.job_id = done.stdout.strip()

    @property
    def placed(self) -> dict[str, str]:
        """Where each unit is, and the driver."""
        processes = RemoteJobs(self.machines.client).view(self.job_id)["processes"]
        found = {str(unit): str(each["address"]) for each in processes for unit in each["units"]}
        return {**found, "driver": ask(self.machines.client, driver_pid, self.job_id)}

    def later(self, seconds: float, act: Callable[[], Any]) -> None:
        timer = threading.Timer(seconds, act)
        self._timers.append(timer)
        timer.start()

    def follow(self, script: list[tuple[Moment, Fault]]) -> None:
        """Do harm at its moments, until the job has ended; see that no line is ever lost."""
        script = list(script)

        def look() -> bool:
            lines = read_objects(f"{self.url}/metrics.jsonl")
            assert lines[: len(self._lines)] == self._lines, "lines are lost"
            news, self._lines = lines[len(self._lines) :], lines
            for event in news:
                if script and script[0][0](self, event):  # type: ignore[arg-type]
                    script.pop(0)[1](self)  # type: ignore[arg-type]
                    if not script and fs.exists(f"{self.url}/{HELD}"):
                        fs.remove_tree(f"{self.url}/{HELD}")
            return bool(ask(self.machines.client, has_ended, self.job_id))

        try:
            wait_until(look, "the job has ended")
        finally:
            for timer in self._timers:
                timer.cancel()
                timer.join()

    def steps(self, group: int) -> list[int]:
        """Return the steps that are shown."""
        keys = ("metrics", "train", group)
        return [each["step"] for each in self._lines if (each["event"], each.get("phase"), each.get("group")) == keys]


@pytest.mark.parametrize(("_roomy", "number"), CASES, indirect=["_roomy"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_fault_of_a_detached_job(
    roomy: Machines, tmp_path: Path, calm: Any, known: dict[str, Outcome], topology: str, number: int
) -> None:
    case = draw(topology, number, detached=True)
    make_room(roomy, case)
    url = f"s3://lab/{tmp_path.name}" if number % 2 else str(tmp_path / "detached")
    if number % 2 == 0:
        Path(url).mkdir()
        (Path(url) / HELD).write_text(str(STEPS * 3 // 4))
    run = DetachedRun(case.job, roomy, url, tmp_path / "given.yaml")
    run.follow(case.script)
    facts = ask(roomy.client, facts_of, run.job_id)
    print(f"{number} {case.text}, {url}: {facts}")
    assert (facts["state"], facts["exit_code"], facts["reason"]) == ("done", 0, ""), case.text
    check_patience(case, number, facts["restarts"])
    assert read_summary(url)["state"] == "done"
    for group in range(case.job.cluster.nworker_groups):
        assert run.steps(group) == list(range(STEPS)), case.text
    check_exact(url, topology, calm(case.calm))
    wanted = content(url)
    wake(roomy, run.pids)
    assert content_but_late(url, wanted) == wanted, case.text
    said = b"".join(wanted.values()).decode(errors="ignore")
    assert "Traceback" not in said and "This is a bug" not in said, case.text
    rows = {row["id"]: row["reason"] for row in RemoteJobs(roomy.client).rows()}
    assert all("put aside" in rows[name] for name in FOREIGN)
