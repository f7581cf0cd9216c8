"""TraceFile: the trace of a run that is profiled, trace.json, for https://ui.perfetto.dev and chrome://tracing.

It is an object of the Trace Event Format, an event a line. Each process of the job is a process there; its units,
and the messages to and from other processes, are threads. otherData has when the run began, in seconds since
the epoch, which is the origin of all times, and for each process: its life, its host, by how many milliseconds its
clock may differ from that of the scheduler, how many events were dropped, and the number of the last event of the
job in it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from singa_dask import fs

REWRITE_S = 1.0
"""Shortest time between two writes of the file, in seconds."""
TRACKS = ("worker", "server", "messages sent", "messages received")
"""Beginnings of the names of threads, in their order on the screen."""


@dataclass
class _Process:
    """What a process has recorded in one life.

    Attributes
    ----------
    index, life : int
    n : int
        Number of the last event of the job that was added.
    tracks : list of str
        Names of its threads.
    events : list of str
        As JSON.
    """

    index: int
    life: int
    host: str = ""
    clock_error_ms: float = 0.0
    dropped: int = 0
    n: int = -1
    tracks: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def add(self, event: Mapping[str, Any], to_us: float) -> None:
        """Add the spans of an event; ``to_us`` is to be added to their times in microseconds."""
        spans = json.loads(zlib.decompress(base64.b64decode(event["spans"]))) if event["spans"] else []
        for track, name, kind, start, duration, arguments, arrow in spans:
            if track not in self.tracks:
                self.tracks.append(track)
            place = {"pid": self.index, "tid": self.tracks.index(track), "ts": round(start / 1e3 + to_us, 3)}
            shown = {"name": name, "cat": kind, "ph": "X", **place, "dur": round(duration / 1e3, 3)}
            self.put({**shown, "args": arguments} if arguments else shown)
            if arrow:
                direction, message = arrow.split()
                ends = {"ph": "s"} if direction == "out" else {"ph": "f", "bp": "e"}
                # viewers expect a number
                sender, receiver, number = map(int, message.split("-"))
                flow = f"0x{sender << 48 | receiver << 32 | number:x}"
                self.put({"name": "message", "cat": "message", **ends, "id": flow, **place})
        self.host = event.get("host", "")
        self.clock_error_ms = round(1e3 * event.get("error_s", 0.0), 3)
        self.dropped += event["recorded"] - len(spans)
        self.n = event.get("n", -1)

    def put(self, event: Mapping[str, Any]) -> None:
        """Add an event of the file."""
        self.events.append(json.dumps(event, separators=(",", ":")))

    def names(self) -> Iterator[str]:
        """Yield the events that name the process and its threads."""
        yield self._name("process_name", name=f"process {self.index} {self.host}".rstrip())
        yield self._name("process_sort_index", sort_index=self.index)
        for i, track in enumerate(self.tracks):
            rank = next((k for k, start in enumerate(TRACKS) if track.startswith(start)), len(TRACKS))
            yield self._name("thread_name", i, name=track)
            yield self._name("thread_sort_index", i, sort_index=rank)

    def _name(self, what: str, thread: int = 0, **arguments: Any) -> str:
        return json.dumps({"name": what, "ph": "M", "pid": self.index, "tid": thread, "args": arguments})


class TraceFile:
    """Writes what the processes of a job have recorded. The file is always whole.

    What a process records in a newer life, after a restart, replaces what it had recorded before.

    Parameters
    ----------
    url : str
    began : float
        When the run began, in seconds since the epoch.
    goes_on : bool
        Go on with the file that another process has written for the same run, if there is one.
    check : callable
        See `Journal`.
    """

    def __init__(self, url: str, began: float, goes_on: bool = False, check: Callable[[], None] = lambda: None) -> None:
        self.url = url
        self._check = check
        self._began = began
        self._processes: dict[int, _Process] = {}
        self._save_after = 0.0
        self._is_saved = True
        if goes_on and fs.exists(url):
            with contextlib.suppress(KeyError, TypeError, ValueError):  # somebody has changed it: it is written anew
                self._load(json.loads(fs.read_bytes(url)))

    def _load(self, trace: Mapping[str, Any]) -> None:
        self._began = trace["otherData"]["began"]
        self._processes = {facts["index"]: _Process(**facts) for facts in trace["otherData"]["processes"]}
        for event in trace["traceEvents"]:
            if event["ph"] != "M":
                self._processes[event["pid"]].put(event)

    def add(self, event: Mapping[str, Any]) -> None:
        """Add what a process has recorded, unless the file has it.

        Parameters
        ----------
        event : mapping
            ``profile``, see `Trace`, with the ``life`` of the process, its ``host``, by how much its clock is behind
            that of the scheduler, ``offset_s``, the error of that, ``error_s``, and the number ``n`` of the event.

        Raises
        ------
        DataError
            The file cannot be written.
        """
        index, life = int(event["process"]), int(event.get("life", 0))
        known = self._processes.get(index)
        if known is not None and (life < known.life or event.get("n", known.n + 1) <= known.n):
            return
        if known is None or life > known.life:
            known = self._processes[index] = _Process(index, life)
        known.add(event, 1e6 * (event["began"] + event.get("offset_s", 0.0) - self._began))
        self._is_saved = False
        self.save_late()

    def save_late(self) -> None:
        """Write what is not written yet, if the last write was a while ago.

        Raises
        ------
        DataError
            It cannot be written.
        """
        if not self._is_saved and time.monotonic() >= self._save_after:
            self.save()

    def save(self) -> None:
        """Write the file, if that is not done already.

        Raises
        ------
        DataError
            It cannot be written.
        """
        if self._is_saved:
            return
        processes = [self._processes[index] for index in sorted(self._processes)]
        kept = ("index", "life", "host", "clock_error_ms", "dropped", "n", "tracks")
        described = [{name: getattr(each, name) for name in kept} for each in processes]
        facts = {"began": self._began, "processes": described}
        events = [line for each in processes for line in (*each.names(), *each.events)]
        head = f'{{"displayTimeUnit": "ms",\n"otherData": {json.dumps(facts)},\n"traceEvents": [\n'
        fs.write_atomic(self.url, head + ",\n".join(events) + "\n]}\n", check=self._check)
        self._is_saved = True
        self._save_after = time.monotonic() + REWRITE_S
