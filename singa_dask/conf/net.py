"""The net: its layers, and their defaults (SINGA's NetProto)."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from singa_dask.conf.base import Conf, raw_value
from singa_dask.conf.findings import Finding
from singa_dask.conf.kinds import (
    Count,
    Many,
    NetPhase,
    NonNegative,
    RegisteredName,
    Size,
    as_list,
    choice,
    class_of,
    phase_name,
    plain_name,
)
from singa_dask.conf.parts import PartConf
from singa_dask.registry import Registry, suggest

# A layer of the net and its params (SINGA's LayerProto, ParamProto, ParamGenProto), and the phases that it is in.


class Phase(enum.IntFlag):
    """Flags that every layer is given; the numbers are SINGA's.

    ``TRAIN``, ``VALIDATION`` and ``TEST`` select a net; the others describe the pass.
    """

    NONE = 0
    TRAIN = 1
    VALIDATION = 2
    TEST = 4
    POSITIVE = 8
    NEGATIVE = 16
    FORWARD = 32
    BACKWARD = 64
    LOSS = 128
    DEPLOY = 256
    AGGREGATE_GRADIENT = 512


PHASES = {"train": Phase.TRAIN, "val": Phase.VALIDATION, "test": Phase.TEST}


class InitConf(PartConf):
    """``init`` of a param: how its initial values are drawn (SINGA's ParamGenProto)."""

    kind: ClassVar[str] = "initialiser"
    aliases: ClassVar[Mapping[str, str]] = {"user_type": "type"}

    type: Annotated[str, Field(min_length=1), RegisteredName("initialiser")]
    """Name of the initialiser."""
    value: float = 1.0
    """The constant; elsewhere a factor."""
    mean: float = 0.0
    """Mean of a Gaussian."""
    std: NonNegative = 1.0
    """Standard deviation of a Gaussian."""
    low: float = -1.0
    """Least value of a uniform distribution."""
    high: float = 1.0
    """Greatest value of a uniform distribution."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's own initialiser."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that the bounds are in order."""
        low, high = data.get("low", -1.0), data.get("high", 1.0)
        if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low > high:
            yield ("low",), f"expected at most high, which is {high:g}, got {low:g}."


class ParamConf(Conf):
    """``param`` of a layer (SINGA's ParamProto)."""

    name: str = ""
    """Name in checkpoints, and for share_from; made from the layer's when empty."""
    type: Annotated[Literal["Param", "User"], choice()] = "Param"
    """Kind of param; there is one."""
    init: InitConf | None = None
    """Initial values. Without it they come from a checkpoint or, where the job names none, are those of the layer's
    type: Glorot's for InnerProduct, Convolution and inputs of recurrent layers, orthogonal for their states, +-0.05 for
    Embedding, a small Gaussian for RBMs, 0 for biases. SINGA's own files need it, or a checkpoint."""
    lr_scale: float = 1.0
    """Multiplies the learning rate."""
    wd_scale: float = 1.0
    """Multiplies the weight decay."""
    share_from: str = ""
    """Name of the param whose values this one uses."""
    share_gradient: Literal["average", "sum"] = "average"
    """What the owner and those that share from it learn from: the average of their gradients, as in SINGA, or the sum,
    which is the gradient of tied weights. It is the sum where any of them says so."""


class LayerConf(PartConf):
    """One layer (SINGA's LayerProto). The block that its type reads is called ``<type>_conf``."""

    kind: ClassVar[str] = "layer"
    aliases: ClassVar[Mapping[str, str]] = {"user_type": "type"}

    name: str = Field(min_length=1)
    """Name, unique in the net of a phase."""
    type: Annotated[str, Field(min_length=1), RegisteredName("layer")]
    """Type of layer."""
    srclayers: Many[str] = Field(default=[])
    """Layers that this one reads, in the order that its type expects."""
    param: Many[ParamConf] = Field(default=[])
    """Params in the order of the type: weights before bias."""
    include: Many[NetPhase] = Field(default=[])
    """Phases whose nets have this layer; all when empty."""
    exclude: Many[NetPhase] = Field(default=[])
    """Phases whose nets lack this layer; deprecated, use include."""
    share_src_blobs: bool = False
    """Let an activation write over its source's memory."""
    unroll_len: Size | None = None
    """Time steps; the net's when not given."""
    unroll_conn_type: Many[
        Annotated[Literal["OneToOne", "OneToAll", "FirstToLast", "Customized"], choice("Unroll")]
    ] = Field(default=[])
    """How each source's time steps are connected to this layer's; when not given, OneToAll of a source with one step,
    else OneToOne."""
    unroll_steps: list[list[list[Count]]] = Field(default=[])
    """For each Customized source, for each time step of this layer: the time steps of the source that it reads."""
    shift: Many[Count] = Field(default=[])
    """For OneToOne, by how many time steps each source is behind."""
    partition_dim: int | None = Field(default=None, ge=-1, le=1)
    """Split over the worker group by batch (0), by feature (1), or not (-1); the net's when not given."""
    location: Count | None = None
    """Worker of the group that computes the whole layer."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's own layer."""

    def in_phase(self, phase: Phase) -> bool:
        """Tell whether the net of a phase (TRAIN, VALIDATION or TEST) has this layer."""
        included = [PHASES[name] for name in self.include] or list(PHASES.values())
        return any(phase & one for one in included) and not any(phase & PHASES[name] for name in self.exclude)


# Checks of a net's wiring by names alone, which work even if the rest of a layer is invalid.


STYLES = ("include", "exclude")


@dataclass(frozen=True)
class LayerWiring:
    """The wiring of one layer.

    Attributes
    ----------
    index : int
        Place in the list of layers.
    earlier : frozenset of int
        Places of the sources whose earlier time steps the layer reads, in an unrolled net.
    phases : frozenset of str
        Phases whose nets have the layer; all if they cannot be read.
    includes, excludes : bool
        Whether the layer uses ``include``, or the deprecated ``exclude``.
    clear : bool
        Whether the phases could be read.
    """

    index: int
    name: str
    type: str
    sources: tuple[str, ...]
    earlier: frozenset[int]
    phases: frozenset[str]
    includes: bool
    excludes: bool
    clear: bool

    @classmethod
    def of(cls, index: int, layer: object) -> LayerWiring:
        """Read a layer's raw values, or a LayerConf; mistakes in them are not reported here."""
        included, excluded = ([phase_name(v) for v in as_list(raw_value(layer, k, object, None))] for k in STYLES)
        clear = all(isinstance(name, str) and name in PHASES for name in (*included, *excluded))
        sources = as_list(raw_value(layer, "srclayers", object, None))
        return cls(
            index,
            raw_value(layer, "name", str, ""),
            plain_name(raw_value(layer, "type", str, "")),
            tuple(source for source in sources if isinstance(source, str)),
            frozenset(_earlier(layer)),
            frozenset(p for p in PHASES if not clear or (p in (included or PHASES) and p not in excluded)),
            bool(included),
            bool(excluded),
            clear,
        )


def _earlier(layer: object) -> Iterator[int]:
    """Yield the places of sources that are read with a shift, or at steps of the user's choice."""
    shifts = as_list(raw_value(layer, "shift", object, None))
    kinds = [plain_name(str(kind), "Unroll") for kind in as_list(raw_value(layer, "unroll_conn_type", object, None))]
    for place in range(max(len(shifts), len(kinds))):
        kind = kinds[place] if place < len(kinds) else "OneToOne"
        shift = shifts[place] if place < len(shifts) else 0
        if kind == "Customized" or (kind == "OneToOne" and isinstance(shift, int) and shift > 0):
            yield place


def read_wiring(net: object) -> list[LayerWiring]:
    """Return the wiring of all layers of a net's raw values, or of a NetConf."""
    return [LayerWiring.of(index, layer) for index, layer in enumerate(as_list(raw_value(net, "layer", object, None)))]


def check_wiring(nodes: Sequence[LayerWiring]) -> Iterator[Finding]:
    """Yield ((index, key...), message) for each mistake, once even if it is in several phases.

    Include and exclude may not both be used in a net; a name is unique in each phase; a source exists;
    there are no cycles, except for the two layers of an RBM, which read each other, and earlier time steps.
    """
    included = any(node.includes for node in nodes)
    for node in nodes:
        if included and node.excludes:
            yield (node.index, "exclude"), "include and exclude are both used in this net. Use include only."
    yield from _unknown_sources(nodes)
    said: set[tuple[str | int, ...]] = set()
    for phase in PHASES:
        present = [node for node in nodes if phase in node.phases]
        for path, message in (*_unique(present), *_cycles(present)):
            if path not in said:
                said.add(path)
                yield path, message


def check_phases(nodes: Sequence[LayerWiring], phases: Sequence[str]) -> Iterator[Finding]:
    """Yield ((index, key...), message) for each source that a net lacks, though the job has it in other phases.

    Parameters
    ----------
    phases : sequence of str
        The phases that the job builds nets for.
    """
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


class LayerGroupConf(Conf):
    """``layer_group``: unused, in SINGA too."""

    layer: Many[str] = Field(default=[])
    """Names of layers."""


class NetConf(Conf):
    """``neuralnet`` (SINGA's NetProto)."""

    layer: Many[LayerConf] = Field(min_length=1)
    """Layers, in any order: the net is put in order by their sources."""
    partition_dim: int = Field(default=0, ge=-1, le=1)
    """partition_dim of the layers that do not set their own."""
    layer_group: Many[LayerGroupConf] = Field(default=[])
    """Unused."""
    unroll_len: Size = 1
    """unroll_len of the layers that do not set their own."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check names, sources, cycles and the order of axes."""
        for path, message in (*check_wiring(read_wiring(data)), *_check_axes(data)):
            yield ("layer", *path), message

    @classmethod
    def rules_of_types(cls, data: Mapping[str, Any], registries: Mapping[str, Registry[Any]]) -> Iterator[Finding]:
        """Check windows of text, and the records of targets."""
        layers = as_list(raw_value(data, "layer", object, None))
        types = [class_of(registries.get("layer"), raw_value(layer, "type", str, "")) for layer in layers]
        for path, message in (*_check_windows(data, types), *_check_targets(data, types)):
            yield ("layer", *path), message


def _check_axes(net: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield ((index, key...), message) for each input layer whose records have other axes than those of its namesake.

    Each has the same values, in other places: a net that was trained on one of them is useless for the other.
    """
    shapes: dict[str, list[Any]] = {}
    for index, layer in enumerate(as_list(raw_value(net, "layer", object, None))):
        shape = as_list(raw_value(raw_value(layer, "store_conf", object, None), "shape", object, None))
        sizes = [size for size in shape if isinstance(size, int) and size != 1]
        other = shapes.setdefault(raw_value(layer, "name", str, ""), shape)
        others = [size for size in other if isinstance(size, int) and size != 1]
        if sizes != others and sorted(sizes) == sorted(others):
            message = (
                f"{shape} has the axes of {other}, the shape of this layer in another phase, in another order. Set "
                f"shape: {other}, and layout: NHWC if records are (height, width, channels), or transpose them."
            )
            yield (index, "store_conf", "shape"), message


def _check_targets(net: Mapping[str, Any], types: Sequence[Any]) -> Iterator[Finding]:
    """Yield ((index, key), message) for each layer of targets or labels that reads other records than the features."""
    blocks = [raw_value(each, "store_conf", object, {}) for each in as_list(raw_value(net, "layer", object, None))]
    nodes = read_wiring(net)
    # layers that read the records of the layer of the features again
    again = [node for node in nodes if types[node.index] is not None and types[node.index].traits.reads_beside]
    for node in again:
        for phase in sorted(node.phases):
            beside = [each for each in nodes if phase in each.phases and each not in again and blocks[each.index]]
            differing = [_different_keys(blocks[node.index], blocks[each.index]) for each in beside]
            if all(differing):
                fewest = min(differing, key=len, default=[])
                keys = f": {', '.join(fewest)} differ" if fewest else ""
                message = (
                    f"no other input layer of the {phase} net has the same store_conf{keys}, so "
                    f"{types[node.index].traits.reads_beside} and features would be of different records. Give both "
                    "the same, in YAML with &name and *name."
                )
                yield (node.index, "store_conf"), message
                break


def _different_keys(block: object, other: object) -> list[str]:
    """Return the keys of two store_conf that differ and are not of features alone."""
    one, two = (each if isinstance(each, Mapping) else getattr(each, "__dict__", {}) for each in (block, other))
    of_features = {"shape", "mean_file", "std_file", "mean_value", "std_value", "layout"}
    return sorted(key for key in {*one, *two} - of_features if one.get(key) != two.get(key))


def _check_windows(net: Mapping[str, Any], types: Sequence[Any]) -> Iterator[Finding]:
    """Yield ((index, key...), message) for each input whose windows differ in length from the layers that read it."""
    default = raw_value(net, "unroll_len", int, 1)
    layers = as_list(raw_value(net, "layer", object, None))
    for index, (layer, kind) in enumerate(zip(layers, types, strict=True)):
        block = getattr(kind, "block", None)
        if block is None or not kind.traits.is_input or "unroll_len" not in block.model_fields:
            continue
        raw = raw_value(layer, block.block_key, object, None)
        length = raw_value(raw, "unroll_len", int, block.model_fields["unroll_len"].default)
        for reader, its_kind in zip(layers, types, strict=True):
            reads = raw_value(layer, "name", str, "") in as_list(raw_value(reader, "srclayers", object, None))
            n_steps = raw_value(reader, "unroll_len", int, default)
            if reads and its_kind is not None and its_kind.traits.time_from_columns and n_steps != length:
                name = raw_value(reader, "name", str, "")
                message = f"expected {n_steps}, the unroll_len of layer {name!r}, which reads it, got {length}."
                yield (index, block.block_key, "unroll_len"), message
                break
