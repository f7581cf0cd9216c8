"""Run: a run of a job, while it goes on and afterwards; `start` and `train` begin one, and `find_rate` a short one."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from distributed import Client

from singa_dask import fs
from singa_dask.conf import JobConf
from singa_dask.conf.names import suggest_key
from singa_dask.conf.yaml_text import read_plain
from singa_dask.errors import ClusterError, ConfigError, LostUnitError, NumericError, SingaError, UnitError
from singa_dask.jobs.datasets.binding import check_data, fit_to_data
from singa_dask.jobs.datasets.hosts import local_parts, placed
from singa_dask.jobs.datasets.making import as_datasets
from singa_dask.jobs.job import Job, as_job, check, complete, warnings_on
from singa_dask.jobs.pages import run_page
from singa_dask.jobs.preparing import changes_of, check_client, cluster_of, prepare_run
from singa_dask.lazy import require
from singa_dask.observe import start_progress
from singa_dask.observe.figure import Panel, PlottedCurve, figure_of, panels_of
from singa_dask.observe.progress import layer_metrics
from singa_dask.observe.stored_run import StoredRun, facts_of
from singa_dask.redaction import redact
from singa_dask.runtime import Driver, Result, plan_processes
from singa_dask.runtime.job.cluster import check_processes
from singa_dask.runtime.job.names import RUN_STOP

if TYPE_CHECKING:
    from typing import Unpack


# find_rate: a learning rate for a job, from a short run in which the rate rises.


MIN_STEPS = 20
LEFT_OUT = ("checkpoint_freq", "checkpoint_after", "disp_", "test_", "validate_")
"""With what the keys begin that the short run does without, and others of them."""
OTHERS = ("cluster", "early_stopping", "epochs", "keep_checkpoints", "metrics", "mlflow", "profile", "tensorboard")


@dataclass(frozen=True)
class RateCurve:
    """The loss of a job over its learning rate, and the rate to take.

    Attributes
    ----------
    rates, losses, smoothed : ndarray, 1-D float64
        Of each step: the rate that it was done with, the loss before it, and the exponential mean of the losses so far.
    rate : float
        The proposal: a quarter of the rate at which the smoothed loss is least.
    """

    rates: np.ndarray
    losses: np.ndarray
    smoothed: np.ndarray
    rate: float

    def panels(self) -> list[Panel]:
        """Return the picture, for `singa_dask.observe`."""
        raw = np.minimum(self.losses, self.smoothed.max())  # so that the smoothed ones are seen
        curves = [PlottedCurve(0, "train", self.rates, raw, 0), PlottedCurve(0, "train", self.rates, self.smoothed)]
        return [Panel("loss", curves, mark=self.rate)]

    def plot(self) -> Any:
        """Return a figure of matplotlib: the losses, smoothed, and the proposal."""
        return figure_of(self.panels(), [f"base_lr = {self.rate:g}"], "rate")


def find_rate(
    job: Job | str | os.PathLike[str],
    *,
    low: float = 1e-6,
    high: float = 10.0,
    steps: int = 100,
    data: Any = None,
    client: Client | str | None = None,
) -> RateCurve:
    """Propose a ``base_lr`` for a job, by the range test of Smith (2017): some steps in which the learning rate rises.

    One worker trains, whatever the ``cluster`` block of the job, so that one job has one answer. The rate rises by the
    same factor in each step. The proposal is a quarter of the rate where the smoothed loss is least.

    Parameters
    ----------
    job : Job or path
        Its schedule and ``base_lr`` do not count.
    low, high : float
        First and last rate.
    steps : int
        At most; a smoothed loss of four times its least value, or one that is not finite, ends the curve.
    data, client
        As `singa_dask.train` takes them; by default this process trains.

    Raises
    ------
    ConfigError, CheckpointError, DataError
        The job is wrong; or its loss does not fall, or falls up to the highest rate.
    """
    if not (0 < low < high and steps >= MIN_STEPS):
        wrong = f"got {low:g}, {high:g} and {steps} steps"
        raise ConfigError(f"expected 0 < low < high, and at least {MIN_STEPS} steps, {wrong}.")
    job = as_job(job)
    check(complete(job.file))  # with the places in the job's own file
    rates = np.geomspace(low, high, steps)
    keys: dict[str, Any] = read_plain(job.to_yaml(), "job")
    values = {key: value for key, value in keys.items() if key not in OTHERS and not key.startswith(LEFT_OUT)}
    schedule = {"type": "FixedStep", "fixedstep_conf": {"step": list(range(steps)), "step_lr": rates.tolist()}}
    values |= {"updater": {**keys["updater"], "learning_rate": schedule}, "train_steps": steps, "disp_freq": 1}
    rising = Job(values.pop("neuralnet"), **values)
    with tempfile.TemporaryDirectory(prefix="find-rate-") as url:
        with warnings.catch_warnings(), contextlib.suppress(NumericError):
            warnings.simplefilter("ignore")  # of what this run leaves out
            train(rising, data=data, client=client, run_dir=url, progress=False)
        events = [layer_metrics(event) for event in StoredRun(url).metrics]
    parts = [[value for name, value in each.items() if name.endswith(("loss", "error"))] for each in events]
    losses = [math.nan if None in each else sum(each) for each in parts]
    return curve_of(rates[: len(losses)], losses, is_whole=len(losses) == steps)


def curve_of(rates: np.ndarray, losses: list[float], is_whole: bool) -> RateCurve:
    """Smooth losses, cut them off where they explode, and choose a rate.

    Raises
    ------
    ConfigError
        The loss does not fall, or does so to the end of a curve that is whole.
    """
    total, weights, smoothed = 0.0, 0.0, list[float]()
    for loss in losses:
        total, weights = 0.9 * total + loss, 0.9 * weights + 1
        if smoothed and not total / weights <= 4 * min(smoothed):
            break
        smoothed.append(total / weights)
    y, n = np.array(smoothed), len(smoothed)
    if not n or not y.min() < 0.98 * losses[0]:
        hint = "Does each label belong to its record? Large values may need store_conf: {standardise: true}."
        raise ConfigError(f"the loss falls at none of the rates. {hint}")
    least = int(y.argmin())
    if is_whole and least == len(losses) - 1:
        raise ConfigError(f"the loss still falls at the highest rate, {rates[least]:g}. Give a higher one.")
    return RateCurve(rates[:n], np.array(losses[:n]), y, float(f"{rates[least] / 4:.2g}"))


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
        self._stops: list[str] = []
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
            for by in self._stops:
                driver.stop(by)

    def stop(self, by: str) -> None:
        """Stop the job with a checkpoint; the second time, end it at once. ``by``: what is named as the reason."""
        with self._lock:
            self._stops.append(by)
            if self._driver is not None:
                self._driver.stop(by)


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
        self._stop(RUN_STOP)

    def _stop(self, by: str) -> None:
        if self._training is None:
            raise ConfigError(f"{self.url}: this run was not started here. Stop it by singa-dask stop.")
        self._training.stop(by)

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
        contents = {name: fs.read_bytes(fs.join(folder, f"{name}.log")) for name in ([unit] if unit else names)}
        texts = {name: content.decode(errors="replace") for name, content in contents.items()}
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
    job: Job | str | os.PathLike[str],
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
    job : Job or path
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
        Takes each event of the job, a dict, in another thread: metrics, checkpoints, warnings, restarts. An error of it
        stops the job with a checkpoint, and is raised at the end.

    Raises
    ------
    ConfigError, CheckpointError, DataError
        The job is wrong; nothing was started.
    ClusterError
        It does not fit the cluster.
    """
    job = as_job(job)
    check_client(client, "sd.train, job")
    checkpoints = (init_from,) if isinstance(init_from, str) else tuple(init_from)
    elsewhere = client is not None
    if resume and checkpoints:
        raise ConfigError("resume takes all from one checkpoint, and init_from only values. Give one of them.")
    if overwrite and (resume or not run_dir):
        raise ConfigError("overwrite replaces the run in run_dir. Give that, and no resume.")
    if queue and not elsewhere:
        raise ConfigError("queue needs a cluster that is there without this program. Give its client.")
    if not elsewhere and len(plan_processes(job.conf.cluster).processes) > 1:
        check_processes()
    datasets = as_datasets(data, client)
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
    reporter = start_progress(conf.cluster.nworker_groups, conf.train_steps, not progress, run_url=run.run_url)
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
        training.stop("SIGINT")
        raise
    if training.ended.done():
        training.ended.result()  # raises the error of a job that could not be started
    return Run(run.run_url, training)


def train(job: Job | str | os.PathLike[str], **given: Unpack[RunOptions]) -> Run:
    """Train a job to its end; Ctrl-C or a notebook's stop button stops it with a checkpoint, and once more at once.

    Parameters
    ----------
    job : Job or path
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
        run._stop("SIGINT")
        try:
            run.wait()
        except KeyboardInterrupt:
            run._stop("SIGINT")
            run.wait()
        # a new one: its traceback does not show where this thread waited
        raise KeyboardInterrupt(f"{run.url}: the job is {run.state} at step {run.summary.get('steps', 0)}.") from None
    return run
