"""Checks of the sources of layers by name. They work even if other keys of a layer are wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from singa_dask.conf.layer import PHASES, LayerConf
from singa_dask.conf.mistakes import Finding
from singa_dask.wording import suggest


def check_wiring(layers: Sequence[LayerConf]) -> Iterator[Finding]:
    """Yield ((index, key...), message) for each mistake, once for all phases.

    A net uses either include or exclude. In each phase, names are unique, sources exist, and there are no cycles,
    except between the two layers of an RBM and through earlier time steps.
    """
    included = any(layer.include or "include" in layer.wrong for layer in layers)
    for index, layer in enumerate(layers):
        if included and (layer.exclude or "exclude" in layer.wrong):
            yield (index, "exclude"), "include and exclude are both used in this net. Use include only."
    yield from _unknown_sources(layers)
    said: set[tuple[str | int, ...]] = set()
    for phase in PHASES:
        present = {index: layer for index, layer in enumerate(layers) if phase in layer.phases}
        for path, message in (*_unique(present), *_cycles(present)):
            if path not in said:
                said.add(path)
                yield path, message


def check_phases(layers: Sequence[LayerConf], phases: Sequence[str]) -> Iterator[Finding]:
    """Yield ((index, key...), message) for each source that is missing in a phase with its reader.

    Parameters
    ----------
    phases : sequence of str
        Phases for which the job builds nets.
    """
    anywhere = {layer.name for layer in layers}
    for phase in phases if all(layer.has_clear_phases for layer in layers) else ():
        present = {index: layer for index, layer in enumerate(layers) if phase in layer.phases}
        absent = anywhere - {layer.name for layer in present.values()}
        for index, layer in present.items():
            for place, source in enumerate(layer.srclayers):
                if source in absent:
                    path = (index, "srclayers", place)
                    yield path, f"layer {source!r} is not in the {phase} net, but {layer.name!r} is."


def _unknown_sources(layers: Sequence[LayerConf]) -> Iterator[Finding]:
    counts = Counter(layer.name for layer in layers)
    for index, layer in enumerate(layers):
        for place, source in enumerate(layer.srclayers):
            path = (index, "srclayers", place)
            if source not in counts:
                known = set(counts) - {layer.name, ""}
                yield path, f"unknown layer {source!r}. {suggest(source, known)}"
            elif source == layer.name and counts[source] == 1 and not _is_earlier(layer, place):
                yield path, "a layer cannot read itself."


def _unique(present: Mapping[int, LayerConf]) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for index, layer in present.items():
        if layer.name and layer.has_clear_phases and first.setdefault(layer.name, index) != index:
            yield (index, "name"), f"duplicate name {layer.name!r}, also of item {first[layer.name]} of the list."


def _cycles(present: Mapping[int, LayerConf]) -> Iterator[Finding]:
    """Yield each cycle, and continue without its layers."""
    by_name = {layer.name: layer for layer in present.values()}
    index_of = {layer.name: index for index, layer in present.items()}
    waits = {
        name: [s for s in _at_once(layer) if s in by_name and s != name and not _mutual(layer, by_name[s])]
        for name, layer in by_name.items()
    }
    while True:
        try:
            TopologicalSorter(waits).prepare()
            return
        except CycleError as error:
            # graphlib repeats the first layer at the end, and lists each layer before one that reads it
            loop: list[str] = error.args[1][:0:-1]
        start = min(range(len(loop)), key=lambda i: index_of[loop[i]])
        first, after = loop[start], loop[(start + 1) % len(loop)]
        words = " <- ".join([*loop[start:], *loop[:start], first])
        path = (index_of[first], "srclayers", by_name[first].srclayers.index(after))
        yield path, f"these layers read each other: {words}."
        waits = {name: [s for s in sources if s not in loop] for name, sources in waits.items() if name not in loop}


def _at_once(layer: LayerConf) -> list[str]:
    """Return the sources that a layer reads in the same time step, without delay."""
    return [source for place, source in enumerate(layer.srclayers) if not _is_earlier(layer, place)]


def _is_earlier(layer: LayerConf, place: int) -> bool:
    """Return whether a source is read with a shift, or at the time steps that the job lists."""
    kind = layer.unroll_conn_type[place] if place < len(layer.unroll_conn_type) else "OneToOne"
    return kind == "Customized" or (kind == "OneToOne" and any(layer.shift[place : place + 1]))


def _mutual(layer: LayerConf, source: LayerConf) -> bool:
    """Return whether this is the edge from the hidden layer of an RBM back to the visible layer."""
    return layer.type == "RBMVis" and source.type == "RBMHid" and layer.name in source.srclayers
