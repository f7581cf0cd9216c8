"""All timeouts of jobs on a cluster: Dask settings, and limits that are derived from these settings.

``distributed.singa-dask.NAME`` in Dask's configuration sets a timeout, e.g. to ``60s``. The defaults tolerate a cluster
that is thirty times slower than usual. Before its timeout, a process is ended only on evidence of its loss, such as a
closed connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import dask.config
from dask.utils import parse_timedelta

from singa_dask.errors import ConfigError

KEY = "distributed.singa-dask"


class Limit(NamedTuple):
    """A timeout.

    Attributes
    ----------
    meaning : str
        What the timeout limits, for users.
    default : str
        Default of the setting; empty for a derived limit.
    of : str
        Name of the limit from which this one is derived; empty for a setting. The derived limit is ``times`` times the
        limit ``of``, plus ``plus_s`` seconds.
    at_least : sequence of str
        Names of limits. This limit must be at least as long as each of them.
    """

    meaning: str
    default: str = ""
    of: str = ""
    times: float = 1.0
    plus_s: float = 0.0
    at_least: Sequence[str] = ()


LIMITS = {
    "silent": Limit(
        "silence after which a Dask worker or a process counts as lost, unless other processes make steps that depend "
        "on it",
        "10s",
    ),
    "answer": Limit("time for a Dask worker to answer the scheduler or another Dask worker", "30s"),
    "host": Limit("time for a Dask worker to prepare a process of the job", "300s", at_least=("answer",)),
    "start": Limit("time for all units to start", "300s", at_least=("host",)),
    "client": Limit("time for a client that lost its connection to the scheduler to reconnect", "60s"),
    "scheduler": Limit("time for the scheduler to answer a connected client", "60s", at_least=("question",)),
    "end": Limit("time for the units of a process to end when they are asked to", "8s"),
    "stop": Limit("time for a job that lost its client to stop with a checkpoint", "60s", at_least=("end",)),
    "nanny": Limit("time for a nanny to restart its Dask worker, before units share another Dask worker", "6s"),
    # Timeouts of one call. After a timeout, the call is repeated, or the job continues without an answer. Before it
    # answers, the scheduler may wait for Dask workers or saved jobs, up to the limit `late`.
    "question": Limit("time for the scheduler to answer one call", of="answer", times=1 / 3, at_least=("late",)),
    "connect": Limit("time for a scheduler to identify itself to a new client", of="answer", times=1 / 5),
    "close": Limit("time for the scheduler to receive that a client leaves", of="answer", times=2 / 5),
    # first, the scheduler reads jobs of an earlier scheduler (limit `late`); then it saves the job (limit `answer`)
    "detach": Limit("time for the scheduler to save a detached job", of="answer", times=3 / 2, at_least=("answer",)),
    "load": Limit("time for a scheduler to load the package", of="host", times=1 / 5),
    "late": Limit("silence of the scheduler after which the user is warned", of="answer", times=1 / 6),
    "leaving": Limit("time for the scheduler to receive that a Dask worker closes", of="answer", times=1 / 15),
    "workers": Limit("time without any Dask worker that reads data for a client", of="answer", times=2 / 3),
    "part": Limit("time for a Dask worker to send a piece of a part file", of="answer", times=2.0),
    # the scheduler waits up to the limit `host` for each of these Dask workers to load the package
    "servers": Limit(
        "time for the scheduler to find the Dask workers that serve part files",
        of="host",
        times=6 / 5,
        at_least=("host",),
    ),
    "survey": Limit(
        "time for a Dask worker to find the hosts that store records", of="answer", times=2.0, at_least=("answer",)
    ),
    "waiter": Limit("time between two calls of the client of a queued job", of="answer", times=3.0),
    "attempt": Limit("time for one of at least three attempts to connect two processes", of="answer", times=1 / 10),
    "hopeless": Limit("time for a Dask worker to join, if no present one can host the waiting units", of="answer"),
    "buddy": Limit("time for a Dask worker to prepare for copies of snapshots", of="answer", times=1 / 15),
    "hand-over": Limit("time for a snapshot before units move; then a checkpoint is taken", of="answer", times=1 / 6),
    "aborted": Limit("time to learn why units were aborted, before the job restarts", of="answer", times=1 / 6),
    "driver": Limit(
        "time without a Dask worker that can run the driver of a job, until it is refused", of="answer", times=2.0
    ),
    "driver-left": Limit("time for a driver to leave a Dask worker that closes", of="answer", times=1 / 10),
    # Each of these limits includes the previous one: first units end, then their Dask worker learns this, then the
    # scheduler, then the client.
    "ended": Limit("time for the scheduler to learn that units have ended", of="end", plus_s=1.0, at_least=("end",)),
    "has-ended": Limit(
        "time for a Dask worker to answer that its units have ended", of="end", plus_s=2.0, at_least=("end",)
    ),
    "departed": Limit("time for units to leave a Dask worker that is retired", of="end", plus_s=4.0),
    "killed": Limit("time for the scheduler to end a job after a second signal", of="end", plus_s=7.0),
}


def limit(name: str) -> float:
    """Return one of the `LIMITS` in seconds; raise `ConfigError` if its setting is not a duration."""
    known = LIMITS[name]
    if known.of:
        return known.times * limit(known.of) + known.plus_s
    value = dask.config.get(f"{KEY}.{name}", known.default)
    try:
        return float(parse_timedelta(value))
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{_where(name)}: {value!r} is not a duration. Expected e.g. 60s.") from None


def check_limits(process: str) -> None:
    """Check all limits in the Dask configuration of this process.

    Parameters
    ----------
    process : str
        Name of this process in error messages.

    Raises
    ------
    ConfigError
        A limit is not a duration, or is shorter than a limit in its ``at_least``.
    """
    try:
        for name, known in LIMITS.items():
            mine = limit(name)
            for other in known.at_least:
                if mine < limit(other):
                    source = LIMITS[other].of or other
                    raise ConfigError(
                        f"{_where(name)}: {mine:g} s. Expected at least {limit(other):g} s, as {source} is "
                        f"{limit(source):g} s."
                    )
    except ConfigError as error:
        raise ConfigError(f"{process}: {error}") from None


def _where(name: str) -> str:
    return f"{KEY}.{name} in Dask's configuration"


def state_url() -> str:
    """Return the setting ``distributed.singa-dask.state``; empty by default.

    The scheduler saves detached jobs at this URL.
    """
    return str(dask.config.get(f"{KEY}.state", ""))
