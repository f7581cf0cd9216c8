"""Dask processes that lack the package, or have another version of it: one clear error, from every verb."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from distributed.comm import CommClosedError

import singa_dask as sd
from singa_dask.comm import remote_import
from singa_dask.comm.remote_import import load_on_scheduler
from singa_dask.errors import ClusterError, UnloadableError
from singa_dask.jobs.datasets.making import as_dataset
from singa_dask.runtime import Patience, connect
from singa_dask.runtime.job.client.job_cluster import install_jobs
from singa_dask.runtime.job.client.remote_jobs import RemoteJobs
from tests.runtime.job.test_job_state import world_of
from tests.runtime.processes import ROOT, TIMEOUT_S, Driven, digits, driver_of, kill_group

pytestmark = pytest.mark.cluster

MISSING = "import a_package_that_is_missing"


def test_a_scheduler_with_another_version_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_import, "__version__", "999.0")
    for ask in (lambda: install_jobs(client), lambda: RemoteJobs(client).rows()):
        with pytest.raises(
            ClusterError, match=r"the scheduler cannot load the package: .*singa-dask 999\.0, .* here\. Install"
        ):
            ask()


def test_a_scheduler_without_the_package_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_import, "_code", lambda module: MISSING)
    for ask in (lambda: install_jobs(client), lambda: RemoteJobs(client).rows()):
        with pytest.raises(ClusterError, match=r"the scheduler cannot load the package: No module named .*Install"):
            ask()


def test_a_scheduler_without_a_shared_library_of_the_package_is_refused(client: Client, tmp_path: Path) -> None:
    """The error is an OSError. A lost connection raises one, too."""
    (tmp_path / "with_a_library.py").write_text("raise OSError('libfast.so: cannot open shared object file')")
    client.run_on_scheduler(exec, f"import sys; sys.path.append({str(tmp_path)!r})", {})
    with pytest.raises(UnloadableError, match=r"the scheduler cannot load the package: libfast\.so: cannot open"):
        load_on_scheduler(client, "with_a_library", TIMEOUT_S)
    client.run_on_scheduler(exec, f"import sys; sys.path.remove({str(tmp_path)!r})", {})


@pytest.mark.parametrize("what", ["run_on_scheduler", "register_plugin", "scheduler"])
def test_a_scheduler_that_closes_meanwhile_is_no_bug(
    client: Client, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def close(*given: Any, **options: Any) -> None:
        raise CommClosedError("Stream is closed")

    with Client(client.scheduler.address, set_as_default=False) as other:
        with monkeypatch.context() as patch:
            patch.setattr(other, what, None if what == "scheduler" else close)
            with pytest.raises(ClusterError, match=r"(its connection to the scheduler|does not answer)"):
                install_jobs(other)


def test_dask_workers_without_the_package_end_the_job_at_once() -> None:
    """And those that have it are used, if there are any."""
    world = world_of("allreduce", 3, nthreads=4, n_steps=20)
    world.nodes["w0"].host_error = "lasting"
    assert world.run_until_over(60.0)["failure"] is None
    world = world_of("single", 1, nthreads=4, n_steps=20)
    world.nodes["w0"].host_error = "lasting"
    failure = world.run_until_over(10.0)["failure"]
    assert failure["exit_code"] == ClusterError.exit_code
    assert failure["reason"].startswith("w")


HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "singa_dask":
            raise ModuleNotFoundError("No module named 'singa_dask'", name="singa_dask")

sys.meta_path.insert(0, Hidden())
"""
OLDER = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from singa_dask import version
version.__version__, version.PROTOCOL = "0.0.9", 4
"""
ERRORS = {
    HIDE: r"No module named 'singa_dask' \(Python 3\.\d+\.\d+\)\. Install singa-dask",
    OLDER: r"singa-dask 0\.0\.9, protocol 4, Python 3\S+ there; singa-dask \S+, protocol \d+, .* here\. Install",
}


@pytest.fixture(
    params=[
        pytest.param(("worker", HIDE), id="worker without it"),
        pytest.param(("worker", OLDER), id="older worker", marks=pytest.mark.soak),
        pytest.param(("scheduler", HIDE), id="scheduler without it", marks=pytest.mark.soak),
        pytest.param(("scheduler", OLDER), id="older scheduler", marks=pytest.mark.soak),
    ]
)
def strange(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Client, str, str]]:
    """Yield the client of a scheduler and a worker, one of which lacks the package; which one, and the error."""
    role, code = request.param
    (tmp_path / "sitecustomize.py").write_text(code)
    file = tmp_path / "scheduler.json"
    common = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
    processes = []
    try:
        for name, options in (("scheduler", ["--port", "0"]), ("worker", ["--nthreads", "2", "--no-nanny"])):
            command = [sys.executable, "-m", "dask", name, *common, *options]
            environment = {**os.environ, "PYTHONPATH": str(tmp_path if name == role else ROOT)}
            processes.append(
                subprocess.Popen(
                    command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
                )
            )
        with connect(scheduler_file=str(file), patience=Patience(TIMEOUT_S)) as client:
            client.wait_for_workers(1, timeout=TIMEOUT_S)
            yield client, role, ERRORS[code]
            assert len(client.run(os.getpid)) == 1, "the worker of others has been harmed"
    finally:
        for process in processes:
            kill_group(process)


AT_LAST = (["lazy", "array"], ["lazy", "frame"], ["at", "once"])
"""Ends of names of calls whose tasks Dask itself reports on."""


@pytest.mark.long
def test_clusters_of_others_are_refused_in_a_line(strange: tuple[Client, str, str], tmp_path: Path) -> None:
    client, role, why = strange
    job = digits("single")
    x, y = np.random.default_rng(1).normal(size=(40, 784)).astype(np.float32), np.arange(40) % 2
    lazy, labels = da.from_array(x, chunks=20), da.from_array(y, chunks=20)
    frame = dd.from_pandas(pd.DataFrame(x, columns=list(map(str, range(784)))), npartitions=2)
    trained = tmp_path / "trained"
    sd.train(sd.load(ROOT / "configs/digits/mlp.yaml", set={"train_steps": 1}), run_dir=str(trained), progress=False)
    fitted = sd.SingaClassifier(max_iter=1).fit(x, y).set_params(client=client)
    tasks: dict[str, Callable[[], Any]] = {
        "stored records": lambda: sd.predict(str(trained), ROOT / "data/digits/test.arrow", client=client),
        "a test of an array": lambda: sd.test(str(trained), lazy, labels, client=client)["accuracy"],
        "a score": lambda: fitted.score(lazy, labels),
        "names of classes": lambda: as_dataset("train", (lazy, labels.astype(str)), client).write_part.classes,
        "a lazy array": lambda: client.compute(sd.predict(str(trained), lazy), sync=True),
        "a lazy frame": lambda: client.compute(sd.predict(str(trained), frame, proba=True), sync=True),
        "an array at once": lambda: client.compute(sd.predict(str(trained), lazy, client=client), sync=True),
    }
    calls: dict[str, Callable[[], Any]] = {
        "a job": lambda: Driven(job, client, tmp_path),
        "a job in line": lambda: driver_of(
            job.model_copy(update={"train_steps": 0, "epochs": 0.1}),
            client,
            run_url=str(tmp_path / "line"),
            job_id="line",
            on_event=lambda event: None,
            queue=True,
        ).run(),
        "a job of epochs": lambda: Driven(job.model_copy(update={"train_steps": 0, "epochs": 0.1}), client, tmp_path),
        "data": lambda: sd.SingaClassifier(max_iter=1, client=client).fit(x, y),
    }
    if role == "scheduler":
        calls["a list"] = lambda: RemoteJobs(client).rows()
        for name, task in tasks.items():  # tasks alone need the package on Dask workers only
            assert np.size(task()), name
    else:
        calls |= tasks
    for name, call in calls.items():
        with pytest.raises((ClusterError, ImportError), match=f"{role}.* cannot load the package: {why}") as caught:
            call()
        assert "\n" not in str(caught.value), name
        assert isinstance(caught.value, ImportError if name.split()[-2:] in AT_LAST else ClusterError), name
