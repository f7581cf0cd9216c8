"""The report of a comparison: one HTML page that loads nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from singa_dask.observe.comparison import rows, why_not
from singa_dask.observe.svg_charts import COLOURS, Series, bar_chart, line_chart, short

N_POINTS = 80
MAX_CHARTS = 3

META = (
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)
STYLE = """
:root { color-scheme: light dark; --text: #1c1e21; --soft: #5b6169; --line: #d5d9de; --page: #fff; --best: #e3f2e6; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e8ea; --soft: #a3abb5; --line: #3b424b; --page: #16191d; --best: #1e3a26; }
}
body { margin: 2rem auto; max-width: 76rem; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p { margin: .4rem 0; max-width: 60rem; } .soft { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13.5px; width: 100%; }
th, td { padding: .35rem .45rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { color: var(--soft); font-weight: 600; } tbody th { color: inherit; }
th:first-child, .text { text-align: left; } td.best { background: var(--best); font-weight: 600; }
tbody th, small { white-space: nowrap; } th small { font-weight: normal; }
small { display: block; color: var(--soft); }
.key { display: inline-block; width: .7rem; height: .7rem; border-radius: 2px; margin-right: .45rem; }
figure { margin: 0; }
.charts { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem 1.5rem; }
@media (max-width: 44rem) { .charts { grid-template-columns: 1fr; } }
.bars { display: grid; grid-template-columns: repeat(auto-fill, minmax(14rem, 1fr)); gap: 1rem 2rem; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin: .2rem 0 .8rem; }
svg { width: 100%; height: auto; display: block; } svg svg { width: auto; }
svg text { font-size: 12px; fill: var(--soft); }
svg text.title { font-size: 13px; font-weight: 600; fill: var(--text); }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); } .line { fill: none; stroke-width: 2; }
.mark { stroke: var(--text); stroke-dasharray: 4 4; }
@media print {
  :root { --text: #000; --soft: #444; --line: #bbb; --page: #fff; --best: #eee; }
  body { margin: 0; max-width: none; font-size: 11px; } table { font-size: 9.5px; }
  th, td { padding: .2rem .3rem; } figure, svg, tr { break-inside: avoid; }
  .wide { overflow: visible; } .bars { grid-template-columns: repeat(3, 1fr); }
}
"""

BEST_IS_LEAST = ("s to target", "samples to target")


def write_page(comparison: Mapping[str, Any]) -> str:
    """Return the report of a comparison, see `singa_dask.cli.work.compare`."""
    colours = {each["name"]: COLOURS[i % len(COLOURS)] for i, each in enumerate(comparison["topologies"])}
    title = f"{comparison['job']}: topologies compared"
    parts = [
        f"<h1>{escape(title)}</h1>",
        _introduction(comparison),
        "<h2>Results</h2>",
        _table(comparison, colours),
        _missing(comparison),
        _charts(comparison, colours),
        _staleness(comparison, colours),
        "<h2>Runs</h2>",
        _runs(comparison),
    ]
    head = f"{META}<title>{escape(title)}</title>"
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _introduction(comparison: Mapping[str, Any]) -> str:
    seeds, target, limit = comparison["seeds"], comparison["target"], comparison["limit_s"]
    ends = [f"it reaches {target['text']}"] if target else []
    ends += [f"it has trained for {limit:g} s"] if limit else []
    n = len(comparison["topologies"])
    until = f" A run ends when {', or when '.join(ends)}, or after its last step." if ends else ""
    each = "each once" if len(seeds) == 1 else f"each with seeds {seeds[0]} to {seeds[-1]}"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(comparison["time"]))
    spread = " Figures are medians over the seeds, with the smallest and the largest value behind them."
    return (
        f"<p>One job under {n} topolog{'y' if n == 1 else 'ies'}, {each}, one run after the other on "
        f"{escape(comparison['cluster'])}.{until}{spread if len(seeds) > 1 else ''}</p>"
        f'<p class="soft">{when}, singa-dask {escape(comparison["version"])}. Steps, and steps between tests, are '
        "divided by the number of worker groups, so that all topologies train on as many samples. Time counts from the "
        "first step, and includes tests. Metrics are those of the first worker group.</p>"
    )


def _table(comparison: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    found = rows(comparison)
    best = {title: _least(comparison, title) for title in BEST_IS_LEAST}
    titles = [title for title in found[0] if any(row[title] for row in found)]
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    lines = []
    for row, topology in zip(found, comparison["topologies"], strict=True):
        name, units = topology["name"], topology["units"]
        cells = [f"<th>{_key(colours[name])}{escape(name)}<small>{escape(units)}</small></th>"]
        for title in titles[1:]:
            is_best = name in best.get(title, ())
            cells.append(f"<td{' class=best' if is_best else ''}>{_cell(row[title])}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _cell(text: str) -> str:
    """Put what stands behind a figure on a line of its own."""
    figure, _, more = text.partition(" (")
    return f"{escape(figure)}<small>{escape(more.replace(')', ''))}</small>" if more else escape(text)


def _least(comparison: Mapping[str, Any], title: str) -> list[str]:
    """Return the topologies with the smallest median, among those whose runs have all reached the target."""
    key = "target_seconds" if title == "s to target" else "target_samples"
    medians = {
        each["name"]: each["statistics"][key]["median"]
        for each in comparison["topologies"]
        if key in each["statistics"] and each["statistics"][key]["n"] == len(each["runs"])
    }
    return [name for name, median in medians.items() if median == min(medians.values())]


def _key(colour: str) -> str:
    return f'<span class="key" style="background:{colour}"></span>'


def _missing(comparison: Mapping[str, Any]) -> str:
    lines = [
        f"<li><b>{escape(each['name'])}</b>, {escape(what)}: {escape(why)}</li>"
        for each in comparison["topologies"]
        for what, why in why_not(each)
    ]
    return f"<h2>Not measured</h2><ul>{''.join(lines)}</ul>" if lines else ""


# -- curves ----------------------------------------------------------------------------------------------


def _charts(comparison: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    charts = []
    for metric in _shown_metrics(comparison):
        target = comparison["target"]
        mark = target["value"] if target and target["metric"] == metric else None
        for column, x_label in ((0, "seconds"), (1, "samples")):
            series = [
                _series(each["name"], colours[each["name"]], curves, column)
                for each in comparison["topologies"]
                if (curves := _curves_of(each, metric))
            ]
            is_loss = metric.endswith(("loss", "error"))
            charts.append(f"<figure>{line_chart(metric, x_label, series, log=is_loss, mark=mark)}</figure>")
    if not charts:
        return ""
    legend = "".join(
        f"<span>{_key(colours[each['name']])}{escape(each['name'])}</span>" for each in comparison["topologies"]
    )
    what = "Lines are medians over the seeds, bands go from the smallest to the largest value."
    note = f'<p class="soft">{what}</p>' if len(comparison["seeds"]) > 1 else ""
    return f'<h2>Curves</h2>{note}<div class="legend">{legend}</div><div class="charts">{"".join(charts)}</div>'


def _curves_of(topology: Mapping[str, Any], metric: str) -> list[np.ndarray]:
    found = [run["curves"].get(metric, []) for run in topology["runs"] if run["state"] == "done"]
    return [np.asarray(points, float) for points in found if len(points) > 1]


def _shown_metrics(comparison: Mapping[str, Any]) -> list[str]:
    known = {
        metric: None
        for topology in comparison["topologies"]
        for run in topology["runs"]
        for metric in run["curves"]
        if _curves_of(topology, metric)
    }
    wanted = [comparison["target"]["metric"]] if comparison["target"] else []
    for phase in ("test", "validation"):
        wanted += sorted(metric for metric in known if metric.startswith(f"{phase}."))
    wanted += sorted((metric for metric in known if metric.startswith("train.")), key=lambda name: "loss" not in name)
    return [metric for metric in dict.fromkeys(wanted) if metric in known][:MAX_CHARTS]


def _series(name: str, colour: str, curves: Sequence[np.ndarray], column: int) -> Series:
    """Make a line of one run, or the median and the range of several; a run that has ended keeps its last value."""
    if len(curves) == 1:
        x, y = curves[0][:, column], curves[0][:, 2]
        return Series(name, colour, x, y, y, y)
    start, end = (max(float(each[i, column]) for each in curves) for i in (0, -1))
    x = np.linspace(start, end, N_POINTS)
    y = np.stack([np.interp(x, each[:, column], each[:, 2]) for each in curves])
    return Series(name, colour, x, np.median(y, 0), y.min(0), y.max(0))


# -- staleness -------------------------------------------------------------------------------------------


def _staleness(comparison: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    charts = []
    for each in comparison["topologies"]:
        counts = each["staleness"]
        if counts:
            known = [int(name) for name in counts if name.isdigit()]
            whole = {str(i): counts.get(str(i), 0) for i in range(max(known, default=0) + 1)}
            whole |= {"more": counts["more"]} if "more" in counts else {}
            mean = short(each["statistics"]["staleness_mean"]["median"])
            chart = bar_chart(f"{each['name']}: mean {mean}", whole, colours[each["name"]])
            charts.append(f"<figure>{chart}</figure>")
    if not charts:
        return ""
    return (
        "<h2>Staleness of gradients</h2>"
        "<p>Percent of the gradients by the number of updates that their slice of the params had seen at its server "
        "since the values that they were computed from. The workers of a group count as one: with one group for each "
        "server group it is 0. With k groups at the same servers the mean is at most k - 1, however fast each is. "
        "Server groups, as in Distributed Hogwild, count for themselves: they see each other's changes only when they "
        f'exchange them.</p><div class="bars">{"".join(charts)}</div>'
    )


# -- runs ------------------------------------------------------------------------------------------------


def _runs(comparison: Mapping[str, Any]) -> str:
    titles = ("topology", "seed", "state", "steps", "seconds", "restarts", "to target")
    head = "".join(f"<th>{title}</th>" for title in titles)
    head += "".join(f'<th class="text">{title}</th>' for title in ("end", "run directory"))
    lines = []
    for topology in comparison["topologies"]:
        for run in topology["runs"]:
            target = f"{run['target']['seconds']:.1f} s" if run["target"] else ""
            cells = [
                str(run["seed"]),
                run["state"],
                str(run["steps"]),
                f"{run['seconds']:.1f}",
                str(run["restarts"]),
                target,
            ]
            texts = "".join(f'<td class="text">{escape(text)}</td>' for text in (run["reason"] or "", run["path"]))
            figures = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            lines.append(f"<tr><th>{escape(topology['name'])}</th>{figures}{texts}</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
