"""InitialValues: initial values of a job's params, read from checkpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from singa_dask.conf import JobConf
from singa_dask.data.stores.training_knowledge import Learned
from singa_dask.errors import CheckpointError, DataError, Mark, Problem, UnusableCheckpointError
from singa_dask.runtime.checkpoints.lookup import T, load_manifest, load_values
from singa_dask.runtime.checkpoints.singa_checkpoint import Stored

# names of the jobs of scikit-learn estimators, and a pattern for the names of their params
ESTIMATORS, ESTIMATED = ("classifier", "regressor"), re.compile(r"(fc\d+|out)\.(weight|bias)")


class _Source(NamedTuple):
    """A checkpoint to read, and where the job file or the command names it."""

    url: str
    path: tuple[str | int, ...]
    mark: Mark | None = None

    def problem(self, message: str) -> Problem:
        return Problem(self.path, message, self.mark)


class InitialValues:
    """Initial values of params, by name, from checkpoints. The checkpoints are read on first use.

    Parameters
    ----------
    init_from : sequence of str
        URLs of checkpoints, instead of the job's ``checkpoint_path``. If several checkpoints contain a param, the
        values come from the last of them.
    averaged : bool
        Whether to use the moving averages of params, if the job has ``updater.ema_decay``.

    Attributes
    ----------
    urls : list of str
        URLs of the checkpoints.
    """

    def __init__(self, job: JobConf, init_from: Sequence[str] = (), averaged: bool = False) -> None:
        self._averaged, self._job_name = job.updater.ema_decay > 0 if averaged else None, job.name
        self._sources = [_Source(url, (), Mark("--init-from")) for url in init_from] or [
            _Source(url, ("checkpoint_path", i)) for i, url in enumerate(job.checkpoint_path)
        ]
        self.urls = [source.url for source in self._sources]
        self._in_memory: dict[str, tuple[Stored, _Source]] = {}
        self._loaded: dict[str, tuple[Stored, _Source]] | None = None
        self._learned: Learned | None = None

    @classmethod
    def of(cls, values: Mapping[str, Stored], learned: Learned | None = None) -> InitialValues:
        """Return an `InitialValues` with values from memory instead of checkpoints.

        Parameters
        ----------
        values : mapping of str to Stored
            Values of each param, by name.
        learned : Learned, optional
            Facts about the data on which these values were trained, e.g. class names.
        """
        initial = cls.__new__(cls)
        initial._sources, initial.urls, initial._loaded, initial._learned = [], [], None, learned
        initial._averaged, initial._job_name = None, ""
        initial._in_memory = {name: (stored, _Source("values in memory", ())) for name, stored in values.items()}
        return initial

    def _load(self) -> dict[str, tuple[Stored, _Source]]:
        """Read all checkpoints if they are not loaded yet.

        One error lists all checkpoints that cannot be read.
        """
        if self._loaded is None:
            loaded = dict(self._in_memory)
            for source, params in self._read(partial(load_values, averaged=self._averaged)):
                loaded |= {name: (stored, source) for name, stored in params.items()}
            self._loaded = loaded
        return self._loaded

    def _read(self, reader: Callable[[str], T]) -> list[tuple[_Source, T]]:
        """Call ``reader`` with the URL of each checkpoint; return the results."""
        results, problems = [], []
        for source in self._sources:
            try:
                results.append((source, reader(source.url)))
            except (CheckpointError, DataError) as error:
                problems.append(source.problem(str(error)))
        if problems:
            raise UnusableCheckpointError(problems)
        return results

    def release(self) -> None:
        """Free the memory of the values. Later calls read the values again."""
        self._loaded = None

    def learned(self) -> Learned:
        """Return the facts about the training data in the checkpoints, e.g. class names.

        Raises
        ------
        UnusableCheckpointError
            A checkpoint cannot be read.
        """
        return self._learned or Learned.of(*self._manifests())

    def learned_to_predict(self) -> Learned:
        """Return the result of `learned` after checking that a job can predict with the checkpoints.

        Raises
        ------
        UnusableCheckpointError
            Only the fitted estimator can predict, because it encodes or scales records before its net reads them.
        """
        learned, where = self.learned(), ", ".join(self.urls)
        if learned.encodings:
            raise UnusableCheckpointError(f"{where}: {predicts_only(learned.encodings)}")
        if self._job_name in ESTIMATORS and not learned.scalings and any(map(_lacks_scaling, self._manifests())):
            raise UnusableCheckpointError(
                f"{where}: an estimator of an earlier version trained this net; the run lacks the scaling of X and y. "
                "Predict with the fitted estimator, or fit again. If X is already scaled, or the job is your own, "
                f"give the job another name, such as --set name=my-{self._job_name}."
            )
        return learned

    @property
    def has_params(self) -> bool:
        """Whether any checkpoint has values of params.

        A checkpoint that only describes how an estimator encodes its records has no params. If a checkpoint cannot be
        read, the result is True, and `check` reports the error.
        """
        try:
            return any(not manifest or manifest["params"] for _, manifest in self._read(load_manifest))
        except UnusableCheckpointError:
            return True

    def encodings(self) -> dict[str, str]:
        """Return how an estimator encodes its records, as its checkpoint without params describes."""
        return Learned.of(*(each for each in self._manifests() if each and not each["params"])).encodings

    def _manifests(self) -> list[dict[str, Any]]:
        return [manifest for _, manifest in self._read(load_manifest)]

    def __contains__(self, name: object) -> bool:
        return name in self._load()

    def get(self, name: str, shape: tuple[int, ...]) -> tuple[np.ndarray[Any, Any], int]:
        """Return the values of a param in the given shape, and the number of updates applied to them.

        Raises
        ------
        KeyError
            No checkpoint contains the param.
        UnusableCheckpointError
            The values do not fit the shape.
        """
        stored, source = self._load()[name]
        values = stored.fit(shape)
        if values is None:
            has = f"{source.url} has {stored.show_shape()}, but the net needs {shape}"
            raise UnusableCheckpointError(source.problem(f"param {name!r}: {has}."))
        return values, stored.version

    def check(self, shapes: Iterable[tuple[str, tuple[int, ...]]], *, complete: bool = False) -> None:
        """Check that the checkpoints fit a net with these params.

        Parameters
        ----------
        shapes : iterable of (str, tuple of int)
            Name and shape of each param.
        complete : bool
            Whether the checkpoints must contain all params. By default, one matching param is enough.

        Raises
        ------
        UnusableCheckpointError
            A checkpoint cannot be read, values have another shape, or no param matches. The error lists all problems.
        """
        wanted, loaded = dict(shapes), self._load()
        problems: list[Problem] = []
        for name, shape in wanted.items():
            try:
                if name in loaded:
                    self.get(name, shape)
            except UnusableCheckpointError as error:
                problems += error.problems
        missing = [name for name in wanted if name not in loaded]
        why = ""
        if complete and missing:
            why = f"there are no values of {', '.join(missing)}, which the net needs"
        elif loaded and len(missing) == len(wanted):
            why = "none of its params is in the net"
        if why:
            message = f"{', '.join(self.urls)}: {why}. Known: {', '.join(sorted(loaded))}."
            problems.append(self._sources[-1].problem(message) if self._sources else Problem((), message))
        if problems:
            raise UnusableCheckpointError(problems)


def _lacks_scaling(manifest: Mapping[str, Any]) -> bool:
    """Return whether an estimator of an earlier version, which scaled X itself, probably wrote this."""
    is_named = manifest.get("job") in ESTIMATORS and not (manifest.get("tables") or manifest.get("class_names"))
    params = manifest.get("params", {})
    return is_named and "out.weight" in params and all(map(ESTIMATED.fullmatch, params))


def predicts_only(encodings: Mapping[str, str]) -> str:
    """Return an error message with advice: only the estimator can predict with its net."""
    return (
        f"the net of an estimator that {' and '.join(encodings.values())}. The run has only the net. Predict with the "
        "fitted estimator instead: save it with pickle or joblib."
    )
