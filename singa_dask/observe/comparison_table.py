"""The table of a comparison: a row for each topology, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from singa_dask.observe.svg_charts import short

__all__ = ["rows", "show_table", "why_not"]

Row = dict[str, str]


def rows(comparison: Mapping[str, Any]) -> list[Row]:
    """Return the cells of each topology by the title of their column; all rows have the same columns.

    A figure is the median over the seeds; with several seeds the smallest and the largest value stand behind it, in
    parentheses.
    """
    finals = _final_names(comparison)
    return [_row(topology, finals, comparison["target"] is not None) for topology in comparison["topologies"]]


def _row(topology: Mapping[str, Any], finals: Mapping[str, str], has_target: bool) -> Row:
    statistics, n_runs = topology["statistics"], len(topology["runs"])

    def cell(name: str, scale: float = 1.0) -> str:
        return _spread(statistics.get(name), scale)

    row = {"topology": topology["name"]}
    if has_target:
        row["s to target"] = _reached(statistics.get("target_seconds"), statistics, n_runs)
        row["samples to target"] = cell("target_samples") or row["s to target"]
    row |= {title: cell(f"final.{name}") for title, name in finals.items()}
    row |= {
        "seconds": "" if has_target else cell("seconds"),
        "restarts": cell("restarts") if statistics.get("restarts", {}).get("max") else "",
        "samples/s": cell("samples_per_s"),
        "staleness": cell("staleness_mean"),
        "KiB sent a step": cell("sent_per_step", 1 / 1024),
        "ms wait for params": cell("wait_params_ms"),
        "ms wait for data": cell("wait_data_ms"),
        "ms a step": cell("step_ms"),
        "KiB received a step": cell("received_per_step", 1 / 1024),
    }
    return row


def _final_names(comparison: Mapping[str, Any]) -> dict[str, str]:
    """Return which last metrics are shown: of the target, else accuracies and losses, of tests if there are any."""
    known = {name: None for topology in comparison["topologies"] for name in topology["statistics"]}
    names = [name.removeprefix("final.") for name in known if name.startswith("final.")]
    for phase in ("test", "validation", "train"):
        chosen = [name for name in names if name.startswith(f"{phase}.")]
        if chosen:
            return {name.replace(".", " ", 1): name for name in sorted(chosen)[:3]}
    return {}


def _reached(spread: Mapping[str, float] | None, statistics: Mapping[str, Any], n_runs: int) -> str:
    n_done = int(statistics["seconds"]["n"]) if "seconds" in statistics else 0
    if spread is None:
        return "not reached" if n_done else ""
    missed = f", {spread['n']:.0f} of {n_done}" if spread["n"] < n_done else ""
    return _spread(spread) + missed


def _spread(spread: Mapping[str, float] | None, scale: float = 1.0) -> str:
    if spread is None:
        return ""
    median, low, high = (short(float(f"{spread[key] * scale:.3g}")) for key in ("median", "min", "max"))
    return median if spread["n"] < 2 or low == high else f"{median} ({low}–{high})"


def why_not(topology: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return which runs of a topology are not done, and why: what is missing, reason."""
    if topology["reason"]:
        return [("no run", topology["reason"])]
    seeds: dict[str, list[str]] = {}
    for run in topology["runs"]:
        if run["state"] != "done":
            seeds.setdefault(run["reason"] or run["state"], []).append(str(run["seed"]))
    return [(f"seed{'s' if len(found) > 1 else ''} {', '.join(found)}", reason) for reason, found in seeds.items()]


def show_table(comparison: Mapping[str, Any], console: Console) -> None:
    """Print the medians, with as many columns as fit, and why runs are missing."""
    found = [{title: cell.partition(" (")[0] for title, cell in row.items()} for row in rows(comparison)]
    # a title can be broken between words
    widths = {
        title: max(*map(len, title.split()), *(len(row[title]) for row in found))
        for title in found[0]
        if any(row[title] for row in found)
    }
    while sum(widths.values()) + 3 * len(widths) > console.width and len(widths) > 2:
        widths.popitem()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title, width in widths.items():
        table.add_column(title, justify="left" if title == "topology" else "right", width=width)
    for row in found:
        table.add_row(*(Text(row[title]) for title in widths))
    console.print(table)
    if len(comparison["seeds"]) > 1:
        console.print(f"Medians of {len(comparison['seeds'])} seeds; the report has more.", markup=False)
    for topology in comparison["topologies"]:
        for what, why in why_not(topology):
            console.print(Text(f"{topology['name']}, {what}: {why}"), soft_wrap=True)
