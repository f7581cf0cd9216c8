"""What is known of the keys of a job: their JSON schema, and a description of a part for people."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from singa_dask.conf import blocks
from singa_dask.conf.base import Conf
from singa_dask.conf.job import JobConf
from singa_dask.conf.layer import LayerConf
from singa_dask.conf.parts import PartConf, blocks_of
from singa_dask.errors import ConfigError
from singa_dask.registry import Registry


def schema(registries: Mapping[str, Registry[Any]] | None = None) -> dict[str, Any]:
    """Return the schema of a job file, in the form of JSON schema draft 7.

    Parameters
    ----------
    registries : mapping of str to Registry, optional
        As for `load`: editors then offer the known names, and know the blocks of registered classes. SINGA's names with
        a k, and those of a user's own module, which have a dot, are right, too.
    """
    known = registries or {}
    whole = schema_of(JobConf)
    definitions = whole.pop("$defs")
    waiting = list(definitions)
    while waiting:
        waiting += _add_blocks(definitions, waiting.pop(), known)
    definitions |= blocks.SCHEMA
    layers = definitions["NetConf"]["properties"]["layer"]
    for place in [each["items"] if "items" in each else each for each in layers.get("anyOf", [layers])]:
        place["anyOf"] = [{"$ref": place.pop("$ref")}, {"$ref": "#/definitions/BlockUse"}]
    whole["properties"]["blocks"] = {
        "type": "object",
        "description": "Lists of layers, by name, that the net uses: {name: NAME, block: BLOCK, srclayers: [...]}.",
        "additionalProperties": {"$ref": "#/definitions/Block"},
    }
    whole["patternProperties"] = {"^x-": {"description": "For anchors: not read."}}
    parts: dict[str, Any] = _plain_references(_named({**whole, "definitions": definitions}, known))
    return {"$schema": "http://json-schema.org/draft-07/schema#", **parts, "title": "singa-dask job"}


def schema_of(model: type[Conf]) -> dict[str, Any]:
    """Return the schema of one model, with docstrings of fields as descriptions, and without registered blocks."""
    return model.model_json_schema(ref_template="#/definitions/{model}", schema_generator=_Documented)


def _add_blocks(definitions: dict[str, Any], name: str, registries: Mapping[str, Registry[Any]]) -> list[str]:
    """Add the blocks that registered classes declare to the keys of a part.

    Where no registry tells them, any ``<name>_conf`` may be one. Returns the names of definitions that are new.
    """
    part = definitions[name]
    if registry := registries.get(part.pop("options", "")):
        _add_options(part["properties"], registry)
    kind = part.pop("blocks", "")
    if kind and kind not in registries:
        part["patternProperties"] = {"_conf$": {"type": "object"}}
    if kind not in registries:
        return []
    registry, before = registries[kind], set(definitions)
    for key, block in blocks_of(registry).items():
        # schedules and layers may have blocks of one name
        own = block.__name__ if block.__name__ not in before else f"{kind}.{block.__name__}"
        found = schema_of(block)
        definitions |= {inner: each for inner, each in found.pop("$defs", {}).items() if inner not in definitions}
        definitions[own] = found
        readers = [each for each in registry.names() if getattr(registry.get(each), "block", None) is block]
        part["properties"][key] = {
            "anyOf": [{"$ref": f"#/definitions/{own}"}, {"type": "null"}],
            "default": None,
            "description": f"For {', '.join(readers)}.",
        }
    return [each for each in definitions if each not in before]


def _add_options(keys: dict[str, Any], registry: Registry[Any]) -> None:
    """Add the options of registered classes to the keys of a part that holds them, where it has no key of the name."""
    own, takers = set(keys), dict[str, list[str]]()
    for name in registry.names():
        block = getattr(registry.get(name), "block", None)
        for key, found in schema_of(block)["properties"].items() if block else ():
            takers.setdefault(key, []).append(name)
            if key not in own:
                keys.setdefault(key, found)
    for key in keys.keys() - own:
        keys[key]["description"] = f"For {', '.join(takers[key])}. {keys[key].get('description', '')}"


class _Documented(GenerateJsonSchema):
    """Describes each key by the docstring under its field, and marks the parts that have blocks of a registry.

    Pydantic describes keys so too (``use_attribute_docstrings``), but when a model is defined, which makes every start
    slow.
    """

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        described = super().model_schema(schema)
        for cls in reversed(schema["cls"].__mro__):
            for name, text in field_docs(cls).items() if issubclass(cls, Conf) else ():
                if name in described.get("properties", {}):
                    described["properties"][name]["description"] = text
        if issubclass(schema["cls"], Conf) and schema["cls"].options_of:
            described["options"] = schema["cls"].options_of
        if issubclass(schema["cls"], PartConf):
            described |= {"additionalProperties": False, "blocks": schema["cls"].kind}
        return described


def _named(part: Any, registries: Mapping[str, Registry[Any]]) -> Any:
    """List the names of a registry where a key takes one."""
    if isinstance(part, list):
        return [_named(item, registries) for item in part]
    if not isinstance(part, dict):
        return part
    named = {key: _named(inner, registries) for key, inner in part.items()}
    kind = named.pop("registry") if isinstance(part.get("registry"), str) else ""
    if kind in registries:
        names = [*registries[kind].names(), *([""] if named.get("default") == "" else [])]
        named["anyOf"] = [{"enum": names}, {"pattern": r"^k[A-Z]|\."}]
    return named


def field_docs(cls: type) -> dict[str, str]:
    """Return the docstring under each field that a class itself defines."""
    lines, _ = inspect.findsource(inspect.getmodule(cls) or cls)
    return _docs_of_classes("".join(lines))[cls.__qualname__]


@lru_cache(maxsize=128)
def _docs_of_classes(source: str) -> dict[str, dict[str, str]]:
    """Return the docstrings under the fields of each class of a module, by its qualified name."""
    found: dict[str, dict[str, str]] = {}

    def look(node: ast.AST, within: str) -> None:
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.ClassDef):
                found[within + each.name] = dict(_docs_in(each))
                look(each, f"{within}{each.name}.")
            elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                look(each, f"{within}{each.name}.<locals>.")
            elif isinstance(each, ast.stmt):
                look(each, within)

    look(ast.parse(source), "")
    return found


def _docs_in(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, doc in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) and isinstance(doc.value.value, str):
                yield field.target.id, inspect.cleandoc(doc.value.value)


def _plain_references(part: Any) -> Any:
    """Wrap each reference that has keys beside it: draft 7 would not read those."""
    if isinstance(part, list):
        return [_plain_references(item) for item in part]
    if not isinstance(part, dict):
        return part
    inner = {key: _plain_references(value) for key, value in part.items()}
    if isinstance(inner.get("$ref"), str) and len(inner) > 1:
        inner["allOf"] = [{"$ref": inner.pop("$ref")}]
    return inner


HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
# sections of docstrings for those who write Python, not jobs
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
    cls : type or None
        None if the package that it needs is not installed.
    missing : str
        What to install then.
    """

    name: str
    others: list[str]
    cls: type | None
    missing: str = ""


class Key(NamedTuple):
    """A key of a block, in words."""

    name: str
    type: str
    default: str
    meaning: str


def parts_of(registry: Registry[Any]) -> list[RegisteredPart]:
    """Return the classes of a registry, each once, sorted by name."""
    names: dict[type, list[str]] = {}
    parts = []
    for name in registry.names():
        try:
            names.setdefault(registry.find(name), []).append(name)
        except ConfigError as error:
            parts.append(RegisteredPart(name, [], None, str(error)))
    for cls, known in names.items():
        own = cls.__name__ if cls.__name__ in known else known[0]
        parts.append(RegisteredPart(own, [name for name in known if name != own], cls))
    return sorted(parts)


def docs_of(cls: type) -> list[tuple[str, str]]:
    """Return (title, text) of the sections of a docstring, without those for Python; the first one has no title."""
    first, *rest = HEADING.split(inspect.getdoc(cls) or "")
    sections = [("", first), *zip(rest[::2], rest[1::2], strict=True)]
    return [(title, text.strip()) for title, text in sections if title not in FOR_PYTHON]


def keys_of(block: type[Conf]) -> Iterator[Key]:
    """Yield the keys of a block with types, defaults and meanings."""
    found = schema_of(block)
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
    """Return the types that a value may have."""
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


# The types of the functions of `singa_dask.nn`, for editors and type checkers.

STUB = """# Written by: singa-dask schema --stub
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict, Unpack

class Common(TypedDict, total=False):
"""
PYTHON_TYPES = {"integer": "int", "number": "float", "boolean": "bool", "string": "str", "null": "None"}
ANY_BLOCK = "Mapping[str, Any]"


def stub(layers: Registry[Any]) -> str:
    """Return the text of a stub with a function for each type of layer, which takes the keys of the type."""
    common = {key: part for key, part in schema_of(LayerConf)["properties"].items() if key != "type"}
    lines = []
    for key, part in common.items():
        lines += [f"    {key}: {python_type(part)}", *_documented([part["description"]])]
    for each in parts_of(layers):
        if each.cls:
            lines += ["", *_function(each.name, each.cls)]
            lines += [f"{other} = {each.name}" for other in each.others]
    return STUB + "\n".join(lines) + "\n"


def _function(name: str, cls: Any) -> Iterator[str]:
    """Yield the lines of the function of a type: the keys that it requires come first."""
    own = schema_of(cls.block) if cls.block else {"properties": {}}
    keys = {key: part for key, part in own["properties"].items() if key not in LayerConf.model_fields}
    required = [key for key in own.get("required", ()) if key in keys]
    options = [f"{key}: {python_type(part)} = ..." for key, part in keys.items() if key not in required]
    # a block of a base is read, too
    blocks = dict.fromkeys(vars(each)["block"] for each in cls.__mro__ if vars(each).get("block"))
    options += [f"{block.block_key}: {ANY_BLOCK} = ..." for block in blocks]
    yield f"def {name}("
    for argument in (*(f"{key}: {python_type(keys[key])}" for key in required), *(["*", *options] if options else ())):
        yield f"    {argument},"
    yield "    **common: Unpack[Common],"
    yield ") -> dict[str, Any]:"
    described = (f"{key}: {part['description']}" for key, part in keys.items() if "description" in part)
    yield from _documented([docs_of(cls)[0][1], *described])


def _documented(texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a docstring of some paragraphs."""
    paragraphs = ["\n    ".join(textwrap.wrap(text, 110)) for text in texts]
    yield '    r"""' + "\n\n    ".join(paragraphs) + '"""'


def python_type(part: Mapping[str, Any]) -> str:
    """Return the Python type of what a JSON schema describes."""
    if "enum" in part or "const" in part:
        return f"Literal[{', '.join(json.dumps(each) for each in part.get('enum', [part.get('const')]))}]"
    if "anyOf" in part or "allOf" in part:
        return " | ".join(dict.fromkeys(python_type(each) for each in part.get("anyOf", part.get("allOf"))))
    if part.get("type") == "array":
        return f"Sequence[{python_type(part.get('items', {}))}]"
    is_block = "$ref" in part or part.get("type") == "object"
    return ANY_BLOCK if is_block else PYTHON_TYPES.get(part.get("type", ""), "Any")
