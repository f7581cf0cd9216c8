"""The run directory: the job, its metrics and logs, and its summary, at any URL.

::

    job.yaml        the job as given            metrics.jsonl   an object for each event
    resolved.yaml   with every default          log/<unit>.log  log of each worker and server
    checkpoint/     made by the runtime         summary.json    written last
    bad_records.jsonl   records that were skipped, if there are any
    tensorboard/    event files, if the job asks for them
    owner.json      which process writes here: see below
    trace.json          what each unit did in the steps that were profiled, if there are any
    commands.jsonl      one object for each time the run was started or resumed:
        {"time", "arguments", "directory", "host", "pid", "version", "init_from", "resume", "seconds_before"}

Each process that records the run takes the directory, see `Ownership`. A process that was replaced while it slept
finds that out before its next write: a driver of a detached job, or a client whose run was resumed elsewhere.

A run that is resumed at step s drops its metrics from s on, and later checkpoints, as these steps are repeated. The
summary covers the whole run: ``steps``, ``seconds`` (without the time in between), ``resumes``, and the last metrics of
train, test and validation. Speeds, waits and bytes are those since it was last resumed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import math
import re
import secrets
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from singa_dask import fs
from singa_dask.conf.yaml_text import redact_job
from singa_dask.errors import ConfigError, DataError, TakenOverError
from singa_dask.fs.ownership import OWNER, Ownership
from singa_dask.observe.journal import Journal, is_in_use, read_objects, to_json
from singa_dask.observe.progress import layer_metrics, log_text
from singa_dask.redaction import redact

# The trace of a run that is profiled: ``trace.json``, for https://ui.perfetto.dev and chrome://tracing.
#
# It is an object of the Trace Event Format, an event a line. Each process of the job is a process there; its units,
# and the messages to and from other processes, are threads. ``otherData`` has when the run began, in seconds since
# the epoch, which is the origin of all times, and for each process: its life, its host, by how many milliseconds its
# clock may differ from that of the scheduler, how many events were dropped, and the number of the last event of the
# job in it.


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


logger = logging.getLogger(__name__)

# keys that are equal in metrics of the same batches
SAME = ("event", "phase", "group", "step")
COMMANDS = "commands.jsonl"
METRICS = "metrics.jsonl"
TRACE = "trace.json"
OWN_FILES = ("job.yaml", "resolved.yaml", METRICS, COMMANDS, "bad_records.jsonl", TRACE, "summary.json")
OWN_NAMES = {*OWN_FILES, "log", "checkpoint", "tensorboard"}

ALREADY_THERE = (
    "a run is already there. Continue it with --resume, replace it with --overwrite, or choose another --run-dir."
)
# an event can have more keys, added on its way
BAD_RECORD_KEYS = ("unit", "layer", "url", "block", "row", "rows", "reason")


def new_job_id(name: str) -> str:
    """Return an id for a run of the job ``name``: ``<name>-<YYYYmmdd-HHMMSS>-<4 hex digits>``, valid as a file name."""
    return f"{_plain(name)}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "job"


def newest_run(parent: str, name: str) -> str:
    """Return the URL of the latest run with a checkpoint of the job ``name`` in a directory of runs.

    If no run has a checkpoint, return the latest run.

    Raises
    ------
    ConfigError
        There is none.
    """
    pattern = re.compile(re.escape(_plain(name)) + r"-\d{8}-\d{6}-[0-9a-f]{4}")
    runs = [run for run in (fs.ls(parent) if fs.exists(parent) else []) if pattern.fullmatch(run)]
    for name_within in ("checkpoint", "job.yaml"):
        for run in reversed(runs):
            if fs.exists(fs.join(parent, run, name_within)):
                return fs.join(parent, run)
    raise ConfigError(f"{parent}: no run of job {name!r} with a checkpoint. Say which one: --resume URL, or --run-dir.")


def short_url(url: str) -> str:
    """Shorten a URL: a local path below the current directory becomes relative."""
    path = fs.local_path(url)
    if path is None or not path.is_relative_to(here := Path.cwd()):
        return redact(url)
    return str(path.relative_to(here))


class RunDirectory:
    """Records one run of a job. The directory is created when the job starts.

    Use it in a ``with`` block; ``on_event`` is called by one thread at a time.

    Parameters
    ----------
    url : str
    job_text : str
        The job file as given.
    resolved_text : str
        The job with every default.
    goes_on : bool
        Continue the run that is already there; otherwise it is an error.
    replaces : bool
        When the job starts, delete the run that is already there, and nothing else in its directory.
    steps : mapping of int to int
        First step of each worker group of a run that is continued.
    command : mapping, optional
        Line for ``commands.jsonl``. Without it that file is not written, and the summary covers only this time.
    job_id : str
        Of this run, and of no run before it.
    driver : int
        Number of the driver of a detached job; 0 for a client. If it is higher than 1, a driver before this one was
        lost, and may have begun the run: lines that are there are not repeated.

    Raises
    ------
    ConfigError
        Another run is there, or one that is running now, or files of other programs with names of its own.
    """

    def __init__(
        self,
        url: str,
        job_text: str,
        resolved_text: str,
        goes_on: bool = False,
        *,
        replaces: bool = False,
        steps: Mapping[int, int] | None = None,
        command: Mapping[str, Any] | None = None,
        job_id: str = "",
        driver: int = 0,
    ) -> None:
        self.url = url
        self._owner = Ownership(url, job_id, driver)
        self._is_owner = False
        self._again = again = driver > 1
        self._is_new = not (goes_on or replaces or again)
        self._check_free(again or not is_in_use(fs.join(url, COMMANDS)))
        if (self._is_new or replaces) and not is_run(url):
            self._refuse_others(OWN_NAMES if replaces else OWN_FILES)
        self._replaces = replaces
        self._steps = dict(steps or {})
        self._command = command
        self._texts = {"job.yaml": redact_job(job_text), "resolved.yaml": redact_job(resolved_text)}
        self._journals: dict[str, Journal] = {}
        self._trace = TraceFile(fs.join(url, TRACE), 0.0)
        self._has_warned = False

    def _check_free(self, is_ours: bool) -> None:
        """Refuse a directory with a run that this one is not to continue or replace, or that goes on."""
        if not is_ours:
            raise ConfigError(
                f"{self.url}: a run goes on there right now, in another process. Choose another --run-dir."
            )
        if self._is_new and is_run(self.url) and fs.exists(fs.join(self.url, "job.yaml")):
            raise ConfigError(f"{self.url}: {ALREADY_THERE}")

    def _refuse_others(self, names: Collection[str]) -> None:
        """Refuse a directory where other programs have files that the run would replace or delete."""
        if others := [name for name in (fs.ls(self.url) if fs.exists(self.url) else ()) if name in names]:
            raise ConfigError(
                f"{self.url}: not a run directory, but it contains {', '.join(others)}, which a run would replace. "
                "Choose another --run-dir."
            )

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Record an event, each kind in its file: metrics, checkpoints, messages of units, bad records, traces.

        What cannot be written later than at the start, e.g. because the disk is full, is dropped with one warning.

        Raises
        ------
        DataError
            The job starts, and the URL cannot be written to.
        ConfigError
            Another run has begun there meanwhile.
        TakenOverError
            Another process records the run, or a later one there.
        """
        if event["event"] == "started":
            begun = bool(event.get("begun"))
            if begun:
                self._take()
                self._renew_journals()
            self._trace = TraceFile(fs.join(self.url, TRACE), event["time"], begun, self._check)
            if not begun:
                self._texts["resolved.yaml"] = _with_steps(self._texts["resolved.yaml"], event.get("train_steps", 0))
                self._begin()
            elif self._command is not None:
                self._journal(COMMANDS)  # marks the run as one that goes on
        else:
            with self._going_on():
                self._record(event)
                self._trace.save_late()

    def _take(self) -> None:
        self._owner.take()
        self._is_owner = True

    def _renew_journals(self) -> None:
        """Put copies in the places of local files of lines: what a driver that sleeps was about to add goes nowhere."""
        if fs.local_path(self.url) is None:
            return
        log = fs.join(self.url, "log")
        logs = [f"log/{name}" for name in (fs.ls(log) if fs.exists(log) else ())]
        for name in (METRICS, "bad_records.jsonl", COMMANDS, *logs):
            if fs.exists(file := fs.join(self.url, name)):
                fs.write_atomic(file, fs.read_bytes(file), check=self._check)

    def _check(self) -> None:
        if self._is_owner:  # before the start, the run before this one may be there
            self._owner.check()

    def _write(self, name: str, text: str) -> None:
        fs.write_atomic(fs.join(self.url, name), text, check=self._check)

    def _remove(self, *names: str) -> None:
        self._check()
        fs.remove_tree(fs.join(self.url, *names))

    @contextlib.contextmanager
    def _going_on(self) -> Iterator[None]:
        """Turn an error into a warning, which is given once."""
        try:
            yield
        except DataError as error:
            if not self._has_warned:
                logger.warning("%s The job goes on, but its metrics and logs may be incomplete.", error)
            self._has_warned = True

    def _record(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind in ("log", "notice"):
            self._journal(f"log/{event['unit']}.log").add(log_text(event, is_named=False))
        elif kind in ("metrics", "checkpoint"):
            if kind == "metrics" and event["step"] == self._steps.get(event["group"]):
                self._journal(METRICS).keep(lambda old: not all(old.get(key) == event[key] for key in SAME))
            self._journal(METRICS).add(to_json(event))
        elif kind == "bad_record":
            facts = {key: event[key] for key in BAD_RECORD_KEYS if key in event}
            self._journal("bad_records.jsonl").add(to_json(facts))
        elif kind == "profile":
            self._trace.add(event)
        if kind == "checkpoint":
            self._journal(METRICS).save()

    def _begin(self) -> None:
        """Delete what the run replaces or repeats, and write the files that describe the job."""
        if self._command is not None:  # another run may have begun at the same moment: one of them has the lock
            self._check_free(self._journal(COMMANDS).is_ours or self._again)
        # where there are no locks
        is_remote = fs.local_path(self.url) is None
        if self._is_new and is_remote and not fs.create(fs.join(self.url, "job.yaml"), b""):
            raise ConfigError(f"{self.url}: {ALREADY_THERE}")
        self._take()
        if self._replaces:
            for name in OWN_NAMES - set(self._journals):
                self._remove(name)
            for journal in self._journals.values():
                journal.clear()
        for name, text in self._texts.items():
            self._write(name, text)
        if self._steps:
            self._journal(METRICS).keep(self._stays)
            self._journal(METRICS).save()
            self._drop_later_checkpoints(fs.join(self.url, "checkpoint"))
        if self._command is not None:
            commands = self._journal(COMMANDS)
            before = self._commands()
            if not (self._again and before and before[-1]["time"] == self._command["time"]):
                commands.add(to_json({**self._command, "seconds_before": self._seconds_before(before)}))
                commands.save()

    def _commands(self) -> list[dict[str, Any]]:
        """Return the lines of ``commands.jsonl``, without damaged ones."""
        return [each for each in self._journal(COMMANDS).objects() if {"time", "seconds_before"} <= each.keys()]

    def _drop_later_checkpoints(self, directory: str) -> None:
        """Delete the checkpoints after the step at which the run continues, as it may diverge from there."""
        for name in fs.ls(directory) if fs.exists(directory) else ():
            step = re.fullmatch(r"step-(\d+)", name)
            if step and int(step[1]) > self._steps[0]:
                # the manifest first: without it the rest is no checkpoint
                self._remove("checkpoint", name, "manifest.json")
                self._remove("checkpoint", name)

    def _stays(self, event: Mapping[str, Any]) -> bool:
        """Return whether an earlier event stays. A test before the first step does, as it may not be repeated."""
        step, group = int(event["step"]), int(event.get("group", 0))
        first = self._steps.get(group, self._steps[0])
        return step < first or (step == first and event.get("phase") != "train")

    def _seconds_before(self, commands: Sequence[Mapping[str, Any]]) -> float:
        """Return for how long the run has run so far; if it was killed, up to its last metrics."""
        if not commands:
            return 0.0
        last, summary = commands[-1], read_summary(self.url)
        if summary.get("resumes") == len(commands) - 1:
            return float(summary["seconds"])
        times = [event["time"] for event in self._journal(METRICS).objects() if event["time"] > last["time"]]
        return float(last["seconds_before"]) + (max(times) - float(last["time"]) if times else 0.0)

    def _journal(self, name: str) -> Journal:
        if name not in self._journals:
            known_once = self._again and name != COMMANDS
            self._journals[name] = Journal(fs.join(self.url, name), name == COMMANDS, known_once, self._check)
        return self._journals[name]

    def check_writable(self) -> None:
        """Check that files can be written to the directory.

        Raises
        ------
        DataError
            They cannot.
        """
        probe = fs.join(self.url, f".{secrets.token_hex(4)}")
        fs.write_atomic(probe, b"")
        fs.remove_tree(probe)

    def finish(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Write ``summary.json`` for the whole run; return its content.

        Raises
        ------
        TakenOverError
            Another process records the run, or a later one there.
        """
        whole = dict(summary)
        for name, text in self._texts.items():
            if not fs.exists(fs.join(self.url, name)):
                logger.warning("%s: somebody has removed it. It is written again.", fs.join(self.url, name))
                self._write(name, text)
        if self._command is not None:
            commands = self._commands()
            if not commands:
                logger.warning("%s: somebody has removed it. Seconds and resumes are those of this time.",
                               fs.join(self.url, COMMANDS))  # fmt: skip
                commands = [{**self._command, "seconds_before": 0.0}]
                with self._going_on():
                    self._journal(COMMANDS).add(to_json(commands[0]))
            whole["resumes"] = len(commands) - 1
            whole["seconds"] = round(whole["seconds"] + commands[-1]["seconds_before"], 3)
            if len(commands) > 1:
                self._add_what_was_known(whole)
        if whole.get("learning") and whole["state"] != "failed":
            begun_from = [(self._command or {}).get(key) for key in ("init_from", "resume")]
            events, first_step = self._journal(METRICS).objects(), self._steps.get(0, 0)
            said = sentences(whole["learning"], whole, events, not any(begun_from), first_step)
            whole["learning"] = {**whole["learning"], "sentences": said}
        self._write("summary.json", f"{to_json(whole, indent=2)}\n")
        return whole

    def _add_what_was_known(self, whole: dict[str, Any]) -> None:
        """Add the metrics and baselines of phases that the run has computed only before it was resumed."""
        for phase in PHASES:
            whole[phase] = whole[phase] or self._last_metrics(phase)
        if learning := whole.get("learning"):
            before = read_summary(self.url).get("learning", {}).get("baselines", {})
            whole["learning"] = {**learning, "baselines": {**before, **learning["baselines"]}}

    def _last_metrics(self, phase: str) -> dict[str, float]:
        events = [each for each in self._journal(METRICS).objects() if each.get("phase") == phase]
        return next((layer_metrics(each) for each in reversed(events) if each["group"] == 0), {})

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *error: object) -> None:
        for close in (self._trace.save, *(journal.close for journal in self._journals.values())):
            with self._going_on(), contextlib.suppress(TakenOverError):  # the new owner has all of it
                close()


def _with_steps(resolved: str, n: int) -> str:
    """Return the text of a job with its number of steps in place of epochs, which are known once it starts."""
    text, was_there = re.subn(r"^epochs: .*\n", "", resolved, flags=re.MULTILINE)
    return re.sub(r"^train_steps: .*$", f"train_steps: {n}", text, flags=re.MULTILINE) if was_there else resolved


def is_run(url: str) -> bool:
    """Return whether a run has written to a directory; one with a job file alone is not a run."""
    return any(fs.exists(fs.join(url, name)) for name in (COMMANDS, OWNER))


def read_summary(url: str) -> dict[str, Any]:
    """Return the content of ``summary.json`` of a run; empty if it is missing or cannot be read."""
    file = fs.join(url, "summary.json")
    try:
        summary = json.loads(fs.read_bytes(file)) if fs.exists(file) else {}
    except ValueError:
        return {}
    return summary if isinstance(summary, dict) else {}


def first_command(url: str) -> dict[str, Any]:
    """Return the first line of ``commands.jsonl`` of a run; empty if the file is missing, or has none."""
    return next(iter(read_objects(fs.join(url, COMMANDS))), {})


# Whether a run has learnt: its result beside that of the best constant answer, and what curves and layers say.


PHASES = ("test", "validation", "train")
MIN_STEPS, MIN_POINTS = 50, 8
"""Shorter runs, and curves of fewer points, are not judged."""
GAP, STILL = 0.15, 1e-3
"""Of accuracies of training and test; part of its size by which a param has to change."""
CORE_WAIT, MIN_CORE_WAIT_MS = 0.2, 5_000
"""Share of a step for which a worker has waited for a core, and sum of these waits, that are worth a warning."""

RATE = "base_lr: singa-dask find-rate JOB.yaml proposes one"
STANDARDISE = "store_conf: {standardise: true}, if the values of records are large, or differ much in size"
LABELS = "whether each label belongs to its record"
OVERFIT_REMEDY = (
    "more records, Dropout, weight_decay or early_stopping, and whether the records of both are made in the same way"
)
BROKEN = {
    "constant": ("BatchNorm {!r} normalises batches of one value, so its output is constant", ["a larger batchsize"]),
    "equal": ("all units of layer {!r} have equal weights, as in the beginning", ["random initial values"]),
    "dead": ("the units of layer {!r} are 0 for all records", [f"a lower {RATE}", "LeakyReLU", STANDARDISE]),
}
"""Layers that cannot learn, in words, and what to try."""
Fault = tuple[str, list[str]]


def sentences(
    facts: Mapping[str, Any],
    summary: Mapping[str, Any],
    events: Iterable[Mapping[str, Any]],
    is_fresh: bool = True,
    first_step: int = 0,
) -> list[str]:
    """Return what to say about a run: its result beside that of the best constant answer, warnings, and what to try.

    Parameters
    ----------
    facts : mapping
        Of `facts_of_workers`.
    summary : mapping
        ``steps``, and the last metrics of each phase.
    events : iterable of mapping
        The metrics of the run.
    is_fresh : bool
        Whether the net began with initial values, not with those of another run.
    first_step : int
        At which the run was begun or resumed last: what steps have cost is known from there on.
    """
    known = list(events)
    curves = _curves(known)
    measured_at = {each["phase"]: each["step"] for each in known if "phase" in each and not each.get("group")}
    train = {**summary["train"], **{name: _last(y) for name, y in curves.items()}}
    results = {**summary, "train": train}
    # a test before the first step says nothing of what was learnt
    judged = [each for each in PHASES if results[each] and (measured_at.get(each, 1) or not summary["steps"])]
    phase = next((each for each in judged if facts["baselines"].get(each)), "train")
    step = summary["steps"] if phase == "train" else measured_at.get(phase, summary["steps"])
    at = f" at step {step}" if step < summary["steps"] else ""
    base = {
        name: each for name, each in facts["baselines"].get(phase, {}).items() if results[phase].get(name) is not None
    }
    beside: list[str] = []
    faults: list[Fault] = []
    for prefix in dict.fromkeys(name[: name.rfind(".") + 1] for name in base):
        sentence, warnings = _beside(phase, at, prefix, results[phase], base, train)
        beside.append(sentence)
        faults += warnings
    if summary["steps"] < MIN_STEPS:
        return beside
    causes = [(text.format(names[0]), tries) for kind, (text, tries) in BROKEN.items()
              if (names := facts["broken"].get(kind))][:1]  # fmt: skip
    causes = causes or [*_changes(facts["changes"], is_fresh, bool(faults))]
    faults += _course(curves, is_fresh and bool(faults or causes or not beside))
    tries = dict.fromkeys(each for _, tries in causes or faults for each in tries)
    slow = _shares_cores(summary, summary["steps"] - first_step)
    tries |= dict.fromkeys(each for _, tries in slow for each in tries)
    return [
        *beside,
        *(f"warning: {text}" for text, _ in (*faults, *causes, *slow)),
        *([f"try {'; '.join(tries)}"] * bool(tries)),
    ]


def _beside(
    phase: str, at: str, prefix: str, result: Mapping[str, Any], base: Mapping[str, Any], train: Mapping[str, float]
) -> tuple[str, list[Fault]]:
    """Return the result of a loss layer beside that of the best constant answer to the same records, and warnings.

    ``at`` says at which step it was measured, if that is not the last one.
    """
    main = next(name for name in ("accuracy", "binary_accuracy", "loss") if prefix + name in base)
    name, is_loss = prefix + main, main == "loss"
    value, least, n, answer = result[name], *(base[name][key] for key in ("value", "records", "answer"))
    # part of the loss of the best constant answer: 0 is perfect, and 1 as good; of a mean square it is 1 - R2
    whole = base.get(f"{prefix}loss", {}).get("value")
    part = result[f"{prefix}loss"] / whole if whole else 0.0 if is_loss else math.nan
    learns_nothing = not part <= 0.99
    if not is_loss:
        chance = 2 * math.sqrt(max(least * (1 - least), 0) / n)
        learns_nothing = (value <= least + chance and part > 0.99) or (value <= least and not part < 0.9)
    before = train.get(name) if phase != "train" else None
    scale = 2 * (whole or 1.0) if is_loss else -1.0
    gap = before is not None and (value - before) / scale > GAP + 1 / math.sqrt(n)
    warnings: list[Fault] = []
    if learns_nothing:
        warnings.append((f"no better than {answer}", [LABELS] if gap else [f"another {RATE}", STANDARDISE, LABELS]))
    if gap:
        warnings.append((f"the {name} is {before:.4g} in training, and {value:.4g} in the {phase}", [OVERFIT_REMEDY]))
    places = ".4g" if is_loss else ".4f"
    return f"{phase} {name} {value:{places}}{at}; {answer} has {least:{places}}", warnings


def _shares_cores(summary: Mapping[str, Any], n_steps: int) -> list[Fault]:
    """Return a warning if the workers of a run that took long have waited for cores in its last ``n_steps``."""
    wait_ms = summary.get("wait_ms", {}).get("cores", 0.0)
    if wait_ms * n_steps < MIN_CORE_WAIT_MS or wait_ms < CORE_WAIT * summary["step_ms"]["median"]:
        return []
    share = min(wait_ms / summary["step_ms"]["median"], 1.0)
    text = (
        f"workers could run and had no core for {share:.0%} of a step: more threads than cores are busy on their host"
    )
    return [(text, ["fewer threads or workers on a host, or no other programs beside them"])]


def _curves(events: Iterable[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return the metrics of training over the reports, of the first worker group."""
    points: dict[str, list[float]] = {}
    for event in events:
        if event.get("phase") == "train" and event.get("group", 0) == 0:
            for name, value in layer_metrics(event).items():
                if name.endswith(("loss", "error", "accuracy")):
                    points.setdefault(name, []).append(math.nan if value is None else value)
    return {name: np.array(values, np.float64) for name, values in points.items()}


def _last(y: np.ndarray) -> float:
    return float(y[-max(len(y) // 4, 1) :].mean())


def _course(curves: Mapping[str, np.ndarray], has_to_fall: bool) -> Iterator[Fault]:
    """Yield what is wrong with the losses over the time of training."""
    for name, y in curves.items():
        if not name.endswith(("loss", "error")) or len(y) < MIN_POINTS:
            continue
        first, last = y[: max(len(y) // 20, 1)].mean(), _last(y)
        if not last <= 2 * abs(first):
            text = f"the training {name} has risen from {first:.4g} to {last:.4g}"
            yield f"{text}: the rate is too high, or gradients explode", [f"a lower {RATE}"]
        elif has_to_fall and last > first - 0.01 * abs(first):
            yield f"the training {name} has not fallen: {first:.4g} at first, {last:.4g} at last", [f"another {RATE}"]


def _changes(changes: Mapping[str, float], is_fresh: bool, has_failed: bool) -> Iterator[Fault]:
    """Yield which params have changed too little."""
    still = [name for name, change in changes.items() if change < STILL]
    if still and len(still) == len(changes) and is_fresh:
        yield "the params have hardly changed", [f"a higher {RATE}"]
    elif still and has_failed:
        tries = ["ReLU in place of Sigmoid or Tanh, BatchNorm, or the default initial values"]
        yield f"param {still[0]!r} has hardly changed, others have: its gradients vanish", tries
