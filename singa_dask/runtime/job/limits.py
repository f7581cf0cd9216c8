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
        What must happen before the timeout.
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
        "a Dask worker has sent a heartbeat, and a process has answered another one; longer if heartbeats were late "
        "before, and never while other processes make steps that depend on it",
        "10s",
    ),
    "answer": Limit("a Dask worker answers the scheduler or another Dask worker", "30s"),
    "host": Limit("a Dask worker is ready to run a process of the job", "300s", at_least=("answer",)),
    "start": Limit("all units have started", "300s", at_least=("host",)),
    "client": Limit("a client that lost its connection to the scheduler has reconnected", "60s"),
    "scheduler": Limit("the scheduler answers a connected client", "60s", at_least=("question",)),
    "end": Limit("the units of a process have ended after a request to end", "8s"),
    "stop": Limit("a job that lost its client has stopped with a checkpoint", "60s", at_least=("end",)),
    "nanny": Limit("a nanny has restarted its Dask worker; until then, units share no other Dask worker", "6s"),
    # timeout of a single question: it is then asked again, or dropped if nothing depends on the answer
    "question": Limit("the scheduler has answered one question", of="answer", times=1 / 3),
    "connect": Limit("a scheduler identifies itself to a client that connects", of="answer", times=1 / 5),
    "close": Limit("the scheduler has received the message that a client leaves", of="answer", times=2 / 5),
    "load": Limit("a scheduler has loaded the package", of="host", times=1 / 5),
    "late": Limit("the scheduler answers; after that, the user is informed that it does not", of="answer", times=1 / 6),
    "leaving": Limit("the scheduler has received the message that a Dask worker closes", of="answer", times=1 / 15),
    "workers": Limit("at least one of the Dask workers that read data for a client is there", of="answer", times=2 / 3),
    "part": Limit("a Dask worker has sent a piece of a part file", of="answer", times=2.0),
    "survey": Limit("a Dask worker has found the hosts that store the records of a job", of="answer", times=2.0),
    "waiter": Limit("the client of a queued job has asked again, perhaps after a survey", of="answer", times=3.0),
    "attempt": Limit("a process has connected to another one; there are at least three attempts", "", "answer", 1 / 10),
    "hopeless": Limit("a Dask worker that can host the waiting units has joined", of="answer"),
    "buddy": Limit("a Dask worker is ready for copies of snapshots, else none is used", of="answer", times=1 / 15),
    "hand-over": Limit("a snapshot is taken before units move, else a checkpoint", of="answer", times=1 / 6),
    "aborted": Limit("it is known why units were aborted, else the job restarts", of="answer", times=1 / 6),
    "driver": Limit("a Dask worker for the driver of a detached job is there", of="answer", times=2.0),
    "driver-left": Limit("a driver has left the Dask worker that closes", of="answer", times=1 / 10),
    # These limits grow, because each includes the one before: units end, their Dask worker notices it, then the
    # scheduler, then the client.
    "ended": Limit("the scheduler has heard that the units of a Dask worker have ended", of="end", plus_s=1.0),
    "has-ended": Limit("a Dask worker has answered that its units have ended", of="end", plus_s=2.0),
    "departed": Limit("units have left a Dask worker that is retired", of="end", plus_s=4.0),
    "killed": Limit("the scheduler has ended a job after a second signal", of="end", plus_s=7.0),
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
                        f"{limit(source):g} s: within {name} {known.meaning}."
                    )
    except ConfigError as error:
        raise ConfigError(f"{process}: {error}") from None


def _where(name: str) -> str:
    return f"{KEY}.{name} in Dask's configuration"


def state_url() -> str:
    """Return ``distributed.singa-dask.state``, the URL where the scheduler saves detached jobs.

    The result is empty if it is not set.
    """
    return str(dask.config.get(f"{KEY}.state", ""))
