"""RemoteJobs: the jobs of a Dask cluster, as any client asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from distributed import Client

from singa_dask import version
from singa_dask.comm.loading import load_on_scheduler
from singa_dask.errors import ClusterError, ConfigError
from singa_dask.runtime.job.follower import GONE, ask_jobs
from singa_dask.runtime.job.names import JOBS, Op, this_user

MIN_PIECE = 4
"""A shorter part of an id may be that of a job that nobody means."""
NAMED = 8
"""So many jobs are named in an error at most."""


class RemoteJobs:
    """Asks the scheduler for jobs; on one that has never run any, there are none.

    Every question raises `ClusterError` if the scheduler does not answer.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each job, the newest first; see `Views.list`."""
        try:
            load_on_scheduler(self.client, version.__name__)
            if not self.client.get_metadata([JOBS], default=False):
                return []
        except GONE as error:
            raise self._silent(error) from error
        rows: dict[str, dict[str, Any]] = {}
        page = self._ask(Op.LIST)
        while page:
            rows |= {row["id"]: row for row in page}
            page = self._ask(Op.LIST, before=page[-1]["id"]) if page[-1]["ended"] is not None else []
        return list(rows.values())

    def find(self, piece: str) -> dict[str, Any]:
        """Return the row of the job that a person means, see `match_job`."""
        return match_job(piece, self.rows())

    def view(self, job_id: str) -> dict[str, Any]:
        """Return all that the scheduler knows about a job, see `Views.view`."""
        return dict(self._ask_job(Op.VIEW, job_id))

    def stop(self, job_id: str) -> None:
        """Stop a job with a checkpoint."""
        self._ask_job(Op.SIGNAL, job_id, name="SIGTERM", by=this_user())

    def kill(self, job_id: str) -> None:
        """End a job at once."""
        self._ask_job(Op.SIGNAL, job_id, name="SIGKILL", by=this_user())

    def checkpoint(self, job_id: str) -> int:
        """Ask for a checkpoint now; return the step that it will at least be of."""
        return int(self._ask_job(Op.CHECKPOINT, job_id))

    def stacks(self, job_id: str, unit: str = "") -> dict[str, dict[str, Any]]:
        """Return what units are doing, see `Views.stacks`."""
        return dict(self._ask_job(Op.STACKS, job_id, unit=unit))

    def events(self, job_id: str) -> Iterator[dict[str, Any]]:
        """Yield the events of a job that the scheduler has kept so far; none if it has kept none."""
        after = -1
        while found := self._ask(Op.EVENTS, job_id=job_id, after=after):
            yield from found
            after = found[-1]["n"]

    def _ask_job(self, op: str, job_id: str, **arguments: Any) -> Any:
        answer = self._ask(op, job_id=job_id, **arguments)
        if answer is None:
            raise ConfigError(f"{job_id}: the job has ended.")
        return answer

    def _ask(self, op: str, **arguments: Any) -> Any:
        try:
            return ask_jobs(self.client, op, **arguments)
        except GONE as error:
            raise self._silent(error) from error

    def _silent(self, error: BaseException) -> ClusterError:
        scheduler: Any = self.client.scheduler
        where = getattr(scheduler, "address", "the scheduler")
        return ClusterError(f"{where}: the scheduler does not answer: {str(error) or type(error).__name__}.")


def match_job(piece: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the row of the job that ``piece`` means.

    It is an id, at least `MIN_PIECE` characters of its beginning or end, or the name of a job. Of several jobs it is
    the only one that has not ended.

    Parameters
    ----------
    piece : str
    rows : sequence of mapping
        With ``id``, ``name`` and ``ended``; the newest first.

    Raises
    ------
    ConfigError
        There is no such job, or there are several.
    """
    matching = [each for each in rows if piece == each["id"]]
    matching = matching or [each for each in rows if _fits(piece, each)]
    running = [each for each in matching if each["ended"] is None]
    found = running or matching
    if len(found) == 1:
        return dict(found[0])
    if found:
        raise ConfigError(f"{piece}: several jobs have that in their id or name: {_names(found)}. Give more of the id.")
    expected = f"an id, at least {MIN_PIECE} characters of its beginning or end, or a name"
    known = f"Known: {_names(rows)}." if rows else "The cluster knows no job."
    raise ConfigError(f"{piece or repr(piece)}: there is no such job. Expected {expected}. {known}")


def _fits(piece: str, row: Mapping[str, str]) -> bool:
    is_part = row["id"].startswith(piece) or row["id"].endswith(piece)
    return piece == row["name"] or (is_part and len(piece) >= MIN_PIECE)


def _names(rows: Sequence[Mapping[str, Any]]) -> str:
    newest = [each["id"] for each in rows][:NAMED]
    n_more = len(rows) - len(newest)
    return ", ".join(newest) + (f" and {n_more} more" if n_more else "")
