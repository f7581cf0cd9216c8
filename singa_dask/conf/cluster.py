"""Topology: groups of workers and of servers, and the processes they live in (SINGA's ClusterProto)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from singa_dask.conf.model import Conf, Count, Finding, Size, raw_value

__all__ = ["ClusterConf"]


class ClusterConf(Conf):
    """``cluster`` (SINGA's ClusterProto)."""

    nworker_groups: Size = 1
    """Worker groups; each trains its own copy of the net, without waiting for the others."""
    nserver_groups: Size = 1
    """Server groups; each keeps its own copy of the params."""
    nworkers_per_group: Size = 1
    """Workers that share each batch of a group."""
    nservers_per_group: Size = 1
    """Servers that share the params of a group."""
    nworkers_per_procs: Size = 1
    """Workers in one process."""
    nservers_per_procs: Size = 1
    """Servers in one process."""
    workspace: str = ""
    """URL or path under which runs are written."""
    server_worker_separate: bool = False
    """Keep servers and workers in different processes."""
    sync_freq: Size = 1
    """Updates of a slice between two exchanges of server groups."""
    start_port: Count = 6723
    """Unused: ports are found."""
    share_memory: bool = True
    """Let worker groups of one process use one memory for their params."""
    poll_time: Count = 100
    """Unused: nothing polls."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that each server group serves equally many worker groups."""
        workers, servers = (raw_value(data, key, int, 1) for key in ("nworker_groups", "nserver_groups"))
        if workers > 0 and servers > 0 and workers % servers:
            yield (
                ("nserver_groups",),
                f"expected a number that divides nworker_groups, which is {workers}, got {servers}.",
            )
