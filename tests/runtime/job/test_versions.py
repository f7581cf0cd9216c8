"""Dask processes that lack the package, or have another version of it: one clear error, from every verb."""

from __future__ import annotations

import pytest
from distributed import Client

from singa_dask.comm import dask_servers
from singa_dask.errors import ClusterError, UnitError
from singa_dask.runtime.job import sites
from singa_dask.runtime.job.driver import install_jobs
from singa_dask.runtime.job.follower import RemoteJobs
from tests.runtime.job.test_job_state import world_of

pytestmark = pytest.mark.cluster

MISSING = "import a_package_that_is_missing"


def test_a_scheduler_with_another_version_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_servers, "__version__", "999.0")
    for ask in (lambda: install_jobs(client), lambda: RemoteJobs(client).rows()):
        with pytest.raises(ClusterError, match=r"the scheduler cannot load the package: .*, not 999\.0\. Install"):
            ask()


def test_a_scheduler_without_the_package_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_servers, "_code", lambda module: MISSING)
    for ask in (lambda: install_jobs(client), lambda: RemoteJobs(client).rows()):
        with pytest.raises(ClusterError, match=r"the scheduler cannot load the package: No module named .*Install"):
            ask()


def test_dask_workers_without_the_package_end_the_job_at_once() -> None:
    """And those that have it are used, if there are any."""
    world = world_of("allreduce", 3, nthreads=4, n_steps=20)
    world.nodes["w0"].host_error = "lasting"
    assert world.run_until_over(60.0)["failure"] is None
    world = world_of("single", 1, nthreads=4, n_steps=20)
    world.nodes["w0"].host_error = "lasting"
    failure = world.run_until_over(10.0)["failure"]
    assert failure["exit_code"] == UnitError.exit_code
    assert failure["reason"].startswith("w")


def test_what_a_dask_worker_without_the_package_answers() -> None:
    missing = sites._explain(Exception("ModuleNotFoundError(\"No module named 'singa_dask'\")"))
    assert missing["lasting"] and "Install singa-dask" in missing["error"]
    assert "lasting" not in sites._explain(OSError("Timed out"))
