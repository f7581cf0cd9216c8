"""Run: a run of a job, while it goes on and afterwards; `start` and `train` begin one."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from distributed import Client

from singa_dask import fs
from singa_dask.conf import JobConf
from singa_dask.conf.model import suggest_key
from singa_dask.errors import ClusterError, ConfigError, LostUnitError, NumericError, SingaError, UnitError
from singa_dask.jobs.datasets.hosts import local_parts, placed
from singa_dask.jobs.datasets.making import as_datasets, check_data, fit_to_data
from singa_dask.jobs.job import Job, warnings_on
from singa_dask.jobs.pages import run_page
from singa_dask.jobs.preparing import changes_of, check_client, cluster_of, prepare_run
from singa_dask.lazy import require
from singa_dask.observe import start_progress
from singa_dask.observe.figure import figure_of, panels_of
from singa_dask.observe.progress import NotebookProgress, Progress, notebook_shell
from singa_dask.observe.stored_run import StoredRun, facts_of
from singa_dask.redaction import redact
from singa_dask.runtime import Driver, Result

if TYPE_CHECKING:
    from typing import Unpack


ERRORS: dict[int, type[SingaError]] = {
    each.exit_code: each for each in (UnitError, ConfigError, ClusterError, LostUnitError, NumericError)
}


class Training:
    """The thread that drives a run to its end.

    Parameters
    ----------
    carry_out : callable
        Runs the job; it gets this object, and tells it the driver, and when the job has begun.

    Attributes
    ----------
    has_begun : threading.Event
    ended : futures.Future of Result
        Done when the job has ended.
    """

    def __init__(self, carry_out: Callable[[Training], Result]) -> None:
        self.has_begun = threading.Event()
        self.ended: futures.Future[Result] = futures.Future()
        self._carry_out = carry_out
        self._driver: Driver | None = None
        self._stops = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="singa-dask run", daemon=True).start()

    def _run(self) -> None:
        try:
            self.ended.set_result(self._carry_out(self))
        except BaseException as error:
            self.ended.set_exception(error)
        finally:
            self.has_begun.set()

    def take_driver(self, driver: Driver) -> None:
        """Let the driver stop the job when this is asked for."""
        with self._lock:
            self._driver = driver
            for _ in range(self._stops):
                driver.stop()

    def stop(self) -> None:
        """Stop the job with a checkpoint; the second time, end it at once."""
        with self._lock:
            self._stops += 1
            if self._driver is not None:
                self._driver.stop()


class Run:
    """A run of a job: its state, metrics and logs, from the files in its run directory.

    Parameters
    ----------
    url : str
        Run directory.
    training : Training, optional
        Of a run that this process has started.
    """

    def __init__(self, url: str, training: Training | None = None) -> None:
        self.url = url
        self._training = training

    @property
    def state(self) -> str:
        """``running``, ``done``, ``stopped`` or ``failed``; ``unknown`` of a run elsewhere that says nothing."""
        if self._training is None:
            return self._stored().state
        if not self._training.ended.done():
            return "running"
        return "failed" if self._training.ended.exception() else self._training.ended.result().state

    @property
    def summary(self) -> dict[str, Any]:
        """What ``summary.json`` says: empty while the run goes on."""
        return self._stored().summary

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """The latest metrics of each phase and their step, of the first group; without disp_freq none of training."""
        metrics: dict[str, dict[str, Any]] = facts_of(self._stored())["metrics"]
        return metrics

    @property
    def history(self) -> Any:
        """All metrics, as a pandas DataFrame: a row for each time that they were shown.

        Its columns are ``step``, ``phase``, ``group``, ``time`` (seconds since 1970), ``epoch``, ``lr``,
        ``samples_per_s``, ``wait_data_ms``, ``wait_params_ms``, and the metrics of the layers.

        Raises
        ------
        ConfigError
            pandas is not installed.
        """
        pandas = require("pandas", "pandas", "the history of a run")
        names, rows = self._stored().metrics_table()
        return pandas.DataFrame(rows, columns=names)

    def wait(self, timeout: float | None = None) -> Result | None:
        """Wait for the end of a run that this process has started.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most.

        Returns
        -------
        Result or None
            None if the time is over.

        Raises
        ------
        SingaError
            The job has failed; `UnitError`, `NumericError`, `LostUnitError`, `ClusterError` ... say how.
        ConfigError
            The run was not started by this process.
        """
        training = self._training
        if training is None:
            raise ConfigError(f"{self.url}: this run was not started here. Its state is {self.state}.")
        if not futures.wait([training.ended], timeout).done:
            return None
        result = training.ended.result()
        if result.state == "failed":
            raise ERRORS.get(result.exit_code, UnitError)(f"{result.reason}\n{result.error}".rstrip())
        return result

    def stop(self) -> None:
        """Stop the job with a checkpoint; called again, end it at once. Returns before the job has ended.

        Raises
        ------
        ConfigError
            The run was not started by this process.
        """
        if self._training is None:
            raise ConfigError(f"{self.url}: this run was not started here. Stop it by singa-dask stop.")
        self._training.stop()

    def logs(self, unit: str = "") -> str:
        """Return the messages of a unit such as ``worker-0-0``, or of all units, each with its name before it.

        Raises
        ------
        ConfigError
            There are none of this unit.
        """
        folder = fs.join(self.url, "log")
        names = [name.removesuffix(".log") for name in fs.ls(folder)] if fs.exists(folder) else []
        if unit and unit not in names:
            raise ConfigError(f"{self.url}: no messages of {unit!r}. There are some of: {', '.join(names) or 'none'}.")
        texts = {name: fs.read_bytes(fs.join(folder, f"{name}.log")).decode() for name in ([unit] if unit else names)}
        if unit:
            return texts[unit]
        return "".join(f"{name}: {line}\n" for name, text in texts.items() for line in text.splitlines())

    def plot(self, axis: str = "step") -> Any:
        """Draw the curves of the run; return a figure of matplotlib, which notebooks show.

        Parameters
        ----------
        axis : str
            ``"step"``, ``"epoch"``, ``"time"`` or ``"samples"``.

        Raises
        ------
        ConfigError
            matplotlib is not installed, or there are no metrics yet.
        """
        run = self._stored()
        panels = panels_of([run], axis)
        if not panels:
            raise ConfigError(f"{self.url}: no metrics yet. They are written every disp_freq and test_freq steps.")
        return figure_of(panels, [run.name], axis)

    def _stored(self) -> StoredRun:
        return StoredRun(self.url)

    def __repr__(self) -> str:
        return f"<Run {redact(self.url)}: {self.state}>"

    def _repr_html_(self) -> str:
        return run_page({**facts_of(self._stored()), "state": self.state})


def open_run(url: str) -> Run:
    """Return a run that has been started before, or elsewhere.

    Parameters
    ----------
    url : str
        Run directory.

    Raises
    ------
    ConfigError
        There is none.
    """
    return Run(StoredRun(url).url)


# Train a job from Python: `start` it, or `train` it to its end.


class RunOptions(TypedDict, total=False):
    """Keyword arguments of `start`."""

    data: Any
    client: Client | str | None
    run_dir: str | None
    resume: str | bool
    overwrite: bool
    init_from: str | Sequence[str]
    queue: bool
    priority: int
    progress: bool
    on_event: Callable[[Mapping[str, Any]], None] | None


def start(
    job: Job,
    *,
    data: Any = None,
    client: Client | str | None = None,
    run_dir: str | None = None,
    resume: str | bool = False,
    overwrite: bool = False,
    init_from: str | Sequence[str] = (),
    queue: bool = False,
    priority: int = 0,
    progress: bool = True,
    on_event: Callable[[Mapping[str, Any]], None] | None = None,
) -> Run:
    """Start a job, and return once it has started.

    Parameters
    ----------
    job : Job
    data : mapping of str to Any, or Any, optional
        Data of input layers with ``path: dask://NAME``, by name; a single value is that of ``dask://train``. Arrays of
        NumPy, Dask or xarray, frames of pandas or Dask, tables of pyarrow, or pairs (X, y) of these; see `as_dataset`
        in `singa_dask.jobs.datasets.making`. They are written to files for the time of the run, a partition at a time.
    client : distributed.Client or str, optional
        Of the Dask cluster to run on, or the address of its scheduler. By default a cluster of the job's size is
        started in this process or beside it, for this job alone; a script that starts one of several processes needs
        ``if __name__ == "__main__":``, as multiprocessing does.
    run_dir : str, optional
        URL of the run directory; by default a new one in the job's ``cluster.workspace``, or in ``runs/``.
    resume : str or bool
        URL of a run or a step of it to go on from; True: the one in ``run_dir``, or the newest run of this job.
    overwrite : bool
        Replace the run in ``run_dir``.
    init_from : str or sequence of str
        Checkpoints to start with the values of; later ones win.
    queue : bool
        Wait in line if there is no room on the cluster.
    priority : int
        Jobs of higher priority go before others in line.
    progress : bool
        Show progress: on stderr, or below the cell of a notebook.
    on_event : callable, optional
        Takes each event of the job, a dict, in another thread: metrics, checkpoints, warnings, restarts.

    Raises
    ------
    ConfigError, CheckpointError, DataError
        The job is wrong; nothing was started.
    ClusterError
        It does not fit the cluster.
    """
    check_client(client, "sd.train, job")
    checkpoints = (init_from,) if isinstance(init_from, str) else tuple(init_from)
    elsewhere = client is not None
    if resume and checkpoints:
        raise ConfigError("resume takes all from one checkpoint, and init_from only values. Give one of them.")
    if overwrite and (resume or not run_dir):
        raise ConfigError("overwrite replaces the run in run_dir. Give that, and no resume.")
    if queue and not elsewhere:
        raise ConfigError("queue needs a cluster that is there without this program. Give its client.")
    datasets = as_datasets(data, client if isinstance(client, Client) else None)
    check_data(job.file, datasets, needed=not elsewhere)
    with job.file.located():
        conf, datasets = fit_to_data(job.conf, datasets)
    with contextlib.ExitStack() as stack:
        prepared = prepare_run(
            replace(job.file, job=conf),
            run_dir=run_dir,
            resume=resume,
            overwrite=overwrite,
            init_from=checkpoints,
            elsewhere=elsewhere,
            # on a cluster they are written where its workers are
            place_data=lambda: {} if elsewhere else stack.enter_context(local_parts(datasets)),
        )
        for problem in warnings_on(prepared.job_file, prepared.nets, embedded=not elsewhere):
            warnings.warn(str(problem), stacklevel=2)
        run = prepared.job_run(["singa_dask.start"], queue, priority)
        directory, observers = run.directory(), run.observers()
        files = stack.pop_all()
    conf = prepared.job_file.job
    reporter = _progress(conf, run.run_url, progress)
    for line in changes_of(prepared.job_file, prepared.place):
        reporter.on_event({"event": "notice", "message": line})

    def carry_out(training: Training) -> Result:
        def tell(event: dict[str, Any]) -> None:
            if event["event"] in ("started", "queued"):
                training.has_begun.set()
            reporter.on_event(event)
            if on_event is not None:
                on_event(event)

        with files, cluster_of(conf, client) as cluster, placed(run, cluster, datasets) as there, reporter:
            result, _ = there.carry_out(cluster, directory, observers, tell, training.take_driver)
        return result

    training = Training(carry_out)
    try:
        training.has_begun.wait()
    except KeyboardInterrupt:
        training.stop()
        raise
    if training.ended.done():
        training.ended.result()  # raises the error of a job that could not be started
    return Run(run.run_url, training)


def train(job: Job, **given: Unpack[RunOptions]) -> Run:
    """Train a job to its end; Ctrl-C or a notebook's stop button stops it with a checkpoint, and once more at once.

    Parameters
    ----------
    job : Job
    **given
        See `start`.

    Raises
    ------
    SingaError
        The job cannot be started, see `start`, or has failed, see `Run.wait`.
    """
    __tracebackhide__ = True
    for key in given.keys() - RunOptions.__annotations__.keys():
        hint = suggest_key(key, RunOptions.__annotations__)
        if key in JobConf.model_fields:
            hint = f"It is a key of the job: train(job.replace({{{key!r}: {given[key]!r}}}))."  # type: ignore[literal-required]
        raise TypeError(f"train: unknown argument {key!r}. {hint}")
    run = start(job, **given)
    try:
        run.wait()
    except KeyboardInterrupt:
        run.stop()
        try:
            run.wait()
        except KeyboardInterrupt:
            run.stop()
            run.wait()
        # a new one: its traceback does not show where this thread waited
        raise KeyboardInterrupt(f"{run.url}: the job is {run.state} at step {run.summary.get('steps', 0)}.") from None
    return run


def _progress(conf: JobConf, run_url: str, is_shown: bool) -> Progress:
    """Return a progress for a notebook's cell, or for stderr."""
    n_groups, n_steps = conf.cluster.nworker_groups, conf.train_steps
    if is_shown and notebook_shell() is not None:
        return NotebookProgress(n_groups, n_steps, run_url)
    return start_progress(n_groups, n_steps, not is_shown, run_url=run_url)
