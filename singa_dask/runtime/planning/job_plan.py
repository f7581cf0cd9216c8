"""JobPlan: the table of params and slices of a job.

Every process computes the same table from the job file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from singa_dask.comm.message import Address
from singa_dask.comm.slices import ParamSlice, slice_table
from singa_dask.comm.tree import ProcessTree
from singa_dask.conf import JobConf, Phase, UpdaterConf
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.param import ParamShard
from singa_dask.net import NeuralNet
from singa_dask.ops import get_ops
from singa_dask.runtime.planning.layout import Layout, plan_processes
from singa_dask.runtime.planning.nets import build_net


@dataclass(frozen=True)
class JobPlan:
    """Params and slices of a job, computed without data and without a cluster.

    Attributes
    ----------
    layout : Layout
        The units of each process. No other field except ``tree`` depends on it.
    names : tuple of str
        Names of the unique params, or of shards of params, in the order of the net. Messages identify a param by its
        index here. The following fields have an entry for each name.
    owners : tuple of str
        Name of the whole param.
    shards : tuple of ParamShard or None
        Which shard of the whole param it is; None for a whole param.
    scales : tuple of (float, float) or None
        ``lr_scale`` and ``wd_scale``; None for a running statistic, which is not trained.
    n_sharers : tuple of int
        Number of gradients of the param that a worker group computes in one step.
    gradient_divisors : tuple of int
        Divisor that turns the sum of these gradients into their mean.
    slices : tuple of ParamSlice
        All slices of the job.
    dtype : dtype
        dtype of params.
    tree : ProcessTree or None
        The processes that add up gradients on the way to servers; None if processes send gradients directly.
    """

    layout: Layout
    names: tuple[str, ...]
    owners: tuple[str, ...]
    shards: tuple[ParamShard | None, ...]
    scales: tuple[tuple[float, float] | None, ...]
    n_sharers: tuple[int, ...]
    gradient_divisors: tuple[int, ...]
    slices: tuple[ParamSlice, ...]
    dtype: np.dtype[Any]
    tree: ProcessTree | None

    @property
    def way(self) -> ProcessTree | None:
        """The tree if it contains all processes, else None. With such a tree, all messages travel along it."""
        return self.tree if self.tree and self.tree.n_processes == len(self.layout.processes) else None

    @property
    def n_trained(self) -> Counter[int]:
        """Number of trained slices of each server that has trained slices. Running statistics do not count."""
        trained = [piece for piece in self.slices if self.scales[piece.param] and self.n_sharers[piece.param]]
        return Counter(piece.server for piece in trained)

    @classmethod
    def make(cls, job: JobConf, net: NeuralNet | None = None, layout: Layout | None = None) -> JobPlan:
        """Compute the plan of a job.

        Parameters
        ----------
        net : NeuralNet, optional
            The training net, if it is already built.
        layout : Layout, optional
            Used instead of the layout of the job file, e.g. a result of `pack`.
        """
        net = net or build_net(job, Phase.TRAIN, get_ops("numpy"))
        kept, cluster = net.logical, job.cluster
        if not kept:
            raise ConfigError(Problem(("neuralnet", "layer"), "no layer of the training net has params to train."))
        owners = [each.owner for each in kept.values()]
        check_scales(job.updater, [owner.name for owner in owners if not owner.running_statistic])
        sizes = [each.param.size for each in kept.values()]
        slices = slice_table(sizes, cluster.nserver_groups, cluster.nservers_per_group)
        planned, dtype = plan_processes(cluster), net.context.param_dtype
        layout, n_bytes = layout or planned, sum(sizes) * dtype.itemsize
        return cls(
            layout=layout,
            names=tuple(kept),
            owners=tuple(owner.name for owner in owners),
            shards=tuple(each.param.shard for each in kept.values()),
            scales=tuple(
                None
                if owner.running_statistic
                else job.updater.scales_of(owner.name, owner.conf.lr_scale, owner.conf.wd_scale)
                for owner in owners
            ),
            n_sharers=tuple(net.n_gradients(name) for name in kept),
            gradient_divisors=tuple(net.gradient_divisor(name) for name in kept),
            slices=tuple(_assign_local_servers(slices, [each.workers for each in kept.values()], planned)),
            dtype=dtype,
            # workers of a partitioned net have different params, so they cannot sum in a tree
            tree=None if net.is_partitioned else ProcessTree.of(layout.process_of, n_bytes),
        )


def check_scales(updater: UpdaterConf, names: Sequence[str]) -> None:
    """Raise `ConfigError` if a pattern of ``updater.scales`` matches none of the trained params ``names``."""
    problems = []
    for i, scale in enumerate(updater.scales):
        if not any(fnmatchcase(name, scale.param) for name in names):
            message = f"no trained param matches {scale.param!r}. Params: {', '.join(dict.fromkeys(names))}."
            problems.append(Problem(("updater", "scales", i, "param"), message))
    if problems:
        raise ConfigError(problems)


def _assign_local_servers(
    slices: Sequence[ParamSlice], users: Sequence[Collection[int]], layout: Layout
) -> Iterator[ParamSlice]:
    """Assign slices that only workers of one process use to a server of that process, if it has a server.

    Shards that only one worker uses then never leave their process.

    Parameters
    ----------
    users : sequence of collection of int
        For each param, the workers of a group that use it; empty if all workers use it.
    layout : Layout
        Layout of the job file.
    """
    process_of, cluster = layout.process_of, layout.cluster
    processes = [  # process of each worker, and of each server that the worker's group talks to
        (
            [process_of[Address.worker(group, i)] for i in range(cluster.nworkers_per_group)],
            [process_of[Address.server(layout.server_group_of(group), i)] for i in range(cluster.nservers_per_group)],
        )
        for group in range(cluster.nworker_groups)
    ]
    load = [0] * cluster.nservers_per_group
    for piece in slices:
        homes = [
            server
            for server in range(cluster.nservers_per_group)
            if all({workers[i] for i in users[piece.param]} == {servers[server]} for workers, servers in processes)
        ]
        server = piece.server if piece.server in homes or not homes else min(homes, key=load.__getitem__)
        load[server] += piece.size
        yield piece._replace(server=server)
