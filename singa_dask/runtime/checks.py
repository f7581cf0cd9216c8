"""Everything about a job that can be found wrong on the client, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from singa_dask.conf import JobConf, Phase
from singa_dask.data import fs
from singa_dask.net import NeuralNet
from singa_dask.runtime.plan import JobPlan, build_net, build_nets
from singa_dask.runtime.start import Start
from singa_dask.train import ALGORITHMS, check_initialisers

__all__ = ["absolute_paths", "prepare"]

_PATHS = {"path", "vocab_path", "mean_file", "std_file", "meanfile", "checkpoint_path"}


def absolute_paths(job: JobConf) -> JobConf:
    """Return the job with its relative paths, which start where it was started, made absolute for other processes."""
    return JobConf.model_validate(_made_absolute(job.model_dump(mode="json"), ""))


def _made_absolute(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _made_absolute(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_made_absolute(each, key) for each in value]
    return fs.absolute(value) if key in _PATHS and isinstance(value, str) else value


def prepare(
    job: JobConf, *, resume: str | None = None, init_from: Sequence[str] = (), check_sources: bool = True
) -> dict[Phase, NeuralNet]:
    """Check wiring, shapes, topology, records and first values of a job.

    Parameters
    ----------
    job : JobConf
    resume, init_from : str, sequence of str
        As for `Driver`.
    check_sources : bool
        Whether records must be there as seen from here; not so when only the workers of a cluster see them.

    Returns
    -------
    dict of Phase to NeuralNet
        The nets, shapes only; that of tests alone where the job is not one to train.

    Raises
    ------
    ConfigError, CheckpointError
        What is wrong, and where.
    """
    nets = build_nets(job) if job.trains else {Phase.TEST: build_net(job, Phase.TEST)}
    if check_sources:
        for net in nets.values():
            net.check_sources()
    if not job.trains:
        return nets
    JobPlan.make(job, nets[Phase.TRAIN])
    ALGORITHMS.find(job.train_one_batch.alg).check(nets[Phase.TRAIN])
    check_initialisers(nets[Phase.TRAIN])
    Start(job, resume, init_from).check(nets[Phase.TRAIN])
    return nets
