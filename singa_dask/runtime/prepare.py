"""Everything about a job that can be found wrong on the client, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence

from singa_dask.conf import JobConf, Phase
from singa_dask.net import NeuralNet
from singa_dask.runtime.plan import JobPlan, build_nets
from singa_dask.runtime.start import Start

__all__ = ["prepare"]


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
        The nets, shapes only.

    Raises
    ------
    ConfigError, CheckpointError
        What is wrong, and where.
    """
    nets = build_nets(job)
    JobPlan.make(job)
    if check_sources:
        for net in nets.values():
            net.check_sources()
    Start(job, resume, init_from).check(nets[Phase.TRAIN].owners)
    return nets
