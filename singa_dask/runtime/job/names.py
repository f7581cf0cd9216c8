"""Names that the processes of a job share: plug-ins, operations, events, tasks, signals and the user."""

from __future__ import annotations

import getpass
import os
import re
import signal
import socket
from typing import Any

JOBS = "singa-dask-jobs"
"""Name of the scheduler plug-in."""
SITE = "singa-dask"
"""Name of the worker plug-in, and of its entry in the metrics of a Dask worker."""
DRIVERS = "singa-dask-drivers"
"""Name of the worker plug-in that runs the drivers of detached jobs."""
EVENTS = "singa-dask-event"
"""Name of the stream that carries events from Dask workers to the scheduler."""
TAKEN_OVER = "taken over"
"""Event for a driver whose job another driver has taken over."""
NOTICES = ("SIGUSR1", "SIGUSR2", "SIGXCPU")
"""Signals that batch systems send before they end a job. These signals may repeat, so a second signal does not abort
the job."""
STOPS = ("SIGINT", "SIGTERM", "SIGHUP", *NOTICES)
"""Signals that stop a job with a checkpoint."""
RUN_STOP = "run.stop()"
"""The name that stands for a signal when a program calls `Run.stop`."""
SIGNAL_CODES = {name: 128 + signal.Signals[name] for name in (*STOPS, "SIGKILL")} | {RUN_STOP: 128 + signal.SIGINT}
"""Exit codes of jobs that were ended by a signal."""


class Op:
    """Names of the remote operations that the scheduler plug-in and the worker plug-in offer."""

    SUBMIT = "singa_dask_submit"
    SIGNAL = "singa_dask_signal"
    REFUSAL = "singa_dask_refusal"
    ROOM = "singa_dask_room"
    TURN = "singa_dask_turn"
    LEAVE = "singa_dask_leave"
    DETACH = "singa_dask_detach"
    DETACHED = "singa_dask_detached"
    RENEW = "singa_dask_renew"
    DRIVER_ENDED = "singa_dask_driven"
    DRIVE = "singa_dask_drive"
    EVENTS = "singa_dask_events"
    CLOCK = "singa_dask_clock"
    LIST = "singa_dask_list"
    VIEW = "singa_dask_view"
    RUNS = "singa_dask_runs"
    UNREAD = "singa_dask_unread"
    LEAVING = "singa_dask_leaving"
    LEFT = "singa_dask_left"
    HOST = "singa_dask_host"
    END = "singa_dask_end"
    CUT = "singa_dask_cut"
    JOIN = "singa_dask_join"
    REQUEST = "singa_dask_request"
    CHECKPOINT = "singa_dask_checkpoint"
    STACKS = "singa_dask_stacks"
    STORE_PART = "singa_dask_store_part"
    SNAPSHOT = "singa_dask_snapshot"
    PART = "singa_dask_part"
    SERVERS = "singa_dask_servers"
    TOKENS = "singa_dask_tokens"
    READ = "singa_dask_read"
    DROP = "singa_dask_drop"


def in_use(job_id: str) -> str:
    """Return the message that refuses a job because its id is in use."""
    return f"job {job_id} is already running or queued on this cluster."


def stopped(when: str, name: str, by: str = "") -> dict[str, Any]:
    """Return the failure of a job that was stopped before it began."""
    reason = f"stopped{f' by {by}' if by else ''} {when}"
    return {"reason": reason, "exit_code": SIGNAL_CODES.get(name, 1), "error": ""}


def units_key(job_id: str, unit: object, incarnation: int) -> str:
    """Return the key of the Dask task that runs units of a process; ``unit`` is the first of these units."""
    return f"singa-dask-{job_id}-{unit}-incarnation-{incarnation}"


def job_of(key: object) -> str:
    """Return the id of the job whose units a Dask task runs; empty for other tasks."""
    match = re.fullmatch(r"singa-dask-(.+)-(worker|server)-\d+-\d+-incarnation-\d+", str(key))
    return match[1] if match else ""


def this_user() -> str:
    """Return ``user@host`` of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a user id without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
