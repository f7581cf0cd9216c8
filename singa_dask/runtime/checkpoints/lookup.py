"""Find the checkpoint that a URL refers to, and load its values and manifest."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from singa_dask import fs
from singa_dask.errors import CheckpointError, DataError
from singa_dask.runtime.checkpoints import singa_checkpoint
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.manifest import MANIFEST
from singa_dask.runtime.checkpoints.singa_checkpoint import Stored

logger = logging.getLogger(__name__)


T = TypeVar("T")


def find(url: str) -> str:
    """Return the URL of the newest complete checkpoint at ``url`` whose files all match their checksums.

    A warning names each newer checkpoint that is damaged.

    Parameters
    ----------
    url : str
        A checkpoint directory or a run directory. If ``url`` is a single checkpoint, older checkpoints are not tried.

    Raises
    ------
    CheckpointError
        There is no complete checkpoint, or all of them are damaged.
    """
    return _use_newest(url, _verified)


def _verified(checkpoint: Checkpoint) -> str:
    checkpoint.verify()
    return checkpoint.url


def find_unverified(url: str) -> str | None:
    """Return the newest checkpoint at ``url`` whose manifest is readable, without verifying its files.

    Return None if there is no such checkpoint. See `find` for ``url``.
    """
    for candidate in _candidates(url):
        with suppress(CheckpointError):
            return Checkpoint(candidate).url
    return None


def first_steps(checkpoint: str | None) -> dict[int, int]:
    """Return the first step of each worker group that resumes from a checkpoint; empty for None."""
    if checkpoint is None:
        return {}
    found = Checkpoint(checkpoint)
    return {0: found.step} | {group: int(facts["step"]) for group, facts in found.groups.items()}


def has_checkpoints(url: str) -> bool:
    """Return whether ``url`` (see `find`) has complete checkpoints, even if their files are damaged."""
    return bool(_candidates(url))


def _candidates(url: str) -> list[str]:
    """Return the complete checkpoints at ``url``, newest first."""
    if fs.exists(fs.join(url, MANIFEST)):
        return [url]
    steps = find_steps(url)
    return [steps[step] for step in sorted(steps, reverse=True)]


def _use_newest(url: str, use: Callable[[Checkpoint], T], restores_best: bool = False) -> T:
    """Return ``use(checkpoint)`` for the newest undamaged checkpoint at ``url``.

    A checkpoint counts as damaged if ``use`` raises a `CheckpointError`. With ``restores_best``, if the manifest of the
    newest checkpoint names a best step, the checkpoint of that step is used; see `best_step`.
    """
    candidates, problems = _candidates(url), []
    for candidate in candidates:
        best = -1
        try:
            checkpoint = Checkpoint(candidate)
            best = best_step(checkpoint.manifest) if restores_best and candidate != url else -1
            if best in (-1, checkpoint.step):
                result = use(checkpoint)
            elif best in (steps := find_steps(url)):
                result = use(Checkpoint(steps[best]))
            else:
                raise CheckpointError(f"{url}: the best checkpoint, of step {best}, is not there.")
        except CheckpointError as error:
            cause = error.__cause__
            unreadable = isinstance(cause, DataError) and not isinstance(cause.__cause__, FileNotFoundError)
            if unreadable or best >= 0:
                raise  # no older checkpoint: this checkpoint may be readable later, e.g. when a network is up again
            problems.append(str(error))
            continue
        for problem in problems:
            logger.warning("%s Using an older checkpoint instead: %s", problem, candidate)
        return result
    if not candidates:
        if not fs.exists(url):
            raise CheckpointError(str(fs.no_file(url)))
        raise CheckpointError(
            f"{url}: no complete checkpoint here. Expected step-<n>/{MANIFEST}, or a run directory with checkpoint/."
        )
    if candidates == [url]:
        raise CheckpointError(f"{problems[0]} {_older_than(url)}")
    raise CheckpointError("\n".join([f"{url}: no checkpoint here is usable.", *problems]))


def _older_than(url: str) -> str:
    """Return advice for a user who has named a damaged checkpoint: the URLs of older, usable checkpoints."""
    directory, _, name = url.rstrip("/").rpartition("/")
    match = re.fullmatch(r"step-(\d+)", name)
    steps = find_steps(directory or ".") if match else {}
    good = []
    for step, older in sorted(steps.items()):
        with suppress(CheckpointError):
            if match and step < int(match[1]):
                good.append(_verified(Checkpoint(older)))
    return f"Usable older checkpoints: {', '.join(good)}." if good else "No older checkpoint is usable."


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
    """Return the values of all params at ``url``, by name; see `find_values` for ``url``.

    Parameters
    ----------
    averaged : bool or None
        True returns moving averages of the params, and requires that the checkpoint has them. False returns the params,
        and warns if the checkpoint has moving averages. None returns the params without a warning.

    Raises
    ------
    CheckpointError
        There is no readable checkpoint, or it lacks moving averages.
    """
    place = _resolve(url)
    if not _is_file(place):
        return _use_newest(place, partial(_values, averaged=averaged), restores_best=True)
    if place.lower().endswith((".npz", ".pt", ".pth", ".safetensors")):
        raise CheckpointError(
            f"{place}: this is a file of weights, not a checkpoint. Convert it with singa-dask import."
        )
    if averaged:
        raise _without_averages(place)
    return singa_checkpoint.read(place)


def _without_averages(url: str) -> CheckpointError:
    message = "it has no moving averages of params, which updater.ema_decay of the job asks for. Set ema_decay: 0."
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
    """Return the manifest of the checkpoint at ``url`` (see `find_values`); empty for a SINGA checkpoint."""
    place = _resolve(url)
    return {} if _is_file(place) else _use_newest(place, lambda checkpoint: checkpoint.manifest, restores_best=True)


def find_values(url: str) -> str:
    """Resolve a URL to the URL of a checkpoint, or of a checkpoint file of SINGA.

    Parameters
    ----------
    url : str
        One of these:

        - A checkpoint.
        - A checkpoint directory, a run directory or a workspace, also of SINGA. The result is its newest checkpoint, or
          its best checkpoint if ``early_stopping.restore_best`` is set.
        - A file of SINGA, ``<workspace>/checkpoint/step<n>-worker<i>``. If the file does not exist, the result is the
          checkpoint of step ``n`` of the newest run in this workspace.

    Raises
    ------
    CheckpointError
        There is no checkpoint.
    """
    place = _resolve(url)
    return place if _is_file(place) else _use_newest(place, lambda checkpoint: checkpoint.url, restores_best=True)


def _resolve(url: str) -> str:
    """Return the checkpoint, file or run that a URL refers to; see `find_values`."""
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
        names = ", ".join(sorted(jobs))
        raise CheckpointError(f"{url}: it has runs of several jobs ({names}). Name a run: {url}/<run>.")
    newest = _newest(runs.values()) if runs else ""
    return next((run for run, step in runs.items() if step == newest), url)


def best_step(manifest: Mapping[str, Any]) -> int:
    """Return the step of the best checkpoint; -1 if ``restore_best`` is not set in the manifest."""
    stopping = manifest.get("early_stopping", {})
    return int(stopping["best_step"]) if stopping.get("restore_best") else -1


def _runs(workspace: str) -> dict[str, dict[int, str]]:
    """Return the complete checkpoints of each run in a workspace: {URL of the run: {step: URL}}."""
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
    """Return the checkpoint of a step in a workspace, for the URL of a SINGA file that does not exist."""
    workspace = directory.removesuffix("/checkpoint") if directory != "checkpoint" else "."
    runs = _runs(workspace)
    if same_step := [steps[step] for steps in runs.values() if step in steps]:
        return _newest(same_step)
    others = sorted({each for steps in runs.values() for each in steps} | set(singa_checkpoint.steps(directory)))
    there = f"steps {', '.join(map(str, others))} are there" if others else "there is no checkpoint"
    todo = f"Name one of them, or train for {step} steps first." if others else "Run the job of that workspace first."
    raise CheckpointError(
        f"{url}: not found. Expected this file, as SINGA writes it, or a checkpoint of step {step} by a run in the "
        f"workspace {workspace}: {there}. {todo}"
    )
