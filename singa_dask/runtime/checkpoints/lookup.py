"""Find the checkpoint that a URL means, and load its values and class names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from singa_dask.data import fs
from singa_dask.errors import CheckpointError
from singa_dask.runtime.checkpoints import singa_checkpoint
from singa_dask.runtime.checkpoints.checkpoint import MANIFEST, Checkpoint
from singa_dask.runtime.checkpoints.singa_checkpoint import Stored

__all__ = ["find", "find_values", "load_class_names", "load_values"]


def find(url: str) -> str:
    """Return the newest complete checkpoint at ``url``: a step, a checkpoint directory or a run directory.

    Raises
    ------
    CheckpointError
        There is none.
    """
    if fs.exists(fs.join(url, MANIFEST)):
        return url
    found = _steps(url)
    if not found:
        raise CheckpointError(
            f"{url}: no complete checkpoint here. Expected step-<n>/{MANIFEST}, or a run directory with checkpoint/."
        )
    return found[max(found)]


def _steps(url: str) -> dict[int, str]:
    """Return the URLs of the complete checkpoints in a run directory or a checkpoint directory, by step."""
    steps = {}
    for directory in (url, fs.join(url, "checkpoint")):
        for name in fs.ls(directory) if fs.is_dir(directory) else ():
            match = re.fullmatch(r"step-(\d+)", name)
            if match and fs.exists(fs.join(directory, name, MANIFEST)):
                steps[int(match[1])] = fs.join(directory, name)
    return steps


def load_values(url: str) -> dict[str, Stored]:
    """Return the values of all params at ``url``, by name; see `find_values`.

    Raises
    ------
    CheckpointError
        There is no checkpoint, or it is damaged.
    """
    found = find_values(url)
    if not fs.is_dir(found):
        return singa_checkpoint.read(found)
    stored = Checkpoint(found)
    return {name: Stored(stored.values(name), stored.version(name)) for name in stored.params()}


def load_class_names(url: str) -> dict[str, tuple[str, ...]]:
    """Return the class names at ``url`` (see `find_values`) by input layer; empty for files of SINGA."""
    found = find_values(url)
    return Checkpoint(found).class_names if fs.is_dir(found) else {}


def find_values(url: str) -> str:
    """Return the URL of the checkpoint that a URL means: a step, or a file of SINGA.

    Parameters
    ----------
    url : str
        A step, a checkpoint directory, a run directory, or a workspace, also of SINGA: the newest checkpoint in it.
        Or a file of SINGA, ``<workspace>/checkpoint/step<n>-worker<i>``; if it does not exist, step ``n`` of the newest
        run in this workspace.

    Raises
    ------
    CheckpointError
        There is none.
    """
    place = singa_checkpoint.parse(url)
    if place and not fs.exists(url):
        return _find_step(url, *place)
    if not fs.is_dir(url) and fs.exists(url):
        return url
    if fs.exists(fs.join(url, MANIFEST)) or _steps(url):
        return find(url)
    if files := singa_checkpoint.newest_files(url):
        return files[0]
    runs = {run: steps[max(steps)] for run, steps in _runs(url).items()}
    jobs = {str(Checkpoint(step).manifest["job"]) for step in runs.values()}
    if len(jobs) > 1:
        raise CheckpointError(f"{url}: runs of several jobs ({', '.join(sorted(jobs))}). Say which run: {url}/<run>.")
    return _newest(runs.values()) if runs else find(url)


def _runs(workspace: str) -> dict[str, dict[int, str]]:
    """Return the checkpoints of each run in a workspace, by the URL of the run."""
    names = fs.ls(workspace) if fs.is_dir(workspace) else []
    found = {run: _steps(run) for run in (workspace, *(fs.join(workspace, name) for name in names))}
    return {run: steps for run, steps in found.items() if steps}


def _newest(steps: Iterable[str]) -> str:
    return max(steps, key=lambda url: (float(Checkpoint(url).manifest.get("time", 0)), url))


def _find_step(url: str, directory: str, step: int) -> str:
    """Return the checkpoint of a step for the path that SINGA gives to the file of a worker."""
    workspace = directory.removesuffix("/checkpoint") if directory != "checkpoint" else "."
    runs = _runs(workspace)
    if found := [steps[step] for steps in runs.values() if step in steps]:
        return _newest(found)
    others = sorted({each for steps in runs.values() for each in steps} | set(singa_checkpoint.steps(directory)))
    there = f"it has those of steps {', '.join(map(str, others))}" if others else "it has none"
    todo = f"Name one of these, or train for {step} steps first." if others else "Run the job of that workspace first."
    raise CheckpointError(
        f"{url}: not found. Expected this file, as SINGA writes it, or a checkpoint of step {step} by a run in the "
        f"workspace {workspace}: {there}. {todo}"
    )
