"""RemoteJobs: list, describe, stop and end the jobs of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from distributed import Client

from singa_dask import version
from singa_dask.comm.remote_import import load_on_scheduler
from singa_dask.errors import ConfigError
from singa_dask.lazy import LazyModule
from singa_dask.redaction import redact
from singa_dask.runtime.job.calls import ask_jobs, expecting_answer
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import JOBS, Op, this_user
from singa_dask.wording import listed

# loaded only to compare run directories
fs = LazyModule("singa_dask.fs")

MIN_PIECE = 4
"""Shortest part of an id that may identify a job. A shorter part would often match by accident."""
NAMED = 8
"""Maximum number of jobs that an error names."""


class RemoteJobs:
    """Lists, describes, stops and ends jobs by calls to the scheduler.

    Every method raises `ClusterError` if the scheduler does not answer.

    Attributes
    ----------
    unread : str
        Why the rows of the last call lack the detached jobs of an earlier scheduler; empty if all jobs are there.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.unread = ""

    def rows(self, ended: bool = True) -> list[dict[str, Any]]:
        """Return a row for each job, the newest first; see `Views.list`. Ended jobs only if ``ended`` is True."""
        with expecting_answer(self.client):
            load_on_scheduler(self.client, version.__name__, limit("load"))
            if not self.client.get_metadata([JOBS], default=False):
                return []
        self.unread = self._ask(Op.UNREAD)
        rows: dict[str, dict[str, Any]] = {}
        page = self._ask(Op.LIST)
        if not ended:
            return [row for row in page if row["ended"] is None]
        while page:
            rows |= {row["id"]: row for row in page}
            page = self._ask(Op.LIST, before=page[-1]["id"]) if page[-1]["ended"] is not None else []
        return list(rows.values())

    def find(self, piece: str) -> dict[str, Any]:
        """Return the row of the job that ``piece`` refers to; see `match_job`."""
        rows = self.rows()
        try:
            return match_job(piece, rows)
        except ConfigError as error:
            raise ConfigError(f"{error} {self.unread}".rstrip()) from None

    def view(self, job_id: str) -> dict[str, Any]:
        """Return a description of a job; see `Views.view`."""
        return dict(self._ask_job(Op.VIEW, job_id))

    def stop(self, job_id: str) -> None:
        """Stop a job with a checkpoint."""
        self._ask_job(Op.SIGNAL, job_id, name="SIGTERM", by=this_user())

    def kill(self, job_id: str) -> None:
        """End a job immediately."""
        self._ask_job(Op.SIGNAL, job_id, name="SIGKILL", by=this_user())

    def checkpoint(self, job_id: str) -> int:
        """Request a checkpoint now; return the earliest step at which it can be taken."""
        return int(self._ask_job(Op.CHECKPOINT, job_id))

    def stacks(self, job_id: str, unit: str = "") -> dict[str, dict[str, Any]]:
        """Return the stacks of the threads of units; see `Views.stacks`."""
        return dict(self._ask_job(Op.STACKS, job_id, unit=unit))

    def events(self, job_id: str) -> Iterator[dict[str, Any]]:
        """Yield the events of a job that the scheduler has kept so far, the oldest first."""
        after = -1
        while events := self._ask(Op.EVENTS, job_id=job_id, after=after):
            yield from events
            after = events[-1]["n"]

    def _ask_job(self, op: str, job_id: str, **arguments: Any) -> Any:
        answer = self._ask(op, job_id=job_id, **arguments)
        if answer is None:
            raise ConfigError(f"{job_id}: {self._ask(Op.UNREAD) or 'the job has ended.'}")
        return answer

    def _ask(self, op: str, **arguments: Any) -> Any:
        with expecting_answer(self.client):
            return ask_jobs(self.client, op, **arguments)


def match_job(piece: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the row of the job that ``piece`` refers to.

    Parameters
    ----------
    piece : str
        One of these: the id of a job; at least `MIN_PIECE` characters from the beginning or end of an id; the name of a
        job; or a run directory. If ``piece`` fits several jobs, only running and queued jobs count. If all of these
        jobs have ended, the newest counts; the key ``also`` of its row has the ids of the older jobs.
    rows : sequence of mapping
        Rows with ``id``, ``name``, ``run_url`` and ``ended``, the newest job first.

    Raises
    ------
    ConfigError
        No job fits, or several jobs fit that have not ended.
    """
    matching = [row for row in rows if piece == row["id"]]
    matching = matching or [row for row in rows if _fits(piece, row)]
    running = [row for row in matching if row["ended"] is None]
    matching = running or matching
    if matching and (len(matching) == 1 or not running):
        return {**matching[0], "also": [row["id"] for row in matching[1:]]}
    if matching:
        raise ConfigError(
            f"{piece}: several jobs contain this in their id or name: {_names(matching)}. Give more of the id."
        )
    expected = f"an id, at least {MIN_PIECE} characters of its beginning or end, a name, or a run directory"
    known = f"Known: {_names(rows)}." if rows else "The cluster knows no job."
    raise ConfigError(f"{piece or repr(piece)}: there is no such job. Expected {expected}. {known}")


def _fits(piece: str, row: Mapping[str, str]) -> bool:
    is_part = row["id"].startswith(piece) or row["id"].endswith(piece)
    if piece == row["name"] or (is_part and len(piece) >= MIN_PIECE):
        return True
    return bool(redact(fs.absolute(piece)) == row["run_url"] != "")


def _names(rows: Sequence[Mapping[str, Any]]) -> str:
    return listed([row["id"] for row in rows], NAMED)
