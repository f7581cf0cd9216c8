"""plan: find the fastest topology and partition for a job on an existing or a hypothetical cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from distributed import Client

from singa_dask.errors import ConfigError, Problem
from singa_dask.jobs.checks import check, complete
from singa_dask.jobs.cluster import find_cluster
from singa_dask.jobs.job import Job, as_job
from singa_dask.planner.costs import MeasuredCosts
from singa_dask.planner.failures import lost_time, state_bytes
from singa_dask.planner.links import measure_cluster
from singa_dask.planner.model import Cluster
from singa_dask.planner.report import Plan
from singa_dask.planner.search import Candidate, search
from singa_dask.planner.simulation import MAX_PROCESSES, simulate
from singa_dask.planner.what_if import imagined_cluster, read_what_if
from singa_dask.runtime.job.checks.job import absent_records
from singa_dask.runtime.planning.job_plan import JobPlan


def plan(
    job: Job | str | os.PathLike[str],
    *,
    what_if: str = "",
    client: Client | str | None = None,
    scheduler_file: str | None = None,
    price: float = 0.0,
    trace: bool = False,
) -> Plan:
    """Find the fastest topology and partition for a job, by simulation.

    The costs of the job are measured on this machine, which takes some seconds. They are stored for later plans. If no
    cluster is passed, the plan is for this machine.

    Parameters
    ----------
    job : Job or path
    what_if : str
        Description of a hypothetical cluster, e.g. ``"hosts=64,link=25Gbit,latency=30us,cores=32"``.
    client : distributed.Client or str, optional
        Client of an existing cluster, or the address of its scheduler.
    scheduler_file : str, optional
        File that the scheduler of an existing cluster has written.
    price : float
        Price of one host for one hour.
    trace : bool
        Whether to keep the events of a simulated step of the best plan, for `Plan.trace` and for the page of the plan.

    Raises
    ------
    ConfigError
        The job is wrong, does not train, or does not train on CPUs. The error lists all mistakes.
    ClusterError
        The cluster does not answer.
    """
    read = as_job(job).file
    imagined = read_what_if(what_if)
    if what_if and (client or scheduler_file):
        raise ConfigError("--what-if describes a hypothetical cluster. Leave out either it or the scheduler.")
    whole = complete(read)
    check(whole, absent=absent_records(whole.job))
    conf = whole.job
    with whole.located():
        if not conf.trains:
            raise ConfigError(Problem((), "there is nothing to train: no updater, no epochs, no train_steps."))
        if conf.gpu or conf.ops == "cupy":
            raise ConfigError(Problem(("gpu",) if conf.gpu else ("ops",), "plans are for jobs on CPUs. Pass --cpu."))
        with MeasuredCosts(conf) as costs:
            within = costs.link(conf.cluster.listen.shared_memory)
            if client or scheduler_file:
                with find_cluster(client, scheduler_file) as connected:
                    cluster = measure_cluster(connected, within)
            else:
                cluster = imagined_cluster(imagined, within, costs.link(False))
            candidates = search(conf, cluster, costs.of, simulate=simulate)
            events = _events(candidates[0], cluster, costs) if trace else ()
    if life := imagined["life"]:
        n_bytes = state_bytes(conf)
        for i, each in enumerate(candidates):
            candidates[i] = replace(each, lost=lost_time(each.job, each.layout, n_bytes, each.prediction.step_s, life))
    n, n_cores = len(cluster.hosts), sum(host.n_cores for host in cluster.hosts)
    return Plan(read, candidates, f"{n} host{'s' * (n > 1)} with {n_cores} core{'s' * (n_cores > 1)}", price, events)


def _events(best: Candidate, cluster: Cluster, costs: MeasuredCosts) -> Sequence[Mapping[str, Any]]:
    """Return the events of a simulated step; empty if the simulation does not follow single messages."""
    if len(best.layout.processes) > MAX_PROCESSES:
        return ()
    more: dict[str, Any] = {"threads": best.threads, "trace": True}
    return simulate(best.job, JobPlan.make(best.job), cluster, costs.of(best.job), **more).trace
