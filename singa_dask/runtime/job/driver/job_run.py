"""Run a job to its end, and write its run directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from distributed import Client

from singa_dask import modules
from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError, NotNowError, ReplacedError, SingaError, UnitError
from singa_dask.observe.files.run_directory import RunDirectory
from singa_dask.observe.programs.observers import Observers, open_observers
from singa_dask.redaction import readable
from singa_dask.runtime.checkpoints.lookup import find, first_steps, has_checkpoints
from singa_dask.runtime.job.driver.driver import Driver, Lease
from singa_dask.runtime.job.driver.result import Result
from singa_dask.runtime.job.state.submission import Submission
from singa_dask.runtime.planning.absolute_paths import absolute_paths
from singa_dask.runtime.units.job_of_thread import in_job
from singa_dask.shown import STDERR


@dataclass(frozen=True, kw_only=True)
class JobRun(Submission):
    """A run of a job, checked and ready to be submitted.

    Attributes
    ----------
    recording : mapping
        Arguments of `RunDirectory`, except its URL.
    queue : bool
        Whether to wait in the queue if the job does not fit on the cluster.
    """

    recording: Mapping[str, Any] = field(default_factory=dict)
    queue: bool = False

    @classmethod
    def of(cls, job: JobConf, **fields: Any) -> JobRun:
        """Return the run of a job, with absolute paths, and with the source code of the user's own modules."""
        sources = [list(source) for source in modules.read(job.modules)]
        return cls(job=absolute_paths(job).to_json(), sources=sources, **fields)

    def directory(self, driver: int = 0) -> RunDirectory:
        """Return the `RunDirectory` with which the driver of this number writes the run directory.

        Raises
        ------
        ConfigError
            The directory contains another run.
        """
        return RunDirectory(self.run_url, **self.recording, job_id=self.job_id, driver=driver)

    def going_on(self) -> JobRun:
        """Return a run that continues this run from its newest checkpoint, or starts anew without checkpoint."""
        checkpoint = find(self.run_url) if has_checkpoints(self.run_url) else None
        goes_on = {"goes_on": checkpoint is not None, "replaces": checkpoint is None}
        command = {**self.recording["command"], "time": time.time(), "resume": checkpoint or self.resume}
        recording = {**self.recording, **goes_on, "command": command, "steps": first_steps(checkpoint)}
        return replace(self, resume=checkpoint or self.resume, recording=recording)

    def observers(self) -> Observers:
        """Return the observers, which pass the events of the run on to programs such as MLflow.

        Raises
        ------
        ConfigError
            A package that an observer needs is not installed.
        """
        return open_observers(self.run_url, self.conf.tensorboard, self.conf.mlflow)

    def carry_out(
        self,
        client: Client,
        directory: RunDirectory,
        observers: Observers,
        on_event: Callable[[dict[str, Any]], None] = lambda event: None,
        on_driver: Callable[[Driver], None] = lambda driver: None,
        lease: Lease | None = None,
        judge: Callable[[Result], Result] = lambda result: result,
    ) -> tuple[Result, dict[str, Any]]:
        """Run the job and write its run directory; return the result and the content of ``summary.json``.

        Parameters
        ----------
        directory, observers : RunDirectory, Observers
            See `directory` and `observers`.
        on_event : callable
            Called with each event after the event was recorded. If ``on_event`` raises an error, the job stops with a
            checkpoint, and this method raises the error at the end.
        on_driver : callable
            Called with the driver before the driver runs.
        lease : Lease, optional
            Set only if this process is a driver on the cluster.
        judge : callable
            Called with the result of the job; returns the result to write.
        """
        if self.run_url != readable(self.run_url) and "inproc:" not in str(getattr(client.scheduler, "address", "")):
            raise ConfigError(f"{self.run_url}: the name is not UTF-8, so it cannot be sent. Choose another --run-dir.")
        errors: list[BaseException] = []
        warned = False

        def record(event: dict[str, Any]) -> None:
            nonlocal warned
            directory.on_event(event)
            observers.on_event(event)
            tell(event)
            if STDERR.lost and not warned and event["event"] != "queued":
                warned = True
                driver.warn(STDERR.lost)

        def tell(event: dict[str, Any]) -> None:
            if errors:
                return
            try:
                on_event(event)
            except BaseException as error:
                errors.append(error)
                driver.stop("SIGTERM", by=f"{error!r} in on_event")

        driver = Driver(self, client, on_event=record, lease=lease, queue=self.queue)
        on_driver(driver)
        # observers end after the directory, because they read the finished directory
        with in_job(self.job_id), observers, directory:
            try:
                result = judge(driver.run())
            except BaseException as error:
                # the next driver of a detached job needs the directory
                goes_on = isinstance(error, ReplacedError) or (self.queue and isinstance(error, NotNowError))
                if not driver.has_begun and not (lease is not None and goes_on):
                    directory.withdraw()
                if not errors or not isinstance(error, SingaError):
                    raise
                raise errors[0] from errors[0].__cause__
            if errors and result.state == "stopped":
                result = replace(result, state="failed", exit_code=UnitError.exit_code)
            summary = directory.finish(result.summary())
            for line in summary.get("learning", {}).get("sentences", ()):
                tell({"event": "notice", "unit": "driver", "level": "INFO", "message": line})
            if errors:
                raise errors[0]
            return result, summary
