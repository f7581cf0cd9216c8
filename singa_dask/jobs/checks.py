"""Check a job by building its nets and inspecting its records. Errors name places in the job file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from singa_dask.api import REGISTRIES
from singa_dask.conf import JobFile, Phase
from singa_dask.conf.warnings import find_warnings
from singa_dask.errors import Problem
from singa_dask.jobs.datasets.binding import readers
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.job.checks.job import check_job, missing_gpus, net_warnings, worker_warnings
from singa_dask.runtime.job.driver.epochs import with_steps
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.training import with_initialisers


def check(job_file: JobFile, **given: Any) -> dict[Phase, NeuralNet]:
    """Check wiring, shapes, topology, records and initial values of a job; see `check_job`.

    Returns
    -------
    dict of Phase to NeuralNet
        The nets, without memory.

    Raises
    ------
    ConfigError
        A check failed. The error has places in the file.
    """
    # datasets of Python objects do not exist as files yet: they are written when the job starts
    absent = {*given.pop("absent", ()), *readers(job_file.job)}
    with job_file.located():
        return check_job(job_file.job, absent=absent, **given)


def complete(job_file: JobFile, init_from: Sequence[str] = ()) -> JobFile:
    """Add a default initialiser for each param without one. The layer's class sets the default.

    A SINGA job file, or a job that starts from checkpoints, is returned unchanged, because a missing initialiser is a
    mistake in such jobs.

    Raises
    ------
    ConfigError
        The training net cannot be built. The error has places in the file.
    """
    job = job_file.job
    if job_file.is_singa or not job.trains or InitialValues(job, init_from).has_params:
        return job_file
    with job_file.located():
        return replace(job_file, job=with_initialisers(job, build_nets(job)[Phase.TRAIN]))


def count_steps(job_file: JobFile, nets: Mapping[Phase, NeuralNet], resume: str | None = None) -> JobFile:
    """Return the job with ``train_steps`` instead of ``epochs``.

    The records are counted, so this process must have access to the records.

    Raises
    ------
    ConfigError
        There are no records, or they cannot be counted. The error has the place in the file.
    """
    with job_file.located():
        return replace(job_file, job=with_steps(job_file.job, nets[Phase.TRAIN], resume))


def warnings_on(
    job_file: JobFile,
    nets: Mapping[Phase, NeuralNet] | None = None,
    embedded: bool = False,
    more: Iterable[Problem] = (),
) -> list[Problem]:
    """Return warnings about a job and the warnings ``more``, sorted by their places in the file.

    Parameters
    ----------
    job_file : JobFile
    nets : mapping of Phase to NeuralNet, optional
        The nets of the job, if it trains.
    embedded : bool
        Whether only this machine trains the job.
    more : iterable of Problem
        Other warnings.
    """
    problems = [*find_warnings(job_file.job, REGISTRIES, training=nets is not None), *net_warnings(nets or {})]
    if embedded:
        problems += [*worker_warnings(job_file.job), *missing_gpus(job_file.job)]
    return job_file.in_order([*problems, *more])
