"""Compute, by a formula, the share of its time that a job loses to snapshots and failing processes.

After J. W. Young (1974), "A first order approximation to the optimum checkpoint interval", and J. T. Daly (2006), "A
higher order estimate of the optimum checkpoint interval for restart dumps". Assumptions of the model:

- Processes fail independently of each other and of their age.
- The two holders of a snapshot never fail together.
- There is always a Dask worker to replace a lost one.
"""

from __future__ import annotations

import math

from singa_dask.conf import ClusterConf, JobConf, Phase
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.planning.nets import build_net
from singa_dask.runtime.units.server import state_names
from singa_dask.runtime.units.snapshot_schedule import snapshot_interval
from singa_dask.training import UPDATERS

RESTART_S, RESTARTED_S, SNAPSHOT_BYTE_S = 0.9, 1e-3, 1e-9
"""Seconds from the detection of a lost process until steps continue; additional seconds for each process of the job;
seconds to copy a byte of a snapshot."""


def lost_share(interval_s: float, save_s: float, down_s: float, rate: float) -> float:
    """Return the share of time lost if all units restart from the last saved state after a failure.

    Parameters
    ----------
    interval_s : float
        Seconds of work between two saves.
    save_s : float
        Seconds that a save takes.
    down_s : float
        Seconds from a failure until work continues. If another failure happens meanwhile, these seconds start again.
    rate : float
        Failures per second.

    Notes
    -----
    An interval takes ``exp(rate * down) * (exp(rate * (interval + save)) - 1) / rate`` on average (Daly). For small
    rates the loss is Young's: ``save / (interval + save)`` and ``rate * (down + interval / 2)``.
    """
    whole_s = interval_s + save_s
    if rate * (whole_s + down_s) > 700:  # exp would overflow, and no interval is ever completed
        return 1.0
    ratio = rate * whole_s / math.expm1(rate * whole_s) if rate else 1.0
    return 1.0 - interval_s / whole_s * math.exp(-rate * down_s) * ratio


def state_bytes(job: JobConf) -> int:
    """Return the size of a snapshot of a job in bytes: its params and updater state."""
    net = build_net(job.model_copy(update={"cluster": ClusterConf()}), Phase.TRAIN)
    n_arrays = 1 + len(state_names(UPDATERS.find(job.updater.type)(job.updater)))
    return net.context.param_dtype.itemsize * n_arrays * sum(owner.size for owner in net.owners)


def lost_time(job: JobConf, layout: Layout, n_bytes: int, step_s: float, life_s: float) -> float:
    """Return the share of its time that a job loses to failures and snapshots.

    A lost process is detected after the longest permitted silence. If the lost process has a server, or if the job has
    one worker group, all units restart from the last saved state. In all other cases, only the worker group of the
    process stops. Without snapshots, as in a job with a single process, units restart from a checkpoint, or from the
    beginning. Checkpoints are assumed to take no time.

    Parameters
    ----------
    layout : Layout
        The units of each process.
    n_bytes : int
        Size of a snapshot in bytes.
    step_s : float
        Duration of a step.
    life_s : float
        Mean lifetime of a process.
    """
    conf, processes = job.cluster, layout.processes
    n_with_server = sum(any(unit.kind == "server" for unit in units) for units in processes)
    n_back = len(processes) if conf.nworker_groups == 1 else n_with_server
    down_s = limit("silent") + RESTART_S + RESTARTED_S * len(processes)
    save_s, saved_s = 0.0, (job.checkpoint_freq * step_s, 60 * job.checkpoint_minutes, job.train_steps * step_s)
    interval_s = min(filter(None, saved_s), default=math.inf)
    if len(processes) > 1 and conf.snapshot_freq != 0:
        save_s = n_bytes * conf.nserver_groups / n_with_server * SNAPSHOT_BYTE_S
        interval_s = conf.snapshot_freq * step_s if conf.snapshot_freq else snapshot_interval(save_s)
    of_group = (len(processes) - n_back) / life_s * (down_s + step_s) / conf.nworker_groups
    return 1.0 - (1.0 - lost_share(interval_s, save_s, down_s, n_back / life_s)) / (1.0 + of_group)
