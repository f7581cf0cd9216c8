"""The reference pages, made from the JSON schema of job files, docstrings and the command line when a site is built."""

from __future__ import annotations

import html
import inspect
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from singa_dask.api import REGISTRIES
from singa_dask.cli import main
from singa_dask.conf import schema
from singa_dask.conf.describe import docs_of, parts_of
from singa_dask.conf.json_schema import schema_of
from singa_dask.registry import Registry

CODE = re.compile(r"(`+[^`]+`+)")
ROOT = "JobConf"
TRAINING = {
    "Updaters": "updater",
    "Learning rates": "schedule",
    "Initialisers": "initialiser",
    "Algorithms": "algorithm",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site."""
    for name, page in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=page()))
    return files


def escaped(text: str) -> str:
    """Return text in which only code in backticks keeps a meaning in Markdown."""
    parts = CODE.split(text)
    parts[::2] = [re.sub(r"([\\*_\[\]|#])", r"\\\1", html.escape(part, quote=False)) for part in parts[::2]]
    parts[1::2] = [part.replace("|", "\\|") for part in parts[1::2]]
    return "".join(parts)


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Return a Markdown table of cells that are Markdown already; nothing if there are no rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines, ""]) if lines else ""


def described(cls: type) -> str:
    """Return the docstring of a part as Markdown, without the sections for Python."""
    text = ""
    for title, body in docs_of(cls):
        text += f"\n\n*{title}.* {escaped(body)}" if title else escaped(body)
    return f"{text}\n"


# ---------------------------------------------------------------------------------------------------- keys of job files


def links(part: Any) -> Iterator[str]:
    """Yield the definitions that a part of the schema refers to."""
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        for key in ("anyOf", "allOf", "items", "additionalProperties"):
            yield from links(part.get(key))
    elif isinstance(part, list):
        for each in part:
            yield from links(each)


def types(part: dict[str, Any]) -> list[str]:
    """Return the types that a value may have, as Markdown."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return [f"[block](#{name})"]
    if "enum" in part:
        return [", ".join(f"`{value}`" for value in part["enum"] if value != "")]
    for key in ("anyOf", "allOf"):
        if key in part:
            found = [text for each in part[key] if "pattern" not in each for text in types(each)]
            return list(dict.fromkeys(text for text in found if text != "null"))
    if part.get("type") == "array":
        items = " or ".join(types(part.get("items", {}))) or "values"
        return [f"list of {items}"]
    return [part.get("type", "any value") + bounds(part)]


def bounds(part: dict[str, Any]) -> str:
    """Return the bounds of a number."""
    signs = {"minimum": "≥", "exclusiveMinimum": "&gt;", "maximum": "≤", "exclusiveMaximum": "&lt;"}
    found = [f"{sign} {part[key]:g}" for key, sign in signs.items() if key in part]
    return f" {', '.join(found)}" if found else ""


def default(key: str, part: dict[str, Any], required: list[str]) -> str:
    """Return the default of a key, as Markdown."""
    if key in required:
        return "required"
    value = part.get("default")
    if value is None or value in ("", [], {}) or next(links(part), None):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def rows(block: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield key, type, default and meaning of each key of a block."""
    for key, part in block["properties"].items():
        meaning = escaped(part.get("description", "")).replace("\n", " ")
        yield f"`{key}`", " or ".join(types(part)), default(key, part, block.get("required", [])), meaning


def blocks(definitions: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each block of a job file with the path of its key: a block comes before those in it."""
    seen: set[str] = set()
    waiting = [(ROOT, "")]
    while waiting:
        name, path = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        yield name, path
        inner = [
            (each, f"{path}.{key}".lstrip("."))
            for key, part in definitions[name]["properties"].items()
            for each in links(part)
        ]
        waiting = inner + waiting


def job_page() -> str:
    """Return the page of all keys of a job file."""
    whole = schema(REGISTRIES)
    definitions = {ROOT: whole, **whole["definitions"]}
    text = [
        "# Job keys\n",
        "All keys of a job file, by block. An empty default means that the key is unset or empty.\n",
    ]
    for name, path in blocks(definitions):
        block = definitions[name]
        title = f"`{path}`" if path else "The job"
        text.append(f"## {title} {{#{name}}}\n\n{escaped(block.get('description', '')).strip()}\n")
        text.append(table(("key", "type", "default", "meaning"), rows(block)))
    return "\n".join(text)


# --------------------------------------------------------------------------------------------------- parts, by registry


def parts(registry: Registry[Any], level: str = "##") -> str:
    """Return the parts of a registry, each once with all its names."""
    text = []
    for part in parts_of(registry):
        text.append(f"{level} {part.name}\n\n{described(part.cls)}")
        if part.others:
            text.append(f"Also called {', '.join(f'`{name}`' for name in part.others)}.\n")
        options = getattr(part.cls, "options_class", None)
        if options and registry is REGISTRIES["store"]:
            text.append(table(("key", "type", "default", "meaning"), rows(schema_of(options))))
        elif options:
            text.append(f"Its keys are those of [`{options.block_key}`](job.md#{options.__name__}).\n")
    return "\n".join(text)


def layers_page() -> str:
    """Return the page of layers."""
    return (
        "# Layers\n\nThe types of layers, with formulas and shapes: N is the number of records in a batch. Their keys "
        f"are under [`neuralnet.layer`](job.md#LayerConf).\n\n{parts(REGISTRIES['layer'])}"
    )


def training_page() -> str:
    """Return the page of what trains a net."""
    text = [
        "# Training\n\nThe keys are under [`updater`](job.md#UpdaterConf), [`param`](job.md#ParamConf) and "
        "[`train_one_batch`](job.md#AlgConf).\n"
    ]
    for title, kind in TRAINING.items():
        text.append(f"## {title}\n\n{parts(REGISTRIES[kind], '###')}")
    return "\n".join(text)


def stores_page() -> str:
    """Return the page of stores."""
    return (
        "# Stores\n\nThe backends of `store_conf`, whose keys are under "
        f"[`store_conf`](job.md#StoreConf).\n\n{parts(REGISTRIES['store'])}"
    )


# --------------------------------------------------------------------------------------------------------- command line


def command(context: click.Context, level: str) -> Iterator[str]:
    """Yield the help of a command, and of those in it."""
    found = context.command
    yield f"{level} {context.command_path}\n"
    yield f"```text\n{found.get_usage(context).removeprefix('Usage: ')}\n```\n"
    for paragraph in inspect.cleandoc(found.help or "").split("\n\n"):
        yield escaped(paragraph.replace("\b\n", "")) + "\n"
    records = [record for param in found.get_params(context) if (record := param.get_help_record(context))]
    yield table(("option", "does"), ((f"`{names}`", escaped(text)) for names, text in records if text))
    if isinstance(found, click.Group):
        for name in found.list_commands(context):
            inner = found.get_command(context, name)
            assert inner is not None
            yield from command(click.Context(inner, parent=context, info_name=name), "##" if level == "#" else "###")


def cli_page() -> str:
    """Return the page of the command line."""
    context = click.Context(main, info_name="singa-dask")
    text = list(command(context, "#"))
    return "\n".join(["# Options\n", *text[1:]])


PAGES: dict[str, Callable[[], str]] = {
    "job": job_page,
    "layers": layers_page,
    "training": training_page,
    "stores": stores_page,
    "cli": cli_page,
}
