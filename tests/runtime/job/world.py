"""World: a simulated cluster that checks each decision of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from singa_dask.comm.message import Address
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev
from singa_dask.runtime.planning.worker_choice import WorkerFacts
from tests.runtime.job.simulated_job import RESUME, SimulatedJob


class World(SimulatedJob):
    """A simulated cluster that checks each decision of its job."""

    # -- checks ------------------------------------------------------------------------------------------------------

    def check_placement(self, hosts: list[act.Host]) -> None:
        roster = self.state.roster
        units = [unit for units in hosts[0].roster.layout.processes for unit in units]
        assert sorted(units) == sorted(self.layout.units), "each unit is placed once"
        assert len({each.process for each in hosts}) == len(hosts)
        if hosts[0].rejoin is None:
            assert len(hosts) == len(roster.workers), "an incarnation places all processes"
            self.incarnations = {each.process: self.incarnations.get(each.process, -1) for each in hosts}
        facts = self.facts()
        for host in hosts:
            assert (
                host.incarnation > max(self.incarnations.values(), default=-1)
                or host.incarnation not in self.incarnations.values()
            )
            assert host.incarnation == self.state.incarnation
            if host.incarnation > 0:
                assert facts[host.worker].usable, f"{host.worker} cannot be used: {self.history()}"
            assert host.roster.workers == roster.workers
            self._check_buddy(host, facts)
        assert all(host.incarnation > each for host in hosts for p, each in self.incarnations.items()), (
            "incarnations rise"
        )
        self.incarnations |= {each.process: each.incarnation for each in hosts}
        self.hosts = {p: each for p, each in self.hosts.items() if p < len(roster.workers)}
        self.hosts |= {each.process: each for each in hosts}
        self.done -= {unit for each in hosts for unit in self._units(each, each.process)}
        self._check_start(hosts[0])

    def _check_buddy(self, host: act.Host, facts: Mapping[str, WorkerFacts]) -> None:
        buddy = host.buddy
        assert buddy != host.worker, "nobody is a buddy of its own"
        here = facts[host.worker].host if host.worker in facts else ""
        away = [each for each, known in facts.items() if known.usable and known.host != here]
        if away and host.incarnation > 0:
            assert facts[buddy].host != here, f"the buddy of {host.worker} is on its host: {self.history()}"

    def _check_start(self, host: act.Host) -> None:
        start, rejoin = host.start, host.rejoin
        needs_parts = rejoin is None or any(
            unit.kind == "server"
            for p, incarnation in self.incarnations.items()
            if incarnation == host.incarnation
            for unit in self._units(host, p)
        )
        if "manifest" in start and needs_parts:
            for part in (*start["manifest"]["parts"], *(start["manifest"]["states"] if rejoin is None else ())):
                assert part["holders"], "each part has a holder"
                for holder in part["holders"]:
                    node = self.nodes.get(holder)
                    assert node is not None and part["file"] in node.ever, (
                        f"{holder} has no {part['file']}: {self.history()}"
                    )
                    assert node.is_leaving or not self.is_silent(node), f"{holder} is silent: {self.history()}"
        known = self._step_of(start)
        if rejoin is None:
            best = max((self._step_of(each) for each in self._possible_starts()), key=max)
            assert max(known) >= max(best), f"there is a newer start, {best}: {self.history()}"
            self.position = dict(zip(self.groups, known, strict=True))
        else:
            for group, step in rejoin.steps.items():
                assert known[self.groups.index(group)] <= step, f"group {group} starts after {step}: {self.history()}"
                self.position[group] = step

    @staticmethod
    def _units(host: act.Host, process: int) -> list[Address]:
        return [*host.roster.layout.processes[process]]

    def _step_of(self, start: Mapping[str, Any]) -> list[int]:
        """Return the step of each worker group at a start."""
        if "manifest" in start:
            return [start["manifest"]["groups"][str(group)]["step"] for group in self.groups]
        return [int(start["url"].rpartition("-")[2])] * len(self.groups)

    def _possible_starts(self) -> list[Mapping[str, Any]]:
        """Return what an incarnation could start from, as far as the job has been told of it."""
        found: list[Mapping[str, Any]] = [{"url": RESUME}]
        found += [{"url": event.url} for event in self.delivered if isinstance(event, ev.Saved)]
        facts = self.facts()
        for event in self.snapshots[-1:]:
            manifest = event.manifest
            parts = [*manifest["parts"], *manifest["states"]]
            if all(
                any(h in facts and facts[h].usable and part["file"] in self.nodes[h].parts for h in part["holders"])
                for part in parts
            ):
                found.append({"manifest": manifest})
        return found

    def check_run(self, action: act.RunUnits) -> None:
        roster = self.state.roster
        assert action.incarnation == roster.incarnations[action.process] == self.incarnations[action.process]
        assert action.worker == roster.workers[action.process]
        wanted = [self.endpoints[p, incarnation] for p, incarnation in enumerate(roster.incarnations)]
        assert list(action.endpoints) == wanted, "all are hosted, and reached where they are now"
        for p, incarnation in enumerate(roster.incarnations):
            if roster.full_incarnation < action.incarnation != incarnation and not self.is_finished(p):
                assert (p, action.incarnation) in self.joined, f"process {p} has not joined: {self.history()}"

    def is_finished(self, process: int) -> bool:
        """Return whether all units of a process have told the job that they are done."""
        done = {
            each.unit for each in self.delivered if isinstance(each, ev.Reported) and each.report["state"] == "done"
        }
        return set(self.state.roster.layout.processes[process]) <= done

    def check_end(self, what: Mapping[str, Any], max_restarts: int) -> None:
        """Check how the job has ended."""
        failure = what["failure"]
        assert max_restarts or not what["restarts"], self.history()
        if failure is None:
            if {each["state"] for each in what["reports"].values()} != {"done"}:
                # it was stopped while it waited, and no other incarnation could have saved more than there is
                assert what["signal"], self.history()
                saved = max((each.step for each in self.delivered if isinstance(each, ev.Saved)), default=-1)
                left = [each["manifest"]["step"] for each in self._possible_starts() if "manifest" in each]
                assert all(step <= saved for step in left), self.history()
                return
            assert set(what["reports"]) == set(map(str, self.layout.units))
        else:
            assert failure["reason"] and failure["exit_code"] in (1, 3, 4, 7, 9, 130, 137, 143), self.history()
