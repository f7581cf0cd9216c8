"""Describe registered parts and their keys."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from singa_dask.conf.base import Conf
from singa_dask.conf.json_schema import schema_of
from singa_dask.registry import Registry

HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
# sections of docstrings that do not apply to job files
FOR_PYTHON = {"Parameters", "Attributes", "Returns", "Raises", "Yields"}
BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


class RegisteredPart(NamedTuple):
    """A registered class with all its names.

    Attributes
    ----------
    name : str
        The name of the class, or the first of its names.
    others : list of str
        Its other names.
    cls : type
    """

    name: str
    others: list[str]
    cls: type


class Key(NamedTuple):
    """The description of a key of a block."""

    name: str
    type: str
    default: str
    meaning: str


def parts_of(registry: Registry[Any]) -> list[RegisteredPart]:
    """Return the classes of a registry, sorted by name. A class with several names is listed once."""
    parts = []
    for cls in dict.fromkeys(registry.classes()):
        names = registry.names_of(cls)
        own = cls.__name__ if cls.__name__ in names else names[0]
        parts.append(RegisteredPart(own, [name for name in names if name != own], cls))
    return sorted(parts)


def docs_of(cls: type) -> list[tuple[str, str]]:
    """Return (title, text) of the sections of a docstring that concern job files; the first has no title."""
    first, *rest = HEADING.split(inspect.getdoc(cls) or "")
    sections = [("", first), *zip(rest[::2], rest[1::2], strict=True)]
    return [(title, text.strip()) for title, text in sections if title not in FOR_PYTHON]


def keys_of(options_class: type[Conf]) -> Iterator[Key]:
    """Yield the descriptions of options."""
    found = schema_of(options_class)
    for name, part in found["properties"].items():
        meaning = " ".join(part.get("description", "").split())
        default = "required" if name in found.get("required", ()) else _default(part)
        yield Key(name, " or ".join(_types(part)), default, meaning)


def _default(part: dict[str, Any]) -> str:
    value = part.get("default")
    if value is None or value in ("", [], {}):
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _types(part: dict[str, Any]) -> list[str]:
    """Return the types of a JSON schema."""
    if "$ref" in part:
        return ["block"]
    if "enum" in part:
        return [", ".join(map(str, part["enum"]))]
    for key in ("anyOf", "allOf"):
        if key in part:
            types = [text for each in part[key] for text in _types(each)]
            return list(dict.fromkeys(text for text in types if text != "null"))
    if part.get("type") == "array":
        return [f"list of {' or '.join(_types(part.get('items', {}))) or 'values'}"]
    bounds = ", ".join(f"{sign} {part[key]:g}" for key, sign in BOUNDS.items() if key in part)
    return [f"{part.get('type', 'any value')} {bounds}".rstrip()]
