"""``layers``: the layers, updaters and other parts that a job can name, with their keys."""

from __future__ import annotations

import contextlib
import inspect
import json
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import click

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf.describe import RegisteredPart, docs_of, keys_of, parts_of
from singa_dask.conf.explain import suggest_part
from singa_dask.data import Store
from singa_dask.errors import ConfigError
from singa_dask.layers import Layer

INDENT = "  "
# columns of text beyond which lines are hard to read
MAX_COLUMNS = 120
OF_ALL_STORES = ("url", "storage_options", "truncated")


def layers(name: str | None, kind: str | None, paths: Sequence[str], as_json: bool) -> None:
    """List the layers and other parts of jobs, or describe one."""
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


def named_parts(name: str, kinds: Sequence[str]) -> list[tuple[str, RegisteredPart]]:
    """Return the parts of a name with their kinds; rarely there are several.

    Raises
    ------
    ConfigError
        There is none.
    """
    if "." in name:
        return [_of_module(name, kinds)]
    plain = name[1:] if name[:1] == "k" and name[1:2].isupper() else name
    parts = [(kind, part) for kind in kinds for part in parts_of(REGISTRIES[kind])]
    found = [(kind, part) for kind, part in parts if plain in (part.name, *part.others)]
    if not found:
        known = [each for _, part in parts for each in (part.name, *part.others)]
        what, habits = (REGISTRIES[kinds[0]].kind, kinds[0]) if len(kinds) == 1 else ("part", "")
        raise ConfigError(f"unknown {what} {name!r}. {suggest_part(habits, plain, known)}")
    return found


def _of_module(name: str, kinds: Sequence[str]) -> tuple[str, RegisteredPart]:
    """Return the class ``module.Class`` with its kind."""
    for kind in kinds[:-1]:
        with contextlib.suppress(ConfigError):
            return kind, RegisteredPart(name, [], REGISTRIES[kind].find(name))
    return kinds[-1], RegisteredPart(name, [], REGISTRIES[kinds[-1]].find(name))


def _described(kind: str, part: RegisteredPart) -> dict[str, Any]:
    """Return all that is known of a part."""
    made: dict[str, Any] = {"name": part.name, "kind": kind, "also": part.others}
    if part.cls is None:
        return {**made, "family": "", "summary": part.missing}
    sections = docs_of(part.cls)
    made |= {
        "family": _family(part.cls),
        "summary": sections[0][1].split("\n\n")[0].split("\n")[0],
        "description": "\n\n".join(text for title, text in sections),
        **(_wiring(part.cls) if issubclass(part.cls, Layer) else {}),
        "reads": list(getattr(part.cls, "reads", ())),
    }
    if issubclass(part.cls, Store):
        made["options"] = [name for name in inspect.signature(part.cls).parameters if name not in OF_ALL_STORES]
    block = getattr(part.cls, "block", None)
    if block is not None:
        keys = [key._asdict() for key in keys_of(block)]
        made["block"] = {"name": block.block_key, "description": docs_of(block)[0][1], "keys": keys}
    return made


def _family(cls: type) -> str:
    """Return SINGA's family of a type of layer, "" of other parts."""
    if not issubclass(cls, Layer):
        return ""
    traits = cls.traits
    families = {
        "input": traits.is_input,
        "loss": traits.is_loss,
        "output": traits.is_output,
        "connection": bool(traits.forwards),
    }
    return next((name for name, is_of in families.items() if is_of), "neuron")


def _wiring(cls: type[Layer]) -> dict[str, Any]:
    """Return sources, params and metrics of a type of layer."""
    traits = cls.traits
    at_least, at_most = traits.n_sources
    return {
        "sources": {"min": at_least, "max": at_most},
        "params": list(traits.params),
        "metrics": list(traits.metrics),
        "partition_dim": [0, 1, -1] if traits.feature_parallel else [0, -1],
    }


def _table(described: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each part: name, family, summary; cut to the terminal."""
    widths = [max(len(each[key]) for each in described) for key in ("name", "family")]
    columns = shutil.get_terminal_size((MAX_COLUMNS, 0)).columns
    for each in described:
        family = f"{each['family']:<{widths[1]}}  " if widths[1] else ""
        line = f"{each['name']:<{widths[0]}}  {family}{each['summary']}"
        yield line if len(line) <= columns else f"{line[: columns - 3]}..."


def _page(part: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of one part."""
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
            kind = "; ".join(filter(None, (key["type"], key["default"] and _shown_default(key["default"]))))
            yield f"{INDENT}{key['name']}  ({kind})"
            yield from textwrap.wrap(key["meaning"], columns, initial_indent=2 * INDENT, subsequent_indent=2 * INDENT)


def _shown_default(default: str) -> str:
    return default if default == "required" else f"default {default}"


def _facts(part: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield title and text of what is not in the docstring."""
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
    if part.get("options"):
        yield "Options", f"{', '.join(part['options'])}; in user_conf, or keys of store_conf"
    if part.get("reads") and part["kind"] != "layer":
        yield "Also reads", ", ".join(part["reads"])
