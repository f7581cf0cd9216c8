"""Pictures of nets for notebooks, drawn by Graphviz where it is installed."""

from __future__ import annotations

import base64
import functools
import html
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError
from singa_dask.lazy import require
from singa_dask.net import NeuralNet
from singa_dask.net.picture import Box, Edge, Picture

__all__ = ["Nets", "outline", "shown"]

MAX_OPEN = 40
"""Boxes of a picture that is unfolded."""


class Nets(dict[Phase, NeuralNet]):
    """The nets of a job by phase; a notebook shows their pictures."""

    def _repr_html_(self) -> str:
        titles = {phase: f"{str(phase.name).lower()} net" for phase in self}
        drawn = [shown(Picture.of(net, titles[phase])) for phase, net in self.items()]
        if not all(drawn):
            return f"<pre>{html.escape(repr(self))}</pre>"
        return f'<div style="display:flex;flex-wrap:wrap;gap:2em">{"".join(drawn)}</div>'


def outline(layers: Sequence[Mapping[str, Any]]) -> Picture:
    """Return the picture of a net that has not been built: layers without shapes."""
    places = {each["name"]: i for i, each in enumerate(layers)}
    edges = [
        Edge(places[source], i)
        for i, each in enumerate(layers)
        for source in each.get("srclayers", ())
        if source in places
    ]
    return Picture(("net",), tuple(Box(each["name"], each["type"], ()) for each in layers), tuple(edges))


def shown(picture: Picture) -> str:
    """Return HTML that shows a picture, empty if it cannot be drawn here."""
    drawn = _svg(picture.dot())
    if not drawn:
        return ""
    # as an image its names do not meet those of other pictures
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
