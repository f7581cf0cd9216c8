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

The process that records the run owns the directory; see `Ownership`. A process that was suspended and replaced, such as
an old driver, notices this before its next write.

A run that resumes at step s drops its metrics from step s on, and later checkpoints, because it repeats these steps.
Most of the summary covers the whole run: ``steps``, ``seconds`` (without gaps), ``resumes``, and the last metrics of
train, test and validation. Speeds, waits and bytes cover only the time since the last resume.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from singa_dask import fs
from singa_dask.conf.files.redacted_text import redact_job
from singa_dask.conf.files.yaml_text import read_plain
from singa_dask.errors import ConfigError, DataError, TakenOverError
from singa_dask.fs.ownership import OWNER, Ownership, has_died, read_owner
from singa_dask.observe.event_texts import layer_metrics, log_text
from singa_dask.observe.files.heartbeat import HEARTBEAT, LOST_S, Heartbeat, is_alive
from singa_dask.observe.files.journal import Journal, is_in_use, read_objects
from singa_dask.observe.files.trace_file import SPANS, TRACE, TraceFile
from singa_dask.observe.json_values import to_json
from singa_dask.observe.learning import PREFERRED_PHASES, sentences
from singa_dask.redaction import redact
from singa_dask.wording import listed

logger = logging.getLogger(__name__)


# keys that identify metrics: two events with the same values report the same batches
SAME = ("event", "phase", "group", "step")
COMMANDS = "commands.jsonl"
METRICS = "metrics.jsonl"
DRIVER_LOG = "log/driver.log"
OWN_FILES = ("job.yaml", "resolved.yaml", METRICS, COMMANDS, "bad_records.jsonl", TRACE, "summary.json")
OWN_NAMES = {*OWN_FILES, HEARTBEAT, "log", "checkpoint", "tensorboard", SPANS}

TESTS = ("test", "validation")

ALREADY_THERE = (
    "a run is already there. Continue it with --resume, replace it with --overwrite, or choose another --run-dir "
    "(in Python: resume=True, overwrite=True, run_dir=)."
)
# keys to record; processes that pass on an event add further keys, which are not recorded
BAD_RECORD_KEYS = ("unit", "layer", "url", "block", "row", "rows", "reason")


def new_job_id(name: str) -> str:
    """Return an id for a run: ``<name>-<YYYYmmdd-HHMMSS>-<4 hex digits>``, valid as a file name."""
    return f"{_plain(name)}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "job"


def newest_run(parent: str, name: str) -> str:
    """Return the URL of the latest run of a job in a directory. Runs with a checkpoint come first.

    Raises
    ------
    ConfigError
        The directory has no run of the job.
    """
    pattern = re.compile(re.escape(_plain(name)) + r"-\d{8}-\d{6}-[0-9a-f]{4}")
    runs = [run for run in (fs.ls(parent) if fs.exists(parent) else []) if pattern.fullmatch(run)]
    for name_within in ("checkpoint", "job.yaml"):
        for run in reversed(runs):
            if fs.exists(fs.join(parent, run, name_within)):
                return fs.join(parent, run)
    others = [fs.join(parent, run) for run in (fs.ls(parent) if fs.exists(parent) else [])]
    there = [short_url(url) for url in others if is_run(url)]
    also = f" Runs with names of their own: {listed(there, 5)}." if there else ""
    raise ConfigError(
        f"{parent}: there is no run of job {name!r} with a checkpoint. Pass one with --resume URL or --run-dir.{also}"
    )


def short_url(url: str) -> str:
    """Shorten a URL: a local path below the current directory becomes relative."""
    path = fs.local_path(url)
    if path is None or not path.is_relative_to(here := Path.cwd()):
        return redact(url)
    return str(path.relative_to(here))


def _is_empty_directory(url: str) -> bool:
    return fs.is_dir(url) and not fs.ls(url)


class RunDirectory:
    """Records one run of a job. The directory is created when the job starts.

    Use the object in a ``with`` block. Only one thread at a time may call ``on_event``.

    Parameters
    ----------
    url : str
        URL of the directory.
    job_text : str
        Text of the job file.
    resolved_text : str
        Text of the job with all defaults.
    goes_on : bool
        Whether to continue an existing run. If False, an existing run is an error.
    replaces : bool
        Whether to delete an existing run when the job starts. Other files in its directory stay.
    steps : mapping of int to int
        First step of each worker group of a resumed run.
    command : mapping, optional
        Line for ``commands.jsonl``. Without it, this file is not written, and the summary covers only the time since
        the last start.
    job_id : str
        Unique id of this run.
    driver : int
        Number of the driver of a detached job; 0 for a client. A number above 1 means that an earlier driver, which may
        have started the run, was lost. Then lines that are already in the files are not written again.

    Raises
    ------
    ConfigError
        The directory has another run, a run in the directory is running, or files of other programs have the names of
        files of a run.
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
        self._created = [url] if (self._is_new or replaces) and path is not None and not path.exists() else []

    def _check_free(self, is_ours: bool) -> None:
        """Raise `ConfigError` if the directory has a run that this run must not replace, or that is running."""
        if not is_ours:
            raise _is_running(self.url, read_owner(self.url))
        if self._is_new and is_run(self.url) and fs.exists(fs.join(self.url, "job.yaml")):
            raise ConfigError(f"{self.url}: {ALREADY_THERE}")

    def _refuse_others(self, names: Collection[str]) -> None:
        """Raise `ConfigError` if other programs have files here that the run would replace or delete."""
        found = [name for name in (fs.ls(self.url) if fs.exists(self.url) else ()) if name in names]
        if others := [name for name in found if not _is_empty_directory(fs.join(self.url, name))]:
            raise ConfigError(
                f"{self.url}: this is not a run directory, but it contains {', '.join(others)}, which a run would "
                f"replace. "
                "Choose another --run-dir."
            )

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Record an event in the file for its kind.

        After the start, an error such as a full disk causes a warning once, and the event is dropped.

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
                    self._created = []  # the files belong to the other run
                    raise
            elif self._command is not None:
                self._journal(COMMANDS)  # locks the file, which shows that the run is running
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
        """Replace local journals by copies.

        An old driver that still has the old files open then writes to files that no longer have a name.
        """
        if fs.local_path(self.url) is None:
            return
        log = fs.join(self.url, "log")
        logs = [f"log/{name}" for name in (fs.ls(log) if fs.exists(log) else ())]
        for name in (METRICS, "bad_records.jsonl", COMMANDS, *logs):
            if fs.exists(file := fs.join(self.url, name)):
                fs.write_atomic(file, fs.read_bytes(file), check=self._check)

    def _check(self) -> None:
        if self._is_owner:  # before the start, the directory may belong to an earlier run
            self._owner.check()

    def _write(self, name: str, text: str) -> None:
        fs.write_atomic(fs.join(self.url, name), text, check=self._check)

    def _remove(self, *names: str) -> None:
        self._check()
        fs.remove_tree(fs.join(self.url, *names))

    @contextlib.contextmanager
    def _warn_once(self) -> Iterator[None]:
        """Log a DataError in the context as a warning instead of raising it, only the first time."""
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
        """Delete files and lines that the run replaces or repeats; write the files that describe the job."""
        if self._command is not None:  # if several runs start at the same moment, one of them gets the lock
            self._check_free(self._journal(COMMANDS).is_ours or self._replaces_driver)
        # remote file systems have no locks, so the directory belongs to the first run that creates job.yaml there
        is_remote = fs.local_path(self.url) is None
        new = [fs.join(self.url, name) for name in (*self._texts, OWNER)]
        new = [url for url in new if (self._is_new or self._replaces) and not fs.exists(url)]
        if self._is_new and is_remote and not fs.create(fs.join(self.url, "job.yaml")):
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
        """Return the undamaged lines of ``commands.jsonl``."""
        return [each for each in self._journal(COMMANDS).objects() if {"time", "seconds_before"} <= each.keys()]

    def _drop_later_checkpoints(self, directory: str) -> None:
        """Delete checkpoints of steps after this run's first step, because the run may diverge from them."""
        for name in fs.ls(directory) if fs.exists(directory) else ():
            step = re.fullmatch(r"step-(\d+)", name)
            if step and int(step[1]) > self._steps[0]:
                # remove the manifest first: without it, the other files are not a checkpoint
                self._remove("checkpoint", name, "manifest.json")
                self._remove("checkpoint", name)

    def _is_kept(self, event: Mapping[str, Any]) -> bool:
        """Return whether a resumed run keeps a metrics event of an earlier part of the run.

        A test at the first step is kept, because it may not be repeated.
        """
        step, group = int(event["step"]), int(event.get("group", 0))
        first = self._steps.get(group, self._steps[0])
        return step < first or (step == first and event.get("phase") != "train")

    def _seconds_before(self, commands: Sequence[Mapping[str, Any]]) -> float:
        """Return the seconds for which the run has run before now. A killed run counts up to its last metrics."""
        if not commands:
            return 0.0
        last, summary = commands[-1], read_summary(self.url)
        if summary.get("resumes") == len(commands) - 1:
            return float(summary["seconds"])
        times = [event["time"] for event in self._journal(METRICS).objects() if event["time"] > last["time"]]
        return float(last["seconds_before"]) + (max(times) - float(last["time"]) if times else 0.0)

    def _journal(self, name: str) -> Journal:
        if name not in self._journals:
            if (self._is_new or self._replaces) and name in (COMMANDS, DRIVER_LOG):
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
                    with contextlib.suppress(OSError):  # other programs have files there
                        path.rmdir()
            for journal in self._journals.values():
                journal.close(drop=journal.url in self._created)
            self._journals, self._created = {}, []

    def check_writable(self) -> None:
        """Raise `DataError` if files cannot be written to the directory."""
        probe = fs.join(self.url, f".{secrets.token_hex(4)}")
        fs.write_atomic(probe, b"")
        fs.remove_tree(probe)

    def finish(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Write ``summary.json`` for the whole run; return its content.

        Raises
        ------
        TakenOverError
            Another process owns the directory.
        """
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
        if (best := whole.get("best_step")) is not None:
            whole |= {phase: _last_metrics(self._events_until(best), phase) for phase in TESTS}
        if whole.get("learning") and whole["state"] != "failed":
            begun_from = [(self._command or {}).get(key) for key in ("init_from", "resume")]
            events, first_step = self._events_until(best), self._steps.get(0, 0)
            job = read_plain(self._texts["resolved.yaml"], "resolved.yaml")
            said = sentences(whole["learning"], whole, events, not any(begun_from), first_step, job)
            whole["learning"] = {**whole["learning"], "sentences": said}
        self._write("summary.json", f"{to_json(whole, indent=2)}\n")
        return whole

    def _add_earlier_results(self, whole: dict[str, Any]) -> None:
        """Add the metrics and baselines of phases that ran only before the run was resumed."""
        for phase in PREFERRED_PHASES:
            whole[phase] = whole[phase] or _last_metrics(self._journal(METRICS).objects(), phase)
        if learning := whole.get("learning"):
            before = read_summary(self.url).get("learning", {}).get("baselines", {})
            whole["learning"] = {**learning, "baselines": {**before, **learning["baselines"]}}

    def _events_until(self, best: int | None) -> list[dict[str, Any]]:
        """Return the metrics of the run, without tests and validations after the step ``best``."""
        events = list(self._journal(METRICS).objects())
        return [each for each in events if best is None or each.get("phase") not in TESTS or each["step"] <= best]

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *error: object) -> None:
        self._heartbeat.stop()
        for close in (self._trace.save, *(journal.close for journal in self._journals.values())):
            # a process that has taken over the run writes all files, so nothing is missing
            with self._warn_once(), contextlib.suppress(TakenOverError):
                close()


def _last_metrics(events: Iterable[Mapping[str, Any]], phase: str) -> dict[str, float]:
    found = [each for each in events if each.get("phase") == phase]
    return next((layer_metrics(each) for each in reversed(found) if each["group"] == 0), {})


def _with_steps(resolved: str, n: int) -> str:
    """Replace ``epochs`` in the text of a job by the number of steps ``n``, known once the job starts."""
    text, was_there = re.subn(r"^epochs: .*\n", "", resolved, flags=re.MULTILINE)
    return re.sub(r"^train_steps: .*$", f"train_steps: {n}", text, flags=re.MULTILINE) if was_there else resolved


def is_run(url: str) -> bool:
    """Return whether a directory contains a run. A job file alone is not a run."""
    return any(fs.exists(fs.join(url, name)) for name in (COMMANDS, OWNER))


def check_ended(url: str, job_id: str, known: Mapping[str, bool]) -> None:
    """Check that no other job is running or queued in a run directory.

    ``known`` decides about jobs that the scheduler knows. Another job counts as running if its remote directory has a
    recent heartbeat, unless its process ran on this host and was killed. For local directories, see `is_in_use`.

    Parameters
    ----------
    job_id : str
        The job that is about to start there.
    known : mapping of str to bool
        For each job of this directory that the scheduler knows, whether the job is running or queued.

    Raises
    ------
    ConfigError
        Another job is running or queued there.
    """
    if others := [other for other, runs in known.items() if runs and other != job_id]:
        raise ConfigError(
            f"{url}: a run is running or queued there (job {others[0]}). Stop it first: singa-dask stop {others[0]}. "
            "Or choose another --run-dir."
        )
    if is_alive(url):
        owner = read_owner(url)
        if owner.get("owner") not in (job_id, *known) and not has_died(owner):
            raise _is_running(url, owner)


def _is_running(url: str, owner: Mapping[str, Any]) -> ConfigError:
    job, remote = owner.get("owner") or "unknown", fs.local_path(url) is None
    return ConfigError(
        f"{url}: a run is running there (job {job}, process {owner.get('pid')} on {owner.get('host')}). Stop it first; "
        f"on a cluster: singa-dask stop {job}. Or choose another --run-dir."
        f"{f' If the process was killed, try again after {LOST_S:.0f} s.' * remote}"
    )


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
