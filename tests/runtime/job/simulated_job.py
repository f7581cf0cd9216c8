"""SimulatedJob: carries out what a `JobState` decides, on a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import combinations, product
from typing import Any

from singa_dask.comm.message import Address
from singa_dask.conf import ClusterConf
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev
from singa_dask.runtime.job.state.job_state import JobState
from singa_dask.runtime.job.state.restarts import snapshot_name
from singa_dask.runtime.job.state.submission import JobSpec
from singa_dask.runtime.planning.layout import Layout, plan_processes
from tests.runtime.job.simulated_cluster import Hosting, Node, SimulatedCluster

TICK_S, ASK_S, HOST_S, LOST_S = 0.5, 5.0, 50.0, 10.0
RESUME = "file:///before/checkpoint/step-0"


class SimulatedJob(SimulatedCluster):
    """A job on a simulated cluster, which carries out what its `JobState` decides.

    Parameters
    ----------
    cluster : str
        The job's cluster block as JSON.
    nodes : sequence of Node
    seed : int
        Of all delays.
    n_steps : int
        Of each worker group.
    """

    def __init__(self, cluster: str, nodes: list[Node], seed: int = 0, n_steps: int = 40) -> None:
        super().__init__(nodes, seed)
        self.over: act.Over | None = None
        self.told: list[Mapping[str, Any]] = []
        self.delivered: list[Any] = []
        self.done_actions: list[Any] = []
        self.snapshots: list[ev.Snapshotted] = []
        self.is_scheduled = True  # snapshots are taken also where nobody asks for one
        self.incarnations: dict[int, int] = {}  # of each process: newest incarnation that was hosted
        self.hosts: dict[int, act.Host] = {}
        self.endpoints: dict[tuple[int, int], str] = {}
        self.joined: set[tuple[int, int]] = set()  # process, incarnation of those that it has been told of
        self.position: dict[int, int] = {}
        self.drops: list[type] = []
        self.asked_for_checkpoints: list[str] = []
        self.layout = layout = self.layout_of(cluster)
        self.done: set[Address] = set()
        self.ends = dict.fromkeys(self.groups, n_steps)
        self.state = JobState(self._spec(cluster, self.choose(len(layout.processes))))
        self._do(self.state.begin(self.now, self.facts()))
        self._every(TICK_S, self._tick)
        self._every(0.25, self._train)
        self._every(2.0, lambda: self.snapshot() if self.is_scheduled else None)

    @staticmethod
    def layout_of(cluster: str) -> Layout:
        """Return the units of each process."""
        return plan_processes(ClusterConf.model_validate_json(cluster))

    def _spec(self, cluster: str, workers: list[str]) -> JobSpec:
        job = f'{{"cluster": {cluster}}}'
        return JobSpec(job_id="job", job=job, workers=workers, assignments={}, resume=RESUME, client="client")

    @property
    def groups(self) -> list[int]:
        """All worker groups."""
        return sorted({unit.group for unit in self.layout.units if unit.kind == "worker"})

    def run_until_over(self, within: float) -> Mapping[str, Any]:
        """Let time pass until the job is over; return its last event."""
        end = self.now + within
        while self.over is None and self.now < end:
            self.run(1.0)
        assert self.over is not None, f"stuck in {self.state.phase}: {self.history()}"
        return asdict(self.over.end)

    def _tick(self) -> None:
        for address in dict.fromkeys(self.state.workers):
            if address in self.nodes and self.is_silent(self.nodes[address]):
                self.deliver(ev.Gone(address, "there has been no heartbeat for 5 s"))
        steps = {}
        for node in self.nodes.values():
            for each in node.hostings.values() if node.works and node.address in self.state.workers else ():
                if each.incarnation in self.state.roster.incarnations:
                    steps |= {str(u.group): self.position[u.group] for u in each.running if u.kind == "worker"}
                if not self.state.roster.has(each.process, each.incarnation) or self.over:
                    self.soon(lambda node=node, each=each: self._end(node, each.incarnation, each.process))  # type: ignore[misc]
        if steps and steps != self.state.steps:
            self.deliver(ev.Stepped(self.state.incarnation, steps))
        self.deliver(ev.Tick())

    # -- events ------------------------------------------------------------------------------------------------------

    def deliver(self, event: Any) -> None:
        """Give the job an event."""
        for kind in self.drops:
            if isinstance(event, kind):
                self.drops.remove(kind)
                self.log.append(f"{self.now - 1000:.2f} LOST {event}")
                return
        if not isinstance(event, ev.Tick | ev.Stepped):
            self.log.append(f"{self.now - 1000:.2f} {event}"[:300])
        if isinstance(event, ev.Hosted) and not event.error:
            self.endpoints[event.process, event.incarnation] = event.endpoint
        if isinstance(event, ev.Joined) and not event.error:
            self.joined.add((event.process, self.state.incarnation))
        self.delivered.append(event)
        if isinstance(event, ev.Snapshotted) and event.incarnation in self.state.roster.incarnations:
            self.snapshots.append(event)
        actions = self.state.handle(event, self.now, self.facts())
        assert not (self.over and actions), f"after the end: {actions}"
        self._do(actions)

    def _do(self, actions: list[Any]) -> None:
        for action in actions:
            assert self.over is None, f"after Over: {action}"
            self.done_actions.append(action)
            if not isinstance(action, act.Tell):
                self.log.append(f"{self.now - 1000:.2f}   -> {action}"[:400])
            getattr(self, "_do_" + type(action).__name__.lower())(action)
        hosted = [each for each in actions if isinstance(each, act.Host)]
        if hosted:
            self.check_placement(hosted)

    def _do_tell(self, action: act.Tell) -> None:
        self.told.append(action.what)
        self.log.append(f"{self.now - 1000:.2f}   -> tell {action.what}"[:300])

    def _do_over(self, action: act.Over) -> None:
        self.over = action

    # -- what Dask workers do ----------------------------------------------------------------------------------------

    def _ask(self, address: str, timeout_s: float, do: Callable[[Node], None], fail: Callable[[str], None]) -> None:
        """Call a Dask worker, which may be gone, or answer too late."""
        node = self.nodes.get(address)

        def arrive() -> None:
            if node is None or node.is_dead:
                fail("it is gone")
            elif node.frozen_at is not None:
                node.later.append(lambda: do(node))
                self.at(timeout_s, lambda: fail("it does not answer"))
            else:
                do(node)

        self.soon(arrive)

    def _do_host(self, action: act.Host) -> None:
        def fail(why: str) -> None:
            self.soon(lambda: self.deliver(ev.Hosted(action.incarnation, action.process, error=why)))

        def host(node: Node) -> None:
            for each in list(node.hostings.values()):
                if each.incarnation < action.roster.full_incarnation or (
                    each.process == action.process and each.incarnation < action.incarnation
                ):
                    self._close(node, each)
            if action.incarnation < node.oldest.get(action.process, 0):
                fail("this incarnation is over")
            elif node.host_error:
                error, node.host_error = node.host_error, ""
                facts = {"final": error == "final", "lasting": error == "lasting"}
                hosted = ev.Hosted(action.incarnation, action.process, error=error, **facts)
                self.soon(lambda: self.deliver(hosted))
            else:
                node.hostings[action.process] = Hosting(action.incarnation, action.process, action, self.now)
                endpoint = f"{action.worker}/{action.process}/{action.incarnation}"
                self.soon(lambda: self.deliver(ev.Hosted(action.incarnation, action.process, endpoint)))

        self._ask(action.worker, HOST_S, host, fail)

    def _do_rununits(self, action: act.RunUnits) -> None:
        self.check_run(action)

        def start(node: Node) -> None:
            each = node.hostings.get(action.process)
            if each is not None and each.incarnation == action.incarnation:
                each.waiting = [action.units[i :: action.n_tasks] for i in range(action.n_tasks)]
                self._run_waiting(node)
                self._read_start(node, each)

        self._ask(action.worker, ASK_S, start, lambda why: None)

    def _read_start(self, node: Node, each: Hosting) -> None:
        """Let a unit fail if a part of the snapshot that it starts from has been dropped everywhere."""
        start = each.placement.start
        for part in start["manifest"]["parts"] if "manifest" in start and not each.placement.rejoin else ():
            there = [self.nodes[holder] for holder in part["holders"] if holder in self.nodes]
            if not any(part["file"] in holder.parts for holder in there) and each.running:
                reason = f"{part['file']}: nobody has it any more."
                failed = {
                    "reason": reason,
                    "exit_code": 4,
                    "retry": True,
                    "unreadable": snapshot_name(start["manifest"]["step"]),
                }
                self.report(node, each, min(each.running), state="failed", **failed)
                return

    def _run_waiting(self, node: Node) -> None:
        """Start tasks for which there are threads."""
        for each in node.hostings.values():
            used = node.busy + sum(other.n_threads for other in node.hostings.values())
            while each.waiting and used < node.nthreads:
                used, each.n_threads = used + 1, each.n_threads + 1
                for unit in each.waiting.pop(0):
                    each.running.add(unit)
                    self._say(node, each, {"event": "unit", "unit": str(unit)})

    def _say(self, node: Node, each: Hosting, what: Mapping[str, Any]) -> None:
        self.soon(lambda: None if node.is_dead else self.deliver(ev.decisive(each.incarnation, what)))

    def report(self, node: Node, each: Hosting, unit: Address, **report: Any) -> None:
        """Let a unit end."""
        each.running.discard(unit)
        what = {"unit": str(unit), "step": self.position.get(unit.group, -1), **report}
        self.soon(lambda: None if node.is_dead else self.deliver(ev.Reported(each.incarnation, unit, what)))

    def _close(self, node: Node, each: Hosting) -> None:
        for unit in list(each.running):
            self.report(node, each, unit, state="aborted")
        if node.hostings.get(each.process) is each:
            del node.hostings[each.process]
        self._run_waiting(node)

    def _end(self, node: Node, incarnation: int, process: int | None) -> None:
        for p in {*node.hostings, *range(len(self.layout.processes))}:
            if process in (None, p):
                node.oldest[p] = max(node.oldest.get(p, 0), incarnation + 1)
        for each in list(node.hostings.values()):
            if each.incarnation <= incarnation and process in (None, each.process):
                self._close(node, each)

    def _do_endincarnation(self, action: act.EndIncarnation) -> None:
        def end(node: Node) -> None:
            self._end(node, action.incarnation, action.process)
            self.soon(lambda: self.deliver(ev.Ended(action.incarnation, action.worker, {}, action.process)))

        self._ask(action.worker, 10.0, end, lambda why: None)

    def _do_cutoff(self, action: act.CutOff) -> None:
        def fail(why: str) -> None:
            self.deliver(cut(error=why))

        def cut(**facts: Any) -> ev.Cut:
            return ev.Cut(action.incarnation, action.process, action.request, **facts)

        def do(node: Node) -> None:
            each = node.hostings.get(action.process)
            if each is None or each.incarnation != action.incarnation:
                fail("it is not here")
                return
            each.cut |= set(action.processes)
            servers = {unit.group for unit in each.running if unit.kind == "server"}
            applied = {g: self.position[g] - 1 for g in action.groups if self.layout.server_group_of(g) in servers}
            applied = {g: step for g, step in applied.items() if step >= 0}
            self.soon(lambda: self.deliver(cut(applied=applied)))

        self._ask(action.worker, ASK_S, do, fail)

    def _do_join(self, action: act.Join) -> None:
        def joined(error: str = "") -> None:
            self.deliver(ev.Joined(action.incarnation, action.process, action.request, error))

        def do(node: Node) -> None:
            each = node.hostings.get(action.process)
            if each is None or each.incarnation != action.incarnation:
                joined("it is not here")
                return
            each.cut -= set(action.endpoints)
            each.placement = each.placement._replace(buddy=action.buddy)
            self.soon(joined)

        self._ask(action.worker, ASK_S, do, joined)

    def _do_request(self, action: act.Request) -> None:
        if action.what == "checkpoint":
            self.asked_for_checkpoints.append(action.worker)
        elif action.what == "snapshot":
            self._ask(action.worker, ASK_S, lambda node: self.snapshot(), lambda why: None)
        else:
            self._ask(action.worker, ASK_S, self._stop, lambda why: None)

    def _stop(self, node: Node) -> None:
        for each in node.hostings.values():
            for unit in each.running:
                if unit.kind == "worker" and unit.id == 0:
                    self.ends[unit.group] = min(self.ends[unit.group], self.position[unit.group] + 1)

    def fail_unit(self, retry: bool, exit_code: int = 1) -> None:
        """Let the first unit that runs fail."""
        for unit, (node, each) in sorted(self._where().items()):
            if unit in each.running:
                reason = f"{unit}: something is wrong."
                self.report(node, each, unit, state="failed", reason=reason, exit_code=exit_code, retry=retry)
                return

    def abort_process(self, index: int) -> None:
        """Close one of the processes that run, though the job has not asked for it."""
        hosted = [(node, each) for node in self.nodes.values() if node.works for each in node.hostings.values()]
        if hosted:
            self._close(*hosted[index % len(hosted)])

    # -- training ----------------------------------------------------------------------------------------------------

    def _where(self) -> dict[Address, tuple[Node, Hosting]]:
        """Return where each unit is, as far as it runs now."""
        found: dict[Address, tuple[Node, Hosting]] = {}
        for node in self.nodes.values():
            for each in node.hostings.values() if node.works else ():
                if self.incarnations.get(each.process) == each.incarnation:
                    found |= {unit: (node, each) for unit in each.running}
        return found

    def trains(self, group: int, where: Mapping[Address, tuple[Node, Hosting]]) -> bool:
        """Return whether a worker group and its servers all run, and reach each other."""
        mine = [
            unit
            for unit in self.layout.units
            if unit.group == (group if unit.kind == "worker" else self.layout.server_group_of(group))
        ]
        if not all(unit in where and unit in where[unit][1].running for unit in mine):
            return False
        processes = {where[unit][1].process for unit in mine}
        places = {where[unit][0].address for unit in mine}
        if any(self.parted_s(*pair) for pair in combinations(places, 2)):
            return False
        return not any(where[unit][1].cut & processes for unit in mine)

    def _lose_peers(self, where: Mapping[Address, tuple[Node, Hosting]]) -> None:
        """Let a process fail that has not reached another one for long."""
        for (unit, (node, mine)), (far, other) in product(sorted(where.items()), where.values()):
            begun_s = self.now - max(mine.since, other.since)
            if min(self.parted_s(node.address, far.address), begun_s) > LOST_S and unit in mine.running:
                reason = f"process {other.process} cannot be reached."
                facts = {"reason": reason, "exit_code": 4, "retry": True, "unreachable": other.process}
                self.report(node, mine, unit, state="failed", **facts)
                return

    def _train(self) -> None:
        where = self._where()
        self._lose_peers(where)
        for group in self.groups:
            if self.trains(group, where):
                self.position[group] += 1
                node, each = where[Address.worker(group, 0)]
                self._say(node, each, {"event": "training"})
                if self.position[group] >= self.ends[group]:
                    for unit in [each for each in where if each.kind == "worker" and each.group == group]:
                        self.done.add(unit)
                        self.report(*where[unit], unit, state="done")
        workers = [unit for unit in self.layout.units if unit.kind == "worker"]
        if self.done.issuperset(workers):
            for unit, (node, each) in where.items():
                if unit.kind == "server" and unit in each.running:
                    self.report(node, each, unit, state="done")

    def snapshot(self) -> None:
        """Take a snapshot, if the first group trains."""
        where = self._where()
        if not self.trains(0, where):
            return
        step = self.position[0]
        known = self.snapshots[-1].step if self.snapshots else 0
        taker, first = where[Address.worker(0, 0)]
        holders = {}
        for unit in [each for each in where if each.kind == "worker" or each.group == 0]:
            node, each = where[unit]
            file = f"step-{step}/{unit}-incarnation-{first.incarnation}"
            buddy = self.nodes.get(each.placement.buddy)
            here = [node, *([buddy] if buddy is not None and buddy.works else [])]
            for keeper in here:
                keeper.put(file, step, str(unit), known)
            holders[unit] = {"file": file, "holders": [keeper.address for keeper in here]}
        manifest = {
            "step": step,
            "parts": [what for unit, what in holders.items() if unit.kind == "server"],
            "states": [what for unit, what in holders.items() if unit.kind == "worker"],
            "groups": {str(group): {"step": position} for group, position in self.position.items()},
        }
        self._say(taker, first, {"event": "snapshot", "step": step, "manifest": manifest})
