"""Observers: pass what a run directory records on to TensorBoard and MLflow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from singa_dask.errors import ConfigError, Problem
from singa_dask.observe.mlflow_run import MlflowRun
from singa_dask.observe.tensorboard_files import TensorboardFiles

logger = logging.getLogger(__name__)


class Observer(Protocol):
    """Takes the events of a run after its `RunDirectory` has recorded them.

    It reads from the run directory what it has missed, so that it may begin at any event, and passes nothing on twice.
    """

    name: str

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Take an event; it may have been taken before."""

    def close(self) -> None:
        """End after the last event; the run directory has everything now."""


class Observers:
    """The observers of a run. One that fails is dropped with a warning, and the job goes on.

    Use it in a ``with`` block around that of the `RunDirectory`; ``on_event`` is called after that of the directory.

    Parameters
    ----------
    observers : list of Observer
    """

    def __init__(self, observers: list[Observer]) -> None:
        self._observers = observers

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Pass an event on."""
        for observer in list(self._observers):
            self._try(observer, lambda observer=observer: observer.on_event(event))  # type: ignore[misc]

    def close(self) -> None:
        """End all observers."""
        for observer in list(self._observers):
            self._try(observer, observer.close)
        self._observers.clear()

    def _try(self, observer: Observer, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # whatever a package of others raises: it must not end the job
            logger.warning("%s: %s: %s. The job goes on without it.", observer.name, type(error).__name__, error)
            self._observers.remove(observer)

    def __enter__(self) -> Observers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_observers(run_url: str, tensorboard: bool = False, mlflow: str = "") -> Observers:
    """Return the observers of a run; nothing is written before the first event.

    Parameters
    ----------
    run_url : str
        Run directory.
    tensorboard : bool
        Write event files of TensorBoard.
    mlflow : str
        URI of an MLflow server; empty for none.

    Raises
    ------
    ConfigError
        A package is missing; with the key of the job that needs it.
    """
    observers: list[Observer] = []
    problems = []
    for key, wanted, make in (
        ("tensorboard", tensorboard, lambda: TensorboardFiles(run_url)),
        ("mlflow", bool(mlflow), lambda: MlflowRun(run_url, mlflow)),
    ):
        try:
            observers += [make()] if wanted else []
        except ConfigError as error:
            problems.append(Problem((key,), str(error)))
    if problems:
        raise ConfigError(problems)
    return Observers(observers)
