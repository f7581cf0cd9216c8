"""Checks of a net's wiring by names alone, which work even if the rest of a layer is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from singa_dask.conf.findings import Finding
from singa_dask.conf.layer import PHASES, LayerConf
from singa_dask.registry import suggest


@dataclass(frozen=True)
class LayerWiring:
    """The wiring of one layer.

    Attributes
    ----------
    index : int
        Place in the list of layers.
    name, type : str
    sources : tuple of str
    earlier : frozenset of int
        Places of the sources whose earlier time steps the layer reads, in an unrolled net.
    phases : frozenset of str
        Phases whose nets have the layer; all if they cannot be read.
    clear : bool
        Whether the phases could be read.
    """

    index: int
    name: str
    type: str
    sources: tuple[str, ...]
    earlier: frozenset[int]
    phases: frozenset[str]
    clear: bool


def read_wiring(layers: Sequence[LayerConf]) -> list[LayerWiring]:
    """Return the wiring of all layers of a net; they may be mended ones."""
    nodes = []
    for index, layer in enumerate(layers):
        clear = not {"include", "exclude"} & layer.wrong
        phases = frozenset(name for name, phase in PHASES.items() if not clear or layer.in_phase(phase))
        sources, earlier = tuple(layer.srclayers), frozenset(_earlier(layer))
        nodes.append(LayerWiring(index, layer.name, layer.type, sources, earlier, phases, clear))
    return nodes


def _earlier(layer: LayerConf) -> Iterator[int]:
    """Yield the places of sources that are read with a shift, or at steps of the user's choice."""
    shifts, kinds = layer.shift, layer.unroll_conn_type
    for place in range(max(len(shifts), len(kinds))):
        kind = kinds[place] if place < len(kinds) else "OneToOne"
        if kind == "Customized" or (kind == "OneToOne" and place < len(shifts) and shifts[place] > 0):
            yield place


def check_wiring(layers: Sequence[LayerConf]) -> Iterator[Finding]:
    """Yield ((index, key...), message) for each mistake, once even if it is in several phases.

    Include and exclude may not both be used in a net; a name is unique in each phase; a source exists;
    there are no cycles, except for the two layers of an RBM, which read each other, and earlier time steps.
    """
    included = any(layer.include or "include" in layer.wrong for layer in layers)
    for index, layer in enumerate(layers):
        if included and (layer.exclude or "exclude" in layer.wrong):
            yield (index, "exclude"), "include and exclude are both used in this net. Use include only."
    nodes = read_wiring(layers)
    yield from _unknown_sources(nodes)
    said: set[tuple[str | int, ...]] = set()
    for phase in PHASES:
        present = [node for node in nodes if phase in node.phases]
        for path, message in (*_unique(present), *_cycles(present)):
            if path not in said:
                said.add(path)
                yield path, message


def check_phases(layers: Sequence[LayerConf], phases: Sequence[str]) -> Iterator[Finding]:
    """Yield ((index, key...), message) for each source that a net lacks, though the job has it in other phases.

    Parameters
    ----------
    phases : sequence of str
        The phases that the job builds nets for.
    """
    nodes = read_wiring(layers)
    anywhere = {node.name for node in nodes}
    for phase in phases if all(node.clear for node in nodes) else ():
        names = {node.name for node in nodes if phase in node.phases}
        for node in nodes:
            for place, source in enumerate(node.sources):
                if phase in node.phases and source in anywhere - names:
                    path = (node.index, "srclayers", place)
                    yield path, f"layer {source!r} is not in the {phase} net, which {node.name!r} is in."


def _unknown_sources(nodes: Sequence[LayerWiring]) -> Iterator[Finding]:
    counts = Counter(node.name for node in nodes)
    for node in nodes:
        for place, source in enumerate(node.sources):
            path = (node.index, "srclayers", place)
            if source not in counts:
                known = set(counts) - {node.name, ""}
                yield path, f"unknown layer {source!r}. {suggest(source, known)}"
            elif source == node.name and counts[source] == 1 and place not in node.earlier:
                yield path, "a layer cannot read itself."


def _unique(present: Sequence[LayerWiring]) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for node in present:
        if node.name and node.clear and first.setdefault(node.name, node.index) != node.index:
            yield (node.index, "name"), f"layer {node.name!r} is already there, as item {first[node.name]} of the list."


def _cycles(present: Sequence[LayerWiring]) -> Iterator[Finding]:
    """Yield each cycle, and go on without its layers."""
    by_name = {node.name: node for node in present}
    waits = {
        name: [s for s in _at_once(node) if s in by_name and s != name and not _mutual(node, by_name[s])]
        for name, node in by_name.items()
    }
    while True:
        try:
            TopologicalSorter(waits).prepare()
            return
        except CycleError as error:
            # it has the first layer at both ends, and each before the one that waits for it
            loop: list[str] = error.args[1][:0:-1]
        start = min(range(len(loop)), key=lambda i: by_name[loop[i]].index)
        first, after = loop[start], loop[(start + 1) % len(loop)]
        words = " <- ".join([*loop[start:], *loop[:start], first])
        path = (by_name[first].index, "srclayers", by_name[first].sources.index(after))
        yield path, f"these layers wait for each other: {words}."
        waits = {name: [s for s in sources if s not in loop] for name, sources in waits.items() if name not in loop}


def _at_once(node: LayerWiring) -> list[str]:
    """Return the sources that a layer needs in each time step."""
    return [source for place, source in enumerate(node.sources) if place not in node.earlier]


def _mutual(node: LayerWiring, source: LayerWiring) -> bool:
    """Tell whether this is the edge from the hidden back to the visible layer of an RBM."""
    return node.type == "RBMVis" and source.type == "RBMHid" and node.name in source.sources
