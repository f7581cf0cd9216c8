"""All timeouts of jobs on a cluster: settings of Dask, and limits that are derived from them.

``distributed.singa-dask.NAME`` in Dask's configuration sets a timeout, e.g. to ``60s``. The defaults suit clusters that
are overloaded by a factor of thirty. A process is ended sooner only on evidence, such as a closed connection.
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
        What must have happened before the timeout.
    default : str
        Default of a setting; empty for a derived limit.
    of : str
        The limit from which this one is derived: ``times`` times that limit, plus ``plus_s`` seconds.
    at_least : sequence of str
        Limits that may not be longer than this one.
    """

    meaning: str
    default: str = ""
    of: str = ""
    times: float = 1.0
    plus_s: float = 0.0
    at_least: Sequence[str] = ()


LIMITS = {
    "silent": Limit(
        "a Dask worker has sent a heartbeat, and a process has answered another one; later where heartbeats have come "
        "late before, and never while others make steps that need it",
        "10s",
    ),
    "answer": Limit("a Dask worker answers the scheduler or another Dask worker", "30s"),
    "host": Limit("a Dask worker has made ready for a process of the job", "300s", at_least=("answer",)),
    "start": Limit("all units have begun", "300s", at_least=("host",)),
    "client": Limit("a client that has lost its connection to the scheduler is back", "60s"),
    "scheduler": Limit("the scheduler answers a client that is connected", "60s", at_least=("question",)),
    "end": Limit("the units of a process have ended after they were told to", "8s"),
    "stop": Limit("a job whose client is gone has stopped with a checkpoint", "60s", at_least=("end",)),
    "nanny": Limit("a nanny has started its Dask worker again; until then units do not share others", "6s"),
    # limit for a single question; after it, the question is repeated, or dropped if nothing depends on the answer
    "question": Limit("the scheduler has answered one question", of="answer", times=1 / 3),
    "connect": Limit("a scheduler says what it is to a client that connects", of="answer", times=1 / 5),
    "close": Limit("the scheduler has heard that a client leaves", of="answer", times=2 / 5),
    "load": Limit("a scheduler has loaded the package", of="host", times=1 / 5),
    "late": Limit("it has answered, or the user is told that it does not", of="answer", times=1 / 6),
    "leaving": Limit("the scheduler has heard that a Dask worker closes", of="answer", times=1 / 15),
    "workers": Limit("of the Dask workers that read data for a client one is there", of="answer", times=2 / 3),
    "part": Limit("a piece of a part file has come from the Dask worker that has it", of="answer", times=2.0),
    "survey": Limit("a Dask worker has found the hosts that store the records of a job", of="answer", times=2.0),
    "waiter": Limit(
        "the client of a queued job has asked again; it may wait for a survey meanwhile", of="answer", times=3.0
    ),
    "attempt": Limit("a process has connected to another one; it tries that three times or more", "", "answer", 1 / 10),
    "hopeless": Limit("units wait where no Dask worker that is there can host them", of="answer"),
    "buddy": Limit("who keeps copies of snapshots is ready, or processes begin without", of="answer", times=1 / 15),
    "hand-over": Limit("a snapshot is taken before units move, or else a checkpoint", of="answer", times=1 / 6),
    "aborted": Limit("it is told why units were aborted, or the job starts again", of="answer", times=1 / 6),
    "driver": Limit("there is a Dask worker for the driver of a detached job", of="answer", times=2.0),
    "driver-left": Limit("a driver has left the Dask worker that closes", of="answer", times=1 / 10),
    # each of these limits waits for the one before: units end, then their Dask worker, the scheduler and the client
    # learn it
    "ended": Limit("the scheduler has heard that the units of a Dask worker have ended", of="end", plus_s=1.0),
    "has-ended": Limit("a Dask worker has answered that its units have ended", of="end", plus_s=2.0),
    "departed": Limit("units have left a Dask worker that is retired", of="end", plus_s=4.0),
    "killed": Limit("the scheduler has ended a job after a second signal", of="end", plus_s=7.0),
}


def limit(name: str) -> float:
    """Return one of `LIMITS` in seconds; raise `ConfigError` if its setting is not a duration."""
    known = LIMITS[name]
    if known.of:
        return known.times * limit(known.of) + known.plus_s
    value = dask.config.get(f"{KEY}.{name}", known.default)
    try:
        return float(parse_timedelta(value))
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{_where(name)}: {value!r} is not a duration. Expected e.g. 60s.") from None


def check_limits(process: str) -> None:
    """Check all limits in the configuration of this process. ``process`` is its name in errors.

    Raises
    ------
    ConfigError
        A limit is not a duration, or is shorter than a limit that it has to exceed.
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
    """Return ``distributed.singa-dask.state``, the URL where detached jobs are saved; empty if not set."""
    return str(dask.config.get(f"{KEY}.state", ""))
