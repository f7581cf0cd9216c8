"""Hypothetical clusters: parse the description of a cluster, and return a `Cluster`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from singa_dask.errors import ConfigError
from singa_dask.planner.model import Cluster, Link, Machine
from singa_dask.runtime.planning.machine import cpu_count, machine_memory
from singa_dask.wording import suggest

MAX_SLOTS = 64
"""Maximum number of processes of a hypothetical cluster, unless the cluster has more hosts."""
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
"""For each key: default value (0 means the value of this machine), units, and an example."""
PAYLOAD = 1448 / 1538
"""Share of the bytes on an Ethernet link that remains without the headers of TCP, IP and frames."""


def read_what_if(text: str) -> dict[str, float]:
    """Parse the description of a cluster, e.g. ``hosts=64,link=25Gbit,latency=30us,cores=32``.

    Returns
    -------
    dict of str to float
        The value of each key; 0 means the value of this machine, or no limit.

        - ``hosts``: number of hosts.
        - ``cores``, ``memory``: number of cores and bytes of memory of each host.
        - ``speed``: speed of a core, relative to this machine.
        - ``link``: bytes per second between hosts.
        - ``latency``: seconds between hosts.
        - ``read``: bytes of records that a host can read per second.
        - ``life``: mean lifetime of a process in seconds.

    Raises
    ------
    ConfigError
        A key is unknown, a value cannot be parsed, or there are several hosts but no ``link``.
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
    """Return a cluster of equal hosts. A job uses one process of each host in turn.

    Parameters
    ----------
    values : mapping of str to float
        Result of `read_what_if`.
    within : Link
        The link between processes of one host.
    over_tcp : Link
        The link between processes of one host without shared memory. Writing and reading a message between hosts is
        assumed to take as much CPU time as on this link.
    """
    n, cores = int(values["hosts"]), int(values["cores"]) or cpu_count()
    memory = int(values["memory"]) or machine_memory()
    hosts = tuple(Machine(f"host-{i}", cores, values["speed"], memory) for i in range(n))
    bytes_per_s = values["link"] * PAYLOAD or over_tcp.bytes_per_s
    between = replace(over_tcp, latency_s=over_tcp.latency_s + values["latency"], bytes_per_s=bytes_per_s)
    host_of = tuple(range(n)) * min(cores, max(MAX_SLOTS // n, 2))
    return Cluster(hosts, host_of, within, between, values["read"])
