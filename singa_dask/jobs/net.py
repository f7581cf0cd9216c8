"""Nets built in Python: layers as plain values, each fed by the one before it unless it says otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from singa_dask.conf import LayerConf
from singa_dask.conf.explain import suggest_part
from singa_dask.errors import ConfigError
from singa_dask.jobs.pages import net_page
from singa_dask.layers import LAYERS, Layer


def layer(
    type: str | type[Layer], *, name: str = "", srclayers: str | Sequence[str] | None = None, **keys: Any
) -> dict[str, Any]:
    """Return a layer, as a job file has it.

    Parameters
    ----------
    type : str or class
        ``"InnerProduct"``, or `singa_dask.layers.neuron.InnerProduct`. One of the user's own is ``"module.Class"``,
        and the job names the module's file in ``modules``; its keys are given as in a job file.
    name : str
        By default `Net` chooses one.
    srclayers : str or sequence of str
        Names of the layers that feed it; by default `Net` takes the one before it.
    **keys
        Keys of the layer; those of its own block need not be nested, ``num_output=10``.

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
    made: dict[str, Any] = {"type": type if isinstance(type, str) else _name_of(type)}
    if name:
        made["name"] = name
    if srclayers is not None:
        made["srclayers"] = [srclayers] if isinstance(srclayers, str) else list(srclayers)
    block = cls.block if cls else None
    fields = set(block.model_fields) - set(LayerConf.model_fields) if block else set()
    own = {key: keys.pop(key) for key in list(keys) if key in fields}
    if block and own:
        made[block.block_key] = {**keys.pop(block.block_key, {}), **own}
    return {**made, **keys}


def _class_of(type: str) -> type[Layer] | None:
    """Return the class of a type, None of a user's own: its module is loaded with the job."""
    try:
        return LAYERS.find(type)
    except ConfigError:
        if "." in type:
            return None
        if (known := LAYERS.names()) and type in known:
            raise  # it lacks a package
        raise ConfigError(f"unknown layer type {type!r}. {suggest_part('layer', type, known)}") from None


def _name_of(cls: type[Layer]) -> str:
    if LAYERS.get(cls.__name__) is cls:
        return cls.__name__
    raise ConfigError(
        f"{cls.__module__}.{cls.__qualname__} is not a registered layer type. Write the class in a module of your own, "
        "name its file in the key modules of the job, and its type as 'module.Class'."
    )


class Net(Mapping[str, Any]):
    """The block ``neuralnet`` of a job.

    Parameters
    ----------
    layers : sequence of mapping
        Of `layer`. One without a name gets that of its type, with a number from the second on; one without sources
        is fed by the layer before it, input layers by none.
    **keys
        The other keys of ``neuralnet``: ``partition_dim``, ``unroll_len``.
    """

    def __init__(self, layers: Sequence[Mapping[str, Any]], **keys: Any) -> None:
        self._values: dict[str, Any] = {**keys, "layer": list(_wired(layers))}

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<Net: {', '.join(each['name'] for each in self._values['layer'])}>"

    def _repr_html_(self) -> str:
        return net_page(self._values["layer"])


def _wired(layers: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    taken = Counter(each["name"] for each in layers if "name" in each)
    before = ""
    for each in layers:
        name = each.get("name") or _free_name(str(each["type"]).rpartition(".")[2].lower(), taken)
        made = {"name": name, **each}
        cls = _class_of(made["type"])
        if "srclayers" not in made and not (cls and cls.traits.is_input) and before:
            made["srclayers"] = [before]
        before = name
        yield made


def _free_name(name: str, taken: Counter[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}{number}"
    taken[found] += 1
    return found
