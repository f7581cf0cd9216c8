"""Clusters and costs for tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from singa_dask.layers import Layer
from singa_dask.planner.model import Cluster, Link, Machine

INSTANT = Link(0.0, math.inf)
REAL = Link(3e-5, 1e9, 1e-5, 1e-5, 1e-10, 1e-10)


@dataclass
class FixedCosts:
    """Costs that depend on as little as possible."""

    step_s: float = 1e-4
    handled_s: float = 5e-6
    woken_s: float = 2e-5
    a_layer_s: float = 1e-3
    value_s: float = 1e-9
    byte_s: float = 1e-10
    record_s: float = 0.0
    record_bytes: float = 0.0
    pass_s: float = 0.0
    crowd: float = 1.0

    def layer_s(self, layer: Layer, verb: str, n_threads: int, n_busy: int) -> float:
        return self.a_layer_s

    def update_s(self, sizes: Sequence[int], n_busy: int) -> float:
        return self.value_s * sum(sizes)

    def crowding(self, n_groups: int) -> float:
        return self.crowd if n_groups == 1 else self.crowd**0.5

    def copied_byte_s(self, n_busy: int) -> float:
        return self.byte_s

    def read_s(self, rows: int, n_busy: int) -> float:
        return self.record_s * rows


FREE = FixedCosts(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def cluster_of(n: int, n_cores: int = 4, link: Link = REAL, speeds: Sequence[float] = ()) -> Cluster:
    """Return a cluster of hosts with a process each."""
    hosts = [Machine(f"host-{i}", n_cores, speed) for i, speed in enumerate(speeds or [1.0] * n)]
    return Cluster(tuple(hosts), tuple(range(n)), link, link)
