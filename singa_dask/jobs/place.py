"""Place: where a run is written, and what it goes on from."""

from __future__ import annotations

from typing import NamedTuple

from singa_dask.conf import JobConf
from singa_dask.data import fs
from singa_dask.observe import first_command, new_job_id, newest_run, read_summary
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.lookup import find as find_checkpoint
from singa_dask.runtime.checkpoints.lookup import has_checkpoints

__all__ = ["Place", "choose_place"]


class Place(NamedTuple):
    """Where a run is written, its name, and its first checkpoint.

    Attributes
    ----------
    url, job_id : str
    checkpoint : str or None
        To go on from.
    goes_on : bool
        The checkpoint is one of this run directory, and what that holds stays.
    replaces : bool
        What it holds is deleted when the job starts.
    init_from : tuple of str
        Checkpoints whose values the net starts from.
    """

    url: str
    job_id: str
    checkpoint: str | None = None
    goes_on: bool = False
    replaces: bool = False
    init_from: tuple[str, ...] = ()

    def steps(self) -> dict[int, int]:
        """Return the first step of each worker group of a resumed run."""
        if self.checkpoint is None or not self.goes_on:
            return {}
        found = Checkpoint(self.checkpoint)
        return {0: found.step} | {group: int(facts["step"]) for group, facts in found.groups.items()}


def choose_place(
    conf: JobConf,
    run_dir: str | None = None,
    resume: str | bool = False,
    overwrite: bool = False,
    init_from: tuple[str, ...] = (),
) -> Place:
    """Choose the run directory of a job, and find the checkpoint to resume from.

    Parameters
    ----------
    conf : JobConf
    run_dir : str, optional
    resume : str or bool
        URL of a run or a step of it; True: the run in ``run_dir``, or the newest one of this job.
    overwrite : bool
    init_from : tuple of str

    Raises
    ------
    ConfigError
        There is no run of this job to resume.
    CheckpointError
        There is no checkpoint, nor a run that ended before its first.
    """
    parent = conf.cluster.workspace or "runs"
    job_id = new_job_id(conf.name)
    if resume is True:
        run_dir = resume = run_dir or newest_run(parent, conf.name)
    url = fs.absolute(run_dir or fs.join(parent, job_id))
    if not resume:
        return Place(url, job_id, replaces=overwrite or _ended_early(url), init_from=init_from)
    resume = fs.absolute(resume)
    if _ended_early(resume):
        values = tuple(first_command(resume).get("init_from", ()))
        return Place(url, job_id, replaces=url == resume, init_from=values)
    checkpoint = find_checkpoint(resume)
    goes_on = checkpoint.startswith(f"{url}/")
    return Place(url, job_id, checkpoint, goes_on, replaces=not goes_on and _ended_early(url))


def _ended_early(url: str) -> bool:
    """Tell whether a run ended before its first checkpoint, for whatever reason."""
    if not fs.exists(fs.join(url, "job.yaml")) or read_summary(url).get("state") == "done":
        return False
    return not has_checkpoints(url)
