"""Report the results of a search as plain values, as a job file and as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from singa_dask.conf import JobFile
from singa_dask.errors import ConfigError
from singa_dask.lazy import require
from singa_dask.observe.pictures.curves import Panel, PlottedCurve
from singa_dask.observe.pictures.figure import draw
from singa_dask.observe.pictures.html import picture, table, write_page
from singa_dask.observe.pictures.timeline import Interval, draw_steps, last_step
from singa_dask.planner.search import Candidate
from singa_dask.planner.simulation import MAX_PROCESSES

KINDS = ("synchronous", "asynchronous")
COLUMNS = {
    "topology": "{topology}",
    "partition": "{partition}",
    "limited by": "{limit}",
    "processes": "{processes}",
    "threads": "{threads}",
    "ms a step": "{step_ms:.3g}",
    "samples/s": "{samples_per_s:,.0f}",
    "efficiency": "{efficiency:.0%}",
    "staleness": "{staleness:.3g}",
    "MiB a process": "{memory_mib:,.0f}",
    "cost": "{cost:.3g}",
    "lost": "{lost:.2%}",
}
"""Columns of the tables: title, and format of the cell."""
CURVES = {"step_ms": "ms a step", "samples_per_s": "samples/s", "efficiency": "efficiency", "cost": "cost"}


@dataclass(frozen=True)
class Plan:
    """Topologies and partitions of a job on a cluster, the best first.

    Attributes
    ----------
    file : JobFile
        The job.
    candidates : sequence of Candidate
        The simulated candidates, the best first; see `singa_dask.planner.search.search`.
    where : str
        Description of the cluster.
    price : float
        Price of one host for one hour; 0 if not known.
    events : sequence of mapping
        Events of a simulated step of the best candidate; see ``trace`` of `Prediction`. Empty if they were not
        requested, or if the candidate has more than `MAX_PROCESSES` processes.
    """

    file: JobFile
    candidates: Sequence[Candidate]
    where: str
    price: float = 0.0
    events: Sequence[Mapping[str, Any]] = ()

    @property
    def best(self) -> Candidate:
        """The fastest candidate without stale gradients."""
        return self.candidates[0]

    def __repr__(self) -> str:
        return f"<Plan: {self.reason()}, on {self.where}>"

    def values(self) -> list[dict[str, Any]]:
        """Return each candidate as plain values.

        ``cost`` is the price of a million samples; the key exists only if the price of a host is known. ``lost`` is the
        share of time lost to failing processes and snapshots; the key exists only if the mean lifetime of a process is
        known.
        """
        return [
            {
                "kind": KINDS[not each.is_synchronous],
                "topology": each.topology,
                "partition": each.partition,
                "processes": len(each.layout.processes),
                "hosts": each.n_hosts,
                "threads": each.threads,
                "step_ms": 1e3 * each.prediction.step_s,
                "samples_per_s": each.prediction.samples_per_s,
                "limit": each.limit,
                "efficiency": each.efficiency,
                "staleness": each.prediction.staleness,
                "memory_mib": each.memory / 2**20,
                **({} if each.lost is None else {"lost": each.lost}),
                **(
                    {"cost": self.price * each.n_hosts * 1e6 / 3600 / each.prediction.samples_per_s}
                    if self.price
                    else {}
                ),
            }
            for each in self.candidates
        ]

    def to_frame(self) -> Any:
        """Return `values` as a pandas DataFrame; raise `ConfigError` if pandas is not installed."""
        return require("pandas", "pandas", "a table of plans").DataFrame(self.values())

    def to_yaml(self, candidate: Candidate | None = None) -> str:
        """Return the job file with cluster, threads and partition of a candidate, by default the best one."""
        chosen, job = (candidate or self.best).job, self.file.job
        layers = list(job.neuralnet.layer)
        for i, layer in enumerate(chosen.neuralnet.layer):
            if layers[i].partition_dim != layer.partition_dim:
                layers[i] = layers[i].model_copy(update={"partition_dim": layer.partition_dim})
        threads = {"threads": chosen.threads} if chosen.threads != job.threads else {}
        job = job.with_layers(layers).model_copy(update={"cluster": chosen.cluster, **threads})
        return replace(self.file, job=job).given()

    def trace(self) -> str:
        """Return the events in Chrome's trace format, like the trace of a profiled run.

        Raises
        ------
        ConfigError
            The plan has no events.
        """
        if not self.events:
            n, why = len(self.best.layout.processes), "it was not requested. Pass trace=True to plan."
            if n > MAX_PROCESSES:
                why = f"it has {n:,} processes, and only steps of at most {MAX_PROCESSES} are traced."
            raise ConfigError(f"the best plan has no trace: {why}")
        return json.dumps(self._trace())

    def _trace(self) -> dict[str, Any]:
        tracks = sorted({(each["pid"], each["tid"]) for each in self.events})
        names = [
            {"name": "thread_name", "ph": "M", "pid": process, "tid": i, "args": {"name": name}}
            for i, (process, name) in enumerate(tracks)
        ]
        events = [{**each, "tid": tracks.index((each["pid"], each["tid"]))} for each in self.events]
        return {"displayTimeUnit": "ms", "traceEvents": [*names, *events]}

    def rows(self, kind: str, n: int = 10) -> list[dict[str, str]]:
        """Return a row for each of the ``n`` best candidates of a kind: its cells by title; see `COLUMNS`."""
        chosen = [values for values in self.values() if values["kind"] == kind][:n]
        titles = [title for title in COLUMNS if title not in ("cost", "lost") or (chosen and title in chosen[0])]
        return [{title: COLUMNS[title].format_map(values) for title in titles} for values in chosen]

    def reason(self) -> str:
        """Describe the best candidate in words: its topology, its speed, and what limits it."""
        best, alone = self.best, next((each for each in self.candidates if len(each.layout.processes) == 1), None)
        text = f"{best.topology}: {1e3 * best.prediction.step_s:.3g} ms a step, limited by {best.limit}"
        if alone is best:
            return f"{text}; more processes are not faster"
        return f"{text}; one process takes {1e3 * alone.prediction.step_s:.3g} ms" if alone else text

    def page(self, measured: Sequence[Interval] = ()) -> str:
        """Return an HTML page with tables, and, if matplotlib is installed, with curves and timelines.

        ``measured`` is a step of a profiled run (see `read_trace`), which is drawn below the simulated step.
        """
        parts = [f"<p>{escape(f'On {self.where}: {self.reason()}.')}</p>"]
        for kind in KINDS:
            if rows := self.rows(kind):
                parts += [f"<h2>{kind.capitalize()}</h2>", table(rows, ("topology", "partition", "limited by"))]
        try:
            parts.append(picture(draw(self._panels(), KINDS, "processes", ".svg")))
            steps: dict[str, Sequence[Interval]] = {"measured": measured} if measured else {}
            if self.events:
                steps = {f"simulated: {self.best.topology}": last_step(self._trace()), **steps}
            if steps:
                parts += ["<h2>A step</h2>", picture(draw_steps(steps))]
        except ConfigError as error:
            parts.append(f'<p class="soft">{escape(str(error))}</p>')
        return write_page(f"{self.file.job.name}: plans", parts)

    def _panels(self) -> list[Panel]:
        best: dict[tuple[str, int], dict[str, Any]] = {}
        for values in self.values():
            best.setdefault((values["kind"], values["processes"]), values)
        panels = []
        for key, title in CURVES.items():
            points = {
                kind: sorted((n, v[key]) for (of, n), v in best.items() if of == kind and key in v) for kind in KINDS
            }
            curves = [
                PlottedCurve(i, "", *np.array(points[kind], float).T) for i, kind in enumerate(KINDS) if points[kind]
            ]
            panels += [Panel(title, curves, from_zero=True)] if curves else []
        return panels
