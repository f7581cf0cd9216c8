"""PendingCheckpoints: collect the parts and reports of a checkpoint or snapshot until it is complete."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from singa_dask.comm.message import Address, Message
from singa_dask.conf import ClusterConf
from singa_dask.runtime.checkpoints.manifest import newest_step, why_inconsistent

Event = dict[str, Any]
"""An event for the user and the scheduler, as plain values."""


@dataclass
class _Request:
    """An incomplete checkpoint or snapshot.

    ``facts`` are values for the manifest, and ``asked`` is the request that was sent. ``parts`` and ``reports`` are the
    answers so far.
    """

    facts: dict[str, Any]
    asked: dict[str, Any]
    since: float = field(default_factory=time.monotonic)
    parts: dict[Address, Message] = field(default_factory=dict)
    reports: dict[Address, Message] = field(default_factory=dict)
    is_collected: bool = False


class PendingCheckpoints:
    """Collects parts and reports of checkpoints or snapshots, and completes each after the last answer.

    Each server of one group writes a part, and each worker sends a report.

    Parameters
    ----------
    kind : {"checkpoint", "snapshot"}
        What is collected.
    requester : str
        A random text that identifies this worker in its requests. Answers repeat it. Answers to an earlier worker that
        this worker replaces are therefore recognised and ignored.
    complete : callable
        Called with the step, the descriptions of the parts, and values for the manifest. Returns an event, or None if
        the event comes later in a message ``written``.
    """

    def __init__(
        self,
        kind: str,
        cluster: ClusterConf,
        requester: str,
        complete: Callable[[int, Sequence[Event], Mapping[str, Any]], Event | None],
    ) -> None:
        self.kind = kind
        self.requester = requester
        self._n_parts = cluster.nservers_per_group
        self._n_workers = cluster.nworkers_per_group
        self._n_reports = cluster.nworker_groups * cluster.nworkers_per_group
        self._complete = complete
        self._left: set[Address] = set()
        self._requests: dict[int, _Request] = {}

    def __bool__(self) -> bool:
        return bool(self._requests)

    @property
    def steps(self) -> Collection[int]:
        """Steps of the incomplete checkpoints or snapshots."""
        return self._requests.keys()

    @property
    def seconds(self) -> float:
        """Seconds since the oldest pending request; 0 if none is pending."""
        return max((time.monotonic() - request.since for request in self._requests.values()), default=0.0)

    def asked(self, step: int) -> dict[str, Any]:
        """Return the request that was sent for a checkpoint or snapshot of a step."""
        return self._requests[step].asked

    def begin(self, step: int, facts: Mapping[str, Any], where: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to collect a checkpoint or snapshot; return the request to send to other units.

        Parameters
        ----------
        facts : mapping
            Values for the manifest.
        where : mapping
            Destination of the parts. For a checkpoint it has the ``url``. For a snapshot it has ``snapshot``, the step
            of the previous snapshot, whose parts are kept meanwhile. For the last checkpoint of the job it also has
            ``rescue``: a host that cannot write a file to the URL then keeps it on its own disk.
        """
        request = self._requests[step] = _Request(dict(facts), {**where, "requester": self.requester})
        for worker in self._left:
            request.reports[worker] = self._report_of(worker, step)
        return request.asked

    def requests_to_repeat(
        self, units: Collection[Address], awaited: int | None = None
    ) -> list[tuple[int, Address, dict[str, Any]]]:
        """Return the requests that restarting workers must answer, as (step, worker, request).

        All reports of a worker group must be for the same step, so the whole group is asked again.

        Parameters
        ----------
        units : collection of Address
            All restarting workers of other groups.
        awaited : int or None
            Step of a request for which the servers have not yet copied their slices. Restarting workers no longer wait
            for these copies, so reports that they sent for this step are dropped.
        """
        again = []
        for step, request in self._requests.items():
            n_reports = Counter(worker.group for worker in request.reports)
            for unit in units:
                if step == awaited or n_reports[unit.group] < self._n_workers:
                    request.reports.pop(unit, None)
                    again.append((step, unit, request.asked))
        return again

    def leave(self, worker: Address) -> list[Event]:
        """Stop expecting reports of a worker that has left; return the resulting events, as `take` does.

        The step and reading position of the worker's group are then taken from its other workers. If all workers have
        left, the step is derived from the newest update that servers have applied, and the position is unknown.
        """
        self._left.add(worker)
        steps = [step for step, request in self._requests.items() if worker not in request.reports]
        events = [self.take(self._report_of(worker, step)) for step in steps]
        return [event for event in events if event is not None]

    def _report_of(self, worker: Address, step: int) -> Message:
        info = {"requester": self.requester, "position": None, "states": None}
        return Message("r-progress", src=worker, dst=worker, step=step, info=info)

    def take(self, message: Message) -> Event | None:
        """Handle a message: the ``part`` of a server, the ``r-progress`` of a worker, or ``written``.

        Returns an event once the checkpoint or snapshot is complete or has failed, else None. The event of a failed
        checkpoint has the key ``error``.
        """
        request = self._requests.get(message.step)
        # ignore messages about the other kind (checkpoint or snapshot), and answers to a replaced worker
        if request is None or message.info["requester"] != self.requester:
            return None
        event = message.info["event"] if message.kind == "written" else self._collect(request, message)
        if event is not None:
            self.end(message.step)
        return event

    def end(self, step: int) -> None:
        """Stop expecting answers for a step."""
        self._requests.pop(step, None)

    def _collect(self, request: _Request, message: Message) -> Event | None:
        """Store a part or a report; complete the checkpoint or snapshot if it was the last one."""
        if request.is_collected:
            return None
        (request.reports if message.kind == "r-progress" else request.parts)[message.src] = message
        if len(request.parts) < self._n_parts or len(request.reports) < self._n_reports:
            return None
        request.is_collected = True
        parts = [request.parts[server] for server in sorted(request.parts)]
        reports = [request.reports[worker] for worker in sorted(request.reports)]
        for answer in (*parts, *reports):
            if "error" in answer.info:
                return self.failure(message.step, f"{answer.src}: {answer.info['error']}")
        described = [{key: value for key, value in part.info.items() if key != "requester"} for part in parts]
        facts = {**request.facts, **self._merge(reports, described)}
        if facts.get("cut") and (why := why_inconsistent(described, facts["groups"])):
            return self.failure(message.step, why)
        return self._complete(message.step, described, facts)

    def _merge(self, reports: Sequence[Message], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the positions and layer states of all workers, for the manifest."""
        groups, states = dict[str, Any](), []
        for group, messages in groupby(reports, key=lambda message: message.src.group):
            infos = [message.info for message in messages]
            positions = [info["position"] for info in infos if info["position"]]
            positions = positions or [{"step": newest_step(parts, str(group)) + 1, "cursors": {}}]
            groups[str(group)] = position = merge_positions(positions)
            if all(each["step"] == position["step"] for each in positions):
                states += [info["states"] for info in infos if info["states"]]
        cut = {"cut": True} if len(groups) > 1 else {}
        return {"groups": groups, "workers": self._n_workers, "states": states, **cut}

    def failure(self, step: int, why: str) -> Event:
        """Return the event of a checkpoint or snapshot that failed."""
        event = {"event": "log", "level": "WARNING", "step": step, "time": time.time()}
        if self.kind == "snapshot":
            return {**event, "message": f"the snapshot of step {step} was dropped: {why}"}
        error = f"the checkpoint of step {step} was not written: {why}"
        return {**event, "message": error, "error": error}


def merge_positions(positions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the position of a group: its step, and the cursors and unreported metrics of its workers.

    Workers may read different input layers, so their cursors are merged. If workers are at different steps, the result
    has the lowest step, and no cursors and metrics.
    """
    step = min(position["step"] for position in positions)
    cursors: dict[str, dict[str, Any]] = {}
    windows: dict[str, Any] = {}
    if all(position["step"] == step for position in positions):
        for position in positions:
            windows |= position.get("windows", {})
            for phase, by_layer in position["cursors"].items():
                cursors[phase] = {**by_layer, **cursors.get(phase, {})}
    return {"step": step, "cursors": cursors, **({"windows": windows} if windows else {})}
