"""Hypothetical clusters: read a description of a cluster, and return a `Cluster`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from singa_dask.errors import ConfigError
from singa_dask.planner.model import Cluster, Link, Machine
from singa_dask.registry import suggest
from singa_dask.runtime.planning.machine import cpu_count, machine_memory

MAX_SLOTS = 64
"""Most processes of a hypothetical cluster with fewer hosts."""
ONE = {"": 1.0}
WHAT_IF: dict[str, tuple[float, Mapping[str, float], str]] = {
    "hosts": (1, ONE, "64"),
    "cores": (0, ONE, "32"),
    "link": (0, {"Gbit": 1e9 / 8, "Mbit": 1e6 / 8}, "25Gbit"),
    "latency": (50e-6, {"us": 1e-6, "ms": 1e-3, "s": 1.0}, "30us"),
    "memory": (0, {"GiB": 2.0**30, "GB": 1e9, "MiB": 2.0**20, "MB": 1e6}, "64GiB"),
    "speed": (1, ONE, "1.5"),
    "read": (0, {"Gbit": 1e9 / 8, "Mbit": 1e6 / 8, "GB": 1e9, "MB": 1e6}, "200MB"),
    "life": (0, {"h": 3600.0, "d": 86400.0}, "10000h"),
}
"""Default (0: as this machine), units and an example of each key."""
PAYLOAD = 1448 / 1538
"""Share of the bytes on an Ethernet link that are not headers of TCP, IP and frames."""


def read_what_if(text: str) -> dict[str, float]:
    """Read ``hosts=64,link=25Gbit,latency=30us,cores=32``.

    Returns
    -------
    dict of str to float
        ``hosts``, their number; ``cores`` and ``memory`` of each, in bytes; ``speed`` of a core, relative to this
        machine; ``link``, in bytes per second; ``latency`` between hosts, in seconds; ``read``, the bytes per second
        that a host can read; ``life``, the mean lifetime of a process in seconds. 0 means the value of this machine, or
        no limit.

    Raises
    ------
    ConfigError
        A key or a value cannot be read, or several hosts have no link.
    """
    values = {key: default for key, (default, _, _) in WHAT_IF.items()}
    for part in text.split(",") if text else ():
        key, _, said = part.strip().partition("=")
        if key not in WHAT_IF:
            raise ConfigError(f"--what-if {part}: unknown key {key!r}. {suggest(key, list(WHAT_IF))}")
        _, units, example = WHAT_IF[key]
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", said)
        values[key] = float(match[1]) * units[match[2]] if match and match[2] in units else 0.0
        if not values[key] or (key in ("hosts", "cores") and values[key] % 1):
            unit = f" in {' or '.join(units)}" if units is not ONE else ""
            raise ConfigError(f"--what-if {part}: expected a number{unit}, e.g. {key}={example}.")
    if values["hosts"] > 1 and not values["link"]:
        raise ConfigError("--what-if: several hosts need a link. Set its speed, e.g. link=25Gbit.")
    return values


def imagined_cluster(values: Mapping[str, float], within: Link, over_tcp: Link) -> Cluster:
    """Return a cluster of equal hosts; see `read_what_if`. A job uses one process of each host in turn.

    ``within`` is the link between processes of one host. ``over_tcp`` is this link without shared memory, in which
    threads take as long to write and read messages as between hosts.
    """
    n, cores = int(values["hosts"]), int(values["cores"]) or cpu_count()
    memory = int(values["memory"]) or machine_memory()
    hosts = tuple(Machine(f"host-{i}", cores, values["speed"], memory) for i in range(n))
    bytes_per_s = values["link"] * PAYLOAD or over_tcp.bytes_per_s
    between = replace(over_tcp, latency_s=over_tcp.latency_s + values["latency"], bytes_per_s=bytes_per_s)
    host_of = tuple(range(n)) * min(cores, max(MAX_SLOTS // n, 2))
    return Cluster(hosts, host_of, within, between, values["read"])
