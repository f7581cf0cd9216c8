"""``list``: a table of jobs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from singa_dask.cli.clusters import jobs_of
from singa_dask.cli.echo import echo
from singa_dask.cli.loading import load
from singa_dask.cli.tables import Column, ago, table, terminal_width
from singa_dask.errors import ClusterError
from singa_dask.observe import to_json

SHOWN_ENDED = 10
REASON = 60
"""Characters of a reason that are shown."""

Row = Mapping[str, Any]


def list_jobs(
    scheduler: str | None, scheduler_file: str | None, runs: str | None, show_all: bool, as_json: bool
) -> None:
    """Print the jobs of a cluster, or those in a directory of runs."""
    rows = of_runs(runs, scheduler, scheduler_file) if runs else of_cluster(scheduler, scheduler_file)
    rows = sorted(rows, key=lambda row: (row["ended"] is None, row["ended"] or row["began"]), reverse=True)
    if as_json:
        echo(to_json(rows))
        return
    ended = [row for row in rows if row["ended"] is not None]
    hidden = [] if show_all else ended[SHOWN_ENDED:]
    shown = rows[: len(rows) - len(hidden)]
    if not shown:
        echo("no jobs.", err=True)
    for line in table(columns(shown, time.time()), terminal_width()) if shown else ():
        echo(line)
    if hidden:
        echo(f"{len(hidden)} more have ended; --all shows them.", err=True)


def of_cluster(scheduler: str | None, scheduler_file: str | None) -> list[dict[str, Any]]:
    """Return the rows of the jobs of a cluster."""
    with jobs_of(scheduler, scheduler_file) as jobs:
        return jobs.rows()


def of_runs(url: str, scheduler: str | None, scheduler_file: str | None) -> list[dict[str, Any]]:
    """Return the rows of the runs in a directory; of those that a scheduler knows, what that says."""
    rows: list[dict[str, Any]] = load("singa_dask.observe.run_rows:list_runs")(url)  # it takes a moment to import
    known: dict[str, dict[str, Any]] = {}
    if scheduler or scheduler_file:
        try:
            known = {row["run_url"]: row for row in of_cluster(scheduler, scheduler_file)}
        except ClusterError as error:
            echo(f"{error} States are as the files say.", err=True)
    return [known.get(row["run_url"], row) for row in rows]


def columns(rows: Sequence[Row], now: float) -> list[Column]:
    """Return the table of some jobs."""
    return [
        Column("job", [row["id"] for row in rows]),
        Column("name", [row["name"] for row in rows], 5),
        Column("owner", [row["owner"] for row in rows], 3),
        Column("state", [row.get("standing", row["state"]) for row in rows]),
        Column("step", [_steps(row) for row in rows], right=True),
        Column("loss", ["" if row["loss"] is None else f"{row['loss']:.4f}" for row in rows], 1, right=True),
        Column("samples/s", [f"{row['samples_per_s']:.0f}" if row["samples_per_s"] else "" for row in rows], 4, True),
        Column("reason", [_cut(row["reason"]) for row in rows], 6),
        Column("since", [ago(now - (row["ended"] or row["began"] or now)) for row in rows], 2, right=True),
    ]


def _cut(reason: str) -> str:
    """Return the first words of a reason; `view` has all of it."""
    return reason if len(reason) <= REASON else f"{reason[:REASON].rpartition(' ')[0]} …"


def _steps(row: Row) -> str:
    total, step = row["train_steps"], max(row["step"], 0)
    return f"{step}/{total}" if total else str(step)
