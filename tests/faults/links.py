"""A cluster in a network of its own, whose links a test cuts: network namespaces, joined by a bridge."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.runtime.processes import ROOT, TIMEOUT_S, wait_until

__all__ = ["Network", "has_namespaces", "network"]

HOLD = ["sleep", "infinity"]
# else a job may begin on the last hosts, if the machine is busy, and tests cut the first
WAIT = (
    "import sys, distributed as d; d.Client(scheduler_file=sys.argv[1]).wait_for_workers(int(sys.argv[2]), timeout=60)"
)
SUBNET = "10.213.7"


def has_namespaces() -> bool:
    """Return whether a user may make networks here."""
    try:
        test = "ip link add name b type bridge && ip link add name v type veth peer name w"
        done = subprocess.run(["unshare", "-rn", "sh", "-c", test], capture_output=True, timeout=TIMEOUT_S)
    except FileNotFoundError:
        return False
    return done.returncode == 0


class Network:
    """Hosts on one bridge: number 0 has the scheduler and the client, each other one a worker.

    Parameters
    ----------
    stack : ExitStack
        Ends all processes.
    directory : Path
        For logs and the scheduler's file.
    n_workers : int
    """

    def __init__(self, stack: ExitStack, directory: Path, n_workers: int) -> None:
        self._stack, self.directory = stack, directory
        self.file = directory / "scheduler.json"
        self._pids = [self._hold(["unshare", "-rn"])]
        # else the address of the bridge is the least of its links', and changes for all when that one is cut
        self._ip(0, "link add name bridge address 02:00:00:00:00:01 type bridge")
        self._ip(0, f"addr add {self.host(0)}/24 dev bridge; link set bridge up")
        # a bridge that is down; without one, host 0 would still receive what a host that is cut off sends
        self._ip(0, "link add name nowhere type bridge")
        for i in range(1, n_workers + 1):
            self._add_host(i)

    def _hold(self, command: Sequence[str]) -> int:
        """Start a process that keeps a namespace; return its ID when the namespace is ready, its users too."""
        process = self._stack.enter_context(subprocess.Popen([*command, *HOLD]))
        self._stack.callback(process.kill)
        wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text().strip() == HOLD[0], "a network namespace")
        return process.pid

    def _add_host(self, i: int) -> None:
        pid = self._hold([*self.inside(0), "unshare", "-n"])
        self._pids.append(pid)
        self._ip(
            0, f"link add name v{i} type veth peer name e{i}; link set e{i} netns {pid}; link set v{i} master bridge"
        )
        self._ip(0, f"link set v{i} up")
        self._ip(i, f"addr add {self.host(i)}/24 dev e{i}; link set e{i} up")

    def host(self, i: int) -> str:
        """Return the IP address of a host."""
        return f"{SUBNET}.{i + 1}"

    def inside(self, i: int) -> list[str]:
        """Return the beginning of a command on a host."""
        return ["nsenter", "--preserve-credentials", "-U", "-n", "-t", str(self._pids[i])]

    def _run(self, i: int, *command: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*self.inside(i), *command], capture_output=True, timeout=TIMEOUT_S)

    def _ip(self, i: int, commands: str) -> None:
        for command in ["link set lo up", *commands.split("; ")]:
            done = self._run(i, "ip", *command.split())
            assert done.returncode == 0, f"ip {command}: {done.stderr.decode()}"

    def start(self, i: int, *arguments: str) -> None:
        """Start a part of a Dask cluster on a host."""
        log = self._stack.enter_context((self.directory / f"host-{i}.log").open("wb"))
        options = ["--host", self.host(i), "--no-dashboard", "--scheduler-file", str(self.file)]
        command = [*self.inside(i), sys.executable, "-m", "dask", *arguments, *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        self._stack.enter_context(process)
        self._stack.callback(process.kill)

    def cut(self, *hosts: int) -> None:
        """Let nothing pass to hosts or from them, without telling anyone."""
        for i in hosts:
            self._ip(0, f"link set v{i} master nowhere")

    def part(self, *hosts: int) -> None:
        """Let nothing pass between these hosts; host 0 still reaches all of them."""
        for i in hosts:
            self._ip(0, f"link set v{i} type bridge_slave isolated on")

    def mend(self, *hosts: int) -> None:
        """Join hosts to the others again."""
        for i in hosts:
            self._ip(0, f"link set v{i} master bridge; link set v{i} type bridge_slave isolated off")


@contextmanager
def network(directory: Path, n_workers: int, n_clients: int = 0) -> Iterator[Network]:
    """Start a scheduler and workers without nannies, each on a host of its own; hosts for clients come after them."""
    with ExitStack() as stack:
        made = Network(stack, directory, n_workers + n_clients)
        made.start(0, "scheduler", "--port", "0")
        for i in range(1, n_workers + 1):
            made.start(i, "worker", "--no-nanny", "--nthreads", "2", "--memory-limit", "0", "--name", f"host{i}",
                       "--local-directory", str(directory), "--preload", "tests.runtime.ahead",
                       "--preload", "tests.faults.parts")  # fmt: skip
        done = made._run(0, sys.executable, "-c", WAIT, str(made.file), str(n_workers))
        assert done.returncode == 0, done.stderr.decode()
        yield made
