"""A real HDFS of two NameNodes that share their edits in a local directory, of which one is active."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.hdfs.cluster import HOSTS, NAMENODE, READY_WITHIN_S, MiniHdfs
from tests.runtime.processes import wait_until

__all__ = ["SERVICE", "HdfsPair"]

SERVICE = "pair"
NAMENODES = ("one", "two")
ADMIN = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"


class HdfsPair(MiniHdfs):
    """Two NameNodes, ``"one"`` which begins as the active one and ``"two"``, and DataNodes.

    Attributes
    ----------
    options : dict
        Storage options with which ``hdfs://pair`` is accessed.
    """

    def __init__(self, directory: Path, hosts: Sequence[str] = HOSTS) -> None:
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(4)]
            for each in sockets:
                each.bind(("127.0.0.1", 0))
            self._ports = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
        self.active = "one"
        super().__init__(directory, hosts=hosts)
        self.namenodes = NAMENODES
        self.url, self.http = f"hdfs://{SERVICE}", f"http://{self._ports[2]}"
        self.options: dict[str, Any] = {"config_dir": str(directory / "conf")}

    def _settings(self, addresses: Any, replication: int) -> dict[str, Any]:
        settings = super()._settings(addresses, replication)
        del settings["dfs.namenode.rpc-address"], settings["dfs.namenode.http-address"]
        provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        settings |= {
            "fs.defaultFS": f"hdfs://{SERVICE}",
            "dfs.nameservices": SERVICE,
            f"dfs.ha.namenodes.{SERVICE}": ",".join(NAMENODES),
            f"dfs.client.failover.proxy.provider.{SERVICE}": provider,
            "dfs.ha.fencing.methods": "shell(/bin/true)",
            "dfs.namenode.shared.edits.dir": (self.directory / "edits").as_uri(),
            "dfs.ha.log-roll.period": 1,
            "dfs.ha.tail-edits.period": 1,
        }
        for i, name in enumerate(NAMENODES):
            settings[f"dfs.namenode.rpc-address.{SERVICE}.{name}"] = self._ports[i]
            settings[f"dfs.namenode.http-address.{SERVICE}.{name}"] = self._ports[2 + i]
        return settings

    def __enter__(self) -> HdfsPair:
        with ExitStack() as stack:
            stack.callback(self.close)
            self._run("format", NAMENODE, *self._own("one"), "-format", "-nonInteractive").wait(READY_WITHIN_S)
            shutil.copytree(self.directory / "name-one", self.directory / "name-two")
            self.start_namenode("one")
            self._admin("-transitionToActive", "--forceactive", "one")
            self.start_namenode("two")
            for host in self.hosts:
                self.start_datanode(host)
            self.kill("format")
            wait_until(self.is_ready, f"the HDFS in {self.directory} is ready", READY_WITHIN_S)
            stack.pop_all()
        return self

    def _own(self, name: str) -> list[str]:
        directory = (self.directory / f"name-{name}").as_uri()
        return [f"-Ddfs.ha.namenode.id={name}", f"-Ddfs.namenode.name.dir={directory}"]

    def _admin(self, *arguments: str) -> None:
        """Run Hadoop's ``hdfs haadmin`` until it succeeds: a NameNode that starts does not listen yet."""
        command = [*self.tool(ADMIN), *arguments]
        wait_until(
            lambda: subprocess.run(command, capture_output=True).returncode == 0, " ".join(arguments), READY_WITHIN_S
        )

    def start_namenode(self, name: str) -> None:
        """Start a NameNode, which is not active."""
        self._run(name, NAMENODE, *self._own(name))

    def fail_over(self) -> None:
        """Kill the active NameNode, and let the other one take over, which waits for one that hangs."""
        self.kill(self.active)
        (other,) = {*NAMENODES} - {self.active}
        self._admin("-transitionToActive", "--forceactive", other)
        self.active, self.http = other, f"http://{self._ports[2 + NAMENODES.index(other)]}"

    def restart_killed(self) -> None:
        """Start again what was killed, and let go on what was stopped."""
        is_missing = self.active not in self._processes
        super().restart_killed()
        if is_missing:
            self._admin("-transitionToActive", "--forceactive", self.active)
