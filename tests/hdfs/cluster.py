"""A real HDFS on this machine, of a NameNode and DataNodes with names of their own, loopback only."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import psutil

from tests.hdfs.jars import HADOOP_3, find_jars, java
from tests.ports import free_port
from tests.runtime.processes import wait_until

__all__ = ["BLOCK_BYTES", "HOSTS", "MiniHdfs"]

HOSTS = ("node-a", "node-b", "node-c")
BLOCK_BYTES = 1 << 20
READY_WITHIN_S = 240
VERSION = os.environ.get("SINGA_DASK_TEST_HADOOP", HADOOP_3)
NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
SHELL = "org.apache.hadoop.fs.FsShell"
# what servers need to start soon: little compilation, and classes that are not verified
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
       "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")  # fmt: skip
# Ends the server when the pipe to us closes: by us, or because we died.
WATCHED = (
    'exec 3<&0; "$@" 3<&- & child=$!; { read line; kill -9 $child; } <&3 & watch=$!; '
    "wait $child; code=$?; kill $watch; exit $code"
)
LOG4J = """log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c: %m%n
"""


class MiniHdfs:
    """A NameNode and a DataNode for each name in ``hosts``; use it in a ``with`` statement.

    Attributes
    ----------
    url : str
        ``hdfs://...`` of the NameNode.
    http : str
        Address of its web server, WebHDFS too where ``has_webhdfs``.
    """

    jvm = JVM

    def __init__(
        self, directory: Path, replication: int = 2, hosts: Sequence[str] = HOSTS, version: str = VERSION
    ) -> None:
        # Hadoop fails where the path of its data has blanks
        self._link = Path(tempfile.mkdtemp(dir="/tmp")) / "link" if " " in str(directory) else None
        if self._link is not None:
            self._link.symlink_to(directory.parent)
            directory = self._link / directory.name
        self.directory = directory
        self.hosts = hosts
        self.java, (jars, self.has_webhdfs) = java(), find_jars(version)
        addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.url, self.http = f"hdfs://{addresses[0]}", f"http://{addresses[1]}"
        self._class_path = os.pathsep.join([str(directory / "conf"), *map(str, jars)])
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._addresses: dict[str, str] = {}
        self._stopped: set[str] = set()
        self.namenodes: tuple[str, ...] = ("namenode",)
        self._old_addresses: set[str] = set()
        self._configure(addresses, replication)

    def _settings(self, addresses: Sequence[str], replication: int) -> dict[str, Any]:
        """Return Hadoop's settings for all servers and clients."""
        return {
            "fs.defaultFS": self.url,
            "hadoop.tmp.dir": self.directory / "tmp",
            "dfs.namenode.name.dir": (self.directory / "name").as_uri(),
            "dfs.namenode.rpc-address": addresses[0],
            "dfs.namenode.http-address": addresses[1],
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.fs-limits.min-block-size": 1024,
            "dfs.namenode.heartbeat.recheck-interval": 2000,
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.safemode.threshold-pct": 0,
            "dfs.datanode.address": "127.0.0.1:0",
            "dfs.datanode.http.address": "127.0.0.1:0",
            "dfs.datanode.ipc.address": "127.0.0.1:0",
            "dfs.blocksize": BLOCK_BYTES,
            "dfs.heartbeat.interval": 1,
            "dfs.permissions.enabled": "true",
            "dfs.permissions.superusergroup": "none",
            "dfs.replication": replication,
            "dfs.webhdfs.enabled": str(self.has_webhdfs).lower(),
        }

    def _configure(self, addresses: Sequence[str], replication: int) -> None:
        conf = self.directory / "conf"
        conf.mkdir(parents=True)
        properties = "".join(
            f"<property><name>{name}</name><value>{escape(str(value))}</value></property>\n"
            for name, value in self._settings(addresses, replication).items()
        )
        for name in ("core-site.xml", "hdfs-site.xml"):
            (conf / name).write_text(f"<configuration>\n{properties}</configuration>\n")
        (conf / "log4j.properties").write_text(LOG4J)
        # the web pages are not in the jar, and without a place for them no server starts
        for name in ("hdfs", "datanode", "static"):
            pages = conf / "webapps" / name / "WEB-INF"
            pages.mkdir(parents=True)
            (pages / "web.xml").write_text("<web-app/>")

    def __enter__(self) -> MiniHdfs:
        with ExitStack() as stack:
            stack.callback(self.close)
            self._run("format", NAMENODE, "-format", "-nonInteractive").wait(READY_WITHIN_S)
            self.start_namenode("namenode")
            for host in self.hosts:
                self.start_datanode(host)
            wait_until(self.is_ready, f"the HDFS in {self.directory} is ready", READY_WITHIN_S)
            if self.has_webhdfs:
                self._load_webhdfs()
            stack.pop_all()
        return self

    def _load_webhdfs(self) -> None:
        """Ask by WebHDFS once: the first answer can take a busy machine longer than clients wait for one."""
        query = f"{self.http}/webhdfs/v1/?op=LISTSTATUS"
        with suppress(OSError), urllib.request.urlopen(query, timeout=READY_WITHIN_S):
            pass

    def __exit__(self, *_: object) -> None:
        self.close()
        shutil.rmtree(self.directory)
        if self._link is not None:
            shutil.rmtree(self._link.parent)

    def close(self) -> None:
        """End every server."""
        for name in list(self._processes):
            self.kill(name)

    def start_namenode(self, name: str) -> None:
        """Start a NameNode that is formatted."""
        self._run(name, NAMENODE)

    def start_datanode(self, host: str) -> None:
        """Start the DataNode of a name."""
        data = (self.directory / host).as_uri()
        self._run(host, DATANODE, f"-Ddfs.datanode.hostname={host}", f"-Ddfs.datanode.data.dir={data}")

    def kill(self, name: str) -> None:
        """Kill ``"namenode"`` or the DataNode of a name, as a loss of power would."""
        self._stopped.discard(name)
        process = self._processes.pop(name)
        self._old_addresses.add(self._addresses.get(name, ""))
        assert process.stdin is not None
        process.stdin.close()
        process.wait(READY_WITHIN_S)

    def stop(self, name: str) -> None:
        """Stop ``"namenode"`` or the DataNode of a name: its connections stay open, and it answers nothing."""
        self.java_of(name).suspend()
        self._stopped.add(name)

    def java_of(self, name: str) -> psutil.Process:
        """Return the process of a server."""
        children = psutil.Process(self._processes[name].pid).children()
        return next(child for child in children if child.name() == "java")

    def restart_killed(self) -> None:
        """Start again what was killed, and let go on what was stopped."""
        while self._stopped:
            name = self._stopped.pop()
            if name in self._processes:
                self.java_of(name).resume()
        for name in self.namenodes:
            if name not in self._processes:
                self.start_namenode(name)
        for host in self.hosts:
            if host not in self._processes:
                self.start_datanode(host)

    def block_files(self) -> list[Path]:
        """Return the files in which the DataNodes keep blocks."""
        found = [path for host in self.hosts for path in (self.directory / host).rglob("blk_*")]
        return sorted(path for path in found if path.suffix != ".meta")

    def tool(self, name: str = SHELL) -> list[str]:
        """Return the command line of a program of Hadoop, to which its arguments are added; by default ``hdfs dfs``."""
        return [self.java, *self.jvm, "-cp", self._class_path, name]

    def is_ready(self) -> bool:
        """Say whether all servers are up and the NameNode knows them."""
        for name, process in self._processes.items():
            log = (self.directory / f"{name}.log").read_text()
            assert name == "format" or process.poll() is None, f"{name} has ended:\n{log}"
        info = self._bean("NameNodeInfo")
        # a DataNode that was started again has another port; until it is known, the NameNode sends clients to the old
        live = {
            name.partition(":")[0]: node["xferaddr"] for name, node in json.loads(info.get("LiveNodes", "{}")).items()
        }
        if info.get("Safemode") != "" or set(live) != set(self.hosts) or set(live.values()) & self._old_addresses:
            return False
        self._addresses = live
        return True

    def _bean(self, name: str) -> dict[str, Any]:
        query = f"{self.http}/jmx?qry=Hadoop:service=NameNode,name={name}"
        with suppress(OSError, ValueError), urllib.request.urlopen(query, timeout=5) as answer:
            for bean in json.load(answer)["beans"]:
                return dict(bean)
        return {}

    def _run(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        whole = ["sh", "-c", WATCHED, "sh", self.java, *self.jvm, "-cp", self._class_path, *command]
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(whole, stdin=subprocess.PIPE, stdout=log, stderr=log)
        return self._processes[name]
