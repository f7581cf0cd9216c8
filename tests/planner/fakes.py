"""Costs and a simulation that a person can compute by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from singa_dask.conf import JobConf, Phase
from singa_dask.layers import Layer
from singa_dask.layers.bridge import Bridge
from singa_dask.planner.model import Cluster, Costs, Link, Machine, Prediction
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.nets import build_nets

LINK = Link(latency_s=1e-4, bytes_per_s=1e9)


@dataclass
class FakeCosts(Costs):
    """A layer takes so long for each value that it gives, by its threads; all else takes no time."""

    value_s: float = 1e-7
    step_s: float = 0.0
    handled_s: float = 0.0
    woken_s: float = 0.0
    record_bytes: float = 0.0
    pass_s: float = 0.0

    def layer_s(self, layer: Layer, verb: str, n_threads: int, n_busy: int) -> float:
        if isinstance(layer, Bridge):
            return 0.0
        return self.value_s * sum(math.prod(feature.shape) for feature in layer.features) / n_threads

    def update_s(self, sizes: Sequence[int], n_busy: int) -> float:
        return 0.0

    def crowding(self, n_groups: int) -> float:
        return 1.0

    def copied_byte_s(self, n_busy: int) -> float:
        return 0.0

    def read_s(self, rows: int, n_busy: int) -> float:
        return 0.0


def simulate(job: JobConf, plan: JobPlan, cluster: Cluster, costs: Costs, *, threads: int, **more: Any) -> Prediction:
    """Compute the slowest worker, and after it the traffic of the busiest host, without any overlap."""
    conf, layout = job.cluster, plan.layout
    host_of = {unit: cluster.host_of[process] for unit, process in layout.process_of.items()}
    compute_s = 0.0
    workers = [unit for unit in layout.units if unit.kind == "worker"]
    for unit in workers:
        net = build_nets(job, 0, unit.id)[Phase.TRAIN]
        passes = [(layer, verb) for layer in net.layers for verb in ("forward", "backward")]
        seconds = sum(costs.layer_s(layer, verb, threads, 1) for layer, verb in passes)
        compute_s = max(compute_s, seconds / cluster.hosts[host_of[unit]].speed)
    sent = Counter[int]()
    for piece in plan.slices:
        for worker in workers:
            server = next(
                unit
                for unit in layout.units
                if (unit.kind, unit.group, unit.id) == ("server", layout.server_group_of(worker.group), piece.server)
            )
            if host_of[worker] != host_of[server]:
                sent[layout.process_of[worker]] += 4 * piece.size
                sent[layout.process_of[server]] += 4 * piece.size
    n_processes = len(layout.processes)
    network_s = max(sent.values(), default=0) / cluster.between.bytes_per_s
    step_s = costs.step_s + compute_s + network_s
    n_samples = 20 * conf.nworker_groups
    busy = {"compute": compute_s / step_s, "network": network_s / step_s}
    bytes_sent = tuple(sent[process] for process in range(n_processes))
    stale = float(conf.nworker_groups - 1)
    return Prediction(step_s, n_samples / step_s, bytes_sent, (0,) * n_processes, busy, staleness=stale)


def hosts(n: int, n_cores: int = 2, bytes_per_s: float = 1e9, speeds: Sequence[float] = ()) -> Cluster:
    """Return a cluster of hosts, a job takes one process of each in turn."""
    between = Link(latency_s=1e-4, bytes_per_s=bytes_per_s)
    machines = tuple(Machine(f"host-{i}", n_cores, speeds[i] if speeds else 1.0, 1 << 34) for i in range(n))
    return Cluster(machines, tuple(range(n)) * n_cores, LINK, between)
