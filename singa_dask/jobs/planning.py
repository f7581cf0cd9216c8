"""Plans of jobs: which topology and partition is fastest on a cluster that is there, or might be."""

from __future__ import annotations

import os
from dataclasses import replace

from distributed import Client

from singa_dask.errors import ConfigError, Problem
from singa_dask.jobs.job import Job, check, complete, load
from singa_dask.jobs.preparing import find_cluster
from singa_dask.planner.costs import MeasuredCosts
from singa_dask.planner.links import imagined_cluster, measure_cluster, measure_here, read_what_if
from singa_dask.planner.losses import lost_time, state_bytes
from singa_dask.planner.report import Plan
from singa_dask.planner.search import search
from singa_dask.planner.simulation import simulate
from singa_dask.runtime.job.checks import absent_records


def plan(
    job: Job | str | os.PathLike[str],
    *,
    what_if: str = "",
    client: Client | str | None = None,
    scheduler_file: str | None = None,
    price: float = 0.0,
) -> Plan:
    """Find the fastest topology and partition of a job.

    What the job costs is measured on this machine, in some seconds, and kept for the next plan; steps are then
    simulated. Without a cluster it is planned for this machine alone.

    Parameters
    ----------
    job : Job or path
    what_if : str
        A cluster that might be, e.g. ``"hosts=64,link=25Gbit,latency=30us,cores=32"``.
    client, scheduler_file
        A cluster that is there; see `singa_dask.train`.
    price : float
        Of a machine for an hour.

    Raises
    ------
    ConfigError
        With all mistakes of the job; or it does not train, or not on CPUs.
    ClusterError
        The cluster does not answer.
    """
    job_file = (job if isinstance(job, Job) else load(job)).file
    imagined = read_what_if(what_if)
    if what_if and (client or scheduler_file):
        raise ConfigError("--what-if is for a cluster that is not there. Leave it out, or the scheduler.")
    whole = complete(job_file)
    check(whole, absent=absent_records(whole.job))
    if not whole.job.trains:
        raise whole.locate(ConfigError(Problem((), "there is nothing to train: no updater, no epochs, no train_steps.")))
    if whole.job.gpu or whole.job.ops == "cupy":
        key = ("gpu",) if whole.job.gpu else ("ops",)
        raise whole.locate(ConfigError(Problem(key, "plans are for jobs on CPUs. Say --cpu.")))
    with whole.located(), MeasuredCosts(whole.job) as costs:
        within = measure_here(shared=whole.job.cluster.listen.shared_memory)
        if client or scheduler_file:
            with find_cluster(client, scheduler_file) as connected:
                cluster = measure_cluster(connected, within)
        else:
            cluster = imagined_cluster(imagined, within, measure_here(shared=False))
        candidates = search(whole.job, cluster, costs.of, simulate=simulate)
    if life := imagined["life"]:
        n_bytes = state_bytes(whole.job)
        for i, each in enumerate(candidates):
            candidates[i] = replace(each, lost=lost_time(each.job, each.layout, n_bytes, each.prediction.step_s, life))
    n, cores = len(cluster.hosts), sum(host.n_cores for host in cluster.hosts)
    return Plan(job_file, candidates, f"{n} host{'s' * (n > 1)} with {cores} cores", price)
