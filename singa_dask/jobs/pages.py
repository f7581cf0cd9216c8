"""HTML for jobs and runs in notebooks, without external resources."""

from __future__ import annotations

import base64
import functools
import html
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from singa_dask.conf import JobConf, LayerConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.lazy import require
from singa_dask.net import NeuralNet
from singa_dask.net.picture import Picture

SIDE_BY_SIDE = "display:flex;flex-wrap:wrap;gap:1em 3em;align-items:flex-start"
MAX_OPEN = 40
"""Maximum number of boxes in a picture that is shown without a click."""


def job_page(job: JobConf, nets: Mapping[Phase, NeuralNet]) -> str:
    """Return HTML with a table of a job's layers, and a picture of its training net.

    ``nets`` may be empty.
    """
    cluster = job.cluster
    shapes, params = _facts_of(nets)
    rows = [
        (_name(each), each.type, ", ".join(each.srclayers), shapes.get(each.name, ""), params.get(each.name, ""))
        for each in job.neuralnet.layer
    ]
    about = f"{job.length} of {job.train_one_batch.alg} with {job.updater.type}" if job.trains else "no training"
    where = (
        f"{cluster.nworker_groups} worker group(s) of {cluster.nworkers_per_group}, "
        f"{cluster.nserver_groups} server group(s) of {cluster.nservers_per_group}"
    )
    head = f"<b>{html.escape(job.name)}</b>: {html.escape(about)}; {where}"
    table = _table(("layer", "type", "sources", "shape", "trainable values"), rows)
    picture = _shown(Picture.of(nets[Phase.TRAIN], job.name or "net")) if Phase.TRAIN in nets else ""
    return f'<div>{head}<div style="{SIDE_BY_SIDE}">{table}{picture}</div></div>'


def _name(layer: LayerConf) -> str:
    """Return the name of a layer, followed by its phases if it is not in all nets."""
    phases = ", ".join(map(str, layer.include))
    return f"{layer.name} ({phases})" if phases else layer.name


def _facts_of(nets: Mapping[Phase, NeuralNet]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the shapes, and the numbers of trainable values, of layers by their names in the job."""
    shapes: dict[str, str] = {}
    params: dict[str, str] = {}
    for net in nets.values():
        for layer in net.all_layers:
            shapes.setdefault(layer.conf_name, " ".join(str(tuple(each.shape)) for each in layer.features))
            n = sum(param.size for param in layer.params)
            params.setdefault(layer.conf_name, f"{n:,}" if n else "")
    return shapes, params


def run_page(facts: Mapping[str, Any]) -> str:
    """Return HTML with the state and the metrics of a run; ``facts`` is a result of `facts_of`."""
    url = html.escape(str(facts["run"]))
    head = f"<b>{html.escape(facts['job'])}</b>: {html.escape(facts['state'])}, step {facts['steps']}"
    head += f" of {facts['train_steps']}, {facts['seconds']:.1f} s; <code>{url}</code>"
    if facts.get("reason"):
        head += f"<br>{html.escape(str(facts['reason']))}"
    metrics = facts["metrics"]
    names = list(dict.fromkeys(name for each in metrics.values() for name in each))
    rows = [(phase, *(_number(each.get(name)) for name in names)) for phase, each in metrics.items()]
    return f"<div>{head}{_table(('phase', *names), rows) if rows else ''}</div>"


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    left = ' style="text-align:left"'
    lines = [f"<tr>{''.join(f'<td{left}>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    names = "".join(f"<th{left}>{html.escape(name)}</th>" for name in head)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


# -- pictures, drawn by Graphviz if installed -------------------------------------------------------------


class JobNets(dict[Phase, NeuralNet]):
    """The nets of a job by phase, shown as pictures in notebooks."""

    def _repr_html_(self) -> str:
        titles = {phase: f"{str(phase.name).lower()} net" for phase in self}
        drawn = [_shown(Picture.of(net, titles[phase])) for phase, net in self.items()]
        if not all(drawn):
            return f"<pre>{html.escape(repr(self))}</pre>"
        return f'<div style="display:flex;flex-wrap:wrap;gap:2em">{"".join(drawn)}</div>'


def _shown(picture: Picture) -> str:
    """Return the HTML of a picture; empty if it cannot be drawn."""
    drawn = _svg(picture.dot())
    if not drawn:
        return ""
    # draw the picture in an <img> element, so that its ids cannot clash with ids of other pictures
    image = base64.b64encode(drawn).decode()
    opened = " open" if len(picture.boxes) <= MAX_OPEN else ""
    return (
        f"<details{opened}><summary>picture</summary>"
        f'<img style="max-width:100%;background:white" alt="the net" src="data:image/svg+xml;base64,{image}"></details>'
    )


@functools.lru_cache(maxsize=16)
def _svg(dot: str) -> bytes:
    try:
        graphviz = require("graphviz", "graph", "the picture of a net")
    except ConfigError:
        return b""
    try:
        drawn: bytes = graphviz.Source(dot).pipe(format="svg", quiet=True)
    except (graphviz.ExecutableNotFound, subprocess.CalledProcessError):
        return b""
    return drawn
