"""JobRun: one run of a job as plain values, which a client or a Dask worker carries out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from distributed import Client

from singa_dask import modules
from singa_dask.conf import ClusterConf, JobConf
from singa_dask.observe.observers import Observers, open_observers
from singa_dask.observe.run_directory import RunDirectory
from singa_dask.runtime.job.driver import Driver, Tenure
from singa_dask.runtime.job.report import Result
from singa_dask.runtime.planning.paths import absolute_paths


@dataclass(frozen=True)
class JobRun:
    """A run of a job, checked and ready to be submitted.

    Attributes
    ----------
    job : str
        The job as JSON, with absolute paths.
    sources : sequence
        The user's own modules, fields of `modules.Source`.
    job_id, run_url, owner : str
    resume : str or None
        URL of the checkpoint to go on from.
    init_from : sequence of str
    job_text, resolved_text : str
        For the run directory.
    goes_on, replaces : bool
        See `RunDirectory`.
    steps : sequence of (int, int)
        First step of each worker group of a run that goes on.
    command : mapping
        Line for ``commands.jsonl``.
    queue : bool
        Wait in line if there is no room.
    priority : int
    datasets : sequence
        Catalogs of the part files that the job reads, as plain values.
    """

    job: str
    sources: Sequence[Sequence[Any]]
    job_id: str
    run_url: str
    owner: str
    resume: str | None
    init_from: Sequence[str]
    job_text: str
    resolved_text: str
    goes_on: bool
    replaces: bool
    steps: Sequence[tuple[int, int]]
    command: Mapping[str, Any]
    queue: bool = False
    priority: int = 0
    datasets: Sequence[Sequence[Any]] = ()

    @classmethod
    def of(cls, job: JobConf, steps: Mapping[int, int], **given: Any) -> JobRun:
        """Make one from a job on the client: reads the user's own modules."""
        sources = [list(source) for source in modules.read(job.modules)]
        return cls(job=absolute_paths(job).model_dump_json(), sources=sources, steps=list(steps.items()), **given)

    @property
    def cluster(self) -> ClusterConf:
        """The ``cluster`` block of the job."""
        return JobConf.model_validate_json(self.job).cluster

    def message(self) -> dict[str, Any]:
        """Return the values, for ``JobRun(**message)`` elsewhere."""
        return asdict(self)

    def directory(self, again: bool = False) -> RunDirectory:
        """Return the run directory; ``again``: another driver may have begun it.

        Raises
        ------
        ConfigError
            Another run is there.
        """
        return RunDirectory(
            self.run_url,
            self.job_text,
            self.resolved_text,
            self.goes_on,
            replaces=self.replaces,
            steps=dict(self.steps),
            command=self.command,
            again=again,
        )

    def observers(self) -> Observers:
        """Return what passes events on to other programs.

        Raises
        ------
        ConfigError
            A package is missing.
        """
        job = JobConf.model_validate_json(self.job)
        return open_observers(self.run_url, job.tensorboard, job.mlflow)

    def carry_out(
        self,
        client: Client,
        directory: RunDirectory,
        observers: Observers,
        on_event: Callable[[dict[str, Any]], None] = lambda event: None,
        on_driver: Callable[[Driver], None] = lambda driver: None,
        tenure: Tenure | None = None,
        judge: Callable[[Result], Result] = lambda result: result,
    ) -> tuple[Result, dict[str, Any]]:
        """Run the job to its end, and write the run directory; return the result, and what ``summary.json`` has.

        Parameters
        ----------
        client : distributed.Client
        directory, observers : RunDirectory, Observers
            See `directory` and `observers`.
        on_event : callable
            Takes each event too, after it was recorded.
        on_driver : callable
            Gets the driver before it runs.
        tenure : Tenure, optional
            Of a driver on the cluster.
        judge : callable
            Takes the result, and returns the one that is written.
        """

        def record(event: dict[str, Any]) -> None:
            directory.on_event(event)
            observers.on_event(event)
            on_event(event)

        driver = Driver(
            JobConf.model_validate_json(self.job),
            client,
            run_url=self.run_url,
            on_event=record,
            job_id=self.job_id,
            resume=self.resume,
            init_from=tuple(self.init_from),
            owner=self.owner,
            sources=[modules.Source(*source) for source in self.sources],
            tenure=tenure,
            queue=self.queue,
            priority=self.priority,
            datasets=self.datasets,
        )
        on_driver(driver)
        with observers, directory:  # observers end after the directory, and read it
            result = judge(driver.run())
            summary = directory.finish(result.summary())
            for line in summary.get("learning", {}).get("sentences", ()):
                on_event({"event": "notice", "unit": "driver", "level": "INFO", "message": line})
            return result, summary
