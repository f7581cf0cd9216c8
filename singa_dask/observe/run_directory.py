"""The run directory: the job, its metrics and logs, and its summary, at any URL.

::

    job.yaml            the job as given
    resolved.yaml       the job with every default
    metrics.jsonl       an object for each event
    log/<unit>.log      log of each worker and server
    bad_records.jsonl   skipped records, if there are any
    checkpoint/         written by the runtime
    tensorboard/        event files, if the job asks for them
    trace/              spans of each process, if steps were profiled
    trace.json          all spans
    owner.json          the process that writes here
    heartbeat.json      while the run is running, on a remote filesystem, see `Heartbeat`
    commands.jsonl      an object for each start or resume of the run:
        {"time", "arguments", "directory", "host", "pid", "version", "init_from", "resume", "seconds_before"}
    summary.json        written last

The process that records the run owns the directory, see `Ownership`. A process that was replaced while it slept, such
as an old driver, notices this before its next write.

A run that resumes at step s drops its metrics from s on, and later checkpoints, because it repeats these steps. The
summary covers the whole run: ``steps``, ``seconds`` (without gaps), ``resumes``, and the last metrics of train, test
and validation. Speeds, waits and bytes cover the time since it last resumed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from singa_dask import fs
from singa_dask.conf.yaml_text import read_plain, redact_job
from singa_dask.errors import ConfigError, DataError, TakenOverError
from singa_dask.fs.ownership import OWNER, Ownership
from singa_dask.observe.event_texts import layer_metrics, log_text
from singa_dask.observe.heartbeat import HEARTBEAT, Heartbeat
from singa_dask.observe.journal import Journal, is_in_use, read_objects
from singa_dask.observe.json_values import to_json
from singa_dask.observe.learning import PREFERRED_PHASES, sentences
from singa_dask.observe.trace_file import SPANS, TRACE, TraceFile
from singa_dask.redaction import redact

logger = logging.getLogger(__name__)


# keys that have the same values in all metrics of the same batches
SAME = ("event", "phase", "group", "step")
COMMANDS = "commands.jsonl"
METRICS = "metrics.jsonl"
DRIVER_LOG = "log/driver.log"
OWN_FILES = ("job.yaml", "resolved.yaml", METRICS, COMMANDS, "bad_records.jsonl", TRACE, "summary.json")
OWN_NAMES = {*OWN_FILES, HEARTBEAT, "log", "checkpoint", "tensorboard", SPANS}

ALREADY_THERE = (
    "a run is already there. Continue it with --resume, replace it with --overwrite, or choose another --run-dir."
)
# copy only these keys, because events may gain more keys on their way
BAD_RECORD_KEYS = ("unit", "layer", "url", "block", "row", "rows", "reason")


def new_job_id(name: str) -> str:
    """Return an id for a run: ``<name>-<YYYYmmdd-HHMMSS>-<4 hex digits>``, valid as a file name."""
    return f"{_plain(name)}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "job"


def newest_run(parent: str, name: str) -> str:
    """Return the URL of the latest run of a job, if possible with a checkpoint, or a ConfigError."""
    pattern = re.compile(re.escape(_plain(name)) + r"-\d{8}-\d{6}-[0-9a-f]{4}")
    runs = [run for run in (fs.ls(parent) if fs.exists(parent) else []) if pattern.fullmatch(run)]
    for name_within in ("checkpoint", "job.yaml"):
        for run in reversed(runs):
            if fs.exists(fs.join(parent, run, name_within)):
                return fs.join(parent, run)
    raise ConfigError(
        f"{parent}: there is no run of job {name!r} with a checkpoint. Pass one with --resume URL or --run-dir."
    )


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
        Text of the job file.
    resolved_text : str
        Text of the job with all defaults.
    goes_on : bool
        Continue an existing run. If False, an existing run is an error.
    replaces : bool
        When the job starts, delete an existing run, and nothing else in its directory.
    steps : mapping of int to int
        First step of each worker group of a resumed run.
    command : mapping, optional
        Line for ``commands.jsonl``. Without it that file is not written, and the summary covers only the time since the
        last start.
    job_id : str
        Unique id of this run.
    driver : int
        Number of the driver of a detached job; 0 for a client. If it is above 1, an earlier driver was lost that may
        have started the run. Lines that are already in the files are then not repeated.

    Raises
    ------
    ConfigError
        Another run exists in the directory or is running there, or the directory has other programs' files with the
        same names.
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
        self._replaces_driver = again = driver > 1
        self._is_new = not (goes_on or replaces or again)
        self._check_free(again or not is_in_use(fs.join(url, COMMANDS)))
        if (self._is_new or replaces) and not is_run(url):
            self._refuse_others(OWN_NAMES if replaces else OWN_FILES)
        self._replaces = replaces
        self._steps = dict(steps or {})
        self._command = command
        self._texts = {"job.yaml": redact_job(job_text), "resolved.yaml": redact_job(resolved_text)}
        self._journals: dict[str, Journal] = {}
        self._trace = TraceFile(url, 0.0)
        self._heartbeat = Heartbeat(url, self._check)
        self._has_warned = False
        path = fs.local_path(url)
        # URLs that `withdraw` removes
        self._created = [url] if self._is_new and path is not None and not path.exists() else []

    def _check_free(self, is_ours: bool) -> None:
        """Raise a ConfigError if the directory has a run that this one must not replace, or that is running."""
        if not is_ours:
            raise ConfigError(
                f"{self.url}: another process is running a job in this directory. Choose another --run-dir."
            )
        if self._is_new and is_run(self.url) and fs.exists(fs.join(self.url, "job.yaml")):
            raise ConfigError(f"{self.url}: {ALREADY_THERE}")

    def _refuse_others(self, names: Collection[str]) -> None:
        """Raise a ConfigError if other programs have files here that the run would replace or delete."""
        if others := [name for name in (fs.ls(self.url) if fs.exists(self.url) else ()) if name in names]:
            raise ConfigError(
                f"{self.url}: this is not a run directory, but it contains {', '.join(others)}, which a run would "
                f"replace. "
                "Choose another --run-dir."
            )

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Record an event in the file for its kind.

        After the start, errors such as a full disk cause one warning, and the event is dropped.

        Raises
        ------
        DataError
            The event is the start of the job, and the directory cannot be written.
        ConfigError
            Another run has started in the directory meanwhile.
        TakenOverError
            Another process records this run, or a later run in the directory.
        """
        if event["event"] == "started":
            begun = bool(event.get("begun"))
            if begun:
                self._take()
                self._renew_journals()
            self._trace = TraceFile(self.url, event["time"], self._check)
            if not begun:
                self._texts["resolved.yaml"] = _with_steps(self._texts["resolved.yaml"], event.get("train_steps", 0))
                try:
                    self._begin()
                except ConfigError:
                    self._created = []  # the files are of the other run
                    raise
            elif self._command is not None:
                self._journal(COMMANDS)  # the lock on this file marks the run as running
            if self._command is not None:
                self._heartbeat.start()
        else:
            with self._warn_once():
                self._record(event)
                self._trace.save_late()

    def _take(self) -> None:
        self._owner.take()
        self._is_owner = True

    def _renew_journals(self) -> None:
        """Replace local journals by copies, so that writes of an old driver that still has them open are lost."""
        if fs.local_path(self.url) is None:
            return
        log = fs.join(self.url, "log")
        logs = [f"log/{name}" for name in (fs.ls(log) if fs.exists(log) else ())]
        for name in (METRICS, "bad_records.jsonl", COMMANDS, *logs):
            if fs.exists(file := fs.join(self.url, name)):
                fs.write_atomic(file, fs.read_bytes(file), check=self._check)

    def _check(self) -> None:
        if self._is_owner:  # before the start, the directory may hold an earlier run
            self._owner.check()

    def _write(self, name: str, text: str) -> None:
        fs.write_atomic(fs.join(self.url, name), text, check=self._check)

    def _remove(self, *names: str) -> None:
        self._check()
        fs.remove_tree(fs.join(self.url, *names))

    @contextlib.contextmanager
    def _warn_once(self) -> Iterator[None]:
        """Turn a DataError into a warning, which is given once."""
        try:
            yield
        except DataError as error:
            if not self._has_warned:
                logger.warning("%s The job continues, but its metrics and logs may be incomplete.", error)
            self._has_warned = True

    def _record(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind in ("log", "notice"):
            self._journal(f"log/{event['unit']}.log").add(log_text(event, is_named=False))
        elif kind in ("metrics", "checkpoint"):
            if kind == "metrics" and event["step"] == self._steps.get(event["group"]):
                self._journal(METRICS).filter(lambda old: not all(old.get(key) == event[key] for key in SAME))
            self._journal(METRICS).add(to_json(event))
        elif kind == "bad_record":
            facts = {key: event[key] for key in BAD_RECORD_KEYS if key in event}
            self._journal("bad_records.jsonl").add(to_json(facts))
        elif kind == "profile":
            self._trace.note()
        if kind == "checkpoint":
            self._journal(METRICS).save()

    def _begin(self) -> None:
        """Delete what the run replaces or repeats, and write the files that describe the job."""
        if self._command is not None:  # if several runs start at the same moment, one of them gets the lock
            self._check_free(self._journal(COMMANDS).is_ours or self._replaces_driver)
        # remote file systems have no locks, so the first run to create job.yaml wins
        is_remote = fs.local_path(self.url) is None
        new = [fs.join(self.url, name) for name in (*self._texts, OWNER)]
        new = [url for url in new if self._is_new and not fs.exists(url)]
        if self._is_new and is_remote and not fs.create(fs.join(self.url, "job.yaml"), b""):
            raise ConfigError(f"{self.url}: {ALREADY_THERE}")
        self._take()
        self._created += new
        if self._replaces:
            for name in OWN_NAMES - set(self._journals):
                self._remove(name)
            for journal in self._journals.values():
                journal.clear()
        else:
            self._remove(SPANS)
        for name, text in self._texts.items():
            self._write(name, text)
        if self._steps:
            self._journal(METRICS).filter(self._is_kept)
            self._journal(METRICS).save()
            self._drop_later_checkpoints(fs.join(self.url, "checkpoint"))
        if self._command is not None:
            commands = self._journal(COMMANDS)
            before = self._commands()
            if not (self._replaces_driver and before and before[-1]["time"] == self._command["time"]):
                commands.add(to_json({**self._command, "seconds_before": self._seconds_before(before)}))
                commands.save()

    def _commands(self) -> list[dict[str, Any]]:
        """Return the lines of ``commands.jsonl``, without damaged ones."""
        return [each for each in self._journal(COMMANDS).objects() if {"time", "seconds_before"} <= each.keys()]

    def _drop_later_checkpoints(self, directory: str) -> None:
        """Delete the checkpoints after the first step, because the run may diverge from them."""
        for name in fs.ls(directory) if fs.exists(directory) else ():
            step = re.fullmatch(r"step-(\d+)", name)
            if step and int(step[1]) > self._steps[0]:
                # remove the manifest first: without it, the other files are not a checkpoint
                self._remove("checkpoint", name, "manifest.json")
                self._remove("checkpoint", name)

    def _is_kept(self, event: Mapping[str, Any]) -> bool:
        """Return whether an earlier event is kept.

        A test before the first step is kept, because it may not be repeated.
        """
        step, group = int(event["step"]), int(event.get("group", 0))
        first = self._steps.get(group, self._steps[0])
        return step < first or (step == first and event.get("phase") != "train")

    def _seconds_before(self, commands: Sequence[Mapping[str, Any]]) -> float:
        """Return for how long the run has run so far; for a killed run, up to its last metrics."""
        if not commands:
            return 0.0
        last, summary = commands[-1], read_summary(self.url)
        if summary.get("resumes") == len(commands) - 1:
            return float(summary["seconds"])
        times = [event["time"] for event in self._journal(METRICS).objects() if event["time"] > last["time"]]
        return float(last["seconds_before"]) + (max(times) - float(last["time"]) if times else 0.0)

    def _journal(self, name: str) -> Journal:
        if name not in self._journals:
            if self._is_new and name in (COMMANDS, DRIVER_LOG):
                urls = (fs.join(self.url, "log"), fs.join(self.url, name))
                self._created += [url for url in urls if not fs.exists(url)]
            known_once = self._replaces_driver and name != COMMANDS
            self._journals[name] = Journal(fs.join(self.url, name), name == COMMANDS, known_once, self._check)
        return self._journals[name]

    def withdraw(self) -> None:
        """Remove the files that this run has created, because its job was refused before any unit started.

        The same command can then be repeated. Files that were there before, also those of a resumed run, stay.
        """
        self._heartbeat.stop()
        with self._warn_once(), contextlib.suppress(TakenOverError):
            self._check()
            # as long as job.yaml is there, no other run starts in the directory
            last = (fs.join(self.url, "job.yaml"), fs.join(self.url, "log"), self.url)
            for url in sorted({*self._created}, key=lambda url: last.index(url) if url in last else -1):
                path = fs.local_path(url)
                if url not in last[1:]:
                    fs.remove_tree(url)
                elif path is not None and path.is_dir():
                    with contextlib.suppress(OSError):  # others have files there
                        path.rmdir()
            for journal in self._journals.values():
                journal.close(drop=journal.url in self._created)
            self._journals, self._created = {}, []

    def check_writable(self) -> None:
        """Check that files can be written to the directory; DataError if not."""
        probe = fs.join(self.url, f".{secrets.token_hex(4)}")
        fs.write_atomic(probe, b"")
        fs.remove_tree(probe)

    def finish(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Write ``summary.json`` for the whole run; return it. TakenOverError if another process owns the run."""
        whole = dict(summary)
        for name, text in self._texts.items():
            if not fs.exists(fs.join(self.url, name)):
                logger.warning("%s: the file was removed, and is written again.", fs.join(self.url, name))
                self._write(name, text)
        if self._command is not None:
            commands = self._commands()
            if not commands:
                logger.warning("%s: the file was removed. Seconds and resumes cover only the last start.",
                               fs.join(self.url, COMMANDS))  # fmt: skip
                commands = [{**self._command, "seconds_before": 0.0}]
                with self._warn_once():
                    self._journal(COMMANDS).add(to_json(commands[0]))
            whole["resumes"] = len(commands) - 1
            whole["seconds"] = round(whole["seconds"] + commands[-1]["seconds_before"], 3)
            if len(commands) > 1:
                self._add_earlier_results(whole)
        if whole.get("learning") and whole["state"] != "failed":
            begun_from = [(self._command or {}).get(key) for key in ("init_from", "resume")]
            events, first_step = self._journal(METRICS).objects(), self._steps.get(0, 0)
            job = read_plain(self._texts["resolved.yaml"], "resolved.yaml")
            said = sentences(whole["learning"], whole, events, not any(begun_from), first_step, job)
            whole["learning"] = {**whole["learning"], "sentences": said}
        self._write("summary.json", f"{to_json(whole, indent=2)}\n")
        return whole

    def _add_earlier_results(self, whole: dict[str, Any]) -> None:
        """Add the metrics and baselines of phases that ran only before the run was resumed."""
        for phase in PREFERRED_PHASES:
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
        self._heartbeat.stop()
        for close in (self._trace.save, *(journal.close for journal in self._journals.values())):
            # if another process has taken over the run, it has all files
            with self._warn_once(), contextlib.suppress(TakenOverError):
                close()


def _with_steps(resolved: str, n: int) -> str:
    """Replace the epochs in the text of a job by the number of steps ``n``, which is known once it starts."""
    text, was_there = re.subn(r"^epochs: .*\n", "", resolved, flags=re.MULTILINE)
    return re.sub(r"^train_steps: .*$", f"train_steps: {n}", text, flags=re.MULTILINE) if was_there else resolved


def is_run(url: str) -> bool:
    """Return whether a directory contains a run; a job file alone is not a run."""
    return any(fs.exists(fs.join(url, name)) for name in (COMMANDS, OWNER))


def read_summary(url: str) -> dict[str, Any]:
    """Return the content of ``summary.json`` of a run; empty if it is missing or unreadable."""
    file = fs.join(url, "summary.json")
    try:
        summary = json.loads(fs.read_bytes(file)) if fs.exists(file) else {}
    except ValueError:
        return {}
    return summary if isinstance(summary, dict) else {}


def first_command(url: str) -> dict[str, Any]:
    """Return the first line of ``commands.jsonl`` of a run; empty if there is none."""
    return next(iter(read_objects(fs.join(url, COMMANDS))), {})
