"""Topology: groups of workers and servers, and their processes (SINGA's ClusterProto)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BeforeValidator

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, NonNegative, Size
from singa_dask.conf.mistakes import Finding

_PORTS = re.compile(r"(\d+)(?:-(\d+))?")
_MAX_PORT = 65535


class ElasticConf(Conf):
    """``elastic`` of a cluster: bounds for the number of processes while a job runs."""

    min_processes: Size = 1
    """Minimum number of processes with which the job continues after it has lost others."""
    max_processes: Size | None = None
    """Maximum number of processes; by default the number of the cluster block."""

    def rules(self) -> Iterator[Finding]:
        """Check that the minimum is not above the maximum."""
        least, most = self.min_processes, self.max_processes
        if most is not None and most < least:
            yield ("min_processes",), f"expected at most max_processes, which is {most}, got {least}."


def _text_of_number(value: object) -> object:
    return str(value) if type(value) is int else value


class ListenConf(Conf):
    """``listen`` of a cluster: network interface, ports and shared memory for messages between processes."""

    interface: str = ""
    """Network interface such as ``eth0``, IP address or host name, looked up on the host of each process; ``0.0.0.0``
    for all interfaces. By default the host of the Dask worker."""
    ports: Annotated[str, BeforeValidator(_text_of_number)] = ""
    """A port or a range such as ``9000-9100``; each process takes the first free one. By default any port."""
    shared_memory: bool = True
    """Pass arrays between processes of one host through shared memory, if the system supports it."""

    def rules(self) -> Iterator[Finding]:
        """Check the range of ports."""
        found = _PORTS.fullmatch(self.ports)
        first, last = map(int, (found[1], found[2] or found[1])) if found else (0, 0)
        if self.ports and not 0 < first <= last <= _MAX_PORT:
            yield (
                ("ports",),
                f"expected a port or a range such as 9000-9100, from 1 to {_MAX_PORT}, got {self.ports!r}.",
            )

    @property
    def port_range(self) -> range:
        """The ports to choose from; only 0 for any port."""
        first, _, last = (self.ports or "0").partition("-")
        return range(int(first), int(last or first) + 1)


class WorkersConf(Conf):
    """``workers`` of a cluster: the Dask workers that a job may use; by default all."""

    name: Annotated[str, BeforeValidator(_text_of_number)] = ""
    """Pattern of the names of Dask workers, such as ``gpu-*``."""
    resources: Mapping[str, NonNegative] = {}
    """Minimum resources of a Dask worker, such as ``{GPU: 1}``, set by ``dask-worker --resources``. Jobs do not
    reserve resources."""

    @property
    def is_any(self) -> bool:
        """Whether all Dask workers may be used."""
        return not (self.name or self.resources)

    def fits(self, name: str, resources: Mapping[str, float]) -> bool:
        """Return whether a Dask worker may be used."""
        has_all = all(resources.get(key, 0) >= least for key, least in self.resources.items())
        return fnmatchcase(name, self.name or "*") and has_all


class ClusterConf(Conf):
    """``cluster`` (SINGA's ClusterProto)."""

    nworker_groups: Size = 1
    """Number of worker groups; each trains its own copy of the net without waiting for the others."""
    nserver_groups: Size = 1
    """Number of server groups; each keeps its own copy of the params."""
    nworkers_per_group: Size = 1
    """Number of workers that share each batch of a group."""
    nservers_per_group: Size = 1
    """Number of servers that share the params of a group."""
    nworkers_per_procs: Size = 1
    """Number of workers per process."""
    nservers_per_procs: Size = 1
    """Number of servers per process."""
    workspace: str = ""
    """URL or path of the directory of runs."""
    server_worker_separate: bool = False
    """Run servers and workers in different processes."""
    sync_freq: Size = 1
    """Number of updates of a slice between two exchanges of server groups."""
    start_port: Count = 6723
    """Unused; see ``listen``."""
    share_memory: bool = True
    """Let worker groups of one process share the memory of their params."""
    snapshot_freq: Count | None = None
    """Number of steps between two snapshots; 0 for no snapshots. A snapshot is a copy of the job's state in the
    memory of its processes, from which the job continues after it has lost a process. By default, snapshots are so
    frequent that they take 1 % of the time."""
    poll_time: Count = 100
    """Unused."""
    # do not validate these defaults: building a validator would take a millisecond at import
    elastic: ElasticConf = ElasticConf.model_construct()
    """Bounds for the number of processes while the job runs."""
    listen: ListenConf = ListenConf.model_construct()
    """Network interface and ports of the job's processes."""
    workers: WorkersConf = WorkersConf.model_construct()
    """The Dask workers that the job may use."""
    max_restarts: Count = 10
    """Maximum number of restarts without progress, after which the job fails; 0 for none."""
    wait_for_workers_minutes: NonNegative = 10.0
    """Minutes that a job waits for Dask workers after it has lost processes or the network, before it fails."""

    def rules(self) -> Iterator[Finding]:
        """Check that server groups serve equally many worker groups, and the bounds of ``elastic``."""
        workers, servers = self.nworker_groups, self.nserver_groups
        if workers % servers:
            message = f"expected a number that divides nworker_groups, which is {workers}, got {servers}."
            yield ("nserver_groups",), message
        of_workers = -(-workers * self.nworkers_per_group // self.nworkers_per_procs)
        of_servers = -(-servers * self.nservers_per_group // self.nservers_per_procs)
        n = of_workers + of_servers if self.server_worker_separate else max(of_workers, of_servers)
        for key, found in self.elastic:
            if found is not None and found > n:
                message = f"expected at most the number of processes of the job, which is {n}, got {found}."
                yield ("elastic", key), message
