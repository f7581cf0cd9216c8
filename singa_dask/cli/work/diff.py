"""``diff``: what two runs have different in their jobs and their results."""

from __future__ import annotations

from typing import Any

from singa_dask.cli.echo import echo
from singa_dask.cli.tables import columns
from singa_dask.observe import to_json
from singa_dask.observe.run_facts import best_metric, result_of
from singa_dask.observe.stored_run import StoredRun, differences, flatten, short_names, shown_pair


def diff(first: str, second: str, as_json: bool) -> None:
    """Show how the jobs and the results of two runs differ."""
    runs = [StoredRun(first), StoredRun(second)]
    jobs = differences(*(flatten(run.job) for run in runs))
    results = differences(*(_result(run) for run in runs))
    if as_json:
        echo(to_json({"runs": [run.url for run in runs], "job": jobs, "result": results}, indent=2))
        return
    names = short_names(runs) if runs[0].url != runs[1].url else [first, second]
    sections = []
    for title, found in (("job", jobs), ("result", results)):
        rows = [(f"  {key}", *shown_pair(*pair)) for key, pair in found.items()]
        sections.append("\n".join(columns([(title, *names), *rows])) if rows else f"{title}: no difference")
    echo("\n\n".join(sections))


def _result(run: StoredRun) -> dict[str, Any]:
    """Return the result of a run by key path, with the last and the best metrics."""
    phases = {phase: run.summary.get(phase) or {} for phase in ("train", "validation", "test")}
    found = flatten({**result_of(run), **phases})
    best = best_metric(run)
    if best:
        found |= {f"best {best['metric']}": best["value"], f"best {best['metric']} at step": best["step"]}
    return {key: value for key, value in found.items() if value != {}}
