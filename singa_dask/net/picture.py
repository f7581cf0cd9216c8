"""Picture: a net as boxes and edges, written for Graphviz's ``dot``."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from singa_dask.layers import Layer, Param
from singa_dask.layers.bridge import BridgeDst, BridgeSrc
from singa_dask.layers.connection import Concate, Slice
from singa_dask.net.neuralnet import NeuralNet
from singa_dask.net.nodes import Node
from singa_dask.shown import by_shape, plural

SMALL = {"BridgeDst": "", "BridgeSrc": "", "Concate": "joined", "Slice": "cut", "Split": "split"}
"""Type of a layer that only passes on its sources -> label of its box if partitioning inserted the layer."""

AXES = {0: "records", 1: "features"}
FILLS = ("#a6cee3", "#fdbf6f", "#b2df8a", "#fb9a99", "#cab2d6", "#ffff99", "#e0c8a0", "#9fdfd2")
PAPERS = ("#eff6fa", "#fff7ec", "#f2faec", "#fff0f0", "#f6f2f9", "#fffff0", "#f9f4ec", "#edf9f7")
LINES = ("#1f78b4", "#d96f00", "#2c8a24", "#d01a1c", "#6a3d9a", "#8f8a00", "#8a5a2b", "#0f8a78")
"""Colours of boxes (`FILLS`), of frames around them (`PAPERS`) and of edges (`LINES`). Workers take them in turn."""

GRAPH = 'labelloc=t, fontname="Helvetica,Arial,sans-serif", newrank=true, ranksep=0.3, nodesep=0.15'
NODES = (
    'shape=box, style="filled,rounded", fontname="Helvetica,Arial,sans-serif", fontsize=11, margin="0.06,0.03", '
    "height=0.3"
)
EDGES = 'fontname="Helvetica,Arial,sans-serif", fontsize=9, arrowsize=0.6, color="#555555"'
SMALL_BOX = 'fontsize=9, margin="0.03,0", height=0.2, width=0.2, style=rounded'


@dataclass(frozen=True)
class Box:
    """One layer of a picture.

    Attributes
    ----------
    name, kind : str
        Name and type of the layer.
    shape : tuple of int
        Shape of the first output; empty if the layer has none.
    n_steps : int
        Number of time steps that the layer computes.
    notes : tuple of str
        Additional lines of text: the axis of a Slice or Concate, and each param with its shape.
    worker : int or None
        The worker that has the layer; None if all workers of the group have it.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    n_steps: int = 1
    notes: tuple[str, ...] = ()
    worker: int | None = None

    @property
    def is_small(self) -> bool:
        """Whether the layer only passes on its sources, so that its box is drawn small."""
        return self.kind in SMALL

    @property
    def is_bridge(self) -> bool:
        """Whether the layer is an end of a bridge."""
        return self.kind.startswith("Bridge")

    @property
    def shown_shape(self) -> str:
        """The shape as text. A layer with several time steps shows the shape of one time step."""
        steps = f"{self.n_steps} steps of " if self.n_steps > 1 else ""
        return steps + by_shape((*(n // self.n_steps for n in self.shape[:1]), *self.shape[1:]))


@dataclass(frozen=True)
class Edge:
    """An edge from a layer to a layer that reads it.

    Attributes
    ----------
    source, target : int
        Indices of the two boxes.
    forward, back : int
        For an edge to another worker: the bytes that each step sends forward (data) and back (gradients).
    is_feedback : bool
        Whether the target reads the output of an earlier pass.
    """

    source: int
    target: int
    forward: int = 0
    back: int = 0
    is_feedback: bool = False


@dataclass(frozen=True)
class Picture:
    """A net as boxes and edges.

    Attributes
    ----------
    title : tuple of str
        Lines of the title.
    boxes : tuple of Box
        The layers, sources before their readers. For a partitioned net, the layers of all workers.
    edges : tuple of Edge
        The edges between these layers.
    frame : str
        Label of the frame around layers that every worker has; empty for no frame.
    """

    title: tuple[str, ...]
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    frame: str = ""

    @classmethod
    def of(cls, net: NeuralNet, title: str) -> Picture:
        """Return the picture of a net."""
        nodes = list(zip(net.nodes, net.all_layers, strict=True))
        places = {node.name: i for i, node in enumerate(net.nodes)}
        boxes = tuple(_box(node, layer) for node, layer in nodes)
        edges = tuple(_edges(nodes, places))
        n_workers, n_bridges = net.context.n_workers, sum(box.kind == "BridgeSrc" for box in boxes)
        lines = [title, f"{net.n_params:,} values to learn"]
        if n_bridges:
            n_bytes = sum(edge.forward + edge.back for edge in edges)
            lines.append(
                f"{plural(n_bridges, 'bridge')} between {n_workers} workers: {n_bytes:,} bytes a step, "
                "data forward and gradients back"
            )
        alike = n_workers > 1 and not net.is_partitioned
        frame = f"on each of {n_workers} workers\nwhich share the records of a batch: no bridges" if alike else ""
        return cls(tuple(lines), boxes, edges, frame)

    def dot(self) -> str:
        """Return the picture as text for ``dot``. Each worker has a frame, and each bridge is an edge.

        The bytes of a bridge are written at the edge. If several bridges lead to a box, their bytes are written in
        the box.
        """
        arrows = list(self._arrows())
        arrivals: dict[int, list[_Arrow]] = {}
        for arrow in arrows:
            if arrow.bridge is not None:
                arrivals.setdefault(arrow.target, []).append(arrow)
        several = {target: bridges for target, bridges in arrivals.items() if len(bridges) > 1}
        title = _rows([f"<b>{_text(self.title[0])}</b>", *map(_text, self.title[1:])])
        lines = ["digraph net {", f"  graph [label={title}, {GRAPH}]", f"  node [{NODES}]", f"  edge [{EDGES}]"]
        workers = sorted({box.worker for box in self.boxes if box.worker is not None})
        for worker in workers:
            lines += _framed(f"worker {worker}", worker, self._drawn(worker, several))
        if not workers:
            drawn = self._drawn(None, several)
            lines += _framed(self.frame, None, drawn) if self.frame else drawn
        lines += [self._drawn_arrow(arrow, arrow.target not in several) for arrow in arrows]
        return "\n".join([*lines, "}", ""])

    def _arrows(self) -> Iterator[_Arrow]:
        """Yield the edges to draw.

        An edge to a bridge is drawn to the layer that reads the bridge's other end.
        """
        leads_to = {edge.source: edge for edge in self.edges if self.boxes[edge.source].is_bridge}
        for edge in self.edges:
            if not self.boxes[edge.source].is_bridge:
                bridge = leads_to.get(edge.target)
                target = edge.target if bridge is None else leads_to[bridge.target].target
                yield _Arrow(edge.source, target, self.boxes[edge.source].worker, bridge, edge.is_feedback)

    def _drawn(self, worker: int | None, arrivals: Mapping[int, Sequence[_Arrow]]) -> Iterator[str]:
        """Yield the boxes of a worker, without bridges."""
        boxes = [(i, box) for i, box in enumerate(self.boxes) if box.worker == worker and not box.is_bridge]
        drawn = [(box.name.split("."), f"  n{i} [{_look(box, arrivals.get(i, ()))}]") for i, box in boxes]
        return _in_blocks(drawn, f"cluster_{worker or 0}")

    def _drawn_arrow(self, arrow: _Arrow, is_alone: bool) -> str:
        look = 'style=dashed, constraint=false, label="from the previous pass"' if arrow.is_feedback else ""
        if arrow.bridge is not None:
            there, edge = self.boxes[arrow.target].worker, arrow.bridge
            tip = f"worker {arrow.worker} to {there}: {edge.forward:,} bytes forward, {edge.back:,} bytes back a step"
            label = f"label=<{_coloured(edge, arrow.worker)}>, " if is_alone else ""
            look = f'{label}color="{_colour(LINES, arrow.worker)}", penwidth=1.4, tooltip="{tip}"'
        return f"  n{arrow.source} -> n{arrow.target} [{look}]"


@dataclass(frozen=True)
class _Arrow:
    """An edge to draw between two layers, which may be on different workers with a bridge between them."""

    source: int
    target: int
    worker: int | None
    bridge: Edge | None
    is_feedback: bool


# -- nodes and edges of a net -------------------------------------------------------------------------


def _box(node: Node, layer: Layer) -> Box:
    notes = [f"by {_axis(layer)}"] if isinstance(layer, Slice | Concate) else []
    if layer.site.prototype is None:
        notes += [_param(param) for param in layer.params]
    shape, n_steps = (layer.features[0].shape, layer.features[0].n_steps) if layer.features else ((), 1)
    return Box(node.name, layer.conf.type, shape, n_steps, tuple(notes), node.worker)


def _axis(layer: Slice | Concate) -> str:
    """Return the name of the axis along which a Slice or Concate divides or joins."""
    if layer.axis == 0 and any(source.n_steps != layer.site.n_steps for source in layer.sources):
        return "steps"
    return AXES.get(layer.axis, f"axis {layer.axis}")


def _param(param: Param) -> str:
    text = f"{param.name}: {by_shape(param.shape)}"
    if param.shape != param.whole_shape:
        text += f" of {by_shape(param.whole_shape)}"
    return f"{text} (values of {param.conf.share_from})" if param.conf.share_from else text


def _edges(nodes: Iterable[tuple[Node, Layer]], places: dict[str, int]) -> Iterator[Edge]:
    sends = {}
    for i, (node, layer) in enumerate(nodes):
        if isinstance(layer, BridgeSrc):
            sends[i] = layer.bytes_per_step()
        for source in node.sources:
            place = places[source.node]
            forward, back = sends[place] if isinstance(layer, BridgeDst) else (0, 0)
            yield Edge(place, i, forward, back)
        for source in node.feedback:
            yield Edge(places[source.node], i, is_feedback=True)


# -- text in the dot language -------------------------------------------------------------------------


def _colour(colours: Sequence[str], worker: int | None) -> str:
    return colours[(worker or 0) % len(colours)]


def _coloured(bridge: Edge, worker: int | None) -> str:
    """Return the bytes of a bridge as text in the colour of the sender."""
    return f'<font color="{_colour(LINES, worker)}">{bridge.forward + bridge.back:,} B</font>'


def _text(value: str) -> str:
    return html.escape(value, quote=False)


def _quoted(value: str) -> str:
    value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


def _rows(rows: Iterable[str]) -> str:
    """Return a label of several rows as a table, because ``dot`` sets lines of plain text too close."""
    cells = "".join(f"<tr><td>{row}</td></tr>" for row in rows if row)
    return f'<<table border="0" cellborder="0" cellspacing="0" cellpadding="1">{cells}</table>>'


def _framed(label: str, worker: int | None, lines: Iterable[str]) -> list[str]:
    title = _rows(f"<b>{_text(line)}</b>" for line in label.splitlines())
    look = f'style=rounded, color="{_colour(LINES, worker)}", bgcolor="{_colour(PAPERS, worker)}"'
    head = [
        f"  subgraph cluster_{worker or 0} {{",
        f"    graph [label={title}, labeljust=l, fontsize=12, {look}]",
    ]
    return [*head, *(f"  {line}" for line in lines), "  }"]


def _in_blocks(drawn: Sequence[tuple[list[str], str]], frame: str, depth: int = 0) -> Iterator[str]:
    """Yield boxes, with a frame around the boxes of each block.

    A block, such as a `Sequential`, has all boxes whose names begin with the same parts. Each item of ``drawn`` has the
    parts of a box's name, and the text of the box in ``dot``.
    """
    of_part: dict[str, list[tuple[list[str], str]]] = {}
    for number, (parts, line) in enumerate(drawn):
        of_part.setdefault(parts[depth] if len(parts) > depth + 1 else f".{number}", []).append((parts, line))
    for part, members in of_part.items():
        if len(members) == 1:
            yield members[0][1]
            continue
        inner = f"{frame}_{part}"
        yield f"  subgraph {_quoted(inner)} {{"
        yield f"    graph [label={_quoted(part)}, labeljust=l, fontsize=10, style=dashed]"
        yield from (f"  {line}" for line in _in_blocks(members, inner, depth + 1))
        yield "  }"


def _look(box: Box, arrivals: Sequence[_Arrow]) -> str:
    """Return the attributes of a box in ``dot``, including the bytes of bridges that lead to it."""
    rows = [
        *(_small(box) if box.is_small else _large(box)),
        " + ".join(_coloured(arrow.bridge, arrow.worker) for arrow in arrivals if arrow.bridge),
    ]
    border, fill = _colour(LINES, box.worker), _colour(FILLS, box.worker)
    look = f'{SMALL_BOX}, color="{border}"' if box.is_small else f'fillcolor="{fill}"'
    return f"label={_rows(rows)}, tooltip={_quoted(f'{box.name} ({box.kind}) {box.shown_shape}')}, {look}"


def _large(box: Box) -> list[str]:
    notes = [f'<font point-size="10">{_text(note)}</font>' for note in box.notes]
    return [f"<b>{_text(box.name)}</b>  {_text(box.kind)}", _text(box.shown_shape), *notes]


def _small(box: Box) -> list[str]:
    """Return the rows of a small box, with the name of the layer if the job has set one."""
    said = SMALL[box.kind] if "(" in box.name else box.name
    shape = [box.shown_shape] if box.kind == "Concate" else []
    return [_text(" ".join([said, *box.notes])), *map(_text, shape)]
