"""DriverHost: run the drivers of detached jobs on a Dask worker."""

from __future__ import annotations

import logging
import socket
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from distributed import Client, Worker, WorkerPlugin
from distributed.utils import sync

from singa_dask import fs
from singa_dask.errors import A_BUG, DataError, NotNowError, ReplacedError, SingaError
from singa_dask.observe.files.run_directory import is_run
from singa_dask.redaction import redact
from singa_dask.runtime.job.calls import UNANSWERED
from singa_dask.runtime.job.client_security import as_client
from singa_dask.runtime.job.driver.driver import ELSEWHERE, Driver, Lease, UnheardError
from singa_dask.runtime.job.driver.job_run import JobRun
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import DRIVERS, Op
from singa_dask.runtime.units.job_of_thread import in_job

logger = logging.getLogger(__name__)

TELL_AGAIN_S = 1.0


class DriverHost(WorkerPlugin):
    """Runs drivers of detached jobs on a Dask worker. One instance serves all jobs."""

    name = DRIVERS

    def setup(self, worker: Worker) -> None:
        """Register the handler with which `Jobs` starts a driver here."""
        self.worker = worker
        self._drivers: dict[threading.Thread, Driver | None] = {}
        self._leaving = threading.Event()
        handlers: dict[str, Callable[..., Any]] = {Op.DRIVE: self._drive}
        worker.handlers.update(handlers)

    async def teardown(self, worker: Worker) -> None:
        """Stop the drivers. The scheduler starts them again on other Dask workers."""
        worker.handlers.pop(Op.DRIVE, None)
        self._leaving.set()
        for driver in list(self._drivers.values()):
            if driver is not None:
                driver.leave()
        for thread in list(self._drivers):
            await worker.loop.run_in_executor(None, thread.join, limit("driver-left"))

    def _drive(self, run: Mapping[str, Any], **lease_fields: Any) -> dict[str, Any]:
        """Start a driver in a new thread, given the fields of a `JobRun` and of its `Lease`."""
        job_run, lease = JobRun(**run), Lease(**lease_fields)
        with in_job(job_run.job_id):
            drive = partial(copy_context().run, self._run, job_run, lease)
        thread = threading.Thread(target=drive, name=f"driver-{job_run.job_id}", daemon=True)
        self._drivers[thread] = None
        thread.start()
        return {}

    def _run(self, run: JobRun, lease: Lease) -> None:
        """Drive a job to its end, and report the outcome until the scheduler answers."""
        failure: dict[str, Any] = {}
        try:
            self._carry_out(run, lease)
        except UnheardError as error:
            failure = {"reason": str(error), "elsewhere": True, "again": True}
        except ReplacedError:
            return
        except SingaError as error:
            failure = {"reason": str(error), "exit_code": error.exit_code, "error": ""}
            failure["elsewhere"] = isinstance(error, DataError) and lease.has_begun
            failure["again"] = isinstance(error, NotNowError)
        except Exception as error:
            logger.exception("the driver of %s", run.job_id)
            failure = {"reason": f"the driver of the job: {error!r}", "exit_code": 1}
            failure["error"] = redact(traceback.format_exc()) + A_BUG
        finally:
            self._drivers.pop(threading.current_thread(), None)
        facts = {"job_id": run.job_id, "number": lease.number, "failure": failure}
        ask = getattr(self.worker.scheduler, Op.DRIVER_ENDED)
        while True:  # the loop ends when this Dask worker closes; Dask workers close when their scheduler is gone
            with suppress(*UNANSWERED):
                sync(self.worker.loop, ask, **facts, callback_timeout=limit("question"))
                return
            if self._leaving.wait(TELL_AGAIN_S):
                return

    def _carry_out(self, run: JobRun, lease: Lease) -> None:
        if lease.first_incarnation and not lease.has_begun:
            run = run.going_on()
        where = f"{socket.gethostname()} ({self.worker.address}): the driver of the job runs there, and"
        if lease.has_begun and fs.local_path(run.run_url) is not None and not is_run(run.run_url):
            raise DataError(f"{where} does not see the run directory: {run.run_url}")
        directory = run.directory(lease.number)
        try:
            directory.check_writable()
        except DataError as error:
            raise DataError(f"{where} cannot write the run directory: {error}") from error
        options = {"security": as_client(self.worker.security, "worker"), "set_as_default": False}
        with Client(self.worker.scheduler.address, name=f"driver-{run.job_id}", **options) as client:
            run.carry_out(client, directory, run.observers(), on_driver=self._on_driver, lease=lease)

    def _on_driver(self, driver: Driver) -> None:
        self._drivers[threading.current_thread()] = driver
        if self._leaving.is_set():
            raise ReplacedError(ELSEWHERE)

    def __getstate__(self) -> dict[str, Any]:
        return {}
