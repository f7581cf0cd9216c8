"""Match arrays of another program to the params of a job by layer, name and shape."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from singa_dask.conf.files.yaml_text import dump
from singa_dask.exports.torch_layers import TORCH_GATES
from singa_dask.layers import Layer, Param
from singa_dask.layers.conv import Convolution, ConvTranspose
from singa_dask.layers.neuron import InnerProduct
from singa_dask.layers.recurrent import GRU, Recurrent
from singa_dask.net import NeuralNet

WORDS = {
    "weight": "weight kernel scale gamma table embedding embeddings",
    "bias": "bias shift beta",
    "mean": "mean running_mean moving_mean",
    "variance": "variance running_var moving_variance",
}
ROLES = {word: role for role, words in WORDS.items() for word in words.split()}
TURNS: dict[int, Any] = {2: True, 3: True, 4: [3, 2, 0, 1]}
"""Number of axes -> value of ``transpose`` for an array whose last axis is the axis of outputs."""
HEADING = (
    "A map to complete. Lines without # are sure. Lines with # follow the order of the arrays and can be wrong: check "
    "them, also for transpose: true, and remove the #. Save the map as map.yaml, and pass --map map.yaml (Python: map=)"
)


class MapEntry(NamedTuple):
    """Maps an array, or some of its rows, to a param.

    Attributes
    ----------
    name : str
        Name of the array.
    transpose : bool or sequence of int
        Whether to reverse the axes of the array, or the new order of the axes.
    rows : sequence of int
        Range of rows to use, as (first, stop). If empty, all rows are used.
    plus : str
        Name of another array that is added to this array first; empty if there is none.
    """

    name: str
    param: str
    transpose: bool | Sequence[int] = False
    rows: Sequence[int] = ()
    plus: str = ""

    def values(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the values for the param."""
        array = arrays[self.name] + arrays[self.plus] if self.plus else arrays[self.name]
        rows = array[slice(*self.rows)] if self.rows else array
        return rows.T if self.transpose is True else np.transpose(rows, self.transpose) if self.transpose else rows


class ParamPlace(NamedTuple):
    """A param, the layer that owns it, and its name in the layer's class."""

    layer: Layer
    kind: str
    param: Param

    def fit(self, values: np.ndarray) -> np.ndarray | None:
        """Reshape values to the param if only axes of length 1 differ, or filters become rows."""
        shape, layer = self.param.whole_shape, self.layer
        shapes = [shape]
        if self.kind == "weight" and isinstance(layer, Convolution | ConvTranspose) and values.ndim > 2:
            shapes = [layer.shape]
        elif self.kind == "weight" and isinstance(layer, InnerProduct) and not layer.transpose:
            shapes.append((shape[0], *layer.sources[0].shape[1:]))
        fits = any([n for n in values.shape if n > 1] == [n for n in each if n > 1] for each in shapes)
        return values.reshape(shape) if fits and values.size == math.prod(shape) else None

    @property
    def hides_transpose(self) -> bool:
        """Whether the shape does not show the order of axes: a square weight of a layer with ``transpose``."""
        return getattr(self.layer, "transpose", False) and self.kind == "weight" and len({*self.param.whole_shape}) == 1


def param_places(net: NeuralNet) -> dict[str, ParamPlace]:
    """Return the place of each param of a net, by name; a shared param belongs to the layer that owns it."""
    layers = [layer for layer in net.layers if layer.site.prototype is None]
    owned = ((layer, *each) for layer in layers for each in zip(layer.traits.params, layer.params, strict=False))
    return {param.name: ParamPlace(layer, kind, param) for layer, kind, param in owned if param.owner is param}


class _Option(NamedTuple):
    """Entries that map a group of arrays to a layer.

    ``layout`` says whether a matrix of the group fits unchanged, and whether the matrix fits transposed.
    """

    layer: str
    entries: Sequence[MapEntry]
    layout: tuple[bool, bool] | None = None


class Matching:
    """Assignment of arrays to params.

    Arrays with a common prefix are a group, which belongs to one layer. The match of a group and a layer is sure if
    their names are equal, or if neither has another candidate. Other matrices must also show the order of axes.

    Attributes
    ----------
    sure : list of MapEntry
    unsure, unused : list of str
        Names of the arrays without a sure param: ``unsure`` arrays have candidates, ``unused`` arrays have none.
    wanted : set of str
        Names of the params that are candidates for some array.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], places: Mapping[str, ParamPlace]) -> None:
        # equal names mean equal layouts, except for a square matrix of a layer with transpose
        exact = [name for name in arrays if name in places and not places[name].hides_transpose]
        layers: dict[str, list[ParamPlace]] = {}
        for name in (name for name in places if name not in exact):
            layers.setdefault(places[name].layer.conf_name, []).append(places[name])
        self._arrays, self._groups = arrays, _grouped([name for name in arrays if name not in exact])
        found = {
            head: [option for each in layers.values() for option in _options(head, group, each, arrays)]
            for head, group in self._groups.items()
        }
        layouts = [{option.layout for option in options} for options in found.values()]
        is_turned = {(False, True)} in [each - {None} for each in layouts] or any(
            re.search(r"\bkernel(:0)?$", name) for name in arrays
        )
        is_plain = {(True, False)} in layouts and not is_turned
        if is_plain:
            found = {
                head: [each for each in options if each.layout != (False, True)] for head, options in found.items()
            }
        self._candidates, self._chosen = found, self._choose(found, is_plain, [*map(_plain, layers)])
        self.sure = [MapEntry(name, name) for name in exact]
        self.sure += [entry for option in self._chosen.values() for entry in option.entries]
        rest = [(name, head) for head in found if head not in self._chosen for name in self._groups[head].values()]
        self.unsure, self.unused = ([name for name, head in rest if bool(found[head]) is has] for has in (True, False))
        self.wanted = {entry.param for options in found.values() for option in options for entry in option.entries}

    def _choose(
        self, found: Mapping[str, Sequence[_Option]], is_plain: bool, layers: Sequence[str]
    ) -> dict[str, _Option]:
        """Return the sure options: first options with the layer's name, then options without an alternative."""
        pairs = {(head, option.layer): option for head, options in found.items() for option in options}
        common = os.path.commonprefix([*found]).rpartition(".")[0]  # noqa: RUF071
        names = {head: {_plain(head), _plain(head.removeprefix(common))} for head in found}
        by_name = _unrivalled({(head, layer) for head, layer in pairs if _plain(layer) in names[head]})
        heads, taken = {head for head, _ in by_name}, {layer for _, layer in by_name}
        free = _unrivalled({(head, layer) for head, layer in pairs if head not in heads and layer not in taken})
        # a group with the name of another layer does not belong to the only layer of this shape
        chosen = by_name | {pair for pair in free if names[pair[0]].isdisjoint(layers)}
        # an array without a known role is matched by its shape alone
        sure = {pair for pair in chosen if "" not in self._groups[pair[0]] and (is_plain or not pairs[pair].layout)}
        return {head: option for (head, layer), option in pairs.items() if (head, layer) in sure}

    def lines(self) -> Iterator[str]:
        """Yield the lines of a map, in the order of the arrays; uncertain entries are comments."""
        yield HEADING
        yield from (_line([entry]) for entry in self.sure if entry.name == entry.param)
        used = {option.layer for option in self._chosen.values()}
        for head, group in self._groups.items():
            options = self._candidates[head]
            option = self._chosen.get(head) or next((each for each in options if each.layer not in used), None)
            option = option or next(iter(options), _Option("", ()))
            used.add(option.layer)
            for name in dict.fromkeys([entry.name for entry in option.entries] or group.values()):
                if not options:
                    yield f"# {dump({name: None}).rstrip()}  # fits no param: shape {self._arrays[name].shape}"
                    continue
                text = _line([entry for entry in option.entries if entry.name == name])
                rivals = [each.param for other in options for each in other.entries if each.name == name]
                more = [param for param in rivals if all(param != entry.param for entry in option.entries)]
                shown = f"  # or {', '.join([*more[:6], *['...'] * (len(more) > 6)])}" if more else ""
                yield text if head in self._chosen else "\n".join(f"# {line}" for line in f"{text}{shown}".split("\n"))


def _grouped(names: Collection[str]) -> dict[str, dict[str, str]]:
    """Group the arrays by layer and role; the role is "" if the last word of the name is unknown."""
    groups: dict[str, dict[str, str]] = {}
    for name in names:
        head, _, word = re.sub(r":0$", "", name).replace("/", ".").rpartition(".")
        role = ROLES.get(word.lower(), "")
        attention = re.fullmatch(r"(.*\.|)(in|out)_proj[._](weight|bias)", name)
        if attention and f"{attention[1]}in_proj_weight" in names:
            head, role = attention[1].rstrip("."), f"{'qkv' if attention[2] == 'in' else 'output'}_{attention[3]}"
        elif gate := re.fullmatch(r"((?:weight|bias)_[ih]h)((?:_l\d+)?(?:_reverse)?)", word):
            head, role = head + gate[2], gate[1]
        group = groups.setdefault(head if role else name, {})
        # two arrays of one role fit no layer
        group[name if role in group else role] = name
    return groups


def _options(
    head: str, group: Mapping[str, str], places: Sequence[ParamPlace], arrays: Mapping[str, np.ndarray]
) -> Iterator[_Option]:
    """Yield the options to map a group to a layer; none if the group does not fit."""
    layer, layout = places[0].layer, None
    if isinstance(layer, Recurrent):
        entries, params = _gates(head, group, layer, arrays), {place.param.name: place for place in places}
        if {each.param for each in entries} == params.keys():
            if all(params[each.param].fit(each.values(arrays)) is not None for each in entries):
                yield _Option(layer.conf_name, entries)
        return
    roles = {"" if "" in group else ROLES.get(place.kind, place.kind): place for place in places}
    if len(roles) != len(places) or roles.keys() != group.keys():
        return
    entries = []
    for role, place in roles.items():
        turn = TURNS.get(arrays[group[role]].ndim, False) if place.kind == "weight" else False
        tries = [MapEntry(group[role], place.param.name, each) for each in ([False, turn] if turn else [False])]
        fits = [place.fit(each.values(arrays)) is not None for each in tries]
        if not any(fits):
            return
        entries.append(tries[fits.index(True)])
        layout = (fits[0], fits[1]) if turn else layout
    yield _Option(layer.conf_name, entries, layout)


def _gates(head: str, group: Mapping[str, str], layer: Recurrent, arrays: Mapping[str, np.ndarray]) -> list[MapEntry]:
    """Return the entries for a recurrent layer from PyTorch's arrays of all gates, if they fit."""
    order, n = TORCH_GATES.get(type(layer), ()), layer.dim
    params = {"weight_ih": layer.weights, "weight_hh": layer.recurrences, "bias_ih": layer.biases}
    params = {role: each for role, each in params.items() if each}
    plus = group.get("bias_hh", "")
    if group.keys() != {*params, *(["bias_hh"] if layer.biases else [])} or layer.reverse != head.endswith("_reverse"):
        return []
    # in PyTorch, the reset gate of a GRU multiplies the last rows of bias_hh; our GRU has no such bias
    lost = plus and isinstance(layer, GRU) and arrays[plus][2 * n :].any()
    if lost or any(arrays[name].shape[:1] != (n * len(order),) for name in group.values()):
        return []
    return [
        MapEntry(group[role], each[gate].name, False, [k * n, k * n + n], plus if role == "bias_ih" else "")
        for role, each in params.items()
        for k, gate in enumerate(order)
    ]


def _plain(name: str) -> str:
    """Return a name in lower case, with _ for all separators."""
    return re.sub(r"[\W_]+", "_", name).strip("_").lower()


def _unrivalled(pairs: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the pairs that share no member with another pair."""
    counts = [Counter(pair[k] for pair in pairs) for k in (0, 1)]
    return {pair for pair in pairs if counts[0][pair[0]] == counts[1][pair[1]] == 1}


def _line(entries: Sequence[MapEntry]) -> str:
    """Return the entries of an array in a map, as YAML."""
    texts = [{key: value for key, value in each._asdict().items() if key != "name" and value} for each in entries]
    short = [text["param"] if len(text) == 1 else text for text in texts]
    return dump({entries[0].name: short if len(short) > 1 else short[0]}).rstrip()
