"""From a job to a run of it that can be submitted."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from singa_dask.conf import JobFile, Phase
from singa_dask.data import fs
from singa_dask.errors import ConfigError, Problem
from singa_dask.jobs.checking import check, complete, refuse_missing_gpus
from singa_dask.jobs.datasets.binding import check_names, readers, shown_by_name, with_urls
from singa_dask.jobs.place import Place, choose_place
from singa_dask.net import NeuralNet
from singa_dask.runtime import JobRun, this_user
from singa_dask.version import __version__

__all__ = ["Prepared", "prepare_run"]


class Prepared(NamedTuple):
    """A run that has been checked, and is not started yet.

    Attributes
    ----------
    job_file : JobFile
        With initialisers for all params.
    bound : JobFile
        The same, with the URLs of files where layers read data of Python objects.
    place : Place
    nets : mapping of Phase to NeuralNet
        Shapes only.
    """

    job_file: JobFile
    bound: JobFile
    place: Place
    nets: Mapping[Phase, NeuralNet]

    def job_run(self, arguments: Sequence[str], queue: bool = False, priority: int = 0) -> JobRun:
        """Return the run as plain values.

        Parameters
        ----------
        arguments : sequence of str
            What ``commands.jsonl`` says about how it was started.
        queue : bool
        priority : int
        """
        read, place = self.job_file, self.place
        return JobRun.of(
            self.bound.job,
            place.steps(),
            job_id=place.job_id,
            run_url=place.url,
            owner=this_user(),
            resume=place.checkpoint,
            init_from=[fs.absolute(url) for url in place.init_from],
            job_text=read.text,
            resolved_text=read.resolved(),
            goes_on=place.goes_on,
            replaces=place.replaces,
            command=_describe_command(arguments, place),
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
    place_data: Callable[[], Mapping[str, str]] = dict,
) -> Prepared:
    """Check a job that is to be trained, and choose its run directory.

    Parameters
    ----------
    read : JobFile
    run_dir, resume, overwrite, init_from
        See `choose_place`.
    elsewhere : bool
        It runs on a cluster, of which only the workers need to see the records and the GPUs.
    place_data : callable
        Writes the data of Python objects, once the job is known to be right without them, and returns the URLs of their
        files by name.

    Raises
    ------
    ConfigError, CheckpointError, DataError
        With the places in the file.
    """
    if not read.job.trains:
        message = "there is nothing to train: no updater, no train_steps."
        message += " For tests say singa-dask test, for text singa-dask sample."
        raise read.locate(ConfigError(Problem((), message)))
    place = choose_place(read.job, run_dir, resume, overwrite, init_from)
    read = complete(read, place.init_from)
    given = {"resume": place.checkpoint, "init_from": place.init_from}
    if not elsewhere:
        refuse_missing_gpus(read)
    if not readers(read.job):
        return Prepared(read, read, place, check(read, **given, check_sources=not elsewhere))
    nets = check(read, **given, check_sources=False)
    urls = place_data()
    bound = replace(read, job=with_urls(read.job, urls))
    if not elsewhere:
        check_names(read, urls)
        with shown_by_name(urls):
            nets = check(bound, **given)
    return Prepared(read, bound, place, nets)


def _describe_command(arguments: Sequence[str], place: Place) -> dict[str, Any]:
    return {
        "time": time.time(),
        "arguments": list(arguments),
        "directory": os.getcwd(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "version": __version__,
        "init_from": [os.path.abspath(url) if "://" not in url else url for url in place.init_from],
        "resume": place.checkpoint,
    }
