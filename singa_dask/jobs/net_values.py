"""Nets in Python: `layer`, `Sequential` and `Net`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from singa_dask.api import REGISTRIES
from singa_dask.conf import Conf, LayerConf
from singa_dask.conf.files.layer_blocks import expand
from singa_dask.conf.files.tree import TreeMap, plain
from singa_dask.conf.files.yaml_text import dump, parse
from singa_dask.conf.foreign_names import suggest_part
from singa_dask.errors import ConfigError
from singa_dask.jobs.torch_objects import advice_on, name_of
from singa_dask.layers import Layer

HERE = "job"


def layer(
    type: str | type[Layer], *, name: str = "", srclayers: str | Sequence[str] | None = None, **keys: Any
) -> dict[str, Any]:
    """Return a layer as a dict, in the form of a job file.

    Parameters
    ----------
    type : str or class
        Type of the layer, such as ``"InnerProduct"``, or its class, such as `singa_dask.layers.neuron.InnerProduct`.
        For a layer of your own, pass ``"module.Class"``, list the module's file in ``modules`` of the job, and write
        the keys as in a job file.
    name : str
        Name of the layer. By default `Net` chooses one.
    srclayers : str or sequence of str
        Names of the layers that this layer reads. The default is the previous layer in the `Net`.
    **keys
        Keys of the layer. Keys of the layer's own block need no nesting: ``num_output=10`` sets ``num_output`` of
        ``innerproduct_conf``. Pass a class or function of PyTorch directly. For TorchModule and TorchLoss, all other
        keywords are arguments of this class or function.

    Raises
    ------
    ConfigError
        The type is unknown.

    Examples
    --------
    >>> layer("InnerProduct", num_output=10)
    {'type': 'InnerProduct', 'innerproduct_conf': {'num_output': 10}}
    """
    cls = _class_of(type) if isinstance(type, str) else type
    values: dict[str, Any] = {"type": type if isinstance(type, str) else _name_of(type)}
    if name:
        values["name"] = name
    if srclayers is not None:
        values["srclayers"] = _listed(srclayers)
    options = cls.options_class if cls else None
    fields = set(options.model_fields) - set(LayerConf.model_fields) if options else set()
    own = {key: keys.pop(key) for key in list(keys) if key in fields}
    own = {key: name_of(value) if callable(value) else value for key, value in own.items()}
    if options and options.rest:
        names = [key for key in keys if key not in LayerConf.model_fields and key != options.block_key]
        if rest := {key: keys.pop(key) for key in names}:
            own[options.rest] = _joined(rest, own.get(options.rest, {}), options.rest)
    if options and own:
        values[options.block_key] = _joined(own, keys.pop(options.block_key, {}), options.block_key)
    return {**values, **keys}


def _joined(direct: Mapping[str, Any], nested: Mapping[str, Any], within: str) -> dict[str, Any]:
    """Return keywords, and those nested under a key."""
    if twice := [key for key in direct if key in nested]:
        raise ConfigError(f"{twice[0]} is given as a keyword and in {within}. Remove one of the two.")
    return {**nested, **direct}


def _class_of(type: str) -> type[Layer] | None:
    """Return the class of a type; None for a user's layer, whose module is loaded later with the job."""
    try:
        return REGISTRIES["layer"].find(type)
    except ConfigError:
        if "." in type:
            return None
        known = suggest_part("layer", type, REGISTRIES["layer"].names())
        raise ConfigError(f"unknown layer type {type!r}. {known}") from None


def _name_of(cls: type[Layer]) -> str:
    if REGISTRIES["layer"].get(cls.__name__) is cls:
        return cls.__name__
    raise ConfigError(
        f"{cls.__module__}.{cls.__qualname__} is not a registered layer type. Put the class in a module of your own, "
        "list its file in the key modules of the job, and pass its type as 'module.Class'."
    )


class Sequential(dict[str, Any]):
    """A chain of layers that a `Net` or another `Sequential` uses as one layer.

    Parameters
    ----------
    *layers : mapping
        Results of `layer` or of functions in `singa_dask.nn`, or other `Sequential` objects. Missing names and sources
        are added as in a `Net`. The first layer reads the first input.
    name : str
        Name of the chain in ``srclayers``. Followed by a dot, it is also the prefix of the names of the layers. By
        default, `Net` chooses a name.
    srclayers : str or sequence of str
        Names of the layers that the inputs read. The default is the previous layer.
    inputs : str or sequence of str
        Names of the inputs. ``"$in"`` in ``srclayers`` of a layer refers to the input ``in``.
    output : str
        Name of the layer whose output layers outside of the chain read. The default is the last layer.
    repeat : int, optional
        Number of copies of the layers, one after the other, named ``name.1``, ``name.2`` and so on.

    Examples
    --------
    >>> def residual(filters, **keys):
    ...     convolutions = [layer("Convolution", num_filters=filters, kernel=3, pad=1) for _ in range(2)]
    ...     return Sequential(*convolutions, layer("Add", srclayers=["convolution2", "$in"]), layer("ReLU"), **keys)
    >>> Net([layer("Dummy", name="x"), residual(16, name="a"), layer("ReLU")])
    <Net: x, a.convolution, a.convolution2, a.add, a.relu, relu>
    """

    def __init__(
        self,
        *layers: Mapping[str, Any],
        name: str = "",
        srclayers: str | Sequence[str] | None = None,
        inputs: str | Sequence[str] = "in",
        output: str = "",
        repeat: int | None = None,
    ) -> None:
        use = {"name": name, "srclayers": _listed(srclayers or ()), "repeat": repeat}
        block = {"inputs": _listed(inputs), "output": output, "layer": list(layers)}
        super().__init__({key: value for key, value in use.items() if value not in ("", [], None)}, block=block)


class Net(dict[str, Any]):
    """The block ``neuralnet`` of a job.

    Parameters
    ----------
    layers : sequence of mapping
        Results of `layer` or of functions in `singa_dask.nn`, or `Sequential` objects. The default name of a layer is
        its type in lower case; from the second layer of the type on, a number follows. The default source is the
        previous layer, except for input layers.
    **keys
        Other keys of ``neuralnet``: ``partition_dim`` and ``unroll_len``.

    Raises
    ------
    ConfigError
        The arguments of a `Sequential` are wrong.
    """

    def __init__(self, layers: Sequence[Mapping[str, Any]], **keys: Any) -> None:
        definitions: dict[str, Any] = {}
        wired = list(_wired(layers, definitions))
        if definitions:
            text = dump(plain_values({"blocks": definitions, "neuralnet": {"layer": wired}}))
            root, problems = parse(text, HERE, with_lines=False)
            assert isinstance(root, TreeMap)
            if problems := [*problems, *expand(root)]:
                raise ConfigError(problems)
            wired = plain(root)["neuralnet"]["layer"]
        super().__init__(**keys, layer=wired)

    def __repr__(self) -> str:
        return f"<Net: {', '.join(each['name'] for each in self['layer'])}>"


def _wired(
    layers: Sequence[Mapping[str, Any]], blocks: dict[str, Any], before: str = "", within: str = ""
) -> Iterator[dict[str, Any]]:
    """Add names and sources to layers.

    Each `Sequential` becomes a block, which is added to ``blocks``, and a layer that uses the block. ``before`` is the
    source of the first layer. ``within`` is the name prefix of the enclosing `Sequential`.
    """
    taken = Counter(each["name"] for each in layers if isinstance(each, Mapping) and "name" in each)
    for each in layers:
        if not isinstance(each, Mapping):
            kind = f"{type(each).__module__}.{type(each).__name__}".removeprefix("builtins.")
            raise ConfigError(f"net: expected layers of sd.nn or sd.layer, got {kind}.{advice_on(each)}")
        kind = "sequential" if "block" in each else str(each["type"]).rpartition(".")[2].lower()
        name = each.get("name") or _free_name(kind, taken)
        wired = {"name": name, **each}
        cls = None if "block" in each else _class_of(each["type"])
        if "srclayers" not in wired and not (cls and cls.traits.role == "input") and before:
            wired["srclayers"] = [before]
        if "block" in each:
            definition, wired["block"] = each["block"], f"{within}{name}"
            inner = _wired(definition["layer"], blocks, f"${definition['inputs'][0]}", f"{within}{name}.")
            blocks[wired["block"]] = {**definition, "layer": list(inner)}
        before = name
        yield wired


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _free_name(name: str, taken: Counter[str]) -> str:
    number, free_name = 1, name
    while free_name in taken:
        number += 1
        free_name = f"{name}{number}"
    taken[free_name] += 1
    return free_name


def plain_values(value: Any) -> Any:
    """Convert a value to numbers, strings, lists and dicts, which a job file can contain."""
    if isinstance(value, Conf):
        return value.model_dump(exclude_unset=True)
    if isinstance(value, Mapping):
        return {str(key): plain_values(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(inner) for inner in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # convert NumPy scalars to Python numbers
    return value.item() if hasattr(value, "item") and not isinstance(value, (str, bytes)) else value
