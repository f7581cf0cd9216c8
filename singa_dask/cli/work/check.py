"""``check``: the exam of a layer, updater or store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.cli.echo import echo
from singa_dask.cli.work.layers import named_parts
from singa_dask.errors import ConfigError
from singa_dask.layers import Layer
from singa_dask.testing import check_layer, check_store, check_updater


def check(
    name: str, paths: Sequence[str], conf: str | None, learning_rate: float, url: str | None, **of_layer: Any
) -> None:
    """Examine a layer, updater or store of the user's own."""
    if name.endswith((".yaml", ".yml")):
        raise ConfigError(f"{name}: expected a class, MODULE.CLASS. Of a job file say: singa-dask validate {name}.")
    beside = f"{name.partition('.')[0]}.py"
    modules.load(modules.read(paths or [beside] * Path(beside).is_file()), REGISTRIES.values())
    kind, part = named_parts(name, ["layer", "updater", "store"])[0]
    if part.cls is None:
        raise ConfigError(f"{name}: {part.missing}")
    keys = _parsed(conf)
    if kind == "layer":
        left_out = check_layer(name, **_layer_options(part.cls, **of_layer), conf=keys)
    elif kind == "updater":
        left_out = check_updater(name, keys, learning_rate=learning_rate)
    elif url is None:
        raise ConfigError(f"{name}: a store is examined on records that it reads. Say --data URL.")
    else:
        left_out = check_store(name, url, **keys)
    echo(f"{name} passes.")
    for each in left_out:
        echo(f"not examined here: {each}")


def _parsed(conf: str | None) -> dict[str, Any]:
    try:
        keys = json.loads(conf or "{}")
    except ValueError as error:
        raise ConfigError(f"--conf: expected JSON, got {conf!r}: {error}.") from None
    if not isinstance(keys, dict):
        raise ConfigError(f"--conf: expected a JSON object, got {conf!r}.")
    return keys


def _layer_options(
    cls: type[Layer], shapes: Sequence[str], classes: int | None, fixed: int | None, n_steps: int
) -> dict[str, Any]:
    """Return the options of `check_layer`; what is not given follows from the traits."""
    try:
        made = [tuple(int(n) for n in shape.split("x")) for shape in shapes]
    except ValueError:
        raise ConfigError(f"--shape: expected sizes like 4x6, got {', '.join(shapes)}.") from None
    made = made or [(4 * n_steps, 6)] * cls.traits.n_sources[0]
    labelled = ["labels" in cls.traits.consumed(k) for k in range(len(made))]
    labels = [i % (classes or made[0][-1]) for i in range(made[0][0])] if any(labelled) else None
    return {"shapes": made, "labels": labels, "fixed": sum(labelled) if fixed is None else fixed, "n_steps": n_steps}
