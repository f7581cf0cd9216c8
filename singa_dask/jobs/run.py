"""Run: a run of a job, during and after its training."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

from singa_dask import fs
from singa_dask.errors import ClusterError, ConfigError, LostUnitError, NumericError, SingaError, UnitError
from singa_dask.jobs.pages import run_page
from singa_dask.lazy import require
from singa_dask.observe.files.run_facts import facts_of
from singa_dask.observe.files.stored_run import StoredRun
from singa_dask.observe.pictures.curves import panels_of
from singa_dask.observe.pictures.figure import figure_of
from singa_dask.redaction import redact
from singa_dask.runtime import Driver, Result
from singa_dask.runtime.job.names import RUN_STOP

ERRORS: dict[int, type[SingaError]] = {
    each.exit_code: each for each in (UnitError, ConfigError, ClusterError, LostUnitError, NumericError)
}


class Training:
    """The thread that runs a job to its end.

    ``carry_out`` is the function that runs the job. Its argument is this object. It calls `take_driver`, and sets
    ``has_begun`` when the job starts. ``ended`` is a future with the result.
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
        """Set the driver, which `stop` uses to stop the job."""
        with self._lock:
            self._driver = driver
            for by in self._stops:
                driver.stop(by)

    def stop(self, by: str) -> None:
        """Stop the job with a checkpoint; a second call aborts it. ``by`` is the reason to report."""
        with self._lock:
            self._stops.append(by)
            if self._driver is not None:
                self._driver.stop(by)


class Run:
    """A run of a job: its state, metrics and logs, read from its run directory.

    Parameters
    ----------
    url : str
        URL of the run directory.
    training : Training, optional
        The thread of the run, if this process has started it.
    """

    def __init__(self, url: str, training: Training | None = None) -> None:
        self.url = url
        self._training = training

    @property
    def state(self) -> str:
        """State of the run: ``running``, ``done``, ``stopped``, ``failed`` or ``lost``.

        The state is ``lost`` if the run has no summary and no process writes to its directory.
        """
        if self._training is None:
            return self._stored().state
        if not self._training.ended.done():
            return "running"
        return "failed" if self._training.ended.exception() else self._training.ended.result().state

    @property
    def summary(self) -> dict[str, Any]:
        """Content of ``summary.json``; empty while the job runs."""
        return self._stored().summary

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Latest metrics of each phase with their step, from the first worker group.

        Training metrics exist only if the job sets ``disp_freq``.
        """
        metrics: dict[str, dict[str, Any]] = facts_of(self._stored())["metrics"]
        return metrics

    @property
    def history(self) -> Any:
        """All metrics as a pandas DataFrame, with a row for each report of metrics.

        The columns are ``step``, ``phase``, ``group``, ``time`` (seconds since 1970), ``epoch``, ``lr``,
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
        """Wait until the run ends. This process must have started it.

        Parameters
        ----------
        timeout : float, optional
            Maximum time to wait, in seconds.

        Returns
        -------
        Result or None
            The result; None after a timeout.

        Raises
        ------
        SingaError
            The job failed. The class of the error shows the cause: `UnitError`, `NumericError`, `LostUnitError`,
            `ClusterError` or another subclass.
        ConfigError
            The run was not started by this process.
        """
        training = self._training
        if training is None:
            state = self.state
            advice = "Its metrics are in run.metrics" if state == "running" else "Its result is in run.summary"
            raise ConfigError(f"{self.url}: this run was not started here, and is {state}. {advice}.")
        if not futures.wait([training.ended], timeout).done:
            return None
        result = training.ended.result()
        if result.state == "failed":
            raise ERRORS.get(result.exit_code, UnitError)(f"{result.reason}\n{result.error}".rstrip())
        return result

    def stop(self) -> None:
        """Stop the job with a checkpoint; a second call aborts it.

        The method returns before the job has ended.

        Raises
        ------
        ConfigError
            The run was not started by this process.
        """
        self._stop(RUN_STOP)

    def _stop(self, by: str) -> None:
        if self._training is None:
            raise ConfigError(f"{self.url}: this run was not started here. Use singa-dask stop.")
        self._training.stop(by)

    def logs(self, unit: str = "") -> str:
        """Return the log of a unit such as ``worker-0-0``; by default the logs of all units.

        In the logs of all units, each line begins with the name of the unit.

        Raises
        ------
        ConfigError
            The unit has no log.
        """
        folder = fs.join(self.url, "log")
        names = [name.removesuffix(".log") for name in fs.ls(folder)] if fs.exists(folder) else []
        if unit and unit not in names:
            raise ConfigError(
                f"{self.url}: there is no log of {unit!r}. There are logs of: {', '.join(names) or 'none'}."
            )
        contents = {name: fs.read_bytes(fs.join(folder, f"{name}.log")) for name in ([unit] if unit else names)}
        texts = {name: content.decode(errors="replace") for name, content in contents.items()}
        if unit:
            return texts[unit]
        return "".join(f"{name}: {line}\n" for name, text in texts.items() for line in text.splitlines())

    def plot(self, axis: str = "step") -> Any:
        """Return a matplotlib figure with the curves of the run.

        Parameters
        ----------
        axis : str
            The x axis: ``"step"``, ``"epoch"``, ``"time"`` or ``"samples"``.

        Raises
        ------
        ConfigError
            matplotlib is not installed, or there are no metrics yet.
        """
        run = self._stored()
        panels = panels_of([run], axis)
        if not panels:
            raise ConfigError(
                f"{self.url}: there are no metrics yet. They are written every disp_freq and test_freq steps."
            )
        return figure_of(panels, [run.name], axis)

    def _stored(self) -> StoredRun:
        return StoredRun(self.url)

    def __repr__(self) -> str:
        return f"<Run {redact(self.url)}: {self.state}>"

    def __fspath__(self) -> str:
        """Return `url`, so that a run can be passed in place of the URL of its directory."""
        return self.url

    def _repr_html_(self) -> str:
        return run_page({**facts_of(self._stored()), "state": self.state})


# a run, the URL of its run directory, or the URL of one of its checkpoints
AnyRun = str | os.PathLike[str]


def urls_of(runs: AnyRun | Sequence[AnyRun]) -> tuple[str, ...]:
    """Return the URLs of one or more runs or checkpoints."""
    return tuple(os.fspath(run) for run in ([runs] if isinstance(runs, (str, os.PathLike)) else runs))


def open_run(url: AnyRun) -> Run:
    """Open a run that was started earlier or by another process.

    Parameters
    ----------
    url : str or path
        URL of the run directory.

    Raises
    ------
    ConfigError
        There is no run at this URL.
    """
    return Run(StoredRun(os.fspath(url)).url)
