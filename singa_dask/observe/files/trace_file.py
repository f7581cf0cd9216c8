"""The trace of a profiled run, trace.json, for https://ui.perfetto.dev and chrome://tracing.

Each process of the job writes its spans (timed sections) to its own file; see `write_spans`. `TraceFile` joins these
files. The trace is an object of the Trace Event Format, with one event per line. The trace shows each process of the
job as a process, and each unit as a thread. Messages to and from other processes are shown as threads, too.

``otherData`` has the start of the run in seconds since the epoch, which is the origin of all times. For each process it
has the incarnation, the host, the possible error of its clock relative to the scheduler's clock in milliseconds, and
the number of dropped spans.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from singa_dask import fs

SPANS = "trace"
"""Directory in a run directory with the files of processes, ``<process>-<incarnation>.json``."""
TRACE = "trace.json"
REWRITE_S = 1.0
"""The trace is written when the newest spans of any process are this many seconds old."""
TRACKS = ("worker", "server", "messages sent", "messages received")
"""Beginnings of the names of threads, in the order in which viewers show them."""


def write_spans(run_url: str, recorded: Mapping[str, Any]) -> None:
    """Write all spans of a process to its file in a run directory.

    Parameters
    ----------
    run_url : str
        The run directory.
    recorded : mapping
        The event ``profile`` of a `Trace`, and these keys: ``incarnation`` and ``host`` of the process; ``offset_s``,
        the seconds by which its clock is behind the scheduler's clock; ``error_s``, the possible error of the offset.

    Raises
    ------
    DataError
        The file cannot be written.
    """
    name = f"{recorded['process']}-{recorded['incarnation']}.json"
    fs.write_atomic(fs.join(run_url, SPANS, name), json.dumps(recorded, separators=(",", ":")))


class TraceFile:
    """Writes ``trace.json`` from the newest spans of the processes of a job. The file is always complete.

    Parameters
    ----------
    began : float
        Start of the run in seconds since the epoch. Times in the trace count from this start, or from the first span if
        earlier.
    check : callable
        See `Journal`.
    """

    def __init__(self, run_url: str, began: float, check: Callable[[], None] = lambda: None) -> None:
        self._url, self._spans = fs.join(run_url, TRACE), fs.join(run_url, SPANS)
        self._began = began
        self._check = check
        self._save_after = 0.0
        self._is_saved = True

    def note(self) -> None:
        """Record that a process has written new spans."""
        self._is_saved = False
        self._save_after = time.monotonic() + REWRITE_S

    def save_late(self) -> None:
        """Write the trace if there are new spans, and the newest are at least `REWRITE_S` seconds old.

        Raises
        ------
        DataError
            The trace cannot be written.
        """
        if not self._is_saved and time.monotonic() >= self._save_after:
            self._save_after = time.monotonic() + REWRITE_S
            self.save()

    def save(self) -> None:
        """Write the trace, unless it is up to date; raise `DataError` if files cannot be read or written."""
        if self._is_saved:
            return
        names = [name.removesuffix(".json") for name in fs.ls(self._spans) if name.endswith(".json")]
        newest = dict(
            sorted((int(process), int(incarnation)) for process, incarnation in (name.split("-") for name in names))
        )
        files = [fs.join(self._spans, f"{process}-{incarnation}.json") for process, incarnation in newest.items()]
        processes = [json.loads(fs.read_bytes(file)) for file in files]
        began = min([self._began, *(_to_s(each) + span[3] / 1e9 for each in processes for span in each["spans"])])
        described = [
            {
                "index": each["process"],
                "incarnation": each["incarnation"],
                "host": each["host"],
                "clock_error_ms": round(1e3 * each["error_s"], 3),
                "dropped": each["recorded"] - len(each["spans"]),
            }
            for each in processes
        ]
        facts = {"began": began, "processes": described}
        lines = [json.dumps(event, separators=(",", ":")) for each in processes for event in _events_of(each, began)]
        head = f'{{"displayTimeUnit": "ms",\n"otherData": {json.dumps(facts)},\n"traceEvents": [\n'
        fs.write_atomic(self._url, head + ",\n".join(lines) + "\n]}\n", check=self._check)
        self._is_saved = True


def _to_s(recorded: Mapping[str, Any]) -> float:
    """Return the seconds to add to times of a process to get epoch seconds of the scheduler's clock."""
    return float(recorded["began"] + recorded["offset_s"])


def _events_of(recorded: Mapping[str, Any], began: float) -> Iterator[dict[str, Any]]:
    """Yield the events of a process for the trace: names of the process and its threads, then spans."""
    process, tracks = recorded["process"], list(dict.fromkeys(span[0] for span in recorded["spans"]))
    to_us = 1e6 * (_to_s(recorded) - began)

    def fact(what: str, thread: int = 0, **arguments: Any) -> dict[str, Any]:
        return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": arguments}

    yield fact("process_name", name=f"process {process} {recorded['host']}".rstrip())
    yield fact("process_sort_index", sort_index=process)
    for i, track in enumerate(tracks):
        rank = next((k for k, start in enumerate(TRACKS) if track.startswith(start)), len(TRACKS))
        yield fact("thread_name", i, name=track)
        yield fact("thread_sort_index", i, sort_index=rank)
    for track, name, kind, start, duration, arguments, arrow in recorded["spans"]:
        place = {"pid": process, "tid": tracks.index(track), "ts": round(start / 1e3 + to_us, 3)}
        shown = {"name": name, "cat": kind, "ph": "X", **place, "dur": round(duration / 1e3, 3)}
        yield {**shown, "args": arguments} if arguments else shown
        if arrow:
            direction, message = arrow.split()
            ends = {"ph": "s"} if direction == "out" else {"ph": "f", "bp": "e"}
            # viewers expect a number as the id of a flow
            sender, receiver, number = map(int, message.split("-"))
            flow = f"0x{sender << 48 | receiver << 32 | number:x}"
            yield {"name": "message", "cat": "message", **ends, "id": flow, **place}
