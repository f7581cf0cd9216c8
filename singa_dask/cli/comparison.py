"""The result of ``compare``, for its report, ``compare.json`` and the terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from singa_dask import fs
from singa_dask.cli.printing import TextColumn, table
from singa_dask.cli.topologies import Ends, Topology
from singa_dask.conf import JobConf
from singa_dask.observe.pictures.comparison import add_statistics, measure, rows, why_not
from singa_dask.shown import shown
from singa_dask.version import __version__

RESULT = "compare.json"


def last_cluster(run_dir: str) -> str:
    """Return the description of the cluster of the last comparison in a directory."""
    file = fs.join(run_dir, RESULT)
    return str(json.loads(fs.read_bytes(file))["cluster"]) if fs.exists(file) else "an unknown cluster"


def describe(
    conf: JobConf,
    topologies: Sequence[Topology],
    ends: Ends,
    reasons: dict[str, str],
    where: str,
    run_dir: str,
) -> dict[str, Any]:
    """Return the comparison for the report and ``compare.json``."""
    target = ends.target
    seeds = sorted({trial.seed for each in topologies for trial in each.trials})
    return {
        "job": conf.name,
        "version": __version__,
        "time": time.time(),
        "cluster": where,
        "seeds": seeds or [conf.seed],
        "target": {"metric": target.metric, "value": target.value, "text": str(target)} if target else None,
        "limit_s": ends.seconds,
        "topologies": [_describe_topology(each, ends, reasons, run_dir) for each in topologies],
    }


def _describe_topology(topology: Topology, ends: Ends, reasons: dict[str, str], run_dir: str) -> dict[str, Any]:
    runs = []
    for trial in topology.trials:
        run = {"seed": trial.seed, "path": trial.url.removeprefix(f"{run_dir}/")}
        run |= measure(trial.url, topology.batch, ends.target)
        if trial.url in reasons:
            run |= {"state": "not run", "reason": reasons[trial.url]}
        runs.append(run)
    units = ""
    if topology.layout is not None:
        cluster = topology.layout.cluster
        units = f"{cluster.nworker_groups} x {cluster.nworkers_per_group} workers, "
        units += f"{cluster.nserver_groups} x {cluster.nservers_per_group} servers"
    described = {
        "name": topology.name,
        "reason": topology.reason,
        "units": units,
        "runs": runs,
    }
    add_statistics(described)
    return described


def table_lines(comparison: Mapping[str, Any], width: int) -> Iterator[str]:
    """Yield a table of the medians, with as many columns as fit, and the reasons of missing runs."""
    cells = rows(comparison)
    columns = [
        TextColumn(title, [row[title].partition(" (")[0] for row in cells], rank, right=rank > 0)
        for rank, title in enumerate(cells[0])
    ]
    yield from table(columns, width)
    if len(comparison["seeds"]) > 1:
        yield f"Medians of {len(comparison['seeds'])} seeds; the report has more."
    for topology in comparison["topologies"]:
        for what, why in why_not(topology):
            yield shown(f"{topology['name']}, {what}: {why}")
