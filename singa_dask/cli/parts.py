"""Commands for layers, updaters, stores and other parts of jobs: ``check``, ``layers``, ``schema``."""

from __future__ import annotations

import contextlib
import json
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from singa_dask.cli.printing import echo
from singa_dask.errors import ConfigError

if TYPE_CHECKING:
    from singa_dask.conf.describe import RegisteredPart
    from singa_dask.layers import Layer


_module_option = click.option(
    "--module", "paths", metavar="FILE", multiple=True, help="Include the parts that this module registers. Repeatable."
)
KINDS = ("layer", "updater", "schedule", "initialiser", "algorithm", "store")


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--kind", type=click.Choice(KINDS), help="Kind of parts to list or describe.  [default: layer]")
@_module_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def layers(name: str | None, kind: str | None, paths: Sequence[str], as_json: bool) -> None:
    """List the layers and other parts of jobs, or describe one.

    NAME is the name of any part in a job: InnerProduct, Adam, Cosine, Gaussian, CD, lmdb. Shows its formula, sources,
    params, and the keys of its block.
    """
    from singa_dask import modules
    from singa_dask.api import REGISTRIES
    from singa_dask.conf.describe import parts_of

    modules.load(modules.read(paths), REGISTRIES.values())
    if name is None:
        kind = kind or "layer"
        parts = [(kind, part) for part in parts_of(REGISTRIES[kind])]
    else:
        parts = named_parts(name, [kind] if kind else list(REGISTRIES))
    described = [_described(kind, part) for kind, part in parts]
    if as_json:
        click.echo(json.dumps(described if name is None else described[0], indent=2))
    elif name is None:
        click.echo("\n".join(_table(described)))
    else:
        click.echo("\n\n".join("\n".join(_page(each)) for each in described))


@click.command()
@click.argument("name", metavar="MODULE.CLASS")
@click.option(
    "--module", "paths", metavar="FILE", multiple=True, help="The module is in this file.  [default: MODULE.py, if any]"
)
@click.option(
    "--shape", "shapes", metavar="4x6", multiple=True, help="Shape of a source of a layer, batch first. Repeatable."
)
@click.option("--conf", metavar="JSON", help='Keys of the layer, updater or store: {"scale_conf": {"factor": 2}}.')
@click.option("--classes", type=click.IntRange(1), help="Classes of labels.  [default: columns of the first source]")
@click.option("--fixed", type=click.IntRange(0), help="Number of sources, the last ones, without a gradient.")
@click.option("--steps", "n_steps", type=click.IntRange(1), default=1, help="Time steps in the rows of the sources.")
@click.option("--learning-rate", type=float, default=0.05, show_default=True, help="Learning rate of an updater.")
@click.option("--data", "url", metavar="URL", help="Records for a store to read.")
def check(
    name: str, paths: Sequence[str], conf: str | None, learning_rate: float, url: str | None, **of_layer: Any
) -> None:
    """Examine a layer, updater or store of your own.

    A layer: its gradients against central differences, devices, partition, time steps, bfloat16, and what it may write.
    An updater: slices of params, its state, and whether it learns. A store: its blocks, and how they are read.

    Exit codes: 0 it passes, 1 it fails; the mistakes are printed with what to do.
    """
    from singa_dask import modules
    from singa_dask.api import REGISTRIES
    from singa_dask.testing import check_layer, check_store, check_updater

    if name.endswith((".yaml", ".yml")):
        raise ConfigError(f"{name}: expected a class, MODULE.CLASS. To check a job file: singa-dask validate {name}.")
    beside = f"{name.partition('.')[0]}.py"
    modules.load(modules.read(paths or [beside] * Path(beside).is_file()), REGISTRIES.values())
    kind, part = named_parts(name, ["layer", "updater", "store"])[0]
    keys = _parsed(conf)
    if kind == "layer":
        left_out = check_layer(name, **_layer_options(part.cls, **of_layer), conf=keys)
    elif kind == "updater":
        left_out = check_updater(name, keys, learning_rate=learning_rate)
    elif url is None:
        raise ConfigError(f"{name}: a store needs records to read. Pass --data URL.")
    else:
        left_out = check_store(name, url, **keys)
    echo(f"{name} passes.")
    for each in left_out:
        echo(f"not examined here: {each}")


@click.command()
@_module_option
@click.option("--stub", "as_stub", is_flag=True, help="Print the types of singa_dask.nn for Python instead.")
def schema(paths: tuple[str, ...], as_stub: bool) -> None:
    """Print the JSON schema of a job file.

    Editors that know YAML complete and check a job file whose first line is
    "# yaml-language-server: $schema=PATH/TO/job.schema.json".
    """
    from singa_dask import conf, modules
    from singa_dask.api import REGISTRIES
    from singa_dask.conf.nn_stub import stub

    modules.load(modules.read(paths), REGISTRIES.values())
    click.echo(stub(REGISTRIES["layer"]) if as_stub else json.dumps(conf.schema(REGISTRIES), indent=2), nl=not as_stub)


INDENT = "  "
# maximum number of columns of a readable line
MAX_COLUMNS = 120


def named_parts(name: str, kinds: Sequence[str]) -> list[tuple[str, RegisteredPart]]:
    """Return all parts that have a name, each with its kind.

    Parts of different kinds may have the same name. Raises a ConfigError if no part has it.
    """
    from singa_dask.api import REGISTRIES
    from singa_dask.conf.describe import RegisteredPart, parts_of
    from singa_dask.conf.foreign_names import suggest_part

    if "." in name:  # if no kind has the class module.Class, the lookup in the last kind raises the error
        for kind in kinds[:-1]:
            with contextlib.suppress(ConfigError):
                return [(kind, RegisteredPart(name, [], REGISTRIES[kind].find(name)))]
        return [(kinds[-1], RegisteredPart(name, [], REGISTRIES[kinds[-1]].find(name)))]
    plain = name[1:] if name[:1] == "k" and name[1:2].isupper() else name
    parts = [(kind, part) for kind in kinds for part in parts_of(REGISTRIES[kind])]
    matches = [(kind, part) for kind, part in parts if plain in (part.name, *part.others)]
    if not matches:
        known = [each for _, part in parts for each in (part.name, *part.others)]
        what, habits = (REGISTRIES[kinds[0]].kind, kinds[0]) if len(kinds) == 1 else ("part", "")
        raise ConfigError(f"unknown {what} {name!r}. {suggest_part(habits, plain, known)}")
    return matches


def _described(kind: str, part: RegisteredPart) -> dict[str, Any]:
    """Return the description of a part as a dict that can be written as JSON."""
    from singa_dask.conf.describe import docs_of, keys_of
    from singa_dask.data.stores import Store
    from singa_dask.layers import Layer

    described: dict[str, Any] = {"name": part.name, "kind": kind, "also": part.others, "family": ""}
    sections = docs_of(part.cls)
    described |= {
        "summary": sections[0][1].split("\n\n")[0].split("\n")[0],
        "description": "\n\n".join(text for title, text in sections),
        **(_wiring(part.cls) if issubclass(part.cls, Layer) else {}),
        "reads": list(getattr(part.cls, "reads", ())),
    }
    options = getattr(part.cls, "options_class", None)
    if options is not None:
        keys = [key._asdict() for key in keys_of(options)]
        name = "store_conf" if issubclass(part.cls, Store) else options.block_key
        described["block"] = {"name": name, "description": docs_of(options)[0][1], "keys": keys}
    return described


def _wiring(cls: type[Layer]) -> dict[str, Any]:
    """Return SINGA's family, sources, params and metrics of a type of layer."""
    traits = cls.traits
    return {
        "family": traits.role if traits.role not in ("", "unsupervised") else "neuron",
        "sources": dict(zip(("min", "max"), traits.n_sources, strict=True)),
        "params": list(traits.params),
        "metrics": list(traits.metrics),
        "partition_dim": [0, 1, -1] if cls.speed.feature_parallel else [0, -1],
    }


def _table(described: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each part, cut to the terminal: name, family, summary."""
    widths = [max(len(each[key]) for each in described) for key in ("name", "family")]
    columns = shutil.get_terminal_size((MAX_COLUMNS, 0)).columns
    for each in described:
        family = f"{each['family']:<{widths[1]}}  " if widths[1] else ""
        line = f"{each['name']:<{widths[0]}}  {family}{each['summary']}"
        yield line if len(line) <= columns else f"{line[: columns - 3]}..."


def _page(part: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of one part."""
    from singa_dask.api import REGISTRIES

    columns = min(shutil.get_terminal_size((MAX_COLUMNS, 0)).columns, MAX_COLUMNS)
    family = f" ({part['family']})" if part["family"] else ""
    yield f"{part['name']}: {REGISTRIES[part['kind']].kind}{family}"
    for paragraph in part.get("description", part["summary"]).split("\n\n"):
        yield ""
        yield from textwrap.wrap(paragraph, columns, initial_indent=INDENT, subsequent_indent=INDENT)
    facts = dict(_facts(part))
    if facts:
        yield ""
    for title, text in facts.items():
        yield f"{INDENT}{title + ':':<{max(map(len, facts)) + 2}}{text}"
    if "block" in part:
        yield ""
        yield f"{part['block']['name']}:"
        for key in part["block"]["keys"]:
            default = key["default"] if key["default"] in ("", "required") else f"default {key['default']}"
            yield f"{INDENT}{key['name']}  ({'; '.join(filter(None, (key['type'], default)))})"
            yield from textwrap.wrap(key["meaning"], columns, initial_indent=2 * INDENT, subsequent_indent=2 * INDENT)


def _facts(part: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield title and text of each property that the docstring of the part does not mention."""
    if part["also"]:
        yield "Also called", ", ".join(part["also"])
    if "sources" in part:
        at_least, at_most = part["sources"].values()
        many = f"{at_least} or more" if at_most is None else f"{at_least} to {at_most}"
        yield "Sources", str(at_least) if at_least == at_most else many
        yield "Params", ", ".join(part["params"]) or "none"
        yield "partition_dim", ", ".join(map(str, part["partition_dim"]))
    if part.get("metrics"):
        yield "Metrics", ", ".join(part["metrics"])
    if part.get("reads") and part["kind"] != "layer":
        yield "Also reads", ", ".join(part["reads"])


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
    """Return the options of `check_layer`, with defaults from the traits."""
    try:
        sizes = [tuple(int(n) for n in shape.split("x")) for shape in shapes]
    except ValueError:
        raise ConfigError(f"--shape: expected sizes like 4x6, got {', '.join(shapes)}.") from None
    sizes = sizes or [(4 * n_steps, 6)] * cls.traits.n_sources[0]
    labelled = ["labels" in cls.traits.consumed(k) for k in range(len(sizes))]
    # whether a layer reads labels can depend on its options
    labels = [i % (classes or sizes[0][-1]) for i in range(sizes[0][0])] if sizes else None
    return {"shapes": sizes, "labels": labels, "fixed": sum(labelled) if fixed is None else fixed, "n_steps": n_steps}
