"""Completion of jobs in a shell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from click.shell_completion import CompletionItem

from singa_dask.comm.probe import ask
from singa_dask.runtime.job.cluster import address_in
from singa_dask.runtime.job.names import Op

TIMEOUT_S = 1.0
"""A person waits for it."""


def complete_job(given: Mapping[str, Any], incomplete: str) -> list[CompletionItem]:
    """Return the ids of jobs that begin with ``incomplete``, those that run first; none if the scheduler is silent.

    Parameters
    ----------
    given : mapping
        Parameters of the command so far: ``scheduler`` and ``scheduler_file``.
    incomplete : str
    """
    try:
        file = given.get("scheduler_file")
        address = address_in(file) if file else given.get("scheduler")
        rows = ask(str(address), TIMEOUT_S, Op.LIST) if address else []
        found = [row for row in rows if row["id"].startswith(incomplete)]
    except Exception:  # a line of an error would be in the middle of what the person types
        return []
    return [CompletionItem(row["id"], help=f"{row['state']}, {row['owner']}") for row in found]
