"""Jobs in threads some processes of which are lost, and start again while the others go on."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import pytest

from singa_dask import fs
from singa_dask.comm.message import Address, Message
from singa_dask.comm.transport import Transport
from singa_dask.conf import JobConf
from singa_dask.runtime import plan_processes
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.planning.layout import Rejoin
from singa_dask.runtime.units.run_unit import run_unit
from singa_dask.runtime.units.server import Server
from singa_dask.runtime.units.unit_host import UnitHost
from tests.runtime.harness import TIMEOUT_S

Applied = dict[tuple[int, int], list[int]]
"""(slice, worker group) -> steps in the order in which a server has applied them."""


def count_updates(monkeypatch: pytest.MonkeyPatch) -> dict[Server, Applied]:
    """Return what each server applies from now on, also servers that are still to come."""
    counted: dict[Server, Applied] = defaultdict(lambda: defaultdict(list))
    real = Server._begin_update

    def counting(server: Server, held: Any, group: int, step: int) -> None:
        real(server, held, group, step)
        counted[server][held.slice.id, group].append(step)

    monkeypatch.setattr(Server, "_begin_update", counting)
    return counted


class Running:
    """A job whose processes are hosts in threads of the test.

    ``on_event`` takes the job and each event, in the thread of the unit that tells it.
    """

    def __init__(
        self, job: JobConf, url: str, on_event: Callable[[Running, dict[str, Any]], None] | None = None
    ) -> None:
        self.job, self.url, self._on_event = job, url, on_event
        self.layout = plan_processes(job.cluster)
        self.reports: dict[Address, dict[str, Any]] = {}
        self.losses: dict[int, list[float]] = defaultdict(list)
        self.hosts: list[UnitHost] = []
        self._parts: dict[str, bytes] = {}
        self._threads: dict[Address, threading.Thread] = {}
        self._manifests: list[dict[str, Any]] = []
        self._changed = threading.Condition()

    def __enter__(self) -> Running:
        self.hosts = [self._new_host(process) for process in range(len(self.layout.processes))]
        for host in self.hosts:
            host.router.connect([each.address for each in self.hosts])
        for host in self.hosts:
            self._start(host, None)
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            host.close()

    def _new_host(self, process: int, rejoin: Rejoin | None = None) -> UnitHost:
        transport = partial(Transport, "tcp://127.0.0.1", incarnation=0, token="of the test")
        return UnitHost(
            "test",
            process,
            self.job,
            transport,
            self._emit,
            layout=self.layout,
            checkpoint_url=fs.join(self.url, "checkpoint"),
            store_part=self._keep,
            rejoin=rejoin,
        )

    def _keep(self, step: int, file: str, content: bytes, known: int) -> list[str]:
        self._parts[file] = content
        return ["here"]

    def _emit(self, event: dict[str, Any]) -> None:
        with self._changed:
            if event["event"] == "metrics" and event["phase"] == "train":
                total, n = event["metrics"]["loss"]
                self.losses[event["group"]].append(total / n)
            elif event["event"] == "snapshot":
                self._manifests.append(event["manifest"])
            self._changed.notify_all()
        if self._on_event:
            self._on_event(self, event)

    def _start(self, host: UnitHost, resume: Checkpoint | None) -> None:
        def run(unit: Address) -> None:
            report = run_unit(host, unit, resume, ())
            if self.hosts[host.process] is host:
                with self._changed:
                    self.reports[unit] = report
                    self._changed.notify_all()

        for unit in host.local:
            self._threads[unit] = threading.Thread(target=run, args=(unit,), daemon=True)
            self._threads[unit].start()

    def wait_for_steps(self, n: int) -> None:
        """Wait until every worker group has done some more steps."""
        with self._changed:
            wanted = {group: len(self.losses[group]) + n for group in range(self.job.cluster.nworker_groups)}
            self._wait(lambda: all(len(self.losses[group]) >= n for group, n in wanted.items()))

    def wait_for_snapshot(self) -> None:
        """Wait until there is another snapshot."""
        with self._changed:
            n = len(self._manifests)
            self._wait(lambda: len(self._manifests) > n)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true; it is checked whenever some worker has done a step, or has ended."""
        with self._changed:
            self._wait(condition)

    def _wait(self, condition: Callable[[], bool]) -> None:
        assert self._changed.wait_for(condition, TIMEOUT_S), f"{self.waits()}; reports so far: {self.reports}"

    def waits(self) -> dict[int, dict[str, Any]]:
        """Return what the units of each process wait for."""
        return {host.process: host.waits() for host in self.hosts}

    def server(self, address: Address) -> Server:
        """Return the server at an address."""
        found = self.hosts[self.layout.process_of[address]].units[address]
        assert isinstance(found, Server)
        return found

    def cut(self, sender: int, receiver: int, monkeypatch: pytest.MonkeyPatch, kind: str = "") -> list[Message]:
        """Lose what a process sends to another one from now on, or one kind of it; return the list that gets it."""
        transport, address = self.hosts[sender].router.transport, self.hosts[receiver].address
        assert transport is not None
        lost, real = list[Message](), transport.send

        def send(to: str, message: Message) -> None:
            if to == address and kind in ("", message.kind):
                with self._changed:
                    lost.append(message)
                    self._changed.notify_all()
            else:
                real(to, message)

        monkeypatch.setattr(transport, "send", send)
        return lost

    def replace(self, lost: Collection[int]) -> dict[int, int]:
        """End processes without servers, and start them again while the others go on.

        Return the first steps of their groups.
        """
        units = [unit for process in lost for unit in self.layout.processes[process]]
        for process in lost:
            self.hosts[process].close()
        others = [host for host in self.hosts if host.process not in lost]
        groups = {unit.group for unit in units if unit.kind == "worker"}
        applied = [host.cut(lost, groups) for host in others]
        snapshot = self._newest_snapshot()
        steps = {group: 1 + min(steps[group] for steps in applied if group in steps) for group in groups}
        rejoin = Rejoin(frozenset(unit for host in others for unit in host.local), frozenset(), steps)
        fresh = [self._new_host(process, rejoin) for process in lost]
        for host in fresh:
            self.hosts[host.process] = host
        for host in fresh:
            host.router.connect([each.address for each in self.hosts])
        for host in others:
            host.router.join({each.process: each.address for each in fresh}, ())
        for host in fresh:
            self._start(host, snapshot)
        return steps

    def _newest_snapshot(self) -> Checkpoint | None:
        if not self._manifests:
            return None
        return Checkpoint.from_manifest(self._manifests[-1], self._parts.get, "the newest snapshot")

    def stop(self) -> None:
        """Stop the job, and wait for its end."""
        for host in self.hosts:
            host.request("stop")
        self.wait_for_the_end()

    def wait_for_the_end(self) -> None:
        """Wait until all units have ended."""
        for unit, thread in self._threads.items():
            thread.join(TIMEOUT_S)
            assert not thread.is_alive(), f"{unit} hangs; {self.waits()}; reports so far: {self.reports}"
