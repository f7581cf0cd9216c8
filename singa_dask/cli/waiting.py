"""``--wait``: how long a verb waits for a cluster, and the messages meanwhile."""

from __future__ import annotations

from functools import partial

from singa_dask import runtime
from singa_dask.cli.echo import echo

__all__ = ["patience_of"]


def patience_of(seconds: float, quiet: bool) -> runtime.Patience:
    """Return the time to wait, with messages on stderr about what is missing unless ``quiet``."""
    return runtime.Patience(seconds) if quiet else runtime.Patience(seconds, partial(echo, err=True))
