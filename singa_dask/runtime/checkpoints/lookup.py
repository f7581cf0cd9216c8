"""Find the checkpoint that a URL means, load its values and manifest, and delete old ones."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from singa_dask import fs
from singa_dask.conf import JobConf
from singa_dask.conf.watched import KeepConf, is_less_better
from singa_dask.data.codecs.scaling import Learned
from singa_dask.errors import CheckpointError, DataError, Mark, Problem, SingaError, UnusableCheckpointError
from singa_dask.runtime.checkpoints import singa_checkpoint
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint, step_url
from singa_dask.runtime.checkpoints.manifest import MANIFEST, NOBODY, Author, life_of
from singa_dask.runtime.checkpoints.singa_checkpoint import Stored

logger = logging.getLogger(__name__)

T = TypeVar("T")


def find(url: str) -> str:
    """Return the newest complete checkpoint at ``url``: a step, a checkpoint directory or a run directory.

    Every file of it is read and compared with its checksum. In place of a damaged one the next older good one is
    returned, with a warning, unless ``url`` names the step.

    Raises
    ------
    CheckpointError
        There is none, or none is good.
    """
    return _use_newest(url, _verified)


def _verified(checkpoint: Checkpoint) -> str:
    checkpoint.verify()
    return checkpoint.url


def find_unverified(url: str) -> str | None:
    """Return the newest checkpoint at ``url`` (see `find`) whose manifest is good; None if there is none."""
    for candidate in _candidates(url):
        with suppress(CheckpointError):
            return Checkpoint(candidate).url
    return None


def first_steps(checkpoint: str | None) -> dict[int, int]:
    """Return the first step of each worker group of a run that goes on from a checkpoint; empty without one."""
    if checkpoint is None:
        return {}
    found = Checkpoint(checkpoint)
    return {0: found.step} | {group: int(facts["step"]) for group, facts in found.groups.items()}


def has_checkpoints(url: str) -> bool:
    """Return whether there are complete checkpoints at ``url`` (see `find`), good or damaged."""
    return bool(_candidates(url))


def _candidates(url: str) -> list[str]:
    """Return the complete checkpoints at ``url``, the newest first."""
    if fs.exists(fs.join(url, MANIFEST)):
        return [url]
    steps = find_steps(url)
    return [steps[step] for step in sorted(steps, reverse=True)]


def _use_newest(url: str, use: Callable[[Checkpoint], T], restores_best: bool = False) -> T:
    """Return what a function makes of the newest checkpoint at ``url`` that it does not find damaged.

    With ``restores_best`` of the one that the newest of a run calls the best, if `_best_step` has any.

    Raises
    ------
    CheckpointError
        There is none, or all are damaged, or ``url`` names a step that is damaged, or one cannot be read just now.
    """
    candidates, problems = _candidates(url), []
    for candidate in candidates:
        best = -1
        try:
            checkpoint = Checkpoint(candidate)
            best = _best_step(checkpoint.manifest) if restores_best and candidate != url else -1
            if best in (-1, checkpoint.step):
                result = use(checkpoint)
            elif best in (steps := find_steps(url)):
                result = use(Checkpoint(steps[best]))
            else:
                raise CheckpointError(f"{url}: the checkpoint of step {best}, the best, is not there.")
        except CheckpointError as error:
            cause = error.__cause__
            unreadable = isinstance(cause, DataError) and not isinstance(cause.__cause__, FileNotFoundError)
            if unreadable or best >= 0:
                raise  # it is there but could not be read now, e.g. because a network is down
            problems.append(str(error))
            continue
        for problem in problems:
            logger.warning("%s Taking an older checkpoint instead: %s", problem, candidate)
        return result
    if not candidates:
        raise CheckpointError(
            f"{url}: no complete checkpoint here. Expected step-<n>/{MANIFEST}, or a run directory with checkpoint/."
        )
    if candidates == [url]:
        raise CheckpointError(f"{problems[0]} {_older_than(url)}")
    raise CheckpointError("\n".join([f"{url}: no checkpoint here is good.", *problems]))


def _older_than(url: str) -> str:
    """Return advice for somebody who has named a damaged step: the older ones that are good."""
    directory, _, name = url.rstrip("/").rpartition("/")
    match = re.fullmatch(r"step-(\d+)", name)
    steps = find_steps(directory or ".") if match else {}
    good = []
    for step, older in sorted(steps.items()):
        with suppress(CheckpointError):
            if match and step < int(match[1]):
                good.append(_verified(Checkpoint(older)))
    return f"Older ones that are good: {', '.join(good)}." if good else "No older one is good."


def find_steps(url: str) -> dict[int, str]:
    """Return the URLs of the complete checkpoints in a run directory or a checkpoint directory, by step."""
    steps = {}
    for directory in (url, fs.join(url, "checkpoint")):
        for name in fs.ls(directory) if fs.is_dir(directory) else ():
            match = re.fullmatch(r"step-(\d+)", name)
            if match and fs.exists(fs.join(directory, name, MANIFEST)):
                steps[int(match[1])] = fs.join(directory, name)
    return steps


def load_values(url: str, averaged: bool | None = None) -> dict[str, Stored]:
    """Return the values of all params at ``url``, by name; see `find_values`. A damaged one is replaced as by `find`.

    ``averaged``: their moving averages, as ``updater.ema_decay`` says; None takes the params without a word.

    Raises
    ------
    CheckpointError
        There is no checkpoint, or it is damaged; or it has no averages.
    """
    place = _place_of_values(url)
    if not _is_file(place):
        return _use_newest(place, partial(_values, averaged=averaged), restores_best=True)
    if averaged:
        raise _without_averages(place)
    return singa_checkpoint.read(place)


def _without_averages(url: str) -> CheckpointError:
    message = "it has no moving averages of params, which updater.ema_decay of the job asks for. Say ema_decay: 0."
    return CheckpointError(f"{url}: {message}")


def _is_file(url: str) -> bool:
    return fs.exists(url) and not fs.is_dir(url)


def _values(stored: Checkpoint, averaged: bool | None) -> dict[str, Stored]:
    if averaged and not stored.has_averages:
        raise _without_averages(stored.url)
    if averaged is False and stored.has_averages:
        message = "%s: the params are used, not their moving averages, as updater.ema_decay of the job is 0"
        logger.warning(message, stored.url)
    return {name: Stored(stored.values(name, bool(averaged)), stored.version(name)) for name in stored.params()}


def load_manifest(url: str) -> dict[str, Any]:
    """Return the manifest at ``url`` (see `find_values`), for `Learned.of`; empty for files of SINGA."""
    place = _place_of_values(url)
    return {} if _is_file(place) else _use_newest(place, lambda checkpoint: checkpoint.manifest, restores_best=True)


def find_values(url: str) -> str:
    """Return the URL of the checkpoint that a URL means: a step, or a file of SINGA.

    Parameters
    ----------
    url : str
        A step, a checkpoint directory, a run directory, or a workspace, also of SINGA: the newest checkpoint in it, or
        the best one, if ``early_stopping.restore_best`` says so.
        Or a file of SINGA, ``<workspace>/checkpoint/step<n>-worker<i>``; if it does not exist, step ``n`` of the newest
        run in this workspace.

    Raises
    ------
    CheckpointError
        There is none.
    """
    place = _place_of_values(url)
    return place if _is_file(place) else _use_newest(place, lambda checkpoint: checkpoint.url, restores_best=True)


def _place_of_values(url: str) -> str:
    """Return the file, step or run that a URL means; see `find_values`."""
    place = singa_checkpoint.parse(url)
    if place and not fs.exists(url):
        return _find_step(url, *place)
    if _is_file(url) or has_checkpoints(url):
        return url
    if files := singa_checkpoint.newest_files(url):
        return files[0]
    runs = {run: step for run in _runs(url) if (step := find_unverified(run))}
    jobs = {str(Checkpoint(step).manifest["job"]) for step in runs.values()}
    if len(jobs) > 1:
        raise CheckpointError(f"{url}: runs of several jobs ({', '.join(sorted(jobs))}). Say which run: {url}/<run>.")
    newest = _newest(runs.values()) if runs else ""
    return next((run for run, step in runs.items() if step == newest), url)


def _best_step(manifest: Mapping[str, Any]) -> int:
    """Return the step whose params are to be restored, -1 if they are the newest."""
    stopping = manifest.get("early_stopping", {})
    return int(stopping["best_step"]) if stopping.get("restore_best") else -1


def _runs(workspace: str) -> dict[str, dict[int, str]]:
    """Return the checkpoints of each run in a workspace, by the URL of the run."""
    names = fs.ls(workspace) if fs.is_dir(workspace) else []
    runs = (workspace, *(fs.join(workspace, name) for name in names))
    return {run: steps for run in runs if (steps := find_steps(run))}


def _newest(steps: Iterable[str]) -> str:
    def time_of(url: str) -> tuple[float, str]:
        try:
            return float(Checkpoint(url).manifest.get("time", 0)), url
        except CheckpointError:
            return 0.0, url

    return max(steps, key=time_of)


def _find_step(url: str, directory: str, step: int) -> str:
    """Return the checkpoint of a step for the path that SINGA gives to the file of a worker."""
    workspace = directory.removesuffix("/checkpoint") if directory != "checkpoint" else "."
    runs = _runs(workspace)
    if same_step := [steps[step] for steps in runs.values() if step in steps]:
        return _newest(same_step)
    others = sorted({each for steps in runs.values() for each in steps} | set(singa_checkpoint.steps(directory)))
    there = f"it has those of steps {', '.join(map(str, others))}" if others else "it has none"
    todo = f"Name one of these, or train for {step} steps first." if others else "Run the job of that workspace first."
    raise CheckpointError(
        f"{url}: not found. Expected this file, as SINGA writes it, or a checkpoint of step {step} by a run in the "
        f"workspace {workspace}: {there}. {todo}"
    )


class Retention:
    """Deletes old checkpoints of a run, as ``keep_checkpoints`` says.

    Parameters
    ----------
    directory : str
        URL of the directory with the ``step-<n>`` directories.
    conf : KeepConf, optional
        By default all that are complete are kept.
    restores_best : bool
        Keep the best by ``early_stopping`` as well.
    author : Author
        Who deletes them.
    """

    def __init__(
        self, directory: str, conf: KeepConf | None, restores_best: bool = False, author: Author = NOBODY
    ) -> None:
        self._directory = directory
        self._author = author
        self._restores_best = restores_best
        self._all = conf is None
        self._conf = conf = conf or KeepConf()
        self._sign = -1.0 if is_less_better(conf.metric, conf.mode) else 1.0
        # metric of each complete checkpoint that has been read: (value, step of its test)
        self._values: dict[int, tuple[float, int] | None] = {}

    def tidy(self, step: int, files: Collection[str], pending: Collection[int] = (), last: bool = False) -> None:
        """Delete older checkpoints that are not to be kept, now that the one of ``step``, with ``files``, is complete.

        What killed processes have left is deleted too: incomplete checkpoints, except those of ``pending`` steps, and
        other files in the directory of this one. Later ones stay, and so do files of newer lives. Unless it is the
        ``last`` of the job, the newest one before it stays, too: the job starts again from there if it loses processes
        before the scheduler knows of the new one. If that fails, log a warning and continue.
        """
        try:
            steps = [int(match[1]) for name in fs.ls(self._directory) if (match := re.fullmatch(r"step-(\d+)", name))]
            older = [other for other in steps if other < step and other not in pending]
            complete = [other for other in older if self._is_complete(other)]
            stays = set(complete if self._all else self._kept([*complete, step]))
            if self._restores_best:
                stays.add(_best_step(Checkpoint(step_url(self._directory, step)).manifest))
            stays.update(() if last else sorted(complete)[-1:])
            for other in set(older) - stays:
                self._delete(other)
            url = step_url(self._directory, step)
            for name in set(fs.ls(url)).difference(files, [MANIFEST]):
                if life_of(name) <= self._author.life:
                    self._author.check(url)
                    fs.remove_tree(fs.join(url, name))
        except (OSError, SingaError) as error:
            logger.warning("old checkpoints could not be deleted: %s", error)

    def _is_complete(self, step: int) -> bool:
        if step not in self._values:
            if not fs.exists(fs.join(step_url(self._directory, step), MANIFEST)):
                return False
            self._values[step] = self._value(step)
        return True

    def _value(self, step: int) -> tuple[float, int] | None:
        """Return the metric that decides of a checkpoint, and the step of its test; None if it has none."""
        metric = None
        if self._conf.best:
            with suppress(CheckpointError):
                manifest = Checkpoint(step_url(self._directory, step)).manifest
                metric = manifest.get("metrics", {}).get(self._conf.metric)
        return None if metric is None else (float(metric["value"]), int(metric["step"]))

    def _kept(self, steps: Collection[int]) -> set[int]:
        """Return the complete steps to keep: the newest and the best; among equals the oldest.

        Of several checkpoints with the value of the same test, only the first counts as best.
        """
        measured: dict[int, tuple[float, int]] = {}
        for step in sorted(steps):
            if step not in self._values:
                self._values[step] = self._value(step)
            if (metric := self._values[step]) is not None:
                measured.setdefault(metric[1], (-self._sign * metric[0], step))
        best = [step for _, step in sorted(measured.values())[: self._conf.best]]
        return {*sorted(steps)[-self._conf.last :], *best}

    def _delete(self, step: int) -> None:
        """Delete a checkpoint, the manifest first, so that it is incomplete from then on."""
        url = step_url(self._directory, step)
        self._author.check(url)
        fs.remove_tree(fs.join(url, MANIFEST))
        fs.remove_tree(url)
        self._values.pop(step, None)


# Initial values that a job takes from checkpoints.


class _Source(NamedTuple):
    """A checkpoint to read, and where the job or the command names it."""

    url: str
    path: tuple[str | int, ...]
    mark: Mark | None = None

    def problem(self, message: str) -> Problem:
        return Problem(self.path, message, self.mark)


class InitialValues:
    """Values of params by name, from several checkpoints. These are read on first use.

    Parameters
    ----------
    job : JobConf
    init_from : sequence of str
        URLs of checkpoints, instead of the job's ``checkpoint_path``. Later ones win.
    averaged : bool
        Take the moving averages of params, if the job keeps some.

    Attributes
    ----------
    urls : list of str
        URLs of the checkpoints, as given.
    """

    def __init__(self, job: JobConf, init_from: Sequence[str] = (), averaged: bool = False) -> None:
        self._averaged = job.updater.ema_decay > 0 if averaged else None
        self._sources = [_Source(url, (), Mark("--init-from")) for url in init_from] or [
            _Source(url, ("checkpoint_path", i)) for i, url in enumerate(job.checkpoint_path)
        ]
        self.urls = [source.url for source in self._sources]
        self._in_memory: dict[str, tuple[Stored, _Source]] = {}
        self._loaded: dict[str, tuple[Stored, _Source]] | None = None
        self._learned: Learned | None = None

    @classmethod
    def of(cls, values: Mapping[str, Stored], learned: Learned | None = None) -> InitialValues:
        """Return values that are in memory, by the names of their params, and what is known of the training data."""
        initial = cls.__new__(cls)
        initial._sources, initial.urls, initial._loaded, initial._learned = [], [], None, learned
        initial._averaged = None
        initial._in_memory = {name: (stored, _Source("values in memory", ())) for name, stored in values.items()}
        return initial

    def _load(self) -> dict[str, tuple[Stored, _Source]]:
        """Read all checkpoints; one error lists all that cannot be read."""
        if self._loaded is None:
            loaded = dict(self._in_memory)
            for source, params in self._read(partial(load_values, averaged=self._averaged)):
                loaded |= {name: (stored, source) for name, stored in params.items()}
            self._loaded = loaded
        return self._loaded

    def _read(self, reader: Callable[[str], T]) -> list[tuple[_Source, T]]:
        """Return the result of a function for each checkpoint."""
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
        """Release the memory of what has been read; it is read again when it is asked for."""
        self._loaded = None

    def learned(self) -> Learned:
        """Return what the checkpoints keep of the training data; files of SINGA have nothing.

        Raises
        ------
        UnusableCheckpointError
            A checkpoint cannot be read.
        """
        return self._learned or Learned.of(*(manifest for _, manifest in self._read(load_manifest)))

    def __contains__(self, name: object) -> bool:
        return name in self._load()

    def get(self, name: str, shape: tuple[int, ...]) -> tuple[np.ndarray[Any, Any], int]:
        """Return the values of a param in the shape that a net needs, and their version.

        Raises
        ------
        UnusableCheckpointError
            A checkpoint cannot be read, or has values of another shape.
        """
        stored, source = self._load()[name]
        values = stored.fit(shape)
        if values is None:
            has = f"{source.url} has {stored.show_shape()}, the net needs {shape}"
            raise UnusableCheckpointError(source.problem(f"param {name!r}: {has}."))
        return values, stored.version

    def check(self, shapes: Iterable[tuple[str, tuple[int, ...]]], *, complete: bool = False) -> None:
        """Check that the checkpoints fit a net with these params.

        Parameters
        ----------
        shapes : iterable of (str, tuple of int)
            Name and shape of each param.
        complete : bool
            Whether each param must be in a checkpoint.

        Raises
        ------
        UnusableCheckpointError
            A checkpoint cannot be read, or values have another shape, or no params match; lists all problems.
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
            why = f"no values of {', '.join(missing)}, which the net needs"
        elif self._sources and len(missing) == len(wanted):
            why = "none of its params is in the net"
        if why:
            message = f"{', '.join(self.urls)}: {why}. Known: {', '.join(sorted(loaded))}."
            problems.append(self._sources[-1].problem(message) if self._sources else Problem((), message))
        if problems:
            raise UnusableCheckpointError(problems)
