"""Hand a run over to a cluster, on which its driver runs from then on, in a thread of a Dask worker."""

from __future__ import annotations

import logging
import socket
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from distributed import Client, Worker, WorkerPlugin
from distributed.comm.addressing import get_address_host
from distributed.utils import sync

from singa_dask.data import fs
from singa_dask.errors import A_BUG, ClusterError, DataError, SingaError
from singa_dask.redaction import redact
from singa_dask.runtime.job.cluster import present_workers
from singa_dask.runtime.job.driver import Driver, TakenOver, Tenure, install_jobs
from singa_dask.runtime.job.follower import GONE, ask_jobs
from singa_dask.runtime.job.job_run import JobRun
from singa_dask.runtime.job.names import DRIVERS, Op
from singa_dask.runtime.job.sites import Plugin
from singa_dask.runtime.job.unit_tasks import as_client
from singa_dask.runtime.units.job_log import in_job

ASK_TIMEOUT_S = 10.0
LEAVE_TIMEOUT_S = 3.0

logger = logging.getLogger(__name__)


class _DriverHost(WorkerPlugin):
    """Runs drivers of detached jobs on a Dask worker. One instance serves all jobs."""

    name = DRIVERS

    def setup(self, worker: Worker) -> None:
        """Take calls of `Jobs`."""
        self.worker = worker
        self._drivers: dict[threading.Thread, Driver | None] = {}
        self._is_leaving = False
        handlers: dict[str, Callable[..., Any]] = {Op.DRIVE: self._drive}
        worker.handlers.update(handlers)

    async def teardown(self, worker: Worker) -> None:
        """Leave the jobs: the scheduler starts their drivers on other Dask workers."""
        worker.handlers.pop(Op.DRIVE, None)
        self._is_leaving = True
        for driver in list(self._drivers.values()):
            if driver is not None:
                driver.leave()
        for thread in list(self._drivers):
            await worker.loop.run_in_executor(None, thread.join, LEAVE_TIMEOUT_S)

    def _drive(self, run: Mapping[str, Any], number: int, has_begun: bool) -> dict[str, Any]:
        """Start a driver; ``run`` are the fields of a `JobRun`."""
        job_run = JobRun(**run)
        tenure = Tenure(number, has_begun, partial(self._renew, job_run.job_id, number))
        thread = threading.Thread(target=self._run, args=(job_run, tenure), name=f"driver-{job_run.job_id}")
        thread.daemon = True
        self._drivers[thread] = None
        thread.start()
        return {}

    def _ask(self, op: str, **arguments: Any) -> Any:
        """Call `Jobs`, from a thread."""
        return sync(self.worker.loop, getattr(self.worker.scheduler, op), **arguments, callback_timeout=ASK_TIMEOUT_S)

    def _renew(self, job_id: str, number: int) -> bool:
        return not self._is_leaving and bool(self._ask(Op.RENEW, job_id=job_id, number=number))

    def _run(self, run: JobRun, tenure: Tenure) -> None:
        """Drive a job to its end, and tell how that went."""
        failure: dict[str, Any] = {}
        try:
            with in_job(run.job_id):
                self._carry_out(run, tenure)
        except TakenOver:
            return
        except SingaError as error:
            failure = {"reason": str(error), "exit_code": error.exit_code, "error": ""}
            failure["elsewhere"] = isinstance(error, DataError) and tenure.has_begun
        except Exception as error:
            logger.exception("the driver of %s", run.job_id)
            failure = {"reason": f"the driver of the job: {error!r}", "exit_code": 1}
            failure["error"] = redact(traceback.format_exc()) + A_BUG
        finally:
            self._drivers.pop(threading.current_thread(), None)
        with suppress(Exception):  # the scheduler is gone, or this Dask worker is closing
            self._ask(Op.DRIVEN, job_id=run.job_id, number=tenure.number, failure=failure)

    def _carry_out(self, run: JobRun, tenure: Tenure) -> None:
        directory = run.directory(again=tenure.number > 1)
        try:
            directory.check_writable()
        except DataError as error:
            where = f"{socket.gethostname()} ({self.worker.address})"
            message = f"{where}: the driver of the job runs there, and cannot write the run directory: {error}"
            raise DataError(message) from error
        given = {"security": as_client(self.worker.security, "worker"), "set_as_default": False}
        with Client(self.worker.scheduler.address, name=f"driver-{run.job_id}", **given) as client:
            run.carry_out(client, directory, run.observers(), on_driver=self._on_driver, tenure=tenure)

    def _on_driver(self, driver: Driver) -> None:
        self._drivers[threading.current_thread()] = driver
        if self._is_leaving:
            raise TakenOver

    def __getstate__(self) -> dict[str, Any]:
        return {}


LOOK_S = 0.2


def detach(client: Client, run: JobRun) -> dict[str, Any]:
    """Start the driver of a run on the cluster; return how it goes when the job has started, or was refused.

    Returns
    -------
    dict
        See `Drivers.detached`.

    Raises
    ------
    ClusterError
        A job of this id runs already, or the scheduler is gone.
    """
    install_jobs(client)
    plugin = Plugin.of(_DriverHost())
    nobody = threading.Event()
    try:
        refused = ask_jobs(client, Op.DETACH, run=run.message(), plugin=list(plugin), client=client.id)
        if refused:
            raise ClusterError(refused["refused"])
        while (found := ask_jobs(client, Op.DETACHED, job_id=run.job_id))["state"] == "starting":
            nobody.wait(LOOK_S)
    except (KeyboardInterrupt, SystemExit):  # nobody knows the id yet
        with suppress(*GONE):
            for _ in range(2):
                ask_jobs(client, Op.SIGNAL, job_id=run.job_id, name="SIGINT")
        raise
    except GONE as error:
        raise ClusterError(f"the scheduler is gone, or does not answer: {error!r}. The job may run.") from error
    if found["state"] == "unknown":
        raise ClusterError("the scheduler does not know the job any more. It may have been restarted.")
    return dict(found)


def remote_hosts(client: Client, run_url: str) -> list[str]:
    """Return the hosts of Dask workers that may not see a run directory on a local disk of this host."""
    workers = present_workers(client).values()
    comm: Any = client.scheduler_comm
    if fs.local_path(run_url) is None or comm is None:
        return []
    here = {get_address_host(comm.comm.local_address), "127.0.0.1"}
    return sorted({each["host"] for each in workers} - here)
