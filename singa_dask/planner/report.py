"""Report: what a search has found, as plain values, as a job file and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from singa_dask.conf import JobFile
from singa_dask.errors import ConfigError
from singa_dask.lazy import require
from singa_dask.observe.figure import Panel, PlottedCurve, draw, picture, table, write_page
from singa_dask.planner.search import Candidate

KINDS = {True: "synchronous", False: "asynchronous"}


@dataclass(frozen=True)
class Plan:
    """Topologies and partitions of a job on a cluster, the best first.

    Attributes
    ----------
    file : JobFile
        The job.
    candidates : sequence of Candidate
        Those that were simulated: synchronous ones by the time of a step, then those with several worker groups, whose
        gradients are stale, by samples per second.
    where : str
        The cluster, in words.
    price : float
        Of a machine for an hour; 0 if it is not known.
    """

    file: JobFile
    candidates: Sequence[Candidate]
    where: str
    price: float = 0.0

    @property
    def best(self) -> Candidate:
        """The fastest candidate whose gradients are not stale."""
        return self.candidates[0]

    def __repr__(self) -> str:
        return f"<Plan: {self.best.topology}, {1e3 * self.best.prediction.step_s:.3g} ms a step on {self.where}>"

    def values(self) -> list[dict[str, Any]]:
        """Return each candidate as plain values; ``cost`` is that of a million samples."""
        rows = []
        for each in self.candidates:
            found, conf = each.prediction, each.job.cluster
            cost = self.price * each.n_hosts / 3600 * 1e6 / found.samples_per_s
            rows.append(
                {
                    "kind": KINDS[each.is_synchronous],
                    "topology": each.topology,
                    "partition": each.partition,
                    "processes": len(each.layout.processes),
                    "hosts": each.n_hosts,
                    "threads": each.threads,
                    "step_ms": 1e3 * found.step_s,
                    "samples_per_s": found.samples_per_s,
                    "limit": each.limit,
                    "efficiency": each.efficiency,
                    "memory": each.memory,
                    "staleness": found.staleness,
                    **({"cost": cost} if self.price else {}),
                    **({} if each.lost is None else {"lost": each.lost}),
                    "cluster": {key: getattr(conf, key) for key in conf.model_fields_set if key[0] in "ns"},
                }
            )
        return rows

    def to_frame(self) -> Any:
        """Return the candidates as a pandas DataFrame; `ConfigError` if pandas is not installed."""
        return require("pandas", "pandas", "the candidates of a plan").DataFrame(self.values())

    def to_yaml(self, candidate: Candidate | None = None) -> str:
        """Return the job file with the cluster, partition and threads of a candidate, by default the best one."""
        chosen, job = (candidate or self.best).job, self.file.job
        pairs = zip(job.neuralnet.layer, chosen.neuralnet.layer, strict=True)
        layers = [
            layer if layer.partition_dim == other.partition_dim
            else layer.model_copy(update={"partition_dim": other.partition_dim})
            for layer, other in pairs
        ]  # fmt: skip
        threads = {"threads": chosen.threads} if chosen.threads != job.threads else {}
        return replace(self.file, job=job.with_layers(layers).model_copy(update={"cluster": chosen.cluster, **threads})).given()

    def rows(self, kind: str, n: int = 10) -> list[dict[str, str]]:
        """Return the cells of the best candidates of a kind, by the title of their column."""
        return [
            {
                "topology": each["topology"],
                "partition": each["partition"],
                "processes": str(each["processes"]),
                "threads": str(each["threads"]),
                "ms a step": f"{each['step_ms']:.3g}",
                "samples/s": f"{each['samples_per_s']:,.0f}",
                "limited by": each["limit"],
                "efficiency": f"{each['efficiency']:.0%}",
                "MiB a process": f"{each['memory'] / 2**20:,.0f}",
                "staleness": f"{each['staleness']:.3g}" if each["staleness"] else "",
                "cost": f"{each['cost']:.3g}" if "cost" in each else "",
                **({"lost": f"{each['lost']:.2%}"} if "lost" in each else {}),
            }
            for each in self.values()
            if each["kind"] == kind
        ][:n]

    def reason(self) -> str:
        """Return why the best candidate is the best one, in words."""
        best, alone = self.best, next((each for each in self.candidates if len(each.layout.processes) == 1), None)
        text = f"{best.topology}: {1e3 * best.prediction.step_s:.3g} ms a step, limited by {best.limit}"
        if alone is None or alone is best:
            return text if alone is None else f"{text}; no plan with more processes is faster"
        return f"{text}; {alone.prediction.step_s / best.prediction.step_s:.2f} times as fast as one process"

    def page(self) -> str:
        """Return a page with the tables and curves over the number of processes; without matplotlib it has no curves."""
        parts = [f"<p>{escape(self.where)}. {escape(self.reason())}.</p>"]
        for kind in KINDS.values():
            if rows := self.rows(kind):
                parts += [f"<h2>{kind.capitalize()}</h2>", table(rows, ("topology", "partition", "limited by"))]
        try:
            parts.append(picture(draw(self._panels(), list(KINDS.values()), "processes", ".svg")))
        except ConfigError as error:
            parts.append(f'<p class="soft">{escape(str(error))}</p>')
        return write_page(f"{self.file.job.name}: plan", parts)

    def _panels(self) -> list[Panel]:
        """Return the curves of the best candidate with each number of processes."""
        titles = {"step_ms": "ms a step", "samples_per_s": "samples/s", "efficiency": "efficiency"}
        titles |= {"cost": "cost of a million samples"} if self.price else {}
        best: dict[tuple[str, int], dict[str, Any]] = {}
        for each in self.values():
            best.setdefault((each["kind"], each["processes"]), each)
        panels = []
        for key, title in titles.items():
            curves = []
            for i, kind in enumerate(KINDS.values()):
                points = sorted((n, each[key]) for (of, n), each in best.items() if of == kind)
                if points:
                    curves.append(PlottedCurve(i, "", *np.array(points, float).T))
            panels.append(Panel(title, curves, from_zero=True))
        return panels
