"""Prepare runs: check a job, choose its run directory, and find the checkpoint to resume from."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from singa_dask import fs
from singa_dask.conf import JobConf, JobFile, Phase
from singa_dask.conf.files.redacted_text import redact_job
from singa_dask.conf.files.yaml_text import read_plain
from singa_dask.errors import ConfigError, Problem
from singa_dask.jobs.checks import check, complete, count_steps
from singa_dask.jobs.datasets.binding import check_names, readers, shown_by_name, with_urls
from singa_dask.net import NeuralNet
from singa_dask.observe import is_run, new_job_id, read_summary
from singa_dask.observe.files.job_values import differences, flatten, shown_pair
from singa_dask.observe.files.run_directory import first_command, newest_run
from singa_dask.observe.files.stored_run import StoredRun
from singa_dask.runtime import JobRun
from singa_dask.runtime.checkpoints.lookup import find as find_checkpoint
from singa_dask.runtime.checkpoints.lookup import first_steps, has_checkpoints
from singa_dask.runtime.job.checks.job import missing_gpus
from singa_dask.runtime.job.names import this_user
from singa_dask.version import __version__


class RunLocation(NamedTuple):
    """The run directory ``url`` of a run, its ``job_id``, and the checkpoint from which it starts.

    Attributes
    ----------
    checkpoint : str or None
        Checkpoint to resume from; None for a new run.
    goes_on : bool
        Whether the run continues in the run directory of the checkpoint. The content of the directory is then kept.
    replaces : bool
        Whether the content of the run directory is deleted when the job starts.
    init_from : tuple of str
        URLs of checkpoints with initial values.
    """

    url: str
    job_id: str
    checkpoint: str | None = None
    goes_on: bool = False
    replaces: bool = False
    init_from: tuple[str, ...] = ()

    def steps(self) -> dict[int, int]:
        """Return the first step of each worker group, for a resumed run."""
        return first_steps(self.checkpoint if self.goes_on else None)


def choose_location(
    conf: JobConf,
    run_dir: str | None = None,
    resume: str | bool = False,
    overwrite: bool = False,
    init_from: tuple[str, ...] = (),
) -> RunLocation:
    """Choose the run directory of a job, and find the checkpoint to resume from.

    ``resume`` is the URL of a run or of one of its checkpoints. True resumes the run in ``run_dir``, or else the newest
    run of the job.

    Raises
    ------
    ConfigError
        No run of this job can be resumed.
    CheckpointError
        The run has no checkpoint, unless it ended before its first checkpoint.
    """
    parent = conf.cluster.workspace or "runs"
    job_id = new_job_id(conf.name)
    if resume is True:
        run_dir = resume = run_dir or newest_run(parent, conf.name)
    url = fs.absolute(run_dir or fs.join(parent, job_id))
    if not resume:
        return RunLocation(url, job_id, replaces=overwrite or _ended_early(url, surely=True), init_from=init_from)
    resume = fs.absolute(resume)
    if _ended_early(resume):
        values = tuple(first_command(resume).get("init_from", ()))
        return RunLocation(url, job_id, replaces=url == resume, init_from=values)
    checkpoint = find_checkpoint(resume)
    goes_on = checkpoint.startswith(f"{url}/")
    return RunLocation(url, job_id, checkpoint, goes_on, replaces=not goes_on and _ended_early(url, surely=True))


def _ended_early(url: str, surely: bool = False) -> bool:
    """Return whether a run ended before its first checkpoint.

    With ``surely=True``, the result is False for a run that may still be running. On remote filesystems, only a summary
    proves that the run has ended.
    """
    summary = read_summary(url)
    if not is_run(url) or summary.get("state") == "done":
        return False
    if surely and not summary and fs.local_path(url) is None:
        return False
    return not has_checkpoints(url)


class PreparedRun(NamedTuple):
    """A checked run that is not started yet.

    Attributes
    ----------
    job_file : JobFile
        The job, with initialisers for all params.
    bound : JobFile
        The same job, with URLs of files in place of names of datasets.
    location : RunLocation
    nets : mapping of Phase to NeuralNet
        The nets, without memory.
    """

    job_file: JobFile
    bound: JobFile
    location: RunLocation
    nets: Mapping[Phase, NeuralNet]

    def job_run(self, arguments: Sequence[str], queue: bool = False, priority: int = 0) -> JobRun:
        """Return the run as plain values. ``arguments``, the user's command, is written to ``commands.jsonl``."""
        read, location = self.job_file, self.location
        recording = {
            "job_text": read.text,
            "resolved_text": read.resolved(),
            "goes_on": location.goes_on,
            "replaces": location.replaces,
            "steps": location.steps(),
            "command": {
                "time": time.time(),
                "arguments": list(arguments),
                "directory": os.getcwd(),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "version": __version__,
                "init_from": [os.path.abspath(url) if "://" not in url else url for url in location.init_from],
                "resume": location.checkpoint,
            },
        }
        return JobRun.of(
            self.bound.job,
            job_id=location.job_id,
            run_url=location.url,
            owner=this_user(),
            resume=location.checkpoint,
            init_from=tuple(fs.absolute(url) for url in location.init_from),
            recording=recording,
            queue=queue,
            priority=priority,
        )


def prepare_run(
    read: JobFile,
    *,
    run_dir: str | None = None,
    resume: str | bool = False,
    overwrite: bool = False,
    init_from: tuple[str, ...] = (),
    elsewhere: bool = False,
    write_data: Callable[[], Mapping[str, str]] = dict,
) -> PreparedRun:
    """Check a job for training, and choose its run directory.

    Parameters
    ----------
    read : JobFile
    run_dir, resume, overwrite, init_from
        See `choose_location`.
    elsewhere : bool
        Whether the job runs on a cluster. If so, only the workers need access to records and GPUs.
    write_data : callable
        Writes the job's datasets and returns the URLs of their files by name. Called after all other checks.

    Raises
    ------
    ConfigError, CheckpointError, DataError
        The job cannot run. The error has places in the file.
    """
    if not read.job.trains:
        message = "there is nothing to train: no updater, no epochs, no train_steps."
        message += " For tests run singa-dask test, for text singa-dask sample."
        raise read.locate(ConfigError(Problem((), message)))
    location = choose_location(read.job, run_dir, resume, overwrite, init_from)
    read = complete(read, location.init_from)
    starting = {"resume": location.checkpoint, "init_from": location.init_from}
    if not elsewhere and (problems := missing_gpus(read.job)):
        raise ConfigError(read.in_order(problems))
    if not readers(read.job):
        nets = check(read, **starting, check_sources=not elsewhere)
        read = read if elsewhere else count_steps(read, nets, location.checkpoint)
        return PreparedRun(read, read, location, nets)
    nets = check(read, **starting, check_sources=False)
    urls = write_data()
    bound = replace(read, job=with_urls(read.job, urls))
    if not elsewhere:
        check_names(read, urls)
        with shown_by_name(urls):
            nets = check(bound, **starting)
        bound = count_steps(bound, nets, location.checkpoint)
        counted = {key: getattr(bound.job, key) for key in ("epochs", "train_steps")}
        read = replace(read, job=read.job.model_copy(update=counted))
    return PreparedRun(read, bound, location, nets)


def changes_of(read: JobFile, location: RunLocation) -> list[str]:
    """Return a message for each key of a resumed job that has changed since its last start.

    A further message says if no step is left.
    """
    url = (location.checkpoint or "").rpartition("/checkpoint/")[0]
    if not url or not fs.exists(fs.join(url, "resolved.yaml")):
        return []
    run, now = StoredRun(url), flatten(read_plain(redact_job(read.resolved()), "resolved.yaml"))
    # skip train_steps if it is not known yet, and skip keys that only one of the jobs has: these depend on other keys
    # or on the version of the package
    unknown = ("epochs", "train_steps") if read.job.epochs else ()
    lines = [
        f"changed: {key}: {' -> '.join(shown_pair(*pair))}"
        for key, pair in differences(flatten(run.job), now).items()
        if None not in pair and key not in unknown
    ]
    step, n_steps = min(location.steps().values(), default=-1), read.job.train_steps
    if read.job.epochs is None and step >= n_steps:
        message = f"train_steps is {n_steps}, and the checkpoint has step {step}: no step is left."
        lines.append(f"{message} Set train_steps, or epochs, higher to continue training.")
    return lines
