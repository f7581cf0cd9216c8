"""Observers: pass the events of a run to TensorBoard and MLflow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from singa_dask.errors import ConfigError, Problem, TakenOverError
from singa_dask.observe.programs.mlflow_run import MlflowRun
from singa_dask.observe.programs.tensorboard_files import TensorboardFiles

logger = logging.getLogger(__name__)

Observer = TensorboardFiles | MlflowRun
"""An observer gets each event of a run after `RunDirectory` has recorded it. The first event that an observer gets may
be of any kind."""


class Observers:
    """The observers of a run. If an observer fails, it is dropped with a warning, and the job continues.

    Use the object in a ``with`` block around the block of the `RunDirectory`. For each event, call ``on_event`` of the
    directory first.
    """

    def __init__(self, observers: list[Observer]) -> None:
        self._observers = observers

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Pass an event to all observers."""
        for observer in list(self._observers):
            self._try(observer, partial(observer.on_event, event))

    def close(self, taken_over: bool = False) -> None:
        """Close all observers.

        If another process has taken over the run, its observers send the remaining data.
        """
        for observer in list(self._observers):
            self._try(observer, partial(observer.close, taken_over))
        self._observers.clear()

    def _try(self, observer: Observer, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # errors of other packages, which may be of any type, must not end the job
            logger.warning("%s: %s: %s. The job continues without it.", observer.name, type(error).__name__, error)
            self._observers.remove(observer)

    def __enter__(self) -> Observers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.close(taken_over=kind is not None and issubclass(kind, TakenOverError))


def open_observers(run_url: str, tensorboard: bool = False, mlflow: str = "") -> Observers:
    """Return the observers of a run, which write nothing before the first event.

    Raises
    ------
    ConfigError
        A package is not installed. The error names the keys of the job that need it.
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
