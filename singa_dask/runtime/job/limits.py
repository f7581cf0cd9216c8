"""Limits of time, which Dask's configuration may change: ``distributed.singa-dask.NAME``, e.g. ``60s``.

The defaults are for clusters that have thirty times the work that their cores can do: only evidence ends a process
sooner, such as a closed connection.
"""

from __future__ import annotations

import dask.config
from dask.utils import parse_timedelta

from singa_dask.errors import ConfigError

DEFAULTS = {
    "silent": "10s",
    "start": "300s",
    "answer": "30s",
    "host": "300s",
    "client": "60s",
    "scheduler": "60s",
}
"""``silent``: a Dask worker of which nothing comes is given up no sooner. ``start``: all units have begun. ``answer``:
a Dask worker answers, or 20 MB of a snapshot's part have come to another one in each second after that. ``host``: it
has made ready for a process. ``client``: one that has lost its connection is back. ``scheduler``: it answers a client
that is connected."""


def state_url() -> str:
    """Return the URL at which the scheduler keeps detached jobs, ``distributed.singa-dask.state``; empty if nowhere."""
    return str(dask.config.get("distributed.singa-dask.state", ""))


def limit(name: str) -> float:
    """Return a limit in seconds.

    Parameters
    ----------
    name : str
        One of `DEFAULTS`.

    Raises
    ------
    ConfigError
        The configuration has something else than a duration.
    """
    key = f"distributed.singa-dask.{name}"
    value = dask.config.get(key, DEFAULTS[name])
    try:
        return float(parse_timedelta(value))
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{key}: {value!r} in Dask's configuration, expected a duration such as 60s.") from None
